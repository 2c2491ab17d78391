#include "loop_schedule_testing.h"

namespace tripod::loop {
namespace {

const std::vector<Dims> kNM = dims_of("N M", {{1, 1}, {3, 17}, {16, 4}, {7, 13}});

const char* kChain = R"(
func @f[N: 1.., M: 1..](A: f32[N, M]) -> (C: f32[N, M]) {
  alloc B: f32[N, M] local
  block first(i: N, j: M) { B[i, j] = A[i, j] + 1 }
  block second(i: N, j: M) { C[i, j] = B[i, j] * B[i, j] }
})";

TEST(ScheduleBlocks, ComputeAtAnElement) {
  Scheduled t(kChain);
  t.s.compute_at(t.block("first"), t.loop("second", 1));
  t.check(kNM);
  EXPECT_EQ(t.s.written(t.block("first"))->shape.size(), 2u);
  EXPECT_TRUE(t.s.written(t.block("first"))->shape[1].is_const(1));
}

TEST(ScheduleBlocks, ComputeAtATileInRegisters) {
  Scheduled t(kChain);
  auto [jo, ji] = t.s.split(t.loop("second", 1), 8);
  t.s.compute_at(t.block("first"), jo);
  t.s.set_scope(t.s.written(t.block("first")), Scope::reg);
  t.s.vectorise(ji);
  t.s.vectorise(t.s.loops(t.block("first")).back());
  t.s.parallel(t.s.fuse({t.loop("second", 0), t.loop("second", 1)}));
  t.check(kNM);
}

TEST(ScheduleBlocks, RegistersNeedConstantSizes) {
  Scheduled t(kChain);
  t.s.compute_at(t.block("first"), t.loop("second", 0));
  t.s.set_scope(t.s.written(t.block("first")), Scope::reg);
  t.refuses("set_scope: buffer 'B' has the extent M, which is not a constant");
}

TEST(ScheduleBlocks, StencilIsClipped) {
  const char* source = R"(
func @f[N: 1..](A: f32[N]) -> (C: f32[N]) {
  alloc B: f32[N] local
  block first(i: N) { B[i] = A[i] * 3 }
  block second(i: N; reduce r: 3) {
    init { C[i] = 0 }
    C[i] = C[i] + (B[i + r - 1] if i + r >= 1 && i + r < N + 1 else 7)
  }
})";
  const std::vector<Dims> cases = {{{"N", 1}}, {{"N", 2}}, {{"N", 11}}, {{"N", 16}}};
  for (int split : {1, 4, 5}) {
    Scheduled t(source);
    auto [o, i] = t.s.split(t.loop("second", 0), split);
    t.s.compute_at(t.block("first"), o);
    EXPECT_TRUE(t.s.written(t.block("first"))->shape[0].is_const(split + 2)) << t.body();
    t.s.parallel(o);
    t.check(cases);
  }
  Scheduled t(source);
  t.s.compute_at(t.block("first"), t.loop("second", 1));
  t.check(cases);
}

const char* kSoftmax = R"(
func @softmax[N: 1.., M: 1..](X: f32[N, M]) -> (Y: f32[N, M]) {
  alloc m: f32[N] local
  alloc e: f32[N, M] local
  alloc d: f32[N] local
  block largest(i: N; reduce j: M) {
    init { m[i] = -inf }
    m[i] = max(m[i], X[i, j])
  }
  block shifted(i: N, j: M) { e[i, j] = X[i, j] - m[i] }
  block total(i: N; reduce j: M) {
    init { d[i] = 0 }
    d[i] = d[i] + e[i, j]
  }
  block scaled(i: N, j: M) { Y[i, j] = e[i, j] * 64 - d[i] }
})";

TEST(ScheduleBlocks, SoftmaxRowByRow) {
  Scheduled t(kSoftmax);
  const Loop row = t.loop("scaled", 0);
  for (const char* b : {"total", "shifted", "largest"}) t.s.compute_at(t.block(b), row);
  t.s.parallel(row);
  for (const char* b : {"largest", "total"}) t.s.set_scope(t.s.written(t.block(b)), Scope::reg);
  t.check(kNM);
  EXPECT_EQ(t.flat(), R"(for i_4 in 0..N parallel {
  alloc m: reg f32[1] {
    alloc e: local f32[1, M] {
      alloc d: reg f32[1] {
        m[0] = -inf
        for j_7 in 0..M {
          m[0] = max(m[0], X[i_4, j_7])
        }
        for j_6 in 0..M {
          e[0, j_6] = X[i_4, j_6] - m[0]
        }
        d[0] = 0
        for j_5 in 0..M {
          d[0] = d[0] + e[0, j_5]
        }
        for j_4 in 0..M {
          Y[i_4, j_4] = e[0, j_4] * 64 - d[0]
        }
      }
    }
  }
}
)");
}

