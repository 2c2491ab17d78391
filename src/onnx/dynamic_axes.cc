#include "onnx/dynamic_axes.h"

#include <algorithm>

namespace tripod::importer {

namespace {

ValueId integer(const NodeContext& c, Expr e) { return c.reshape(c.g.add_exprs({e}), {}); }

// 0, 1, .. n-1.
ValueId counting(const NodeContext& c, Expr n) {
  return c.g.add_given(OpKind::iota, {c.int_scalar(DType::i64, 0), c.int_scalar(DType::i64, 1)}, graph::NoAttr{},
                       Type::make(DType::i64, {n}));
}

// Where in row-major order over `dims` the elements of the matrix side lie that runs over `part` (the dims of that
// side, 1 for the others): sum over i of coordinate_i * stride_i.
ValueId offsets(const NodeContext& c, const Shape& dims, const Shape& part, Expr count) {
  const ValueId k = counting(c, count);
  ValueId sum = kNoValue;
  Expr stride = c.expr(1), inner = c.expr(1);
  for (int i = static_cast<int>(dims.size()) - 1; i >= 0; --i) {
    const ValueId coordinate = c.add(OpKind::mod, {c.add(OpKind::div, {k, integer(c, inner)}), integer(c, part[i])});
    const ValueId offset = c.add(OpKind::mul, {coordinate, integer(c, stride)});
    sum = sum == kNoValue ? offset : c.add(OpKind::add, {sum, offset});
    stride = stride * dims[i];
    inner = inner * part[i];
  }
  return sum == kNoValue ? k : sum;
}

Expr one_where(Expr flag, Expr one, Expr otherwise) { return sym::select(sym::eq(flag, 1), one, otherwise); }

}  // namespace

DynamicAxes dynamic_axes(const NodeContext& c, ValueId x, ValueId axes, bool noop) {
  const int rank = c.rank(x);
  if (c.rank(axes) == 0) axes = c.reshape(axes, {c.expr(1)});
  axes = c.cast(axes, DType::i64);
  const Expr count = c.dim(axes, 0);

  const ValueId with_zero = c.concat({axes, c.g.add_ints({0})}, 0);  // there may be none
  const auto extreme = [&](OpKind op) {
    return c.dims_scalar(c.add(op, {with_zero}, graph::ReduceAttr{{0}, false, false}), NodeContext::kAnyRange);
  };
  graph::require(c.g, sym::logical_and(sym::ge(extreme(OpKind::reduce_min), -rank), sym::lt(extreme(OpKind::reduce_max), std::max(rank, 1))),
                 "axes must be within -" + std::to_string(rank) + ".." + std::to_string(rank - 1));

  // named[i] = any of the axes, wrapped, is i.
  const ValueId wrapped = c.add(OpKind::where, {c.add(OpKind::less, {axes, c.int_scalar(DType::i64, 0)}),
                                                c.add(OpKind::add, {axes, c.int_scalar(DType::i64, rank)}), axes});
  const ValueId equal = c.add(OpKind::equal, {c.unsqueeze(wrapped, 1), counting(c, c.expr(rank))});
  const ValueId named = c.add(OpKind::reduce_max, {c.cast(equal, DType::i64)}, graph::ReduceAttr{{0}, false, false});

  DynamicAxes d;
  d.count = count.is_const() ? count.value() : -1;
  d.kept = d.reduced = c.expr(1);
  for (Expr flag : c.dims(named, {0, 1})) {
    const int i = static_cast<int>(d.named.size());
    if (!count.is_const()) flag = sym::select(sym::eq(count, 0), c.expr(noop ? 0 : 1), flag);
    d.named.push_back(flag);
    d.kept_dims.push_back(one_where(flag, c.expr(1), c.dim(x, i)));
    d.named_dims.push_back(one_where(flag, c.dim(x, i), c.expr(1)));
    d.kept = d.kept * d.kept_dims.back();
    d.reduced = d.reduced * d.named_dims.back();
  }
  return d;
}

ValueId as_matrix(const NodeContext& c, ValueId x, const DynamicAxes& d) {
  const Shape dims = c.shape(x);  // a copy: adding nodes moves the values
  const ValueId rows = c.unsqueeze(offsets(c, dims, d.kept_dims, d.kept), 1);
  const ValueId columns = c.unsqueeze(offsets(c, dims, d.named_dims, d.reduced), 0);
  const ValueId flat = c.reshape(x, {graph::element_count(c.sym(), dims)});
  return c.add(OpKind::gather, {flat, c.add(OpKind::add, {rows, columns})}, graph::AxisAttr{});
}

ValueId from_matrix(const NodeContext& c, ValueId matrix, const Shape& shape, const DynamicAxes& d) {
  // Element p of the result has the coordinates p / stride_i mod dim_i; the named ones count for the column.
  const Expr total = graph::element_count(c.sym(), shape);
  const ValueId p = counting(c, total);
  ValueId sum = kNoValue;
  Expr stride = c.expr(1), row_stride = c.expr(1), column_stride = c.expr(1);
  for (int i = static_cast<int>(shape.size()) - 1; i >= 0; --i) {
    const ValueId coordinate = c.add(OpKind::mod, {c.add(OpKind::div, {p, integer(c, stride)}), integer(c, shape[i])});
    const Expr weight = one_where(d.named[i], column_stride, row_stride * d.reduced);
    const ValueId offset = c.add(OpKind::mul, {coordinate, integer(c, weight)});
    sum = sum == kNoValue ? offset : c.add(OpKind::add, {sum, offset});
    stride = stride * shape[i];
    row_stride = row_stride * d.kept_dims[i];
    column_stride = column_stride * d.named_dims[i];
  }
  const ValueId flat = c.reshape(matrix, {total});
  return c.reshape(c.add(OpKind::gather, {flat, sum}, graph::AxisAttr{}), shape);
}

Shape remaining_dims(const NodeContext& c, const DynamicAxes& d) {
  const int rank = static_cast<int>(d.named.size());
  if (d.count < 0)
    c.fail("with keepdims = 0 the number of axes must be known", "set keepdims = 1 or make the axes constant");
  Shape result;
  for (int j = 0; j < rank - d.count; ++j) {
    // The j-th remaining dim is dim i where i is not named and j of those before it are not.
    Expr dim = c.expr(1);
    for (int i = rank - 1; i >= j; --i) {
      Expr before = c.expr(0);
      for (int k = 0; k < i; ++k) before = before + (c.expr(1) - d.named[k]);
      const Expr here = sym::logical_and(sym::eq(d.named[i], 0), sym::eq(before, j));
      dim = sym::select(here, d.kept_dims[i], dim);
    }
    result.push_back(dim);
  }
  return result;
}

}  // namespace tripod::importer
