#include "graph/symbols.h"

namespace tripod::graph {

SymbolCollector::SymbolCollector(const Module& m, bool data_only) : data_only_(data_only) {
  for (Expr s : m.data_symbols) data_.insert(s);
}

void SymbolCollector::expr(Expr e) {
  if (e.is_const() || !seen_.insert(e).second) return;
  for (Expr v : sym::variables(e)) {
    if (data_only_ && !data_.count(v)) continue;
    if (v != e && !seen_.insert(v).second) continue;
    found_.push_back(v);
  }
}

void SymbolCollector::node(const Graph& g, const Node& n) {
  if (data_only_ && data_.empty()) return;
  auto f = [&](Expr e) { expr(e); };
  for (ValueId r : n.results) for_each_expr(g.type(r), f);
  for_each_expr(n.attr, f);
  if (const auto* s = std::get_if<SubgraphAttr>(&n.attr))
    for (int32_t i : s->graphs) {
      const Graph& body = g.module().graph(i);
      for (NodeId b : body.order()) node(body, body.node(b));
    }
}

std::vector<Expr> SymbolCollector::take_new() { return std::exchange(found_, {}); }

SymbolDefiners::SymbolDefiners(const Graph& g) {
  const Module& m = g.module();
  if (m.data_symbols.empty()) return;
  std::unordered_set<Expr, sym::Hash> data(m.data_symbols.begin(), m.data_symbols.end());
  const std::vector<NodeId> order = g.order();
  // The ops that state what they define come first; any other data symbol is defined by the first node of an op that
  // may define one (a loop, a call) whose result type has it.
  for (NodeId n : order)
    if (const auto* a = std::get_if<ExprsAttr>(&g.node(n).attr))
      if (has(g.node(n).op, Property(kRuntime | kHostControl)) && !a->values.empty() && data.count(a->values[0]))
        definer_.try_emplace(a->values[0], n);
  for (NodeId n : order)
    if (has(g.node(n).op, Property(kRuntime | kHostControl)))
      for (ValueId r : g.node(n).results)
        for_each_expr(g.type(r), [&](Expr e) {
          for (Expr v : sym::variables(e))
            if (data.count(v)) definer_.try_emplace(v, n);
        });
  if (definer_.empty()) return;
  for (NodeId n : order) {
    SymbolCollector mentioned(m);
    mentioned.node(g, g.node(n));
    for (Expr s : mentioned.take_new())
      if (NodeId d = find(s); d >= 0 && d != n) before_[n].push_back(d);
  }
}

NodeId SymbolDefiners::find(Expr symbol) const {
  auto it = definer_.find(symbol);
  return it == definer_.end() ? -1 : it->second;
}

const std::vector<NodeId>& SymbolDefiners::before(NodeId n) const {
  static const std::vector<NodeId> none;
  auto it = before_.find(n);
  return it == before_.end() ? none : it->second;
}

}  // namespace tripod::graph
