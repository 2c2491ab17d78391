// Looking and editing: user lists stay true, ids stay valid until compact().
#include <algorithm>
#include <unordered_set>

#include "graph/graph.h"
#include "graph/symbols.h"

namespace tripod::graph {

bool Graph::is_output(ValueId v) const { return std::find(outputs_.begin(), outputs_.end(), v) != outputs_.end(); }

std::vector<NodeId> Graph::order() const {
  std::vector<NodeId> live;
  live.reserve(order_.size());
  for (NodeId n : order_)
    if (!nodes_[n].dead) live.push_back(n);
  return live;
}

namespace {

void remove_one(std::vector<NodeId>& users, NodeId n) {
  auto it = std::find(users.begin(), users.end(), n);
  TRIPOD_CHECK(it != users.end(), "a user list lacks a user");
  users.erase(it);
}

// A replacement may know more or less about dims, but never contradict.
bool replaceable(const Type& a, const Type& b) {
  if (a.kind != b.kind || a.dtype != b.dtype || a.rank() != b.rank()) return false;
  for (size_t i = 0; i < a.shape.size(); ++i)
    if (a.shape[i] != b.shape[i] && sym::prove(sym::eq(a.shape[i], b.shape[i])) == sym::Truth::no) return false;
  return true;
}

}  // namespace

void Graph::replace_uses(ValueId from, ValueId to, NodeId except) {
  if (from == to) return;
  TRIPOD_CHECK(replaceable(values_[from].type, values_[to].type),
               text(values_[from].type) + " replaced by " + text(values_[to].type));
  std::vector<NodeId> kept;
  for (NodeId user : values_[from].users) {
    if (user == except) {
      kept.push_back(user);
      continue;
    }
    for (ValueId& v : nodes_[user].operands)
      if (v == from) v = to;
    values_[to].users.push_back(user);  // one entry a slot: `users` names a user once for each
  }
  values_[from].users = std::move(kept);
  for (ValueId& v : outputs_)
    if (v == from) v = to;
}

void Graph::set_operand(NodeId n, int slot, ValueId v) {
  ValueId& old = nodes_[n].operands[static_cast<size_t>(slot)];
  if (old == v) return;
  if (old != kNoValue) remove_one(values_[old].users, n);
  if (v != kNoValue) values_[v].users.push_back(n);
  old = v;
}

void Graph::erase(NodeId n) {
  Node& node = nodes_[n];
  if (node.dead) return;
  for (ValueId r : node.results) {
    TRIPOD_CHECK(values_[r].users.empty() && !is_output(r), "erased node's result %" + values_[r].name + " is used");
    values_[r].producer = -1;
    names_.erase(values_[r].name);
  }
  for (ValueId v : node.operands)
    if (v != kNoValue) remove_one(values_[v].users, n);
  if (node.op == OpKind::input) std::erase(inputs_, node.results[0]);
  node.operands.clear();
  node.attr = NoAttr{};  // lets go of a constant's bytes
  node.dead = true;
}

int Graph::remove_dead() {
  std::vector<bool> live(nodes_.size(), false);
  std::vector<NodeId> work;
  auto need = [&](NodeId n) {
    if (n < 0 || live[n]) return;
    live[n] = true;
    work.push_back(n);
  };
  for (ValueId v : outputs_) need(values_[v].producer);
  for (ValueId v : inputs_) need(values_[v].producer);

  // A data symbol that something live mentions keeps the node that defines it.
  const SymbolDefiners definers(*this);
  SymbolCollector mentioned(*module_);
  if (!definers.empty() && this == &module_->main())
    for (const auto& r : module_->requirements) mentioned.expr(r.condition);
  for (;;) {
    for (Expr s : mentioned.take_new()) need(definers.find(s));
    if (work.empty()) break;
    const NodeId n = work.back();
    work.pop_back();
    for (ValueId v : nodes_[n].operands)
      if (v != kNoValue) need(values_[v].producer);
    if (!definers.empty()) mentioned.node(*this, nodes_[n]);
  }
  // Users go before what they use.
  int removed = 0;
  sort();
  for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
    if (live[*it] || nodes_[*it].dead) continue;
    erase(*it);
    ++removed;
  }
  return removed;
}

void Graph::sort() {
  enum : uint8_t { fresh, open, done };
  std::vector<uint8_t> state(nodes_.size(), fresh);
  std::vector<NodeId> sorted;
  sorted.reserve(order_.size());
  struct Frame {
    NodeId node;
    size_t next;
  };
  std::vector<Frame> stack;  // explicit: models are deeper than the machine's stack
  const SymbolDefiners definers(*this);
  for (NodeId root : order_) {
    if (nodes_[root].dead || state[root] == done) continue;
    stack.push_back({root, 0});
    state[root] = open;
    while (!stack.empty()) {
      auto& [n, next] = stack.back();
      const std::vector<NodeId>& extra = definers.before(n);
      NodeId before = -1;
      if (next < nodes_[n].operands.size()) {
        const ValueId v = nodes_[n].operands[next];
        if (v != kNoValue) before = values_[v].producer;
      } else if (next < nodes_[n].operands.size() + extra.size()) {
        before = extra[next - nodes_[n].operands.size()];
      } else {
        state[n] = done;
        sorted.push_back(n);
        stack.pop_back();
        continue;
      }
      ++next;
      if (before < 0 || state[before] == done) continue;
      TRIPOD_CHECK(state[before] == fresh, "the graph has a cycle through %" + values_[nodes_[n].results[0]].name);
      state[before] = open;
      stack.push_back({before, 0});
    }
  }
  order_ = std::move(sorted);
}

void Graph::compact() {
  sort();
  std::vector<ValueId> new_value(values_.size(), kNoValue);
  std::vector<NodeId> new_node(nodes_.size(), -1);
  std::deque<Node> nodes;
  std::deque<Value> values;
  for (NodeId n : order_) {
    new_node[n] = static_cast<NodeId>(nodes.size());
    for (ValueId& r : nodes_[n].results) {
      new_value[r] = static_cast<ValueId>(values.size());
      values.push_back(std::move(values_[r]));
      r = new_value[r];
    }
    nodes.push_back(std::move(nodes_[n]));
  }
  for (Node& n : nodes)
    for (ValueId& v : n.operands)
      if (v != kNoValue) v = new_value[v];
  names_.clear();
  for (Value& v : values) {
    v.producer = new_node[v.producer];
    for (NodeId& u : v.users) u = new_node[u];
    names_.try_emplace(v.name, 1);
  }
  for (ValueId& v : inputs_) v = new_value[v];
  for (ValueId& v : outputs_) v = new_value[v];
  nodes_ = std::move(nodes);
  values_ = std::move(values);
  order_.resize(nodes_.size());
  for (size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<NodeId>(i);
}

}  // namespace tripod::graph
