#include "runtime/offsets.h"

namespace tripod::rt {
namespace {

bool overlap(const tp_buffer& a, const tp_buffer& b) { return a.first <= b.last && b.first <= a.last; }

// `order`: the buffers, largest first; equal sizes in the order of the program. Heap sort: no recursion, no memory.
void sort_by_size(const OffsetPlan& p) {
  const int32_t n = p.num_buffers;
  int32_t* order = p.order;
  auto before = [&](int32_t a, int32_t b) { return p.sizes[a] != p.sizes[b] ? p.sizes[a] > p.sizes[b] : a < b; };
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
int64_t best_offset(const OffsetPlan& p, int32_t num_placed, int32_t b) {
  int64_t size = p.sizes[b], end = 0, best = -1, best_gap = INT64_MAX;
  for (int32_t i = 0; i < num_placed; ++i) {
    int32_t other = p.placed[i];
    if (p.sizes[other] == 0 || !overlap(p.buffers[other], p.buffers[b])) continue;
    int64_t gap = p.offsets[other] - end;
    if (gap >= size && gap < best_gap) {
      best = end;
      best_gap = gap;
    }
    int64_t after = p.offsets[other] + p.sizes[other];
    end = after > end ? after : end;
  }
  return best >= 0 ? best : end;
}

}  // namespace

int64_t plan_offsets(const OffsetPlan& p) {
  sort_by_size(p);
  int64_t total = 0;
  for (int32_t i = 0; i < p.num_buffers; ++i) {
    int32_t b = p.order[i], at = i;
    p.offsets[b] = best_offset(p, i, b);
    for (; at > 0 && p.offsets[p.placed[at - 1]] > p.offsets[b]; --at) p.placed[at] = p.placed[at - 1];
    p.placed[at] = b;
    int64_t end = p.offsets[b] + p.sizes[b];
    total = end > total ? end : total;
  }
  return total;
}

}  // namespace tripod::rt
