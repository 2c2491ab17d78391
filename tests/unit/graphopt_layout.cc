// Phase layout: which values lie in which order, and which transposes cost nothing.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph_opt/fuse.h"
#include "graph_opt/layout.h"

namespace tripod {
namespace {

using Order = graph::DimOrder;

struct Laid {
  explicit Laid(const char* text, const graph_opt::LayoutPreferences& wanted = {})
      : module(graph::parse(text)), groups(graph_opt::fuse(module->main())) {
    copies = graph_opt::assign_layouts(module->main(), groups, wanted);
  }
  graph::ValueId value(const std::string& name) const {
    for (graph::ValueId v = 0; v < static_cast<graph::ValueId>(module->main().num_values()); ++v)
      if (module->main().value(v).name == name) return v;
    ADD_FAILURE() << "no value " << name;
    return 0;
  }
  Order order(const std::string& name) const { return module->main().type(value(name)).order; }
  graph::Group::Kind made_by(const std::string& name) const {
    const graph::NodeId n = module->main().value(value(name)).producer;
    for (const graph::Group& g : groups)
      if (std::find(g.nodes.begin(), g.nodes.end(), n) != g.nodes.end()) return g.kind;
    ADD_FAILURE() << "no group makes " << name;
    return graph::Group::source;
  }

