#include "loop_schedule_testing.h"

namespace tripod::loop {
namespace {

const char* kCopy = R"(
func @f[N: 1.., M: 1..](A: f32[N, M]) -> (B: f32[N, M]) {
  block copy(i: N, j: M) { B[i, j] = A[i, j] + 1 }
})";
const char* kTranspose = R"(
func @f[N: 1.., M: 1..](A: f32[N, M]) -> (B: f32[M, N]) {
  block copy(i: N, j: M) { B[j, i] = A[i, j] }
})";
const char* kSum = R"(
func @f[N: 1.., K: 1..](A: f32[N, K]) -> (B: f32[N]) {
  block sum(i: N; reduce k: K) {
    init { B[i] = 0 }
    B[i] = B[i] + A[i, k]
  }
})";
const std::vector<Dims> kNM = dims_of("N M", {{1, 1}, {3, 17}, {16, 4}, {7, 13}});
const std::vector<Dims> kNK = dims_of("N K", {{1, 1}, {3, 17}, {16, 4}, {7, 13}});

TEST(ScheduleLoops, StartsAsSerialLoops) {
  Scheduled t(kSum);
  t.check(kNK);
  EXPECT_EQ(t.s.loops(t.s.only_block()).size(), 2u);
  EXPECT_EQ(t.flat(),
            "for i in 0..N {\n"
            "  B[i] = 0\n"
            "  for k in 0..K {\n"
            "    B[i] = B[i] + A[i, k]\n"
            "  }\n"
            "}\n");
}

TEST(ScheduleLoops, SplitWithATail) {
  Scheduled t(kCopy);
  auto [o, i] = t.s.split(t.loop("copy", 1), 4);
  EXPECT_EQ(t.s.loops(t.s.only_block()), (std::vector<Loop>{t.loop("copy", 0), o, i}));
  EXPECT_TRUE(t.s.extent(i).is_const(4));
  t.check(kNM);
  EXPECT_TRUE(t.s.get(t.s.only_block()).predicate);
}

TEST(ScheduleLoops, SplitThatDivides) {
  Scheduled t(R"(func @f[N: 1..](A: f32[N*8]) -> (B: f32[N*8]) { block copy(i: N*8) { B[i] = A[i] } })");
  t.s.split(t.loop("copy", 0), 4);
  t.check({{{"N", 1}}, {{"N", 5}}});
  EXPECT_FALSE(t.s.get(t.s.only_block()).predicate);
}

TEST(ScheduleLoops, FuseAndSplitAgainSimplifies) {
  Scheduled t(kCopy);
  const Loop f = t.s.fuse(t.s.loops(t.s.only_block()));
  auto [o, v] = t.s.split(f, 16);
  t.s.vectorise(v);
  t.s.parallel(o, 64);
  t.check(kNM);
  EXPECT_EQ(t.s.kind(o), LoopKind::parallel);
  EXPECT_EQ(t.s.trace().steps.size(), 4u);
}

TEST(ScheduleLoops, FuseThree) {
  Scheduled t(R"(
func @f[A: 1.., B: 1.., C: 1..](X: f32[A, B, C]) -> (Y: f32[A, B, C]) {
  block b(i: A, j: B, k: C) { Y[i, j, k] = X[i, j, k] * 2 }
})");
  const Loop f = t.s.fuse(t.s.loops(t.s.only_block()));
  t.s.parallel(f);
  t.check({{{"A", 2}, {"B", 3}, {"C", 5}}, {{"A", 1}, {"B", 1}, {"C", 1}}});
}

TEST(ScheduleLoops, TilesInParallel) {
  for (const char* source : {kCopy, kTranspose}) {
    Scheduled t(source);
    const std::vector<Loop> ls = t.s.loops(t.s.only_block());
    auto [io, ii] = t.s.split(ls[0], 4);
    auto [jo, ji] = t.s.split(ls[1], 8);
    t.s.reorder({io, jo, ii, ji});
    const Loop tile = t.s.fuse({io, jo});
    t.s.parallel(tile);
    if (source == kCopy) t.s.vectorise(ji);
    t.check(kNM);
  }
}

TEST(ScheduleLoops, ReorderOfSums) {
  Scheduled t(kSum);
  auto [ko, ki] = t.s.split(t.loop("sum", 1), 4);
  t.s.reorder({ki, t.loop("sum", 0), ko});
  t.check(kNK);
}

