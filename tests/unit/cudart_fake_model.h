// The model of the GPU runtime's tests, written by hand the way the compiler would emit it, for fake_libcuda:
//   main(x: f32[N, 4], ids: i64[M]) -> sum: f32[N, 4] = 6 x, picked: f32[M, 4] = the rows `ids` of sum,
//                                      positive: f32[K, 4] = the rows of x that begin with a positive number
// K depends on data, unless `whole` is set: then positive is x and the program reads nothing on the host.
#pragma once

#include <atomic>

#include "fake_libcuda.h"

namespace fake {

// How the program behaves; set by tests before the calls. Threads only read it.
struct Behaviour {
  bool whole = false;
  bool fault = false;      // launches a kernel that stops the GPU
  int64_t shared = 0;      // bytes of dynamic shared memory of one launch
  int64_t block = 64;
  int extra = 0;           // launches of a kernel that does nothing
  bool fail = false;       // returns an error after its launches
};
extern Behaviour behaviour;

// Set by the test: the kernels check that what they are given is on the device.
extern fake_cuda::Controls* machine;

}  // namespace fake
