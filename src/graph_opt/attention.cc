// Recovery of attention: softmax(q k^T * scale + mask) v, as PyTorch's exporters write it.
//
// The scale may stand behind the product, or in front of it on q, on k, or split over both; the mask may be added or
// select by `where`; a guard (IsNaN, Where) may replace the NaN of a row that sees no key by zeros. Keys that are
// repeated for several query heads are used unrepeated. Operands of rank 3 get a dim of 1 in front.
//
// A row all of whose keys are hidden by -inf gives zeros in the core op: what the guard says, and where there is no
// guard, zeros instead of NaN.
#include <algorithm>
#include <cmath>
#include <utility>

#include "graph_opt/match.h"

namespace tripod::graph_opt {

namespace {

struct Found {
  ValueId q = kNoValue, k_transposed = kNoValue, v = kNoValue, mask = kNoValue, scores = kNoValue;
  double scale = 1;
  // The mask is flags that select (reversed: hide) keys; the others' scores are `hidden`.
  bool selects = false, reversed = false;
  double hidden = 0;
};

// Steps over v * number and v / number.
ValueId unscaled(Match& m, ValueId v, double& scale) {
  const NodeId n = producer_of(m.g, v);
  const OpKind op = m.g.node(n).op;
  if (op != OpKind::mul && op != OpKind::div) return v;
  const auto w = with_number(m.g, n);
  if (!w || !same_shape(m.g, w->x, v) || !one_use(m.g, v)) return v;
  m.nodes.push_back(n);
  scale *= op == OpKind::mul ? w->number : 1 / w->number;
  return w->x;
}

// where(is_nan(p), 0, p) or where(not is_nan(p), p, 0); p.
ValueId unguarded(Match& m, ValueId v) {
  if (!m.g.is(v, OpKind::where)) return v;
  const auto& o = m.g.producer(v).operands;
  const bool negated = m.g.is(o[0], OpKind::logical_not);
  const ValueId test = negated ? m.g.producer(o[0]).operands[0] : o[0];
  const ValueId p = o[negated ? 1 : 2], zero = o[negated ? 2 : 1];
  if (!m.g.is(test, OpKind::is_nan) || m.g.producer(test).operands[0] != p || !is_number(m.g, zero, 0)) return v;
  m.step(v, OpKind::where);
  if (negated) m.step(o[0], OpKind::logical_not);
  m.step(test, OpKind::is_nan);
  return p;
}

// Numbers that hide a key whatever its score: adding them to a score gives them again.
bool hides(double number) { return number <= -1e30; }

// x has the shape of v, or dims that a requirement of the module makes equal to it.
bool unstretched(const Graph& g, ValueId x, ValueId v) {
  const Shape &have = g.type(x).shape, &want = g.type(v).shape;
  if (have.size() != want.size()) return false;
  for (size_t d = 0; d < have.size(); ++d)
    if (have[d] != want[d] && have[d].is_const(1)) return false;
  return true;
}

// v is where(flags, scores, hidden) or where(hides, hidden, scores).
bool selected(Match& m, ValueId v, Found& f) {
  const NodeId n = producer_of(m.g, v);
  const auto& o = m.g.node(n).operands;
  const bool reversed = m.g.scalar_value(o[1]).has_value();
  const ValueId scores = o[reversed ? 2 : 1];
  const auto hidden = m.g.scalar_value(o[reversed ? 1 : 2]);
  if (!hidden || !hides(*hidden) || !unstretched(m.g, scores, v)) return false;
  m.nodes.push_back(n);
  f.mask = o[0];
  f.selects = true;
  f.reversed = reversed;
  f.hidden = *hidden;
  f.scores = scores;
  return true;
}

// v is scores + mask.
bool added(Match& m, ValueId v, Found& f) {
  const NodeId n = producer_of(m.g, v);
  for (size_t i : {0, 1}) {
    const ValueId s = m.g.node(n).operands[i];
    double ignored = 1;
    Match inner(m.g);
    if (!m.g.is(unscaled(inner, s, ignored), OpKind::matmul) || !unstretched(m.g, s, v)) continue;
    m.nodes.push_back(n);
    f.mask = m.g.node(n).operands[1 - i];
    f.scores = s;
    return true;
  }
  return false;
}

// Behind the product: scale, then mask. The product.
ValueId scores(Match& m, ValueId v, Found& f) {
  const OpKind op = m.g.producer(v).op;
  if (op == OpKind::where && one_use(m.g, v) && selected(m, v, f)) v = f.scores;
  else if (op == OpKind::add && one_use(m.g, v) && added(m, v, f)) v = f.scores;
  return unscaled(m, v, f.scale);
}

std::optional<Found> find(Match& m, NodeId n) {
  const Node& last = m.g.node(n);
  if (last.op != OpKind::matmul || !one_use(m.g, last.operands[0])) return std::nullopt;
  const int rank = m.g.type(last.operands[0]).rank();
  if ((rank != 3 && rank != 4) || m.g.type(last.operands[1]).rank() != rank) return std::nullopt;
  m.nodes = {n};
  Found f;
  f.v = last.operands[1];
  const auto softmax = m.step(unguarded(m, last.operands[0]), OpKind::softmax);
  if (!softmax || m.g.attr<graph::AxisAttr>(*softmax).axis != rank - 1) return std::nullopt;
  const ValueId s = scores(m, m.g.node(*softmax).operands[0], f);
  const auto product = s == kNoValue ? std::nullopt : m.step(s, OpKind::matmul);
  if (!product) return std::nullopt;
  f.q = unscaled(m, m.g.node(*product).operands[0], f.scale);
  f.k_transposed = unscaled(m, m.g.node(*product).operands[1], f.scale);
  // Weights are no keys: matmul with a constant is better off as a matmul.
  if (m.g.is_constant(f.k_transposed) || m.g.is_constant(f.q) || m.g.is_constant(f.v)) return std::nullopt;
  if (m.g.type(f.q).rank() != rank || m.g.type(f.k_transposed).rank() != rank) return std::nullopt;
  return f;
}

// --- does it fit the core op? -----------------------------------------------------------------------------------------

// k = reshape(broadcast(reshape(k0: [B, H, T, D]) : [B, H, n, T, D]) : [B, H*n, T, D]): k0.
ValueId unrepeated(const Graph& g, ValueId k) {
  if (!g.is(k, OpKind::reshape) || g.type(k).rank() != 4) return k;
  const ValueId wide = g.producer(k).operands[0];
  if (!g.is(wide, OpKind::broadcast) || g.type(wide).rank() != 5) return k;
  const ValueId split = g.producer(wide).operands[0];
  if (!g.is(split, OpKind::reshape) || g.type(split).rank() != 5 || !g.type(split).shape[2].is_const(1)) return k;
  const ValueId k0 = g.producer(split).operands[0];
  const Shape &s = g.type(split).shape, &w = g.type(wide).shape;
  for (size_t d : {0, 1, 3, 4})
    if (s[d] != w[d]) return k;
  return g.type(k0).shape == Shape{s[0], s[1], s[3], s[4]} ? k0 : k;
}

// Batch and heads of q, k and v are written alike: the core op does not stretch them.
bool same_batch(const Graph& g, const Found& f) {
  const Shape &q = g.type(f.q).shape, &k = g.type(f.k_transposed).shape, &v = g.type(f.v).shape;
  for (size_t d = 0; d + 2 < q.size(); ++d)
    if (q[d] != k[d] || q[d] != v[d]) return false;
  return true;
}

// The mask widens nothing, and its dims can be told from the scores'.
bool mask_fits(const Graph& g, const Found& f) {
  if (f.mask == kNoValue) return true;
  const Type& t = g.type(f.mask);
  if (!f.selects && t.dtype != g.type(f.q).dtype) return false;
  return t.rank() <= g.type(f.q).rank();
}

// Keys come transposed by a node of their own, so that transposing back costs nothing.
bool keys_fit(const Graph& g, const Found& f) {
  return g.is(f.k_transposed, OpKind::transpose) || g.is(f.k_transposed, OpKind::reshape);
}

// --- building ---------------------------------------------------------------------------------------------------------

ValueId with_heads(Graph& g, ValueId v) {
  if (v == kNoValue || g.type(v).rank() == 4) return v;
  Shape s = g.type(v).shape;
  while (s.size() < 4) s.insert(s.begin(), g.sym().constant(1));
  return g.reshape(v, s);
}

ValueId last_two_swapped(Graph& g, ValueId v) {
  graph::PermAttr p;
  for (int i = 0; i < g.type(v).rank(); ++i) p.perm.push_back(i);
  std::swap(p.perm[p.perm.size() - 1], p.perm[p.perm.size() - 2]);
  // One transpose, if the operand is one.
  if (!g.is(v, OpKind::transpose)) return g.add(OpKind::transpose, {v}, p);
  const auto& before = g.attr<graph::PermAttr>(g.value(v).producer).perm;
  for (int& i : p.perm) i = before[static_cast<size_t>(i)];
  const ValueId x = g.producer(v).operands[0];
  return std::is_sorted(p.perm.begin(), p.perm.end()) ? x : g.add(OpKind::transpose, {x}, p);
}

// The mask as an operand: flags where hidden keys are -inf, else numbers to add.
ValueId mask_operand(Graph& g, const Found& f) {
  if (!f.selects) return with_heads(g, f.mask);
  if (std::isinf(f.hidden)) return with_heads(g, f.reversed ? g.add(OpKind::logical_not, {f.mask}) : f.mask);
  const DType t = g.type(f.q).dtype;
  const ValueId seen = g.scalar(t, 0), hidden = g.scalar(t, f.hidden);
  return with_heads(g, g.add(OpKind::where, {f.mask, f.reversed ? hidden : seen, f.reversed ? seen : hidden}));
}

bool attention(Rewriter& r, NodeId n) {
  Match m(r.g);
  const auto f = find(m, n);
  if (!f || !same_batch(r.g, *f) || !mask_fits(r.g, *f) || !keys_fit(r.g, *f) || !m.closed()) return false;
  if (!(f->scale > 0) || !r.begin({m.nodes.rbegin(), m.nodes.rend()})) return false;
  const ValueId keys = last_two_swapped(r.g, f->k_transposed);
  ValueId k = unrepeated(r.g, keys), v = unrepeated(r.g, f->v);
  if (r.g.type(k).shape[1] != r.g.type(v).shape[1]) k = keys, v = f->v;
  std::vector<ValueId> operands{with_heads(r.g, f->q), with_heads(r.g, k), with_heads(r.g, v)};
  if (f->mask != kNoValue) operands.push_back(mask_operand(r.g, *f));
  graph::AttentionAttr a;
  a.scale = f->scale;
  const ValueId y = r.g.add(OpKind::attention, operands, a);
  r.replace(r.result(n), r.g.reshape(y, r.g.type(r.result(n)).shape));
  return true;
}

}  // namespace

void attentions(Rewriter& r) { apply_rules(r, {attention}); }

}  // namespace tripod::graph_opt
