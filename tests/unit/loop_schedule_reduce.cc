#include "loop_schedule_testing.h"

namespace tripod::loop {
namespace {

const char* kSum = R"(
func @f[N: 1.., K: 1..](A: f32[N, K]) -> (B: f32[N]) {
  block sum(i: N; reduce k: K) {
    init { B[i] = 1 }
    B[i] = B[i] + A[i, k]
  }
})";
const char* kMatmul = R"(
func @f[N: 1.., M: 1.., K: 1..](A: f32[N, K], B: f32[K, M]) -> (C: f32[N, M]) {
  block mm(i: N, j: M; reduce k: K) {
    init { C[i, j] = 0 }
    C[i, j] = fma(A[i, k], B[k, j], C[i, j])
  }
})";
const std::vector<Dims> kNK = dims_of("N K", {{1, 1}, {3, 17}, {16, 4}, {7, 33}});
const std::vector<Dims> kNMK = dims_of("N M K", {{1, 1, 1}, {3, 11, 7}, {8, 8, 16}});

TEST(ScheduleReduce, DecomposeInFrontOfEachLoop) {
  for (size_t at : {0, 1, 2}) {
    Scheduled t(kMatmul);
    auto [jo, ji] = t.s.split(t.loop("mm", 1), 4);
    t.s.reorder({t.loop("mm", 3), ji});
    const Block init = t.s.decompose_reduction(t.block("mm"), t.loop("mm", at));
    EXPECT_EQ(init.name, "mm_init");
    EXPECT_EQ(t.s.loops(init).size(), 3u);
    EXPECT_FALSE(t.s.get(t.block("mm")).init);
    t.check(kNMK);
  }
}

TEST(ScheduleReduce, DecomposeRefusals) {
  {
    Scheduled t(kMatmul);
    t.s.reorder({t.loop("mm", 2), t.loop("mm", 0), t.loop("mm", 1)});
    t.s.decompose_reduction(t.block("mm"), t.loop("mm", 1));
    t.refuses("decompose_reduction: block 'mm' reduces over loop 'k' outside of loop 'i'");
  }
  {
    Scheduled t(kMatmul);
    t.s.decompose_reduction(t.block("mm"), t.s.fuse({t.loop("mm", 1), t.loop("mm", 2)}));
    t.refuses("decompose_reduction: loop 'j_k' is both spatial and reduces in block 'mm'");
  }
}

TEST(ScheduleReduce, InitsReadWhatIsThere) {
  const char* source = R"(
func @f[N: 1.., K: 1..](A: f32[N, K], b: f32[N]) -> (B: f32[N]) {
  block sum(i: N; reduce k: K) {
    init { B[i] = b[i] }
    B[i] = B[i] + A[i, k]
  }
})";
  Scheduled t(source);
  t.s.compute_at(t.s.cache_read(t.block("sum"), t.f.params[1], Scope::local), t.loop("sum", 0));
  t.s.decompose_reduction(t.block("sum"), t.loop("sum", 1));
  t.check(kNK);
  Scheduled u(source);
  u.s.compute_at(u.s.cache_read(u.block("sum"), u.f.params[1], Scope::local), u.loop("sum", 0));
  u.s.decompose_reduction(u.block("sum"), u.loop("sum", 0));
  u.refuses("decompose_reduction: block 'b_cache_read' makes 'b_cache', which the init reads, inside of loop 'i'");
}

TEST(ScheduleReduce, RFactorInLanes) {
  Scheduled t(kSum);
  auto [ko, ki] = t.s.split(t.loop("sum", 1), 16);
  const Block rf = t.s.rfactor(t.block("sum"), ki);
  t.s.vectorise(ki);
  t.s.set_scope(t.s.written(rf), Scope::reg);
  t.s.vectorise(t.s.loops({"sum_rf_init"}).back());
  t.s.unroll(t.s.loops(t.block("sum")).back());
  t.s.parallel(t.loop("sum", 0));
  ASSERT_TRUE(t.s.ok()) << t.s.outcome().reason;
  const Buffer partial = t.s.written(rf);
  ASSERT_EQ(partial->shape.size(), 2u);
  EXPECT_TRUE(partial->shape[0].is_const(1));
  EXPECT_TRUE(partial->shape[1].is_const(16));
  t.check(kNK);
}

TEST(ScheduleReduce, RFactorOuterForThreads) {
  Scheduled t(R"(
func @f[K: 1..](A: f32[K]) -> (B: f32[1]) {
  block sum(o: 1; reduce k: K) {
    init { B[o] = 0 }
    B[o] = max(B[o], A[k])
  }
})");
  auto [ko, ki] = t.s.split(t.loop("sum", 1), 5);
  t.s.rfactor(t.block("sum"), ko);
  t.s.parallel(ko);
  t.check({{{"K", 1}}, {{"K", 23}}});
}

