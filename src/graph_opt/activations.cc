// Recovery of activation functions from the arithmetic that exporters make of them. All are products x * f(x), so the
// order and the place of the numbers in them do not matter.
#include <cmath>

#include "graph_opt/match.h"

namespace tripod::graph_opt {

namespace {

constexpr double kSqrtHalf = 0.70710678118654752440, kSqrtTwoOverPi = 0.79788456080286535588, kCubic = 0.044715;

bool is_float_value(const Graph& g, ValueId v) { return is_float(g.type(v).dtype); }

// --- f(x), with the nodes noted in m ----------------------------------------------------------------------------------

// v is f(x) + 1; f(x).
ValueId minus_one(Match& m, ValueId v) {
  const auto n = m.step(v, OpKind::add);
  return n ? m.beside_number(*n, 1) : kNoValue;
}

// v is c * x.
bool is_scaled(Match& m, ValueId v, ValueId x, double c) {
  if (v == kNoValue || v == x) return v == x && c == 1;
  const Product p = product_of(m.g, v);
  m.add(p.nodes);
  return p.is_only(x) && about(p.coefficient, c);
}

// 1 + erf(x / sqrt 2)
bool is_gelu_gate(Match& m, ValueId v, ValueId x) {
  const ValueId erf = minus_one(m, v);
  return erf != kNoValue && is_scaled(m, m.through(erf, OpKind::erf), x, kSqrtHalf);
}

// v is c * x * x * x, or with two factors c * x * x.
bool is_power(Match& m, ValueId v, ValueId x, int factors) {
  Product p = product_of(m.g, v);
  m.add(p.nodes);
  for (int i = 0; i < factors; ++i)
    if (!p.take(x)) return false;
  return p.factors.empty() && about(p.coefficient, kCubic);
}

// sqrt(2/pi) * (x + 0.044715 x^3), or with x taken out of the sum.
bool is_gelu_tanh_argument(Match& m, ValueId v, ValueId x) {
  Product p = product_of(m.g, v);
  m.add(p.nodes);
  const bool taken_out = p.take(x);
  if (!about(p.coefficient, kSqrtTwoOverPi) || p.factors.size() != 1) return false;
  const auto sum = m.step(p.factors[0], OpKind::add);
  if (!sum) return false;
  const ValueId power = taken_out ? m.beside_number(*sum, 1) : m.beside(*sum, x);
  return power != kNoValue && is_power(m, power, x, taken_out ? 2 : 3);
}

bool is_gelu_tanh_gate(Match& m, ValueId v, ValueId x) {
  const ValueId tanh = minus_one(m, v);
  const ValueId inner = tanh == kNoValue ? kNoValue : m.through(tanh, OpKind::tanh);
  return inner != kNoValue && is_gelu_tanh_argument(m, inner, x);
}

// clip(x + 3, 0, 6)
bool is_relu6_gate(Match& m, ValueId v, ValueId x) {
  const auto clip = m.step(v, OpKind::clip);
  if (!clip) return false;
  const auto& o = m.g.node(*clip).operands;
  if (!is_number(m.g, o[1], 0) || !is_number(m.g, o[2], 6)) return false;
  const auto l = linear_in(m.g, o[0], x);
  if (!l || l->scale != 1 || l->shift != 3) return false;
  m.add(l->nodes);
  return true;
}

// tanh(softplus(x)), also as tanh(log(1 + exp(x)))
bool is_mish_gate(Match& m, ValueId v, ValueId x) {
  const ValueId s = m.through(v, OpKind::tanh);
  if (s == kNoValue) return false;
  if (m.through(s, OpKind::softplus) == x) return true;
  const ValueId log = m.through(s, OpKind::log);
  const ValueId exp = log == kNoValue ? kNoValue : minus_one(m, log);
  return exp != kNoValue && m.through(exp, OpKind::exp) == x;
}

// --- x * f(x) ---------------------------------------------------------------------------------------------------------

bool finish(Rewriter& r, const Match& m, OpKind op, ValueId x, Attr attr = graph::NoAttr{}) {
  const ValueId root = r.result(m.nodes[0]);
  if (!same_shape(r.g, root, x) || !m.closed() || !r.begin({m.nodes.rbegin(), m.nodes.rend()})) return false;
  r.replace(root, r.g.add(op, {x}, std::move(attr)));
  return true;
}

using Gate = bool (*)(Match&, ValueId, ValueId);
struct Form {
  double coefficient;
  Gate gate;
  OpKind op;
};
constexpr Form kForms[] = {
    {0.5, is_gelu_gate, OpKind::gelu},
    {0.5, is_gelu_tanh_gate, OpKind::gelu_tanh},
    {1.0 / 6, is_relu6_gate, OpKind::hard_swish},
    {1, is_mish_gate, OpKind::mish},
};

// x * sigmoid(a * x)
bool as_silu(Rewriter& r, const Product& p, ValueId gate, ValueId x) {
  Match m(r.g);
  m.add(p.nodes);
  const ValueId s = m.through(gate, OpKind::sigmoid);
  if (s == kNoValue || p.coefficient != 1) return false;
  double a = 1;
  if (s != x) {
    const Product inner = product_of(r.g, s);
    if (!inner.is_only(x)) return false;
    m.add(inner.nodes);
    a = inner.coefficient;
  }
  return finish(r, m, OpKind::silu, x, graph::ScalarAttr{a, 0, 0, 0});
}

// x * hard_sigmoid(x) with slope 1/6
bool as_hard_swish(Rewriter& r, const Product& p, ValueId gate, ValueId x) {
  Match m(r.g);
  m.add(p.nodes);
  const auto n = m.step(gate, OpKind::hard_sigmoid);
  if (!n || r.g.node(*n).operands[0] != x || p.coefficient != 1) return false;
  const auto& a = r.g.attr<graph::ScalarAttr>(*n);
  return about(a.a, 1.0 / 6) && a.b == 0.5 && finish(r, m, OpKind::hard_swish, x);
}

bool gated(Rewriter& r, NodeId n) {
  const OpKind op = r.g.node(n).op;
  if ((op != OpKind::mul && op != OpKind::div) || !is_float_value(r.g, r.result(n))) return false;
  const Product p = product_of(r.g, r.result(n));
  if (p.factors.size() != 2) return false;
  for (int side = 0; side < 2; ++side) {
    const ValueId x = p.factors[static_cast<size_t>(side)], gate = p.factors[static_cast<size_t>(1 - side)];
    if (as_silu(r, p, gate, x) || as_hard_swish(r, p, gate, x)) return true;
    for (const Form& f : kForms) {
      Match m(r.g);
      m.add(p.nodes);
      if (about(p.coefficient, f.coefficient) && f.gate(m, gate, x)) return finish(r, m, f.op, x);
    }
  }
  return false;
}

// --- others -----------------------------------------------------------------------------------------------------------

// 1 + exp(-x); x.
ValueId sigmoid_denominator(Match& m, ValueId v) {
  const ValueId exp = minus_one(m, v);
  const ValueId negative = exp == kNoValue ? kNoValue : m.through(exp, OpKind::exp);
  return negative == kNoValue ? kNoValue : m.through(negative, OpKind::neg);
}

// 1 / (1 + exp(-x)) is sigmoid; y / (1 + exp(-y)) is silu.
bool quotient(Rewriter& r, NodeId n) {
  const Node& node = r.g.node(n);
  if (node.op != OpKind::reciprocal && node.op != OpKind::div) return false;
  Match m(r.g);
  m.nodes = {n};
  const ValueId x = sigmoid_denominator(m, node.operands.back());
  if (x == kNoValue) return false;
  if (node.op == OpKind::reciprocal || is_number(r.g, node.operands[0], 1)) return finish(r, m, OpKind::sigmoid, x);
  return node.operands[0] == x && finish(r, m, OpKind::silu, x, graph::ScalarAttr{1, 0, 0, 0});
}

// clip(a*x + b, 0, hi) * c with hi * c = 1.
bool as_hard_sigmoid(Rewriter& r, NodeId n) {
  if (!is_float_value(r.g, r.result(n))) return false;
  Match m(r.g);
  m.nodes = {n};
  double c = 1;
  ValueId clip = r.result(n);
  const OpKind op = r.g.node(n).op;
  if (op == OpKind::mul || op == OpKind::div) {
    const auto w = with_number(r.g, n);
    if (!w || !r.g.is(w->x, OpKind::clip)) return false;
    c = op == OpKind::mul ? w->number : 1 / w->number;
    clip = w->x;
    m.nodes.push_back(producer_of(r.g, clip));
  } else if (op != OpKind::clip) {
    return false;
  }
  const auto& o = r.g.producer(clip).operands;
  const auto hi = r.g.scalar_value(o[2]);
  if (!is_number(r.g, o[1], 0) || !hi || !about(*hi * c, 1)) return false;
  // As far as nobody else reads what lies in between.
  Linear l;
  ValueId x = o[0];
  for (ValueId next = x; one_use(r.g, next);) {
    const auto w = with_number(r.g, producer_of(r.g, next));
    const auto step = w ? linear_in(r.g, o[0], w->x) : std::nullopt;
    if (!step) break;
    l = *step;
    next = x = w->x;
  }
  if (l.nodes.empty()) return false;  // a plain clip
  m.add(l.nodes);
  return finish(r, m, OpKind::hard_sigmoid, x, graph::ScalarAttr{l.scale * c, l.shift * c, 0, 0});
}

// max(x, a*x) with 0 < a < 1
bool as_leaky_relu(Rewriter& r, NodeId n) {
  if (r.g.node(n).op != OpKind::maximum || !is_float_value(r.g, r.result(n))) return false;
  for (int side = 0; side < 2; ++side) {
    const ValueId x = r.g.node(n).operands[static_cast<size_t>(side)], scaled = r.g.node(n).operands[static_cast<size_t>(1 - side)];
    const auto w = r.g.is(scaled, OpKind::mul) ? with_number(r.g, producer_of(r.g, scaled)) : std::nullopt;
    if (!w || w->x != x || !(w->number > 0) || !(w->number < 1)) continue;
    Match m(r.g);
    m.nodes = {n, producer_of(r.g, scaled)};
    return finish(r, m, OpKind::leaky_relu, x, graph::ScalarAttr{w->number, 0, 0, 0});
  }
  return false;
}

}  // namespace

void activations(Rewriter& r) { apply_rules(r, {quotient, as_hard_sigmoid, gated, as_leaky_relu}); }

}  // namespace tripod::graph_opt
