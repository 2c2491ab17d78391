#include "base/float_bits.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/diagnostic.h"

namespace tripod {
namespace {

// How the top of a small float's range is used.
enum class Specials : uint8_t {
  ieee,  // all-ones exponent: infinity and NaN
  fn,    // no infinity; only the all-ones pattern is NaN
  fnuz,  // no infinity, no -0; the sign bit alone is NaN
};

struct Format {
  int exponent_bits, mantissa_bits, bias;
  Specials specials;
  int bits() const { return 1 + exponent_bits + mantissa_bits; }
  uint64_t sign() const { return uint64_t{1} << (exponent_bits + mantissa_bits); }
  uint64_t nan() const {
    if (specials == Specials::fnuz) return sign();
    const uint64_t exponent = ((uint64_t{1} << exponent_bits) - 1) << mantissa_bits;
    const uint64_t mantissa = (uint64_t{1} << mantissa_bits) - 1;
    return specials == Specials::fn ? exponent | mantissa : exponent | (uint64_t{1} << (mantissa_bits - 1));
  }
  uint64_t infinity() const { return ((uint64_t{1} << exponent_bits) - 1) << mantissa_bits; }
  // The largest finite magnitude.
  uint64_t largest() const {
    switch (specials) {
      case Specials::ieee: return infinity() - 1;
      case Specials::fn: return sign() - 2;
      case Specials::fnuz: return sign() - 1;
    }
    return 0;
  }
};

Format format(DType t) {
  switch (t) {
    case DType::f16: return {5, 10, 15, Specials::ieee};
    case DType::bf16: return {8, 7, 127, Specials::ieee};
    case DType::f8e4m3fn: return {4, 3, 7, Specials::fn};
    case DType::f8e4m3fnuz: return {4, 3, 8, Specials::fnuz};
    case DType::f8e5m2: return {5, 2, 15, Specials::ieee};
    case DType::f8e5m2fnuz: return {5, 2, 16, Specials::fnuz};
    default: internal_error(__FILE__, __LINE__, "not a small float: " + std::string(name(t)));
  }
}

// |v| in the format's magnitude bits, rounded to nearest even; may exceed largest(). v is finite and positive.
uint64_t round_magnitude(const Format& f, double v) {
  int exponent;
  std::frexp(v, &exponent);  // v = m * 2^exponent with m in [0.5, 1)
  const int least = 1 - f.bias;  // exponent of the least normal number
  const int e = std::max(exponent - 1, least);
  // The value in units of the last place: exact, since scaling by a power of two is.
  const double units = std::ldexp(v, f.mantissa_bits - e);
  double whole = std::floor(units);
  const double rest = units - whole;
  if (rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) != 0)) whole += 1;
  // A carry out of the mantissa lands in the exponent, which is what rounding up to the next binade means.
  const uint64_t hidden = uint64_t{1} << f.mantissa_bits;
  const uint64_t exponent_field = static_cast<uint64_t>(e - least + 1);
  return whole < static_cast<double>(hidden)
             ? static_cast<uint64_t>(whole)  // subnormal
             : (exponent_field << f.mantissa_bits) + (static_cast<uint64_t>(whole) - hidden);
}

uint64_t encode_small(DType t, double v, bool saturate) {
  const Format f = format(t);
  const bool is_f8 = f.bits() == 8;
  if (std::isnan(v)) return std::signbit(v) && f.specials != Specials::fnuz ? f.nan() | f.sign() : f.nan();
  const uint64_t sign = std::signbit(v) ? f.sign() : 0;
  if (v == 0) return f.specials == Specials::fnuz ? 0 : sign;
  const bool is_inf = std::isinf(v);
  const uint64_t magnitude = is_inf ? f.largest() + 1 : round_magnitude(f, std::fabs(v));
  if (magnitude > f.largest()) {
    if (is_f8 && saturate) return sign | f.largest();
    return f.specials == Specials::ieee ? sign | f.infinity()
           : f.specials == Specials::fn ? sign | f.nan()
                                        : f.nan();
  }
  return f.specials == Specials::fnuz && magnitude == 0 ? 0 : sign | magnitude;
}

