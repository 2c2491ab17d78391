// Axes that only the run knows.
//
// Which axes are named becomes one symbol a dim, 0 or 1, read from the axes tensor. The input is then gathered into a
// matrix [kept, reduced] whose index map is integer arithmetic with those symbols; an op over the named axes is an op
// over dim 1 of it. Slow beside a reduction over static axes, which is what any real model has.
#pragma once

#include "onnx/op_importer.h"

namespace tripod::importer {

struct DynamicAxes {
  std::vector<Expr> named;  // one a dim of x: 1 when it is among the axes
  Shape kept_dims;          // x's dims with 1 for the named ones
  Shape named_dims;         // x's dims with 1 for the others
  Expr kept, reduced;       // products of those
  int64_t count = 0;        // how many axes there are; -1 when that is not known
};

// `axes` is an integer tensor of rank 0 or 1. With no axes at run time all dims count as named, or none with noop.
DynamicAxes dynamic_axes(const NodeContext& c, ValueId x, ValueId axes, bool noop);

// x as [kept, reduced], and the inverse (x's shape from such a matrix).
ValueId as_matrix(const NodeContext& c, ValueId x, const DynamicAxes& d);
ValueId from_matrix(const NodeContext& c, ValueId matrix, const Shape& shape, const DynamicAxes& d);

// The dims that are not named, in order: a shape of static rank, since `count` is known (else a failure).
Shape remaining_dims(const NodeContext& c, const DynamicAxes& d);

}  // namespace tripod::importer
