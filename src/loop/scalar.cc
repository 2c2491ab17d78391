#include "loop/scalar.h"

#include <bit>
#include <cmath>
#include <limits>

#include "base/float_bits.h"

namespace tripod::loop {
namespace {

float f32_of(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
double f64_of(uint64_t bits) { return std::bit_cast<double>(bits); }
uint64_t bits_of(float v) { return std::bit_cast<uint32_t>(v); }
uint64_t bits_of(double v) { return std::bit_cast<uint64_t>(v); }

bool is_storage_float(DType t) { return is_float(t) && info(t).bits < 32; }

template <class T>
T float_arithmetic(Op op, const T* a) {
  switch (op) {
    case Op::add: return a[0] + a[1];
    case Op::sub: return a[0] - a[1];
    case Op::mul: return a[0] * a[1];
    case Op::div: return a[0] / a[1];
    case Op::rem: return std::fmod(a[0], a[1]);
    case Op::min: return std::isnan(a[0]) ? a[0] : std::isnan(a[1]) || a[1] < a[0] ? a[1] : a[0];
    case Op::max: return std::isnan(a[0]) ? a[0] : std::isnan(a[1]) || a[1] > a[0] ? a[1] : a[0];
    case Op::neg: return -a[0];
    case Op::abs: return std::fabs(a[0]);
    case Op::sqrt: return std::sqrt(a[0]);
    case Op::floor: return std::floor(a[0]);
    case Op::ceil: return std::ceil(a[0]);
    case Op::trunc: return std::trunc(a[0]);
    case Op::rint: return std::nearbyint(a[0]);
    case Op::exp2_fast: {
      const T r = static_cast<T>(std::exp2(static_cast<double>(a[0])));
      return r < std::numeric_limits<T>::min() ? T(0) : r;
    }
    case Op::fma: return std::fma(a[0], a[1], a[2]);
    default: break;
  }
  internal_error(__FILE__, __LINE__, "not a float operation: " + std::string(name(op)));
}

template <class T>
uint64_t float_op(Op op, const uint64_t* args) {
  T a[3] = {};
  for (int i = 0; i < arity(op); ++i)
    if constexpr (sizeof(T) == 4) a[i] = f32_of(args[i]);
    else a[i] = f64_of(args[i]);
  switch (op) {
    case Op::lt: return a[0] < a[1];
    case Op::le: return a[0] <= a[1];
    case Op::eq: return a[0] == a[1];
    case Op::ne: return a[0] != a[1];
    default: return bits_of(float_arithmetic(op, a));
  }
}

// Quotient and remainder that never trap: x / 0 and x rem 0 are 0, INT_MIN / -1 is INT_MIN.
template <class T>
uint64_t int_divide(Op op, T a, T b) {
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return op == Op::div ? uint64_t{0} - static_cast<uint64_t>(a) : 0;
  return static_cast<uint64_t>(op == Op::div ? a / b : a % b);
}

uint64_t int_shift(Op op, bool is_signed, int width, uint64_t value, uint64_t by) {
  const bool too_far = by >= static_cast<uint64_t>(width);
  if (op == Op::shl) return too_far ? 0 : value << by;
  if (is_signed) return static_cast<uint64_t>(static_cast<int64_t>(value) >> (too_far ? 63 : by));
  return too_far ? 0 : value >> by;
}

uint64_t int_op(Op op, DType t, const uint64_t* a) {
  const bool s = is_signed(t);
  const auto i = [&](int k) { return static_cast<int64_t>(a[k]); };
  switch (op) {
    case Op::add: return a[0] + a[1];
    case Op::sub: return a[0] - a[1];
    case Op::mul: return a[0] * a[1];
    case Op::div:
    case Op::rem: return s ? int_divide<int64_t>(op, i(0), i(1)) : int_divide<uint64_t>(op, a[0], a[1]);
    case Op::min: return (s ? i(1) < i(0) : a[1] < a[0]) ? a[1] : a[0];
    case Op::max: return (s ? i(1) > i(0) : a[1] > a[0]) ? a[1] : a[0];
    case Op::neg: return uint64_t{0} - a[0];
    case Op::abs: return s && i(0) < 0 ? uint64_t{0} - a[0] : a[0];
    case Op::lt: return s ? i(0) < i(1) : a[0] < a[1];
    case Op::le: return s ? i(0) <= i(1) : a[0] <= a[1];
    case Op::eq: return a[0] == a[1];
    case Op::ne: return a[0] != a[1];
    case Op::bit_and: return a[0] & a[1];
    case Op::bit_or: return a[0] | a[1];
    case Op::bit_xor: return a[0] ^ a[1];
    case Op::bit_not: return t == DType::b1 ? !a[0] : ~a[0];
    case Op::shl:
    case Op::shr: return int_shift(op, s, info(t).bits, a[0], a[1] & (~uint64_t{0} >> (64 - info(t).bits)));
    default: break;
  }
  internal_error(__FILE__, __LINE__, "not an integer operation: " + std::string(name(op)));
}

bool is_comparison(Op op) { return op == Op::lt || op == Op::le || op == Op::eq || op == Op::ne; }

// Through i32 up to 16 bits and to i32, else through i64: its minimum for NaN and what is out of its range; u64 from
// [2^63, 2^64) is exact.
uint64_t int_from_float(DType to, double v) {
  constexpr double kTwo31 = 2147483648.0, kTwo63 = 9223372036854775808.0;
  if (info(to).bits <= 16 || to == DType::i32) {
    const int32_t i = v > -kTwo31 - 1 && v < kTwo31 ? static_cast<int32_t>(v) : std::numeric_limits<int32_t>::min();
    return canonical_bits(to, static_cast<uint64_t>(static_cast<int64_t>(i)));
  }
  if (to == DType::u64 && v >= kTwo63 && v < 2 * kTwo63) return static_cast<uint64_t>(v);
  const int64_t i = v >= -kTwo63 && v < kTwo63 ? static_cast<int64_t>(v) : std::numeric_limits<int64_t>::min();
  return canonical_bits(to, static_cast<uint64_t>(i));
}

}  // namespace

uint64_t canonical_bits(DType t, uint64_t bits) {
  if (t == DType::b1) return bits != 0;
  const int unused = 64 - info(t).bits;
  TRIPOD_CHECK(unused >= 0 && unused < 64, "a type without values");
  if (is_int(t) && is_signed(t)) return static_cast<uint64_t>(static_cast<int64_t>(bits << unused) >> unused);
  return bits << unused >> unused;
}

uint64_t bits_from_double(DType t, double v) {
  if (t == DType::b1) return v != 0;
  if (t == DType::f64) return bits_of(v);
  if (t == DType::f32) return bits_of(static_cast<float>(v));
  if (is_storage_float(t)) return encode_float(t, v);
  return int_from_float(t, v);
}

double double_from_bits(DType t, uint64_t bits) {
  if (t == DType::f64) return f64_of(bits);
  if (t == DType::f32) return f32_of(bits);
  if (is_storage_float(t)) return decode_float(t, bits);
  return is_signed(t) ? static_cast<double>(static_cast<int64_t>(bits)) : static_cast<double>(bits);
}

uint64_t bits_from_int(DType t, int64_t v) {
  if (t == DType::b1 || is_int(t)) return canonical_bits(t, static_cast<uint64_t>(v));
  return convert(DType::i64, t, static_cast<uint64_t>(v));
}

uint64_t apply(Op op, DType t, const uint64_t* args) {
  if (op == Op::select) return args[0] ? args[1] : args[2];
  uint64_t r = 0;
  if (t == DType::f32) r = float_op<float>(op, args);
  else if (t == DType::f64) r = float_op<double>(op, args);
  else r = int_op(op, t, args);
  return canonical_bits(is_comparison(op) ? DType::b1 : t, r);
}

uint64_t convert(DType from, DType to, uint64_t bits) {
  if (from == to) return bits;
  if (is_float(from)) return bits_from_double(to, double_from_bits(from, bits));
  // Integers become f32 and f64 with one rounding, the narrower floats through f32.
  if (to == DType::f64) return bits_of(double_from_bits(from, bits));
  if (is_float(to)) {
    const float v = is_signed(from) ? static_cast<float>(static_cast<int64_t>(bits)) : static_cast<float>(bits);
    return to == DType::f32 ? bits_of(v) : encode_float(to, v);
  }
  return canonical_bits(to, bits);
}

uint64_t read_element(DType t, const std::byte* memory, int64_t i) {
  return canonical_bits(t, load_bits(t, memory, i));
}

void write_element(DType t, std::byte* memory, int64_t i, uint64_t bits) { store_bits(t, memory, i, bits); }

}  // namespace tripod::loop
