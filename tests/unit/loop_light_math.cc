// Light functions (loop/light_math.h): how far their results are from the functions' (by libm in f64), and where they are
// put.
#include "loop/light_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "loop/expand_math.h"
#include "loop/interpreter.h"
#include "loop_testing.h"

namespace tripod::loop {
namespace {

// f of every element of x, rounded to `stored` (f32: not at all).
std::vector<double> values(Op op, const std::vector<double>& x, DType stored) {
  sym::Context c;
  const sym::Expr n = c.constant(static_cast<int64_t>(x.size())), i = c.var("i", {0, static_cast<int64_t>(x.size()) - 1});
  const Buffer from = make_buffer("x", DType::f32, {n}), to = make_buffer("y", stored, {n});
  Function f;
  f.name = "f";
  f.params = {from, to};
  f.num_outputs = 1;
  f.body = loop(i, n, LoopKind::serial, store(to, {i}, cast(make(op, {load(from, {i})}), stored)));
  std::vector<Memory> memory(2);
  for (size_t k = 0; k < 2; ++k) memory[k].bytes.resize(x.size() * static_cast<size_t>(info(f.params[k]->dtype).bits / 8));
  for (size_t k = 0; k < x.size(); ++k) write_element(DType::f32, memory[0].bytes.data(), static_cast<int64_t>(k), bits_from_double(DType::f32, x[k]));
  EXPECT_TRUE(interpret(expand_math(f), {}, memory).violations.empty());
  std::vector<double> y;
  for (size_t k = 0; k < x.size(); ++k) y.push_back(double_from_bits(stored, read_element(stored, memory[1].bytes.data(), static_cast<int64_t>(k))));
  return y;
}

// The place of a 16-bit float among its neighbours: differences are units in the last place.
int64_t place(DType t, double v) {
  const int64_t bits = static_cast<int64_t>(bits_from_double(t, v));
  return bits & 0x8000 ? -(bits & 0x7FFF) : bits;
}

double exact_sigmoid(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
double exact_gelu(double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double exact_gelu_tanh(double x) { return x * exact_sigmoid(2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)); }

struct Row {
  Op light;
  double (*exact)(double);
  double log2_error;    // of f32 results, relative
  double most_unequal;  // share of all f16 arguments whose result is not the nearest f16
  int operations;
  bool is_gate = false;  // an absolute error of 2^-25.5 is allowed
};
const Row kRows[] = {
    {Op::exp_light, std::exp, -17, 0.001, 11},
    {Op::sigmoid_light, exact_sigmoid, -15, 0.01, 19},
    {Op::tanh_light, std::tanh, -13.5, 0.02, 15},
    {Op::gelu_light, exact_gelu, -12.25, 0.09, 12, true},
    {Op::gelu_tanh_light, exact_gelu_tanh, -13, 0.07, 14, true},
};

bool is_allowed(const Row& r, double want, double got) { return r.is_gate && std::fabs(want - got) <= std::exp2(-25.5); }

// Where exp_light and sigmoid_light give 0 or infinity.
bool is_beyond(double want) { return std::fabs(want) < std::exp2(-126) || std::fabs(want) > std::exp2(127.5); }

class Light : public testing::TestWithParam<Row> {};

std::vector<double> all_16_bit(DType t) {
  std::vector<double> x;
  for (uint64_t bits = 0; bits < 0x10000; ++bits) x.push_back(double_from_bits(t, bits));
  return x;
}

double rounded(DType t, double v) { return double_from_bits(t, bits_from_double(t, v)); }

// All 2^16 arguments of a type: the nearest result, or its neighbour.
void expect_close_results(const Row& r, DType t) {
  const std::vector<double> x = all_16_bit(t), got = values(r.light, x, t);
  int64_t unequal = 0, worst = 0;
  double worst_x = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = r.exact(x[i]), want = rounded(t, exact);
    EXPECT_TRUE(!std::isnan(x[i]) || std::isnan(got[i])) << name(r.light) << " of NaN";
    if (std::isnan(want) || want == got[i]) continue;  // of -inf, where Limits looks
    ++unequal;
    if (is_beyond(exact) || is_allowed(r, exact, got[i])) continue;
    const int64_t ulp = std::abs(place(t, want) - place(t, got[i]));
    if (ulp > worst) worst = ulp, worst_x = x[i];
  }
  const double share = static_cast<double>(unequal) / static_cast<double>(x.size());
  EXPECT_LE(worst, 1) << name(r.light) << " of " << worst_x;
  EXPECT_LE(share, r.most_unequal) << name(r.light);
  if (std::getenv("TRIPOD_SHOW_ULP"))
    std::printf("%s %-16s %ld ulp at %g, %.4f of all differ\n", std::string(info(t).name).c_str(), std::string(name(r.light)).c_str(), static_cast<long>(worst), worst_x, share);
}

TEST_P(Light, EveryF16Argument) { expect_close_results(GetParam(), DType::f16); }
TEST_P(Light, EveryBf16Argument) { expect_close_results(GetParam(), DType::bf16); }

// The promise of light_math.h over f32.
TEST_P(Light, RelativeErrorOfF32) {
  const Row& r = GetParam();
  std::vector<double> x;
  for (uint32_t i = 0; i < 100000; ++i) x.push_back(std::bit_cast<float>(i * 42949u + 7u));
  for (int i = -50000; i <= 50000; ++i) x.push_back(static_cast<float>(i * 2e-3 + 3e-7));
  const std::vector<double> got = values(r.light, x, DType::f32);
  double worst = 0, worst_x = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = r.exact(x[i]);
    if (std::isnan(want) || want == got[i] || is_beyond(want) || is_allowed(r, want, got[i])) continue;
    const double e = std::fabs(got[i] / want - 1);
    if (!(e <= worst)) worst = e, worst_x = x[i];
  }
  EXPECT_LE(worst, std::exp2(r.log2_error)) << name(r.light) << " of " << worst_x;
  if (std::getenv("TRIPOD_SHOW_ULP")) std::printf("%-16s 2^%.2f at %g\n", std::string(name(r.light)).c_str(), std::log2(worst), worst_x);
}

TEST_P(Light, Limits) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::map<Op, std::pair<double, double>> limits = {{Op::exp_light, {0, inf}}, {Op::sigmoid_light, {0, 1}}, {Op::gelu_light, {0, inf}}, {Op::gelu_tanh_light, {0, inf}}};
  const Op op = GetParam().light;
  if (op == Op::tanh_light) {
    EXPECT_EQ(values(op, {-inf, inf}, DType::f16), (std::vector<double>{-1, 1}));
    return;
  }
  for (const DType t : {DType::f16, DType::bf16, DType::f32}) {
    const std::vector<double> got = values(op, {-inf, -1e30, -200, 1e30, inf}, t);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(got[static_cast<size_t>(i)], limits.at(op).first) << name(op);
    if (op == Op::exp_light || op == Op::sigmoid_light) { EXPECT_EQ(got[3], limits.at(op).second); }
    EXPECT_EQ(got[4], limits.at(op).second) << name(op);
  }
  if (op == Op::exp_light) { EXPECT_EQ(values(op, {0.0, -0.0}, DType::f32), (std::vector<double>{1, 1})); }
}

