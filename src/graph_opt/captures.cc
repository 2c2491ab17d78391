// What a body of If, Loop or Scan captures: constants become constants of the body (where they can fold, pack and be
// told apart from data), and what no body reads is no operand any more.
#include "graph_opt/pass.h"

namespace tripod::graph_opt {
namespace {

using graph::SubgraphAttr;

// Operand `slot` of n is input `slot - shift` of the bodies, the captures from `first` on.
struct Captures {
  size_t first, shift;
};
Captures captures_of(const Node& n, const SubgraphAttr& a) {
  switch (n.op) {
    case OpKind::if_: return {1, 1};
    case OpKind::loop: return {2 + static_cast<size_t>(a.num_carried), 0};
    default: return {static_cast<size_t>(a.num_carried + a.num_scan_inputs), 0};
  }
}

void drop(Graph& g, NodeId n, size_t slot, const SubgraphAttr& a, size_t input) {
  for (int32_t i : a.graphs) {
    Graph& body = g.module().graph(i);
    body.erase(body.value(body.inputs()[input]).producer);
  }
  g.set_operand(n, static_cast<int>(slot), graph::kNoValue);
  g.node(n).operands.erase(g.node(n).operands.begin() + static_cast<int64_t>(slot));
}

void make_constant(Graph& body, size_t input, const Graph& from, ValueId constant) {
  const ValueId v = body.inputs()[input];
  body.set_origins({});
  const ValueId c = body.add_constant(from.type(constant), from.bytes(constant));
  body.replace_uses(v, c);
  body.sort();
}

}  // namespace

void captures(Rewriter& r) {
  for (NodeId n : r.order()) {
    if (r.dead(n) || !std::holds_alternative<SubgraphAttr>(r.g.node(n).attr)) continue;
    const SubgraphAttr a = r.g.attr<SubgraphAttr>(n);
    const Captures c = captures_of(r.g.node(n), a);
    for (size_t slot = r.g.node(n).operands.size(); slot-- > c.first;) {
      const ValueId v = r.g.node(n).operands[slot];
      const size_t input = slot - c.shift;
      bool read = false;
      for (int32_t i : a.graphs) {
        const Graph& body = r.g.module().graph(i);
        const ValueId inside = body.inputs()[input];
        read |= !body.value(inside).users.empty() || body.is_output(inside);
      }
      if (v == kNoValue || (read && !r.g.is_constant(v)) || !r.begin({n})) continue;
      if (read)
        for (int32_t i : a.graphs) make_constant(r.g.module().graph(i), input, r.g, v);
      drop(r.g, n, slot, a, input);
      r.erase_unused(r.g.value(v).producer);
    }
  }
}

}  // namespace tripod::graph_opt
