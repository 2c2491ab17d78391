// What runtime operators share: element types as C++ types, views as outer x axis x inner, keys that sort.
#pragma once

#include <immintrin.h>
#include <string.h>

#include "runtime/internal.h"

namespace tripod::rt {

// 16-bit floats are bits; arithmetic on them happens in f32.
struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};

inline float to_compute(F16 v) { return _cvtsh_ss(v.bits); }
inline float to_compute(Bf16 v) { return __builtin_bit_cast(float, uint32_t{v.bits} << 16); }
template <typename T>
T to_compute(T v) {
  return v;
}

template <typename T>
struct FromCompute {
  static T of(T v) { return v; }
};
template <>
struct FromCompute<F16> {
  static F16 of(float v) { return {_cvtss_sh(v, _MM_FROUND_TO_NEAREST_INT)}; }
};
template <>
struct FromCompute<Bf16> {
  static Bf16 of(float v) {
    uint32_t bits = __builtin_bit_cast(uint32_t, v);
    if (v != v) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
    return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
  }
};

template <typename T>
struct Tag {
  using Type = T;
};

// f(Tag<T>) for the element types that arithmetic and order are defined on; -1 for the others.
template <typename F>
int32_t dispatch_number(int32_t dtype, F f) {
  switch (dtype) {
    case TRIPOD_F32: return f(Tag<float>());
    case TRIPOD_F64: return f(Tag<double>());
    case TRIPOD_F16: return f(Tag<F16>());
    case TRIPOD_BF16: return f(Tag<Bf16>());
    case TRIPOD_I8: return f(Tag<int8_t>());
    case TRIPOD_I16: return f(Tag<int16_t>());
    case TRIPOD_I32: return f(Tag<int32_t>());
    case TRIPOD_I64: return f(Tag<int64_t>());
    case TRIPOD_BOOL:
    case TRIPOD_U8: return f(Tag<uint8_t>());
    case TRIPOD_U16: return f(Tag<uint16_t>());
    case TRIPOD_U32: return f(Tag<uint32_t>());
    case TRIPOD_U64: return f(Tag<uint64_t>());
    default: return -1;
  }
}

// f(Tag<U>) with the unsigned type of the element's size, for moves; -1 for sub-byte elements.
template <typename F>
int32_t dispatch_size(int32_t dtype, F f) {
  switch (element_bits(dtype)) {
    case 8: return f(Tag<uint8_t>());
    case 16: return f(Tag<uint16_t>());
    case 32: return f(Tag<uint32_t>());
    case 64: return f(Tag<uint64_t>());
    default: return -1;
  }
}

inline int32_t unsupported_type(tp_run* run, int64_t site, const char* op, int32_t dtype) {
  return fail(*run, TRIPOD_UNSUPPORTED, "%s: %s does not serve %s elements", site_name(static_cast<int32_t>(site)), op,
              dtype_name(dtype));
}

// The same words as a kernel's report, for operators, whose indices may be negative.
inline int32_t bad_index(tp_run* run, int64_t site, int64_t got, int64_t extent) {
  return fail(*run, TRIPOD_INDEX_OUT_OF_RANGE, "%s: index %lld is not in [%lld, %lld)",
              site_name(static_cast<int32_t>(site)), static_cast<long long>(got), -static_cast<long long>(extent),
              static_cast<long long>(extent));
}

inline int64_t product(const tp_view& v, int64_t from, int64_t to) {
  int64_t n = 1;
  for (int64_t i = from; i < to; ++i) n *= v.shape[i];
  return n;
}
inline int64_t count(const tp_view& v) { return product(v, 0, v.rank); }

// A tensor seen around one axis: element (o, a, i) is at (o * extent + a) * inner + i. Axis -1: flat.
struct Around {
  int64_t outer, extent, inner;
};
inline Around around(const tp_view& v, int64_t axis) {
  if (axis < 0) return {1, count(v), 1};
  return {product(v, 0, axis), v.shape[axis], product(v, axis + 1, v.rank)};
}

// Unsigned keys in the order of the values: NaN above everything, -0 equal to 0.
inline uint32_t sort_key(float v) {
  if (v != v) return UINT32_MAX;
  uint32_t bits = v == 0 ? 0 : __builtin_bit_cast(uint32_t, v);
  return bits >> 31 ? ~bits : bits | 1u << 31;
}
inline uint64_t sort_key(double v) {
  if (v != v) return UINT64_MAX;
  uint64_t bits = v == 0 ? 0 : __builtin_bit_cast(uint64_t, v);
  return bits >> 63 ? ~bits : bits | uint64_t{1} << 63;
}
inline uint32_t sort_key(F16 v) { return sort_key(to_compute(v)); }
inline uint32_t sort_key(Bf16 v) { return sort_key(to_compute(v)); }
inline uint32_t sort_key(int8_t v) { return static_cast<uint32_t>(v) ^ 1u << 31; }
inline uint32_t sort_key(int16_t v) { return static_cast<uint32_t>(v) ^ 1u << 31; }
inline uint32_t sort_key(int32_t v) { return static_cast<uint32_t>(v) ^ 1u << 31; }
inline uint64_t sort_key(int64_t v) { return static_cast<uint64_t>(v) ^ uint64_t{1} << 63; }
inline uint32_t sort_key(uint8_t v) { return v; }
inline uint32_t sort_key(uint16_t v) { return v; }
inline uint32_t sort_key(uint32_t v) { return v; }
inline uint64_t sort_key(uint64_t v) { return v; }

// Key and index in one integer: sorting these sorts by key, then by index. 32-bit keys need fewer than 2^32 elements.
__extension__ typedef unsigned __int128 U128;
template <size_t kKeyBytes>
struct RankedWith {
  using Type = U128;
};
template <>
struct RankedWith<4> {
  using Type = uint64_t;
};
template <typename T>
using Ranked = typename RankedWith<sizeof(sort_key(T()))>::Type;
template <typename T>
constexpr int kIndexBits = sizeof(Ranked<T>) * 4;

}  // namespace tripod::rt
