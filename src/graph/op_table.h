// The op table: one row an op. Everything that is generic over ops (printing, parsing, verification, type inference,
// fusion, lowering) reads it; there are no lists of op names elsewhere.
//
// Columns: kind, text, least operands, most operands (-1: any), results, attribute struct, shape rule, properties.
// Optional operands that are missing are ValueId::none. What an op computes is said in the comment of its group;
// semantics are ONNX's for the operator of the same name unless stated.
//
// Shape rules live in graph/shape_rules_*.cc, one function of that name each; `given` means that the caller states
// the result type (the rule only checks it).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tripod::graph {

enum Property : uint32_t {
  kElementwise = 1,       // result[i] depends on operand[i] only (operands broadcast, numpy rules)
  kCommutative = 2,
  kReduction = 4,         // over attribute axes, associative
  kContraction = 8,       // matmul, conv: sums of products; takes an epilogue
  kMove = 16,             // copies elements: result element = some operand element (or a fill)
  kComposite = 32,        // stays whole until claimed; has a decomposition or a lowering of its own
  kHostControl = 64,      // if, loop, scan, read_dim: the host program carries it out
  kRuntime = 128,         // carried out by a runtime operator (a C function in model.so)
  kSource = 256,          // no data operands: constant, sym_values, iota
  kFloatOnly = 512,       // operands are floats (elementwise math)
};

