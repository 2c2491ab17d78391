// Elementwise operators: unary math, activations, comparisons, casts, and those of two or more operands with numpy's
// broadcasting. What differs before opset 7 and 8 is in ops_elementwise_legacy.cc.
#include <cmath>
#include <limits>

#include "onnx/op_importer.h"

namespace tripod::importer {
namespace {
using graph::ScalarAttr;
using graph::ShapeError;

// --- one operand --------------------------------------------------------------------------------------------------

ValueId checked(NodeContext& c) {
  if (graph::has(c.row.kind, graph::kFloatOnly)) c.need_float(0);
  return c.input(0);
}

std::vector<ValueId> unary(NodeContext& c) { return {c.add(c.row.kind, {checked(c)})}; }

// Math that ONNX defines for integers too since some opset, of which they are fixed points.
std::vector<ValueId> rounding(NodeContext& c) {
  c.need_float(0);
  return {c.add(c.row.kind, {c.input(0)})};
}

std::vector<ValueId> with_scalars(NodeContext& c, double a, double b = 0) {
  return {c.add(c.row.kind, {checked(c)}, ScalarAttr{a, b, 0, 0})};
}

std::vector<ValueId> leaky_relu(NodeContext& c) { return with_scalars(c, c.attr_float("alpha", 0.01f)); }
std::vector<ValueId> elu(NodeContext& c) { return with_scalars(c, c.attr_float("alpha", 1)); }
std::vector<ValueId> celu(NodeContext& c) { return with_scalars(c, c.attr_float("alpha", 1)); }
std::vector<ValueId> thresholded_relu(NodeContext& c) { return with_scalars(c, c.attr_float("alpha", 1)); }
std::vector<ValueId> swish(NodeContext& c) { return with_scalars(c, c.attr_float("alpha", 1)); }
std::vector<ValueId> shrink(NodeContext& c) {
  return with_scalars(c, c.attr_float("lambd", 0.5), c.attr_float("bias", 0));
}
std::vector<ValueId> hard_sigmoid(NodeContext& c) {
  return with_scalars(c, c.attr_float("alpha", 0.2f), c.attr_float("beta", 0.5));
}
std::vector<ValueId> selu(NodeContext& c) {
  return with_scalars(c, c.attr_float("alpha", 1.67326319217681884765625),
                      c.attr_float("gamma", 1.05070102214813232421875));
}
std::vector<ValueId> is_inf(NodeContext& c) {
  return with_scalars(c, c.attr_bool("detect_negative", true), c.attr_bool("detect_positive", true));
}

std::vector<ValueId> gelu(NodeContext& c) {
  const bool tanh = c.attr_choice("approximate", "none", {"none", "tanh"}) == "tanh";
  return {c.add(tanh ? OpKind::gelu_tanh : OpKind::gelu, {checked(c)})};
}

// --- several operands ---------------------------------------------------------------------------------------------

std::vector<ValueId> binary(NodeContext& c) {
  c.need_same_dtype(0, 1);
  return {c.add(c.row.kind, {c.input(0), c.input(1)})};
}

std::vector<ValueId> pow(NodeContext& c) {
  if (c.opset < 12) c.need_same_dtype(0, 1);
  return {c.add(OpKind::pow, {c.input(0), c.input(1)})};
}

std::vector<ValueId> greater(NodeContext& c) {  // a > b is b < a
  c.need_same_dtype(0, 1);
  return {c.add(c.row.kind, {c.input(1), c.input(0)})};
}

std::vector<ValueId> mod(NodeContext& c) {
  c.need_same_dtype(0, 1);
  const bool fmod = c.attr_bool("fmod", false);
  if (!fmod && c.opset < 28 && is_float(c.dtype(c.input(0)))) c.fail("attribute \"fmod\" must be 1 for floats");
  return {c.add(fmod ? OpKind::fmod : OpKind::mod, {c.input(0), c.input(1)})};
}

std::vector<ValueId> bit_shift(NodeContext& c) {
  c.need_same_dtype(0, 1);
  if (!c.has("direction")) c.fail("attribute \"direction\" is missing");
  const bool left = c.attr_choice("direction", "", {"LEFT", "RIGHT"}) == "LEFT";
  return {c.add(left ? OpKind::shift_left : OpKind::shift_right, {c.input(0), c.input(1)})};
}

std::vector<ValueId> variadic(NodeContext& c) {
  ValueId sum = c.input(0);
  for (int i = 1; i < c.num_inputs(); ++i) {
    c.need_same_dtype(0, i);
    sum = c.add(c.row.kind, {sum, c.input(i)});
  }
  return {sum};
}

std::vector<ValueId> mean(NodeContext& c) {
  const ValueId sum = variadic(c)[0];
  return {c.add(OpKind::div, {sum, c.scalar_of(sum, c.num_inputs())})};
}

std::vector<ValueId> where(NodeContext& c) {
  c.need_same_dtype(1, 2);
  return {c.add(OpKind::where, {c.input(0), c.input(1), c.input(2)})};
}

std::vector<ValueId> prelu(NodeContext& c) {
  c.need_same_dtype(0, 1);
  const ValueId y = c.add(OpKind::prelu, {c.input(0), c.input(1)});
  if (c.rank(c.input(1)) > c.rank(c.input(0)))
    c.fail("slope " + c.text(c.input(1)) + " must broadcast to " + c.text(c.input(0)));
  return {y};
}

std::vector<ValueId> swiglu(NodeContext& c) {  // swish(a) * b with the operands as given
  c.need_same_dtype(0, 1);
  const ValueId gate = c.add(OpKind::silu, {checked(c)}, ScalarAttr{c.attr_float("alpha", 1), 0, 0, 0});
  return {c.add(OpKind::mul, {gate, c.input(1)})};
}

// --- clip ---------------------------------------------------------------------------------------------------------

// A bound that is missing is the type's lowest or largest number: infinities are clamped to it.
ValueId default_bound(const NodeContext& c, ValueId x, bool upper) {
  if (!is_float(c.dtype(x))) return kNoValue;
  const auto largest = [&]() -> double {
    switch (c.dtype(x)) {
      case DType::f16: return 65504;
      case DType::bf16: return 0x1.FEp127;
      case DType::f64: return std::numeric_limits<double>::max();
      default: return std::numeric_limits<float>::max();
    }
  };
  return c.scalar_of(x, upper ? largest() : -largest());
}

std::vector<ValueId> clip_attributes(NodeContext& c) {  // opset 6: attributes
  c.need_float(0);
  const ValueId x = c.input(0);
  const ValueId lo = c.has("min") ? c.scalar_of(x, c.attr_float("min")) : default_bound(c, x, false);
  const ValueId hi = c.has("max") ? c.scalar_of(x, c.attr_float("max")) : default_bound(c, x, true);
  return {c.add(OpKind::clip, {x, lo, hi})};
}

std::vector<ValueId> clip(NodeContext& c) {  // opset 11: optional operands, scalars
  std::vector<ValueId> operands{c.input(0), default_bound(c, c.input(0), false), default_bound(c, c.input(0), true)};
  for (int i = 1; i < 3; ++i) {
    if (!c.has_input(i)) continue;
    c.need_same_dtype(0, i);
    operands[i] = c.rank(c.input(i)) == 0 ? c.input(i) : c.reshape(c.input(i), {});
  }
  return {c.add(OpKind::clip, std::move(operands))};
}

// --- casts --------------------------------------------------------------------------------------------------------

std::vector<ValueId> cast_to(NodeContext& c, DType to) {
  const ValueId x = c.input(0);
  if (to != c.dtype(x) && (to == DType::string || c.dtype(x) == DType::string))
    c.fail("casts from and to strings are not supported yet");
  const bool saturate = c.attr_bool("saturate", true);
  if (to == c.dtype(x)) return {c.add(OpKind::identity, {x})};
  return {c.add(OpKind::cast, {x}, graph::CastAttr{to, saturate})};
}

std::vector<ValueId> cast(NodeContext& c) { return cast_to(c, c.attr_dtype("to")); }
std::vector<ValueId> cast_like(NodeContext& c) { return cast_to(c, c.dtype(c.input(1))); }

constexpr int kMax = kMaxOpset;
const Row kRows[] = {
    {"Abs", 6, kMax, 1, 1, unary, OpKind::abs},
    {"Neg", 6, kMax, 1, 1, unary, OpKind::neg},
    {"Sign", 9, kMax, 1, 1, unary, OpKind::sign},
    {"Ceil", 6, kMax, 1, 1, rounding, OpKind::ceil},
    {"Floor", 6, kMax, 1, 1, rounding, OpKind::floor},
    {"Round", 11, kMax, 1, 1, rounding, OpKind::round},
    {"Sqrt", 6, kMax, 1, 1, unary, OpKind::sqrt},
    {"Reciprocal", 6, kMax, 1, 1, unary, OpKind::reciprocal},
    {"Exp", 6, kMax, 1, 1, unary, OpKind::exp},
    {"Log", 6, kMax, 1, 1, unary, OpKind::log},
    {"Sin", 7, kMax, 1, 1, unary, OpKind::sin},
    {"Cos", 7, kMax, 1, 1, unary, OpKind::cos},
    {"Tan", 7, kMax, 1, 1, unary, OpKind::tan},
    {"Asin", 7, kMax, 1, 1, unary, OpKind::asin},
    {"Acos", 7, kMax, 1, 1, unary, OpKind::acos},
    {"Atan", 7, kMax, 1, 1, unary, OpKind::atan},
    {"Sinh", 9, kMax, 1, 1, unary, OpKind::sinh},
    {"Cosh", 9, kMax, 1, 1, unary, OpKind::cosh},
    {"Tanh", 6, kMax, 1, 1, unary, OpKind::tanh},
    {"Asinh", 9, kMax, 1, 1, unary, OpKind::asinh},
    {"Acosh", 9, kMax, 1, 1, unary, OpKind::acosh},
    {"Atanh", 9, kMax, 1, 1, unary, OpKind::atanh},
    {"Erf", 9, kMax, 1, 1, unary, OpKind::erf},
    {"Sigmoid", 6, kMax, 1, 1, unary, OpKind::sigmoid},
    {"Relu", 6, kMax, 1, 1, unary, OpKind::relu},
    {"Softplus", 6, kMax, 1, 1, unary, OpKind::softplus},
    {"Softsign", 6, kMax, 1, 1, unary, OpKind::softsign},
    {"HardSwish", 14, kMax, 1, 1, unary, OpKind::hard_swish},
    {"Mish", 18, kMax, 1, 1, unary, OpKind::mish},
    {"Not", 6, kMax, 1, 1, unary, OpKind::logical_not},
    {"BitwiseNot", 18, kMax, 1, 1, unary, OpKind::bit_not},
    {"IsNaN", 9, kMax, 1, 1, unary, OpKind::is_nan},
    {"IsInf", 10, kMax, 1, 1, is_inf, OpKind::is_inf},
    {"LeakyRelu", 6, kMax, 1, 1, leaky_relu, OpKind::leaky_relu},
    {"Elu", 6, kMax, 1, 1, elu, OpKind::elu},
    {"Celu", 12, kMax, 1, 1, celu, OpKind::celu},
    {"Selu", 6, kMax, 1, 1, selu, OpKind::selu},
    {"ThresholdedRelu", 10, kMax, 1, 1, thresholded_relu, OpKind::thresholded_relu},
    {"Shrink", 9, kMax, 1, 1, shrink, OpKind::shrink},
    {"HardSigmoid", 6, kMax, 1, 1, hard_sigmoid, OpKind::hard_sigmoid},
    {"Gelu", 20, kMax, 1, 1, gelu, OpKind::gelu},
    {"Swish", 24, kMax, 1, 1, swish, OpKind::silu},

    {"Add", 7, kMax, 2, 2, binary, OpKind::add},
    {"Sub", 7, kMax, 2, 2, binary, OpKind::sub},
    {"Mul", 7, kMax, 2, 2, binary, OpKind::mul},
    {"Div", 7, kMax, 2, 2, binary, OpKind::div},
    {"Pow", 7, kMax, 2, 2, pow, OpKind::pow},
    {"Mod", 10, kMax, 2, 2, mod, OpKind::mod},
    {"And", 7, kMax, 2, 2, binary, OpKind::logical_and},
    {"Or", 7, kMax, 2, 2, binary, OpKind::logical_or},
    {"Xor", 7, kMax, 2, 2, binary, OpKind::logical_xor},
    {"BitwiseAnd", 18, kMax, 2, 2, binary, OpKind::bit_and},
    {"BitwiseOr", 18, kMax, 2, 2, binary, OpKind::bit_or},
    {"BitwiseXor", 18, kMax, 2, 2, binary, OpKind::bit_xor},
    {"BitShift", 11, kMax, 2, 2, bit_shift, OpKind::shift_left},
    {"Equal", 7, kMax, 2, 2, binary, OpKind::equal},
    {"Less", 7, kMax, 2, 2, binary, OpKind::less},
    {"LessOrEqual", 12, kMax, 2, 2, binary, OpKind::less_equal},
    {"Greater", 7, kMax, 2, 2, greater, OpKind::less},
    {"GreaterOrEqual", 12, kMax, 2, 2, greater, OpKind::less_equal},
    {"PRelu", 7, kMax, 2, 2, prelu, OpKind::prelu},
    {"Where", 9, kMax, 3, 3, where, OpKind::where},
    {"Sum", 8, kMax, 1, -1, variadic, OpKind::add},
    {"Max", 8, kMax, 1, -1, variadic, OpKind::maximum},
    {"Min", 8, kMax, 1, -1, variadic, OpKind::minimum},
    {"Mean", 8, kMax, 1, -1, mean, OpKind::add},
    {"SwiGLU", 28, kMax, 2, 2, swiglu, OpKind::silu},

    {"Clip", 6, 10, 1, 1, clip_attributes, OpKind::clip},
    {"Clip", 11, kMax, 1, 3, clip, OpKind::clip},
    {"Cast", 6, kMax, 1, 1, cast, OpKind::cast},
    {"CastLike", 15, kMax, 2, 2, cast_like, OpKind::cast},
};

}  // namespace

std::span<const Row> elementwise_rows() { return kRows; }

}  // namespace tripod::importer
