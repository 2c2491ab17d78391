// Small compositions of core ops that several families use.
#pragma once

#include "onnx/op_importer.h"

namespace tripod::importer {

// (sum over the axes of |x|^p)^(1/p).
ValueId lp_norm(const NodeContext& c, ValueId x, int64_t p, const graph::ReduceAttr& axes);

// All dims of x multiplied from `from` up to (not including) `to`.
Expr dims_product(const NodeContext& c, ValueId x, int from, int to);

// x where it is not finite replaced by 0: the offset that keeps exp() in range.
ValueId zero_if_infinite(const NodeContext& c, ValueId x);

// A list of reduced axes as the attribute of a reduction.
graph::ReduceAttr reduce_attr(std::vector<int> axes, bool keep_dims);

// Adds a node with several results whose types the op's shape rule gives.
std::vector<ValueId> add_all(const NodeContext& c, OpKind op, const std::vector<ValueId>& operands, const Attr& attr);

// True when both dims are constants that differ.
bool differ(Expr a, Expr b);

// Checks "x has the dim `want` at `axis`", as far as it is known; the rest becomes a requirement of the module.
void require_dim(const NodeContext& c, ValueId x, int axis, Expr want, std::string_view what);

// A scale or zero point of the left operand `a` of a product, one a row ([M] becomes [M, 1]) or one for all.
ValueId per_row(const NodeContext& c, ValueId parameter, ValueId a);

}  // namespace tripod::importer
