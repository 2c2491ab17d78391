#include "driver/session.h"

#include <fmt/format.h>

#include <cstdio>

namespace tripod {

void Session::print(const std::string& pass, const std::function<std::string()>& text) const {
  if (!wants(pass) && !dumper_) return;
  const std::string s = text();
  if (dumper_) dumper_->dump_text(pass, s);
  if (!wants(pass)) return;
  printed_ = true;
  std::fprintf(stdout, "// after %s\n%s\n", pass.c_str(), s.c_str());
}

void Session::show(const std::string& phase, const graph::Module& m) const {
  if (dumper_) dumper_->dump_graph(phase, m);
  if (!wants(phase)) return;
  printed_ = true;
  std::fprintf(stdout, "// after %s\n%s\n", phase.c_str(), graph::text(m).c_str());
}

void Session::check_printed() const {
  if (printed_ || options_.print_after.empty()) return;
  throw CompileError({}, "--print-after: no pass or phase \"" + options_.print_after + "\" has run",
                     "names are those of --time-passes, of docs/design.md, and \"all\"");
}

// One line of the terminal, written over by the next phase.
void Session::show_progress(const std::string& phase) const {
  if (!options_.progress) return;
  std::fprintf(stderr, "\r\033[K");
  if (!phase.empty()) std::fprintf(stderr, "%s: %s ...", options_.model.c_str(), phase.c_str());
}

std::string Session::timings() const {
  std::string s;
  double total = 0;
  for (const auto& [phase, seconds] : times_) s += fmt::format("{:>10.1f} ms  {}\n", seconds * 1e3, phase), total += seconds;
  return s + fmt::format("{:>10.1f} ms  total\n", total * 1e3);
}

}  // namespace tripod