// clang-format off
#define TRIPOD_OPS(OP)                                                                                              \
  /* -- sources */                                                                                                  \
  OP(input,          "input",          0,  0, 1, NoAttr,       given,          kSource)                             \
  OP(constant,       "const",          0,  0, 1, ConstAttr,    given,          kSource)                             \
  OP(sym_values,     "sym_values",     0,  0, 1, ExprsAttr,    given,          kSource) /* int tensor of exprs */   \
  OP(iota,           "iota",           2,  2, 1, NoAttr,       given,          kMove) /* x0 + i*x1, scalars, 1-D */ \
  /* -- elementwise, one operand */                                                                                 \
  OP(identity,       "identity",       1,  1, 1, NoAttr,       same,           kElementwise)                        \
  OP(cast,           "cast",           1,  1, 1, CastAttr,     cast,           kElementwise)                        \
  OP(neg,            "neg",            1,  1, 1, NoAttr,       same,           kElementwise)                        \
  OP(abs,            "abs",            1,  1, 1, NoAttr,       same,           kElementwise)                        \
  OP(ceil,           "ceil",           1,  1, 1, NoAttr,       same,           kElementwise)                        \
  OP(floor,          "floor",          1,  1, 1, NoAttr,       same,           kElementwise)                        \
  OP(round,          "round",          1,  1, 1, NoAttr,       same,           kElementwise) /* half to even */     \
  OP(sign,           "sign",           1,  1, 1, NoAttr,       same,           kElementwise)                        \
  OP(sqrt,           "sqrt",           1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(reciprocal,     "reciprocal",     1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(exp,            "exp",            1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(log,            "log",            1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(sin,            "sin",            1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(cos,            "cos",            1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(tan,            "tan",            1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(asin,           "asin",           1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(acos,           "acos",           1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(atan,           "atan",           1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(sinh,           "sinh",           1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(cosh,           "cosh",           1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(tanh,           "tanh",           1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(asinh,          "asinh",          1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(acosh,          "acosh",          1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(atanh,          "atanh",          1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(erf,            "erf",            1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(sigmoid,        "sigmoid",        1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(relu,           "relu",           1,  1, 1, NoAttr,       same,           kElementwise)                        \
  OP(silu,           "silu",           1,  1, 1, ScalarAttr,   same,           kElementwise | kFloatOnly) /* x*sigmoid(a*x) */ \
  OP(gelu,           "gelu",           1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly) /* erf */ \
  OP(gelu_tanh,      "gelu_tanh",      1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(mish,           "mish",           1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(softplus,       "softplus",       1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(softsign,       "softsign",       1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(hard_swish,     "hard_swish",     1,  1, 1, NoAttr,       same,           kElementwise | kFloatOnly)           \
  OP(hard_sigmoid,   "hard_sigmoid",   1,  1, 1, ScalarAttr,   same,           kElementwise | kFloatOnly) /* a*x+b */ \
  OP(leaky_relu,     "leaky_relu",     1,  1, 1, ScalarAttr,   same,           kElementwise | kFloatOnly) /* a */   \
  OP(elu,            "elu",            1,  1, 1, ScalarAttr,   same,           kElementwise | kFloatOnly) /* a */   \
  OP(selu,           "selu",           1,  1, 1, ScalarAttr,   same,           kElementwise | kFloatOnly) /* a alpha, b gamma */ \
  OP(celu,           "celu",           1,  1, 1, ScalarAttr,   same,           kElementwise | kFloatOnly) /* a */   \
  OP(thresholded_relu, "thresholded_relu", 1, 1, 1, ScalarAttr, same,          kElementwise | kFloatOnly) /* a */   \
  OP(shrink,         "shrink",         1,  1, 1, ScalarAttr,   same,           kElementwise) /* a lambd, b bias */  \
  OP(logical_not,    "not",            1,  1, 1, NoAttr,       same,           kElementwise)                        \
  OP(bit_not,        "bit_not",        1,  1, 1, NoAttr,       same,           kElementwise)                        \
  OP(is_nan,         "is_nan",         1,  1, 1, NoAttr,       predicate,      kElementwise)                        \
  OP(is_inf,         "is_inf",         1,  1, 1, ScalarAttr,   predicate,      kElementwise) /* a: negative, b: positive, 0 or 1 */ \
  /* -- elementwise, several operands */                                                                            \
  OP(add,            "add",            2,  2, 1, NoAttr,       broadcast,      kElementwise | kCommutative)         \
  OP(sub,            "sub",            2,  2, 1, NoAttr,       broadcast,      kElementwise)                        \
  OP(mul,            "mul",            2,  2, 1, NoAttr,       broadcast,      kElementwise | kCommutative)         \
  OP(div,            "div",            2,  2, 1, NoAttr,       broadcast,      kElementwise) /* ints: truncates */  \
  OP(mod,            "mod",            2,  2, 1, NoAttr,       broadcast,      kElementwise) /* sign of divisor */  \
  OP(fmod,           "fmod",           2,  2, 1, NoAttr,       broadcast,      kElementwise) /* sign of dividend */ \
  OP(pow,            "pow",            2,  2, 1, NoAttr,       pow,            kElementwise) /* type of the base */ \
  OP(minimum,        "min",            2,  2, 1, NoAttr,       broadcast,      kElementwise | kCommutative) /* NaN wins */ \
  OP(maximum,        "max",            2,  2, 1, NoAttr,       broadcast,      kElementwise | kCommutative)         \
  OP(prelu,          "prelu",          2,  2, 1, NoAttr,       broadcast,      kElementwise)                        \
  OP(equal,          "equal",          2,  2, 1, NoAttr,       compare,        kElementwise | kCommutative)         \
  OP(less,           "less",           2,  2, 1, NoAttr,       compare,        kElementwise)                        \
  OP(less_equal,     "less_equal",     2,  2, 1, NoAttr,       compare,        kElementwise)                        \
  OP(logical_and,    "and",            2,  2, 1, NoAttr,       broadcast,      kElementwise | kCommutative)         \
  OP(logical_or,     "or",             2,  2, 1, NoAttr,       broadcast,      kElementwise | kCommutative)         \
  OP(logical_xor,    "xor",            2,  2, 1, NoAttr,       broadcast,      kElementwise | kCommutative)         \
  OP(bit_and,        "bit_and",        2,  2, 1, NoAttr,       broadcast,      kElementwise | kCommutative)         \
  OP(bit_or,         "bit_or",         2,  2, 1, NoAttr,       broadcast,      kElementwise | kCommutative)         \
  OP(bit_xor,        "bit_xor",        2,  2, 1, NoAttr,       broadcast,      kElementwise | kCommutative)         \
  OP(shift_left,     "shift_left",     2,  2, 1, NoAttr,       broadcast,      kElementwise)                        \
  OP(shift_right,    "shift_right",    2,  2, 1, NoAttr,       broadcast,      kElementwise)                        \
  OP(where,          "where",          3,  3, 1, NoAttr,       where,          kElementwise)                        \
  OP(clip,           "clip",           3,  3, 1, NoAttr,       clip,           kElementwise) /* x, lo, hi scalars; may be none */ \
  /* quantize(x, scale, zero_point): scale and zero point broadcast against x already (importer reshapes).          \
     round half even, saturate to the result type (given). dequantize is the inverse, result type of the scale. */  \
  OP(quantize,       "quantize",       2,  3, 1, CastAttr,     cast,           kElementwise)                        \
  OP(dequantize,     "dequantize",     2,  3, 1, CastAttr,     cast,           kElementwise)                        \
  /* -- reductions over attribute axes */                                                                           \
  OP(reduce_sum,     "reduce_sum",     1,  1, 1, ReduceAttr,   reduce,         kReduction)                          \
  OP(reduce_mean,    "reduce_mean",    1,  1, 1, ReduceAttr,   reduce,         kReduction)                          \
  OP(reduce_max,     "reduce_max",     1,  1, 1, ReduceAttr,   reduce,         kReduction)                          \
  OP(reduce_min,     "reduce_min",     1,  1, 1, ReduceAttr,   reduce,         kReduction)                          \
  OP(reduce_prod,    "reduce_prod",    1,  1, 1, ReduceAttr,   reduce,         kReduction)                          \
  OP(arg_max,        "arg_max",        1,  1, 1, ReduceAttr,   arg_reduce,     kReduction)                          \
  OP(arg_min,        "arg_min",        1,  1, 1, ReduceAttr,   arg_reduce,     kReduction)                          \
  OP(cumsum,         "cumsum",         1,  1, 1, AxisAttr,     same,           kComposite)                          \
  OP(cumprod,        "cumprod",        1,  1, 1, AxisAttr,     same,           kComposite) /* attribute as cumsum's */ \
  /* -- contractions. matmul: numpy semantics, batch dims broadcast. conv(x [N,C,spatial], w [M,C/g,k], bias? [M]) */ \
  OP(matmul,         "matmul",         2,  2, 1, NoAttr,       matmul,         kContraction)                        \
  OP(conv,           "conv",           2,  3, 1, ConvAttr,     conv,           kContraction)                        \
  OP(conv_transpose, "conv_transpose", 2,  3, 1, ConvAttr,     conv_transpose, kContraction)                        \
  /* (a, b, a_zero?, b_zero?): i8/u8 to i32, exact; zero points broadcast (per row of a, per column of b) */        \
  OP(matmul_integer, "matmul_integer", 2,  4, 1, NoAttr,       matmul_integer, kContraction)                        \
  OP(conv_integer,   "conv_integer",   2,  4, 1, ConvAttr,     conv_integer,   kContraction)                        \
  /* -- moves */                                                                                                    \
  OP(reshape,        "reshape",        1,  1, 1, NoAttr,       given,          kMove) /* also squeeze, unsqueeze, flatten */ \
  OP(transpose,      "transpose",      1,  1, 1, PermAttr,     transpose,      kMove)                               \
  OP(broadcast,      "broadcast",      1,  1, 1, NoAttr,       given,          kMove) /* numpy rules to the given shape */ \
  OP(concat,         "concat",         1, -1, 1, AxisAttr,     concat,         kMove)                               \
  OP(slice,          "slice",          1,  1, 1, SliceAttr,    given,          kMove)                               \
  OP(pad,            "pad",            1,  2, 1, PadAttr,      pad,            kMove) /* x, value? scalar */        \
  OP(tile,           "tile",           1,  1, 1, NoAttr,       given,          kMove)                               \
  OP(gather,         "gather",         2,  2, 1, AxisAttr,     gather,         kMove)                               \
  OP(gather_elements,"gather_elements",2,  2, 1, AxisAttr,     gather_elements,kMove)                               \
  OP(gather_nd,      "gather_nd",      2,  2, 1, AxisAttr,     gather_nd,      kMove) /* value: batch dims */       \
  OP(scatter_elements,"scatter_elements",3,3, 1, AxisAttr,     same,           kRuntime)                            \
  OP(scatter_nd,     "scatter_nd",     3,  3, 1, AxisAttr,     same,           kRuntime)                            \
  OP(one_hot,        "one_hot",        3,  3, 1, AxisAttr,     given,          kMove) /* indices, off, on: scalars; axis in the result */ \
  OP(trilu,          "trilu",          1,  2, 1, AxisAttr,     same,           kMove) /* x, k?; flag_a: upper; value: k when no operand */ \
  OP(reverse_sequence,"reverse_sequence",2,2, 1, AxisAttr,     same,           kMove) /* axis: time, value: batch axis */ \
  /* -- windows and sampling */                                                                                     \
  OP(max_pool,       "max_pool",       1,  1, 2, PoolAttr,     pool,           kComposite) /* second result: i64 indices */ \
  OP(average_pool,   "average_pool",   1,  1, 1, PoolAttr,     pool,           kComposite)                          \
  OP(lp_pool,        "lp_pool",        1,  1, 1, PoolAttr,     pool,           kComposite)                          \
  OP(resize,         "resize",         1,  3, 1, ResizeAttr,   given,          kComposite) /* x, scales? f32 [rank], roi? f32 [2*rank]: the attribute's, when only the run knows them */ \
  OP(lrn,            "lrn",            1,  1, 1, ScalarAttr,   same,           kComposite) /* a alpha b beta c bias, axis: size */ \
  /* -- normalisation. layer_norm(x, scale?, bias?) over axes >= axis, a: epsilon. Statistics in f32 (f64 for f64). */ \
  OP(softmax,        "softmax",        1,  1, 1, AxisAttr,     same,           kComposite | kFloatOnly)             \
  OP(log_softmax,    "log_softmax",    1,  1, 1, AxisAttr,     same,           kComposite | kFloatOnly)             \
  OP(layer_norm,     "layer_norm",     1,  3, 1, ScalarAttr,   same,           kComposite | kFloatOnly)             \
  OP(rms_norm,       "rms_norm",       1,  2, 1, ScalarAttr,   same,           kComposite | kFloatOnly)             \
  OP(group_norm,     "group_norm",     1,  3, 1, ScalarAttr,   same,           kComposite | kFloatOnly) /* scale, bias [C]; axis: groups; instance norm: groups = C */ \
  OP(batch_norm,     "batch_norm",     5,  5, 1, ScalarAttr,   same,           kComposite | kFloatOnly) /* x, scale, bias, mean, var [C] */ \
  OP(attention,      "attention",      3,  4, 1, AttentionAttr, attention,     kComposite | kFloatOnly)             \
  OP(rotary,         "rotary",         3,  3, 1, AxisAttr,     same,           kComposite) /* x [.., S, D], cos, sin broadcast [.., S, D/2]; flag_a: interleaved */ \
  /* -- recurrent: operands as ONNX (X, W, R, B?, sequence_lens?, initial_h?, initial_c?, P?) */                   \
  OP(lstm,           "lstm",           3,  8, 3, RnnAttr,      rnn,            kComposite) /* Y, Y_h, Y_c */        \
  OP(gru,            "gru",            3,  6, 2, RnnAttr,      rnn,            kComposite)                          \
  OP(rnn,            "rnn",            3,  6, 2, RnnAttr,      rnn,            kComposite)                          \
  /* -- carried out by the runtime */                                                                               \
  OP(topk,           "topk",           1,  1, 2, AxisAttr,     given,          kRuntime) /* values, indices */      \
  OP(nonzero,        "nonzero",        1,  1, 1, ExprsAttr,    given,          kRuntime) /* values: {count symbol} */ \
  OP(non_max_suppression, "non_max_suppression", 2, 5, 1, ExprsAttr, given,    kRuntime) /* boxes, scores, max?, iou?, score?; values: {count, center_point_box} */ \
  OP(unique,         "unique",         1,  1, 4, ExprsAttr,    given,          kRuntime) /* values: {count, axis or -1, sorted} */ \
  OP(compress,       "compress",       2,  2, 1, ExprsAttr,    given,          kRuntime) /* values: {count, axis or -1} */ \
  OP(call,           "call",           0, -1, -1, CallAttr,    given,          kRuntime)                            \
  /* -- host. read_dim defines a symbol from the one element of its operand (result: the same value). */            \
  OP(read_dim,       "read_dim",       1,  1, 1, ExprsAttr,    given,          kHostControl)                        \
  OP(if_,            "if",             1, -1, -1, SubgraphAttr, given,         kHostControl) /* condition, captures... */ \
  OP(loop,           "loop",           2, -1, -1, SubgraphAttr, given,         kHostControl) /* trip count?, condition?, carried... */ \
  OP(scan,           "scan",           0, -1, -1, SubgraphAttr, given,         kHostControl)                        \
  OP(copy,           "copy",           1,  1, 1, NoAttr,       given,          kMove) /* to another space or dim order */ \
  /* -- collectives over a named mesh axis (CallAttr.function); nothing uses them yet */                            \
  OP(all_reduce,     "all_reduce",     1,  1, 1, CallAttr,     same,           kComposite)                          \
  OP(all_gather,     "all_gather",     1,  1, 1, CallAttr,     given,          kComposite)
// clang-format on

enum class OpKind : uint8_t {
#define OP(kind, ...) kind,
  TRIPOD_OPS(OP)
#undef OP
};

struct OpInfo {
  std::string_view text;
  int min_operands, max_operands, results;
  uint32_t properties;
  int attr_index;  // index of the attribute struct in the Attr variant
};

const OpInfo& info(OpKind k);
inline constexpr int kNumOps = static_cast<int>(OpKind::all_gather) + 1;
std::optional<OpKind> parse_op(std::string_view text);
// The rule of the op is `given`: add_node() needs its result types.
bool type_is_given(OpKind k);
inline bool has(OpKind k, Property p) { return (info(k).properties & p) != 0; }

}  // namespace tripod::graph
