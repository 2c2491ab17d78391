// Puts a program on a GPU: what kernels touch stays where the planner put it, in the device's memory; what the host
// itself reads or writes (operands of runtime operators, conditions, trip counts, dims that come from data, shape
// arithmetic that becomes a tensor) gets a mirror in host memory and the copies between the two.
//
// A mirror lives during its step only (a loop's: during the loop). Mirrors of segment s lie in segment n + s, where n
// is the number of segments before; it is entered right behind s.
#pragma once

#include "host/program.h"

namespace tripod::host {

void place_on_device(Program& p, sym::Context& c);

}  // namespace tripod::host