double decode_small(DType t, uint64_t bits) {
  const Format f = format(t);
  const bool negative = (bits & f.sign()) != 0;
  const uint64_t magnitude = bits & (f.sign() - 1);
  double v;
  if (f.specials == Specials::fnuz && negative && magnitude == 0) return std::numeric_limits<double>::quiet_NaN();
  if (magnitude > f.largest()) {
    const bool inf = f.specials == Specials::ieee && magnitude == f.infinity();
    v = inf ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else {
    const uint64_t mantissa = magnitude & ((uint64_t{1} << f.mantissa_bits) - 1);
    const int exponent = static_cast<int>(magnitude >> f.mantissa_bits);
    v = exponent == 0 ? std::ldexp(static_cast<double>(mantissa), 1 - f.bias - f.mantissa_bits)
                      : std::ldexp(static_cast<double>(mantissa | (uint64_t{1} << f.mantissa_bits)),
                                   exponent - f.bias - f.mantissa_bits);
  }
  return negative ? -v : v;
}

int64_t saturated(DType t, double v) {
  if (std::isnan(v)) return 0;
  v = std::trunc(v);
  // 2^63 is exact in a double, int64's maximum is not.
  if (v < static_cast<double>(int_min(t))) return int_min(t);
  if (v >= 9223372036854775808.0) return int_max(t);
  return std::min(static_cast<int64_t>(v), int_max(t));
}

}  // namespace

uint64_t encode_float(DType t, double value, bool saturate) {
  if (t == DType::f64) return std::bit_cast<uint64_t>(value);
  if (t == DType::f32) return std::bit_cast<uint32_t>(static_cast<float>(value));
  return encode_small(t, value, saturate);
}

double decode_float(DType t, uint64_t bits) {
  if (t == DType::f64) return std::bit_cast<double>(bits);
  if (t == DType::f32) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  return decode_small(t, bits);
}

uint64_t load_bits(DType t, const std::byte* data, int64_t i) {
  const int bits = info(t).bits;
  if (bits == 4) return (static_cast<uint64_t>(data[i / 2]) >> (i % 2 * 4)) & 15;
  uint64_t v = 0;  // little-endian hosts only, like the models
  std::memcpy(&v, data + i * (bits / 8), static_cast<size_t>(bits / 8));
  return v;
}

void store_bits(DType t, std::byte* data, int64_t i, uint64_t v) {
  const int bits = info(t).bits;
  if (bits == 4) {
    const int shift = static_cast<int>(i % 2 * 4);
    const std::byte kept = data[i / 2] & std::byte{static_cast<uint8_t>(0xf0 >> shift)};
    data[i / 2] = kept | std::byte{static_cast<uint8_t>((v & 15) << shift)};
    return;
  }
  std::memcpy(data + i * (bits / 8), &v, static_cast<size_t>(bits / 8));
}

std::optional<int64_t> load_int(DType t, const std::byte* data, int64_t i) {
  const uint64_t bits = load_bits(t, data, i);
  if (t == DType::b1) return bits != 0;
  if (!is_signed(t)) {
    if (bits > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(bits);
  }
  const int unused = 64 - info(t).bits;
  return static_cast<int64_t>(bits << unused) >> unused;  // sign extension
}

double load_double(DType t, const std::byte* data, int64_t i) {
  if (is_float(t)) return decode_float(t, load_bits(t, data, i));
  if (t == DType::u64) return static_cast<double>(load_bits(t, data, i));
  return static_cast<double>(*load_int(t, data, i));
}

void store_double(DType t, std::byte* data, int64_t i, double value, bool saturate) {
  if (is_float(t)) return store_bits(t, data, i, encode_float(t, value, saturate));
  if (t == DType::b1) return store_bits(t, data, i, value != 0);
  if (t == DType::u64 && value >= 9223372036854775808.0) {
    constexpr double kTop = 18446744073709551616.0;
    return store_bits(t, data, i, value >= kTop ? ~uint64_t{0} : static_cast<uint64_t>(value));
  }
  store_int(t, data, i, saturated(t, value));
}

void store_int(DType t, std::byte* data, int64_t i, int64_t value) {
  // f32 through a double would round twice.
  if (t == DType::f32) return store_bits(t, data, i, std::bit_cast<uint32_t>(static_cast<float>(value)));
  if (is_float(t)) return store_bits(t, data, i, encode_float(t, static_cast<double>(value)));
  store_bits(t, data, i, t == DType::b1 ? value != 0 : static_cast<uint64_t>(value));
}

int64_t int_min(DType t) {
  if (!is_signed(t)) return 0;
  return -1 - int_max(t);
}

int64_t int_max(DType t) {
  if (t == DType::b1) return 1;
  const int value_bits = std::min(63, info(t).bits - (is_signed(t) ? 1 : 0));
  return static_cast<int64_t>((uint64_t{1} << value_bits) - 1);
}

}  // namespace tripod