// The count that light_math.h is there for.
TEST_P(Light, IsShort) {
  const Buffer x = make_buffer("x", DType::f32, {});
  int count = 0;
  visit(expand_math(make(GetParam().light, {load(x, {})})), [&](const Expr& e) {
    const bool free = e->op == Op::constant || e->op == Op::load || e->op == Op::bitcast || e->op == Op::neg || e->op == Op::abs;
    count += !free;
  });
  EXPECT_LE(count, GetParam().operations);
}

INSTANTIATE_TEST_SUITE_P(Functions, Light, testing::ValuesIn(kRows), [](const auto& p) { return std::string(name(p.param.light)); });

// --- where they are put ---

std::string light(const std::string& body, const std::string& params = "x: f32[8, 16]) -> (y: f16[8, 16]") {
  sym::Context c;
  const std::string function = "func @f(" + params + ") {\n" + body + "}\n";
  return text(light_math(parse(c, function)));
}
std::string point(const std::string& value) { return "block b(i: 8, j: 16) {\n y[i, j] = " + value + "\n }\n"; }
bool has(const std::string& where, const std::string& what) { return where.find(what) != std::string::npos; }

TEST(LightMath, StoresOf16Bits) {
  EXPECT_TRUE(has(light(point("f16(exp(x[i, j]))")), "exp_light(x"));
  EXPECT_TRUE(has(light(point("f16(x[i, j] * sigmoid(x[i, j]))")), "sigmoid_light(x"));
  EXPECT_TRUE(has(light(point("f16(x[i, j] + gelu(x[i, j]))")), "gelu_light(x"));
  EXPECT_TRUE(has(light(point("f16(1 / (1 + exp(neg(x[i, j]))))")), "exp_light(neg(x"));
  EXPECT_FALSE(has(light(point("tanh(x[i, j])"), "x: f32[8, 16]) -> (y: f32[8, 16]"), "light"));
  EXPECT_TRUE(has(light(point("f32(f16(tanh(x[i, j])))"), "x: f32[8, 16]) -> (y: f32[8, 16]"), "tanh_light"));
}

