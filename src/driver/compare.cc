#include "driver/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/float_bits.h"

namespace tripod {
namespace {

std::string shape_text(const Tensor& t) {
  std::string s;
  for (int64_t d : t.shape) s += (s.empty() ? "" : ", ") + std::to_string(d);
  return std::string(name(t.dtype)) + "[" + s + "]";
}

// The place of a float among the floats of its type: neighbours differ by 1.
double ordinal(DType t, const std::byte* data, int64_t i) {
  const int64_t size = byte_size(t, 1);
  uint64_t bits = 0;
  std::memcpy(&bits, data + i * size, static_cast<size_t>(size));
  const uint64_t sign = uint64_t{1} << (8 * size - 1);
  const double magnitude = static_cast<double>(bits & (sign - 1));
  return bits & sign ? -magnitude : magnitude;
}

double range_of(const Tensor& t) {
  double least = std::numeric_limits<double>::infinity(), most = -least, magnitude = 0;
  int64_t finite = 0;
  for (int64_t i = 0; i < t.count(); ++i) {
    const double v = load_double(t.dtype, t.bytes.data(), i);
    if (!std::isfinite(v)) continue;
    ++finite;
    least = std::min(least, v), most = std::max(most, v), magnitude = std::max(magnitude, std::fabs(v));
  }
  if (finite == 0) return 1;
  const double range = std::max(most - least, finite <= 8 ? magnitude : 0.0);
  return range > 0 ? range : 1;
}

void compare_floats(const Tensor& got, const Tensor& want, Difference& d) {
  d.range = range_of(want);
  for (int64_t i = 0; i < want.count(); ++i) {
    const double a = load_double(got.dtype, got.bytes.data(), i), b = load_double(want.dtype, want.bytes.data(), i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    double e = std::fabs(a - b);
    if (!std::isfinite(e)) e = std::numeric_limits<double>::infinity();
    if (std::isfinite(e))
      d.ulp = std::max(d.ulp,
                       std::fabs(ordinal(got.dtype, got.bytes.data(), i) - ordinal(want.dtype, want.bytes.data(), i)));
    if (e > d.error) d.error = e, d.at = i;
  }
  d.relative = d.error / d.range;
}

void compare_integers(const Tensor& got, const Tensor& want, Difference& d) {
  d.is_float = false;
  int64_t differ = 0;
  const bool bytes = info(want.dtype).bits >= 8;
  const int64_t size = bytes ? byte_size(want.dtype, 1) : 1,
                n = bytes ? want.count() : static_cast<int64_t>(want.bytes.size());
  for (int64_t i = 0; i < n; ++i) {
    if (std::memcmp(got.bytes.data() + i * size, want.bytes.data() + i * size, static_cast<size_t>(size)) == 0)
      continue;
    ++differ;
    const double e =
        bytes ? std::fabs(load_double(got.dtype, got.bytes.data(), i) - load_double(want.dtype, want.bytes.data(), i))
              : 1;
    if (e > d.error) d.error = e, d.at = i;
  }
  d.relative = n ? static_cast<double>(differ) / static_cast<double>(n) : 0;
}

}  // namespace

Difference compare(const Tensor& got, const Tensor& want) {
  Difference d;
  if (got.dtype != want.dtype || got.shape != want.shape) {
    d.problem = "got " + shape_text(got) + ", wanted " + shape_text(want);
    d.relative = d.error = std::numeric_limits<double>::infinity();
    return d;
  }
  is_float(want.dtype) ? compare_floats(got, want, d) : compare_integers(got, want, d);
  return d;
}

}  // namespace tripod
