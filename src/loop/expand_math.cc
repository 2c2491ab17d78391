#include "loop/expand_math.h"

#include "loop/math_builder.h"
#include "loop/math_f8.h"

namespace tripod::loop {
namespace {

bool is_small_float(DType t) { return is_float(t) && info(t).bits < 32; }

Expr expand(Op op, const std::vector<Expr>& a) {
  const math::Real f(a[0]->dtype);
  const auto in_f64 = [&](Expr (*g)(const Expr&)) { return cast(g(cast(a[0], DType::f64)), f.t); };
  switch (op) {
    case Op::exp: return math::exp(f, a[0]);
    case Op::log: return math::log(f, a[0]);
    case Op::sin: return math::sin(f, a[0]);
    case Op::cos: return math::cos(f, a[0]);
    case Op::tan: return math::tan(f, a[0]);
    case Op::asin: return math::asin(f, a[0]);
    case Op::acos: return math::acos(f, a[0]);
    case Op::atan: return math::atan(f, a[0]);
    case Op::sinh: return math::sinh(f, a[0]);
    case Op::cosh: return math::cosh(f, a[0]);
    case Op::tanh: return math::tanh(f, a[0]);
    case Op::asinh: return in_f64(math::asinh);
    case Op::acosh: return in_f64(math::acosh);
    case Op::atanh: return in_f64(math::atanh);
    case Op::erf: return math::erf(f, a[0]);
    case Op::sigmoid: return math::sigmoid(f, a[0]);
    case Op::log1p: return math::log1p(f, a[0]);
    case Op::pow: return math::pow(f, a[0], a[1]);
    case Op::gelu: return math::gelu(f, a[0]);
    case Op::gelu_tanh: return math::gelu_tanh(f, a[0]);
    case Op::exp_light: return math::exp_light(a[0]);
    case Op::sigmoid_light: return math::sigmoid_light(a[0]);
    case Op::tanh_light: return math::tanh_light(a[0]);
    case Op::gelu_light: return math::gelu_light(a[0]);
    case Op::gelu_tanh_light: return math::gelu_tanh_light(a[0]);
    default: break;
  }
  internal_error(__FILE__, __LINE__, "no expansion of " + std::string(name(op)));
}

// f64 to f32 rounded to odd: towards zero, and the last bit set when anything was lost. Rounding that to a small float
// is rounding the f64, once.
Expr round_to_odd(const Expr& x) {
  const Expr y = cast(x, DType::f32), back = cast(y, DType::f64);
  const Expr bits = bitcast(y, DType::u32), one = constant_int(DType::u32, 1), zero = constant_int(DType::u32, 0);
  const Expr away = lt(make(Op::abs, {x}), make(Op::abs, {back}));
  const Expr odd = make(Op::bit_or, {bits - select(away, one, zero), one});
  const Expr inexact = make(Op::bit_or, {lt(x, back), lt(back, x)});  // false for nan
  return bitcast(select(inexact, odd, bits), DType::f32);
}

struct ExpandMath : Rewriter {
  Expr rewrite(const Expr& e) override {
    if (is_math(e->op)) {
      std::vector<Expr> args;
      for (const Expr& a : e->args) args.push_back(apply(a));
      return expand(e->op, args);
    }
    if (e->op != Op::cast) return nullptr;
    Expr a = apply(e->args[0]);
    if (is_f8(a->dtype)) a = decode_f8(a);
    if (is_small_float(a->dtype)) a = cast(a, DType::f32);
    if (is_f8(e->dtype)) return encode_f8(e->dtype, is_float(a->dtype) && a->dtype != DType::f16 ? a : cast(a, DType::f64));
    if (is_small_float(e->dtype)) a = a->dtype == DType::f64 ? round_to_odd(a) : cast(a, DType::f32);
    return cast(a, e->dtype);
  }
};

}  // namespace

Expr expand_math(const Expr& e) { return ExpandMath().apply(e); }

Function expand_math(const Function& f) {
  Function r = f;
  r.body = ExpandMath().apply(f.body);
  return r;
}

}  // namespace tripod::loop
