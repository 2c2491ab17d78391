#include "onnx/axis_values.h"

namespace tripod::importer {

AxisValues AxisValues::leading(const NodeContext& c, int rank, int count) {
  if (count > rank)
    c.fail("has values for " + std::to_string(count) + " axes, the input has " + std::to_string(rank) + " dims");
  AxisValues r(c);
  for (int i = 0; i < count; ++i) r.axes_.push_back(c.expr(i));
  return r;
}

AxisValues AxisValues::given(const NodeContext& c, int rank, const Ints& axes) {
  AxisValues r(c);
  for (int a : c.axes(axes, rank)) r.axes_.push_back(c.expr(a));
  return r;
}

AxisValues AxisValues::read(const NodeContext& c, int rank, ValueId axes) {
  if (const auto known = c.ints(axes)) return given(c, rank, *known);
  AxisValues r(c);
  for (Expr a : c.dims(axes, {-rank, rank - 1})) {
    r.axes_.push_back(sym::select(sym::lt(a, 0), a + rank, a));
    graph::require(c.g, sym::logical_and(sym::ge(r.axes_.back(), 0), sym::lt(r.axes_.back(), rank)),
                   "axis out of range");
  }
  return r;
}

Expr AxisValues::at(int axis, const std::vector<Expr>& values, Expr otherwise) const {
  Expr r = otherwise;
  for (size_t j = 0; j < axes_.size(); ++j) r = sym::select(sym::eq(axes_[j], axis), values[j], r);
  return r;
}

Expr AxisValues::named(int axis) const {
  Expr r = c_.expr(0);
  for (Expr a : axes_) r = sym::logical_or(r, sym::eq(a, axis));
  return r;
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
