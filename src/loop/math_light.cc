// The light functions: what they promise stands in loop/light_math.h. Operations are counted: each costs a kernel that
// stores 16 bits an element about a thirtieth of its time on a GPU.
#include "loop/light_tables.h"
#include "loop/math_builder.h"

namespace tripod::loop::math {
namespace {

constexpr Real kF32(DType::f32);

// Beyond these 2^(x log2(e)) has an exponent of all zeros or all ones.
constexpr double kLeast = -88.03, kMost = 88.73;

// 2^f * 2^n with x log2(e) == n + f. The bias of the exponent is a part of the magic number, so that a shift makes 2^n of it: 0
// for n == -127, inf for n == 128. A product, not a sum of exponents: a NaN stays one.
Expr exp_clamped(const Expr& x) {
  const Real& f = kF32;
  const Expr log2e = f.num(1.4426950408889634), magic = f.num(0x1.8p23 + 127);
  const Expr shifted = fma(x, log2e, magic);
  const Expr rest = fma(x, log2e, -(shifted - magic));
  return f.poly(tables::kExp2Light, rest) * f.from_bits(f.shl(f.to_bits(shifted), f.digits));
}

// 1 / q for q in [1, 2^20]: the exponent's sign turned, which is off by an eighth at most, and two steps, of the third
// and of the second order.
Expr reciprocal(const Expr& q) {
  const Real& f = kF32;
  const Expr one = f.num(1);
  const Expr y = f.from_bits(f.whole(0x7EF311C7) - f.to_bits(q));
  const Expr e = fma(-q, y, one);
  const Expr z = fma(y, fma(e, e, e), y);
  return fma(z, fma(-q, z, one), z);
}

// max(x, 0) - a h(a) with a == |x| and h(a) == p(a)^(2^squarings); from the root of p on h is 0.
template <size_t N>
Expr gated(const Expr& x, const double (&p)[N], double root, int squarings) {
  const Real& f = kF32;
  const Expr a = min(f.abs(x), f.num(root));
  Expr h = f.poly(p, a);
  for (int i = 0; i < squarings; ++i) h = h * h;
  return fma(-a, h, max(x, f.num(0)));
}

}  // namespace

Expr exp_light(const Expr& x) { return exp_clamped(min(max(x, kF32.num(kLeast)), kF32.num(kMost))); }

// With e = e^-|x|: 1 / (1 + e), times e for x < 0.
Expr sigmoid_light(const Expr& x) {
  const Real& f = kF32;
  const Expr e = exp_clamped(max(-f.abs(x), f.num(kLeast)));
  return select(lt(x, f.num(0)), e, f.num(1)) * f.poly(tables::kOneOverOnePlusLight, e);
}

Expr tanh_light(const Expr& x) {
  const Real& f = kF32;
  const Expr c = min(max(x, f.num(-4.97)), f.num(4.97)), z = c * c;
  return c * f.poly(tables::kTanhLightP, z) * reciprocal(f.poly(tables::kTanhLightQ, z));
}

Expr gelu_light(const Expr& x) { return gated(x, tables::kGeluLight, 7.25, 3); }
Expr gelu_tanh_light(const Expr& x) { return gated(x, tables::kGeluTanhLight, 7.5, 4); }

}  // namespace tripod::loop::math
