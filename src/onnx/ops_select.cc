// Operators whose results the runtime finds: TopK, CumSum, CumProd, NonZero, NonMaxSuppression, Unique.
#include <limits>

#include "onnx/dynamic_axes.h"
#include "onnx/pieces.h"

namespace tripod::importer {

namespace {

std::vector<ValueId> topk(NodeContext& c) {
  c.need_min_rank(0, 1);
  const ValueId x = c.input(0);
  graph::AxisAttr a;
  a.axis = c.axis(c.attr_int("axis", -1), c.rank(x));
  a.flag_a = c.attr_bool("largest", true);
  a.flag_b = c.attr_bool("sorted", true);
  const Expr k = c.opset < 10 ? c.expr(c.attr_int("k")) : c.dims_scalar(c.reshape(c.input(1), {}));
  if (k.is_const() && k.value() < 0) c.fail("k is " + std::to_string(k.value()));
  Shape shape = c.shape(x);
  shape[a.axis] = k;
  const graph::NodeId n =
      c.g.add_node(OpKind::topk, {x}, a, {Type::make(c.dtype(x), shape), Type::make(DType::i64, shape)});
  return c.g.node(n).results;
}

std::vector<ValueId> cumulate(NodeContext& c) {
  c.need_min_rank(0, 1);
  const ValueId x = c.input(0), axis = c.input(1);
  graph::AxisAttr a;
  a.flag_a = c.attr_bool("exclusive", false);
  a.flag_b = c.attr_bool("reverse", false);
  if (const auto known = c.ints(axis)) {
    if (known->size() != 1) c.fail("axis must be one number: " + c.text(axis));
    a.axis = c.axis((*known)[0], c.rank(x));
    return {c.add(c.row.kind, {x}, a)};
  }
  if (c.rank(x) == 1) return {c.add(c.row.kind, {x}, a)};  // there is only one
  const Shape shape = c.shape(x);
  const DynamicAxes d = dynamic_axes(c, x, axis, false);
  a.axis = 1;
  return {from_matrix(c, c.add(c.row.kind, {as_matrix(c, x, d)}, a), shape, d)};
}

// A count that the operator finds, between `least` and `most` where that is bounded.
Expr count_symbol(const NodeContext& c, std::string_view name, int64_t least, Expr most) {
  const int64_t hi = sym::bounds(most).hi;
  return c.new_data_symbol(name, {least, hi == sym::Range::kMax ? NodeContext::kDimRange.hi : hi});
}

std::vector<ValueId> nonzero(NodeContext& c) {
  ValueId x = c.input(0);
  if (c.rank(x) == 0) x = c.reshape(x, {c.expr(1)});  // as ONNX Runtime: a scalar is a vector of one
  const Expr count = count_symbol(c, "nonzero", 0, graph::element_count(c.sym(), c.shape(x)));
  return {c.g.add_given(OpKind::nonzero, {x}, graph::ExprsAttr{{count}},
                        Type::make(DType::i64, {c.expr(c.rank(x)), count}))};
}

std::vector<ValueId> non_max_suppression(NodeContext& c) {
  c.need_rank(0, 3);
  c.need_rank(1, 3);
  const ValueId boxes = c.input(0), scores = c.input(1);
  require_dim(c, boxes, 2, c.expr(4), "a box has four coordinates");
  require_dim(c, scores, 0, c.dim(boxes, 0), "boxes and scores must have the same batch");
  require_dim(c, scores, 2, c.dim(boxes, 1), "one score a box");
  const int64_t center = c.attr_int("center_point_box", 0);
  if (center != 0 && center != 1) c.fail("attribute center_point_box must be 0 or 1");
  std::vector<ValueId> operands{boxes, scores};
  for (int i = 2; i < c.num_inputs(); ++i) operands.push_back(c.optional_input(i));
  const Expr count = count_symbol(c, "selected", 0, graph::element_count(c.sym(), c.shape(scores)));
  return {c.g.add_given(OpKind::non_max_suppression, operands, graph::ExprsAttr{{count, c.expr(center)}},
                        Type::make(DType::i64, {count, c.expr(3)}))};
}

std::vector<ValueId> unique(NodeContext& c) {
  const ValueId x = c.input(0);
  const bool sorted = c.attr_bool("sorted", true);
  const bool flat = !c.has("axis");
  const int axis = flat ? -1 : c.axis(c.attr_int("axis"), c.rank(x));
  const Expr items = flat ? graph::element_count(c.sym(), c.shape(x)) : c.dim(x, axis);
  const Expr count = count_symbol(c, "unique", sym::bounds(items).lo > 0 ? 1 : 0, items);
  Shape shape = flat ? Shape{count} : c.shape(x);
  if (!flat) shape[axis] = count;
  const Type list = Type::make(DType::i64, {count});
  const graph::NodeId n = c.g.add_node(OpKind::unique, {x}, graph::ExprsAttr{{count, c.expr(axis), c.expr(sorted)}},
                                       {Type::make(c.dtype(x), shape), list, Type::make(DType::i64, {items}), list});
  return c.g.node(n).results;
}

constexpr Row kRows[] = {
    {"TopK", 1, 9, 1, 1, topk},
    {"TopK", 10, kMaxOpset, 2, 2, topk},
    {"CumSum", 11, kMaxOpset, 2, 2, cumulate, OpKind::cumsum},
    {"CumProd", 26, kMaxOpset, 2, 2, cumulate, OpKind::cumprod},
    {"NonZero", 9, kMaxOpset, 1, 1, nonzero},
    {"NonMaxSuppression", 10, kMaxOpset, 2, 5, non_max_suppression},
    {"Unique", 11, kMaxOpset, 1, 1, unique},
};

}  // namespace

std::span<const Row> select_rows() { return kRows; }

}  // namespace tripod::importer
