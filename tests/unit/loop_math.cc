// The accuracy of loop/expand_math.cc against libm: f32 against double, f64 against long double.
//
// TRIPOD_ALL_F32=1 tries all 2^32 arguments of exp, tanh and erf (minutes) instead of a sample, =16 every 16th.
#include "loop/expand_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>

#include "loop_testing.h"

namespace tripod::loop {
namespace {

// Evaluates an expression over the elements of x (and y) in batches, an operation at a time.
class Evaluator {
 public:
  static constexpr size_t kBatch = 1024;
  using Lane = uint64_t;

  Evaluator(const Expr& e, const Buffer& x, const Buffer& y) : x_(x), y_(y) { root_ = add(e); }

  template <class T>
  void run(const T* x, const T* y, T* out) {
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    for (Step& s : steps_) {
      if (s.node->op == Op::load) {
        const T* from = s.node->buffer == x_ ? x : y;
        for (size_t i = 0; i < kBatch; ++i) s.value[i] = std::bit_cast<Bits>(from[i]);
      } else if (s.node->op != Op::constant) {
        step(s);
      }
    }
    for (size_t i = 0; i < kBatch; ++i) out[i] = std::bit_cast<T>(static_cast<Bits>(steps_[root_].value[i]));
  }

 private:
  struct Step {
    const ExprNode* node;
    size_t args[3];
    std::vector<Lane> value;
  };

  size_t add(const Expr& e) {
    if (const auto it = at_.find(e.get()); it != at_.end()) return it->second;
    Step s{e.get(), {}, std::vector<Lane>(kBatch, e->bits)};
    for (size_t i = 0; i < e->args.size(); ++i) s.args[i] = add(e->args[i]);
    steps_.push_back(std::move(s));
    kept_.push_back(e);
    return at_[e.get()] = steps_.size() - 1;
  }

  template <class T, class F>
  void each(Step& s, F f) {
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    const Lane* a = steps_[s.args[0]].value.data();
    const Lane* b = steps_[s.args[1]].value.data();
    const Lane* c = steps_[s.args[2]].value.data();
    Lane* out = s.value.data();
    const auto to = [](Lane v) { return std::bit_cast<T>(static_cast<Bits>(v)); };
    for (size_t i = 0; i < kBatch; ++i) {
      const auto r = f(to(a[i]), to(b[i]), to(c[i]));
      if constexpr (std::is_same_v<decltype(r), const bool>) out[i] = r;
      else out[i] = std::bit_cast<Bits>(r);
    }
  }

  // The operations that polynomials are made of, quickly; the others through apply().
  template <class T>
  bool fast(Step& s) {
    switch (s.node->op) {
      case Op::add: each<T>(s, [](T a, T b, T) { return a + b; }); return true;
      case Op::sub: each<T>(s, [](T a, T b, T) { return a - b; }); return true;
      case Op::mul: each<T>(s, [](T a, T b, T) { return a * b; }); return true;
      default: break;
    }
    if constexpr (std::is_floating_point_v<T>) {
      switch (s.node->op) {
        case Op::div: each<T>(s, [](T a, T b, T) { return a / b; }); return true;
        case Op::fma: each<T>(s, [](T a, T b, T c) { return std::fma(a, b, c); }); return true;
        case Op::abs: each<T>(s, [](T a, T, T) { return std::fabs(a); }); return true;
        case Op::lt: each<T>(s, [](T a, T b, T) { return a < b; }); return true;
        default: break;
      }
    }
    return false;
  }

  void step(Step& s) {
    const DType t = s.node->args.back()->dtype;
    const Op op = s.node->op;
    if (t == DType::f32 && fast<float>(s)) return;
    if (t == DType::f64 && fast<double>(s)) return;
    if (t == DType::u32 && fast<uint32_t>(s)) return;
    if (t == DType::u64 && fast<uint64_t>(s)) return;
    for (size_t i = 0; i < kBatch; ++i) {
      Lane args[3];
      for (size_t k = 0; k < s.node->args.size(); ++k) args[k] = steps_[s.args[k]].value[i];
      if (op == Op::select) s.value[i] = args[0] ? args[1] : args[2];
      else if (op == Op::bitcast) s.value[i] = canonical_bits(s.node->dtype, args[0]);
      else if (op == Op::cast) s.value[i] = convert(t, s.node->dtype, args[0]);
      else s.value[i] = apply(op, t, args);
    }
  }

