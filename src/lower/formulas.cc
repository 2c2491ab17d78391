// The scalar meaning of every elementwise op. Operands come in compute type (f16 and bf16 as f32).
#include <cmath>
#include <limits>
#include <unordered_map>

#include "loop/math_f8.h"
#include "lower/lower.h"

namespace tripod::lower {

using graph::OpKind;
using graph::ScalarAttr;
using loop::constant;
using loop::make;
using loop::Op;
using loop::select;

namespace {

using Args = std::vector<Expr>;
using Formula = Expr (*)(const graph::Node& n, const Args& a, DType t);

Expr like(const Expr& e, double v) { return constant(e->dtype, v); }
const ScalarAttr& scalars(const graph::Node& n) { return std::get<ScalarAttr>(n.attr); }

Expr positive(const Expr& x) { return loop::lt(like(x, 0), x); }
Expr negative(const Expr& x) { return loop::lt(x, like(x, 0)); }
Expr sigmoid(const Expr& x) { return make(Op::sigmoid, {x}); }
Expr exp(const Expr& x) { return make(Op::exp, {x}); }
Expr expm1(const Expr& x) { return exp(x) - like(x, 1); }

// max(x, 0) + log1p(exp(-|x|)): no overflow for large x, no cancellation for small ones.
Expr softplus(const Expr& x) {
  return loop::max(x, like(x, 0)) + make(Op::log1p, {exp(-make(Op::abs, {x}))});
}

// x < lo ? lo : x > hi ? hi : x keeps NaN.
Expr clamp(const Expr& x, const Expr& lo, const Expr& hi) {
  Expr r = x;
  if (lo) r = loop::max(lo, r);
  if (hi) r = loop::min(hi, r);
  return r;
}

// Python's mod: the result takes the sign of the divisor.
Expr floor_mod(const Expr& a, const Expr& b) {
  const Expr r = make(Op::rem, {a, b});
  if (!is_signed(a->dtype)) return r;
  const Expr zero = like(r, 0);
  const Expr differ = make(Op::bit_and, {loop::ne(r, zero), loop::ne(negative(r), negative(b))});
  return select(differ, r + b, r);
}

// fmod for floats: exact through the quotient only while it is below 2^24 (2^53); ONNX's float fmod is used on such.
Expr float_mod(const Expr& a, const Expr& b, bool floor) {
  const Expr q = make(floor ? Op::floor : Op::trunc, {a / b});
  const Expr r = loop::fma(-q, b, a);
  // An infinite divisor leaves the dividend; with floor, a dividend of the other sign gives the divisor.
  const Expr infinite = loop::eq(make(Op::abs, {b}), like(b, std::numeric_limits<double>::infinity()));
  const Expr other_sign = make(Op::bit_or, {make(Op::bit_and, {negative(a), positive(b)}), make(Op::bit_and, {positive(a), negative(b)})});
  const Expr whole = make(Op::bit_and, {other_sign, loop::lt(make(Op::abs, {a}), make(Op::abs, {b}))});
  return select(infinite, floor ? select(whole, b, a) : a, r);
}

// Integer power by squaring would need a loop; exponents are small in practice, so the value goes through f64, exact
// below 2^53, which covers what the type can hold for |result| < 2^53.
Expr power(const Expr& a, const Expr& b) {
  const DType f = is_float(a->dtype) ? a->dtype : DType::f64;
  const Expr e = loop::cast(b, f);
  if (e->op == Op::constant) {
    const double k = loop::constant_value(e);
    const Expr x = loop::cast(a, f);
    if (k == 2) return loop::cast(x * x, a->dtype);
    if (k == 1) return a;
    if (k == 0.5) return loop::cast(make(Op::sqrt, {x}), a->dtype);
    if (k == 3) return loop::cast(x * x * x, a->dtype);
    if (k == -1) return loop::cast(like(x, 1) / x, a->dtype);
  }
  const Expr p = make(Op::pow, {loop::cast(a, f), e});
  return is_float(a->dtype) ? p : loop::cast(make(Op::rint, {p}), a->dtype);
}

double lowest(DType t) { return is_signed(t) ? -std::ldexp(1.0, info(t).bits - 1) : 0; }
double highest(DType t) { return std::ldexp(1.0, info(t).bits - (is_signed(t) ? 1 : 0)) - 1; }

// round(x / scale) + zero point, saturated to the result type. Floats (f8) only divide and convert.
Expr quantize(const graph::Node& n, const Args& a, DType) {
  const DType to = std::get<graph::CastAttr>(n.attr).to;
  Expr x = a[0] / loop::cast(a[1], a[0]->dtype);
  if (is_float(to)) return x;
  x = make(Op::rint, {x});
  if (a.size() > 2 && a[2]) x = x + loop::cast(a[2], x->dtype);
  return loop::cast(clamp(x, like(x, lowest(to)), like(x, highest(to))), to);
}

Expr dequantize(const graph::Node&, const Args& a, DType t) {
  const DType wide = is_int(a[0]->dtype) ? DType::i32 : a[0]->dtype;
  Expr x = loop::cast(a[0], wide);
  if (a.size() > 2 && a[2]) x = x - loop::cast(a[2], wide);
  return loop::cast(x, t) * loop::cast(a[1], t);
}

#define UNARY(op) [](const graph::Node&, const Args& a, DType) { return make(Op::op, {a[0]}); }
#define BINARY(op) [](const graph::Node&, const Args& a, DType) { return make(Op::op, {a[0], a[1]}); }
#define FORMULA [](const graph::Node& n, const Args& a, DType t) -> Expr
#define UNUSED (void)n, (void)a, (void)t

const std::unordered_map<OpKind, Formula>& table() {
  static const std::unordered_map<OpKind, Formula> kTable = {
      {OpKind::identity, FORMULA { UNUSED; return a[0]; }},
      {OpKind::cast, FORMULA {
         UNUSED;
         const graph::CastAttr& c = std::get<graph::CastAttr>(n.attr);
         const bool clipped = c.saturate || !loop::is_f8(c.to);
         return clipped ? loop::cast(a[0], t) : loop::encode_f8_unsaturated(c.to, a[0]);
       }},
      {OpKind::neg, UNARY(neg)}, {OpKind::abs, UNARY(abs)}, {OpKind::sqrt, UNARY(sqrt)},
      {OpKind::ceil, UNARY(ceil)}, {OpKind::floor, UNARY(floor)}, {OpKind::round, UNARY(rint)},
      {OpKind::exp, UNARY(exp)}, {OpKind::log, UNARY(log)}, {OpKind::sin, UNARY(sin)}, {OpKind::cos, UNARY(cos)},
      {OpKind::tan, UNARY(tan)}, {OpKind::asin, UNARY(asin)}, {OpKind::acos, UNARY(acos)}, {OpKind::atan, UNARY(atan)},
      {OpKind::sinh, UNARY(sinh)}, {OpKind::cosh, UNARY(cosh)}, {OpKind::tanh, UNARY(tanh)},
      {OpKind::asinh, UNARY(asinh)}, {OpKind::acosh, UNARY(acosh)}, {OpKind::atanh, UNARY(atanh)},
      {OpKind::erf, UNARY(erf)}, {OpKind::sigmoid, UNARY(sigmoid)},
      {OpKind::logical_not, UNARY(bit_not)}, {OpKind::bit_not, UNARY(bit_not)},
      {OpKind::add, BINARY(add)}, {OpKind::sub, BINARY(sub)}, {OpKind::mul, BINARY(mul)}, {OpKind::div, BINARY(div)},
      {OpKind::minimum, BINARY(min)}, {OpKind::maximum, BINARY(max)},
      {OpKind::equal, BINARY(eq)}, {OpKind::less, BINARY(lt)}, {OpKind::less_equal, BINARY(le)},
      {OpKind::logical_and, BINARY(bit_and)}, {OpKind::logical_or, BINARY(bit_or)}, {OpKind::logical_xor, BINARY(bit_xor)},
      {OpKind::bit_and, BINARY(bit_and)}, {OpKind::bit_or, BINARY(bit_or)}, {OpKind::bit_xor, BINARY(bit_xor)},
      {OpKind::shift_left, BINARY(shl)}, {OpKind::shift_right, BINARY(shr)},
      {OpKind::reciprocal, FORMULA { UNUSED; return like(a[0], 1) / a[0]; }},
      {OpKind::relu, FORMULA { UNUSED; return loop::max(like(a[0], 0), a[0]); }},
      {OpKind::sign, FORMULA {
         UNUSED;
         const Expr up = select(positive(a[0]), like(a[0], 1), is_float(a[0]->dtype) ? a[0] : like(a[0], 0));
         return is_signed(a[0]->dtype) ? select(negative(a[0]), like(a[0], -1), up) : up;
       }},
      {OpKind::silu, FORMULA {
         UNUSED;
         const double alpha = scalars(n).a;
         return a[0] * sigmoid(alpha == 1 ? a[0] : a[0] * like(a[0], alpha));
       }},
      {OpKind::gelu, UNARY(gelu)}, {OpKind::gelu_tanh, UNARY(gelu_tanh)},
      {OpKind::mish, FORMULA { UNUSED; return a[0] * make(Op::tanh, {softplus(a[0])}); }},
      {OpKind::softplus, FORMULA { UNUSED; return softplus(a[0]); }},
      {OpKind::softsign, FORMULA { UNUSED; return a[0] / (like(a[0], 1) + make(Op::abs, {a[0]})); }},
      {OpKind::hard_swish, FORMULA {
         UNUSED;
         const Expr gate = clamp(loop::fma(a[0], like(a[0], 1.0 / 6), like(a[0], 0.5)), like(a[0], 0), like(a[0], 1));
         return a[0] * gate;
       }},
      {OpKind::hard_sigmoid, FORMULA {
         UNUSED;
         return clamp(loop::fma(a[0], like(a[0], scalars(n).a), like(a[0], scalars(n).b)), like(a[0], 0), like(a[0], 1));
       }},
      {OpKind::leaky_relu, FORMULA { UNUSED; return select(negative(a[0]), a[0] * like(a[0], scalars(n).a), a[0]); }},
      {OpKind::elu, FORMULA { UNUSED; return select(negative(a[0]), like(a[0], scalars(n).a) * expm1(a[0]), a[0]); }},
      {OpKind::selu, FORMULA {
         UNUSED;
         const Expr low = like(a[0], scalars(n).a) * expm1(a[0]);
         return like(a[0], scalars(n).b) * select(positive(a[0]), a[0], low);
       }},
      {OpKind::celu, FORMULA {
         UNUSED;
         const Expr alpha = like(a[0], scalars(n).a);
         return select(negative(a[0]), alpha * expm1(a[0] / alpha), a[0]);
       }},
      {OpKind::thresholded_relu, FORMULA {
         UNUSED;
         return select(loop::lt(like(a[0], scalars(n).a), a[0]), a[0], like(a[0], 0));  // NaN is not above alpha
       }},
      {OpKind::shrink, FORMULA {
         UNUSED;
         const Expr lambd = like(a[0], scalars(n).a), bias = like(a[0], scalars(n).b);
         const Expr high = select(loop::lt(lambd, a[0]), a[0] - bias, like(a[0], 0));
         return is_signed(a[0]->dtype) ? select(loop::lt(a[0], like(a[0], -scalars(n).a)), a[0] + bias, high) : high;
       }},
      {OpKind::is_nan, FORMULA { UNUSED; return loop::ne(a[0], a[0]); }},
      {OpKind::is_inf, FORMULA {
         UNUSED;
         const double inf = std::numeric_limits<double>::infinity();
         Expr r = constant(DType::b1, 0);
         if (scalars(n).a != 0) r = make(Op::bit_or, {r, loop::eq(a[0], like(a[0], -inf))});
         if (scalars(n).b != 0) r = make(Op::bit_or, {r, loop::eq(a[0], like(a[0], inf))});
         return r;
       }},
      {OpKind::mod, FORMULA { UNUSED; return is_float(a[0]->dtype) ? float_mod(a[0], a[1], true) : floor_mod(a[0], a[1]); }},
      {OpKind::fmod, FORMULA { UNUSED; return is_float(a[0]->dtype) ? float_mod(a[0], a[1], false) : make(Op::rem, {a[0], a[1]}); }},
      {OpKind::pow, FORMULA { UNUSED; return power(a[0], a[1]); }},
      {OpKind::prelu, FORMULA { UNUSED; return is_signed(a[0]->dtype) ? select(negative(a[0]), a[0] * a[1], a[0]) : a[0]; }},
      {OpKind::where, FORMULA { UNUSED; return select(a[0], a[1], a[2]); }},
      {OpKind::clip, FORMULA { UNUSED; return clamp(a[0], a[1], a[2]); }},
      {OpKind::quantize, quantize},
      {OpKind::dequantize, dequantize},
  };
  return kTable;
}

}  // namespace

Expr formula(const graph::Node& n, const std::vector<Expr>& operands, DType result) {
  auto it = table().find(n.op);
  TRIPOD_CHECK(it != table().end(), std::string("no formula for ") + std::string(graph::info(n.op).text));
  return it->second(n, operands, result);
}

}  // namespace tripod::lower
