#include "onnx/axis_values.h"

namespace tripod::importer {

AxisValues::AxisValues(const NodeContext& c, int rank, int count) : c_(c) {
  if (count > rank)
    c.fail("has values for " + std::to_string(count) + " axes, the input has " + std::to_string(rank) + " dims");
  for (int i = 0; i < count; ++i) axes_.push_back(c.expr(i));
}

AxisValues::AxisValues(const NodeContext& c, int rank, const Ints& axes) : c_(c) {
  for (int a : c.axes(axes, rank)) axes_.push_back(c.expr(a));
}

AxisValues::AxisValues(const NodeContext& c, int rank, ValueId axes) : c_(c) {
  if (const auto known = c.ints(axes)) {
    for (int a : c.axes(*known, rank)) axes_.push_back(c.expr(a));
    return;
  }
  for (Expr a : c.dims(axes, {-rank, rank - 1})) {
    axes_.push_back(sym::select(sym::lt(a, 0), a + rank, a));
    graph::require(c.g, sym::logical_and(sym::ge(axes_.back(), 0), sym::lt(axes_.back(), rank)), "axis out of range");
  }
}

Expr AxisValues::at(int axis, const std::vector<Expr>& values, Expr otherwise) const {
  Expr r = otherwise;
  for (size_t j = 0; j < axes_.size(); ++j) r = sym::select(sym::eq(axes_[j], axis), values[j], r);
  return r;
}

Expr AxisValues::named(int axis) const {
  return at(axis, std::vector<Expr>(axes_.size(), c_.expr(1)), c_.expr(0));
}

bool AxisValues::constant() const {
  for (Expr a : axes_)
    if (!a.is_const()) return false;
  return true;
}

std::vector<Expr> one_each(const NodeContext& c, int input, int count, sym::Range range, std::string_view what) {
  std::vector<Expr> r = c.dims(c.input(input), range);
  if (static_cast<int>(r.size()) != count)
    c.fail(std::string(what) + " (input " + std::to_string(input) + ") has " + std::to_string(r.size()) +
           " elements, " + std::to_string(count) + " are needed");
  return r;
}

}  // namespace tripod::importer
