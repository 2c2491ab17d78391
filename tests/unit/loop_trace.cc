#include "loop_schedule_testing.h"

namespace tripod::loop {
namespace {

const char* kSoftmax = R"(
func @softmax[N: 1.., M: 1..](X: f32[N, M]) -> (Y: f32[N, M]) {
  alloc m: f32[N] local
  alloc e: f32[N, M] local
  block largest(i: N; reduce j: M) {
    init { m[i] = -inf }
    m[i] = max(m[i], X[i, j])
  }
  block shifted(i: N, j: M) { e[i, j] = X[i, j] - m[i] }
  block scaled(i: N, j: M) { Y[i, j] = e[i, j] * 64 }
})";

void schedule(Schedule& s) {
  s.inline_producer({"shifted"});
  const Loop row = s.loops({"scaled"})[0];
  s.compute_at({"largest"}, row);
  auto [o, i] = s.split(s.loops({"largest"}).back(), 4);
  const Block rf = s.rfactor({"largest"}, i);
  s.set_scope(s.written(rf), Scope::local);
  s.vectorise(i);
  const Block copy = s.cache_read({"scaled"}, s.function().params[0], Scope::local);
  s.compute_at(copy, row);
  ASSERT_TRUE(s.ok()) << s.outcome().reason;
  s.set_layout(s.written(copy), permuted(s.sym(), s.written(copy)->shape, {1, 0}));
  s.parallel(row, 7);
  s.set_name({"scaled"}, "last one");
}

TEST(Trace, PrintsParsesAndReplays) {
  Scheduled t(kSoftmax);
  schedule(t.s);
  ASSERT_TRUE(t.s.ok()) << t.s.outcome().reason;
  t.check({{{"N", 1}, {"M", 1}}, {{"N", 3}, {"M", 9}}});
  const std::string printed = text(t.s.trace());
  EXPECT_EQ(printed, text(parse_trace(printed)));
  EXPECT_EQ(printed.substr(0, 32), "trace 1\ninline_producer(shifted)") << printed;

  Schedule again(t.c, t.f);
  again.replay(parse_trace(printed));
  ASSERT_TRUE(again.ok()) << again.outcome().reason;
  EXPECT_EQ(Scheduled::plain(text(again.function())), Scheduled::plain(text(t.s.function())));
  EXPECT_EQ(text(again.trace()), printed);
}

TEST(Trace, ReplayFindsResultsUnderOtherNames) {
  Scheduled t(kSoftmax);
  t.s.replay(parse_trace(
      "trace 1\n# tiles\nrows rest = split(i_3; 2)\nreorder(j_3, rest)  # strided\nparallel(rows; 1)\n"));
  t.check({{{"N", 5}, {"M", 4}}});
}

TEST(Trace, BadTracesSayWhy) {
  const auto why = [](const std::string& text) {
    Scheduled t(kSoftmax);
    t.s.replay(parse_trace(text));
    return t.s.outcome().reason;
  };
  EXPECT_EQ(why("trace 1\nfrobnicate(i)"), "trace step frobnicate: there is no such primitive");
  EXPECT_EQ(why("trace 1\nunroll(zz)"), "trace step unroll: there is no loop 'zz'");
  EXPECT_EQ(why("trace 1\na = split(i; 4)"), "trace step split: wrong number of results");
  EXPECT_EQ(why("trace 1\nparallel(i; much)"), "trace step parallel: 'much' is not an integer");
  EXPECT_EQ(why("trace 1\ninline_producer(gone)"), "inline_producer: there is no block 'gone'");
  EXPECT_THROW(parse_trace("trace 2\n"), CompileError);
  EXPECT_THROW(parse_trace("trace 1\nsplit(i"), CompileError);
  EXPECT_THROW(parse_trace("trace 1\n\"split"), CompileError);
}

TEST(Trace, FailedPrimitivesAreNotRecorded) {
  Scheduled t(kSoftmax);
  t.s.split(t.loop("scaled", 0), 4);
  t.s.vectorise(t.loop("scaled", 0));
  t.s.unroll(t.loop("scaled", 1));
  EXPECT_EQ(t.s.trace().steps.size(), 1u);
  EXPECT_FALSE(t.s.outcome().applied);
}

}  // namespace
}  // namespace tripod::loop
