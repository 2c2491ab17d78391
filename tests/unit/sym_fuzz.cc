// Random expressions: whatever the simplifier made of them has the value of what was written.
#include <gtest/gtest.h>

#include <random>

#include "sym/impl.h"
#include "sym_brute.h"

namespace tripod::sym {
namespace {

struct World {
  Context c;
  std::mt19937 random;
  std::map<std::string, Expr> vars;

  explicit World(unsigned seed) : random(seed) {
    vars["N"] = c.var("N", {1, 9});
    vars["W"] = c.var("W", {0, 6});
    vars["i"] = c.var("i");
    vars["j"] = c.var("j");
    vars["k"] = c.var("k", {0, 3});
    vars["m"] = c.var("m", {-8, 8}, 4);
    vars["x"] = c.var("x");
    vars["y"] = c.var("y", {-5, Range::kMax});
    c.assume_below(vars["i"], vars["N"]);
    c.assume_below(vars["j"], vars["W"]);
  }

  int64_t pick(int64_t lo, int64_t hi) { return std::uniform_int_distribution<int64_t>(lo, hi)(random); }

  Syntax leaf() {
    if (pick(0, 3) == 0) return {Op::constant, pick(-6, 9), "", {}};
    auto it = vars.begin();
    std::advance(it, pick(0, static_cast<int64_t>(vars.size()) - 1));
    return {Op::variable, 0, it->first, {}};
  }
  Syntax condition(int depth) {
    if (depth <= 0 || pick(0, 2) > 0) {
      return {static_cast<Op>(pick(static_cast<int>(Op::lt), static_cast<int>(Op::ne))), 0, "", {tree(depth - 1), tree(depth - 1)}};
    }
    switch (pick(0, 2)) {
      case 0: return {Op::logical_and, 0, "", {condition(depth - 1), condition(depth - 1)}};
      case 1: return {Op::logical_or, 0, "", {condition(depth - 1), condition(depth - 1)}};
      default: return {Op::logical_not, 0, "", {condition(depth - 1)}};
    }
  }
  Syntax divisor() { return pick(0, 2) ? Syntax{Op::constant, pick(0, 9) ? pick(1, 8) : -3, "", {}} : leaf(); }
  Syntax tree(int depth) {
    if (depth <= 0) return leaf();
    switch (pick(0, 11)) {
      case 0:
      case 1:
      case 2: return {Op::add, 0, "", {tree(depth - 1), tree(depth - 1)}};
      case 3:
      case 4: return {Op::mul, 0, "", {tree(depth - 1), leaf()}};
      case 5: return {Op::floordiv, 0, "", {tree(depth - 1), divisor()}};
      case 6: return {Op::mod, 0, "", {tree(depth - 1), divisor()}};
      case 7: return {Op::min, 0, "", {tree(depth - 1), tree(depth - 1)}};
      case 8: return {Op::max, 0, "", {tree(depth - 1), tree(depth - 1)}};
      case 9: return {Op::select, 0, "", {condition(depth - 1), tree(depth - 1), tree(depth - 1)}};
      case 10: return {Op::mul, 0, "", {{Op::floordiv, 0, "", {tree(depth - 1), divisor()}}, divisor()}};
      default: return condition(depth);
    }
  }

  Expr build(const Syntax& s) {
    if (s.op == Op::constant) return c.constant(s.value);
    if (s.op == Op::variable) return vars.at(s.name);
    Expr a[3];
    for (size_t i = 0; i < s.args.size(); ++i) a[i] = build(s.args[i]);
    return c.make(s.op, a[0], a[1], a[2]);
  }

  // Nothing where the facts cannot hold.
  bool assign(Names& names, Values& values) {
    names = {{"N", pick(1, 9)}, {"W", pick(0, 6)}, {"k", pick(0, 3)}, {"m", pick(-2, 2) * 4}, {"x", pick(-20, 20)}, {"y", pick(-5, 20)}};
    if (names["W"] == 0) return false;
    names["i"] = pick(0, names["N"] - 1);
    names["j"] = pick(0, names["W"] - 1);
    for (const auto& [n, v] : names) values[vars[n]] = v;
    return true;
  }
};

std::string show(const Names& names) {
  std::string s;
  for (const auto& [n, v] : names) s += " " + n + "=" + std::to_string(v);
  return s;
}

TEST(SymFuzz, SimplifiedIsEqual) {
  for (unsigned seed = 0; seed < 1500; ++seed) {
    World w(seed);
    const Syntax s = w.tree(static_cast<int>(seed % 5) + 1);
    Expr e = w.build(s);
    const Truth truth = prove(e);
    const Range range = bounds(e);
    for (int round = 0; round < 25; ++round) {
      Names names;
      Values values;
      if (!w.assign(names, values)) continue;
      auto want = brute(s, names);
      if (!want) continue;
      const int64_t got = evaluate(e, values);
      ASSERT_EQ(got, *want) << "seed " << seed << ": " << text(e) << " at" << show(names);
      ASSERT_TRUE(range.lo <= got && got <= range.hi) << "seed " << seed << ": " << text(e) << " at" << show(names);
      if (e->divisor != 0) {
        ASSERT_EQ(got % e->divisor, 0) << "seed " << seed << ": " << text(e) << " at" << show(names);
      }
      if (truth != Truth::unknown) {
        ASSERT_EQ(got != 0, truth == Truth::yes) << "seed " << seed << ": " << text(e) << " at" << show(names);
      }
    }
  }
}

TEST(SymFuzz, TextRoundTrips) {
  for (unsigned seed = 0; seed < 1000; ++seed) {
    World w(seed + 100000);
    Expr e = w.build(w.tree(static_cast<int>(seed % 6)));
    Expr back = parse(w.c, text(e), [&](std::string_view n) { return w.vars.at(std::string(n)); });
    ASSERT_EQ(e, back) << "seed " << seed << ": " << text(e) << " came back as " << text(back);
  }
}

// Another context, in which the variables were made in another order, prints the same text.
TEST(SymFuzz, TextDoesNotDependOnOrderOfCreation) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    World w(seed + 200000), other(0);
    const Syntax s = w.tree(4);
    for (auto it = w.vars.rbegin(); it != w.vars.rend(); ++it) other.build(w.tree(3));
    ASSERT_EQ(text(w.build(s)), text(other.build(s))) << "seed " << seed;
  }
}

TEST(SymFuzz, SubstituteAndLinear) {
  for (unsigned seed = 0; seed < 700; ++seed) {
    World w(seed + 300000);
    const Syntax s = w.tree(4), by = w.tree(2);
    Expr e = w.build(s), x = w.vars["x"], replacement = w.build(by);
    Expr replaced = substitute(e, {{x, replacement}});
    auto linear = linear_in(e, x);
    if (linear) {
      EXPECT_FALSE(uses(linear->coefficient, x));
      EXPECT_FALSE(uses(linear->rest, x));
      EXPECT_EQ(linear->coefficient * x + linear->rest, e) << text(e);
    }
    for (int round = 0; round < 10; ++round) {
      Names names;
      Values values;
      if (!w.assign(names, values)) continue;
      auto inner = brute(by, names);
      if (!inner) continue;
      names["x"] = *inner;
      auto want = brute(s, names);
      if (!want) continue;
      ASSERT_EQ(evaluate(replaced, values), *want) << "seed " << seed << ": " << text(replaced) << " at" << show(names);
    }
  }
}

}  // namespace
}  // namespace tripod::sym
