// Element types. One enum for the graph, the loop IR, the C API and the importer.
//
// f16 and bf16 are stored as 16-bit patterns; arithmetic on them happens in f32 and rounds once per kernel.
// b1 is ONNX's bool: one byte, 0 or 1. `index` never appears in memory of a model: it is the 64-bit type of
// loop indices and dims inside kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tripod {

enum class DType : uint8_t {
  f32, f64, f16, bf16,
  i8, i16, i32, i64,
  u8, u16, u32, u64,
  b1,
  i4, u4,                                   // two a byte, low nibble first
  f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz,  // storage only: converted to f32 before any arithmetic
  string,
  none,
};

struct DTypeInfo {
  std::string_view name;  // as printed in IR text, "f32"
  int bits;               // size of one element
  bool is_float, is_int, is_signed;
};

const DTypeInfo& info(DType t);
std::optional<DType> parse_dtype(std::string_view name);

inline std::string_view name(DType t) { return info(t).name; }
inline bool is_float(DType t) { return info(t).is_float; }
inline bool is_int(DType t) { return info(t).is_int; }
inline bool is_signed(DType t) { return info(t).is_signed; }

// Bytes of `count` elements; sub-byte types round up to whole bytes.
inline int64_t byte_size(DType t, int64_t count) { return (info(t).bits * count + 7) / 8; }

// The type arithmetic on `t` is carried out in: f32 for the 8- and 16-bit floats, itself otherwise.
inline DType compute_type(DType t) { return is_float(t) && info(t).bits < 32 ? DType::f32 : t; }

}  // namespace tripod
