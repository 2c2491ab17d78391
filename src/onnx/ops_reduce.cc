// Reduce*, ArgMax, ArgMin.
//
// An operator is a body over static axes. Axes that only the run knows are brought to that case by a view of the input
// as a matrix [kept, reduced] (dynamic_axes.h).
#include "onnx/dynamic_axes.h"
#include "onnx/pieces.h"

namespace tripod::importer {

namespace {

using graph::ReduceAttr;
using Body = ValueId (*)(const NodeContext&, ValueId x, const ReduceAttr&);

ValueId plain(const NodeContext& c, ValueId x, const ReduceAttr& a) {
  const DType t = c.dtype(x);
  if (t != DType::b1) return c.add(c.row.kind, {x}, a);
  return c.cast(c.add(c.row.kind, {c.cast(x, DType::u8)}, a), t);  // max is or, min is and
}

ValueId l1(const NodeContext& c, ValueId x, const ReduceAttr& a) { return lp_norm(c, x, 1, a); }
ValueId l2(const NodeContext& c, ValueId x, const ReduceAttr& a) { return lp_norm(c, x, 2, a); }

ValueId sum_square(const NodeContext& c, ValueId x, const ReduceAttr& a) {
  return c.add(OpKind::reduce_sum, {c.add(OpKind::mul, {x, x})}, a);
}

ValueId log_sum(const NodeContext& c, ValueId x, const ReduceAttr& a) {
  return c.add(OpKind::log, {c.add(OpKind::reduce_sum, {x}, a)});
}

// log(sum(exp(x - m))) + m with m the maximum, or 0 where that is infinite (a row of -inf only, or one with +inf).
ValueId log_sum_exp(const NodeContext& c, ValueId x, const ReduceAttr& a) {
  ReduceAttr keep = a;
  keep.keep_dims = true;
  const ValueId offset = zero_if_infinite(c, c.add(OpKind::reduce_max, {x}, keep));
  const ValueId powers = c.add(OpKind::exp, {c.add(OpKind::sub, {x, offset})});
  const ValueId log = c.add(OpKind::log, {c.add(OpKind::reduce_sum, {powers}, a)});
  return c.add(OpKind::add, {log, a.keep_dims ? offset : c.reshape(offset, c.shape(log))});
}

// Integer tensors go through f64 where the body needs a float (sqrt, log, exp).
ValueId in_floats(const NodeContext& c, Body body, ValueId x, const ReduceAttr& a) {
  const DType t = c.dtype(x);
  if (is_float(t)) return body(c, x, a);
  return c.cast(body(c, c.cast(x, DType::f64), a), t);
}

std::vector<int> all_axes(int rank) {
  std::vector<int> r(rank);
  for (int i = 0; i < rank; ++i) r[i] = i;
  return r;
}

// Where axes are an input: from this opset on.
int axes_input_since(const NodeContext& c) { return c.row.kind == OpKind::reduce_sum ? 13 : 18; }

template <Body body, bool needs_float>
std::vector<ValueId> reduce(NodeContext& c) {
  const ValueId x = c.input(0);
  const int rank = c.rank(x);
  const bool keep = c.attr_bool("keepdims", true);
  const bool noop = c.attr_bool("noop_with_empty_axes", false);
  const auto apply = [&](ValueId v, const ReduceAttr& a) {
    return needs_float ? in_floats(c, body, v, a) : body(c, v, a);
  };
  std::optional<Ints> stated;
  if (c.opset < axes_input_since(c)) {
    stated = c.attr_ints("axes", {});
  } else if (!c.has_input(1)) {
    stated = Ints{};
  } else {
    c.need_integer(1);
    if (c.rank(c.input(1)) > 1) c.need_rank(1, 1);
    stated = c.ints(c.input(1));
    // None, or all dims of the input: which ones is no question.
    const Expr count = c.rank(c.input(1)) == 0 ? c.expr(1) : c.dim(c.input(1), 0);
    if (!stated && count.is_const(0)) stated = Ints{};
  }
  if (stated) {
    std::vector<int> axes = c.axes(*stated, rank);
    if (axes.empty() && !noop) axes = all_axes(rank);
    return {apply(x, reduce_attr(axes, keep))};
  }
  const DynamicAxes d = dynamic_axes(c, x, c.input(1), noop);
  const ValueId y = apply(as_matrix(c, x, d), reduce_attr({1}, false));
  return {c.reshape(y, keep ? d.kept_dims : remaining_dims(c, d))};
}

std::vector<ValueId> arg(NodeContext& c) {
  c.need_min_rank(0, 1);
  ReduceAttr a;
  a.axes = {c.axis(c.attr_int("axis", 0), c.rank(c.input(0)))};
  a.keep_dims = c.attr_bool("keepdims", true);
  a.last_index = c.attr_bool("select_last_index", false);
  // Of no elements there is no index; of an empty result none is asked for.
  Expr defined = sym::ge(c.dim(c.input(0), a.axes[0]), 1);
  for (int i = 0; i < c.rank(c.input(0)); ++i)
    if (i != a.axes[0]) defined = sym::logical_or(defined, sym::eq(c.dim(c.input(0), i), 0));
  graph::require(c.g, defined, "dim " + std::to_string(a.axes[0]) + " is empty: none of its elements has an index");
  return {c.add(c.row.kind, {c.input(0)}, a)};
}

constexpr Row kRows[] = {
    // The second input: axes, from opset 13 (ReduceSum) or 18. Composite rows name reduce_mean for "18".
    {"ReduceSum", 1, 12, 1, 1, reduce<plain, false>, OpKind::reduce_sum},
    {"ReduceSum", 13, kMaxOpset, 1, 2, reduce<plain, false>, OpKind::reduce_sum},
    {"ReduceMean", 1, 17, 1, 1, reduce<plain, false>, OpKind::reduce_mean},
    {"ReduceMean", 18, kMaxOpset, 1, 2, reduce<plain, false>, OpKind::reduce_mean},
    {"ReduceMax", 1, 17, 1, 1, reduce<plain, false>, OpKind::reduce_max},
    {"ReduceMax", 18, kMaxOpset, 1, 2, reduce<plain, false>, OpKind::reduce_max},
    {"ReduceMin", 1, 17, 1, 1, reduce<plain, false>, OpKind::reduce_min},
    {"ReduceMin", 18, kMaxOpset, 1, 2, reduce<plain, false>, OpKind::reduce_min},
    {"ReduceProd", 1, 17, 1, 1, reduce<plain, false>, OpKind::reduce_prod},
    {"ReduceProd", 18, kMaxOpset, 1, 2, reduce<plain, false>, OpKind::reduce_prod},
    {"ReduceL1", 1, 17, 1, 1, reduce<l1, false>, OpKind::reduce_mean},
    {"ReduceL1", 18, kMaxOpset, 1, 2, reduce<l1, false>, OpKind::reduce_mean},
    {"ReduceL2", 1, 17, 1, 1, reduce<l2, true>, OpKind::reduce_mean},
    {"ReduceL2", 18, kMaxOpset, 1, 2, reduce<l2, true>, OpKind::reduce_mean},
    {"ReduceSumSquare", 1, 17, 1, 1, reduce<sum_square, false>, OpKind::reduce_mean},
    {"ReduceSumSquare", 18, kMaxOpset, 1, 2, reduce<sum_square, false>, OpKind::reduce_mean},
    {"ReduceLogSum", 1, 17, 1, 1, reduce<log_sum, true>, OpKind::reduce_mean},
    {"ReduceLogSum", 18, kMaxOpset, 1, 2, reduce<log_sum, true>, OpKind::reduce_mean},
    {"ReduceLogSumExp", 1, 17, 1, 1, reduce<log_sum_exp, true>, OpKind::reduce_mean},
    {"ReduceLogSumExp", 18, kMaxOpset, 1, 2, reduce<log_sum_exp, true>, OpKind::reduce_mean},
    {"ArgMax", 1, kMaxOpset, 1, 1, arg, OpKind::arg_max},
    {"ArgMin", 1, kMaxOpset, 1, 1, arg, OpKind::arg_min},
};

}  // namespace

std::span<const Row> reduce_rows() { return kRows; }

}  // namespace tripod::importer
