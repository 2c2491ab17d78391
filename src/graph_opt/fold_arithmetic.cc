// Arithmetic on constants, in the precision of their type: f32 in f32, f16 and bf16 in f32 rounded once, integers
// modulo 2^bits.
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/float_bits.h"
#include "graph_opt/fold.h"

namespace tripod::graph_opt {

namespace {

using Bytes = std::vector<std::byte>;

// The type that elements are computed in.
enum class Lane { f32, f64, i64, none };

Lane lane_of(DType t) {
  if (t == DType::f64) return Lane::f64;
  if (is_float(t)) return Lane::f32;
  // An int64 does not hold every u64: those that matter (sizes) have been folded as contents.
  return (is_int(t) && t != DType::u64) || t == DType::b1 ? Lane::i64 : Lane::none;
}

// Weights have millions of elements: the type that is its own lane is read and written directly.
template <class T>
constexpr DType kNative = std::is_same_v<T, float> ? DType::f32 : std::is_same_v<T, double> ? DType::f64 : DType::i64;

template <class T>
T load(DType t, const std::byte* data, int64_t i) {
  if (t == kNative<T>) {
    T v;
    std::memcpy(&v, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return v;
  }
  if constexpr (std::is_integral_v<T>) {
    if (t == DType::i8) return static_cast<int8_t>(data[i]);
    return *load_int(t, data, i);
  } else {
    return static_cast<T>(load_double(t, data, i));
  }
}

template <class T>
void store(DType t, std::byte* data, int64_t i, T v) {
  if (t == kNative<T>) std::memcpy(data + i * static_cast<int64_t>(sizeof(T)), &v, sizeof(T));
  else if constexpr (std::is_integral_v<T>) store_int(t, data, i, v);
  else store_double(t, data, i, static_cast<double>(v));
}

// An operand, stretched to the result's shape while it is read.
template <class T>
class Input {
 public:
  Input(const Graph& g, ValueId v, const Ints& to) : type_(g.type(v).dtype) {
    const Ints from = *static_shape(g.type(v));
    const size_t size = static_cast<size_t>(info(type_).bits) / 8;
    if (from != to && product(from) != product(to)) {
      if (product(from) > 1 && size > 0) stretched_ = strided_copy(g.bytes(v).data, size, 0, stretched_strides(from, to), to);
      single_ = product(from) == 1;
    }
    data_ = stretched_.empty() ? g.bytes(v).data : stretched_.data();
  }
  T operator[](int64_t i) const { return load<T>(type_, data_, single_ ? 0 : i); }

 private:
  DType type_;
  Bytes stretched_;
  const std::byte* data_;
  bool single_ = false;
};

template <class T, class F>
Bytes map(const Graph& g, const Node& n, const Ints& to, DType result, F f) {
  const int64_t count = product(to);
  Bytes bytes(static_cast<size_t>(byte_size(result, count)));
  const Input<T> a(g, n.operands[0], to);
  for (int64_t i = 0; i < count; ++i) store(result, bytes.data(), i, f(a[i]));
  return bytes;
}

template <class T, class F>
Bytes zip(const Graph& g, const Node& n, const Ints& to, DType result, F f) {
  const int64_t count = product(to);
  Bytes bytes(static_cast<size_t>(byte_size(result, count)));
  const Input<T> a(g, n.operands[0], to), b(g, n.operands[1], to);
  for (int64_t i = 0; i < count; ++i) store(result, bytes.data(), i, f(a[i], b[i]));
  return bytes;
}

// Integers wrap.
template <class T, class F>
T wrapping(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(f(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  else return f(a, b);
}

// NaN wins over numbers, as in the kernels.
template <class T>
T smaller(T a, T b) { return a != a ? a : b != b ? b : b < a ? b : a; }
template <class T>
T larger(T a, T b) { return a != a ? a : b != b ? b : a < b ? b : a; }

template <class T>
std::optional<Bytes> binary(const Graph& g, const Node& n, const Ints& to, DType t) {
  switch (n.op) {
    case OpKind::add: return zip<T>(g, n, to, t, [](T a, T b) { return wrapping(a, b, [](auto x, auto y) { return x + y; }); });
    case OpKind::sub: return zip<T>(g, n, to, t, [](T a, T b) { return wrapping(a, b, [](auto x, auto y) { return x - y; }); });
    case OpKind::mul: return zip<T>(g, n, to, t, [](T a, T b) { return wrapping(a, b, [](auto x, auto y) { return x * y; }); });
    case OpKind::minimum: return zip<T>(g, n, to, t, smaller<T>);
    case OpKind::maximum: return zip<T>(g, n, to, t, larger<T>);
    case OpKind::equal: return zip<T>(g, n, to, t, [](T a, T b) { return static_cast<int64_t>(a == b); });
    case OpKind::less: return zip<T>(g, n, to, t, [](T a, T b) { return static_cast<int64_t>(a < b); });
    case OpKind::less_equal: return zip<T>(g, n, to, t, [](T a, T b) { return static_cast<int64_t>(a <= b); });
    default: break;
  }
  if constexpr (std::is_integral_v<T>) {
    switch (n.op) {
      case OpKind::logical_and:
      case OpKind::bit_and: return zip<T>(g, n, to, t, [](T a, T b) { return a & b; });
      case OpKind::logical_or:
      case OpKind::bit_or: return zip<T>(g, n, to, t, [](T a, T b) { return a | b; });
      case OpKind::logical_xor:
      case OpKind::bit_xor: return zip<T>(g, n, to, t, [](T a, T b) { return a ^ b; });
      default: return std::nullopt;  // division by zero has no value, shifts have their own rules
    }
  } else {
    if (n.op == OpKind::div) return zip<T>(g, n, to, t, [](T a, T b) { return a / b; });
    return std::nullopt;
  }
}

template <class T>
std::optional<Bytes> unary(const Graph& g, const Node& n, const Ints& to, DType t) {
  switch (n.op) {
    case OpKind::neg: return map<T>(g, n, to, t, [](T a) { return wrapping(T{0}, a, [](auto x, auto y) { return x - y; }); });
    case OpKind::relu: return map<T>(g, n, to, t, [](T a) { return larger(T{0}, a); });
    case OpKind::abs:
      if constexpr (std::is_integral_v<T>) return map<T>(g, n, to, t, [](T a) { return a < 0 ? wrapping(T{0}, a, [](auto x, auto y) { return x - y; }) : a; });
      else return map<T>(g, n, to, t, [](T a) { return std::fabs(a); });
    case OpKind::logical_not: return map<T>(g, n, to, t, [](T a) { return static_cast<int64_t>(a == 0); });
    default: break;
  }
  if constexpr (!std::is_integral_v<T>) {
    switch (n.op) {
      case OpKind::sqrt: return map<T>(g, n, to, t, [](T a) { return std::sqrt(a); });
      case OpKind::reciprocal: return map<T>(g, n, to, t, [](T a) { return T{1} / a; });
      case OpKind::ceil: return map<T>(g, n, to, t, [](T a) { return std::ceil(a); });
      case OpKind::floor: return map<T>(g, n, to, t, [](T a) { return std::floor(a); });
      case OpKind::round: return map<T>(g, n, to, t, [](T a) { return std::nearbyint(a); });
      default: break;
    }
  }
  return std::nullopt;
}

template <class T>
std::optional<Bytes> elementwise(const Graph& g, const Node& n, const Ints& to, DType t) {
  return n.operands.size() == 1 ? unary<T>(g, n, to, t) : n.operands.size() == 2 ? binary<T>(g, n, to, t) : std::nullopt;
}

// x and -x differ in one bit, which 0 - x would not set for 0.
Bytes negated_floats(const Graph& g, const Node& n, const Ints& to, DType t) {
  Bytes bytes(static_cast<size_t>(byte_size(t, product(to))));
  for (int64_t i = 0; i < product(to); ++i)
    store_double(t, bytes.data(), i, -load_double(t, g.bytes(n.operands[0]).data, i));
  return bytes;
}

std::optional<Bytes> cast(const Graph& g, const Node& n, const Ints& to, DType t) {
  const DType from = g.type(n.operands[0]).dtype;
  const std::byte* data = g.bytes(n.operands[0]).data;
  const bool saturate = std::get<graph::CastAttr>(n.attr).saturate;
  if (from == DType::u64) return std::nullopt;
  // What a float outside of an integer's range becomes is the kernel's own.
  const auto fits = [&](double v) { return v > -2147483648.0 && v < 2147483648.0; };
  Bytes bytes(static_cast<size_t>(byte_size(t, product(to))));
  for (int64_t i = 0; i < product(to); ++i) {
    if (!is_float(from)) {
      const auto v = load<int64_t>(from, data, i);
      if (t == DType::f32) store(t, bytes.data(), i, static_cast<float>(v));
      else store_int(t, bytes.data(), i, v);
      continue;
    }
    const double v = load_double(from, data, i);
    if (is_int(t) && (!fits(v) || v < static_cast<double>(int_min(t)) || v > static_cast<double>(int_max(t)))) return std::nullopt;
    store_double(t, bytes.data(), i, v, saturate);
  }
  return bytes;
}

// (x - zero point) * scale, the difference exact in integers.
std::optional<Bytes> dequantize(const Graph& g, const Node& n, const Ints& to, DType t) {
  const DType from = g.type(n.operands[0]).dtype;
  if (t != DType::f32 || !is_int(from) || info(from).bits > 16 || info(from).bits < 8) return std::nullopt;
  const bool zeros = n.operands.size() > 2 && n.operands[2] != kNoValue;
  const Input<int64_t> x(g, n.operands[0], to), zero(g, zeros ? n.operands[2] : n.operands[0], to);
  const Input<float> scale(g, n.operands[1], to);
  Bytes bytes(static_cast<size_t>(byte_size(t, product(to))));
  for (int64_t i = 0; i < product(to); ++i)
    store(t, bytes.data(), i, static_cast<float>(x[i] - (zeros ? zero[i] : 0)) * scale[i]);
  return bytes;
}

Bytes where(const Graph& g, const Node& n, const Ints& to, DType t) {
  const Input<int64_t> condition(g, n.operands[0], to);
  const size_t size = static_cast<size_t>(info(t).bits) / 8;
  Bytes sides[2];
  for (size_t s : {0, 1}) {
    const Ints from = *static_shape(g.type(n.operands[s + 1]));
    sides[s] = strided_copy(g.bytes(n.operands[s + 1]).data, size, 0, stretched_strides(from, to), to);
  }
  for (int64_t i = 0; i < product(to); ++i)
    if (condition[i] == 0) store_bits(t, sides[0].data(), i, load_bits(t, sides[1].data(), i));
  return std::move(sides[0]);
}

template <class T>
Bytes clip(const Graph& g, const Node& n, const Ints& to, DType t) {
  const auto bound = [&](size_t i) -> std::optional<T> {
    if (n.operands[i] == kNoValue) return std::nullopt;
    return load<T>(t, g.bytes(n.operands[i]).data, 0);
  };
  const std::optional<T> lo = bound(1), hi = bound(2);
  return map<T>(g, n, to, t, [&](T a) {
    if (lo) a = larger(*lo, a);
    return hi ? smaller(*hi, a) : a;
  });
}

std::optional<Bytes> folded(const Graph& g, const Node& n, const Ints& to, DType t, Lane lane) {
  if (n.op == OpKind::cast) return cast(g, n, to, t);
  if (n.op == OpKind::dequantize) return dequantize(g, n, to, t);
  if (n.op == OpKind::where) return where(g, n, to, t);
  if (n.op == OpKind::neg && is_float(t)) return negated_floats(g, n, to, t);
  if (n.op == OpKind::clip)
    return lane == Lane::f32 ? clip<float>(g, n, to, t) : lane == Lane::f64 ? clip<double>(g, n, to, t) : clip<int64_t>(g, n, to, t);
  switch (lane) {
    case Lane::f32: return elementwise<float>(g, n, to, t);
    case Lane::f64: return elementwise<double>(g, n, to, t);
    case Lane::i64: return elementwise<int64_t>(g, n, to, t);
    case Lane::none: break;
  }
  return std::nullopt;
}

}  // namespace

std::optional<graph::ConstAttr> fold_arithmetic(const Graph& g, const Node& n) {
  if (!graph::has(n.op, graph::kElementwise)) return std::nullopt;
  const Type& t = g.type(n.results[0]);
  // Comparisons are computed in the type of what they compare.
  const Lane lane = lane_of(g.type(n.operands[0]).dtype);
  if (info(t.dtype).bits < 8 || lane == Lane::none) return std::nullopt;
  for (ValueId v : n.operands)
    if (v != kNoValue && (info(g.type(v).dtype).bits < 8 || lane_of(g.type(v).dtype) == Lane::none)) return std::nullopt;
  auto bytes = folded(g, n, *static_shape(t), t.dtype, lane);
  if (!bytes) return std::nullopt;
  return own_bytes(*std::move(bytes));
}

}  // namespace tripod::graph_opt
