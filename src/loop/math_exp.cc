// exp and what is made of it.
#include "loop/math_builder.h"
#include "loop/math_tables.h"

namespace tripod::loop::math {
namespace {

// 2^n for an n whose low bits count.
Expr pow2(const Real& f, const Expr& n) { return f.from_bits(f.shl(n, f.digits) + f.one_bits()); }

}  // namespace

ExpParts exp_parts(const Real& f, const Expr& x, const Expr& correction) {
  const double* ln2 = f.is_f32() ? tables::kLn2F32 : tables::kLn2F64;
  const Expr shifted = fma(x, f.num(1.4426950408889634), f.magic());
  const Expr n = shifted - f.magic();
  Expr r = fma(n, f.num(-ln2[0]), x);
  r = fma(n, f.num(-ln2[1]), r);
  if (correction) r = r + correction;
  const Expr p = f.poly(tables::kExpF32, tables::kExpF64, r);
  return {fma(r * r, p, r), f.to_bits(shifted)};
}

// In two steps, since 2^n itself may be no float: p * 2^(n/2), exact, then times 2^(n - n/2). (Adding to p's exponent
// instead would make a number of a NaN.)
Expr scale(const Real& f, const Expr& p, const Expr& n) {
  const Expr half = f.shr(n, 1);
  return p * pow2(f, half) * pow2(f, n - half);
}

Expr exp(const Real& f, const Expr& x) {
  // Beyond these the result is 0 or inf anyway.
  const Expr clamped = min(max(x, f.num(f.pick(-104, -746))), f.num(f.pick(89, 710)));
  const ExpParts p = exp_parts(f, clamped);
  return scale(f, p.m + f.num(1), p.n);
}

// With z = e^-|x|: 1 / (1 + z) for x >= 0, z / (1 + z) for x < 0, which keeps its digits when it is tiny.
Expr sigmoid(const Real& f, const Expr& x) {
  const Expr a = max(-f.abs(x), f.num(f.pick(-104, -746))), one = f.num(1);
  const ExpParts p = exp_parts(f, a);
  const Expr z = scale(f, p.m + one, p.n), sum = one + z, negative = lt(x, f.num(0));
  const Expr q = select(negative, z, one) / sum;
  // The roundings of z, the sum and the quotient are a bit over 2 ulp together; take back that of the sum. The
  // derivative of q with respect to it is -q / sum, and 1 / sum is q or 1 - q.
  const Expr lost = z - (sum - one);
  return fma(-(q * lost), select(negative, one - q, q), q);
}

// A polynomial near 0; farther out, with z = e^(-2|x|): |tanh(x)| = 1 - 2z / (1 + z).
Expr tanh(const Real& f, const Expr& x) {
  const Expr a = f.abs(x), square = a * a;
  const Expr small = fma(a * square, f.poly(tables::kTanhF32, tables::kTanhF64, square), a);
  const ExpParts p = exp_parts(f, min(a, f.num(f.pick(10, 20))) * f.num(-2));
  const Expr z = (p.m + f.num(1)) * pow2(f, p.n);
  const Expr large = f.num(1) - (z + z) / (z + f.num(1));
  return f.copysign(select(lt(a, f.num(0.55)), small, large), x);
}

namespace {

// e^a / 2 for a >= 0: finite where sinh and cosh are.
Expr half_exp(const Real& f, const Expr& a) {
  const ExpParts p = exp_parts(f, min(a, f.num(f.pick(90, 711))));
  return scale(f, p.m + f.num(1), p.n - f.whole(1));
}

}  // namespace

Expr sinh(const Real& f, const Expr& x) {
  const Expr a = f.abs(x), z = a * a;
  const Expr small = fma(a * z, f.poly(tables::kSinhF32, tables::kSinhF64, z), a);
  const Expr h = half_exp(f, a);
  return f.copysign(select(lt(a, f.num(1)), small, h - f.num(0.25) / h), x);
}

Expr cosh(const Real& f, const Expr& x) {
  const Expr h = half_exp(f, f.abs(x));
  return h + f.num(0.25) / h;
}

// A polynomial near 0; farther out 1 - exp(polynomial), the polynomial being log(erfc(|x|)).
Expr erf(const Real& f, const Expr& x) {
  const Expr a = f.abs(x), z = x * x;
  const Expr small = fma(x, f.poly(tables::kErfF32, tables::kErfF64, z), x);
  const Expr t = min(a, f.num(f.pick(4, 6)));
  const ExpParts p = exp_parts(f, f.poly(tables::kErfcF32, tables::kErfcF64, t));
  const Expr erfc = (p.m + f.num(1)) * pow2(f, p.n);
  return select(lt(a, f.num(f.pick(0.921875, 1))), small, f.copysign(f.num(1) - erfc, x));
}

Expr gelu(const Real& f, const Expr& x) {
  return f.num(0.5) * x * (f.num(1) + erf(f, x * f.num(0.70710678118654752440)));
}

Expr gelu_tanh(const Real& f, const Expr& x) {
  const Expr inner = f.num(0.79788456080286535588) * (x + f.num(0.044715) * (x * x * x));
  return f.num(0.5) * x * (f.num(1) + tanh(f, inner));
}

}  // namespace tripod::loop::math
