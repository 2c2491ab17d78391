// Copies between dense and strided memory, for callers whose tensors are views.
#include <string.h>

#include "runtime/internal.h"

namespace tripod::rt {
namespace {

template <typename T>
void copy_row(Copy direction, char* dense, char* strided, int64_t n, int64_t step) {
  T* d = reinterpret_cast<T*>(dense);
  T* s = reinterpret_cast<T*>(strided);
  if (direction == Copy::gather)
    for (int64_t i = 0; i < n; ++i) d[i] = s[i * step];
  else
    for (int64_t i = 0; i < n; ++i) s[i * step] = d[i];
}

void copy_row(Copy direction, char* dense, char* strided, int64_t n, int64_t step, int32_t size) {
  if (step == 1)
    memcpy(direction == Copy::gather ? dense : strided, direction == Copy::gather ? strided : dense,
           static_cast<size_t>(n * size));
  else if (size == 1)
    copy_row<uint8_t>(direction, dense, strided, n, step);
  else if (size == 2)
    copy_row<uint16_t>(direction, dense, strided, n, step);
  else if (size == 4)
    copy_row<uint32_t>(direction, dense, strided, n, step);
  else
    copy_row<uint64_t>(direction, dense, strided, n, step);
}

}  // namespace

bool is_dense(const tripod_tensor& t) {
  if (!t.strides) return true;
  int64_t expected = 1;
  for (int32_t i = t.rank; i-- > 0;) {
    if (t.shape[i] == 0) return true;
    if (t.shape[i] != 1 && t.strides[i] != expected) return false;
    expected *= t.shape[i];
  }
  return true;
}

Axes merge_axes(int32_t rank, const int64_t* shape, const int64_t* strides) {
  Axes axes = {};
  int32_t& n = axes.count;
  for (int32_t i = rank; i-- > 0;) {
    if (shape[i] == 1) continue;
    if (n > 0 && strides[i] == axes.steps[n - 1] * axes.extents[n - 1]) {
      axes.extents[n - 1] *= shape[i];
    } else {
      axes.extents[n] = shape[i];
      axes.steps[n++] = strides[i];
    }
  }
  if (n == 0) axes.extents[n] = 1, axes.steps[n++] = 1;
  return axes;
}

void copy_strided(Copy direction, char* dense, char* strided, int32_t rank, const int64_t* shape,
                  const int64_t* strides, int32_t size) {
  for (int32_t i = 0; i < rank; ++i)
    if (shape[i] == 0) return;
  Axes axes = merge_axes(rank, shape, strides);
  const int64_t *extents = axes.extents, *steps = axes.steps;
  int64_t index[TRIPOD_MAX_RANK] = {};
  for (;;) {
    copy_row(direction, dense, strided, extents[0], steps[0], size);
    dense += extents[0] * size;
    int32_t axis = 1;
    for (; axis < axes.count; ++axis) {
      strided += steps[axis] * size;
      if (++index[axis] < extents[axis]) break;
      strided -= steps[axis] * extents[axis] * size;
      index[axis] = 0;
    }
    if (axis >= axes.count) return;
  }
}

alignas(64) static char no_elements[64];
char* empty_data() { return no_elements; }

}  // namespace tripod::rt