  std::unique_ptr<graph::Module> module;
  graph::Groups groups;
  int copies = 0;
};

// A bias that was gathered with its heads innermost (graph distances, relative positions) must not pull the scores
// into that order: softmax and both products want the keys contiguous.
constexpr const char* kBiased = R"(
graph @main(%q: f32[1, 4, 8, 16], %k: f32[1, 4, 16, 8], %v: f32[1, 4, 8, 16], %ids: i64[1, 8, 8]) {
  %table = const f32[3, 4] [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
  %g = gather(%table, %ids) {axis: 0}
  %bias = transpose(%g) {perm: [0, 3, 1, 2]}
  %s = matmul(%q, %k)
  %t = add(%s, %bias)
  %p = softmax(%t) {axis: 3}
  %h = matmul(%p, %v)
  %r = transpose(%h) {perm: [0, 2, 1, 3]}
  %y = reshape(%r) : f32[1, 8, 64]
  return %y
})";

TEST(Layout, RowsStayContiguousUnderAChannelsLastBias) {
  const Laid l(kBiased);
  EXPECT_EQ(l.order("bias"), Order{});
  EXPECT_EQ(l.made_by("bias"), graph::Group::kernel);
  EXPECT_EQ(l.order("p"), Order{});
}

TEST(Layout, AProductIsWrittenTransposed) {
  const Laid l(kBiased);
  EXPECT_EQ(l.order("h"), (Order{0, 2, 1, 3}));
  EXPECT_EQ(l.made_by("r"), graph::Group::alias);
}

TEST(Layout, AProductThatOthersReadIsNotWrittenTransposed) {
  const Laid l(R"(
graph @main(%q: f32[1, 4, 8, 16], %v: f32[1, 4, 16, 16]) {
  %h = matmul(%q, %v)
  %r = transpose(%h) {perm: [0, 2, 1, 3]}
  %a = reshape(%r) : f32[1, 8, 64]
  %b = reshape(%h) : f32[1, 512]
  return %a, %b
})");
  EXPECT_EQ(l.order("h"), Order{});
  EXPECT_EQ(l.made_by("r"), graph::Group::kernel);
}

TEST(Layout, ATransposeThatMovesTheInnermostDimIsNotWrittenByTheProduct) {
  const Laid l(R"(
graph @main(%q: f32[1, 4, 8, 16], %v: f32[1, 4, 16, 16]) {
  %h = matmul(%q, %v)
  %r = transpose(%h) {perm: [0, 1, 3, 2]}
  %a = reshape(%r) : f32[1, 512]
  return %a
})");
  EXPECT_EQ(l.order("h"), Order{});
  EXPECT_EQ(l.made_by("r"), graph::Group::kernel);
}

// What a TensorFlow export writes around a convolution: no copies.
TEST(Layout, ConvolutionsLieChannelsLast) {
  const Laid l(R"(
graph @main(%x: f32[1, 8, 8, 3], %w: f32[16, 3, 1, 1]) {
  %c = transpose(%x) {perm: [0, 3, 1, 2]}
  %y = conv(%c, %w) {strides: [1, 1], dilations: [1, 1], pads_begin: [0, 0], pads_end: [0, 0]}
  %r = relu(%y)
  %z = transpose(%r) {perm: [0, 2, 3, 1]}
  %f = reshape(%z) : f32[1, 1024]
  return %f
})");
  EXPECT_EQ(l.order("r"), (Order{0, 2, 3, 1}));
  EXPECT_EQ(l.made_by("c"), graph::Group::alias);
  EXPECT_EQ(l.made_by("z"), graph::Group::alias);
  EXPECT_EQ(l.copies, 0);
}

constexpr const char* kConvolutions = R"(
graph @main(%x: f32[1, 16, 8, 8]) {
  %w = const f32[4, 16, 1, 1] [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63]
  %d = const f32[4, 1, 2, 2] [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
  %a = conv(%x, %w) {strides: [1, 1], dilations: [1, 1], pads_begin: [0, 0], pads_end: [0, 0], output_padding: [], group: 1}
  %b = conv(%a, %d) {strides: [1, 1], dilations: [1, 1], pads_begin: [0, 0], pads_end: [0, 0], output_padding: [], group: 4}
  %y = reshape(%b) : f32[196]
  return %y
})";

TEST(Layout, WeightsFollowTheImageWhereTheTargetWantsIt) {
  const Laid plain(kConvolutions), last(kConvolutions, {.weights_channels_last = true});
  EXPECT_EQ(plain.order("w"), Order{});
  EXPECT_EQ(last.order("w"), (Order{0, 2, 3, 1}));
  EXPECT_EQ(last.order("d"), (Order{2, 3, 1, 0}));  // each channel by itself: channels are the vector
  EXPECT_EQ(last.order("a"), (Order{0, 2, 3, 1}));
  EXPECT_EQ(last.copies, plain.copies);
}

TEST(Layout, OperandsOfManyChannelsAreCopiedWhereTheTargetWantsIt) {
  const Laid few(kConvolutions, {.copy_operands_from = 17}), many(kConvolutions, {.copy_operands_from = 16});
  const auto operand = [](const Laid& l) {
    const graph::Graph& g = l.module->main();
    return g.type(g.producer(l.value("a")).operands[0]).order;
  };
  EXPECT_EQ(operand(few), Order{});
  EXPECT_EQ(operand(many), (Order{0, 2, 3, 1}));
  EXPECT_EQ(many.copies, few.copies + 1);
  EXPECT_TRUE(graph::verify(*many.module).empty());
}

TEST(Layout, OperandsOfDepthwiseConvolutionsAreCopied) {
  const std::string source = R"(
graph @main(%x: f32[1, 4, 8, 8]) {
  %d = const f32[4, 1, 2, 2] [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
  %a = conv(%x, %d) {strides: [1, 1], dilations: [1, 1], pads_begin: [0, 0], pads_end: [0, 0], output_padding: [], group: 4}
  %y = reshape(%a) : f32[196]
  return %y
})";
  const auto operand = [](const Laid& l) {
    const graph::Graph& g = l.module->main();
    return g.type(g.producer(l.value("a")).operands[0]).order;
  };
  EXPECT_EQ(operand(Laid(source.c_str(), {.copy_depthwise_from = 5})), Order{});
  EXPECT_EQ(operand(Laid(source.c_str(), {.copy_depthwise_from = 4})), (Order{0, 2, 3, 1}));
  // A dense convolution reads the image as it is.
  EXPECT_EQ(Laid(kConvolutions, {.copy_depthwise_from = 4}).copies, Laid(kConvolutions).copies);
}

// Weights of 8 bits go with the product that they are made for, unless there are two, or the target does not want it.
TEST(Fuse, SmallWeights) {
  const auto module = graph::parse(R"(
graph @main(%x: f32[2, 3]) {
  %w = const i8[3, 2] [1, 2, 3, 4, 5, 6]
  %v = const i8[3, 2] [1, 2, 3, 4, 5, 7]
  %s = const f32[2] [0.5, 2]
  %a = dequantize(%w, %s) {to: f32}
  %b = dequantize(%v, %s) {to: f32}
  %p = matmul(%x, %a) : f32[2, 2]
  %r = relu(%p)
  %q = matmul(%x, %b) : f32[2, 2]
  %t = matmul(%q, %r) : f32[2, 2]
  %u = matmul(%x, %b) : f32[2, 2]
  return %t, %u
}
)");
  const graph::Graph& g = module->main();
  const auto groups_with = [&](bool small_weights) {
    std::vector<size_t> sizes;
    for (const graph::Group& group : graph_opt::fuse(g, small_weights))
      if (group.kind == graph::Group::kernel) sizes.push_back(group.nodes.size());
    std::sort(sizes.begin(), sizes.end());
    return sizes;
  };
  EXPECT_EQ(groups_with(false), (std::vector<size_t>{1, 1, 1, 1, 1, 2}));
  EXPECT_EQ(groups_with(true), (std::vector<size_t>{1, 1, 1, 1, 3}));
}

}  // namespace
}  // namespace tripod