  Buffer x_, y_;
  std::vector<Step> steps_;
  std::vector<Expr> kept_;
  std::unordered_map<const ExprNode*, size_t> at_;
  size_t root_ = 0;
};

template <class T>
Evaluator evaluator(Op op) {
  const DType t = sizeof(T) == 4 ? DType::f32 : DType::f64;
  const Buffer x = make_buffer("x", t, {}), y = make_buffer("y", t, {});
  std::vector<Expr> args{load(x, {})};
  if (arity(op) == 2) args.push_back(load(y, {}));
  return Evaluator(expand_math(make(op, args)), x, y);
}

// The distance from the exact result in units of the result's last place. Infinities and NaNs have to agree.
template <class T, class Exact>
double error(T got, Exact exact) {
  if (std::isnan(exact) || std::isnan(got)) return std::isnan(exact) && std::isnan(got) ? 0 : 1e30;
  const T rounded = static_cast<T>(exact);
  if (rounded == got) return exact == 0 && std::signbit(exact) != std::signbit(got) ? 1e30 : 0;
  if (std::isinf(got)) {
    // As good as the float that follows the largest.
    const Exact limit = std::ldexp(static_cast<Exact>(1), std::numeric_limits<T>::max_exponent);
    exact -= std::copysign(limit, exact);
    return static_cast<double>(
        std::fabs(exact) /
        std::ldexp(static_cast<Exact>(1), std::numeric_limits<T>::max_exponent - std::numeric_limits<T>::digits));
  }
  if (std::isinf(rounded) && std::isinf(exact)) return 1e30;
  int e;
  std::frexp(exact, &e);
  e = std::max(e, std::numeric_limits<T>::min_exponent) - std::numeric_limits<T>::digits;
  return static_cast<double>(std::fabs(std::ldexp(static_cast<Exact>(got) - exact, -e)));
}

template <class T>
using Exact = std::conditional_t<sizeof(T) == 4, double, long double>;
template <class T>
using Reference = std::function<Exact<T>(Exact<T>, Exact<T>)>;

// The worst error over pairs from `next`, which fills a batch and says whether there is more.
template <class T>
void expect_accurate(Op op, const Reference<T>& exact, double limit, const std::function<bool(T*, T*)>& next) {
  Evaluator e = evaluator<T>(op);
  std::vector<T> x(Evaluator::kBatch), y(x), got(x);
  double worst = 0;
  T worst_x = 0, worst_y = 0, worst_got = 0;
  for (bool more = true; more;) {
    more = next(x.data(), y.data());
    e.run(x.data(), y.data(), got.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double d = error<T>(got[i], exact(x[i], y[i]));
      if (d > worst) worst = d, worst_x = x[i], worst_y = y[i], worst_got = got[i];
    }
  }
  EXPECT_LE(worst, limit) << name(op) << " of " << std::hexfloat << worst_x << ", " << worst_y << " ("
                          << std::defaultfloat << worst_x << ", " << worst_y << "): " << worst_got << " instead of "
                          << static_cast<T>(exact(worst_x, worst_y));
  if (std::getenv("TRIPOD_SHOW_ULP"))
    std::printf("%s %-8s %.3f ulp at %a, %a: %a\n", sizeof(T) == 4 ? "f32" : "f64", std::string(name(op)).c_str(),
                worst, static_cast<double>(worst_x), static_cast<double>(worst_y), static_cast<double>(worst_got));
}

// Patterns spread over all floats.
std::function<bool(float*, float*)> all_f32(uint64_t step) {
  return [step, at = uint64_t{0}](float* x, float* y) mutable {
    for (size_t i = 0; i < Evaluator::kBatch; ++i, at += step) {
      x[i] = std::bit_cast<float>(static_cast<uint32_t>(at));
      y[i] = 0;
    }
    return at < (uint64_t{1} << 32);
  };
}

uint64_t random_bits(uint64_t& state) {
  state += 0x9E3779B97F4A7C15u;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Half of them any finite number up to 2^exponent and down to 2^-exponent, half within [-32, 32].
template <class T>
std::function<bool(T*, T*)> random_pairs(int batches, int exponent) {
  return [batches, exponent, state = uint64_t{7}](T* x, T* y) mutable {
    const auto draw = [&] {
      const double m = static_cast<double>(random_bits(state) >> 11) * 0x1p-53 + 0x1p-60;
      const double sign = random_bits(state) & 1 ? 1 : -1;
      if (random_bits(state) & 1) return static_cast<T>(sign * m * 32);
      return static_cast<T>(
          sign *
          std::ldexp(1 + m, static_cast<int>(random_bits(state) % static_cast<uint64_t>(2 * exponent)) - exponent));
    };
    for (size_t i = 0; i < Evaluator::kBatch; ++i) x[i] = draw(), y[i] = draw();
    return --batches > 0;
  };
}

template <class T>
struct Row {
  Op op;
  Reference<T> exact;
  int exponent;  // of the arguments that f64 is tried on
};

template <class E>
E exact_sigmoid(E x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

template <class T>
std::vector<Row<T>> rows() {
  using E = Exact<T>;
  return {{Op::exp, [](E x, E) { return std::exp(x); }, 10},
          {Op::log, [](E x, E) { return std::log(x); }, 1000},
          {Op::sin, [](E x, E) { return std::sin(x); }, 30},
          {Op::cos, [](E x, E) { return std::cos(x); }, 30},
          {Op::tan, [](E x, E) { return std::tan(x); }, 30},
          {Op::asin, [](E x, E) { return std::asin(x); }, 10},
          {Op::acos, [](E x, E) { return std::acos(x); }, 10},
          {Op::atan, [](E x, E) { return std::atan(x); }, 1000},
          {Op::sinh, [](E x, E) { return std::sinh(x); }, 10},
          {Op::cosh, [](E x, E) { return std::cosh(x); }, 10},
          {Op::tanh, [](E x, E) { return std::tanh(x); }, 10},
          {Op::asinh, [](E x, E) { return std::asinh(x); }, 1000},
          {Op::acosh, [](E x, E) { return std::acosh(x); }, 1000},
          {Op::atanh, [](E x, E) { return std::atanh(x); }, 10},
          {Op::erf, [](E x, E) { return std::erf(x); }, 10},
          {Op::sigmoid, [](E x, E) { return exact_sigmoid<E>(x); }, 10},
          {Op::log1p, [](E x, E) { return std::log1p(x); }, 1000}};
}

TEST(Math, F32WithinTwoUlp) {
  for (const Row<float>& r : rows<float>()) {
    const bool popular = r.op == Op::exp || r.op == Op::tanh || r.op == Op::erf;
    const char* wanted = std::getenv("TRIPOD_ALL_F32");
    const uint64_t step = wanted && popular ? std::strtoull(wanted, nullptr, 10) : 50021;
    expect_accurate<float>(r.op, r.exact, 2, all_f32(step));
    expect_accurate<float>(r.op, r.exact, 2, random_pairs<float>(40, 20));
  }
}

TEST(Math, F64WithinTwoUlp) {
  for (const Row<double>& r : rows<double>())
    expect_accurate<double>(r.op, r.exact, 2, random_pairs<double>(40, r.exponent));
}

TEST(Math, Pow) {
  expect_accurate<float>(Op::pow, [](double x, double y) { return std::pow(x, y); }, 2, random_pairs<float>(60, 7));
  expect_accurate<double>(Op::pow, [](long double x, long double y) { return std::pow(x, y); }, 2,
                          random_pairs<double>(60, 10));
}

// Every pair of values at which a function does something of its own.
template <class T>
std::vector<T> borders() {
  using L = std::numeric_limits<T>;
  std::vector<T> v{0, 0.25, 0.5, 1, 1.5, 2, 3, 4, 10, 88.5, 89.2, 90, 104, 709.5, 750, 1e6, 1e9, 16777216, L::min(),
                   L::denorm_min(), L::min() / 4, L::max(), L::epsilon(), L::infinity(), L::quiet_NaN(),
                   std::nextafter(T(1), T(0)), std::nextafter(T(1), T(2)), T(0.70710678118654752), T(0.41421356237)};
  for (size_t i = 0, n = v.size(); i < n; ++i) v.push_back(-v[i]);
  return v;
}

template <class T>
void expect_good_at_borders() {
  const std::vector<T> all = borders<T>();
  std::vector<T> moderate = all;  // f64's trigonometric functions reduce arguments up to 2^30
  std::erase_if(moderate, [](T x) { return std::isfinite(x) && std::fabs(x) > T(0x1p30); });
  const auto pairs = [](bool both, const std::vector<T>& v) {
    return [v, both, at = size_t{0}](T* x, T* y) mutable {
      for (size_t i = 0; i < Evaluator::kBatch; ++i, ++at) {
        x[i] = v[at % v.size()];
        y[i] = v[at / v.size() % v.size()];
      }
      return both && at < v.size() * v.size();
    };
  };
  for (const Row<T>& r : rows<T>()) {
    const bool turns = r.op == Op::sin || r.op == Op::cos || r.op == Op::tan;
    expect_accurate<T>(r.op, r.exact, 2, pairs(false, turns && sizeof(T) == 8 ? moderate : all));
  }
  expect_accurate<T>(Op::pow, [](Exact<T> x, Exact<T> y) { return std::pow(x, y); }, 2, pairs(true, all));
}

TEST(Math, BordersF32) { expect_good_at_borders<float>(); }
TEST(Math, BordersF64) { expect_good_at_borders<double>(); }

// The popular functions stay short and pure f32.
TEST(Math, Cost) {
  const Buffer x = make_buffer("x", DType::f32, {});
  const std::map<Op, int> limits = {{Op::exp, 24}, {Op::log, 40}, {Op::tanh, 36}, {Op::erf, 45}, {Op::sigmoid, 36}};
  for (const auto& [op, limit] : limits) {
    int count = 0;
    visit(expand_math(make(op, {load(x, {})})), [&](const Expr& e) {
      EXPECT_NE(e->dtype, DType::f64) << name(op);
      count += e->op != Op::constant && e->op != Op::load && e->op != Op::bitcast;
    });
    EXPECT_LE(count, limit) << name(op);
  }
}

TEST(Math, CastsToSmallFloatsRoundOnce) {
  const Buffer x = make_buffer("x", DType::f64, {}), y = make_buffer("y", DType::f64, {});
  for (DType t : {DType::f16, DType::bf16}) {
    const Expr e = expand_math(cast(cast(load(x, {}), t), DType::f64));
    visit(e, [&](const Expr& c) {
      if (c->op == Op::cast && (c->dtype == t || c->args[0]->dtype == t)) {
        EXPECT_TRUE(c->dtype == DType::f32 || c->args[0]->dtype == DType::f32);
      }
    });
    Evaluator eval(e, x, y);
    std::vector<double> in(Evaluator::kBatch), out(in);
    uint64_t state = 3;
    for (int k = 0; k < 50; ++k) {
      for (double& v : in) {
        // Near the middle between two small floats, by a little in the last digits.
        const double base = double_from_bits(t, random_bits(state) & 0x7FFF);
        const double next = double_from_bits(t, bits_from_double(t, base) + 1);
        v = (base + next) / 2 * (1 + (static_cast<double>(random_bits(state) % 5) - 2) * 0x1p-50);
      }
      eval.run(in.data(), in.data(), out.data());
      for (size_t i = 0; i < in.size(); ++i) {
        const double want = double_from_bits(t, bits_from_double(t, in[i]));
        if (!std::isnan(want)) {
          ASSERT_EQ(out[i], want) << std::hexfloat << in[i];
        }
      }
    }
  }
}

}  // namespace
}  // namespace tripod::loop
