// Algebra on elementwise ops: what does nothing goes, what can be written in one way is.
//
// Every rule keeps the bits of the result, except that x + 0 keeps a negative zero. Canonical form: x - c is x + (-c),
// x / 2^k is x * 2^-k, powers with small exponents are products and roots, bounds are one clip or a relu.
#include <cmath>

#include "base/float_bits.h"
#include "graph_opt/pass.h"

namespace tripod::graph_opt {

namespace {

OpKind op(const Rewriter& r, NodeId n) { return r.g.node(n).op; }
bool is_float_node(const Rewriter& r, NodeId n) { return is_float(r.g.type(r.result(n)).dtype); }

// x in place of the result of n, when x has its shape.
bool becomes(Rewriter& r, NodeId n, ValueId x) {
  if (!same_shape(r.g, r.result(n), x) || r.g.type(r.result(n)).dtype != r.g.type(x).dtype) return false;
  if (!r.begin({n})) return false;
  r.replace(r.result(n), x);
  return true;
}

bool identity(Rewriter& r, NodeId n) {
  return op(r, n) == OpKind::identity && becomes(r, n, r.g.node(n).operands[0]);
}

// --- casts ----------------------------------------------------------------------------------------------------------

// Every value of `from` is a value of `to`.
bool holds(DType to, DType from) {
  if (to == from || from == DType::b1) return true;
  if (info(to).bits == 0 || info(from).bits == 0) return false;
  if (is_float(from)) return is_float(to) && (to == DType::f64 || (to == DType::f32 && info(from).bits <= 16));
  if (is_float(to)) {
    const int mantissa = to == DType::f64 ? 53 : to == DType::f32 ? 24 : to == DType::f16 ? 11 : 0;
    return info(from).bits - is_signed(from) <= mantissa;
  }
  if (!is_int(to)) return false;
  return is_signed(from) ? is_signed(to) && info(to).bits >= info(from).bits
                         : info(to).bits - is_signed(to) >= info(from).bits;
}

// cast(cast(x, a), b) is cast(x, b) when a holds x, and the step from a to b is not another kind of conversion.
bool cast_of_cast(Rewriter& r, NodeId n) {
  if (op(r, n) != OpKind::cast) return false;
  const ValueId x = r.g.node(n).operands[0];
  const graph::CastAttr to = r.g.attr<graph::CastAttr>(n);
  if (to.to == r.g.type(x).dtype) return becomes(r, n, x);
  if (!r.g.is(x, OpKind::cast)) return false;
  const ValueId y = r.g.producer(x).operands[0];
  const DType from = r.g.type(y).dtype, middle = r.g.type(x).dtype;
  const bool same_kind = is_float(from) == is_float(middle) || is_float(to.to) || holds(to.to, from);
  if (!holds(middle, from) || !same_kind || !r.begin({n, producer_of(r.g, x)})) return false;
  r.replace(r.result(n), to.to == from ? y : r.g.add(OpKind::cast, {y}, to));
  return true;
}

// --- one operand ----------------------------------------------------------------------------------------------------

bool involution(Rewriter& r, NodeId n) {
  const OpKind k = op(r, n);
  if (k != OpKind::neg && k != OpKind::logical_not && k != OpKind::bit_not) return false;
  const ValueId x = r.g.node(n).operands[0];
  return r.g.is(x, k) && becomes(r, n, r.g.producer(x).operands[0]);
}

bool idempotent(Rewriter& r, NodeId n) {
  const OpKind k = op(r, n);
  if (k != OpKind::abs && k != OpKind::relu && k != OpKind::ceil && k != OpKind::floor && k != OpKind::round &&
      k != OpKind::sign)
    return false;
  const ValueId x = r.g.node(n).operands[0];
  return r.g.is(x, k) && becomes(r, n, x);
}

// --- neutral operands -----------------------------------------------------------------------------------------------

bool is_neutral(OpKind k, double number) {
  switch (k) {
    case OpKind::add:
    case OpKind::sub:
    case OpKind::logical_or:
    case OpKind::logical_xor:
    case OpKind::bit_or:
    case OpKind::bit_xor:
    case OpKind::shift_left:
    case OpKind::shift_right: return number == 0;
    case OpKind::mul:
    case OpKind::div:
    case OpKind::logical_and:
    case OpKind::pow: return number == 1;
    default: return false;
  }
}

bool neutral(Rewriter& r, NodeId n) {
  const auto w = with_number(r.g, n);
  return w && is_neutral(op(r, n), w->number) && becomes(r, n, w->x);
}

bool constant_condition(Rewriter& r, NodeId n) {
  if (op(r, n) != OpKind::where) return false;
  const auto condition = r.g.scalar_value(r.g.node(n).operands[0]);
  if (condition) return becomes(r, n, r.g.node(n).operands[*condition != 0 ? 1 : 2]);
  const ValueId a = r.g.node(n).operands[1];
  return a == r.g.node(n).operands[2] && becomes(r, n, a);
}

// --- one way to write it --------------------------------------------------------------------------------------------

// The one constant of a new node that stands for n.
ValueId number_like(Rewriter& r, ValueId x, double v) { return r.g.scalar(r.g.type(x).dtype, v); }

// -c, by its bits. A `neg` node would be taken for a subtraction again before it is folded.
ValueId negated(Rewriter& r, ValueId c) {
  const Type t = r.g.type(c);
  std::vector<std::byte> bytes(r.g.bytes(c).data, r.g.bytes(c).data + r.g.bytes(c).size);
  const size_t size = static_cast<size_t>(info(t.dtype).bits) / 8;
  for (size_t last = size - 1; last < bytes.size(); last += size) bytes[last] ^= std::byte{0x80};
  return r.g.add_constant(t, own_bytes(std::move(bytes)));
}

bool sub_of_constant(Rewriter& r, NodeId n) {
  if (op(r, n) != OpKind::sub || !is_float_node(r, n) || info(r.g.type(r.result(n)).dtype).bits < 16) return false;
  const ValueId x = r.g.node(n).operands[0], c = r.g.node(n).operands[1];
  if (!r.g.is_constant(c) || r.g.is_constant(x) || !r.begin({n})) return false;
  r.replace(r.result(n), r.g.add(OpKind::add, {x, negated(r, c)}));
  return true;
}

bool div_by_power_of_two(Rewriter& r, NodeId n) {
  if (op(r, n) != OpKind::div || !is_float_node(r, n)) return false;
  const auto w = with_number(r.g, n);
  int exponent = 0;
  if (!w || std::fabs(std::frexp(w->number, &exponent)) != 0.5 || std::abs(exponent) > 14) return false;
  const ValueId c = r.g.node(n).operands[1];
  if (!static_size(r.g.type(c)) || *static_size(r.g.type(c)) != 1 || !r.begin({n})) return false;
  const ValueId inverse = r.g.reshape(number_like(r, w->x, 1 / w->number), r.g.type(c).shape);
  r.replace(r.result(n), r.g.add(OpKind::mul, {w->x, inverse}));
  return true;
}

bool sign_of_operand(Rewriter& r, NodeId n) {
  const Node& node = r.g.node(n);
  if (node.op == OpKind::mul && is_float_node(r, n)) {
    const auto w = with_number(r.g, n);
    if (!w || w->number != -1 || !same_shape(r.g, w->x, r.result(n)) || !r.begin({n})) return false;
    r.replace(r.result(n), r.g.add(OpKind::neg, {w->x}));
    return true;
  }
  if ((node.op != OpKind::add && node.op != OpKind::sub) || !is_float_node(r, n)) return false;
  const ValueId a = node.operands[0], b = node.operands[1];
  if (r.g.is(b, OpKind::neg)) {  // a + -b, a - -b
    if (!r.begin({n, producer_of(r.g, b)})) return false;
    const ValueId x = r.g.producer(b).operands[0];
    r.replace(r.result(n), r.g.add(node.op == OpKind::add ? OpKind::sub : OpKind::add, {a, x}));
    return true;
  }
  if (node.op != OpKind::add || !r.g.is(a, OpKind::neg) || r.g.is_constant(b)) return false;
  if (!r.begin({n, producer_of(r.g, a)})) return false;
  r.replace(r.result(n), r.g.add(OpKind::sub, {b, r.g.producer(a).operands[0]}));
  return true;
}

// What the kernels compute for these exponents anyway (lower/formulas.cc).
bool small_power(Rewriter& r, NodeId n) {
  if (op(r, n) != OpKind::pow || !is_float_node(r, n)) return false;
  const auto w = with_number(r.g, n);
  if (!w || !same_shape(r.g, w->x, r.result(n))) return false;
  const double e = w->number;
  if (e != 2 && e != 0.5 && e != -1 && e != -0.5) return false;
  if (!r.begin({n})) return false;
  ValueId y = w->x;
  if (e == 2) y = r.g.add(OpKind::mul, {y, y});
  if (e == 0.5 || e == -0.5) y = r.g.add(OpKind::sqrt, {y});
  if (e < 0) y = r.g.add(OpKind::reciprocal, {y});
  r.replace(r.result(n), y);
  return true;
}

// max(x, 0), clip(x, 0, none): relu. clip without bounds: x.
bool as_relu(Rewriter& r, NodeId n) {
  const Node& node = r.g.node(n);
  if (node.op == OpKind::maximum) {
    const auto w = with_number(r.g, n);
    if (!w || w->number != 0 || !same_shape(r.g, w->x, r.result(n)) || !r.begin({n})) return false;
    r.replace(r.result(n), r.g.add(OpKind::relu, {w->x}));
    return true;
  }
  if (node.op != OpKind::clip || node.operands[2] != kNoValue) return false;
  const ValueId x = node.operands[0], lo = node.operands[1];
  if (lo == kNoValue) return becomes(r, n, x);
  if (!is_number(r.g, lo, 0) || !r.begin({n})) return false;
  r.replace(r.result(n), r.g.add(OpKind::relu, {x}));
  return true;
}

// min(max(x, lo), hi) and min(relu(x), hi): clip, whose upper bound wins too.
bool as_clip(Rewriter& r, NodeId n) {
  if (op(r, n) != OpKind::minimum) return false;
  const auto hi = with_number(r.g, n);
  if (!hi || !same_shape(r.g, hi->x, r.result(n)) || !one_use(r.g, hi->x)) return false;
  const NodeId inner = producer_of(r.g, hi->x);
  double lo = 0;
  ValueId x = kNoValue;
  if (op(r, inner) == OpKind::relu) x = r.g.node(inner).operands[0];
  if (const auto w = with_number(r.g, inner); w && op(r, inner) == OpKind::maximum) x = w->x, lo = w->number;
  if (x == kNoValue || !same_shape(r.g, x, r.result(n)) || !r.begin({n, inner})) return false;
  r.replace(r.result(n), r.g.add(OpKind::clip, {x, number_like(r, x, lo), number_like(r, x, hi->number)}));
  return true;
}

// --- stretched operands ---------------------------------------------------------------------------------------------

// Dim d of the result, counted from the last one.
Expr from_end(const Shape& s, size_t d) { return d < s.size() ? s[s.size() - 1 - d] : Expr{}; }

// An elementwise op stretches its operands itself: a broadcast in front of it goes when the others keep the shape.
bool broadcast_operand(Rewriter& r, NodeId n) {
  const Node& node = r.g.node(n);
  if (!graph::has(node.op, graph::kElementwise) || node.operands.size() < 2 || node.op == OpKind::clip ||
      node.op == OpKind::quantize || node.op == OpKind::dequantize)
    return false;
  const Shape& to = r.g.type(r.result(n)).shape;
  for (size_t slot = 0; slot < node.operands.size(); ++slot) {
    if (!r.g.is(node.operands[slot], OpKind::broadcast)) continue;
    const ValueId x = r.g.producer(node.operands[slot]).operands[0];
    bool kept = true;
    for (size_t d = 0; d < to.size(); ++d) {
      const Expr want = from_end(to, d), have = from_end(r.g.type(x).shape, d);
      bool given = have == want;
      for (size_t i = 0; i < node.operands.size(); ++i)
        given = given || (i != slot && from_end(r.g.type(node.operands[i]).shape, d) == want);
      kept = kept && given && (!have || have == want || have.is_const(1));
    }
    if (!kept || !r.begin({n, producer_of(r.g, node.operands[slot])})) continue;
    r.g.node(n).origins = r.g.origins();
    r.set_operand(n, static_cast<int>(slot), x);
    return true;
  }
  return false;
}

}  // namespace

void algebra(Rewriter& r) {
  apply_rules(r, {identity, cast_of_cast, involution, idempotent, neutral, constant_condition, sub_of_constant,
                  div_by_power_of_two, sign_of_operand, small_power, as_relu, as_clip, broadcast_operand});
}

}  // namespace tripod::graph_opt
