// Unique: sort the slices (or elements), group the equal ones, and put the groups in the order that was asked for.
#include <algorithm>

#include "runtime/op_util.h"
#include "runtime/ops.h"

namespace tripod::rt {
namespace {

struct Slices {
  const void* data;
  Around shape;
};
using Compare = int (*)(const Slices& s, int64_t a, int64_t b);

// Slices in lexicographic order of their elements.
template <typename T>
int compare_slices(const Slices& s, int64_t a, int64_t b) {
  auto* x = static_cast<const T*>(s.data);
  const Around& r = s.shape;
  for (int64_t o = 0; o < r.outer; ++o)
    for (int64_t i = 0; i < r.inner; ++i) {
      auto ka = sort_key(x[(o * r.extent + a) * r.inner + i]), kb = sort_key(x[(o * r.extent + b) * r.inner + i]);
      if (ka != kb) return ka < kb ? -1 : 1;
    }
  return 0;
}

// order: the slices sorted, equal ones by index. Single elements are sorted as integers.
template <typename T>
bool sort_slices(tp_run& run, const Slices& s, int64_t* order) {
  int64_t n = s.shape.extent;
  if (s.shape.outer * s.shape.inner != 1 || n > UINT32_MAX) {
    for (int64_t i = 0; i < n; ++i) order[i] = i;
    Compare compare = compare_slices<T>;
    std::sort(order, order + n, [&](int64_t a, int64_t b) {
      int c = compare(s, a, b);
      return c != 0 ? c < 0 : a < b;
    });
    return true;
  }
  using R = Ranked<T>;
  auto* ranked = reinterpret_cast<R*>(operator_memory(run, n * static_cast<int64_t>(sizeof(R))));
  if (!ranked) return false;
  auto* x = static_cast<const T*>(s.data);
  for (int64_t i = 0; i < n; ++i) ranked[i] = static_cast<R>(sort_key(x[i])) << kIndexBits<T> | static_cast<R>(i);
  std::sort(ranked, ranked + n);
  for (int64_t i = 0; i < n; ++i) order[i] = static_cast<int64_t>(ranked[i] & ((R{1} << kIndexBits<T>) - 1));
  return true;
}

// From `order` (which is `counts`' memory until a group has taken its place) to groups in sorted order.
int64_t group(const Slices& s, Compare compare, int64_t* order, int64_t* first, int64_t* inverse, int64_t* counts) {
  int64_t groups = 0, n = s.shape.extent, previous = 0;
  for (int64_t i = 0; i < n; ++i) {
    int64_t slice = order[i];
    if (i == 0 || compare(s, previous, slice) != 0) {
      first[groups] = slice;
      counts[groups++] = 0;  // group g is written when order[g] has been read: g <= i
    }
    ++counts[groups - 1];
    inverse[slice] = groups - 1;
    previous = slice;
  }
  return groups;
}

// Renumbers the groups in the order in which they first occur.
bool by_occurrence(tp_run& run, int64_t n, int64_t groups, int64_t* first, int64_t* inverse, int64_t* counts) {
  auto* renamed = reinterpret_cast<int64_t*>(operator_memory(run, 16 * groups));
  if (!renamed) return false;
  int64_t *old_counts = renamed + groups, next = 0;
  for (int64_t g = 0; g < groups; ++g) {
    old_counts[g] = counts[g];
    renamed[g] = -1;
  }
  for (int64_t i = 0; i < n; ++i) {
    int64_t g = inverse[i];
    if (renamed[g] < 0) {
      renamed[g] = next;
      counts[next] = old_counts[g];
      first[next++] = i;
    }
    inverse[i] = renamed[g];
  }
  return true;
}

}  // namespace
}  // namespace tripod::rt

using namespace tripod::rt;

int32_t tp_op_unique_count(tp_run* run, const tp_view* views, const int64_t* attrs) {
  Slices s = {views[0].data, around(views[0], attrs[0])};
  auto* first = static_cast<int64_t*>(views[1].data);
  auto* inverse = static_cast<int64_t*>(views[2].data);
  auto* counts = static_cast<int64_t*>(views[3].data);
  int64_t n = s.shape.extent, groups = 0;
  int32_t code = dispatch_number(views[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if (!sort_slices<T>(*run, s, counts)) return run->status;
    groups = group(s, compare_slices<T>, counts, first, inverse, counts);
    return 0;
  });
  if (code < 0) return unsupported_type(run, attrs[3], "Unique", views[0].dtype);
  if (code > 0 || (!attrs[1] && !by_occurrence(*run, n, groups, first, inverse, counts))) return run->status;
  return tp_set_dim(run, static_cast<int32_t>(attrs[2]), groups, static_cast<int32_t>(attrs[3]));
}

int32_t tp_op_unique(tp_run*, const tp_view* views, const int64_t* attrs) {
  const tp_view &x = views[0], &y = views[4];
  Around from = around(x, attrs[0]), to = around(y, attrs[0]);
  auto* first = static_cast<const int64_t*>(views[1].data);
  int64_t groups = to.extent, bytes = from.inner * element_bytes(x.dtype);
  auto* in = static_cast<const char*>(x.data);
  auto* out = static_cast<char*>(y.data);
  for (int64_t o = 0; out && o < from.outer; ++o)
    for (int64_t g = 0; g < groups; ++g)
      memcpy(out + (o * groups + g) * bytes, in + (o * from.extent + first[g]) * bytes, static_cast<size_t>(bytes));
  if (views[5].data) tp_copy(views[5].data, first, groups * 8);
  if (views[6].data) tp_copy(views[6].data, views[2].data, from.extent * 8);
  if (views[7].data) tp_copy(views[7].data, views[3].data, groups * 8);
  return TRIPOD_OK;
}
