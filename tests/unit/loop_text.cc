#include "loop_testing.h"

namespace tripod::loop {
namespace {

void expect_round_trip(const std::string& source) {
  sym::Context c;
  EXPECT_EQ(text(parsed(c, source)), source);
}

TEST(Text, ComputeForm) {
  expect_round_trip(R"(func @conv[N: 1..64, H, K: 8..512 step 8](X: f32[N, 64, H], W: constant f32[64, 64, 3]) -> (Z: f32[N, 64, H]) {
  from 12 "Conv" "layer1/conv2"
  from -1 "" "made up \"here\""
  rule "conv"
  alloc Y: f32[N, 64, H] {
    block conv(n: N, k: 64, x: H; reduce c: 64, r: 3) {
      init {
        Y[n, k, x] = 0
      }
      Y[n, k, x] = fma((X[n, c, r + x - 1] if 0 < r + x && r + x <= H else 0), W[k, c, r], Y[n, k, x])
    }
    block relu(n.1: N, k.1: 64, x.1: H) {
      Z[n.1, k.1, x.1] = max(Y[n.1, k.1, x.1], 0)
    }
  }
}
)");
}

TEST(Text, EveryStatement) {
  expect_round_trip(R"(func @all[N: 1..](X: f32[N], I: i64[N]) -> (Y: f32[N]) {
  for i in 0..floordiv(N + 15, 16) parallel grain 4 {
    alloc acc: reg f32[4, 16] {
      alloc tile: shared f16[16, 64] layout (d0, d1) -> (floordiv(d1, 8), d0, mod(d1, 8)) in [8, 16, 8] {
        for j in 0..16 vector {
          block b(n: N = i*16 + j) where i*16 + j < N {
            let at: -5..100 = I[n] {
              check at in 0..N site 3
              if 0 <= at {
                Y[n] = X[at]
              } else {
                Y[n] = 0 if n + 1 < N
              }
            }
          }
        }
        sync barrier
        sync wait token 2 count 1
        tile copy acc[0 : 4, 0 : 16], tile[0 : 4, i : 16] token 1
        if value(X[i] < 0 & I[i] == 2:i64) {
          Y[i] = 1.5
          if value(X[i] < 1) {
            Y[i] = 2
            if i <= 2 {
              Y[i] = 3 if i <= 1
            }
          }
        }
      }
    }
  }
}
)");
}

TEST(Text, SharedValuesAndConstants) {
  expect_round_trip(R"(func @values[N](X: f32[N], D: f64[N], I: i32[N], H: f16[N], B: b1[N]) -> (Y: f32[N]) {
  for i in 0..N {
    %1 = X[i] * 3.4028235e+38
    %2 = %1 + 1e-45
    Y[i] = %2 * %2 - %1
    Y[i] = f32(D[i] / -0:f64 + 0.1:f64) - inf + X[i] * -inf * nan - bits<f32>(0x7fc00001)
    Y[i] = bitcast<f32>((I[i] << 3:i32) + -2147483648:i32 & 7:i32 | 1:i32)
    Y[i] = f32(H[i]) * (X[i] - (X[i] + 1)) / (X[i] / 2) + index<f32>(i*2 + 1)
    Y[i] = select(B[i] & not(X[i] <= 1), exp(X[i]), min(pow(X[i], 2), neg(X[i])))
    Y[i] = f32((H[i] if i <= 4 else -1.5:f16)) + f32(X[i] < 1 == true)
  }
}
)");
}

TEST(Text, ErrorsHaveAPlace) {
  const auto message = [](const std::string& source) -> std::string {
    sym::Context c;
    try {
      parse(c, source);
    } catch (const CompileError& e) {
      return e.diagnostics.errors()[0].message;
    }
    return "";
  };
  EXPECT_EQ(message("func f"), "line 1, column 6: expected '@'");
  EXPECT_EQ(message("func @f(X: f99[4]) {\n}"), "line 1, column 15: 'f99' is no element type");
  EXPECT_EQ(message("func @f() -> (Y: f32[4]) {\n  Z[0] = 1\n}"), "line 2, column 4: unknown buffer 'Z'");
  EXPECT_NE(message("func @f() -> (Y: f32[4]) {\n  Y[i] = 1\n}").find("unknown name 'i'"), std::string::npos);
  EXPECT_NE(message("func @f() -> (Y: f32[4]) {\n  Y[0] = 1 + 2:i32\n}").find("operands of f32 and i32"), std::string::npos);
  EXPECT_NE(message("func @f() -> (Y: f32[4]) {\n  Y[0] = foo(1)\n}").find("no operation 'foo'"), std::string::npos);
  EXPECT_NE(message("func @f() -> (Y: f32[4]) {\n  Y[0] = 1:i32\n}").find("another type"), std::string::npos);
  EXPECT_NE(message("func @f() -> (Y: f32[4]) {\n  Y[0, 1] = 1\n}").find("2 indices"), std::string::npos);
  EXPECT_NE(message("func @f() -> (Y: f32[4]) {\n"), "");
  EXPECT_NE(message(std::string(5000, '(')), "");
}

std::string first_error(const std::string& source) {
  sym::Context c;
  const auto errors = verify(parse(c, source));
  return errors.empty() ? "" : errors[0];
}

TEST(Verify, SaysWhatIsWrong) {
  EXPECT_EQ(first_error("func @f(X: f32[4]) -> (Y: f32[4]) { X[0] = 1 }"), "func @f: a store to X, which is an input");
  EXPECT_EQ(first_error("func @f() -> (Y: f32[4]) { for i in 0..4 { Y[i] = 1 } Y[i] = 1 }"),
            "func @f: a store to Y uses i, which is not bound there");
  EXPECT_EQ(first_error("func @f() -> (Y: f32[4]) { alloc T: f32[4] { T[0] = 1 } Y[0] = T[0] }"),
            "func @f: a load of T: the buffer does not exist there");
  EXPECT_EQ(first_error("func @f[N]() -> (Y: f32[N]) { for i in 0..N vector { Y[i] = 1 } }"),
            "func @f: loop i is vector or unrolled, and its extent is not constant");
  EXPECT_EQ(first_error("func @f() -> (Y: f32[4]) { for i in 0..2 { for j in 0..2 parallel { Y[i*2 + j] = 1 } } }"),
            "func @f: loop j is parallel inside another loop");
  EXPECT_EQ(first_error("func @f() -> (Y: f32[4]) { alloc r: reg f32[4] { for i in 0..4 { r[i] = 1 Y[i] = r[i] } } }"),
            "func @f: registers r are indexed by i, which is not unrolled");
  EXPECT_EQ(first_error("func @f() -> (Y: f32[4]) { block b(i: 4) { Y[i] = 1 } block b(i: 4) { Y[i] = 1 } }"),
            "func @f: two blocks are called b");
}

}  // namespace
}  // namespace tripod::loop
