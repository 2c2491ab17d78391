#include "graph_opt/affine.h"

#include <algorithm>
#include <cmath>

namespace tripod::graph_opt {

bool Affine::scales() const {
  return std::any_of(scale.begin(), scale.end(), [](double s) { return s != 1; });
}
bool Affine::shifts() const {
  return std::any_of(shift.begin(), shift.end(), [](double s) { return s != 0; });
}
bool Affine::finite() const {
  const auto ok = [](double v) { return std::isfinite(v); };
  return std::all_of(scale.begin(), scale.end(), ok) && std::all_of(shift.begin(), shift.end(), ok);
}

Affine Affine::then(const Affine& next) const {
  Affine r = *this;
  for (size_t i = 0; i < r.scale.size(); ++i) {
    r.scale[i] = scale[i] * next.scale[i];
    r.shift[i] = shift[i] * next.scale[i] + next.shift[i];
  }
  return r;
}

namespace {

// The elements of a float constant for each index of the axis of a tensor of this rank that it is combined with.
std::optional<std::vector<double>> along(const Graph& g, ValueId c, int rank, int axis, int64_t extent) {
  if (c == kNoValue || !g.is_constant(c) || !is_float(g.type(c).dtype)) return std::nullopt;
  const Shape& s = g.type(c).shape;
  const int missing = rank - static_cast<int>(s.size());
  int64_t count = 1;
  for (int d = 0; d < static_cast<int>(s.size()); ++d) {
    count *= s[static_cast<size_t>(d)].value();
    if (d + missing != axis && !s[static_cast<size_t>(d)].is_const(1)) return std::nullopt;
  }
  if (missing < 0 || (count != 1 && count != extent)) return std::nullopt;
  auto values = g.float_values(c);
  if (values && count == 1) values->assign(static_cast<size_t>(extent), values->front());
  return values;
}

std::optional<Affine> batch_norm(const Graph& g, const Node& n, int64_t channels) {
  std::vector<double> p[4];  // scale, bias, mean, variance
  for (size_t i = 0; i < 4; ++i) {
    auto v = along(g, n.operands[i + 1], 1, 0, channels);
    if (!v) return std::nullopt;
    p[i] = *std::move(v);
  }
  Affine a = Affine::identity(channels);
  for (size_t c = 0; c < a.scale.size(); ++c) {
    a.scale[c] = p[0][c] / std::sqrt(p[3][c] + std::get<graph::ScalarAttr>(n.attr).a);
    a.shift[c] = p[1][c] - p[2][c] * a.scale[c];
  }
  return a;
}

// With the constant on the right (c is the right operand) or on the left.
std::optional<Affine> with_constant(OpKind op, const std::vector<double>& c, bool right) {
  Affine a = Affine::identity(static_cast<int64_t>(c.size()));
  for (size_t i = 0; i < c.size(); ++i) {
    switch (op) {
      case OpKind::add: a.shift[i] = c[i]; break;
      case OpKind::mul: a.scale[i] = c[i]; break;
      case OpKind::sub: right ? a.shift[i] = -c[i] : (a.scale[i] = -1, a.shift[i] = c[i]); break;
      case OpKind::div:
        if (!right) return std::nullopt;
        a.scale[i] = 1 / c[i];
        break;
      default: return std::nullopt;
    }
  }
  return a;
}

}  // namespace

std::optional<Affine> as_affine(const Graph& g, NodeId n, ValueId x, int axis, int64_t extent) {
  const Node& node = g.node(n);
  if (node.results.size() != 1 || !is_float(g.type(node.results[0]).dtype) || !same_shape(g, node.results[0], x))
    return std::nullopt;
  std::optional<Affine> a;
  if (node.op == OpKind::batch_norm && axis == 1 && node.operands[0] == x) {
    a = batch_norm(g, node, extent);
  } else if (node.op == OpKind::neg) {
    a = Affine::identity(extent);
    a->scale.assign(a->scale.size(), -1);
  } else if (node.operands.size() == 2 && node.operands[0] != node.operands[1]) {
    const bool right = node.operands[0] == x;
    const auto c = along(g, node.operands[right ? 1 : 0], g.type(x).rank(), axis, extent);
    if (c && node.operands[right ? 0 : 1] == x) a = with_constant(node.op, *c, right);
  }
  return a && a->finite() ? a : std::nullopt;
}

AffineChain chain_behind(const Graph& g, ValueId v, int axis, int64_t extent) {
  AffineChain chain{Affine::identity(extent), {}, v};
  while (one_use(g, chain.end)) {
    const NodeId n = g.value(chain.end).users[0];
    const auto a = as_affine(g, n, chain.end, axis, extent);
    if (!a) break;
    chain.affine = chain.affine.then(*a);
    chain.nodes.push_back(n);
    chain.end = g.node(n).results[0];
  }
  return chain;
}

AffineChain chain_before(const Graph& g, ValueId v, int axis, int64_t extent) {
  AffineChain chain{Affine::identity(extent), {}, v};
  while (one_use(g, chain.end)) {
    const NodeId n = g.value(chain.end).producer;
    std::optional<Affine> a;
    ValueId from = kNoValue;
    for (ValueId x : g.node(n).operands) {
      if (a || x == kNoValue || g.is_constant(x)) continue;
      a = as_affine(g, n, x, axis, extent);
      from = x;
    }
    if (!a) break;
    chain.affine = a->then(chain.affine);
    chain.nodes.push_back(n);
    chain.end = from;
  }
  return chain;
}

}  // namespace tripod::graph_opt
