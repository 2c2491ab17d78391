// Phase precision: which values are stored narrower, and which must not be.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph_opt/fuse.h"
#include "graph_opt/precision.h"

namespace tripod {
namespace {

struct Stored {
  explicit Stored(const char* text, DType narrow = DType::f16) : module(graph::parse(text)), groups(graph_opt::fuse(module->main())) {
    count = graph_opt::assign_storage(module->main(), groups, narrow);
    problems = graph::verify(*module);
  }
  DType of(const std::string& name) const {
    const graph::Graph& g = module->main();
    for (graph::ValueId v = 0; v < static_cast<graph::ValueId>(g.num_values()); ++v)
      if (g.value(v).name == name) return g.type(v).stored();
    ADD_FAILURE() << "no value " << name;
    return DType::none;
  }
  std::unique_ptr<graph::Module> module;
  graph::Groups groups;
  int count = 0;
  std::vector<std::string> problems;
};

constexpr const char* kDense = R"(
graph @main(%x: f32[8, 16], %w: f32[16, 16]) {
  %x1 = softmax(%x) {axis: 1}
  %a = matmul(%x1, %w)
  %b = softmax(%a) {axis: 1}
  %c = softmax(%b) {axis: 1}
  return %c
})";

TEST(Precision, ValuesBetweenKernelsAreNarrow) {
  const Stored s(kDense);
  EXPECT_TRUE(s.problems.empty()) << s.problems[0];
  for (const char* v : {"x1", "a", "b"}) EXPECT_EQ(s.of(v), DType::f16) << v;
  for (const char* v : {"x", "w", "c"}) EXPECT_EQ(s.of(v), DType::f32) << v;  // the model's own
}

TEST(Precision, AFactorFromTheCallerGetsANarrowCopyOnce) {
  const Stored s(R"(
graph @main(%x: f32[8, 16], %w: f32[16, 16]) {
  %a = matmul(%x, %w)
  %b = matmul(%a, %w)
  %c = softmax(%b) {axis: 1}
  %d = softmax(%c) {axis: 1}
  return %d
})");
  const graph::Graph& g = s.module->main();
  int copies = 0;
  for (graph::NodeId n : g.order()) {
    if (g.node(n).op == graph::OpKind::copy) ++copies;
    if (g.node(n).op != graph::OpKind::matmul) continue;
    for (graph::ValueId v : g.node(n).operands) EXPECT_EQ(g.type(v).stored(), DType::f16) << g.value(v).name;
  }
  EXPECT_EQ(copies, 2);  // x, and w for both
}

TEST(Precision, Bf16AndF32) {
  EXPECT_EQ(Stored(kDense, DType::bf16).of("a"), DType::bf16);
  const Stored exact(kDense, DType::f32);
  EXPECT_EQ(exact.count, 0);
  EXPECT_EQ(exact.of("a"), DType::f32);
}

// Positions and masks are made of integers: angles and -3.4e38 need f32 all the way.
TEST(Precision, WhatIsMadeOfIntegersStays) {
  const Stored s(R"(
graph @main(%ids: i64[1, 16], %x: f32[16, 16]) {
  %p = cast(%ids) {to: f32}
  %r = reshape(%p) : f32[16, 1]
  %f = const f32[1, 4] [1, 0.1, 0.01, 0.001]
  %angle = matmul(%r, %f)
  %sine = sin(%angle)
  %s = reshape(%sine) : f32[64]
  %y = softmax(%s) {axis: 0}
  %z = softmax(%y) {axis: 0}
  return %z
})");
  for (const char* v : {"p", "r", "f", "angle"}) EXPECT_EQ(s.of(v), DType::f32) << v;
  EXPECT_EQ(s.of("y"), DType::f16);
}

TEST(Precision, OperandsAndResultsOfTheTable) {
  const Stored s(R"(
graph @main(%x: f32[8, 16]) {
  %a = softmax(%x) {axis: 1}
  %sum = reduce_sum(%a) {axes: [1], keep_dims: true, last_index: false}
  %mean = reduce_mean(%a) {axes: [1], keep_dims: true, last_index: false}
  %b = softmax(%x) {axis: 0}
  %best = arg_max(%b) {axes: [1], keep_dims: true, last_index: false}
  %m = softmax(%mean) {axis: 1}
  %n = softmax(%sum) {axis: 1}
  return %m, %n, %best
})");
  EXPECT_EQ(s.of("a"), DType::f16);     // reductions read narrow values
  EXPECT_EQ(s.of("sum"), DType::f32);   // and a sum may be large
  EXPECT_EQ(s.of("mean"), DType::f16);
  EXPECT_EQ(s.of("b"), DType::f32);     // rounding would make ties
}

// Reshapes share memory, so they share the type; an operand of a runtime operator keeps its own.
TEST(Precision, AliasesAndRuntimeOperators) {
  const Stored s(R"(
graph @main(%x: f32[8, 16], %i: i64[4, 1], %u: f32[4, 16]) {
  %a = softmax(%x) {axis: 1}
  %r = reshape(%a) : f32[128]
  %b = softmax(%r) {axis: 0}
  %c = softmax(%x) {axis: 0}
  %d = reshape(%c) : f32[8, 16]
  %e = scatter_nd(%d, %i, %u) {axis: 0, value: 0, flag_a: false, flag_b: false, text: 'none'}
  %f = softmax(%e) {axis: 1}
  return %b, %f
})");
  EXPECT_EQ(s.of("a"), DType::f16);
  EXPECT_EQ(s.of("r"), DType::f16);
  EXPECT_EQ(s.of("c"), DType::f32);
  EXPECT_EQ(s.of("d"), DType::f32);
  EXPECT_EQ(s.of("e"), DType::f32);
}

TEST(Precision, TheTextHasIt) {
  const Stored s(kDense);
  const std::string text = graph::text(*s.module);
  EXPECT_NE(text.find("f32[8, 16] stored f16"), std::string::npos) << text;
  EXPECT_EQ(graph::text(*graph::parse(text)), text);
}

}  // namespace
}  // namespace tripod
