// The meaning of one scalar operation, written once: constant folding and the interpreter both use it.
//
// A value travels as 64 bits in its canonical form: floats as their bit pattern, signed integers sign-extended,
// unsigned integers and b1 zero-extended.
#pragma once

#include <cstdint>

#include "loop/ir.h"

namespace tripod::loop {

uint64_t canonical_bits(DType t, uint64_t bits);

uint64_t bits_from_double(DType t, double v);
double double_from_bits(DType t, uint64_t bits);
uint64_t bits_from_int(DType t, int64_t v);

// args are canonical bits of type `t` (select: args[0] is b1); the result is of type `t`, or b1 for comparisons.
// Not for leaves, casts and math operations.
uint64_t apply(Op op, DType t, const uint64_t* args);
uint64_t convert(DType from, DType to, uint64_t bits);

// Reads and writes element `i` of a buffer in memory (sub-byte types: low nibble first).
uint64_t read_element(DType t, const std::byte* memory, int64_t i);
void write_element(DType t, std::byte* memory, int64_t i, uint64_t bits);

}  // namespace tripod::loop
