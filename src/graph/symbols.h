// Which symbols a node mentions, and which node defines a data symbol.
//
// A data symbol (a dim only the run can know) is used through types and attributes, not through operands: these
// helpers are what keeps its definer alive and in front of everything that mentions it.
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/graph.h"

namespace tripod::graph {

// Calls f for every expression in a type or an attribute.
template <class F>
void for_each_expr(const Type& t, F&& f) {
  for (Expr e : t.shape) f(e);
  if (t.element) for_each_expr(*t.element, f);
}
template <class F>
void for_each_expr(const Attr& a, F&& f) {
  auto all = [&](const std::vector<Expr>& es) {
    for (Expr e : es) f(e);
  };
  if (const auto* s = std::get_if<SliceAttr>(&a)) all(s->starts);
  if (const auto* p = std::get_if<PadAttr>(&a)) all(p->begin), all(p->end);
  if (const auto* v = std::get_if<ExprsAttr>(&a)) all(v->values);
}

// Gathers variables; data symbols only, or all.
class SymbolCollector {
 public:
  explicit SymbolCollector(const Module& m, bool data_only = true);
  void expr(Expr e);
  void node(const Graph& g, const Node& n);  // result types, attributes, bodies
  // What was found since the last call, in order of first occurrence.
  std::vector<Expr> take_new();

 private:
  bool data_only_;
  std::unordered_set<Expr, sym::Hash> data_, seen_;
  std::vector<Expr> found_;
};

class SymbolDefiners {
 public:
  explicit SymbolDefiners(const Graph& g);
  bool empty() const { return definer_.empty(); }
  NodeId find(Expr symbol) const;  // -1: not defined in this graph
  // The definers of the data symbols that n mentions, n itself left out.
  const std::vector<NodeId>& before(NodeId n) const;

 private:
  std::unordered_map<Expr, NodeId, sym::Hash> definer_;
  std::unordered_map<NodeId, std::vector<NodeId>> before_;
};

}  // namespace tripod::graph
