// What this machine can do at most, measured: the two lines of a roofline.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tripod::tools {

struct Roofline {
  double flops = 0;                                   // a second, f32 fma of all threads together
  std::vector<std::pair<int64_t, double>> bandwidth;  // working set in bytes -> bytes a second, sizes growing
  // Of data of this size: in a cache where it fits into one.
  double bandwidth_of(double bytes) const;
  // The least time in which this work could be done, in seconds.
  double least_seconds(double flops_wanted, double bytes) const;
};

// Takes about a third of a second. `avx512`: with 512-bit vectors (the caller knows that the CPU has them).
Roofline measure_roofline(int threads, bool avx512);

}  // namespace tripod::tools
