// Bit patterns of the element types: conversion of the small floats, and reading and writing single elements.
//
// Every conversion to a small float rounds once, to nearest even, straight from the double (a float is a double), so
// f64 -> f16 has no double rounding. What happens above the largest finite value is ONNX's Cast: f16, bf16, f32 go to
// infinity; the 8-bit floats saturate or, with saturate = false, go to infinity or NaN, whichever they have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/dtype.h"

namespace tripod {

// `t` is any float type; the pattern is in the low bits.
uint64_t encode_float(DType t, double value, bool saturate = true);
double decode_float(DType t, uint64_t bits);

inline uint16_t f16_bits(double v) { return static_cast<uint16_t>(encode_float(DType::f16, v)); }
inline uint16_t bf16_bits(double v) { return static_cast<uint16_t>(encode_float(DType::bf16, v)); }
inline float f16_value(uint16_t bits) { return static_cast<float>(decode_float(DType::f16, bits)); }
inline float bf16_value(uint16_t bits) { return static_cast<float>(decode_float(DType::bf16, bits)); }

// Element `i` of a packed tensor of type `t` (4-bit types: two a byte, low nibble first). `data` need not be aligned.
uint64_t load_bits(DType t, const std::byte* data, int64_t i);
void store_bits(DType t, std::byte* data, int64_t i, uint64_t bits);

// Numbers of any dtype but string; b1 reads as 0 or 1. 64-bit integers lose bits in a double: use load_int for them.
double load_double(DType t, const std::byte* data, int64_t i);
// Integers and b1 only; nothing for a u64 that an int64 cannot hold.
std::optional<int64_t> load_int(DType t, const std::byte* data, int64_t i);
// Rounds floats as above. Integers: truncates towards zero and saturates (NaN is 0).
void store_double(DType t, std::byte* data, int64_t i, double value, bool saturate = true);
// Wraps integers as a cast does; floats round.
void store_int(DType t, std::byte* data, int64_t i, int64_t value);

// The value range of an integer type, cut to what an int64 holds (u64's upper half is missing). b1 is 0..1.
int64_t int_min(DType t);
int64_t int_max(DType t);

}  // namespace tripod