TEST(ScheduleLoops, Refusals) {
  {
    Scheduled t(kSum);
    t.s.parallel(t.loop("sum", 1));
    t.refuses("parallel: loop 'k' is inside loop 'i'");
  }
  {
    Scheduled t(kSum);
    t.s.reorder({t.loop("sum", 1), t.loop("sum", 0)});
    t.s.parallel(t.loop("sum", 0));
    t.refuses("parallel: loop 'k' carries the reduction of block 'sum' over buffer 'B'");
  }
  {
    Scheduled t(kSum);
    t.s.parallel(t.s.fuse(t.s.loops(t.s.only_block())));
    t.refuses("parallel: loop 'i_k' carries the reduction of block 'sum' over buffer 'B'");
  }
  {
    Scheduled t(kSum);
    t.s.vectorise(t.loop("sum", 0));
    t.refuses("vectorise: loop 'i' has extent N, which is not a constant");
  }
  {
    Scheduled t(kSum);
    t.s.vectorise(t.s.split(t.loop("sum", 1), 4).second);
    t.refuses("vectorise: loop 'k_i' carries the reduction of block 'sum' over buffer 'B'");
  }
  {
    Scheduled t(kSum);
    t.s.reorder({t.loop("sum", 0), t.loop("sum", 0)});
    t.refuses("reorder: loop 'i' is named twice");
  }
  {
    Scheduled t(kSum);
    t.s.split(t.loop("sum", 0), 0);
    t.refuses("split: the factor 0 may be less than 1");
    EXPECT_FALSE(t.s.split(t.loop("sum", 0), 4).first);  // later primitives do nothing
    t.refuses("split: the factor 0 may be less than 1");
  }
}

TEST(ScheduleLoops, DependencesAreSeen) {
  {
    Scheduled t(R"(
func @f(A: f32[9]) -> (B: f32[9]) {
  block scan(i: 9) { B[i] = A[i] + (B[i - 1] if i >= 1 else 0) }
})");
    t.s.parallel(t.loop("scan", 0));
    t.refuses("parallel: loop 'i' carries a dependence of block 'scan' over buffer 'B'");
  }
  {
    Scheduled t(R"(
func @f(A: f32[9], I: i32[9]) -> (B: f32[5]) {
  block scatter(i: 9) { let p: 0..4 = rem(I[i], 5:i32) { B[p] = A[i] } }
})");
    t.s.parallel(t.loop("scatter", 0));
    t.refuses("parallel: loop 'i' carries a dependence of block 'scatter' over buffer 'B'");
  }
}

TEST(ScheduleLoops, OrderOfOtherReductionsStays) {
  const char* source = R"(
func @f(A: f32[4, 5]) -> (B: f32[1]) {
  block horner(o: 1; reduce i: 4, j: 5) {
    init { B[o] = 0 }
    B[o] = B[o] * 2 + A[i, j]
  }
})";
  Scheduled t(source);
  t.s.split(t.loop("horner", 2), 3);
  t.s.fuse({t.loop("horner", 0), t.loop("horner", 1)});
  t.check({{}});
  t.s.reorder({t.loop("horner", 1), t.loop("horner", 0)});
  t.refuses("reorder: the order of the reduction of block 'horner' matters");
}

TEST(ScheduleLoops, InitsStayFirst) {
  Scheduled t(kSum);
  auto [o, i] = t.s.split(t.s.fuse(t.s.loops(t.s.only_block())), 3);
  t.check(kNK);
  t.s.reorder({i, o});
  t.refuses("reorder: block 'sum' would not start with its init");
}

TEST(ScheduleLoops, BoundToTheAxesOfAGpu) {
  Scheduled t(kTranspose);
  auto [o, i] = t.s.split(t.s.fuse(t.s.loops(t.s.only_block())), 32);
  t.s.bind(o, LoopKind::grid_x);
  t.s.bind(i, LoopKind::block_x);
  t.check(kNM);
  Schedule again(t.c, t.f);
  again.replay(parse_trace(text(t.s.trace())));
  ASSERT_TRUE(again.ok()) << again.outcome().reason;
  EXPECT_EQ(again.kind(again.loops(again.only_block())[1]), LoopKind::block_x);

  Scheduled u(kSum);
  u.s.bind(u.loop("sum", 1), LoopKind::block_x);
  u.refuses("bind: loop 'k' carries the reduction of block 'sum' over buffer 'B'");
}

TEST(ScheduleLoops, ParallelStaysOutermost) {
  Scheduled t(kCopy);
  const std::vector<Loop> ls = t.s.loops(t.s.only_block());
  t.s.parallel(ls[0]);
  t.s.reorder({ls[1], ls[0]});
  t.refuses("reorder: parallel loop 'i' would not be outermost any more");
}

TEST(ScheduleLoops, KindsAreFinal) {
  Scheduled t(kCopy);
  const Loop i = t.loop("copy", 0);
  t.s.parallel(i);
  t.s.split(i, 4);
  t.refuses("split: loop 'i' is not serial any more");
}

TEST(ScheduleLoops, ConcatHalvesShareALoopOnlyApart) {
  Scheduled t(R"(
func @f[N: 1..](A: f32[N, 3], B: f32[N, 4]) -> (C: f32[N, 7]) {
  block a(i: N, j: 3) { C[i, j] = A[i, j] }
  block b(i: N, j: 4) { C[i, j + 3] = B[i, j] }
})");
  t.s.parallel(t.loop("a", 0));
  t.s.parallel(t.loop("b", 0));
  t.s.unroll(t.loop("b", 1));
  t.check({{{"N", 1}}, {{"N", 5}}});
}

}  // namespace
}  // namespace tripod::loop
