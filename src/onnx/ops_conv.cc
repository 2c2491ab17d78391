// Conv, ConvTranspose, ConvInteger. (QLinearConv is in ops_quantize.cc.)
#include "onnx/window.h"

namespace tripod::importer {

namespace {

// The spatial dims of the weight, checked against kernel_shape, which only repeats them.
std::vector<Expr> kernel_of(const NodeContext& c, ValueId x, ValueId w) {
  if (c.rank(x) < 3) c.fail("the input must have at least 3 dims (N, C, and one spatial): " + c.text(x));
  if (c.rank(w) != c.rank(x)) c.fail("input and weight differ in rank: " + c.text(x) + ", " + c.text(w));
  const std::vector<Expr> kernel(c.shape(w).begin() + 2, c.shape(w).end());
  const Ints stated = c.attr_ints("kernel_shape", {});
  if (stated.empty()) return kernel;
  bool fits = stated.size() == kernel.size();
  for (size_t i = 0; fits && i < kernel.size(); ++i) fits = !kernel[i].is_const() || kernel[i].is_const(stated[i]);
  if (!fits) c.fail("attribute kernel_shape does not agree with the weight: " + c.text(w));
  return kernel;
}

int64_t group_of(const NodeContext& c) {
  const int64_t group = c.attr_int("group", 1);
  if (group < 1) c.fail("attribute group is " + std::to_string(group) + "; it must be positive");
  return group;
}

graph::ConvAttr conv_attr(const NodeContext& c, const Window& w) {
  return {w.strides, w.dilations, w.pads_begin, w.pads_end, {}, group_of(c)};
}

std::vector<ValueId> conv(NodeContext& c) {
  c.need_same_dtype(0, 1);
  ValueId x = c.input(0);
  const ValueId w = c.input(1);
  const Window window = read_window(c, x, kernel_of(c, x, w));
  x = padded(c, x, window, c.scalar_of(x, 0));
  std::vector<ValueId> operands{x, w};
  if (c.has_input(2)) operands.push_back(c.input(2));
  return {c.add(OpKind::conv, operands, conv_attr(c, window))};
}

std::vector<ValueId> conv_integer(NodeContext& c) {
  ValueId x = c.input(0);
  const ValueId w = c.input(1);
  const Window window = read_window(c, x, kernel_of(c, x, w));
  ValueId x_zero = c.optional_input(2);
  if (x_zero != kNoValue) x_zero = c.reshape(x_zero, {});
  x = padded(c, x, window, x_zero != kNoValue ? x_zero : c.int_scalar(c.dtype(x), 0));
  return {c.add(OpKind::conv_integer, {x, w, x_zero, c.optional_input(3)}, conv_attr(c, window))};
}

// How much of the full result (stride * (in - 1) + extent) ConvTranspose leaves away at each side. A negative rest is
// added at the end, which is what output_padding does.
struct Crop {
  std::vector<Expr> before, after;
  bool is_const = true;
};

Crop transpose_crop(const NodeContext& c, ValueId x, const std::vector<Expr>& kernel, graph::ConvAttr& a) {
  const int spatial = static_cast<int>(kernel.size());
  const std::string mode = c.attr_choice("auto_pad", "NOTSET", {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"});
  Ints wanted = c.attr_ints("output_shape", {});
  // Some exporters put N and C in front.
  if (static_cast<int>(wanted.size()) == spatial + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);
  if (!wanted.empty() && static_cast<int>(wanted.size()) != spatial) {
    c.fail("attribute output_shape has " + std::to_string(wanted.size()) + " entries for " + std::to_string(spatial) +
           " spatial dims");
  }
  Crop crop;
  if (wanted.empty() && (mode == "NOTSET" || mode == "VALID")) {
    const Ints pads = mode == "VALID" ? Ints(2 * spatial, 0) : spatial_ints(c, "pads", 2 * spatial, 0, 0);
    for (int i = 0; i < spatial; ++i) {
      crop.before.push_back(c.expr(pads[i]));
      crop.after.push_back(c.expr(pads[i + spatial]));
    }
    return crop;
  }
  for (int i = 0; i < spatial; ++i) {
    const Expr in = c.dim(x, i + 2);
    const Expr result = wanted.empty() ? in * a.strides[i] : c.expr(wanted[i]);
    const Expr full = (in - 1) * a.strides[i] + (kernel[i] - 1) * a.dilations[i] + 1;
    const Expr total = full + a.output_padding[i] - result;
    const Expr cut = sym::max(total, 0), less = sym::floordiv(cut, 2);
    crop.before.push_back(mode == "SAME_UPPER" ? less : cut - less);
    crop.after.push_back(total - crop.before.back());
    crop.is_const = crop.is_const && total.is_const();
  }
  return crop;
}

std::vector<ValueId> conv_transpose(NodeContext& c) {
  c.need_same_dtype(0, 1);
  const ValueId x = c.input(0), w = c.input(1);
  const std::vector<Expr> kernel = kernel_of(c, x, w);
  const int spatial = static_cast<int>(kernel.size());
  graph::ConvAttr a;
  a.strides = spatial_ints(c, "strides", spatial, 1, 1);
  a.dilations = spatial_ints(c, "dilations", spatial, 1, 1);
  a.output_padding = spatial_ints(c, "output_padding", spatial, 0, 0);
  a.pads_begin.assign(spatial, 0);
  a.pads_end.assign(spatial, 0);
  a.group = group_of(c);
  const Crop crop = transpose_crop(c, x, kernel, a);
  std::vector<ValueId> operands{x, w};
  if (c.has_input(2)) operands.push_back(c.input(2));

  if (crop.is_const) {
    for (int i = 0; i < spatial; ++i) {
      a.pads_begin[i] = crop.before[i].value();
      const int64_t after = crop.after[i].value();
      a.pads_end[i] = std::max<int64_t>(after, 0);
      a.output_padding[i] += std::max<int64_t>(-after, 0);
    }
    return {c.add(OpKind::conv_transpose, operands, a)};
  }
  // The crop depends on the run (output_shape over free dims): the whole result, then a slice of it.
  ValueId y = c.add(OpKind::conv_transpose, operands, a);
  for (int i = 0; i < spatial; ++i) {
    if (sym::prove(sym::ge(crop.after[i], 0)) == sym::Truth::no) {
      c.fail("output_shape is larger than what the input gives", "use output_padding");
    }
    y = c.slice(y, i + 2, crop.before[i], c.dim(y, i + 2) - crop.before[i] - crop.after[i]);
  }
  return {y};
}

constexpr Row kRows[] = {
    {"Conv", 1, kMaxOpset, 2, 3, conv},
    {"ConvTranspose", 1, kMaxOpset, 2, 3, conv_transpose},
    {"ConvInteger", 10, kMaxOpset, 2, 4, conv_integer},
};

}  // namespace

std::span<const Row> conv_rows() { return kRows; }

}  // namespace tripod::importer
