// Element types as the runtime needs them; the values equal tripod::DType, which is the compiler's and not linked in.
#include "runtime/internal.h"

namespace tripod::rt {
namespace {

struct Row {
  const char* name;
  int32_t bits;
};

constexpr Row kRows[] = {
    {"f32", 32},     {"f64", 64},       {"f16", 16},    {"bf16", 16},      {"i8", 8},
    {"i16", 16},     {"i32", 32},       {"i64", 64},    {"u8", 8},         {"u16", 16},
    {"u32", 32},     {"u64", 64},       {"bool", 8},    {"i4", 4},         {"u4", 4},
    {"f8e4m3fn", 8}, {"f8e4m3fnuz", 8}, {"f8e5m2", 8},  {"f8e5m2fnuz", 8}, {"string", 64},
};
constexpr int32_t kCount = sizeof(kRows) / sizeof(kRows[0]);
static_assert(kCount == TRIPOD_STRING + 1);

}  // namespace

int32_t element_bits(int32_t dtype) { return dtype >= 0 && dtype < kCount ? kRows[dtype].bits : 0; }

const char* dtype_name(int32_t dtype) { return dtype >= 0 && dtype < kCount ? kRows[dtype].name : "unknown"; }

bool dense_bytes(int32_t dtype, int32_t rank, const int64_t* shape, int64_t* count, int64_t* bytes) {
  int64_t product = 1;  // of the extents that are not 0: even a tensor of no elements has strides
  bool empty = false;
  for (int32_t i = 0; i < rank; ++i) {
    if (shape[i] < 0) return false;
    if (shape[i] == 0)
      empty = true;
    else if (__builtin_mul_overflow(product, shape[i], &product))
      return false;
  }
  int64_t bits;
  if (__builtin_mul_overflow(product, int64_t{element_bits(dtype)}, &bits) || bits > INT64_MAX - 7) return false;
  *count = empty ? 0 : product;
  *bytes = empty ? 0 : (bits + 7) / 8;
  return true;
}

}  // namespace tripod::rt
