// A transposed convolution whose windows do not overlap (stride = kernel, no padding) is a matrix product and a move:
// y[n, m, i*s + r, j*t + q] = sum over c of x[n, c, i, j] * w[c, m, r, q] is a 1x1 convolution to M*s*t channels whose
// results are then put where they belong. The general form asks every tap whether it falls on an input.
#include <numeric>

#include "graph_opt/pass.h"

namespace tripod::graph_opt {

static bool is_disjoint(const Graph& g, NodeId n) {
  const auto& a = g.attr<graph::ConvAttr>(n);
  const graph::Shape& w = g.type(g.node(n).operands[1]).shape;
  if (a.group != 1 || !g.is_constant(g.node(n).operands[1])) return false;
  for (size_t d = 0; d < a.strides.size(); ++d)
    if (!w[2 + d].is_const(a.strides[d]) || a.dilations[d] != 1 || a.pads_begin[d] != 0 || a.pads_end[d] != 0 || a.output_padding[d] != 0)
      return false;
  return true;
}

static bool split(Rewriter& r, NodeId n) {
  Graph& g = r.g;
  if (g.node(n).op != OpKind::conv_transpose || !is_disjoint(g, n) || !r.begin({n})) return false;
  const ValueId x = g.node(n).operands[0], w = g.node(n).operands[1], bias = operand(g, n, 2);
  const Shape sx = g.type(x).shape, sw = g.type(w).shape;
  const size_t spatial = sx.size() - 2;
  // Weights [C, M, k...] to [M * k..., C, 1...].
  std::vector<int> order(sw.size());
  std::iota(order.begin(), order.end(), 1);
  order.back() = 0;
  Expr channels = g.sym().constant(1);
  for (size_t d = 1; d < sw.size(); ++d) channels = channels * sw[d];
  Shape flat = {channels, sw[0]};
  flat.insert(flat.end(), spatial, g.sym().constant(1));
  const ValueId kernel = g.reshape(g.add(OpKind::transpose, {w}, graph::PermAttr{order}), flat);
  graph::ConvAttr a;
  a.strides.assign(spatial, 1), a.dilations.assign(spatial, 1), a.pads_begin.assign(spatial, 0), a.pads_end.assign(spatial, 0);
  const ValueId parts = g.add(OpKind::conv, {x, kernel}, a);
  // [N, M, k..., x...] to [N, M, x0, k0, x1, k1, ...].
  Shape apart = {sx[0], sw[1]};
  apart.insert(apart.end(), sw.begin() + 2, sw.end());
  apart.insert(apart.end(), sx.begin() + 2, sx.end());
  std::vector<int> perm = {0, 1};
  Shape joined = {sx[0], sw[1]};
  for (size_t d = 0; d < spatial; ++d) {
    perm.push_back(static_cast<int>(2 + spatial + d));
    perm.push_back(static_cast<int>(2 + d));
    joined.push_back(sx[2 + d] * sw[2 + d]);
  }
  ValueId y = g.reshape(g.add(OpKind::transpose, {g.reshape(parts, apart)}, graph::PermAttr{perm}), joined);
  if (bias != kNoValue) {
    Shape column = {sw[1]};
    column.insert(column.end(), spatial, g.sym().constant(1));
    y = g.add(OpKind::add, {y, g.reshape(bias, column)});
  }
  r.replace(r.result(n), y);
  return true;
}

void disjoint_windows(Rewriter& r) { apply_rules(r, {split}); }

}  // namespace tripod::graph_opt