TEST(ScheduleBlocks, SoftmaxInVectors) {
  Scheduled t(kSoftmax);
  const Loop row = t.loop("scaled", 0);
  for (const char* b : {"total", "shifted", "largest"}) t.s.compute_at(t.block(b), row);
  t.s.parallel(row);
  for (const char* b : {"shifted", "scaled"}) t.s.vectorise(t.s.split(t.s.loops(t.block(b)).back(), 4).second);
  for (const char* b : {"largest", "total"}) {
    auto [o, i] = t.s.split(t.s.loops(t.block(b)).back(), 4);
    const Block rf = t.s.rfactor(t.block(b), i);
    t.s.vectorise(i);
    t.s.set_scope(t.s.written(rf), Scope::reg);
    t.s.set_scope(t.s.written(t.block(b)), Scope::reg);
    t.s.vectorise(t.s.loops({rf.name + "_init"}).back());
    t.s.unroll(t.s.loops(t.block(b)).back());
  }
  t.check(kNM);
}

TEST(ScheduleBlocks, SoftmaxInlinesTheExponential) {
  Scheduled t(kSoftmax);
  t.s.inline_producer(t.block("shifted"));
  const Loop row = t.loop("scaled", 0);
  for (const char* b : {"total", "largest"}) t.s.compute_at(t.block(b), row);
  t.check(kNM);
}

TEST(ScheduleBlocks, ReverseComputeAtAnEpilogue) {
  const char* source = R"(
func @f[N: 1.., M: 1..](A: f32[N, 5], B: f32[5, M], bias: f32[M]) -> (Y: f32[N, M]) {
  alloc C: f32[N, M] local
  block mm(i: N, j: M; reduce k: 5) {
    init { C[i, j] = 0 }
    C[i, j] = fma(A[i, k], B[k, j], C[i, j])
  }
  block epilogue(i: N, j: M) { Y[i, j] = max(C[i, j] + bias[j], 0) }
})";
  Scheduled t(source);
  const std::vector<Loop> ls = t.s.loops(t.block("mm"));
  auto [io, ii] = t.s.split(ls[0], 4);
  auto [jo, ji] = t.s.split(ls[1], 8);
  t.s.reorder({io, jo, ls[2], ii, ji});
  const Loop tile = t.s.fuse({io, jo});
  t.s.reverse_compute_at(t.block("epilogue"), tile);
  t.s.parallel(tile);
  const Block init = t.s.decompose_reduction(t.block("mm"), ls[2]);
  t.s.set_scope(t.s.written(t.block("mm")), Scope::reg);
  t.s.vectorise(ji);
  t.s.unroll(ii);
  for (const Block& b : {init, t.block("epilogue")}) {
    t.s.unroll(t.s.loops(b).at(1));
    t.s.vectorise(t.s.loops(b).at(2));
  }
  t.check(kNM);

  Scheduled u(source);
  u.s.reverse_compute_at(u.block("epilogue"), u.loop("mm", 2));
  u.refuses("reverse_compute_at: block 'mm' still reduces over loop 'k'");
}

TEST(ScheduleBlocks, ReverseComputeAtNeedsOneIterationsPart) {
  Scheduled t(R"(
func @f[N: 1..](A: f32[N]) -> (C: f32[N, N]) {
  alloc B: f32[N] local
  block first(i: N) { B[i] = A[i] * 3 }
  block outer(i: N, j: N) { C[i, j] = B[i] * B[j] }
})");
  t.s.reverse_compute_at(t.block("outer"), t.loop("first", 0));
  t.refuses("reverse_compute_at: block 'outer' needs parts of 'B' from different iterations");
}

TEST(ScheduleBlocks, ReverseComputeAtNeedsBoxes) {
  // Runs of a fused loop are apart, but the boxes around them are not.
  Scheduled t(kChain);
  auto [o, i] = t.s.split(t.s.fuse(t.s.loops(t.block("first"))), 2);
  t.s.reverse_compute_at(t.block("second"), o);
  t.refuses("reverse_compute_at: iterations of loop 'i_j_o' do not write separate parts of 'B'");
}

