// Recovery of rotary embeddings: x * cos + rotated(x) * sin, where rotated(x) is (-x2, x1) of the halves (x1, x2) of
// the last dim. cos and sin repeat their first half, which has to be seen.
#include "graph_opt/match.h"

namespace tripod::graph_opt {

namespace {

// v is the slice of its operand that leaves all dims but the last whole; its operand and where it starts.
struct Part {
  ValueId x = kNoValue;
  Expr start;
};

Part last_dim_slice(Match& m, ValueId v) {
  const auto n = m.step(v, OpKind::slice);
  if (!n) return {};
  const auto& a = m.g.attr<graph::SliceAttr>(*n);
  const ValueId x = m.g.node(*n).operands[0];
  const Shape &from = m.g.type(x).shape, &to = m.g.type(v).shape;
  if (from.empty() || a.steps.back() != 1) return {};
  for (size_t d = 0; d + 1 < from.size(); ++d)
    if (from[d] != to[d] || a.steps[d] != 1) return {};
  return {x, a.starts.back()};
}

// v is concat(-x2, x1); x.
ValueId rotated(Match& m, ValueId v) {
  const auto n = m.step(v, OpKind::concat);
  if (!n || m.g.node(*n).operands.size() != 2) return kNoValue;
  const int last = m.g.type(v).rank() - 1;
  if (m.g.attr<graph::AxisAttr>(*n).axis != last) return kNoValue;
  const ValueId negative = m.through(m.g.node(*n).operands[0], OpKind::neg);
  const Part x2 = negative == kNoValue ? Part{} : last_dim_slice(m, negative);
  const Part x1 = last_dim_slice(m, m.g.node(*n).operands[1]);
  if (x1.x == kNoValue || x1.x != x2.x || !x1.start.is_const(0)) return kNoValue;
  const auto size = m.g.type(x1.x).shape.back().constant();
  if (!size || *size % 2 != 0 || !x2.start.is_const(*size / 2)) return kNoValue;
  return m.g.type(negative).shape.back().is_const(*size / 2) ? x1.x : kNoValue;
}

// Does the value repeat the first half of its last dim in the second? Seen through what keeps the last dim.
bool repeats(const Graph& g, ValueId v) {
  const Node& n = g.producer(v);
  const auto size = g.type(v).shape.empty() ? std::nullopt : g.type(v).shape.back().constant();
  if (!size || *size % 2 != 0) return false;
  switch (n.op) {
    case OpKind::concat:
      return n.operands.size() == 2 && n.operands[0] == n.operands[1] &&
             std::get<graph::AxisAttr>(n.attr).axis == g.type(v).rank() - 1;
    case OpKind::constant: {
      const auto e = g.float_values(v);
      if (!e) return false;
      for (size_t i = 0; i < e->size(); ++i)
        if (static_cast<int64_t>(i) % *size < *size / 2 && (*e)[i] != (*e)[i + static_cast<size_t>(*size / 2)]) return false;
      return true;
    }
    case OpKind::cos:
    case OpKind::sin:
    case OpKind::cast:
    case OpKind::identity: return repeats(g, n.operands[0]);
    case OpKind::mul:  // by an attention scaling of one number
      for (size_t i : {0, 1})
        if (g.scalar_value(n.operands[i]) && same_shape(g, v, n.operands[1 - i])) return repeats(g, n.operands[1 - i]);
      return false;
    case OpKind::gather: {
      const int axis = std::get<graph::AxisAttr>(n.attr).axis;
      return axis < g.type(n.operands[0]).rank() - 1 && repeats(g, n.operands[0]);
    }
    case OpKind::slice:
    case OpKind::reshape:
    case OpKind::broadcast:
      return !g.type(n.operands[0]).shape.empty() && g.type(n.operands[0]).shape.back() == g.type(v).shape.back() &&
             repeats(g, n.operands[0]);
    case OpKind::transpose:
      return std::get<graph::PermAttr>(n.attr).perm.back() == g.type(v).rank() - 1 && repeats(g, n.operands[0]);
    default: return false;
  }
}

ValueId first_half(Graph& g, ValueId v) {
  const Type& t = g.type(v);
  graph::SliceAttr a;
  a.starts.assign(t.shape.size(), g.sym().constant(0));
  a.steps.assign(t.shape.size(), 1);
  Type half = t;
  half.shape.back() = g.sym().constant(t.shape.back().value() / 2);
  return g.add_given(OpKind::slice, {v}, a, half);
}

// Broadcasts to x without widening it.
bool fits(const Graph& g, ValueId p, ValueId x) {
  const Shape &s = g.type(p).shape, &to = g.type(x).shape;
  if (s.size() > to.size() || s.empty() || s.back() != to.back()) return false;
  for (size_t d = 1; d <= s.size(); ++d)
    if (!s[s.size() - d].is_const(1) && s[s.size() - d] != to[to.size() - d]) return false;
  return true;
}

bool rotary(Rewriter& r, NodeId n) {
  if (r.g.node(n).op != OpKind::add) return false;
  for (size_t i : {0, 1}) {
    Match m(r.g);
    m.nodes = {n};
    const auto with_sin = m.step(r.g.node(n).operands[i], OpKind::mul), with_cos = m.step(r.g.node(n).operands[1 - i], OpKind::mul);
    if (!with_sin || !with_cos) continue;
    for (size_t j : {0, 1}) {
      Match whole = m;
      const ValueId x = rotated(whole, r.g.node(*with_sin).operands[j]), sin = r.g.node(*with_sin).operands[1 - j];
      const ValueId cos = x == kNoValue ? kNoValue : whole.beside(*with_cos, x);
      if (cos == kNoValue || !same_shape(r.g, x, r.result(n)) || !fits(r.g, sin, x) || !fits(r.g, cos, x)) continue;
      if (!repeats(r.g, sin) || !repeats(r.g, cos) || !whole.closed()) continue;
      if (!r.begin({whole.nodes.rbegin(), whole.nodes.rend()})) return false;
      r.replace(r.result(n), r.g.add(OpKind::rotary, {x, first_half(r.g, cos), first_half(r.g, sin)}, graph::AxisAttr{}));
      return true;
    }
  }
  return false;
}

}  // namespace

void rotaries(Rewriter& r) { apply_rules(r, {rotary}); }

}  // namespace tripod::graph_opt
