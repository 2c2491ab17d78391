// The cost of functions in compute form, counted by hand.
#include <gtest/gtest.h>

#include "loop/cost.h"

namespace tripod::loop {
namespace {

Cost cost(sym::Context& c, const char* text) { return cost_of(c, parse(c, text)); }

TEST(Cost, MatMul) {
  sym::Context c;
  const Cost k = cost(c, R"(func @mm[M: 1..100](A: f32[M, 8], B: constant f32[8, 4]) -> (C: f32[M, 4]) {
  block mm(i: M, j: 4; reduce k: 8) {
    init {
      C[i, j] = 0
    }
    C[i, j] = C[i, j] + A[i, k] * B[k, j]
  }
}
)");
  EXPECT_EQ(sym::text(k.flops), "M*64");               // M*4*8 multiplications, as many additions
  EXPECT_EQ(sym::evaluate(k.bytes, {{sym::variables(k.bytes)[0], 10}}), 4 * (10 * 8 + 8 * 4 + 10 * 4));
}

TEST(Cost, GatherCountsWhatItReads) {
  sym::Context c;
  const Cost k = cost(c, R"(func @g(table: constant f16[1000, 4], at: i64[3]) -> (y: f16[3, 4]) {
  block g(i: 3, j: 4) {
    let r: 0..999 = at[i] {
      y[i, j] = table[r, j]
    }
  }
}
)");
  EXPECT_EQ(k.flops.value(), 0);
  EXPECT_EQ(k.bytes.value(), 3 * 4 * 2 + 3 * 8 + 3 * 4 * 2);
}

TEST(Cost, MathFunctionsCountOneAndFmaTwo) {
  sym::Context c;
  const Cost k = cost(c, R"(func @f(x: f32[5]) -> (y: f32[5]) {
  block f(i: 5) {
    y[i] = fma(exp(x[i]), 2, 1)
  }
}
)");
  EXPECT_EQ(k.flops.value(), 15);
  EXPECT_EQ(k.bytes.value(), 40);
}

}  // namespace
}  // namespace tripod::loop
