#include "loop/interpreter.h"

#include "loop_testing.h"

namespace tripod::loop {
namespace {

struct Ran {
  std::vector<std::vector<double>> params;
  InterpretResult result;
};
Ran run(const std::string& source, const std::map<std::string, int64_t>& dims,
        const std::vector<std::vector<double>>& inputs) {
  sym::Context c;
  const Function f = parse(c, source);
  const sym::Values d = dims_of(f, dims);
  std::vector<Memory> params = made_up_params(f, d);
  for (size_t p = 0; p < inputs.size(); ++p)
    for (size_t i = 0; i < inputs[p].size(); ++i)
      write_element(f.params[p]->dtype, params[p].bytes.data(), static_cast<int64_t>(i),
                    bits_from_double(f.params[p]->dtype, inputs[p][i]));
  Ran r;
  r.result = interpret(f, d, params);
  for (size_t p = 0; p < params.size(); ++p) r.params.push_back(values_of(f.params[p]->dtype, params[p]));
  return r;
}

TEST(Interpreter, ComputeForm) {
  const Ran r = run(R"(
func @mm[M, K](A: f32[M, K], B: f32[K, 2]) -> (C: f32[M, 2]) {
  block mm(m: M, n: 2; reduce k: K) {
    init { C[m, n] = 0 }
    C[m, n] = fma(A[m, k], B[k, n], C[m, n])
  }
})", {{"M", 2}, {"K", 3}}, {{1, 2, 3, 4, 5, 6}, {1, 0, 0, 1, 1, 1}});
  EXPECT_EQ(r.params[2], (std::vector<double>{4, 5, 10, 11}));
  EXPECT_TRUE(r.result.violations.empty());
  EXPECT_EQ(r.result.executions.at("mm"), 12);
}

TEST(Interpreter, EmptyReductionIsItsInit) {
  const Ran r = run(R"(
func @sum[K](A: f32[2, K]) -> (C: f32[2]) {
  block s(m: 2; reduce k: K) {
    init { C[m] = 5 }
    C[m] = C[m] + A[m, k]
  }
})", {{"K", 0}}, {});
  EXPECT_EQ(r.params[1], (std::vector<double>{5, 5}));
}

TEST(Interpreter, EveryStorageType) {
  for (const char* t : {"f16", "bf16", "i4", "u4", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f64"}) {
    const Ran r = run("func @f(A: " + std::string(t) + "[5]) -> (B: f32[5], C: " + t +
                          "[5]) { for i in 0..5 { B[i] = f32(A[4 - i]) * 2 C[i] = A[i] } }",
                      {}, {{1, 2, 3, 4, 5}});
    EXPECT_EQ(r.params[1], (std::vector<double>{10, 8, 6, 4, 2})) << t;
    EXPECT_EQ(r.params[2][4], 5) << t;
    EXPECT_TRUE(r.result.violations.empty()) << r.result.violations[0];
  }
}

TEST(Interpreter, LayoutsMoveElements) {
  const Ran r = run(R"(
func @f(A: f32[2, 4]) -> (B: f32[2, 4] layout (d0, d1) -> (floordiv(d1, 2), d0, mod(d1, 2)) in [2, 2, 2]) {
  block copy(i: 2, j: 4) { B[i, j] = A[i, j] }
})", {}, {{0, 1, 2, 3, 4, 5, 6, 7}});
  EXPECT_EQ(r.params[1], (std::vector<double>{0, 1, 4, 5, 2, 3, 6, 7}));
}

TEST(Interpreter, GuardsTouchNothing) {
  const Ran r = run(R"(
func @f(A: f32[3]) -> (B: f32[5]) {
  for i in 0..6 {
    B[i] = (A[i - 1] if 1 <= i && i < 4 else -1) if i < 5
  }
})", {}, {{7, 8, 9}});
  EXPECT_EQ(r.params[1], (std::vector<double>{-1, 7, 8, 9, -1}));
  EXPECT_TRUE(r.result.violations.empty());
}

TEST(Interpreter, GatherAndCheck) {
  const Ran r = run(R"(
func @f(A: f32[3], I: i64[4]) -> (B: f32[4]) {
  for i in 0..4 {
    let at: 0..2 = I[i] {
      check at in 0..3 site 9
      B[i] = (A[at] if at < 3 else 0)
    }
  }
})", {}, {{7, 8, 9}, {2, 0, 5, 1}});
  EXPECT_EQ(r.params[2][0], 9);
  ASSERT_EQ(r.result.failed_checks.size(), 1u);
  EXPECT_EQ(r.result.failed_checks[0].site, 9);
  EXPECT_EQ(r.result.failed_checks[0].got, 5);
  EXPECT_EQ(r.result.failed_checks[0].limit, 3);
}

std::string violation(const std::string& body, const std::string& params = "(A: f32[4]) -> (B: f32[4])") {
  const Ran r = run("func @f" + params + " {\n" + body + "\n}", {}, {});
  return r.result.violations.empty() ? "" : r.result.violations[0];
}

TEST(Interpreter, Bounds) {
  EXPECT_EQ(violation("for i in 0..5 { B[i] = 1 }"), "write of B[4] outside its shape");
  EXPECT_EQ(violation("for i in 0..4 { B[i] = A[i - 1] }"), "read of A[-1] outside its shape");
  EXPECT_EQ(violation("for i in 0..4 { block b(n: 3 = i) { B[n] = 1 } }"), "block b: iterator n is 3 of 3");
}

TEST(Interpreter, Uninitialised) {
  EXPECT_EQ(violation("B[0] = B[1]"), "read of B[1]: read of memory that was never written");
  EXPECT_EQ(violation("for i in 0..2 { alloc t: local f32[1] { t[0] = A[i] if i < 1 B[i] = t[0] } }"),
            "read of t[0]: read of memory that was never written");
}

TEST(Interpreter, Races) {
  const std::string parallel = ": two parallel iterations", threads = ": two threads with no barrier between";
  EXPECT_EQ(violation("for i in 0..4 parallel { B[i] = A[3 - i] }"), "");
  EXPECT_EQ(violation("for i in 0..4 parallel { B[0] = 1 }"), "write of B[0]" + parallel);
  EXPECT_EQ(violation("B[0] = 1 B[1] = 1 for i in 0..2 parallel { B[i] = B[1 - i] }"), "read of B[0]" + parallel);
  EXPECT_EQ(violation("alloc t: local f32[1] { for i in 0..2 parallel { t[0] = 1 B[i] = t[0] } }"),
            "write of t[0]" + parallel);
  EXPECT_EQ(violation("for i in 0..2 parallel { B[i] = 1 } for i in 0..2 parallel { B[1 - i] = 2 }"), "");
  const std::string exchange =
      "for g in 0..1 grid_x { alloc s: shared f32[4] { for t in 0..4 block_x { s[t] = A[t] } SYNC for t in 0..4 "
      "block_x { B[t] = s[3 - t] } } }";
  std::string with = exchange, without = exchange;
  with.replace(with.find("SYNC"), 4, "sync barrier");
  without.replace(without.find("SYNC"), 4, "");
  EXPECT_EQ(violation(with), "");
  EXPECT_EQ(violation(without), "read of s[3]" + threads);
  EXPECT_EQ(violation("B[0] = 0 for i in 0..4 vector { B[0] = B[0] + A[i] }"), "read of B[0]: two lanes of a vector");
}

TEST(Interpreter, RegistersBelongToThreads) {
  EXPECT_EQ(violation("for g in 0..1 grid_x { alloc r: reg f32[1] { for t in 0..4 block_x { r[0] = A[t] } for t in "
                      "0..4 block_x { B[t] = r[0] } } }"),
            "");
}

TEST(Interpreter, Tiles) {
  const Ran r = run(R"(
func @f(A: f32[2, 3], B: f32[3, 2]) -> (C: f32[2, 2], D: f32[2], E: f32[1, 2]) {
  for i in 0..2 { for j in 0..2 { C[i, j] = 1 } D[i] = 0 }
  tile mma C[0 : 2, 0 : 2], A[0 : 2, 0 : 3], B[0 : 3, 0 : 2]
  tile reduce_sum D[0 : 2], A[0 : 2, 0 : 3]
  tile copy E[0 : 1, 0 : 2], C[1 : 1, 0 : 2]
})", {}, {{1, 2, 3, 4, 5, 6}, {1, 0, 0, 1, 1, 1}});
  EXPECT_EQ(r.params[2], (std::vector<double>{5, 6, 11, 12}));
  EXPECT_EQ(r.params[3], (std::vector<double>{6, 15}));
  EXPECT_EQ(r.params[4], (std::vector<double>{11, 12}));
}

// --- the scalar operations ---

uint64_t bits(int64_t v) { return static_cast<uint64_t>(v); }
int64_t int_result(Op op, DType t, int64_t a, int64_t b) {
  const uint64_t args[2] = {bits_from_int(t, a), bits_from_int(t, b)};
  return static_cast<int64_t>(apply(op, t, args));
}

TEST(Scalar, Integers) {
  constexpr int64_t kMin32 = std::numeric_limits<int32_t>::min(), kMin64 = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(int_result(Op::div, DType::i32, 7, 0), 0);
  EXPECT_EQ(int_result(Op::rem, DType::i32, 7, 0), 0);
  EXPECT_EQ(int_result(Op::div, DType::i32, kMin32, -1), kMin32);
  EXPECT_EQ(int_result(Op::div, DType::i64, kMin64, -1), kMin64);
  EXPECT_EQ(int_result(Op::rem, DType::i64, kMin64, -1), 0);
  EXPECT_EQ(int_result(Op::div, DType::i8, -7, 2), -3);
  EXPECT_EQ(int_result(Op::rem, DType::i8, -7, 2), -1);
  EXPECT_EQ(int_result(Op::add, DType::i8, 127, 1), -128);
  EXPECT_EQ(int_result(Op::mul, DType::u8, 200, 2), 144);
  EXPECT_EQ(int_result(Op::shl, DType::i32, 1, 32), 0);
  EXPECT_EQ(int_result(Op::shl, DType::i32, 1, 31), kMin32);
  EXPECT_EQ(int_result(Op::shr, DType::i32, -8, 40), -1);
  EXPECT_EQ(int_result(Op::shr, DType::i32, -8, 1), -4);
  EXPECT_EQ(int_result(Op::shr, DType::u8, 200, 8), 0);
  EXPECT_EQ(int_result(Op::lt, DType::u64, -1, 1), 0);
  EXPECT_EQ(int_result(Op::lt, DType::i64, -1, 1), 1);
  EXPECT_EQ(int_result(Op::max, DType::u32, -1, 1), 0xFFFFFFFF);
}

TEST(Scalar, Casts) {
  const auto to_int = [](DType t, double v) {
    return static_cast<int64_t>(convert(DType::f64, t, bits_from_double(DType::f64, v)));
  };
  constexpr int64_t kMin64 = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(to_int(DType::i32, -2.7), -2);
  EXPECT_EQ(to_int(DType::i8, 300.5), 44);
  EXPECT_EQ(to_int(DType::i64, 1e30), kMin64);
  EXPECT_EQ(to_int(DType::i64, std::nan("")), kMin64);
  // Up to 16 bits and to i32 through i32, as ir.h says and compiled code does it: its minimum for what does not fit.
  constexpr int64_t kMin32 = std::numeric_limits<int32_t>::min();
  EXPECT_EQ(to_int(DType::i32, std::nan("")), kMin32);
  EXPECT_EQ(to_int(DType::i32, 4294967299.0), kMin32);
  EXPECT_EQ(to_int(DType::i32, -2147483648.5), kMin32);
  EXPECT_EQ(to_int(DType::i16, 4294967299.0), 0);
  EXPECT_EQ(to_int(DType::u8, 2147483647.0), 255);
  EXPECT_EQ(to_int(DType::u32, 4294967299.0), 3);
  EXPECT_EQ(static_cast<uint64_t>(to_int(DType::u64, 0x1.8p63)), 0xC000000000000000u);
  EXPECT_EQ(to_int(DType::b1, 0.25), 1);
  EXPECT_EQ(to_int(DType::b1, std::nan("")), 1);
  // One rounding from i64 to f32.
  EXPECT_EQ(
      double_from_bits(DType::f32, convert(DType::i64, DType::f32, bits((int64_t{1} << 54) + (int64_t{1} << 30) + 1))),
      0x1.000002p54);
}

TEST(Scalar, MinAndMaxKeepNan) {
  const uint64_t nan = bits_from_double(DType::f32, std::nan("")), one = bits_from_double(DType::f32, 1);
  for (Op op : {Op::min, Op::max}) {
    const uint64_t a[2] = {nan, one}, b[2] = {one, nan};
    EXPECT_TRUE(std::isnan(double_from_bits(DType::f32, apply(op, DType::f32, a))));
    EXPECT_TRUE(std::isnan(double_from_bits(DType::f32, apply(op, DType::f32, b))));
  }
}

TEST(Fold, OnlyWhatIsExact) {
  const Buffer x = make_buffer("x", DType::f32, {}), i = make_buffer("i", DType::i32, {});
  const Expr f = load(x, {}), n = load(i, {});
  EXPECT_EQ(f * constant(DType::f32, 1), f);
  EXPECT_EQ(f + constant(DType::f32, -0.0), f);
  EXPECT_NE(f + constant(DType::f32, 0), f);
  EXPECT_EQ(f - constant(DType::f32, 0), f);
  EXPECT_NE((f * constant(DType::f32, 0))->op, Op::constant);
  EXPECT_EQ(n + constant_int(DType::i32, 0), n);
  EXPECT_EQ(constant_value(n * constant_int(DType::i32, 0)), 0);
  EXPECT_EQ(constant_value(constant(DType::f32, 2) * constant(DType::f32, 3)), 6);
  EXPECT_EQ(fma(f, constant(DType::f32, 1), f)->op, Op::add);
  EXPECT_THROW(f + n, InternalError);
  EXPECT_THROW(cast(f, DType::f16) + cast(f, DType::f16), InternalError);
}

}  // namespace
}  // namespace tripod::loop
