// CumSum, over blocks of neighbouring columns so that every cache line is read once; columns are independent.
#include "runtime/op_util.h"
#include "runtime/ops.h"

namespace tripod::rt {
namespace {

constexpr int64_t kBlock = 16;

struct CumSum {
  const void* x;
  void* y;
  Around shape;
  int64_t blocks;  // of columns in one outer slice
  bool exclusive, reverse;
};

// Signed integers are summed as unsigned ones: they wrap.
template <typename T>
struct Sum {
  using Type = decltype(to_compute(T()));
};
template <>
struct Sum<int32_t> {
  using Type = uint32_t;
};
template <>
struct Sum<int64_t> {
  using Type = uint64_t;
};

template <typename T>
void cumsum_blocks(const uint64_t* args, int64_t begin, int64_t end, void*) {
  using S = typename Sum<T>::Type;
  using C = decltype(to_compute(T()));
  const CumSum& c = *reinterpret_cast<const CumSum*>(args[1]);
  const int64_t n = c.shape.extent, inner = c.shape.inner;
  for (int64_t block = begin; block < end; ++block) {
    int64_t column = block % c.blocks * kBlock, width = inner - column < kBlock ? inner - column : kBlock;
    int64_t base = block / c.blocks * n * inner + column;
    auto* x = static_cast<const T*>(c.x) + base;
    auto* y = static_cast<T*>(c.y) + base;
    S sums[kBlock] = {};
    for (int64_t step = 0; step < n; ++step) {
      int64_t row = (c.reverse ? n - 1 - step : step) * inner;
      for (int64_t i = 0; i < width; ++i) {
        S before = sums[i];
        sums[i] = static_cast<S>(before + static_cast<S>(to_compute(x[row + i])));
        y[row + i] = FromCompute<T>::of(static_cast<C>(c.exclusive ? before : sums[i]));
      }
    }
  }
}

}  // namespace
}  // namespace tripod::rt

using namespace tripod::rt;

int32_t tp_op_cumsum(tp_run* run, const tp_view* views, const int64_t* attrs) {
  const tp_view &x = views[0], &given = views[1];
  int64_t axis = attrs[0];
  if (given.data)
    axis = given.dtype == TRIPOD_I32 ? *static_cast<const int32_t*>(given.data)
                                     : *static_cast<const int64_t*>(given.data);
  if (axis < -x.rank || axis >= x.rank)
    return tp_fail(run, TRIPOD_INVALID_ARGUMENT, static_cast<int32_t>(attrs[3]), "axis is out of range for the rank",
                   axis, x.rank);
  axis += axis < 0 ? x.rank : 0;
  CumSum c = {x.data, views[2].data, around(x, axis), 0, attrs[1] != 0, attrs[2] != 0};
  c.blocks = (c.shape.inner + kBlock - 1) / kBlock;
  if (count(x) == 0) return TRIPOD_OK;
  uint64_t args[] = {0, reinterpret_cast<uint64_t>(&c)};
  int64_t grain = c.shape.extent >= 8192 ? 1 : 8192 / c.shape.extent;
  int32_t code = dispatch_number(x.dtype, [&](auto tag) {
    return tp_launch(run, cumsum_blocks<typename decltype(tag)::Type>, args, c.shape.outer * c.blocks, grain, 0);
  });
  return code < 0 ? unsupported_type(run, attrs[3], "CumSum", x.dtype) : code;
}
