// What a function in compute form costs whatever its schedule: the arithmetic that has to be done, and the bytes that
// have to move when every parameter is read or written once. The roofline of `tripod bench` and the estimates of
// `tripod explain` are made of these.
#pragma once

#include "loop/ir.h"

namespace tripod::loop {

struct Cost {
  Index flops;  // additions, multiplications, ... of floats and integers, an fma counting two, a math function one
  Index bytes;  // of each parameter its size, or the accesses to it where those are fewer (gathers, slices)
};

Cost cost_of(sym::Context& c, const Function& compute_form);

}  // namespace tripod::loop
