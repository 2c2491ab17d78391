// The forms that the rest of the compiler relies on: addresses, tiles, shapes.
#include <gtest/gtest.h>

#include "sym/expr.h"

namespace tripod::sym {
namespace {

constexpr int64_t kDim = int64_t{1} << 31;

struct SymExpr : testing::Test {
  Expr dim(const char* n) { return c.var(n, {1, kDim - 1}); }
  Expr loop(const char* n, Expr extent) {
    Expr v = c.var(n);
    c.assume_below(v, extent);
    return v;
  }
  Context c;
  Expr N = dim("N"), C = dim("C"), H = dim("H"), W = dim("W");
  Expr x = c.var("x"), y = c.var("y");
};

TEST_F(SymExpr, SumsArePolynomials) {
  EXPECT_EQ((N + 1) * W, W + N * W);
  EXPECT_EQ(text((N + 1) * W), "N*W + W");
  EXPECT_EQ(x + y - x, y);
  EXPECT_EQ((x + y) * (x - y), x * x - y * y);
  EXPECT_EQ(text(N - x * 32), "N - x*32");
  EXPECT_EQ(text(-x - 3), "-x - 3");
  EXPECT_EQ(text(3 - x), "3 - x");
  EXPECT_TRUE((x - x).is_const(0));
  EXPECT_EQ(product(c, {}), c.constant(1));
  EXPECT_EQ(product(c, {N, H, W}), W * H * N);
  EXPECT_EQ(sum(c, {x, y, x}), x * 2 + y);
}

TEST_F(SymExpr, Terms) {
  int64_t constant = 0;
  auto t = terms(x * 4 + N * W - 7, constant);
  EXPECT_EQ(constant, -7);
  ASSERT_EQ(t.size(), 2u);
  EXPECT_EQ(t[0].factor, N * W);
  EXPECT_EQ(t[1].factor, x);
  EXPECT_EQ(t[1].coefficient, 4);
  EXPECT_TRUE(terms(c.constant(5), constant).empty());
  EXPECT_EQ(constant, 5);
}

TEST_F(SymExpr, VariablesWithOneNameStayApart) {
  Expr a = c.var("i"), b = c.var("i"), odd = c.var("past + 1");
  EXPECT_NE(a, b);
  EXPECT_EQ(text(a + b), "i + i.1");
  EXPECT_EQ(a->name, b->name);
  EXPECT_EQ(text(odd * 2), "`past + 1`*2");
  EXPECT_EQ(parse(c, text(odd * 2), [&](std::string_view n) { return n == "past + 1" ? odd : Expr(); }), odd * 2);
}

TEST_F(SymExpr, DelinearisedIndices) {
  Expr n = loop("n", N), h = loop("h", H), w = loop("w", W);
  Expr flat = (n * H + h) * W + w;
  EXPECT_EQ(mod(flat, W), w);
  EXPECT_EQ(mod(floordiv(flat, W), H), h);
  EXPECT_EQ(floordiv(flat, H * W), n);
  EXPECT_EQ(floordiv(mod(flat, H * W), W), h);
  Expr f = loop("f", N * H * W);
  Expr back = (floordiv(f, H * W) * H + mod(floordiv(f, W), H)) * W + mod(f, W);
  EXPECT_EQ(back, f);
  EXPECT_EQ(floordiv(x, 4) * 4 + mod(x, 4), x);
  EXPECT_EQ(x - mod(x, 4), floordiv(x, 4) * 4);
  EXPECT_EQ(x - floordiv(x, W) * W, mod(x, W));
  EXPECT_EQ(substitute(flat, {{w, mod(f, W)}, {h, mod(floordiv(f, W), H)}, {n, floordiv(f, H * W)}}), f);
}

TEST_F(SymExpr, DivisibleDims) {
  Expr M = c.var("M", {0, kDim}, 16);
  EXPECT_EQ(floordiv(M, 16) * 16, M);
  EXPECT_EQ(ceildiv(M, 16), floordiv(M, 16));
  EXPECT_EQ(ceildiv(M, 8) * 8, M);
  EXPECT_TRUE(mod(M * 3, 48).is_const(0));
  EXPECT_EQ((M * W)->divisor, 16);
  EXPECT_TRUE(ne(M, 8).is_const(1));
}

TEST_F(SymExpr, Comparisons) {
  EXPECT_EQ(lt(x, y), gt(y, x));
  EXPECT_EQ(lt(x + 3, y + 4), le(x, y));
  EXPECT_EQ(lt(x * 4, N * 8 + 3), le(x, N * 2));
  EXPECT_EQ(text(lt(x * 32 + y, N)), "x*32 + y < N");
  EXPECT_EQ(text(ge(x, 0)), "0 <= x");
  EXPECT_EQ(text(le(x, 5)), "x <= 5");
  EXPECT_TRUE(eq(x * 4, N * 8 + 3).is_const(0));
  EXPECT_EQ(eq(x * 2, y * 2), eq(y, x));
  EXPECT_TRUE(ge(N, 1).is_const(1));
  EXPECT_EQ(logical_not(lt(x, y)), le(y, x));
  EXPECT_EQ(logical_and(ge(x, 0), ge(x, 2)), ge(x, 2));
}

TEST_F(SymExpr, ProofsAboutTiles) {
  Expr tiles = ceildiv(N, 32);
  Expr io = loop("io", tiles);
  Expr ii = loop("ii", min(c.constant(32), N - io * 32));
  EXPECT_TRUE(proved(lt(io * 32 + ii, N)));
  EXPECT_TRUE(proved(lt(io * 32, N)));
  EXPECT_TRUE(proved(le(N, tiles * 32)));
  EXPECT_TRUE(proved(lt(tiles * 32, N + 32)));
  EXPECT_EQ(prove(lt(tiles * 32, N)), Truth::no);
  EXPECT_EQ(prove(lt(io * 32 + 31, N)), Truth::unknown);
  EXPECT_EQ(prove(lt(x, N)), Truth::unknown);
  Expr h = loop("h", H), w = loop("w", W);
  EXPECT_TRUE(proved(lt(h * W + w, H * W)));
  EXPECT_TRUE(proved(ge(h * W + w, 0)));
  EXPECT_TRUE(proved(lt((h + 1) * W, H * W + 1)));
  EXPECT_TRUE(proved(lt(mod(x, W), W)));
  EXPECT_TRUE(proved(le(min(x, N), max(N, y))));
  EXPECT_TRUE(proved(ne(h, H)));
  // A padded access: where the guard holds the address is inside.
  Expr p = max(min(h + x, H - 1), c.constant(0));
  EXPECT_TRUE(proved(lt(p, H)));
  EXPECT_TRUE(proved(logical_and(ge(p, 0), lt(select(lt(x, 3), h, p), H))));
  // A window that slides over W with kernel 3: the last row read exists.
  Expr o = loop("o", floordiv(W - 3, 2) + 1);
  EXPECT_TRUE(proved(lt(o * 2 + 2, W)));
}

TEST_F(SymExpr, FactsThatComeLateCountFromThenOn) {
  Expr v = c.var("v");
  EXPECT_NE(floordiv(x * W + v, W), x);
  c.assume_below(v, W);
  EXPECT_EQ(floordiv(x * W + v, W), x);
}

TEST_F(SymExpr, Bounds) {
  Expr i = c.var("i", {0, 7}), j = c.var("j", {-2, 3});
  EXPECT_EQ(bounds(i * 4 - j), (Range{-3, 30}));
  EXPECT_EQ(bounds(floordiv(i, 3)), (Range{0, 2}));
  EXPECT_EQ(bounds(mod(j, 4)), (Range{0, 3}));
  EXPECT_EQ(bounds(j * j).lo, 0);
  EXPECT_EQ(bounds(i * 4 - j, {{i, {2, 3}}}), (Range{5, 14}));
  EXPECT_EQ(bounds(x), Range{});
  EXPECT_EQ(bounds(N * C * H * W), (Range{1, Range::kMax}));  // saturates
}

TEST_F(SymExpr, Linear) {
  Expr i = c.var("i");
  auto l = linear_in((i + 1) * (H * W) + x * 2, i);
  ASSERT_TRUE(l);
  EXPECT_EQ(l->coefficient, H * W);
  EXPECT_EQ(l->rest, H * W + x * 2);
  EXPECT_FALSE(linear_in(i * i, i));
  EXPECT_FALSE(linear_in(floordiv(i, 2) + i, i));
  EXPECT_FALSE(linear_in(i * mod(i, 3), i));
  l = linear_in(x, i);
  ASSERT_TRUE(l);
  EXPECT_TRUE(l->coefficient.is_const(0));
}

TEST_F(SymExpr, VariablesInOrder) {
  EXPECT_EQ(variables(floordiv(y, 3) + x * N), (std::vector<Expr>{N, x, y}));
  EXPECT_TRUE(uses(min(x, y), y));
  EXPECT_FALSE(uses(min(x, y), N));
}

TEST_F(SymExpr, OverflowThrows) {
  Expr big = c.constant(Range::kMax);
  EXPECT_THROW(big + 1, Overflow);
  EXPECT_THROW(big * 2, Overflow);
  EXPECT_THROW(x * Range::kMax * 2, Overflow);
  EXPECT_THROW(floordiv(c.constant(Range::kMin), -1), Overflow);
  EXPECT_THROW(evaluate(x * y, {{x, Range::kMax}, {y, 2}}), Overflow);
  EXPECT_THROW(evaluate(floordiv(x, y), {{x, 1}, {y, 0}}), Overflow);
  EXPECT_THROW(evaluate(floordiv(x, 0), {{x, 1}}), Overflow);
  EXPECT_EQ(evaluate(x + y - N, {{x, Range::kMax}, {y, 5}, {N, 6}}), Range::kMax - 1);
  EXPECT_EQ(evaluate(select(eq(y, 0), x, floordiv(x, y)), {{x, 7}, {y, 0}}), 7);
  EXPECT_EQ(evaluate(lt(x - Range::kMax, y + Range::kMax), {{x, 0}, {y, 0}}), 1);
  EXPECT_EQ(prove(lt(x - Range::kMax, y + Range::kMax)), Truth::unknown);
}

TEST_F(SymExpr, ParseErrorsSayWhere) {
  auto lookup = [&](std::string_view n) { return n == "x" ? x : Expr(); };
  for (const char* bad : {"", "x +", "x x", "(x", "foo(x)", "min(x)", "z + 1", "9223372036854775808", "x * * x", "`x", "gcd(x, 2)"})
    EXPECT_THROW(parse(c, bad, lookup), std::invalid_argument) << bad;
  EXPECT_THROW(parse(c, std::string(100000, '('), lookup), std::invalid_argument);
  EXPECT_THROW(parse(c, std::string(100000, '-') + "x", lookup), std::invalid_argument);
  EXPECT_EQ(parse(c, " ceildiv( x ,4 )", lookup), ceildiv(x, 4));
  EXPECT_EQ(parse(c, "-9223372036854775808", lookup).value(), Range::kMin);
  size_t at = 1;
  EXPECT_EQ(parse_prefix(c, "[x*2 - 1, x]", at, lookup), x * 2 - 1);
  EXPECT_EQ(at, 8u);
  at = 0;
  EXPECT_EQ(parse_prefix(c, "x -> y", at, lookup), x);
}

// Work stays proportional to the DAG, not to the tree it stands for.
TEST_F(SymExpr, SharedNodesAreVisitedOnce) {
  Expr e = x;
  for (int i = 0; i < 200; ++i) e = max(floordiv(e, y), mod(e, N));
  Expr f = substitute(e, {{x, x + 1}});
  EXPECT_NE(e, f);
  EXPECT_TRUE(uses(f, x));
  EXPECT_EQ(variables(f).size(), 3u);
  evaluate(f, {{x, 100}, {y, 2}, {N, 7}});
  bounds(f, {{x, {0, 5}}});
}

}  // namespace
}  // namespace tripod::sym
