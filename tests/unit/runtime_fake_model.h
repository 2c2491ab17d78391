// The model of the runtime's tests:
//   main(x: f32[N, 4], y: f32[N, M], mode: i64[]) -> sum: f32[N, 4] = 6 x, cols: f32[N, M] = 3 y, where: i64[K]
// N is 0..100000, M an even number in 2..64, K (rows of x that begin with a positive number) 0..1000.
#pragma once

#include "runtime/abi.h"

namespace fake {

enum Symbol { kN, kM, kK };
enum Mode : int64_t {
  kParallel = 0,     // small grain: uses the pool
  kSerial = 1,       // large grain
  kKernelError = 2,  // a kernel reports an index
  kFail = 3,         // tp_fail with numbers
  kFailPlain = 4,    // tp_fail without
  kForget = 5,       // produces nothing
};

}  // namespace fake
