// Memory: buffers that grow, and the arenas of segments.
//
// A plan gives every buffer of a segment an offset so that buffers alive at the same step do not overlap: largest
// first, each into the smallest gap that holds it (greedy by size, best fit). It is solved again only when a size
// differs from the last call's.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/cuda.h"
#include "runtime/internal.h"

namespace tripod::rt {
namespace {

constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kLine = 64;

bool overlap(const tp_buffer& a, const tp_buffer& b) { return a.first <= b.last && b.first <= a.last; }

// `order`: the buffers, largest first; equal sizes in the order of the program. Heap sort: no recursion, no memory.
void sort_by_size(const Arena& arena, int32_t n) {
  int32_t* order = arena.order;
  auto before = [&](int32_t a, int32_t b) {
    return arena.sizes[a] != arena.sizes[b] ? arena.sizes[a] > arena.sizes[b] : a < b;
  };
  auto sift = [&](int32_t root, int32_t end) {
    for (int32_t child; (child = 2 * root + 1) < end; root = child) {
      if (child + 1 < end && before(order[child], order[child + 1])) ++child;
      if (!before(order[root], order[child])) return;
      int32_t t = order[root];
      order[root] = order[child];
      order[child] = t;
    }
  };
  for (int32_t i = 0; i < n; ++i) order[i] = i;
  for (int32_t i = n / 2; i-- > 0;) sift(i, n);
  for (int32_t end = n; --end > 0;) {
    int32_t t = order[0];
    order[0] = order[end];
    order[end] = t;
    sift(0, end);
  }
}

// The smallest gap for buffer b between the placed ones that are alive with it; `placed` is sorted by offset.
int64_t best_offset(const tp_segment& segment, const Arena& arena, int32_t num_placed, int32_t b) {
  int64_t size = arena.sizes[b], end = 0, best = -1, best_gap = INT64_MAX;
  for (int32_t i = 0; i < num_placed; ++i) {
    int32_t p = arena.placed[i];
    if (arena.sizes[p] == 0 || !overlap(segment.buffers[p], segment.buffers[b])) continue;
    int64_t gap = arena.offsets[p] - end;
    if (gap >= size && gap < best_gap) {
      best = end;
      best_gap = gap;
    }
    int64_t after = arena.offsets[p] + arena.sizes[p];
    end = after > end ? after : end;
  }
  return best >= 0 ? best : end;
}

// Solves the offsets; returns the bytes of the whole arena.
int64_t plan(const tp_segment& segment, Arena& arena) {
  sort_by_size(arena, segment.num_buffers);
  int64_t total = 0;
  for (int32_t i = 0; i < segment.num_buffers; ++i) {
    int32_t b = arena.order[i], at = i;
    arena.offsets[b] = best_offset(segment, arena, i, b);
    for (; at > 0 && arena.offsets[arena.placed[at - 1]] > arena.offsets[b]; --at)
      arena.placed[at] = arena.placed[at - 1];
    arena.placed[at] = b;
    int64_t end = arena.offsets[b] + arena.sizes[b];
    total = end > total ? end : total;
  }
  return total;
}

// Rounds the wanted sizes up; false when their sum does not fit in 63 bits, which also keeps plan() from overflowing.
bool round_sizes(const tp_segment& segment, const Arena& arena) {
  int64_t sum = 0;
  for (int32_t i = 0; i < segment.num_buffers; ++i) {
    int64_t& size = arena.wanted[i];
    if (size < 0 || size > INT64_MAX - kLine) return false;
    size = (size + kLine - 1) & -kLine;
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
  int64_t total = fits ? plan(segment, arena) : INT64_MAX;
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
