// sin, cos, tan and their inverses.
#include "loop/math_builder.h"
#include "loop/math_tables.h"

namespace tripod::loop::math {
namespace {

constexpr Real kF32(DType::f32), kF64(DType::f64);

// |x| == quadrant * pi/2 + hi + lo with |hi| <= pi/4 (1 + tiny). `quadrant` is a whole number as a float of x's type.
struct Reduced {
  Expr quadrant, hi, lo;
};

// f32: x times 2/pi in pieces of 29 bits, each product exact in f64 and taken modulo 4 before they are added: all
// digits that count for every f32, without a table indexed by the exponent. hi is an f64, lo is empty.
Reduced reduce_f32(const Expr& x) {
  const Real& d = kF64;
  const Expr a = cast(kF32.abs(x), DType::f64);
  std::vector<Expr> turns;  // quarter turns, each in [-2, 2]
  for (double piece : tables::kTwoOverPi) {
    const Expr p = a * d.num(piece);
    turns.push_back(fma(rint(p * d.num(0.25)), d.num(-4), p));
  }
  Expr tail = turns.back();
  for (size_t i = turns.size() - 1; i-- > 2;) tail = turns[i] + tail;
  const Expr q = rint(turns[0] + (turns[1] + tail));
  const Expr r = ((turns[0] - q) + turns[1]) + tail;
  return {cast(q, DType::f32), r * d.num(tables::kHalfPi[0]), nullptr};
}

// f64: pi/2 in three parts. The first difference is exact up to |x| = 2^30; the result has 2 ulp up to there, loses
// digits beyond, and is only some number of the right range in the end.
Reduced reduce_f64(const Expr& x) {
  const Real& d = kF64;
  const Expr a = d.abs(x);
  const Expr n = rint(a * d.num(0.6366197723675814));
  const Expr first = max(min(fma(n, d.num(-tables::kHalfPi[0]), a), d.num(1)), d.num(-1));
  const Expr w = n * d.num(tables::kHalfPi[1]);
  const Expr w_lo = fma(n, d.num(tables::kHalfPi[1]), -w);
  const Expr hi = first - w;
  // The error of that difference whichever of the two is larger, then the parts that are left.
  const Expr b = first - hi;
  const Expr error = (first - (hi + b)) + (b - w);
  const Expr lo = error - fma(n, d.num(tables::kHalfPi[2]), w_lo);
  return {n, hi + lo, lo - ((hi + lo) - hi)};
}

// The number's lowest two bits.
Expr low_bits(const Real& f, const Expr& quadrant, int64_t plus) {
  return f.to_bits(quadrant + f.magic()) + f.whole(plus);
}
Expr is_odd(const Real& f, const Expr& bits) {
  return ne(make(Op::bit_and, {bits, f.whole(1)}), f.whole(0));
}
// The sign bit where the second bit is set.
Expr sign_of_half_turn(const Real& f, const Expr& bits) {
  return f.shl(make(Op::bit_and, {bits, f.whole(2)}), f.is_f32() ? 30 : 62);
}

// The two parts of each sum that are left: their rounded sum is the result.
Pair sin_poly(const Real& f, const Expr& r, const Expr& lo) {
  const Expr z = r * r, p = f.poly(tables::kSinF32, tables::kSinF64, z);
  return {r, lo ? fma(r * z, p, lo) : r * z * p};
}

Pair cos_poly(const Real& f, const Expr& r, const Expr& lo) {
  const Expr z = r * r, p = f.poly(tables::kCosF32, tables::kCosF64, z);
  if (!lo) return {f.num(1), z * fma(z, p, f.num(-0.5))};
  // 1 - z/2 is rounded; its error goes to the small terms.
  const Expr half = z * f.num(0.5), w = f.num(1) - half;
  return {w, ((f.num(1) - w) - half) + fma(z * z, p, -(r * lo))};
}

Expr total(const Pair& p) { return p.hi + p.lo; }

struct SinCos {
  Expr sin, cos, quadrant;
};
SinCos sin_cos(const Real& f, const Expr& x) {
  if (f.is_f32()) {
    const Reduced r = reduce_f32(x);
    const Expr y = cast(r.hi, DType::f32);
    return {total(sin_poly(f, y, nullptr)), total(cos_poly(f, y, nullptr)), r.quadrant};
  }
  const Reduced r = reduce_f64(x);
  return {total(sin_poly(f, r.hi, r.lo)), total(cos_poly(f, r.hi, r.lo)), r.quadrant};
}

// pi/2 as hi + lo of type f
Pair half_pi(const Real& f) {
  const double hi = f.is_f32() ? static_cast<float>(tables::kHalfPi[0]) : tables::kHalfPi[0];
  return {f.num(hi), f.num(f.is_f32() ? tables::kHalfPi[0] - hi : tables::kHalfPi[1])};
}

}  // namespace

Expr sin(const Real& f, const Expr& x) {
  const SinCos s = sin_cos(f, x);
  const Expr bits = low_bits(f, s.quadrant, 0);
  const Expr r = f.flip_sign(select(is_odd(f, bits), s.cos, s.sin), sign_of_half_turn(f, bits));
  return f.flip_sign(r, f.sign_of(x));
}

Expr cos(const Real& f, const Expr& x) {
  const SinCos s = sin_cos(f, x);
  const Expr bits = low_bits(f, s.quadrant, 1);
  return f.flip_sign(select(is_odd(f, bits), s.cos, s.sin), sign_of_half_turn(f, bits));
}

// sin / cos, or -cos / sin in odd quadrants; for f32 in f64, where the quotient's error is nothing.
Expr tan(const Real& f, const Expr& x) {
  const Reduced r = f.is_f32() ? reduce_f32(x) : reduce_f64(x);
  const Pair s = sin_poly(kF64, r.hi, r.lo), c = cos_poly(kF64, r.hi, r.lo);
  const Expr odd = is_odd(kF64, low_bits(kF64, cast(r.quadrant, DType::f64), 0));
  const Expr sin = total(s), cos = total(c);
  const Expr above = select(odd, -cos, sin), below = select(odd, sin, cos);
  const Expr q = above / below;
  if (f.is_f32()) return f.flip_sign(cast(q, f.t), f.sign_of(x));
  // What the two sums and the quotient have lost.
  const Expr sin_lost = s.lo - (sin - s.hi), cos_lost = c.lo - (cos - c.hi);
  const Expr rest = fma(-q, below, above) + (select(odd, -cos_lost, sin_lost) - q * select(odd, sin_lost, cos_lost));
  return f.flip_sign(select(eq(x, f.num(0)), f.num(0), q + rest / below), f.sign_of(x));
}

namespace {

// For a = |x|: above 1/2 through asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2)).
struct AsinParts {
  Expr big;         // a > 1/2
  Expr root, rest;  // asin of the argument after reduction is root + rest
};
AsinParts asin_parts(const Real& f, const Expr& a) {
  const Expr big = lt(f.num(0.5), a);
  const Expr z = select(big, (f.num(1) - a) * f.num(0.5), a * a);
  const Expr root = select(big, sqrt(z), a);
  return {big, root, root * z * f.poly(tables::kAsinF32, tables::kAsinF64, z)};
}

}  // namespace

Expr asin(const Real& f, const Expr& x) {
  const AsinParts p = asin_parts(f, f.abs(x));
  const Pair h = half_pi(f);
  const Expr two = p.root + p.root;
  const Expr left = h.hi - two, lost = (h.hi - left) - two;
  const Expr big = left - ((p.rest + p.rest) - (h.lo + lost));
  return f.copysign(select(p.big, big, p.root + p.rest), x);
}

// x > 1/2: 2 asin(...); x < -1/2: pi - 2 asin(...); between: pi/2 - asin(x)
Expr acos(const Real& f, const Expr& x) {
  const AsinParts p = asin_parts(f, f.abs(x));
  const Pair h = half_pi(f);
  const Expr negative = lt(x, f.num(0));
  const Expr root = select(negative, -p.root, p.root), rest = select(negative, -p.rest, p.rest);
  const Expr middle = h.hi - (root - (h.lo - rest));
  const Expr outer = (root + rest) * f.num(2);
  const Expr outer_left = (h.hi + h.hi) + (outer + (h.lo + h.lo));
  return select(p.big, select(negative, outer_left, outer), middle);
}

// Three ranges: a, pi/4 + atan((a - 1) / (a + 1)), pi/2 + atan(-1 / a), the fraction always within tan(pi/8).
Expr atan(const Real& f, const Expr& x) {
  const Expr a = f.abs(x), one = f.num(1), zero = f.num(0);
  const Expr middle = lt(f.num(0.4142135623730950), a), far = lt(f.num(2.414213562373095), a);
  const Expr above = select(far, f.num(-1), select(middle, a - one, a));
  const Expr below = select(far, a, select(middle, a + one, one));
  const Pair h = half_pi(f);
  const Expr half = f.num(0.5);
  const Expr base = select(far, h.hi, select(middle, h.hi * half, zero));
  const Expr base_lo = select(far, h.lo, select(middle, h.lo * half, zero));
  const Expr t = above / below, z = t * t;
  const Expr rest = fma(t * z, f.poly(tables::kAtanF32, tables::kAtanF64, z), base_lo);
  return f.copysign(base + (t + rest), x);
}

}  // namespace tripod::loop::math
