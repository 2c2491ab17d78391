// The rule table: every row is true (its text, by brute force), and every row is needed (something makes it fire).
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "sym/rules.h"
#include "sym_brute.h"

namespace tripod::sym {
namespace {

void names_of(const Syntax& s, std::set<std::string>& out) {
  if (s.op == Op::variable && s.args.empty()) out.insert(s.name);
  for (const Syntax& a : s.args) names_of(a, out);
}

TEST(SymRules, EachIsTrueByBruteForce) {
  std::mt19937 random(1);
  for (const Rule& rule : rules()) {
    const Syntax pattern = syntax_of(rule.pattern), result = syntax_of(rule.result);
    const Syntax condition = syntax_of(rule.condition.empty() ? "1" : rule.condition);
    std::set<std::string> names;
    names_of(pattern, names);
    int checked = 0;
    for (int round = 0; round < 40000 && checked < 1500; ++round) {
      Names values;
      const int span = round % 2 ? 4 : 13;
      for (const auto& n : names) {
        values[n] = n[0] == 'p' ? static_cast<int>(random() % 2) : static_cast<int>(random() % (2 * span + 1)) - span;
      }
      if (!brute(condition, values).value_or(0)) continue;
      auto want = brute(pattern, values);
      if (!want) continue;
      ++checked;
      auto got = brute(result, values);
      std::string where;
      for (const auto& [n, v] : values) where += " " + n + "=" + std::to_string(v);
      ASSERT_EQ(got, want) << rule.name << " at" << where;
    }
    EXPECT_GT(checked, names.empty() ? 0 : 200) << rule.name << ": the condition is hardly ever true";
  }
}

class Firing : public testing::Test {
 protected:
  Firing() {
    for (const char* n : {"x", "y", "z", "w"}) vars[n] = c.var(n);
    for (const char* n : {"N", "W", "H"}) vars[n] = c.var(n, {1, 1 << 30});
    vars["i"] = c.var("i");
    vars["j"] = c.var("j");
    vars["k"] = c.var("k", {0, 3});
    vars["m"] = c.var("m", {-4, -1});
    vars["n16"] = c.var("n16", {0, 1 << 20}, 16);
    c.assume_below(vars["i"], vars["H"]);
    c.assume_below(vars["j"], vars["W"]);
  }
  Expr parse(std::string_view t) {
    return sym::parse(c, t, [&](std::string_view n) { return vars.at(std::string(n)); });
  }
  Context c;
  std::map<std::string, Expr> vars;
};

struct Case {
  const char *rule, *text, *simplified;
};
// In the order of the table. Where the last column is "", only the firing is of interest.
const Case kCases[] = {
    {"floordiv_zero", "floordiv(x - x, y)", "0"},
    {"floordiv_negative", "floordiv(x, -4)", "floordiv(-x, 4)"},
    {"floordiv_whole", "floordiv(x*8 + y + 5, 4)", "x*2 + floordiv(y + 1, 4) + 1"},
    {"floordiv_small", "floordiv(i*W + j, W)", "i"},
    {"floordiv_below", "floordiv(m, W + 3)", "-1"},
    {"floordiv_offset", "floordiv(x*4 + 3, 8)", "floordiv(x, 2)"},
    {"floordiv_multiple", "floordiv(n16 + x, 16)", "floordiv(n16, 16) + floordiv(x, 16)"},
    {"floordiv_cancel", "floordiv(x*4 + y*6, 12)", "floordiv(x*2 + y*3, 6)"},
    {"floordiv_factor", "floordiv(x*W + j, H*W)", "floordiv(x, H)"},
    {"floordiv_floordiv", "floordiv(floordiv(x, W) + 1, 4)", "floordiv(W + x, W*4)"},
    {"floordiv_mod", "floordiv(mod(x, H*W), W)", "mod(floordiv(x, W), H)"},
    {"mod_zero", "mod(x - x, y)", "0"},
    {"mod_negative", "mod(x, -4)", "-mod(-x, 4)"},
    {"mod_whole", "mod(x*W + y, W)", "mod(y, W)"},
    {"mod_small", "mod(i*W + j, W)", "j"},
    {"mod_below", "mod(m, W + 3)", "W + m + 3"},
    {"mod_exact", "mod(n16*x, 8)", "0"},
    {"mod_offset", "mod(x*4 + 3, 8)", "mod(x, 2)*4 + 3"},
    {"mod_multiple", "mod(n16 + x, 16)", "mod(x, 16)"},
    {"mod_cancel", "mod(x*W, H*W)", "W*mod(x, H)"},
    {"mod_factor", "mod(x*W + j, H*W)", "W*mod(x, H) + j"},
    {"mod_mod", "mod(mod(x, H*W)*y + z, W)", "mod(x*y + z, W)"},
    {"mod_mod_constant", "mod(mod(x, 6)*2 + z, 4)", "mod(x*2 + z, 4)"},
    {"min_first", "min(x + 3, x)", "x"},
    {"min_clamp", "min(max(x, 3), 7)", "max(min(x, 7), 3)"},
    {"max_first", "max(max(x, 3), 5)", "max(x, 5)"},
    {"lt_true", "j < W", "1"},
    {"lt_false", "W < j", "0"},
    {"le_true", "0 <= k", "1"},
    {"le_false", "k <= m", "0"},
    {"eq_apart", "k == m", "0"},
    {"eq_residue", "n16 == x*16 + 8 - x*0", ""},
    {"eq_zero", "(x < y) == 0", "y <= x"},
    {"eq_one", "(x < y) == 1", "x < y"},
    {"ne_apart", "k != m", "1"},
    {"ne_residue", "n16 + 8 != mod(x, 2)*16", ""},
    {"ne_zero", "(x < y) != 0", "x < y"},
    {"ne_one", "(x < y) != 1", "y <= x"},
    {"not_lt", "!(x < y)", "y <= x"},
    {"not_le", "!(x <= y)", "y < x"},
    {"not_eq", "!(x == y)", "x != y"},
    {"not_ne", "!(x != y)", "x == y"},
    {"not_and", "!(x < y && z != w)", ""},
    {"not_or", "!(x < y || z != w)", ""},
    {"and_true", "x < y && 1", "x < y"},
    {"and_false", "x < y && 0", "0"},
    {"and_same", "x == y && y == x", "x == y"},
    {"and_never", "x < y && y < x", "0"},
    {"and_implied", "x < y + 2 && x <= y", "x <= y"},
    {"and_not", "x == y && x != y", "0"},
    {"or_true", "x == y || 1", "1"},
    {"or_false", "x == y || 0", "x == y"},
    {"or_same", "x == y || y == x", "x == y"},
    {"or_always", "x < y || y <= x", "1"},
    {"or_implied", "x < y + 2 || x <= y", "x <= y + 1"},
    {"or_not", "x == y || x != y", "1"},
    {"select_true", "select(j < W, x, y)", "x"},
    {"select_false", "select(W < j, x, y)", "y"},
    {"select_same", "select(x < y, z + 1, 1 + z)", "z + 1"},
    {"select_ne", "select(x != y, z, w)", "select(x == y, w, z)"},
    {"select_first", "select(x < 3, select(x < 3, y, z), w)", "select(x <= 2, y, w)"},
    {"select_second", "select(x < 3, y, select(x < 3, z, w))", "select(x <= 2, y, w)"},
    {"select_min_lt", "select(x < y, x, y)", "min(x, y)"},
    {"select_min_le", "select(x <= y, x, y)", "min(x, y)"},
    {"select_max_lt", "select(x < y, y, x)", "max(x, y)"},
    {"select_max_le", "select(x <= y, y, x)", "max(x, y)"},
    {"xor_same", "(k ^ i) ^ k", "i"},
    {"xor_zero", "k ^ 0", "k"},
};

TEST_F(Firing, EachRuleFires) {
  std::set<std::string_view> seen;
  for (const Case& k : kCases) {
    seen.insert(k.rule);
    size_t row = 0;
    while (row < rules().size() && rules()[row].name != k.rule) ++row;
    ASSERT_LT(row, rules().size()) << k.rule;
    c.impl().made.clear();  // what another case simplified already counts here too
    const uint64_t before = c.impl().fired[row];
    Expr e = parse(k.text);
    EXPECT_GT(c.impl().fired[row], before) << k.rule << ": " << k.text << " -> " << text(e);
    if (*k.simplified) {
      EXPECT_EQ(text(e), k.simplified) << k.rule;
      EXPECT_EQ(e, parse(k.simplified)) << k.rule;
    }
  }
  for (const Rule& r : rules()) EXPECT_TRUE(seen.count(r.name)) << r.name << " has no case";
}

}  // namespace
}  // namespace tripod::sym
