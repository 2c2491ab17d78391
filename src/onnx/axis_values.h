// Operands that come as one value for each of some axes (starts of Slice, pads of Pad), where both the values and
// the axes may be known only at run time.
#pragma once

#include "onnx/op_importer.h"

namespace tripod::importer {

class AxisValues {
 public:
  static AxisValues leading(const NodeContext& c, int rank, int count);  // axes 0 .. count-1
  static AxisValues given(const NodeContext& c, int rank, const Ints& axes);
  // From an operand; read at run time when it is not constant.
  static AxisValues read(const NodeContext& c, int rank, ValueId axes);

  int count() const { return static_cast<int>(axes_.size()); }
  // The one of `values` (one an entry of the axes) that belongs to this axis, or `otherwise`.
  Expr at(int axis, const std::vector<Expr>& values, Expr otherwise) const;
  // The condition that the axis is among them.
  Expr named(int axis) const;
  bool constant() const;

 private:
  AxisValues(const NodeContext& c) : c_(c) {}
  const NodeContext& c_;
  std::vector<Expr> axes_;  // non-negative
};

// Reads starts, ends and the like: one element an axis, or a failure that names the input.
std::vector<Expr> one_each(const NodeContext& c, int input, int count, sym::Range range, std::string_view what);

}  // namespace tripod::importer
