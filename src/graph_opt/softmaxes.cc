// Recovery of softmax from exp(x - max) / sum(exp(x - max)).
#include "graph_opt/match.h"

namespace tripod::graph_opt {

namespace {

// v is a reduction of x over one axis, kept as 1; the axis.
std::optional<int> over_axis(Match& m, ValueId v, OpKind op, ValueId x) {
  const auto n = m.step(v, op);
  if (!n || m.g.node(*n).operands[0] != x) return std::nullopt;
  const auto& a = m.g.attr<graph::ReduceAttr>(*n);
  return a.keep_dims && a.axes.size() == 1 ? std::optional(a.axes[0]) : std::nullopt;
}

bool softmax(Rewriter& r, NodeId n) {
  const Node& node = r.g.node(n);
  if (node.op != OpKind::div && node.op != OpKind::mul) return false;
  for (size_t i : {0, 1}) {
    if (i == 1 && node.op == OpKind::div) continue;
    Match m(r.g);
    m.nodes = {n};
    const ValueId e = node.operands[i];
    const ValueId sum = node.op == OpKind::div ? node.operands[1 - i] : m.through(node.operands[1 - i], OpKind::reciprocal);
    const auto axis = sum == kNoValue ? std::nullopt : over_axis(m, sum, OpKind::reduce_sum, e);
    const ValueId shifted = axis ? m.through(e, OpKind::exp) : kNoValue;
    const auto sub = shifted == kNoValue ? std::nullopt : m.step(shifted, OpKind::sub);
    if (!sub) continue;
    const ValueId x = r.g.node(*sub).operands[0];
    if (over_axis(m, r.g.node(*sub).operands[1], OpKind::reduce_max, x) != axis) continue;
    if (!m.closed() || !r.begin({m.nodes.rbegin(), m.nodes.rend()})) continue;
    graph::AxisAttr a;
    a.axis = *axis;
    r.replace(r.result(n), r.g.add(OpKind::softmax, {x}, a));
    return true;
  }
  return false;
}

}  // namespace

void softmaxes(Rewriter& r) { apply_rules(r, {softmax}); }

}  // namespace tripod::graph_opt
