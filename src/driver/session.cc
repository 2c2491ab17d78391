#include "driver/session.h"

#include <fmt/format.h>

#include <cstdio>

namespace tripod {

void Session::print(const std::string& pass, const std::function<std::string()>& text) const {
  if (!wants(pass)) return;
  const std::string s = text();
  std::fprintf(stdout, "// after %s\n%s\n", pass.c_str(), s.c_str());
}

std::string Session::timings() const {
  std::string s;
  double total = 0;
  for (const auto& [phase, seconds] : times_) s += fmt::format("{:>10.1f} ms  {}\n", seconds * 1e3, phase), total += seconds;
  return s + fmt::format("{:>10.1f} ms  total\n", total * 1e3);
}

}  // namespace tripod