TEST(LightMath, NotWhereDigitsAreLost) {
  EXPECT_FALSE(has(light(point("f16(exp(x[i, j]) - 1)")), "light"));
  EXPECT_FALSE(has(light(point("f16(1 - sigmoid(x[i, j]))")), "light"));
  EXPECT_FALSE(has(light(point("f16(log(1 + exp(x[i, j])))")), "light"));
  EXPECT_FALSE(has(light(point("f16(select(exp(x[i, j]) < 1, x[i, j], 0))")), "light"));
  EXPECT_FALSE(has(light(point("f16(fma(exp(x[i, j]), 2, -2))")), "light"));
}

const char* const kSoftmax = R"(
  alloc e: f32[8, 16] {
    alloc s: f32[8] {
      block e(i: 8, j: 16) {
        e[i, j] = exp(x[i, j])
      }
      block s(i: 8; reduce k: 16) {
        init {
          s[i] = 0
        }
        s[i] = s[i] + e[i, k]
      }
      block y(i: 8, j: 16) {
        y[i, j] = CAST(e[i, j] / s[i])
      }
    }
  }
)";
std::string softmax(const std::string& cast) {
  std::string s = kSoftmax;
  return s.replace(s.find("CAST"), 4, cast);
}

TEST(LightMath, ThroughBuffers) {
  const std::string f16 = light(softmax("f16"));
  EXPECT_TRUE(has(f16, "exp_light(x"));
  EXPECT_TRUE(has(f16, "e[i, j] * (1 / s[i])")) << f16;
  const std::string f32 = light(softmax(""), "x: f32[8, 16]) -> (y: f32[8, 16]");
  EXPECT_FALSE(has(f32, "light"));
  EXPECT_TRUE(has(f32, "/ s["));
}

// One use that needs all digits is enough, wherever it is.
TEST(LightMath, OfSeveralUsesTheStrictestCounts) {
  const std::string body = R"(
  alloc e: f32[8, 16] {
    block e(i: 8, j: 16) {
      e[i, j] = exp(x[i, j])
    }
    block y(i: 8, j: 16) {
      y[i, j] = f16(e[i, j])
    }
    block z(i: 8, j: 16) {
      z[i, j] = e[i, j]
    }
  }
)";
  EXPECT_FALSE(has(light(body, "x: f32[8, 16]) -> (y: f16[8, 16], z: f32[8, 16]"), "light"));
}

// A quotient whose divisor moves along with it stays one.
TEST(LightMath, OtherQuotients) {
  EXPECT_FALSE(has(light(point("f16(x[i, j] / b[j])"), "x: f32[8, 16], b: f32[16]) -> (y: f16[8, 16]"), "*"));
  EXPECT_TRUE(has(light(point("f16(x[i, j] / b[i])"), "x: f32[8, 16], b: f32[8]) -> (y: f16[8, 16]"), "x[i, j] * (1 / b[i])"));
}

}  // namespace
}  // namespace tripod::loop
