// Constant folding: a node all of whose operands are constants is evaluated now.
#include "graph_opt/fold.h"

#include "graph_opt/fuse.h"

#include <algorithm>

namespace tripod::graph_opt {

namespace {

// What a folded result may be larger than what it is computed from: a stretched constant costs memory and file size.
constexpr int64_t kMaxGrowth = 1 << 20;

bool foldable(const Graph& g, const Node& n) {
  if (n.operands.empty() || graph::has(n.op, graph::kHostControl) || graph::has(n.op, graph::kSource) || n.op == OpKind::call)
    return false;
  for (ValueId v : n.operands)
    if (v != kNoValue && (!g.is_constant(v) || g.type(v).dtype == DType::string)) return false;
  for (ValueId v : n.results)
    if (g.type(v).kind != Type::tensor || g.type(v).dtype == DType::string || !static_size(g.type(v))) return false;
  return true;
}

int64_t bytes_of(const Graph& g, ValueId v) { return byte_size(g.type(v).dtype, *static_size(g.type(v))); }

// Weights of a model that asks for integer arithmetic: an operand beside them is dequantised too.
bool is_integer_weight(const Graph& g, const Node& n) {
  for (NodeId u : g.value(n.results[0]).users)
    for (ValueId v : g.node(u).operands)
      if (v != kNoValue && v != n.results[0] && g.is(v, OpKind::dequantize)) return true;
  return false;
}

// Elementwise ops that stretch nothing are always folded: what is stored small and used large (i8 weights) would be
// converted in every call otherwise.
bool worth_it(const Graph& g, const Node& n, bool small_weights) {
  if (n.op == OpKind::dequantize && (is_integer_weight(g, n) || (small_weights && is_product_weight(g, n.results[0])))) return false;
  int64_t before = 0, after = 0, most = 0;
  for (ValueId v : n.operands) before += v == kNoValue ? 0 : bytes_of(g, v);
  for (ValueId v : n.operands) most = std::max(most, v == kNoValue ? 0 : *static_size(g.type(v)));
  for (ValueId v : n.results) after += bytes_of(g, v);
  if (graph::has(n.op, graph::kElementwise) && *static_size(g.type(n.results[0])) <= most) return true;
  return after - before <= kMaxGrowth;
}

std::optional<std::vector<graph::ConstAttr>> evaluate(Rewriter& r, NodeId n) {
  if (r.evaluator) return r.evaluator->evaluate(r.g, n);
  auto one = fold_plain(r.g, r.g.node(n));
  return one ? std::optional(std::vector{*std::move(one)}) : std::nullopt;
}

}  // namespace

std::optional<graph::ConstAttr> fold_plain(const Graph& g, const Node& n) {
  auto one = fold_move(g, n);
  return one ? one : fold_arithmetic(g, n);
}

void fold(Rewriter& r) {
  for (NodeId n : r.order()) {
    if (r.dead(n) || !foldable(r.g, r.g.node(n)) || !worth_it(r.g, r.g.node(n), r.small_weights)) continue;
    const auto folded = evaluate(r, n);
    if (!folded || !r.begin({n})) continue;
    const std::vector<ValueId> results = r.g.node(n).results;
    for (size_t i = 0; i < results.size(); ++i)
      r.replace(results[i], r.g.add_constant(r.g.type(results[i]), (*folded)[i]));
  }
}

}  // namespace tripod::graph_opt
