// log and what is made of it.
#include "loop/math_builder.h"
#include "loop/math_tables.h"

namespace tripod::loop::math {
namespace {

constexpr Real kF64(DType::f64);

// log(1 + f) - f + extra, for sqrt(1/2) <= 1 + f < sqrt(2)
Expr log1p_rest(const Real& f, const Expr& v, const Expr& extra) {
  const Expr v2 = v * v;
  if (f.is_f32()) return fma(f.num(-0.5), v2, fma(v * v2, f.poly(tables::kLogF32, v), extra));
  // With s = v / (2 + v): log(1 + v) = 2s + s^3 p(s^2) = v - (v^2/2 - s * (v^2/2 + s^2 p(s^2)))
  const Expr s = v / (v + f.num(2)), z = s * s, half = v2 * f.num(0.5);
  return fma(s, fma(z, f.poly(tables::kLogF64, z), half), extra) - half;
}

// Adds what log and log1p have in common at the borders: log(inf) and log(nan) are their arguments.
Expr with_borders(const Real& f, const Expr& r, const Expr& u) {
  const Expr good = select(lt(u, f.inf()), r, u);
  return select(lt(u, f.num(0)), f.nan(), select(eq(u, f.num(0)), -f.inf(), good));
}

}  // namespace

LogParts log_parts(const Real& f, const Expr& x) {
  // Relative to sqrt(1/2), the exponent field counts e and the mantissa field is the distance from 2^e * sqrt(1/2).
  const int64_t half_bits = f.is_f32() ? 0x3F3504F3 : 0x3FE6A09E667F3BCD;
  const Expr moved = f.to_bits(x) + f.whole((f.bias << f.digits) - half_bits);
  const Expr k = f.shr(moved, f.digits);
  const Expr mantissa = make(Op::bit_and, {moved, f.whole((int64_t{1} << f.digits) - 1)}) + f.whole(half_bits);
  // k in the low bits of 2^digits is the float 2^digits + k.
  const Expr base = f.num(std::ldexp(1.0, f.digits));
  const Expr e = f.from_bits(make(Op::bit_or, {k, f.to_bits(base)})) -
                 f.num(std::ldexp(1.0, f.digits) + static_cast<double>(f.bias));
  return {f.from_bits(mantissa) - f.num(1), e, k};
}

Expr log_of_parts(const Real& f, const LogParts& p) {
  const double* ln2 = f.is_f32() ? tables::kLn2F32 : tables::kLn2F64;
  return fma(p.e, f.num(ln2[0]), p.f + log1p_rest(f, p.f, p.e * f.num(ln2[1])));
}

Expr log(const Real& f, const Expr& x) {
  const Expr denormal = lt(x, f.num(f.pick(0x1p-126, 0x1p-1022)));
  LogParts p = log_parts(f, select(denormal, x * f.num(std::ldexp(1.0, f.digits)), x));
  p.e = p.e - select(denormal, f.num(f.digits), f.num(0));
  return with_borders(f, log_of_parts(f, p), x);
}

// log(1 + x) from the rounded sum u and its exact error c: the mantissa of u is corrected by c * 2^-e.
Expr log1p(const Real& f, const Expr& x) {
  const Expr u = x + f.num(1);
  const Expr v = u - f.num(1);
  const Expr c = (f.num(1) - (u - v)) + (x - v);
  LogParts p = log_parts(f, u);
  const Expr k = min(p.k, f.whole(2 * f.bias));  // c is 0 there
  p.f = fma(c, f.from_bits(f.shl(f.whole(2 * f.bias) - k, f.digits)), p.f);
  const Expr r = with_borders(f, log_of_parts(f, p), u);
  return select(eq(x, f.num(0)), x, r);  // keeps -0
}

// --- inverse hyperbolic functions: in f64 for both types ---

Expr asinh(const Expr& x) {
  const Real& f = kF64;
  const Expr a = f.abs(x);
  // log(2a) where a^2 would overflow and 1 / a^2 is nothing
  const Expr big = lt(f.num(0x1p60), a);
  const Expr z = a * a;
  const Expr u = select(big, a, a + z / (sqrt(z + f.num(1)) + f.num(1)));
  return f.copysign(log1p(f, u) + select(big, f.num(0.6931471805599453), f.num(0)), x);
}

Expr acosh(const Expr& x) {
  const Real& f = kF64;
  const Expr big = lt(f.num(0x1p60), x);
  const Expr t = x - f.num(1);
  const Expr u = select(big, x, t + sqrt(fma(t, t, t + t)));
  const Expr r = log1p(f, u) + select(big, f.num(0.6931471805599453), f.num(0));
  return select(lt(x, f.num(1)), f.nan(), r);
}

// log((1 + a) / (1 - a)) / 2
Expr atanh(const Expr& x) {
  const Real& f = kF64;
  const Expr a = f.abs(x);
  return f.copysign(log1p(f, (a + a) / (f.num(1) - a)) * f.num(0.5), x);
}

// --- pow ---

namespace {

// a * b, exactly.
Pair product(const Expr& a, const Expr& b) {
  const Expr hi = a * b;
  return {hi, fma(a, b, -hi)};
}
// |a| >= |b|
Pair fast_sum(const Expr& a, const Expr& b) {
  const Expr hi = a + b;
  return {hi, b - (hi - a)};
}
Pair times(const Pair& a, const Pair& b) {
  const Pair p = product(a.hi, b.hi);
  return fast_sum(p.hi, p.lo + fma(a.hi, b.lo, a.lo * b.hi));
}

// log(x) for normal x > 0 to about 2^-64: log(1 + v) = 2s + 2/3 s^3 + s^5 (...) with s = v / (2 + v) in two parts.
Pair log_pair(const LogParts& p) {
  const Real& f = kF64;
  const Expr d = p.f + f.num(2), d_lo = p.f - (d - f.num(2));
  const Expr s_hi = p.f / d;
  const Expr s_lo = fma(-s_hi, d_lo, fma(-s_hi, d, p.f)) / d;
  const Pair s{s_hi, s_lo}, z = times(s, s);
  const Expr q = f.poly(tables::kLogTailF64, z.hi), zq = z.hi * q;
  Pair third = fast_sum(f.num(2.0 / 3), zq);
  third.lo = third.lo + (f.num(0x1.5555555555555p-55) /* 2/3 - double(2/3) */ + fma(z.hi, q, -zq) + z.lo * q);
  const Pair cubic = times(times(z, s), third);
  // e * ln2 (exact in its first part) + 2s + cubic, each larger than the next unless it is 0
  const Pair first = fast_sum(p.e * f.num(tables::kLn2F64[0]), s.hi + s.hi);
  const Pair second = fast_sum(first.hi, cubic.hi);
  const Expr rest = fma(p.e, f.num(tables::kLn2F64[1]), cubic.lo + (s.lo + s.lo));
  return fast_sum(second.hi, first.lo + second.lo + rest);
}

// |x|^y in f64 for |x| a normal number or any f32: e^(y * log|x|).
Expr pow_core(const Real& f, const Expr& a, const Expr& y) {
  const Real& d = kF64;
  const Expr denormal = lt(a, d.num(0x1p-1022));
  LogParts p = log_parts(d, select(denormal, a * d.num(0x1p52), a));
  p.e = p.e - select(denormal, d.num(52), d.num(0));
  Pair l;
  if (f.is_f32()) l.hi = log_of_parts(d, p);
  else l = log_pair(p);
  l.hi = select(lt(a, d.inf()), l.hi, a);
  l.hi = select(eq(a, d.num(0)), -d.inf(), l.hi);
  // 1^y is 1 even for y = inf, where 0 * inf would be nan
  const Expr t = select(eq(a, d.num(1)), d.num(0), y * l.hi);
  const Expr clamped = min(max(t, d.num(-800)), d.num(800));
  Expr correction;
  if (l.lo) {
    const Expr c = fma(y, l.hi, -t) + y * l.lo;
    const Expr counts = make(Op::bit_and, {lt(d.abs(t), d.num(800)), ne(a, d.num(1))});
    correction = select(counts, c, d.num(0));
  }
  const ExpParts e = exp_parts(d, clamped, correction);
  return scale(d, e.m + d.num(1), e.n);
}

}  // namespace

// C99's special values: pow(x, 0) = pow(1, y) = 1; a negative x needs an integral y and gives its parity's sign.
Expr pow(const Real& f, const Expr& x, const Expr& y) {
  const auto widened = [](const Expr& e) { return cast(e, DType::f64); };
  const Expr a = f.abs(x);
  const Expr core = cast(pow_core(f, widened(a), widened(y)), f.t);
  const Expr half = y * f.num(0.5);
  const Expr whole = eq(make(Op::trunc, {y}), y);
  const Expr odd = make(Op::bit_and, {whole, ne(make(Op::trunc, {half}), half)});
  const Expr r = f.flip_sign(core, select(odd, f.sign_of(x), f.whole(0)));
  const Expr finite_negative = make(Op::bit_and, {lt(x, f.num(0)), lt(-f.inf(), x)});
  const Expr bad = make(Op::bit_and, {finite_negative, make(Op::bit_not, {whole})});
  return select(eq(y, f.num(0)), f.num(1), select(bad, f.nan(), r));
}

}  // namespace tripod::loop::math
