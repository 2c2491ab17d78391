// Recovery of layer_norm, rms_norm and group_norm.
//
// All write (x - mean) / sqrt(mean of squares + epsilon), with a division or a reciprocal, then scale and bias; the
// core ops keep more bits, because mean and squares stay in registers. TensorFlow multiplies out:
// x * k + (bias - mean * k) with k = scale / sqrt(...).
#include <algorithm>

#include "graph_opt/match.h"

namespace tripod::graph_opt {

namespace {

using graph::ScalarAttr;

// The mean of x over its last dims from `axis` on, kept as 1.
struct Mean {
  ValueId x = kNoValue;
  int axis = 0;
};

Mean mean_of(Match& m, ValueId v) {
  const auto n = m.step(v, OpKind::reduce_mean);
  if (!n) return {};
  const auto& a = m.g.attr<graph::ReduceAttr>(*n);
  const ValueId x = m.g.node(*n).operands[0];
  const int rank = m.g.type(x).rank();
  if (!a.keep_dims || a.axes.empty() || a.axes.back() != rank - 1) return {};
  if (a.axes.back() - a.axes.front() + 1 != static_cast<int>(a.axes.size())) return {};
  return {x, a.axes.front()};
}

// v is sqrt(mean of centred squares + epsilon).
struct Deviation {
  ValueId x = kNoValue;  // what is squared
  int axis = 0;
  double epsilon = 0;
};

Deviation deviation_of(Match& m, ValueId v) {
  const ValueId sum = m.through(v, OpKind::sqrt);
  const auto add = sum == kNoValue ? std::nullopt : m.step(sum, OpKind::add);
  const auto w = add ? with_number(m.g, *add) : std::nullopt;
  const Mean mean = w ? mean_of(m, w->x) : Mean{};
  const auto square = mean.x == kNoValue ? std::nullopt : m.step(mean.x, OpKind::mul);
  if (!square || m.g.node(*square).operands[0] != m.g.node(*square).operands[1]) return {};
  return {m.g.node(*square).operands[0], mean.axis, w->number};
}

// a / deviation, or a * (1 / deviation), with scale in between: a * (scale / deviation).
struct Normalised {
  ValueId a = kNoValue, scale = kNoValue;
  Deviation by;
};

Normalised with_reciprocal(Match& m, ValueId a, ValueId b) {
  if (const ValueId d = m.through(b, OpKind::reciprocal); d != kNoValue) return {a, kNoValue, deviation_of(m, d)};
  const auto product = m.step(b, OpKind::mul);
  if (!product) return {};
  for (size_t i : {0, 1}) {
    const ValueId reciprocal = m.g.node(*product).operands[i], scale = m.g.node(*product).operands[1 - i];
    if (!m.g.is(reciprocal, OpKind::reciprocal)) continue;
    return {a, scale, deviation_of(m, m.through(reciprocal, OpKind::reciprocal))};
  }
  return {};
}

Normalised normalised(const Graph& g, NodeId n, Match& m, bool swapped) {
  const Node& node = g.node(n);
  m.nodes = {n};
  if (node.op == OpKind::div && !swapped) return {node.operands[0], kNoValue, deviation_of(m, node.operands[1])};
  if (node.op != OpKind::mul) return {};
  return with_reciprocal(m, node.operands[swapped ? 1 : 0], node.operands[swapped ? 0 : 1]);
}

// v is x - mean(x) over the same dims; x.
ValueId centred(Match& m, ValueId v, int axis) {
  const auto sub = m.step(v, OpKind::sub);
  if (!sub) return kNoValue;
  const ValueId x = m.g.node(*sub).operands[0];
  const Mean mean = mean_of(m, m.g.node(*sub).operands[1]);
  return mean.x == x && mean.axis == axis ? x : kNoValue;
}

ValueId scaled(Rewriter& r, ValueId y, ValueId scale) {
  return scale == kNoValue ? y : r.g.add(OpKind::mul, {y, scale});
}

bool norm(Rewriter& r, NodeId n) {
  for (bool swapped : {false, true}) {
    Match m(r.g);
    const Normalised p = normalised(r.g, n, m, swapped);
    if (p.a == kNoValue || p.by.x != p.a || !is_float(r.g.type(p.a).dtype)) continue;
    const ScalarAttr a{p.by.epsilon, 0, 0, p.by.axis};
    Match with_mean = m;
    const ValueId x = centred(with_mean, p.a, p.by.axis);
    if (x != kNoValue && with_mean.closed()) {
      if (!r.begin({with_mean.nodes.rbegin(), with_mean.nodes.rend()})) return false;
      r.replace(r.result(n), scaled(r, r.g.add(OpKind::layer_norm, {x}, a), p.scale));
      return true;
    }
    if (!m.closed() || !r.begin({m.nodes.rbegin(), m.nodes.rend()})) continue;
    r.replace(r.result(n), scaled(r, r.g.add(OpKind::rms_norm, {p.a}, a), p.scale));
    return true;
  }
  return false;
}

// x * k + (bias - mean * k), k = scale / deviation or 1 / deviation.
bool multiplied_out(Rewriter& r, NodeId n) {
  if (r.g.node(n).op != OpKind::add) return false;
  for (size_t i : {0, 1}) {
    Match m(r.g);
    m.nodes = {n};
    const auto product = m.step(r.g.node(n).operands[i], OpKind::mul);
    const auto rest = product ? m.step(r.g.node(n).operands[1 - i], OpKind::sub) : std::nullopt;
    const auto shift = rest ? m.step(r.g.node(*rest).operands[1], OpKind::mul) : std::nullopt;
    if (!shift) continue;
    for (size_t j : {0, 1}) {
      const ValueId x = r.g.node(*product).operands[j], k = r.g.node(*product).operands[1 - j];
      Match whole = m;
      const ValueId mean_value = whole.beside(*shift, k);
      const Mean mean = mean_value == kNoValue ? Mean{} : mean_of(whole, mean_value);
      if (mean.x != x || x == kNoValue) continue;
      const Normalised p = with_reciprocal(whole, x, k);
      if (p.by.x == kNoValue || p.by.axis != mean.axis || centred(whole, p.by.x, mean.axis) != x || !whole.closed()) continue;
      const ValueId bias = r.g.node(*rest).operands[0];
      if (!r.begin({whole.nodes.rbegin(), whole.nodes.rend()})) return false;
      ValueId y = scaled(r, r.g.add(OpKind::layer_norm, {x}, ScalarAttr{p.by.epsilon, 0, 0, mean.axis}), p.scale);
      r.replace(r.result(n), r.g.add(OpKind::add, {y, bias}));
      return true;
    }
  }
  return false;
}

// --- scale and bias ---------------------------------------------------------------------------------------------------

// p with the normalised dims of x, which it has behind leading dims of 1; kNoValue when it varies otherwise. Only looks
// when `change` is false.
ValueId over_trailing(Graph& g, ValueId p, ValueId x, int axis, bool change) {
  const Shape &have = g.type(p).shape, &all = g.type(x).shape;
  const Shape want(all.begin() + axis, all.end());
  if (have.size() < want.size() || have.size() > all.size() || g.type(p).dtype != g.type(x).dtype) return kNoValue;
  const size_t extra = have.size() - want.size();
  for (size_t d = 0; d < extra; ++d)
    if (!have[d].is_const(1)) return kNoValue;
  if (!std::equal(want.begin(), want.end(), have.begin() + static_cast<std::ptrdiff_t>(extra))) return kNoValue;
  return change ? g.reshape(p, want) : p;
}

bool is_norm(OpKind op) { return op == OpKind::layer_norm || op == OpKind::rms_norm; }

// norm(x) * scale, norm(x, scale) + bias: operands of the norm.
bool parameters(Rewriter& r, NodeId n) {
  const OpKind op = r.g.node(n).op;
  if (op != OpKind::mul && op != OpKind::add) return false;
  for (size_t i : {0, 1}) {
    const ValueId y = r.g.node(n).operands[i], p = r.g.node(n).operands[1 - i];
    const NodeId norm = producer_of(r.g, y);
    if (!is_norm(r.g.node(norm).op) || !one_use(r.g, y) || !same_shape(r.g, y, r.result(n))) continue;
    std::vector<ValueId> operands = r.g.node(norm).operands;
    const size_t wanted = op == OpKind::mul ? 1 : 2;
    if (operands.size() != wanted || (wanted == 2 && r.g.node(norm).op == OpKind::rms_norm)) continue;
    const auto a = r.g.attr<ScalarAttr>(norm);
    if (over_trailing(r.g, p, operands[0], a.axis, false) == kNoValue || !r.begin({norm, n})) continue;
    operands.push_back(over_trailing(r.g, p, operands[0], a.axis, true));
    r.replace(r.result(n), r.g.add(r.g.node(norm).op, operands, a));
    return true;
  }
  return false;
}

// --- groups -----------------------------------------------------------------------------------------------------------

// One number for each channel (dim 1 of a tensor of this rank): [C, 1, ..., 1] as a vector of C.
ValueId of_channels(Graph& g, ValueId p, const Type& x, bool change) {
  const Shape& s = g.type(p).shape;
  const size_t rank = x.shape.size(), lead = s.size() == rank ? 1 : 0;
  if (s.size() + 1 - lead != rank || s.size() < 1 || s[lead] != x.shape[1] || (lead == 1 && !s[0].is_const(1))) return kNoValue;
  for (size_t d = lead + 1; d < s.size(); ++d)
    if (!s[d].is_const(1)) return kNoValue;
  return change ? g.reshape(p, {x.shape[1]}) : p;
}

// PyTorch's group norm: reshape to [N, groups, -1], instance norm with ones and zeros, reshape back, scale, bias.
bool group_norm(Rewriter& r, NodeId n) {
  if (r.g.node(n).op != OpKind::add) return false;
  for (size_t i : {0, 1}) {
    Match m(r.g);
    m.nodes = {n};
    const ValueId bias = r.g.node(n).operands[1 - i];
    const auto mul = m.step(r.g.node(n).operands[i], OpKind::mul);
    if (!mul) continue;
    for (size_t j : {0, 1}) {
      const ValueId scale = r.g.node(*mul).operands[1 - j];
      Match whole = m;
      const ValueId y = whole.through(r.g.node(*mul).operands[j], OpKind::reshape);
      const auto norm = y == kNoValue ? std::nullopt : whole.step(y, OpKind::group_norm);
      const ValueId x = norm ? whole.through(r.g.node(*norm).operands[0], OpKind::reshape) : kNoValue;
      if (x == kNoValue || !same_shape(r.g, x, r.result(n)) || r.g.node(*norm).operands.size() != 3) continue;
      const Type &t = r.g.type(x), &grouped = r.g.type(y);
      const auto a = r.g.attr<ScalarAttr>(*norm);
      const bool plain = is_number(r.g, r.g.node(*norm).operands[1], 1) && is_number(r.g, r.g.node(*norm).operands[2], 0);
      const bool one_row = grouped.rank() >= 2 && t.rank() >= 2 && grouped.shape[0] == t.shape[0] && grouped.shape[1].is_const(a.axis);
      if (!plain || !one_row || of_channels(r.g, scale, t, false) == kNoValue || of_channels(r.g, bias, t, false) == kNoValue) continue;
      if (!whole.closed() || !r.begin({whole.nodes.rbegin(), whole.nodes.rend()})) continue;
      r.replace(r.result(n), r.g.add(OpKind::group_norm, {x, of_channels(r.g, scale, t, true), of_channels(r.g, bias, t, true)}, a));
      return true;
    }
  }
  return false;
}

}  // namespace

void norms(Rewriter& r) { apply_rules(r, {norm, multiplied_out, parameters, group_norm}); }

}  // namespace tripod::graph_opt
