// Conversions of the 8-bit floats as integer arithmetic, for expand_math and for casts that must not saturate.
#pragma once

#include "loop/ir.h"

namespace tripod::loop {

inline bool is_f8(DType t) { return is_float(t) && info(t).bits == 8; }

// f8 -> f32, exact.
Expr decode_f8(const Expr& x);
// f32 or f64 -> f8, one rounding to nearest even. What is too large (infinities too) becomes the largest finite value.
Expr encode_f8(DType t, const Expr& x);
// The same, but what is too large becomes infinity, or NaN where the format has none (ONNX Cast with saturate = 0).
Expr encode_f8_unsaturated(DType t, const Expr& x);

}  // namespace tripod::loop
