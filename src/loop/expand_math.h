// Replaces math operations (exp, log, tanh, erf, pow, ...) by arithmetic: polynomials and bit operations that fuse
// into whatever kernel uses them and give the same bits on every target (every fma is explicit).
// f32: at most 2 ulp over all finite inputs; f64: at most 2 ulp sampled (sin, cos and tan up to |x| = 2^30, beyond that
// they lose digits). Special values as C99's functions. No denormal is flushed.
// Casts of f16, bf16 and f8 are left only from and to f32, rounding once: f64 goes through f32 rounded to odd.
#pragma once

#include "loop/ir.h"

namespace tripod::loop {

Function expand_math(const Function& f);
Expr expand_math(const Expr& e);

}  // namespace tripod::loop
