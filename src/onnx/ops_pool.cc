// MaxPool, AveragePool, LpPool, and their Global forms, which are reductions.
#include <limits>

#include "onnx/pieces.h"
#include "onnx/window.h"

namespace tripod::importer {

namespace {

struct Pool {
  ValueId x;
  Window window;
  graph::PoolAttr attr;
};

Pool read_pool(NodeContext& c) {
  Pool p;
  p.x = c.input(0);
  c.need_min_rank(0, 3);
  const int spatial = c.rank(p.x) - 2;
  if (!c.has("kernel_shape")) c.fail("attribute \"kernel_shape\" is missing");
  p.attr.kernel = spatial_ints(c, "kernel_shape", spatial, 1, 1);
  std::vector<Expr> kernel;
  for (int64_t k : p.attr.kernel) kernel.push_back(c.expr(k));
  p.window = read_window(c, p.x, kernel);
  p.attr.strides = p.window.strides;
  p.attr.dilations = p.window.dilations;
  p.attr.pads_begin = p.window.pads_begin;
  p.attr.pads_end = p.window.pads_end;
  // With auto_pad both formulas of the specification come to the floor of the explicit one.
  p.attr.ceil_mode = c.attr_bool("ceil_mode", false) && !p.window.automatic;
  return p;
}

ValueId lowest(const NodeContext& c, DType t) {
  if (is_float(t)) return c.scalar(t, -std::numeric_limits<double>::infinity());
  return c.int_scalar(t, is_signed(t) ? -(int64_t{1} << (info(t).bits - 1)) : 0);
}

std::vector<ValueId> max_pool(NodeContext& c) {
  Pool p = read_pool(c);
  p.attr.column_major_indices = c.attr_int("storage_order", 0) != 0;
  if (!p.window.before.empty() && c.wants_output(1)) {
    c.fail("Indices with auto_pad = SAME_* over free dims are not supported", "fix the spatial dims with --dim");
  }
  const ValueId x = padded(c, p.x, p.window, lowest(c, c.dtype(p.x)));
  return add_all(c, OpKind::max_pool, {x}, p.attr);
}

std::vector<ValueId> average_pool(NodeContext& c) {
  Pool p = read_pool(c);
  const bool count_padding = c.attr_bool("count_include_pad", false);
  p.attr.count_include_pad = count_padding;
  if (p.window.before.empty()) return {c.add(OpKind::average_pool, {p.x}, p.attr)};
  // The padding is only known at run time: what it adds to the divisor is divided out by the pool of ones.
  p.attr.count_include_pad = true;
  const ValueId zero = c.scalar_of(p.x, 0);
  const ValueId sum = c.add(OpKind::average_pool, {padded(c, p.x, p.window, zero)}, p.attr);
  if (count_padding) return {sum};
  Shape one_image{c.expr(1), c.expr(1)};
  one_image.insert(one_image.end(), c.shape(p.x).begin() + 2, c.shape(p.x).end());
  const ValueId ones = c.broadcast(c.scalar_of(p.x, 1), one_image);
  const ValueId share = c.add(OpKind::average_pool, {padded(c, ones, p.window, zero)}, p.attr);
  return {c.add(OpKind::div, {sum, share})};
}

int64_t norm_order(NodeContext& c) {
  const int64_t p = c.attr_int("p", 2);
  if (p < 1) c.fail("attribute p is " + std::to_string(p) + "; it must be positive");
  return p;
}

std::vector<ValueId> lp_pool(NodeContext& c) {
  Pool p = read_pool(c);
  p.attr.p = norm_order(c);
  return {c.add(OpKind::lp_pool, {padded(c, p.x, p.window, c.scalar_of(p.x, 0))}, p.attr)};
}

graph::ReduceAttr spatial_axes(NodeContext& c) {
  c.need_min_rank(0, 2);
  graph::ReduceAttr a;
  for (int i = 2; i < c.rank(c.input(0)); ++i) a.axes.push_back(i);
  return a;
}

std::vector<ValueId> global_pool(NodeContext& c) { return {c.add(c.row.kind, {c.input(0)}, spatial_axes(c))}; }

std::vector<ValueId> global_lp_pool(NodeContext& c) { return {lp_norm(c, c.input(0), norm_order(c), spatial_axes(c))}; }

constexpr Row kRows[] = {
    {"MaxPool", 1, kMaxOpset, 1, 1, max_pool},
    {"AveragePool", 1, kMaxOpset, 1, 1, average_pool},
    {"LpPool", 2, kMaxOpset, 1, 1, lp_pool},
    {"GlobalAveragePool", 1, kMaxOpset, 1, 1, global_pool, OpKind::reduce_mean},
    {"GlobalMaxPool", 1, kMaxOpset, 1, 1, global_pool, OpKind::reduce_max},
    {"GlobalLpPool", 2, kMaxOpset, 1, 1, global_lp_pool},
};

}  // namespace

std::span<const Row> pool_rows() { return kRows; }

}  // namespace tripod::importer
