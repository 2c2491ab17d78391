#include "graph_opt/fuse.h"

#include <algorithm>
#include <set>

namespace tripod::graph_opt {

using graph::Graph;
using graph::Group;
using graph::Groups;
using graph::NodeId;
using graph::OpKind;
using graph::ValueId;

namespace {

// Longer chains are cut: compilers take more than linear time over very long expressions, and one pass over memory in
// hundreds of operations costs nothing.
constexpr size_t kMostNodes = 256;

Group::Kind kind_of(const Graph& g, NodeId n) {
  const graph::Node& node = g.node(n);
  if (graph::has(node.op, graph::kSource)) return Group::source;
  if (node.op == OpKind::identity || node.op == OpKind::reshape) return Group::alias;
  if (graph::has(node.op, graph::kRuntime)) return Group::runtime;
  if (graph::has(node.op, graph::kHostControl)) return Group::control;
  (void)g;
  return Group::kernel;
}

// Ops over whole rows (the innermost dims), after and before which elementwise work costs no pass over memory.
bool is_row_op(const Graph& g, NodeId n) {
  const graph::Node& node = g.node(n);
  switch (node.op) {
    case OpKind::softmax:
    case OpKind::log_softmax: return std::get<graph::AxisAttr>(node.attr).axis == g.type(node.results[0]).rank() - 1;
    case OpKind::layer_norm:
    case OpKind::rms_norm: return true;
    default: return false;
  }
}

class Fuser {
 public:
  Fuser(const Graph& g, bool small_weights) : g_(g), small_weights_(small_weights), group_of_(g.num_nodes(), -1) {}

  Groups run() {
    const std::vector<NodeId> order = g_.order();
    for (size_t i = order.size(); i-- > 0;) visit(order[i]);
    for (Building& b : building_) std::reverse(b.group.nodes.begin(), b.group.nodes.end());
    return finish(order);
  }

 private:
  struct Building {
    Group group;
    NodeId contraction = -1, row = -1;   // at most one of them
    bool open = false;                   // the others are elementwise
  };

  void visit(NodeId n) {
    const int into = joinable(n);
    if (into >= 0) {
      Building& b = building_[into];
      b.group.nodes.push_back(n);
      if (graph::has(g_.node(n).op, graph::kContraction)) b.contraction = n;
      if (is_row_op(g_, n)) b.row = n;
      group_of_[n] = into;
      return;
    }
    group_of_[n] = static_cast<int>(building_.size());
    Building b;
    b.group.kind = kind_of(g_, n);
    b.group.nodes = {n};
    const bool contraction = graph::has(g_.node(n).op, graph::kContraction);
    const bool row = is_row_op(g_, n);
    b.open = b.group.kind == Group::kernel && (graph::has(g_.node(n).op, graph::kElementwise) || contraction || row);
    if (contraction) b.contraction = n;
    if (row) b.row = n;
    building_.push_back(std::move(b));
  }

  // The group that takes n, or -1.
  int joinable(NodeId n) {
    const graph::Node& node = g_.node(n);
    const bool elementwise = graph::has(node.op, graph::kElementwise), contraction = graph::has(node.op, graph::kContraction);
    const bool row = is_row_op(g_, n);
    if (kind_of(g_, n) != Group::kernel || (!elementwise && !contraction && !row) || node.results.size() != 1) return -1;
    const ValueId v = node.results[0];
    const auto& users = g_.value(v).users;
    if (users.empty() || g_.is_output(v)) return -1;
    const int into = group_of_[users[0]];
    const Building& b = building_[into];
    if (!b.open || b.group.nodes.size() >= kMostNodes || ((contraction || row) && (b.contraction >= 0 || b.row >= 0))) return -1;
    if (small_weights_ && users[0] == b.contraction && is_product_weight(g_, v)) return into;
    for (NodeId u : users) {
      const bool takes = graph::has(g_.node(u).op, graph::kElementwise) || (elementwise && u == b.row);
      if (group_of_[u] != into || !takes) return -1;
    }
    const ValueId root = g_.node(b.group.nodes[0]).results[0];
    return g_.type(v).shape == g_.type(root).shape ? into : -1;
  }

  Groups finish(const std::vector<NodeId>& order) {
    for (Building& b : building_) {
      Group& group = b.group;
      const std::set<NodeId> members(group.nodes.begin(), group.nodes.end());
      for (NodeId n : group.nodes) {
        for (ValueId v : g_.node(n).operands)
          if (v != graph::kNoValue && !members.count(g_.value(v).producer) &&
              std::find(group.inputs.begin(), group.inputs.end(), v) == group.inputs.end())
            group.inputs.push_back(v);
        for (ValueId v : g_.node(n).results) {
          const auto& users = g_.value(v).users;
          const bool outside = g_.is_output(v) || std::any_of(users.begin(), users.end(), [&](NodeId u) { return !members.count(u); });
          if (outside || group.kind != Group::kernel || users.empty()) group.outputs.push_back(v);
        }
      }
    }
    // A group comes where its last node comes: everything it reads is there by then.
    Groups result;
    for (NodeId n : order) {
      Group& group = building_[group_of_[n]].group;
      if (group.nodes.back() == n) result.push_back(std::move(group));
    }
    return result;
  }

  const Graph& g_;
  const bool small_weights_;
  std::vector<int> group_of_;
  std::vector<Building> building_;
};

}  // namespace

Groups fuse(const Graph& g, bool small_weights) { return Fuser(g, small_weights).run(); }

bool is_product_weight(const Graph& g, ValueId v) {
  if (!g.is(v, OpKind::dequantize) || g.type(v).rank() != 2 || g.value(v).users.size() != 1 || g.is_output(v)) return false;
  for (ValueId o : g.producer(v).operands)
    if (o != graph::kNoValue && !g.is_constant(o)) return false;
  const graph::Node& user = g.node(g.value(v).users[0]);
  return user.op == OpKind::matmul && user.operands[1] == v && user.operands[0] != v && !g.is_constant(user.operands[0]) &&
         info(g.type(g.producer(v).operands[0]).dtype).bits <= 8;
}

}  // namespace tripod::graph_opt
