// ScatterElements and ScatterND: one update after the other, so that duplicates have a defined result.
#include "runtime/op_util.h"
#include "runtime/ops.h"

namespace tripod::rt {
namespace {

template <typename C>
C multiply(C a, C b) {
  if constexpr (sizeof(C) < 4)
    return static_cast<C>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b));  // would overflow as int
  else
    return a * b;
}
// Signed integers wrap.
template <>
int32_t multiply(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b));
}
template <>
int64_t multiply(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

template <typename C>
C add(C a, C b) {
  C sum;
  if constexpr (static_cast<C>(0.5) == 0)
    __builtin_add_overflow(a, b, &sum);
  else
    sum = a + b;
  return sum;
}

template <typename T>
void reduce(T& into, T update, int64_t reduction) {
  auto a = to_compute(into), b = to_compute(update);
  using C = decltype(a);
  switch (reduction) {
    case kTpAdd: into = FromCompute<T>::of(add<C>(a, b)); break;
    case kTpMul: into = FromCompute<T>::of(multiply<C>(a, b)); break;
    case kTpMin: if (b < a || b != b) into = update; break;  // NaN stays, as in numpy.minimum
    case kTpMax: if (b > a || b != b) into = update; break;
    default: into = update;
  }
}

int64_t load_index(const tp_view& indices, int64_t i) {
  return indices.dtype == TRIPOD_I32 ? static_cast<const int32_t*>(indices.data)[i]
                                     : static_cast<const int64_t*>(indices.data)[i];
}

void copy_data(const tp_view& data, const tp_view& y) {
  if (data.data != y.data) tp_copy(y.data, data.data, count(data) * element_bytes(data.dtype));
}

// The updates are walked as an odometer; `base` is the offset in y of the current coordinates, the axis left out.
template <typename T>
int32_t scatter_elements(tp_run* run, const tp_view* views, const int64_t* attrs) {
  const tp_view &indices = views[1], &y = views[3];
  const int64_t axis = attrs[0], reduction = attrs[1], extent = y.shape[axis];
  auto* updates = static_cast<const T*>(views[2].data);
  auto* out = static_cast<T*>(y.data);
  int64_t steps[8], at[8] = {}, stride = 1, base = 0, n = count(indices);
  for (int32_t d = y.rank; d-- > 0; stride *= y.shape[d]) steps[d] = stride;
  for (int64_t i = 0; i < n; ++i) {
    int64_t index = load_index(indices, i);
    if (index < -extent || index >= extent) return bad_index(run, attrs[2], index, extent);
    index += index < 0 ? extent : 0;
    reduce(out[base + index * steps[axis]], updates[i], reduction);
    for (int32_t d = y.rank; d-- > 0;) {
      int64_t step = d == axis ? 0 : steps[d];
      base += step;
      if (++at[d] < indices.shape[d]) break;
      base -= step * indices.shape[d];
      at[d] = 0;
    }
  }
  return TRIPOD_OK;
}

template <typename T>
int32_t scatter_nd(tp_run* run, const tp_view* views, const int64_t* attrs) {
  const tp_view &indices = views[1], &y = views[3];
  const int64_t depth = indices.shape[indices.rank - 1], width = product(y, depth, y.rank);
  const int64_t n = product(indices, 0, indices.rank - 1);
  auto* updates = static_cast<const T*>(views[2].data);
  for (int64_t i = 0; i < n; ++i) {
    int64_t offset = 0;
    for (int64_t d = 0; d < depth; ++d) {
      int64_t index = load_index(indices, i * depth + d), extent = y.shape[d];
      if (index < -extent || index >= extent) return bad_index(run, attrs[1], index, extent);
      offset = offset * extent + index + (index < 0 ? extent : 0);
    }
    T* out = static_cast<T*>(y.data) + offset * width;
    if (attrs[0] == kTpNone)
      memcpy(out, updates + i * width, static_cast<size_t>(width) * sizeof(T));
    else
      for (int64_t k = 0; k < width; ++k) reduce(out[k], updates[i * width + k], attrs[0]);
  }
  return TRIPOD_OK;
}

}  // namespace
}  // namespace tripod::rt

using namespace tripod::rt;

int32_t tp_op_scatter_elements(tp_run* run, const tp_view* views, const int64_t* attrs) {
  copy_data(views[0], views[3]);
  auto scatter = [&](auto tag) { return scatter_elements<typename decltype(tag)::Type>(run, views, attrs); };
  int32_t dtype = views[0].dtype;
  int32_t code = attrs[1] == kTpNone ? dispatch_size(dtype, scatter) : dispatch_number(dtype, scatter);
  return code < 0 ? unsupported_type(run, attrs[2], "ScatterElements", dtype) : code;
}

int32_t tp_op_scatter_nd(tp_run* run, const tp_view* views, const int64_t* attrs) {
  copy_data(views[0], views[3]);
  auto scatter = [&](auto tag) { return scatter_nd<typename decltype(tag)::Type>(run, views, attrs); };
  int32_t dtype = views[0].dtype;
  int32_t code = attrs[0] == kTpNone ? dispatch_size(dtype, scatter) : dispatch_number(dtype, scatter);
  return code < 0 ? unsupported_type(run, attrs[1], "ScatterND", dtype) : code;
}
