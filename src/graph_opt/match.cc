#include "graph_opt/match.h"

#include <algorithm>

namespace tripod::graph_opt {

std::optional<NodeId> Match::step(ValueId v, OpKind k) {
  if (!g.is(v, k)) return std::nullopt;
  nodes.push_back(g.value(v).producer);
  return nodes.back();
}

ValueId Match::through(ValueId v, OpKind k) {
  const auto n = step(v, k);
  return n ? g.node(*n).operands[0] : kNoValue;
}

ValueId Match::beside(NodeId n, ValueId x) const {
  const Node& node = g.node(n);
  if (node.operands.size() != 2) return kNoValue;
  if (node.operands[0] == x) return node.operands[1];
  return graph::has(node.op, graph::kCommutative) && node.operands[1] == x ? node.operands[0] : kNoValue;
}

ValueId Match::beside_number(NodeId n, double number) const {
  const auto w = with_number(g, n);
  return w && about(w->number, number) ? w->x : kNoValue;
}

bool Match::closed() const {
  for (size_t i = 1; i < nodes.size(); ++i) {
    if (nodes[i] == nodes[0]) continue;
    for (ValueId v : g.node(nodes[i]).results) {
      if (g.is_output(v)) return false;
      for (NodeId u : g.value(v).users)
        if (std::find(nodes.begin(), nodes.end(), u) == nodes.end()) return false;
    }
  }
  return true;
}

bool Product::take(ValueId x) {
  const auto it = std::find(factors.begin(), factors.end(), x);
  if (it == factors.end()) return false;
  factors.erase(it);
  return true;
}

namespace {

// The shape must stay: a factor that is stretched is not the factor of an elementwise function.
bool keeps_shape(const Graph& g, NodeId n, ValueId x) { return same_shape(g, g.node(n).results[0], x); }

void flatten(const Graph& g, ValueId v, bool root, Product& p) {
  const NodeId n = g.value(v).producer;
  const OpKind op = g.node(n).op;
  const auto number = with_number(g, n);
  if (!root && !one_use(g, v)) {
    p.factors.push_back(v);
  } else if ((op == OpKind::mul || op == OpKind::div) && number && keeps_shape(g, n, number->x)) {
    p.nodes.push_back(n);
    p.coefficient = op == OpKind::mul ? p.coefficient * number->number : p.coefficient / number->number;
    flatten(g, number->x, false, p);
  } else if (op == OpKind::neg) {
    p.nodes.push_back(n);
    p.coefficient = -p.coefficient;
    flatten(g, g.node(n).operands[0], false, p);
  } else if (op == OpKind::pow && number && number->number == 3 && keeps_shape(g, n, number->x)) {
    p.nodes.push_back(n);
    p.factors.insert(p.factors.end(), 3, number->x);
  } else if (op == OpKind::mul && !number) {
    p.nodes.push_back(n);
    for (ValueId x : g.node(n).operands) flatten(g, x, false, p);
  } else {
    p.factors.push_back(v);
  }
}

}  // namespace

Product product_of(const Graph& g, ValueId v) {
  Product p;
  flatten(g, v, true, p);
  return p;
}

std::optional<Linear> linear_in(const Graph& g, ValueId v, ValueId x) {
  Linear l;
  while (v != x) {
    const NodeId n = g.value(v).producer;
    const OpKind op = g.node(n).op;
    const auto w = with_number(g, n);
    if (!w || !same_shape(g, v, w->x)) return std::nullopt;
    // What was gathered so far is applied behind this node: scale * (node) + shift.
    if (op == OpKind::add) l.shift += l.scale * w->number;
    else if (op == OpKind::sub) l.shift -= l.scale * w->number;
    else if (op == OpKind::mul) l.scale *= w->number;
    else if (op == OpKind::div) l.scale /= w->number;
    else return std::nullopt;
    l.nodes.push_back(n);
    v = w->x;
  }
  return l;
}

}  // namespace tripod::graph_opt
