// What the tests of schedules share.
#pragma once

#include <regex>
#include <sstream>

#include "loop/flatten.h"
#include "loop/schedule.h"
#include "loop_testing.h"

namespace tripod::loop {

using Dims = std::map<std::string, int64_t>;

// Names in one string, their values case by case.
inline std::vector<Dims> dims_of(const std::string& names, const std::vector<std::vector<int64_t>>& cases) {
  std::vector<Dims> out;
  for (const std::vector<int64_t>& values : cases) {
    std::istringstream in(names);
    Dims d;
    std::string name;
    for (size_t i = 0; in >> name; ++i) d[name] = values.at(i);
    out.push_back(d);
  }
  return out;
}

// A schedule of a function given as text.
struct Scheduled {
  explicit Scheduled(const std::string& source) : f(parsed(c, closed(source))), s(c, f) {}

  // `alloc X: f32[N] local` on a line of its own holds to the end of the function.
  static std::string closed(const std::string& source) {
    const std::regex line("alloc (\\w+): (\\w+\\[[^\\]]*\\]) local\n");
    std::string out = std::regex_replace(source, line, "alloc $1: local $2 {\n");
    const auto n = std::distance(std::sregex_iterator(source.begin(), source.end(), line), std::sregex_iterator());
    return out + std::string(static_cast<size_t>(n), '}');
  }

  Block block(const std::string& name) const {
    for (const Block& b : s.blocks())
      if (b.name == name) return b;
    ADD_FAILURE() << "no block " << name;
    return {};
  }
  Loop loop(const std::string& block_name, size_t i) const { return s.loops(block(block_name)).at(i); }

  // The schedule is good and computes what the compute form does, with blocks and flat.
  void check(const std::vector<Dims>& cases) {
    ASSERT_TRUE(s.outcome().applied) << s.outcome().reason;
    const Function& g = s.function();
    const Function flat = flatten(g);
    for (const Function* each : {&g, &flat})
      for (const std::string& e : verify(*each)) ADD_FAILURE() << e << "\n" << text(*each);
    for (const Dims& d : cases) {
      const auto want = outcome(f, d);
      EXPECT_TRUE(want == outcome(g, d)) << dims_text(d) << text(g);
      EXPECT_TRUE(want == outcome(flat, d)) << dims_text(d) << text(g) << text(flat);
    }
  }
  // The schedule has failed for this reason, and the function is as before.
  void refuses(const std::string& why) const {
    EXPECT_FALSE(s.ok()) << text(s.function());
    EXPECT_EQ(s.outcome().reason, why);
  }
  // Text without the numbers that tell variables of one name apart.
  std::string body() const { return plain(text(s.function().body)); }
  std::string flat() const { return plain(text(flatten(s.function()).body)); }
  static std::string plain(const std::string& t) {
    return std::regex_replace(t, std::regex("\\b([A-Za-z_]\\w*)(\\.[0-9]+)+"), "$1");
  }

  static std::string dims_text(const Dims& d) {
    std::string out;
    for (const auto& [name, v] : d) out += name + " = " + std::to_string(v) + "  ";
    return out + "\n";
  }

  sym::Context c;
  Function f;
  Schedule s;
};

}  // namespace tripod::loop
