// Shorter arithmetic for values that are stored in 16 bits: exp, sigmoid, tanh, gelu and gelu_tanh become their light
// forms, and a quotient whose divisor is the same for neighbours becomes a product with a reciprocal, wherever the
// result only reaches memory rounded to f16 or bf16.
//
// A value qualifies when all that is made of it, through products, quotients, sums, maxima, selections and internal
// f32 buffers, ends in a cast to f16 or bf16. A constant added to it (exp(x) - 1) could take all its leading digits
// away, so then it stays exact, unless neither is negative; so does what another function is applied to, and what
// decides or indexes.
//
// Light forms are f32 arithmetic like all others: the same bits on every target. What they promise, for all f32 x:
//   exp_light        relative error 2^-17; 0 below 2^-126.5, inf from 2^127.5 on
//   sigmoid_light    relative error 2^-15; 0 below 2^-126.5
//   tanh_light       relative error 2^-13.5
//   gelu_light       relative error 2^-12.25, or absolute 2^-25.5
//   gelu_tanh_light  relative error 2^-13, or absolute 2^-25.5
// That is less than half a unit in the last place of an f16: no more than is lost where a value between two kernels is
// stored. NaN stays NaN, infinities have the functions' limits. A reciprocal of less than 2^-126 is infinite.
#pragma once

#include "loop/ir.h"

namespace tripod::loop {

// In compute form (blocks), before rules look at it.
Function light_math(const Function& f);

}  // namespace tripod::loop
