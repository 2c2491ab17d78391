// Memory: buffers that grow, and the arenas of segments.
//
// The offsets of a segment's buffers (runtime/offsets.h) are solved again only when a size differs from the last call's.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/cuda.h"
#include "runtime/internal.h"
#include "runtime/offsets.h"

namespace tripod::rt {
namespace {

constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kLine = kOffsetUnit;

// Rounds the wanted sizes up; false when their sum does not fit in 63 bits, which also keeps plan() from overflowing.
// A size below 0 is that of a value in a branch that is not taken: where it would be computed its node has refused the dims.
bool round_sizes(const tp_segment& segment, const Arena& arena) {
  int64_t sum = 0;
  for (int32_t i = 0; i < segment.num_buffers; ++i) {
    int64_t& size = arena.wanted[i];
    if (size > INT64_MAX - kLine) return false;
    size = size < 0 ? 0 : (size + kLine - 1) & -kLine;
    if (__builtin_add_overflow(sum, size, &sum)) return false;
  }
  return true;
}

}  // namespace

bool reserve(Buffer& buffer, int64_t bytes) {
  if (bytes <= buffer.capacity) return true;
  if (bytes < 0 || bytes > INT64_MAX - kHugePage) return false;
  release(buffer);
  bool huge = bytes >= 2 * kHugePage;
  int64_t unit = huge ? kHugePage : kLine;
  int64_t capacity = (bytes + unit - 1) & -unit;
  void* data = nullptr;
  if (posix_memalign(&data, static_cast<size_t>(unit), static_cast<size_t>(capacity)) != 0) return false;
  if (huge) madvise(data, static_cast<size_t>(capacity), MADV_HUGEPAGE);  // a hint: failing is fine
  buffer = {static_cast<char*>(data), capacity};
  return true;
}

void release(Buffer& buffer) {
  free(buffer.data);
  buffer = {nullptr, 0};
}

char* operator_memory(tp_run& run, int64_t bytes) {
  if (reserve(run.operator_memory, bytes)) return bytes > 0 ? run.operator_memory.data : empty_data();
  fail(run, TRIPOD_OUT_OF_MEMORY, "out of memory: %lld bytes for a runtime operator", static_cast<long long>(bytes));
  return nullptr;
}

}  // namespace tripod::rt

using namespace tripod::rt;

char* tp_enter_segment(tp_run* run, int32_t index) {
  const tp_segment& segment = tp_the_model.segments[index];
  Arena& arena = run->arenas[index];
  size_t bytes = sizeof(int64_t) * static_cast<size_t>(segment.num_buffers);
  if (segment.num_buffers > 0) segment.sizes(run->dims, arena.wanted);
  bool fits = round_sizes(segment, arena);
  if (fits && arena.planned && memcmp(arena.wanted, arena.sizes, bytes) == 0)
    return arena.memory.data ? arena.memory.data : empty_data();

  int64_t* last = arena.sizes;
  arena.sizes = arena.wanted;
  arena.wanted = last;
  int64_t total = fits ? plan_offsets({segment.num_buffers, segment.buffers, arena.sizes, arena.order, arena.placed, arena.offsets}) : INT64_MAX;
  if (segment.space == kTpDevice) {
    char what[64];
    snprintf(what, sizeof what, "the arena of segment %d for these dims", index);
    arena.planned = fits && cuda::reserve_device(*run, arena.memory, total, what);
  } else {
    arena.planned = fits && reserve(arena.memory, total);
  }
  if (arena.planned) return arena.memory.data ? arena.memory.data : empty_data();
  fail(*run, TRIPOD_OUT_OF_MEMORY, "out of memory: segment %d of the model needs %lld bytes for these dims", index,
       static_cast<long long>(total));
  return nullptr;
}

const int64_t* tp_offsets(tp_run* run, int32_t segment) { return run->arenas[segment].offsets; }
