// Softmax, LogSoftmax, Hardmax.
#include "onnx/pieces.h"

namespace tripod::importer {

namespace {

// 1 where the largest element of the axis is (the first of equal ones), else 0.
ValueId hardmax(const NodeContext& c, ValueId x, int axis) {
  const ValueId where = c.add(OpKind::arg_max, {x}, reduce_attr({axis}, false));
  graph::AxisAttr a;
  a.axis = axis;
  return c.g.add_given(OpKind::one_hot, {where, c.scalar_of(x, 0), c.scalar_of(x, 1)}, a,
                       Type::make(c.dtype(x), c.shape(x)));
}

ValueId along(const NodeContext& c, ValueId x, int axis) {
  if (c.row.kind == OpKind::one_hot) return hardmax(c, x, axis);
  graph::AxisAttr a;
  a.axis = axis;
  return c.add(c.row.kind, {x}, a);
}

std::vector<ValueId> softmax(NodeContext& c) {
  c.need_float(0);
  c.need_min_rank(0, 1);
  const ValueId x = c.input(0);
  return {along(c, x, c.axis(c.attr_int("axis", -1), c.rank(x)))};
}

// To opset 12: over all axes from `axis` on, taken as one.
std::vector<ValueId> softmax_flattened(NodeContext& c) {
  c.need_float(0);
  c.need_min_rank(0, 1);
  const ValueId x = c.input(0);
  const int rank = c.rank(x);
  int64_t stated = c.attr_int("axis", 1);
  if (rank == 1 && !c.has("axis")) stated = 0;
  const int axis = stated == rank ? rank : c.axis(stated, rank);
  if (axis == rank - 1) return {along(c, x, axis)};
  const Shape flat{dims_product(c, x, 0, axis), dims_product(c, x, axis, rank)};
  return {c.reshape(along(c, c.reshape(x, flat), 1), c.shape(x))};
}

constexpr Row kRows[] = {
    {"Softmax", 1, 12, 1, 1, softmax_flattened, OpKind::softmax},
    {"Softmax", 13, kMaxOpset, 1, 1, softmax, OpKind::softmax},
    {"LogSoftmax", 1, 12, 1, 1, softmax_flattened, OpKind::log_softmax},
    {"LogSoftmax", 13, kMaxOpset, 1, 1, softmax, OpKind::log_softmax},
    {"Hardmax", 1, 12, 1, 1, softmax_flattened, OpKind::one_hot},
    {"Hardmax", 13, kMaxOpset, 1, 1, softmax, OpKind::one_hot},
};

}  // namespace

std::span<const Row> softmax_rows() { return kRows; }

}  // namespace tripod::importer
