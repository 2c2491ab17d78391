// A pad with zeros in front of a convolution or an average pool becomes its own padding, also where a view that adds dims
// of 1 stands between them.
#include <algorithm>

#include "graph_opt/pass.h"

namespace tripod::graph_opt {

namespace {

// The pads of the spatial dims, when the node pads with zeros and only there.
struct Pads {
  Ints begin, end;
};

std::optional<Pads> zero_pads(const Graph& g, NodeId n) {
  if (g.node(n).op != OpKind::pad) return std::nullopt;
  const auto& a = g.attr<graph::PadAttr>(n);
  const ValueId fill = operand(g, n, 1);
  if (a.mode != graph::PadAttr::constant || (fill != kNoValue && !is_number(g, fill, 0))) return std::nullopt;
  Pads p;
  for (size_t d = 0; d < a.begin.size(); ++d) {
    if (!a.begin[d].is_const() || !a.end[d].is_const()) return std::nullopt;
    if (d < 2 && (a.begin[d].value() != 0 || a.end[d].value() != 0)) return std::nullopt;
    if (d < 2) continue;
    p.begin.push_back(a.begin[d].value());
    p.end.push_back(a.end[d].value());
  }
  return p;
}

Ints sum(Ints a, const Ints& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

bool is_zero(const Ints& v) {
  return std::all_of(v.begin(), v.end(), [](int64_t i) { return i == 0; });
}

// pad(reshape(x)) for reshape(pad(x)) that only adds and takes away dims of 1 (a 1-D convolution written as a 2-D one).
bool behind_view(Rewriter& r, NodeId n) {
  if (r.g.node(n).op != OpKind::reshape) return false;
  const NodeId pad = producer_of(r.g, r.g.node(n).operands[0]);
  if (r.g.node(pad).op != OpKind::pad || !one_use(r.g, r.result(pad))) return false;
  auto a = r.g.attr<graph::PadAttr>(pad);
  const ValueId x = r.g.node(pad).operands[0];
  const Shape &from = r.g.type(r.result(pad)).shape, &to = r.g.type(r.result(n)).shape;
  const Expr zero = r.g.sym().constant(0);
  std::vector<Expr> begin(to.size(), zero), end(to.size(), zero);
  Shape inner = to;
  size_t at = 0;
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d].is_const(1)) {
      if (!a.begin[d].is_const(0) || !a.end[d].is_const(0)) return false;
      continue;
    }
    while (at < to.size() && to[at].is_const(1)) ++at;
    if (at == to.size() || to[at] != from[d]) return false;
    begin[at] = a.begin[d];
    end[at] = a.end[d];
    inner[at++] = r.g.type(x).shape[d];
  }
  for (; at < to.size(); ++at)
    if (!to[at].is_const(1)) return false;
  if (!r.begin({pad, n})) return false;
  a.begin = begin;
  a.end = end;
  std::vector<ValueId> operands = r.g.node(pad).operands;
  operands[0] = r.g.reshape(x, inner);
  r.replace(r.result(n), r.g.add(OpKind::pad, operands, a));
  return true;
}

bool into_conv(Rewriter& r, NodeId n) {
  if (r.g.node(n).op != OpKind::conv) return false;
  const NodeId pad = producer_of(r.g, r.g.node(n).operands[0]);
  const auto p = zero_pads(r.g, pad);
  if (!p || !r.begin({pad, n})) return false;
  auto a = r.g.attr<graph::ConvAttr>(n);
  a.pads_begin = sum(a.pads_begin, p->begin);
  a.pads_end = sum(a.pads_end, p->end);
  std::vector<ValueId> operands = r.g.node(n).operands;
  operands[0] = r.g.node(pad).operands[0];
  r.replace(r.result(n), r.g.add(OpKind::conv, operands, a));
  return true;
}

// The zeros count as elements; so must the pool's own pads, if it has any.
bool into_pool(Rewriter& r, NodeId n) {
  if (r.g.node(n).op != OpKind::average_pool) return false;
  auto a = r.g.attr<graph::PoolAttr>(n);
  if (a.ceil_mode || !(a.count_include_pad || (is_zero(a.pads_begin) && is_zero(a.pads_end)))) return false;
  const NodeId pad = producer_of(r.g, r.g.node(n).operands[0]);
  const auto p = zero_pads(r.g, pad);
  if (!p || !r.begin({pad, n})) return false;
  a.pads_begin = sum(a.pads_begin, p->begin);
  a.pads_end = sum(a.pads_end, p->end);
  a.count_include_pad = true;
  r.replace(r.result(n), r.g.add(OpKind::average_pool, {r.g.node(pad).operands[0]}, a));
  return true;
}

}  // namespace

void pads(Rewriter& r) { apply_rules(r, {behind_view, into_conv, into_pool}); }

}  // namespace tripod::graph_opt