TEST(ScheduleBlocks, InlineSharesAndGuards) {
  Scheduled t(R"(
func @f[N: 1..](A: f32[N], I: i64[N]) -> (C: f32[N], D: f32[N]) {
  alloc B: f32[N] local
  alloc G: f32[N] local
  block first(i: N) { B[i] = A[i] * A[i] + 1 }
  block gathered(i: N) {
    let p: 0.. = rem(I[i], 3:i64) {
      G[i] = (B[p] if p < N else 5) * B[i]
    }
  }
  block second(i: N) { C[i] = (B[i - 1] if i >= 1 else -2) + B[i] * B[i] }
  block third(i: N) { D[i] = G[i] + (G[i + 1] if i + 1 < N else 9) }
})");
  t.s.inline_producer(t.block("first"));
  t.s.inline_producer(t.block("gathered"));
  EXPECT_EQ(t.s.blocks().size(), 2u);
  const Expr sum = t.s.get(t.block("second")).body[0]->value;  // ... + B[i] * B[i], which is one value
  EXPECT_TRUE(sum->args[1]->args[0] == sum->args[1]->args[1]);
  t.check({{{"N", 1}}, {{"N", 5}}});
}

TEST(ScheduleBlocks, InlineOfAMoveIsAMove) {
  Scheduled t(R"(
func @f[N: 1.., M: 1..](A: f32[M, N]) -> (C: f32[N, M]) {
  alloc B: f32[N, M] local
  block transposed(i: N, j: M) { B[i, j] = A[j, i] }
  block padded(i: N, j: M) { C[i, j] = (B[i, j - 1] if j >= 1 else 3) }
})");
  t.s.inline_producer(t.block("transposed"));
  t.check(kNM);
  EXPECT_EQ(t.flat(), R"(for i_2 in 0..N {
  for j_2 in 0..M {
    C[i_2, j_2] = (A[j_2 - 1, i_2] if 0 < j_2 else 3)
  }
}
)");
}

TEST(ScheduleBlocks, Refusals) {
  {
    Scheduled t(kSoftmax);
    t.s.inline_producer(t.block("total"));
    t.refuses("inline_producer: block 'total' reduces");
  }
  {
    Scheduled t(kSoftmax);
    t.s.inline_producer(t.block("scaled"));
    t.refuses("inline_producer: block 'scaled' writes 'Y', which is a parameter");
  }
  {
    Scheduled t(kSoftmax);
    t.s.compute_at(t.block("shifted"), t.loop("scaled", 0));
    t.refuses("compute_at: block 'total' reads 'e' outside of loop 'i_4'");
  }
  {
    Scheduled t(kSoftmax);
    t.s.compute_at(t.block("scaled"), t.loop("total", 0));
    t.refuses("compute_at: block 'scaled' writes 'Y', which is a parameter");
  }
}

TEST(ScheduleBlocks, CacheReadAndWrite) {
  Scheduled t(R"(
func @f[N: 1.., M: 1..](A: f32[N, 6], B: f32[6, M]) -> (C: f32[N, M]) {
  block mm(i: N, j: M; reduce k: 6) {
    init { C[i, j] = 0 }
    C[i, j] = fma(A[i, k], B[k, j], C[i, j])
  }
})");
  const Block copy = t.s.cache_write(t.block("mm"), Scope::local);
  const std::vector<Loop> ls = t.s.loops(copy);
  auto [io, ii] = t.s.split(ls[0], 4);
  auto [jo, ji] = t.s.split(ls[1], 8);
  t.s.reorder({io, jo, ii, ji});
  t.s.compute_at(t.block("mm"), jo);
  const std::vector<Loop> inner = t.s.loops(t.block("mm"));
  t.s.reorder({inner[4], inner[2], inner[3]});
  const Block packed = t.s.cache_read(t.block("mm"), t.f.params[1], Scope::local);
  t.s.compute_at(packed, jo);
  t.s.set_layout(t.s.written(packed), permuted(t.c, t.s.written(packed)->shape, {1, 0}));
  t.s.vectorise(ji);
  t.s.parallel(io);
  t.check(kNM);
}

}  // namespace
}  // namespace tripod::loop
