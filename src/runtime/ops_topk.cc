// TopK: every row is sorted as integers that hold key and index, of which the k smallest are selected first.
#include <algorithm>

#include "runtime/op_util.h"
#include "runtime/ops.h"

namespace tripod::rt {
namespace {

struct TopK {
  const char* x;
  char* values;
  int64_t* indices;
  Around rows;
  int64_t k;
  bool largest;
};

// Rows [begin, end) of the outer x inner ones.
template <typename T>
void topk_rows(const uint64_t* args, int64_t begin, int64_t end, void* scratch) {
  using R = Ranked<T>;
  const TopK& t = *reinterpret_cast<const TopK*>(args[1]);
  auto* x = reinterpret_cast<const T*>(t.x);
  auto* values = reinterpret_cast<T*>(t.values);
  auto* ranked = static_cast<R*>(scratch);
  const int64_t n = t.rows.extent, inner = t.rows.inner, k = t.k;
  for (int64_t row = begin; row < end; ++row) {
    int64_t from = row / inner * n * inner + row % inner, to = row / inner * k * inner + row % inner;
    for (int64_t i = 0; i < n; ++i) {
      auto key = sort_key(x[from + i * inner]);
      ranked[i] = static_cast<R>(t.largest ? ~key : key) << kIndexBits<T> | static_cast<R>(i);
    }
    if (k < n) std::nth_element(ranked, ranked + k, ranked + n);
    std::sort(ranked, ranked + k);
    for (int64_t i = 0; i < k; ++i) {
      auto index = static_cast<int64_t>(ranked[i] & ((R{1} << kIndexBits<T>) - 1));
      values[to + i * inner] = x[from + index * inner];
      t.indices[to + i * inner] = index;
    }
  }
}

}  // namespace
}  // namespace tripod::rt

using namespace tripod::rt;

int32_t tp_op_topk(tp_run* run, const tp_view* views, const int64_t* attrs) {
  const tp_view& x = views[0];
  TopK t = {static_cast<const char*>(x.data), static_cast<char*>(views[1].data), static_cast<int64_t*>(views[2].data),
            around(x, attrs[0]), views[1].shape[attrs[0]], attrs[1] != 0};
  auto site = static_cast<int32_t>(attrs[3]);
  int64_t n = t.rows.extent;
  if (t.k > n) return tp_fail(run, TRIPOD_INVALID_ARGUMENT, site, "k is larger than the axis", t.k, n);
  if (t.k == 0) return TRIPOD_OK;
  if (n > UINT32_MAX) return tp_fail(run, TRIPOD_UNSUPPORTED, site, "more than 2^32 elements at the axis", n, UINT32_MAX);
  uint64_t args[] = {0, reinterpret_cast<uint64_t>(&t)};
  int64_t grain = n >= 8192 ? 1 : 8192 / n;
  int32_t code = dispatch_number(x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return tp_launch(run, topk_rows<T>, args, t.rows.outer * t.rows.inner, grain,
                     n * static_cast<int64_t>(sizeof(Ranked<T>)));
  });
  return code < 0 ? unsupported_type(run, attrs[3], "TopK", x.dtype) : code;
}
