// QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, QLinearConv, QLinearMatMul.
#include "onnx/pieces.h"
#include "onnx/window.h"

namespace tripod::importer {

namespace {

// A scale or zero point of x, stretched so that it broadcasts against x: one for all, one for each index of the axis,
// or one for each block along it.
ValueId against(const NodeContext& c, ValueId p, ValueId x, int64_t stated_axis, int64_t block) {
  if (p == kNoValue || c.rank(p) == 0) return p;
  const int rank = c.rank(x);
  if (c.rank(p) == 1 && c.dim(p, 0).is_const(1) && block == 0) return c.reshape(p, {});
  const int axis = rank == 1 ? 0 : c.axis(stated_axis, rank);
  if (block == 0) {
    if (c.rank(p) != 1) c.fail("scale and zero point must be scalars or vectors: " + c.text(p));
    require_dim(c, p, 0, c.dim(x, axis), "one scale and zero point for each index of the axis");
    return c.align(p, axis, rank);
  }
  if (c.rank(p) != rank) c.fail("a scale by blocks must have the rank of the input: " + c.text(p));
  for (int i = 0; i < rank; ++i) {
    require_dim(c, p, i, i == axis ? sym::ceildiv(c.dim(x, i), block) : c.dim(x, i), "one scale a block");
  }
  const Expr blocks = c.dim(p, axis);
  Shape split = c.shape(p), stretched, joined = c.shape(p);
  split.insert(split.begin() + axis + 1, c.expr(1));
  stretched = split;
  stretched[axis + 1] = c.expr(block);
  joined[axis] = blocks * block;
  const ValueId all = c.reshape(c.broadcast(c.reshape(p, split), stretched), joined);
  if (joined[axis] == c.dim(x, axis)) return all;
  return c.slice(all, axis, c.expr(0), c.dim(x, axis));  // the last block may be short
}

// 0 (UNDEFINED) is the default of these attributes.
DType optional_dtype(const NodeContext& c, std::string_view name) {
  return c.attr_int(name, 0) == 0 ? DType::none : c.attr_dtype(name);
}

DType wider(DType a, DType b) { return info(a).bits >= info(b).bits ? a : b; }

std::vector<ValueId> quantize_linear(NodeContext& c) {
  ValueId x = c.input(0), scale = c.input(1);
  const ValueId zero = c.optional_input(2);
  const int64_t axis = c.attr_int("axis", 1), block = c.attr_int("block_size", 0);
  if (block < 0) c.fail("attribute block_size is negative");
  graph::CastAttr a;
  a.to = zero != kNoValue ? c.dtype(zero) : DType::u8;
  const DType stated = optional_dtype(c, "output_dtype");
  if (stated != DType::none) {
    if (zero != kNoValue && stated != a.to) c.fail("attribute output_dtype differs from the type of the zero point");
    a.to = stated;
  }
  a.saturate = c.attr_bool("saturate", true);
  // The division is done in the type of the scale (or `precision`); an integer x is converted first.
  DType in = optional_dtype(c, "precision");
  if (in == DType::none) in = is_float(c.dtype(x)) ? wider(c.dtype(x), c.dtype(scale)) : c.dtype(scale);
  x = c.cast(x, in);
  scale = c.cast(scale, in);
  std::vector<ValueId> operands{x, against(c, scale, x, axis, block)};
  if (zero != kNoValue) operands.push_back(against(c, zero, x, axis, block));
  return {c.add(OpKind::quantize, operands, a)};
}

std::vector<ValueId> dequantize_linear(NodeContext& c) {
  const ValueId x = c.input(0), zero = c.optional_input(2);
  ValueId scale = c.input(1);
  const int64_t axis = c.attr_int("axis", 1), block = c.attr_int("block_size", 0);
  if (block < 0) c.fail("attribute block_size is negative");
  const DType stated = optional_dtype(c, "output_dtype");
  const DType result = stated == DType::none ? c.dtype(scale) : stated;
  scale = c.cast(scale, wider(result, c.dtype(scale)));
  std::vector<ValueId> operands{x, against(c, scale, x, axis, block)};
  if (zero != kNoValue) {
    if (c.dtype(zero) != c.dtype(x)) c.fail("input and zero point differ in type: " + c.text(x) + ", " + c.text(zero));
    operands.push_back(against(c, zero, x, axis, block));
  }
  const ValueId y = c.add(OpKind::dequantize, operands, graph::CastAttr{c.dtype(scale), true});
  return {c.cast(y, result)};
}

// u8 over the range of x widened to contain 0. Of an all-zero x ONNX says nothing; the scale is 1 as in ONNX Runtime.
std::vector<ValueId> dynamic_quantize_linear(NodeContext& c) {
  const ValueId x = c.input(0);
  if (!is_float(c.dtype(x))) c.fail("the input must be float: " + c.text(x));
  std::vector<int> all;
  for (int i = 0; i < c.rank(x); ++i) all.push_back(i);
  const graph::ReduceAttr a = reduce_attr(all, false);
  const ValueId zero = c.scalar_of(x, 0), top = c.scalar_of(x, 255);
  const ValueId high = c.add(OpKind::maximum, {c.add(OpKind::reduce_max, {x}, a), zero});
  const ValueId low = c.add(OpKind::minimum, {c.add(OpKind::reduce_min, {x}, a), zero});
  const ValueId range = c.add(OpKind::sub, {high, low});
  const ValueId scale =
      c.add(OpKind::where, {c.add(OpKind::equal, {range, zero}), c.scalar_of(x, 1), c.add(OpKind::div, {range, top})});
  const ValueId offset = c.add(OpKind::sub, {zero, c.add(OpKind::div, {low, scale})});
  const ValueId rounded = c.add(OpKind::round, {c.add(OpKind::clip, {offset, zero, top})});
  const ValueId zero_point = c.cast(rounded, DType::u8);
  return {c.add(OpKind::quantize, {x, scale, zero_point}, graph::CastAttr{DType::u8, true}), scale, zero_point};
}

// round(sum * multiplier) + zero point, saturated: in f32, rounded half to even before the zero point is added.
ValueId requantise(const NodeContext& c, ValueId sum, ValueId multiplier, ValueId zero) {
  const ValueId real = c.add(OpKind::mul, {c.cast(sum, DType::f32), multiplier});
  return c.add(OpKind::quantize, {real, c.scalar(DType::f32, 1), zero}, graph::CastAttr{c.dtype(zero), true});
}

std::vector<ValueId> qlinear_matmul(NodeContext& c) {
  const ValueId a = c.input(0), b = c.input(3);
  const auto scale = [&](int input, bool rows) {
    const ValueId s = c.cast(c.input(input), DType::f32);
    return rows ? per_row(c, s, a) : s;
  };
  const ValueId sum = c.add(OpKind::matmul_integer, {a, b, per_row(c, c.input(2), a), c.input(5)});
  const ValueId product = c.add(OpKind::mul, {scale(1, true), scale(4, false)});
  const ValueId multiplier = c.add(OpKind::div, {product, scale(6, true)});
  return {requantise(c, sum, multiplier, per_row(c, c.input(7), a))};
}

std::vector<ValueId> qlinear_conv(NodeContext& c) {
  ValueId x = c.input(0);
  const ValueId w = c.input(3);
  c.need_min_rank(0, 3);
  if (c.rank(w) != c.rank(x)) c.fail("input and weight differ in rank: " + c.text(x) + ", " + c.text(w));
  const Window window = read_window(c, x, {c.shape(w).begin() + 2, c.shape(w).end()});
  const ValueId x_zero = c.reshape(c.input(2), {});
  const int64_t group = c.attr_int("group", 1);
  if (group < 1) c.fail("attribute group must be positive");
  x = padded(c, x, window, x_zero);
  ValueId sum = c.add(OpKind::conv_integer, {x, w, x_zero, c.input(5)},
                      graph::ConvAttr{window.strides, window.dilations, window.pads_begin, window.pads_end, {}, group});
  if (c.has_input(8)) sum = c.add(OpKind::add, {sum, c.align(c.input(8), 1, c.rank(x))});
  ValueId w_scale = c.input(4);
  if (c.rank(w_scale) == 1)
    w_scale = c.dim(w_scale, 0).is_const(1) ? c.reshape(w_scale, {}) : c.align(w_scale, 1, c.rank(x));
  const ValueId product = c.add(OpKind::mul, {c.reshape(c.input(1), {}), w_scale});
  const ValueId multiplier = c.add(OpKind::div, {product, c.reshape(c.input(6), {})});
  return {requantise(c, sum, multiplier, c.reshape(c.input(7), {}))};
}

constexpr Row kRows[] = {
    {"QuantizeLinear", 10, kMaxOpset, 2, 3, quantize_linear},
    {"DequantizeLinear", 10, kMaxOpset, 2, 3, dequantize_linear},
    {"DynamicQuantizeLinear", 11, kMaxOpset, 1, 1, dynamic_quantize_linear},
    {"QLinearMatMul", 10, kMaxOpset, 8, 8, qlinear_matmul},
    {"QLinearConv", 10, kMaxOpset, 8, 9, qlinear_conv},
};

}  // namespace

std::span<const Row> quantize_rows() { return kRows; }

}  // namespace tripod::importer