TEST(ScheduleReduce, RFactorUnderAnOuterReduction) {
  Scheduled t(kMatmul);
  const std::vector<Loop> ls = t.s.loops(t.block("mm"));
  auto [ko, ki] = t.s.split(ls[2], 4);
  t.s.reorder({ko, ls[0], ls[1], ki});
  const Block rf = t.s.rfactor(t.block("mm"), ki);
  EXPECT_EQ(t.s.loops(rf).size(), 4u);
  EXPECT_EQ(t.s.loops(t.block("mm")).size(), 3u);
  t.check(kNMK);
}

TEST(ScheduleReduce, RFactorOfEachOperation) {
  for (const char* type : {"f32", "i32", "u8", "i64"}) {
    for (const char* value : {"B[i] + A[i, k]", "B[i] * A[i, k]", "min(B[i], A[i, k])", "max(A[i, k], B[i])",
                              "B[i] ^ A[i, k]", "B[i] & A[i, k]", "B[i] | A[i, k]"}) {
      const std::string v = value, ty = type;
      if (ty == "f32" && v.find_first_of("^&|") != std::string::npos) continue;
      const std::string zero = ty == "f32" ? "3" : "3:" + ty;
      Scheduled t("func @f(A: " + ty + "[3, 7]) -> (B: " + ty + "[3]) {\n block r(i: 3; reduce k: 7) {\n init { B[i] = " +
                  zero + " }\n B[i] = " + v + "\n}\n}");
      auto [ko, ki] = t.s.split(t.loop("r", 1), 4);
      t.s.rfactor(t.block("r"), ki);
      t.check({{}});
    }
  }
}

TEST(ScheduleReduce, RFactorAfterDecompose) {
  Scheduled t(kSum);
  auto [ko, ki] = t.s.split(t.loop("sum", 1), 4);
  t.s.decompose_reduction(t.block("sum"), ko);
  t.s.rfactor(t.block("sum"), ki);
  t.check(kNK);
}

TEST(ScheduleReduce, RFactorRefusals) {
  {
    Scheduled t(R"(
func @f(A: f32[3, 5]) -> (B: f32[3], P: i64[3]) {
  block argmax(i: 3; reduce k: 5) {
    init { B[i] = -inf P[i] = 0:i64 }
    P[i] = select(B[i] < A[i, k], index<i64>(k), P[i])
    B[i] = max(B[i], A[i, k])
  }
})");
    t.check({{}});
    t.s.rfactor(t.block("argmax"), t.loop("argmax", 1));
    t.refuses("rfactor: block 'argmax' is not a sum, product, minimum or maximum into one element");
  }
  {
    Scheduled t(kSum);
    t.s.rfactor(t.block("sum"), t.loop("sum", 0));
    t.refuses("rfactor: block 'sum' does not reduce over loop 'i'");
  }
}

TEST(ScheduleReduce, ConvolutionWithPaddingAndEpilogue) {
  Scheduled t(R"(
func @conv[H: 1.., W: 1..](X: f32[3, H, W], K: f32[4, 3, 3, 3]) -> (Z: f32[4, H, W]) {
  alloc P: f32[3, H + 2, W + 2] local
  alloc Y: f32[4, H, W] local
  block pad(c: 3, y: H + 2, x: W + 2) {
    P[c, y, x] = (X[c, y - 1, x - 1] if y >= 1 && y < H + 1 && x >= 1 && x < W + 1 else 0)
  }
  block conv(o: 4, y: H, x: W; reduce c: 3, r: 3, s: 3) {
    init { Y[o, y, x] = 0 }
    Y[o, y, x] = fma(P[c, y + r, x + s], K[o, c, r, s], Y[o, y, x])
  }
  block relu(o: 4, y: H, x: W) { Z[o, y, x] = max(Y[o, y, x] - 500, 0) }
})");
  const std::vector<Loop> ls = t.s.loops(t.block("relu"));
  auto [yo, yi] = t.s.split(ls[1], 2);
  auto [xo, xi] = t.s.split(ls[2], 4);
  t.s.reorder({yo, xo, ls[0], yi, xi});
  t.s.compute_at(t.block("conv"), xo);
  const std::vector<Loop> inner = t.s.loops(t.block("conv"));  // yo xo | o y x c r s
  t.s.reorder({inner[5], inner[6], inner[7], inner[2], inner[3], inner[4]});
  t.s.decompose_reduction(t.block("conv"), inner[5]);
  t.s.compute_at(t.block("pad"), xo);
  const Loop tile = t.s.fuse({yo, xo});
  t.s.parallel(tile);
  t.s.vectorise(xi);
  t.s.vectorise(inner[4]);
  const Buffer p = t.s.written(t.block("pad"));
  ASSERT_TRUE(t.s.ok()) << t.s.outcome().reason;
  EXPECT_TRUE(p->shape[0].is_const(3) && p->shape[1].is_const(4) && p->shape[2].is_const(6)) << t.body();
  t.check({{{"H", 1}, {"W", 1}}, {{"H", 4}, {"W", 8}}, {{"H", 5}, {"W", 7}}});
}

}  // namespace
}  // namespace tripod::loop
