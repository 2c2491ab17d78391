// The shape rules, a table: inputs, the node that makes %y, its type or the error.
#include "graph_helpers.h"

namespace tripod::graph {
namespace {

constexpr char kConv[] = "{strides: [1, 1], dilations: [1, 1], pads_begin: [1, 1], pads_end: [1, 1]}";
constexpr char kConv2[] = "{strides: [2, 2], dilations: [1, 1], pads_begin: [0, 0], pads_end: [0, 0]";
const std::string kWhere = "1 <= N <= 64, 1 <= H, 1 <= W";

struct Row {
  std::string inputs, node, want;
};

void check(const std::vector<Row>& rows) {
  for (const Row& r : rows) EXPECT_EQ(type_of(r.inputs, "%y = " + r.node, kWhere), r.want) << r.node;
}

TEST(Shapes, Elementwise) {
  check({
      {"%a: f32[N, 3]", "relu(%a)", "f32[N, 3]"},
      {"%a: i32[3]", "exp(%a)", "error: operand 1 must have a float type, it is i32[3]"},
      {"%a: f32[N, 1], %b: f32[H]", "add(%a, %b)", "f32[N, H]"},
      {"%a: f32[4, 1, 3], %b: f32[2, 1]", "sub(%a, %b)", "f32[4, 2, 3]"},
      {"%a: f32[N], %b: f32[4]", "add(%a, %b)", "f32[4]"},
      {"%a: f32[min(N, H)], %b: f32[W]", "add(%a, %b)", "f32[W]"},  // of two names the shorter
      {"%a: f32[W], %b: f32[min(N, H)]", "add(%a, %b)", "f32[W]"},
      {"%a: f32[128], %b: f32[N]", "add(%a, %b)",
       "error: operands 1 and 2 do not broadcast: [128] and [N] differ in dim 0"},
      {"%a: f32[2], %b: f64[2]", "add(%a, %b)",
       "error: operand 1 is f32 and operand 2 is f64; both must have one element type"},
      {"%a: f32[2], %b: f32[2]", "and(%a, %b)", "error: operand 1 must be b1, it is f32[2]"},
      {"%a: f32[2], %b: f32[2]", "bit_xor(%a, %b)", "error: operand 1 must be an integer tensor, it is f32[2]"},
      {"%a: f32[2], %b: i64[]", "pow(%a, %b)", "f32[2]"},
      {"%a: i64[2], %b: i64[N, 1]", "less(%a, %b)", "b1[N, 2]"},
      {"%c: b1[N, 1], %a: f32[3], %b: f32[]", "where(%c, %a, %b)", "f32[N, 3]"},
      {"%c: i8[1], %a: f32[3], %b: f32[]", "where(%c, %a, %b)", "error: operand 1 must be b1, it is i8[1]"},
      {"%a: f32[N], %lo: f32[]", "clip(%a, %lo, none)", "f32[N]"},
      {"%a: f32[N], %lo: f32[2]", "clip(%a, %lo, none)", "error: the bound (operand 2) must be a scalar, it is f32[2]"},
      {"%a: f32[N]", "cast(%a) {to: f16}", "f16[N]"},
      {"%a: f32[N]", "is_nan(%a)", "b1[N]"},
      {"%a: f32[N, 4], %s: f32[4]", "quantize(%a, %s, none) {to: i8}", "i8[N, 4]"},
      {"%a: f32[4], %s: f32[2, 1]", "quantize(%a, %s) {to: i8}",
       "error: the scale (operand 2) [2, 1] does not broadcast to [4]"},
      {"%a: f32[N, 4]", "softmax(%a) {axis: 2}", "error: axis 2 is out of range for rank 2"},
      {"%a: f32[2]", "add(%a)", "error: add takes 2 operands, got 1"},
  });
}

TEST(Shapes, Reduce) {
  check({
      {"%a: f32[N, 3, H]", "reduce_sum(%a) {axes: [0, 2], keep_dims: false}", "f32[3]"},
      {"%a: f32[N, 3, H]", "reduce_max(%a) {axes: [1]}", "f32[N, 1, H]"},
      {"%a: f32[N, 3, H]", "reduce_max(%a) {axes: []}", "f32[N, 3, H]"},
      {"%a: f32[N, 3]", "reduce_max(%a) {axes: [1, 0]}", "error: the axes of a reduction must be sorted and distinct"},
      {"%a: f32[N, 3]", "reduce_max(%a) {axes: [2]}", "error: axis 2 is out of range for rank 2"},
      {"%a: f32[N, 3]", "arg_max(%a) {axes: [1], keep_dims: false}", "i64[N]"},
      {"%a: f32[N, 3]", "arg_min(%a) {axes: [0, 1]}", "error: arg_min wants exactly one axis"},
  });
}

TEST(Shapes, Contractions) {
  const std::string conv = "conv(%x, %w) ";
  check({
      {"%a: f32[N, 2, 3], %b: f32[3, 5]", "matmul(%a, %b)", "f32[N, 2, 5]"},
      {"%a: f32[3], %b: f32[N, 3, 5]", "matmul(%a, %b)", "f32[N, 5]"},
      {"%a: f32[N, 2, 3], %b: f32[3]", "matmul(%a, %b)", "f32[N, 2]"},
      {"%a: f32[3], %b: f32[3]", "matmul(%a, %b)", "f32[]"},
      {"%a: f32[2, 3], %b: f32[4, 5]", "matmul(%a, %b)", "error: inner dims differ: [2, 3] times [4, 5]"},
      {"%a: f32[], %b: f32[4, 5]", "matmul(%a, %b)", "error: matmul does not take scalars"},
      {"%a: u8[2, 3], %b: i8[3, 5]", "matmul_integer(%a, %b)", "i32[2, 5]"},
      {"%a: i32[2, 3], %b: i8[3, 5]", "matmul_integer(%a, %b)",
       "error: operand 1 must be i8 or u8, it is i32[2, 3]"},
      {"%x: f32[N, 64, H, W], %w: f32[32, 64, 3, 3]", conv + kConv, "f32[N, 32, H, W]"},
      {"%x: f32[N, 64, H, 9], %w: f32[32, 64, 3, 3]", conv + kConv2 + "}", "f32[N, 32, floordiv(H + 1, 2) - 1, 4]"},
      {"%x: f32[N, 3, H, W], %w: f32[32, 64, 3, 3]", conv + kConv,
       "error: operand 1 has 3 channels, the weights want 64"},
      {"%x: f32[N, 6, H, W], %w: f32[32, 4, 3, 3]", conv + kConv2 + ", group: 2}",
       "error: operand 1 has 6 channels, the weights want 8 (4 in each of 2 groups)"},
      {"%x: f32[N, 8, H, W], %w: f32[33, 4, 3, 3]", conv + kConv2 + ", group: 2}",
       "error: 33 output channels do not divide into 2 groups"},
      {"%x: f32[N, 64, 2, W], %w: f32[32, 64, 7, 7]", conv + kConv2 + "}",
       "error: the kernel's extent 7 exceeds the padded input 2 in spatial dim 0"},
      {"%x: f32[N, 64, H], %w: f32[32, 64, 7, 7]", conv + kConv2 + "}",
       "error: operand 1 [N, 64, H] has rank 3, the weights [32, 64, 7, 7] have rank 4"},
      {"%x: f32[N, 64, H], %w: f32[32, 64, 7]", conv + kConv2 + "}",
       "error: strides has 2 entries for 1 spatial dims"},
      {"%x: f32[N, 64, H, W], %w: f32[32, 64, 3, 3], %b: f32[64]", std::string("conv(%x, %w, %b) ") + kConv,
       "error: the bias (operand 3) has 64 elements, 32 are wanted"},
      {"%x: u8[1, 64, H, W], %w: i8[32, 64, 3, 3], %z: u8[]",
       std::string("conv_integer(%x, %w, %z) ") + kConv, "i32[1, 32, H, W]"},
      {"%x: f32[N, 8, H, 5], %w: f32[8, 2, 3, 3]",
       std::string("conv_transpose(%x, %w) ") + kConv2 + ", group: 2, output_padding: [1, 0]}",
       "f32[N, 4, H*2 + 2, 11]"},
  });
}

TEST(Shapes, Moves) {
  check({
      {"%x: f32[N, 3, H]", "transpose(%x) {perm: [2, 0, 1]}", "f32[H, N, 3]"},
      {"%x: f32[N, 3, H]", "transpose(%x) {perm: [2, 0, 0]}",
       "error: perm is not a permutation of the 3 dims of operand 1"},
      {"%a: f32[N, 3], %b: f32[H, 3]", "concat(%a, %b) {axis: 0}", "f32[H + N, 3]"},
      {"%a: f32[N, 3], %b: f32[N, 4]", "concat(%a, %b) {axis: 0}",
       "error: operands 1 [N, 3] and 2 [N, 4] differ in dim 1, which is not the axis"},
      {"%a: f32[N, 3], %b: f32[N]", "concat(%a, %b) {axis: 0}",
       "error: operand 2 must have rank 2, it is f32[N]"},
      {"%x: f32[N, 3]", "pad(%x) {begin: [1, 0], end: [H, 2]}", "f32[H + N + 1, 5]"},
      {"%x: f32[N, 3]", "pad(%x) {begin: [1, 0], end: [0, -2]}", "error: the pad -2 is negative in dim 1"},
      {"%x: f32[N, 3, H], %i: i64[2, W]", "gather(%x, %i) {axis: 1}", "f32[N, 2, W, H]"},
      {"%x: f32[N, 3]", "gather(%x, %x) {axis: 1}", "error: the indices (operand 2) must be integers, they are f32[N, 3]"},
      {"%x: f32[N, 3], %i: i64[2, 1]", "gather_elements(%x, %i) {axis: 1}", "f32[2, 1]"},
      {"%x: f32[N, 3, H], %i: i64[7, 2]", "gather_nd(%x, %i) {axis: 0}", "f32[7, H]"},
      {"%x: f32[N, 3, H], %i: i64[N, 7, 1]", "gather_nd(%x, %i) {axis: 0, value: 1}", "f32[N, 7, H]"},
      {"%x: f32[N, 6]", "reshape(%x) : f32[N*2, 3]", "f32[N*2, 3]"},
      {"%x: f32[N, 6]", "reshape(%x) : f32[N, 7]",
       "error: f32[N, 6] does not become f32[N, 7]: N*6 elements, not N*7"},
      {"%x: f32[1, 6]", "broadcast(%x) : f32[H, N, 6]", "f32[H, N, 6]"},
      {"%x: f32[2, 6]", "broadcast(%x) : f32[3, 6]", "error: the source (operand 1) [2, 6] does not broadcast to [3, 6]"},
      {"%x: f32[8]", "slice(%x) {starts: [7], steps: [-2]} : f32[4]", "f32[4]"},
      {"%x: f32[8]", "slice(%x) {starts: [7], steps: [-2]} : f32[5]",
       "error: the slice of 5 elements from 7 by -2 leaves dim 0 of f32[8]"},
      {"%x: f32[N, 3]", "tile(%x) : f32[N*2, 6]", "f32[N*2, 6]"},
      {"%x: f32[N, 3]", "tile(%x) : f32[N, 7]", "error: f32[N, 3] does not become f32[N, 7]: dim 1 is not a multiple"},
      {"%d: f32[4, 5], %i: i64[2, 1], %u: f32[2, 5]", "scatter_nd(%d, %i, %u) {axis: 0}", "f32[4, 5]"},
      {"%d: f32[4, 5], %i: i64[2, 1], %u: f32[2, 4]", "scatter_nd(%d, %i, %u) {axis: 0}",
       "error: the updates are [2, 4], [2, 5] is wanted"},
  });
}

TEST(Shapes, Networks) {
  const std::string pool = "{kernel: [3], strides: [2], dilations: [1], pads_begin: [0], pads_end: [1]";
  check({
      {"%x: f32[N, 4, 10]", "average_pool(%x) " + pool + "}", "f32[N, 4, 5]"},
      // The sixth window would start in the padding.
      {"%x: f32[N, 4, 10]", "average_pool(%x) " + pool + ", ceil_mode: true}", "f32[N, 4, 5]"},
      {"%x: f32[N, 4, 1]", "average_pool(%x) {kernel: [5], strides: [2], dilations: [1], pads_begin: [0], pads_end: [0]}",
       "error: the kernel's extent 5 exceeds the padded input 1 in spatial dim 0"},
      {"%q: f32[N, 8, H, 64], %k: f32[N, 2, W, 64], %v: f32[N, 2, W, 32]", "attention(%q, %k, %v)", "f32[N, 8, H, 32]"},
      {"%q: f32[N, 8, H, 64], %k: f32[N, 3, W, 64], %v: f32[N, 3, W, 32]", "attention(%q, %k, %v)",
       "error: 8 query heads do not divide into 3 key heads"},
      {"%x: f32[H, N, 16], %w: f32[2, 32, 16], %r: f32[2, 32, 32]",
       "rnn(%x, %w, %r) {direction: bidirectional, hidden: 32} : f32[H, 2, N, 32], f32[2, N, 32]",
       "error: 1 names for 2 results"},
      {"%x: f32[N, 6, H], %s: f32[6], %b: f32[5]", "group_norm(%x, %s, %b) {a: 1e-05, axis: 2}",
       "error: the bias (operand 3) has 5 elements, 6 are wanted"},
      {"%x: f32[N, 6, H]", "group_norm(%x) {a: 1e-05, axis: 4}", "error: 6 channels do not divide into 4 groups"},
      {"%x: f32[N, 6, H], %s: f32[H]", "layer_norm(%x, %s) {a: 1e-05, axis: 2}", "f32[N, 6, H]"},
      {"%x: f32[N, 6], %c: f32[N, 3]", "rotary(%x, %c, %c) {axis: 0}", "f32[N, 6]"},
  });
  EXPECT_EQ(type_of("%x: f32[H, N, 16], %w: f32[1, 128, 16], %r: f32[1, 128, 32], %b: f32[1, 256]",
                    "%a, %b1, %y = lstm(%x, %w, %r, %b) {direction: forward, hidden: 32}", kWhere),
            "f32[1, N, 32]");
  EXPECT_EQ(type_of("%x: f32[H, N, 16], %w: f32[1, 96, 16], %r: f32[1, 128, 32]",
                    "%a, %b1, %y = lstm(%x, %w, %r) {direction: forward, hidden: 32}", kWhere),
            "error: the input weights (operand 2) are f32[1, 96, 16], [1, 128, 16] is wanted");
  EXPECT_EQ(type_of("%x: f32[N, 4, 10]", "%a, %y = max_pool(%x) " + pool + "}", kWhere), "i64[N, 4, 5]");
}

}  // namespace
}  // namespace tripod::graph
