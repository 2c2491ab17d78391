#include "loop/math_f8.h"

#include <cmath>

namespace tripod::loop {
namespace {

// As in ONNX's "Float stored in 8 bits": exponent bias, bits of mantissa, codes (without sign) of the largest finite
// value and of the overflow result, code of NaN. The fnuz formats have no -0 and one NaN, 0x80.
struct Format {
  DType type;
  int bias, mantissa;
  int64_t largest, overflow, nan;
  bool fnuz;
};
constexpr Format kFormats[] = {
    {DType::f8e4m3fn, 7, 3, 0x7e, 0x7f, 0x7f, false},
    {DType::f8e4m3fnuz, 8, 3, 0x7f, 0x80, 0x80, true},
    {DType::f8e5m2, 15, 2, 0x7b, 0x7c, 0x7e, false},
    {DType::f8e5m2fnuz, 16, 2, 0x7f, 0x80, 0x80, true},
};
const Format& format(DType t) {
  for (const Format& f : kFormats)
    if (f.type == t) return f;
  internal_error(__FILE__, __LINE__, "not an 8-bit float");
}

Expr number(DType t, int64_t v) { return constant_int(t, v); }
Expr both(const Expr& a, const Expr& b) { return make(Op::bit_and, {a, b}); }

Expr encode(const Format& f, const Expr& value, bool saturate) {
  const Expr x = cast(value, DType::f64);
  const DType u = DType::u64;
  // Scaled so that the bits of the f64 above position `drop` are the code of |x|: subnormals included, since an f64
  // holds them exactly.
  const int drop = 52 - f.mantissa;
  const Expr scaled = bitcast(make(Op::abs, {x}) * constant(DType::f64, std::ldexp(1.0, f.bias - 1023)), u);
  const Expr odd = both(make(Op::shr, {scaled, number(u, drop)}), number(u, 1));
  const Expr rounded = make(Op::shr, {scaled + odd + number(u, (int64_t{1} << (drop - 1)) - 1), number(u, drop)});
  const Expr code = select(lt(number(u, f.largest), rounded), number(u, saturate ? f.largest : f.overflow), rounded);
  const Expr sign = make(Op::shl, {make(Op::shr, {bitcast(x, u), number(u, 63)}), number(u, 7)});
  Expr all = make(Op::bit_or, {code, sign});
  if (f.fnuz) all = select(eq(code, number(u, 0)), code, all);  // no -0; NaN's code has the sign bit itself
  const Expr nan = make(Op::bit_or, {number(u, f.nan), sign});
  return bitcast(cast(select(ne(x, x), nan, all), DType::u8), f.type);
}

}  // namespace

Expr decode_f8(const Expr& x) {
  const Format& f = format(x->dtype);
  const DType u = DType::u32;
  const Expr code = cast(bitcast(x, DType::u8), u);
  const Expr magnitude = both(code, number(u, 0x7f));
  // The code in the place of an f32's exponent and mantissa, rescaled by the difference of the biases.
  const Expr placed = bitcast(make(Op::shl, {magnitude, number(u, 23 - f.mantissa)}), DType::f32);
  Expr value = placed * constant(DType::f32, std::ldexp(1.0, 127 - f.bias));
  const Expr nan = constant(DType::f32, NAN), infinity = constant(DType::f32, INFINITY);
  if (f.type == DType::f8e4m3fn) value = select(eq(magnitude, number(u, 0x7f)), nan, value);
  if (f.type == DType::f8e5m2)
    value = select(lt(number(u, 0x7c), magnitude), nan, select(eq(magnitude, number(u, 0x7c)), infinity, value));
  value = select(ne(both(code, number(u, 0x80)), number(u, 0)), -value, value);
  return f.fnuz ? select(eq(code, number(u, 0x80)), nan, value) : value;
}

Expr encode_f8(DType t, const Expr& x) { return encode(format(t), x, true); }
Expr encode_f8_unsaturated(DType t, const Expr& x) { return encode(format(t), x, false); }

}  // namespace tripod::loop
