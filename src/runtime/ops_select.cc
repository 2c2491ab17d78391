// NonZero and Compress: count, then fill.
#include "runtime/op_util.h"
#include "runtime/ops.h"

namespace tripod::rt {
namespace {

// Bits of an element that make it different from zero: all but the sign of types that have a negative zero.
uint64_t nonzero_mask(int32_t dtype) {
  switch (dtype) {
    case TRIPOD_F16:
    case TRIPOD_BF16: return 0x7fff;
    case TRIPOD_F32: return 0x7fff'ffff;
    case TRIPOD_F64: return 0x7fff'ffff'ffff'ffff;
    case TRIPOD_F8E4M3FN:
    case TRIPOD_F8E5M2: return 0x7f;
    default: return UINT64_MAX;
  }
}

template <typename U>
int64_t count_nonzero(const tp_view& x) {
  auto* data = static_cast<const U*>(x.data);
  auto mask = static_cast<U>(nonzero_mask(x.dtype));
  int64_t n = count(x), found = 0;
  for (int64_t i = 0; i < n; ++i) found += (data[i] & mask) != 0;
  return found;
}

// Column k of y gets the coordinates of the k-th element that is not zero.
template <typename U>
int32_t fill_nonzero(const tp_view& x, const tp_view& y) {
  auto* data = static_cast<const U*>(x.data);
  auto* out = static_cast<int64_t*>(y.data);
  auto mask = static_cast<U>(nonzero_mask(x.dtype));
  int32_t rank = x.rank > 0 ? x.rank : 1;
  int64_t width = x.rank > 0 ? x.shape[rank - 1] : 1, columns = y.shape[1], k = 0;
  int64_t rows = width > 0 ? count(x) / width : 0, at[8] = {};
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < width && k < columns; ++i) {
      if ((data[row * width + i] & mask) == 0) continue;
      for (int32_t d = 0; d < rank - 1; ++d) out[d * columns + k] = at[d];
      out[(rank - 1) * columns + k++] = i;
    }
    for (int32_t d = rank - 1; d-- > 0; at[d] = 0)
      if (++at[d] < x.shape[d]) break;
  }
  return TRIPOD_OK;
}

}  // namespace
}  // namespace tripod::rt

using namespace tripod::rt;

int32_t tp_op_nonzero_count(tp_run* run, const tp_view* views, const int64_t* attrs) {
  int64_t found = 0;
  int32_t code = dispatch_size(views[0].dtype, [&](auto tag) {
    found = count_nonzero<typename decltype(tag)::Type>(views[0]);
    return 0;
  });
  if (code < 0) return unsupported_type(run, attrs[1], "NonZero", views[0].dtype);
  return tp_set_dim(run, static_cast<int32_t>(attrs[0]), found, static_cast<int32_t>(attrs[1]));
}

int32_t tp_op_nonzero(tp_run*, const tp_view* views, const int64_t*) {
  return dispatch_size(views[0].dtype,
                       [&](auto tag) { return fill_nonzero<typename decltype(tag)::Type>(views[0], views[1]); });
}

int32_t tp_op_compress_count(tp_run* run, const tp_view* views, const int64_t* attrs) {
  auto* condition = static_cast<const uint8_t*>(views[1].data);
  int64_t n = count(views[1]), limit = around(views[0], attrs[0]).extent, found = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (condition[i] && i >= limit) return bad_index(run, attrs[2], i, limit);
    found += condition[i] != 0;
  }
  return tp_set_dim(run, static_cast<int32_t>(attrs[1]), found, static_cast<int32_t>(attrs[2]));
}

int32_t tp_op_compress(tp_run*, const tp_view* views, const int64_t* attrs) {
  const tp_view& x = views[0];
  auto* condition = static_cast<const uint8_t*>(views[1].data);
  Around a = around(x, attrs[0]);
  int64_t n = count(views[1]) < a.extent ? count(views[1]) : a.extent;
  int64_t bytes = a.inner * element_bytes(x.dtype);
  auto* in = static_cast<const char*>(x.data);
  auto* out = static_cast<char*>(views[2].data);
  for (int64_t o = 0; o < a.outer; ++o)
    for (int64_t i = 0; i < n; ++i)
      if (condition[i]) {
        memcpy(out, in + (o * a.extent + i) * bytes, static_cast<size_t>(bytes));
        out += bytes;
      }
  return TRIPOD_OK;
}
