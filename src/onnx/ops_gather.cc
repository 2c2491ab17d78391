// Operators that pick or place elements by index.
#include "onnx/op_importer.h"

namespace tripod::importer {
namespace {
using graph::AxisAttr;

AxisAttr on_axis(NodeContext& c, int64_t otherwise = 0) {
  AxisAttr a;
  a.axis = c.axis(c.attr_int("axis", otherwise), c.rank(c.input(0)));
  return a;
}

std::vector<ValueId> gather(NodeContext& c) {
  c.need_integer(1);
  return {c.add(c.row.kind, {c.input(0), c.input(1)}, on_axis(c))};
}

std::vector<ValueId> gather_nd(NodeContext& c) {
  c.need_integer(1);
  AxisAttr a;
  a.value = c.opset < 12 ? 0 : c.attr_int("batch_dims", 0);
  if (a.value < 0 || a.value >= std::max(1, std::min(c.rank(c.input(0)), c.rank(c.input(1)))))
    c.fail("batch_dims " + std::to_string(a.value) + " is out of range");
  return {c.add(OpKind::gather_nd, {c.input(0), c.input(1)}, std::move(a))};
}

std::string reduction(NodeContext& c) {
  if (c.opset < 16) return "none";
  if (c.opset < 18) return c.attr_choice("reduction", "none", {"none", "add", "mul"});
  return c.attr_choice("reduction", "none", {"none", "add", "mul", "max", "min"});
}

std::vector<ValueId> scatter_elements(NodeContext& c) {
  c.need_integer(1);
  c.need_same_dtype(0, 2);
  AxisAttr a = on_axis(c);
  a.text = c.row.op == "Scatter" ? "none" : reduction(c);
  return {c.add(OpKind::scatter_elements, {c.input(0), c.input(1), c.input(2)}, std::move(a))};
}

std::vector<ValueId> scatter_nd(NodeContext& c) {
  c.need_integer(1);
  c.need_same_dtype(0, 2);
  AxisAttr a;
  a.text = reduction(c);
  return {c.add(OpKind::scatter_nd, {c.input(0), c.input(1), c.input(2)}, std::move(a))};
}

std::vector<ValueId> one_hot(NodeContext& c) {
  const ValueId indices = c.cast(c.input(0), DType::i64);  // may be floats
  const Expr depth = c.dims_scalar(c.cast(c.input(1), DType::i64));
  const ValueId values = c.input(2);
  c.need_rank(2, 1);
  if (c.dim(values, 0).is_const() && !c.dim(values, 0).is_const(2))
    c.fail("the values must be two, for off and on: " + c.text(values));
  graph::require(c.g, sym::eq(c.dim(values, 0), 2), "the values must be two, for off and on");
  const int rank = c.rank(indices) + 1;
  AxisAttr a;
  a.axis = c.axis(c.attr_int("axis", -1), rank);
  Type t = Type::make(c.dtype(values), c.shape(indices));
  t.shape.insert(t.shape.begin() + a.axis, depth);
  const auto value = [&](int i) { return c.reshape(c.slice(values, 0, c.expr(i), c.expr(1)), {}); };
  const ValueId off = value(0), on = value(1);
  return {c.g.add_given(OpKind::one_hot, {indices, off, on}, std::move(a), std::move(t))};
}

std::vector<ValueId> trilu(NodeContext& c) {
  const ValueId x = c.input(0);
  c.need_min_rank(0, 2);
  AxisAttr a;
  a.flag_a = c.attr_bool("upper", true);
  if (!c.has_input(1)) return {c.add(OpKind::trilu, {x}, std::move(a))};
  if (const auto k = c.ints(c.input(1)); k && k->size() == 1) {
    a.value = (*k)[0];
    return {c.add(OpKind::trilu, {x}, std::move(a))};
  }
  return {c.add(OpKind::trilu, {x, c.reshape(c.input(1), {})}, std::move(a))};
}

std::vector<ValueId> reverse_sequence(NodeContext& c) {
  c.need_min_rank(0, 2);
  const int rank = c.rank(c.input(0));
  AxisAttr a;
  a.axis = c.axis(c.attr_int("time_axis", 0), rank, "time_axis");
  a.value = c.axis(c.attr_int("batch_axis", 1), rank, "batch_axis");
  if (a.axis == a.value) c.fail("time_axis and batch_axis must differ, both are " + std::to_string(a.axis));
  return {c.add(OpKind::reverse_sequence, {c.input(0), c.input(1)}, std::move(a))};
}

std::vector<ValueId> compress(NodeContext& c) {
  ValueId x = c.input(0);
  c.need_rank(1, 1);
  const bool flat = !c.has("axis");
  const int axis = flat ? 0 : on_axis(c).axis;
  if (flat) x = c.reshape(x, {graph::element_count(c.sym(), c.shape(x))});
  const sym::Range most = sym::bounds(sym::min(c.dim(x, axis), c.dim(c.input(1), 0)));
  const Expr count = c.new_data_symbol("compressed", {0, std::min(most.hi, c.kDimRange.hi)});
  Type t = c.type(x);
  t.shape[axis] = count;
  return {c.g.add_given(OpKind::compress, {x, c.input(1)}, graph::ExprsAttr{{count, c.expr(axis)}},
                        Type::make(t.dtype, t.shape))};
}

const Row kRows[] = {
    {"Gather", 6, kMaxOpset, 2, 2, gather, OpKind::gather},
    {"GatherElements", 11, kMaxOpset, 2, 2, gather, OpKind::gather_elements},
    {"GatherND", 11, kMaxOpset, 2, 2, gather_nd, OpKind::gather_nd},
    {"Scatter", 9, 10, 3, 3, scatter_elements, OpKind::scatter_elements},
    {"ScatterElements", 11, kMaxOpset, 3, 3, scatter_elements, OpKind::scatter_elements},
    {"ScatterND", 11, kMaxOpset, 3, 3, scatter_nd, OpKind::scatter_nd},
    {"OneHot", 9, kMaxOpset, 3, 3, one_hot, OpKind::one_hot},
    {"Trilu", 14, kMaxOpset, 1, 2, trilu, OpKind::trilu},
    {"ReverseSequence", 10, kMaxOpset, 2, 2, reverse_sequence, OpKind::reverse_sequence},
    {"Compress", 9, kMaxOpset, 2, 2, compress, OpKind::compress},
};

}  // namespace

std::span<const Row> gather_rows() { return kRows; }

}  // namespace tripod::importer
