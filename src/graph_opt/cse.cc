// Common subexpressions: of two nodes that compute the same, the first stays. Constants are compared by content.
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "graph_opt/pass.h"

namespace tripod::graph_opt {

namespace {

// Nodes whose results are theirs alone: interfaces, what the host carries out, a user's code, and ops that define a
// symbol (the attribute names it, so two of them are never equal anyway).
bool is_unique(const Node& n) {
  return n.op == OpKind::input || n.op == OpKind::call || graph::has(n.op, graph::kHostControl) ||
         (graph::has(n.op, graph::kRuntime) && std::holds_alternative<graph::ExprsAttr>(n.attr));
}

void mix(size_t& h, size_t v) { h = (h ^ v) * 0x9e3779b97f4a7c15u + (h >> 29); }

// A few words of it: weights are large, and those that differ do so almost everywhere.
size_t sample(const graph::ConstAttr& c) {
  constexpr int64_t kWords = 32;
  size_t h = static_cast<size_t>(c.size);
  const int64_t step = std::max<int64_t>(8, c.size / kWords);
  for (int64_t at = 0; at + 8 <= c.size; at += step) {
    uint64_t word;
    std::memcpy(&word, c.data + at, 8);
    mix(h, word);
  }
  for (int64_t at = c.size - c.size % 8; at < c.size; ++at) mix(h, static_cast<size_t>(c.data[at]));
  for (const std::string& s : c.strings) mix(h, std::hash<std::string>()(s));
  return h;
}

struct Key {
  const Graph& g;
  NodeId node;
  std::vector<ValueId> operands;  // sorted where the order does not matter
};

Key key_of(const Graph& g, NodeId n) {
  Key k{g, n, g.node(n).operands};
  if (graph::has(g.node(n).op, graph::kCommutative)) std::sort(k.operands.begin(), k.operands.end());
  return k;
}

size_t hash(const Key& k) {
  const Node& n = k.g.node(k.node);
  size_t h = static_cast<size_t>(n.op);
  for (ValueId v : k.operands) mix(h, static_cast<size_t>(v));
  if (const auto* c = std::get_if<graph::ConstAttr>(&n.attr)) mix(h, sample(*c));
  if (const auto* e = std::get_if<graph::ExprsAttr>(&n.attr))
    for (Expr x : e->values) mix(h, sym::Hash()(x));
  return h;
}

bool equal(const Key& a, const Key& b) {
  const Node &x = a.g.node(a.node), &y = b.g.node(b.node);
  if (x.op != y.op || a.operands != b.operands || x.results.size() != y.results.size() || !(x.attr == y.attr)) return false;
  for (size_t i = 0; i < x.results.size(); ++i)
    if (!graph::same_type(a.g.type(x.results[i]), b.g.type(y.results[i]))) return false;
  return true;
}

}  // namespace

void cse(Rewriter& r) {
  std::unordered_map<size_t, std::vector<NodeId>> seen;
  for (NodeId n : r.order()) {
    if (r.dead(n) || is_unique(r.g.node(n))) continue;
    const Key key = key_of(r.g, n);
    std::vector<NodeId>& candidates = seen[hash(key)];
    const auto first = std::find_if(candidates.begin(), candidates.end(), [&](NodeId c) {
      return !r.dead(c) && equal(key_of(r.g, c), key);
    });
    if (first == candidates.end()) {
      candidates.push_back(n);
      continue;
    }
    if (!r.begin({*first, n})) return;
    r.g.node(*first).origins = r.g.origins();
    const std::vector<ValueId> from = r.g.node(n).results, to = r.g.node(*first).results;
    for (size_t i = 0; i < from.size(); ++i) r.replace(from[i], to[i]);
  }
}

}  // namespace tripod::graph_opt
