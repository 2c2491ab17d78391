// What the formulas of expand_math share: the numbers of a float type, and the polynomials of loop/math_tables.h.
//
// Everything is branch-free and made of the operations that every vector unit has: fma, compare and select, integer
// adds, shifts and masks on the bit patterns. No formula converts a float to an integer with a cast: adding 1.5 * 2^23
// (2^52) leaves the rounded integer in the low bits of the pattern.
#pragma once

#include <cmath>
#include <limits>

#include "loop/ir.h"

namespace tripod::loop::math {

// A float type (f32 or f64) and the unsigned integer type of its patterns.
struct Real {
  DType t, bits;
  int digits;     // of the stored mantissa
  int64_t bias;   // of the exponent
  constexpr explicit Real(DType type)
      : t(type), bits(type == DType::f32 ? DType::u32 : DType::u64), digits(type == DType::f32 ? 23 : 52),
        bias(type == DType::f32 ? 127 : 1023) {}

  bool is_f32() const { return t == DType::f32; }
  double pick(double of_f32, double of_f64) const { return is_f32() ? of_f32 : of_f64; }
  Expr num(double v) const { return constant(t, v); }
  Expr inf() const { return num(std::numeric_limits<double>::infinity()); }
  Expr nan() const { return num(std::numeric_limits<double>::quiet_NaN()); }
  Expr whole(int64_t v) const { return constant_bits(bits, static_cast<uint64_t>(v)); }
  Expr to_bits(const Expr& x) const { return bitcast(x, bits); }
  Expr from_bits(const Expr& x) const { return bitcast(x, t); }
  Expr shl(const Expr& x, int n) const { return make(Op::shl, {x, whole(n)}); }
  Expr shr(const Expr& x, int n) const { return make(Op::shr, {x, whole(n)}); }
  Expr one_bits() const { return whole(bias << digits); }
  Expr sign_bit() const { return whole(static_cast<int64_t>(uint64_t{1} << (is_f32() ? 31 : 63))); }
  // 1.5 * 2^digits: x + magic() has rint(x) in its low bits, for |x| < 2^(digits - 2).
  Expr magic() const { return num(std::ldexp(1.5, digits)); }

  Expr abs(const Expr& x) const { return make(Op::abs, {x}); }
  Expr sign_of(const Expr& x) const { return make(Op::bit_and, {to_bits(x), sign_bit()}); }
  Expr flip_sign(const Expr& x, const Expr& sign) const { return from_bits(make(Op::bit_xor, {to_bits(x), sign})); }
  // |magnitude| with the sign of x.
  Expr copysign(const Expr& magnitude, const Expr& x) const {
    return from_bits(make(Op::bit_or, {to_bits(abs(magnitude)), sign_of(x)}));
  }

  template <size_t N>
  Expr poly(const double (&c)[N], const Expr& x) const {
    Expr r = num(c[N - 1]);
    for (size_t i = N - 1; i-- > 0;) r = fma(r, x, num(c[i]));
    return r;
  }
  template <size_t N, size_t M>
  Expr poly(const double (&of_f32)[N], const double (&of_f64)[M], const Expr& x) const {
    return is_f32() ? poly(of_f32, x) : poly(of_f64, x);
  }
};

inline Expr sqrt(Expr x) { return make(Op::sqrt, {std::move(x)}); }
inline Expr rint(Expr x) { return make(Op::rint, {std::move(x)}); }

// A sum of two floats, the second a correction of the first.
struct Pair {
  Expr hi, lo;
};

// e^x == 2^n * (1 + m) with |r| <= ln(2)/2, x == n * ln(2) + r and m == expm1(r). The integer n is in the low bits of
// `n`; what is above them vanishes when n is shifted into the exponent.
struct ExpParts {
  Expr m, n;
};
ExpParts exp_parts(const Real& f, const Expr& x, const Expr& correction = nullptr);
// p * 2^n for p near 1, however large or small that is (rounded once where it is denormal).
Expr scale(const Real& f, const Expr& p, const Expr& n);

// x == 2^e * (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), for normal x > 0; k == e + bias.
struct LogParts {
  Expr f, e, k;
};
LogParts log_parts(const Real& f, const Expr& x);
// e * ln(2) + log(1 + f)
Expr log_of_parts(const Real& f, const LogParts& p);

Expr exp(const Real& f, const Expr& x);
Expr sigmoid(const Real& f, const Expr& x);
Expr tanh(const Real& f, const Expr& x);
Expr sinh(const Real& f, const Expr& x);
Expr cosh(const Real& f, const Expr& x);
Expr erf(const Real& f, const Expr& x);
Expr log(const Real& f, const Expr& x);
Expr log1p(const Real& f, const Expr& x);
Expr asinh(const Expr& x);
Expr acosh(const Expr& x);
Expr atanh(const Expr& x);
Expr pow(const Real& f, const Expr& x, const Expr& y);
Expr sin(const Real& f, const Expr& x);
Expr cos(const Real& f, const Expr& x);
Expr tan(const Real& f, const Expr& x);
Expr asin(const Real& f, const Expr& x);
Expr acos(const Real& f, const Expr& x);
Expr atan(const Real& f, const Expr& x);
Expr gelu(const Real& f, const Expr& x);
Expr gelu_tanh(const Real& f, const Expr& x);

// Of f32 only.
Expr exp_light(const Expr& x);
Expr sigmoid_light(const Expr& x);
Expr tanh_light(const Expr& x);
Expr gelu_light(const Expr& x);
Expr gelu_tanh_light(const Expr& x);

}  // namespace tripod::loop::math
