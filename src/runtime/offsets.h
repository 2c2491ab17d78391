// Where the buffers of a segment lie in its arena: buffers alive at the same step do not overlap. Greedy by size: largest
// first, each into the smallest gap that holds it (best fit). Also used by the compiler's tools, which say how far the
// result is from the least that any plan needs.
#pragma once

#include "runtime/abi.h"

namespace tripod::rt {

constexpr int64_t kOffsetUnit = 64;  // sizes are multiples of it, and so are offsets

struct OffsetPlan {
  int32_t num_buffers;
  const tp_buffer* buffers;
  const int64_t* sizes;      // of each buffer; their sum fits in 63 bits
  int32_t* order;            // num_buffers elements of working memory each
  int32_t* placed;
  int64_t* offsets;          // the result
};
// Returns the bytes of the whole arena. Allocates nothing.
int64_t plan_offsets(const OffsetPlan& p);

}  // namespace tripod::rt
