// Constant folding: a node all of whose operands are constants is evaluated now.
#include "graph_opt/fold.h"

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

// Weights that are stored small and used large are worth their full size: they are packed for the kernel anyway. Not
// where the other operand is dequantised too, which is how a model asks for integer arithmetic.
bool is_weight(const Graph& g, const Node& n) {
  if (n.op != OpKind::cast && n.op != OpKind::dequantize) return false;
  for (NodeId u : g.value(n.results[0]).users) {
    if (!graph::has(g.node(u).op, graph::kContraction)) return false;
    for (ValueId v : g.node(u).operands)
      if (n.op == OpKind::dequantize && v != kNoValue && v != n.results[0] && g.is(v, OpKind::dequantize)) return false;
  }
  return true;
}

bool worth_it(const Graph& g, const Node& n) {
  int64_t before = 0, after = 0;
  for (ValueId v : n.operands) before += v == kNoValue ? 0 : bytes_of(g, v);
  for (ValueId v : n.results) after += bytes_of(g, v);
  return n.op == OpKind::dequantize ? is_weight(g, n) : after - before <= kMaxGrowth || is_weight(g, n);
}

std::optional<std::vector<graph::ConstAttr>> evaluate(Rewriter& r, NodeId n) {
  const Node& node = r.g.node(n);
  auto one = fold_move(r.g, node);
  if (!one) one = fold_arithmetic(r.g, node);
  if (one) return std::vector{*std::move(one)};
  return r.evaluator ? r.evaluator->evaluate(r.g, n) : std::nullopt;
}

}  // namespace

void fold(Rewriter& r) {
  for (NodeId n : r.order()) {
    if (r.dead(n) || !foldable(r.g, r.g.node(n)) || !worth_it(r.g, r.g.node(n))) continue;
    const auto folded = evaluate(r, n);
    if (!folded || !r.begin({n})) continue;
    const std::vector<ValueId> results = r.g.node(n).results;
    for (size_t i = 0; i < results.size(); ++i)
      r.replace(results[i], r.g.add_constant(r.g.type(results[i]), (*folded)[i]));
  }
}

}  // namespace tripod::graph_opt
