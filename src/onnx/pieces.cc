#include "onnx/pieces.h"

#include <algorithm>

namespace tripod::importer {

ValueId lp_norm(const NodeContext& c, ValueId x, int64_t p, const graph::ReduceAttr& axes) {
  if (p == 1) return c.add(OpKind::reduce_sum, {c.add(OpKind::abs, {x})}, axes);
  if (p == 2) return c.add(OpKind::sqrt, {c.add(OpKind::reduce_sum, {c.add(OpKind::mul, {x, x})}, axes)});
  const ValueId powers = c.add(OpKind::pow, {c.add(OpKind::abs, {x}), c.scalar_of(x, static_cast<double>(p))});
  const ValueId sum = c.add(OpKind::reduce_sum, {powers}, axes);
  return c.add(OpKind::pow, {sum, c.scalar_of(x, 1.0 / static_cast<double>(p))});
}

Expr dims_product(const NodeContext& c, ValueId x, int from, int to) {
  Expr p = c.expr(1);
  for (int i = from; i < to; ++i) p = p * c.dim(x, i);
  return p;
}

ValueId zero_if_infinite(const NodeContext& c, ValueId x) {
  const ValueId infinite = c.add(OpKind::is_inf, {x}, graph::ScalarAttr{1, 1, 0, 0});
  return c.add(OpKind::where, {infinite, c.scalar_of(x, 0), x});
}

graph::ReduceAttr reduce_attr(std::vector<int> axes, bool keep_dims) {
  std::sort(axes.begin(), axes.end());
  return {std::move(axes), keep_dims, false};
}

std::vector<ValueId> add_all(const NodeContext& c, OpKind op, const std::vector<ValueId>& operands, const Attr& attr) {
  const graph::NodeId n = c.g.add_node(op, operands, attr, graph::infer(c.g, op, operands, attr));
  return c.g.node(n).results;
}

bool differ(Expr a, Expr b) { return a.is_const() && b.is_const() && !(a == b); }

void require_dim(const NodeContext& c, ValueId x, int axis, Expr want, std::string_view what) {
  const Expr got = c.dim(x, axis);
  const std::string message = std::string(what) + ": dim " + std::to_string(axis) + " must be " + sym::text(want);
  switch (sym::prove(sym::eq(got, want))) {
    case sym::Truth::yes:
      return;
    case sym::Truth::no:
      c.fail(message + ", got " + c.text(x));
    case sym::Truth::unknown:
      c.g.module().requirements.push_back({sym::eq(got, want), message, {c.site}, {got, want}});
  }
}

}  // namespace tripod::importer
