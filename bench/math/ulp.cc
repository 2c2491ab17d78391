// How far compiled f32 math is from the right result: feeds bit patterns to a model.so of one unary operator (or a
// binary one, with pairs) and compares with the double-precision libm.
//
// usage: ulp FUNCTION MODEL.so [--every N] [--threads T] [--same OTHER.so]
//   MODEL.so has one f32 input (two for pow) and one f32 output of one free dim. Every N-th of the 2^32 patterns is
//   tried, from 0 on; 1 tries all. The borders (zeros, denormals, infinities, NaN, overflow) are always tried.
//   --same OTHER.so: the bits must be those of OTHER.so too (code for another instruction set).
// Prints: FUNCTION, most ulp and the argument of it, arguments where special values are wrong, arguments whose bits
// differ. Exit code 1 when the error is over 2 ulp, or a special value or a bit is wrong.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tripod/model.h"

namespace {

struct Function {
  const char* name;
  double (*of)(double);
};
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
const Function kFunctions[] = {
    {"exp", std::exp},     {"log", std::log},     {"tanh", std::tanh},   {"erf", std::erf},     {"sigmoid", sigmoid},
    {"sin", std::sin},     {"cos", std::cos},     {"tan", std::tan},     {"asin", std::asin},   {"acos", std::acos},
    {"atan", std::atan},   {"sinh", std::sinh},   {"cosh", std::cosh},   {"asinh", std::asinh}, {"acosh", std::acosh},
    {"atanh", std::atanh}, {"softplus", softplus}, {"sqrt", std::sqrt}};

// Error in units of the last place of the right result; infinite for a wrong special value.
double ulps(float got, double right) {
  if (std::isnan(right)) return std::isnan(got) ? 0 : INFINITY;
  if (std::isnan(got)) return INFINITY;
  if (std::isinf(right)) return static_cast<double>(got) == right ? 0 : INFINITY;
  int exponent = 0;
  std::frexp(right, &exponent);
  const double unit = std::ldexp(1.0, std::clamp(exponent - 1, -126, 127) - 23);
  // Beyond the largest float infinity counts as 2^128.
  const double value = std::isinf(got) ? std::copysign(0x1p128, got) : static_cast<double>(got);
  if (std::abs(right) >= 0x1p128) return std::isinf(got) && std::signbit(got) == std::signbit(right) ? 0 : std::abs(value - std::copysign(0x1p128, right)) / unit;
  return std::abs(value - right) / unit;
}

struct Model {
  explicit Model(const char* path) {
    const char* error = nullptr;
    api = tripod_open(path, &error);
    if (!api || api->set_num_threads(1)) std::fprintf(stderr, "%s: %s\n", path, error ? error : api->last_error()), std::exit(2);
  }
  const tripod_api* api;
};

struct Runner {
  explicit Runner(const Model& m) : api(m.api) {
    if (api->create_context(nullptr, &context)) std::fprintf(stderr, "%s\n", api->last_error()), std::exit(2);
  }
  void run(const std::vector<std::vector<float>>& in, std::vector<float>& out) {
    int64_t n = static_cast<int64_t>(out.size());
    std::vector<tripod_value> values(in.size());
    for (size_t i = 0; i < in.size(); ++i) values[i].tensor = {const_cast<float*>(in[i].data()), &n, nullptr, 1, TRIPOD_F32, TRIPOD_CPU, 0};
    tripod_value result{};
    result.tensor = {out.data(), &n, nullptr, 1, TRIPOD_F32, TRIPOD_CPU, 0};
    if (api->run(context, values.data(), static_cast<int32_t>(values.size()), &result, 1)) std::fprintf(stderr, "%s\n", api->last_error()), std::exit(2);
  }
  const tripod_api* api;
  tripod_context* context = nullptr;
};

struct Worst {
  double most = 0;
  uint32_t at[2] = {0, 0};
  uint64_t wrong = 0, differ = 0, tried = 0;
  uint32_t wrong_at = 0;
  void join(const Worst& o) {
    if (o.most > most) most = o.most, std::copy(o.at, o.at + 2, at);
    if (o.wrong && !wrong) wrong_at = o.wrong_at;
    wrong += o.wrong, differ += o.differ, tried += o.tried;
  }
};

uint32_t bits(float f) {
  uint32_t b;
  std::memcpy(&b, &f, 4);
  return b;
}
float number(uint32_t b) {
  float f;
  std::memcpy(&f, &b, 4);
  return f;
}

std::vector<uint32_t> borders() {
  std::vector<uint32_t> all;
  const uint32_t near[] = {0, 0x0080'0000, 0x7f80'0000, 0x7fc0'0000, 0x3f80'0000, 0x3f00'0000, 0x4000'0000, 0x42b1'7218,
                           0x42ae'ac50, 0x42cf'f1b5, 0x4049'0fdb, 0x3fc9'0fdb, 0x7149'f2ca, 0x4b80'0000, 0x3340'0000};
  for (uint32_t b : near)
    for (uint32_t d = 0; d < 64; ++d)
      for (uint32_t sign : {0u, 0x8000'0000u}) all.push_back(((b + d) & 0x7fff'ffff) | sign), all.push_back(((b - d) & 0x7fff'ffff) | sign);
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: ulp FUNCTION MODEL.so [--every N] [--threads T] [--same OTHER.so]\n"), 2;
  const std::string name = argv[1];
  const Model model(argv[2]);
  uint64_t every = 4099;
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  const char* other_path = nullptr;
  for (int i = 3; i + 1 < argc; i += 2) {
    if (!std::strcmp(argv[i], "--every")) every = std::strtoull(argv[i + 1], nullptr, 10);
    if (!std::strcmp(argv[i], "--threads")) threads = static_cast<unsigned>(std::atoi(argv[i + 1]));
    if (!std::strcmp(argv[i], "--same")) other_path = argv[i + 1];
  }
  const bool pow = name == "pow";
  const Function* f = std::find_if(std::begin(kFunctions), std::end(kFunctions), [&](const Function& g) { return name == g.name; });
  if (!pow && f == std::end(kFunctions)) return std::fprintf(stderr, "no function %s\n", name.c_str()), 2;
  const Model other(other_path ? other_path : argv[2]);

  constexpr uint64_t kChunk = 1 << 16;
  const uint64_t total = ((uint64_t{1} << 32) + every - 1) / every, chunks = (total + kChunk - 1) / kChunk;
  std::atomic<uint64_t> next{0};
  std::mutex lock;
  Worst worst;
  const auto work = [&] {
    Runner runner(model), second(other);
    Worst mine;
    std::vector<std::vector<float>> in(pow ? 2 : 1);
    std::vector<float> out, again;
    const auto check = [&] {
      out.assign(in[0].size(), 7.0f);
      runner.run(in, out);
      if (other_path) again.assign(out.size(), 9.0f), second.run(in, again);
      for (size_t i = 0; i < out.size(); ++i) {
        const double x = in[0][i], right = pow ? std::pow(x, in[1][i]) : f->of(x), e = ulps(out[i], right);
        mine.tried++;
        if (std::isinf(e)) {
          if (!mine.wrong++) mine.wrong_at = bits(in[0][i]);
        } else if (e > mine.most) {
          mine.most = e, mine.at[0] = bits(in[0][i]), mine.at[1] = pow ? bits(in[1][i]) : 0;
        }
        // Which of two NaN operands a NaN comes from is not promised.
        if (other_path && bits(out[i]) != bits(again[i]) && !(std::isnan(out[i]) && std::isnan(again[i]))) mine.differ++;
      }
    };
    for (uint64_t c; (c = next++) < chunks + 1;) {
      for (auto& v : in) v.clear();
      std::mt19937_64 random(c);
      const std::vector<uint32_t> first = c == chunks ? borders() : std::vector<uint32_t>();
      const uint64_t n = c == chunks ? first.size() : std::min(kChunk, total - c * kChunk);
      for (uint64_t i = 0; i < n; ++i) {
        in[0].push_back(number(c == chunks ? first[i] : static_cast<uint32_t>((c * kChunk + i) * every)));
        if (!pow) continue;
        // Half of the pairs have a result in range: the exponent is chosen for the base.
        const double y = (static_cast<double>(random() >> 11) * 0x1p-53 - 0.5) * 300 / std::max(0.01, std::abs(std::log2(std::abs(static_cast<double>(in[0].back())))));
        const uint64_t r = random();
        in[1].push_back(r & 1 ? static_cast<float>(y) : r & 2 ? std::round(static_cast<float>(y)) : number(static_cast<uint32_t>(r >> 32)));
      }
      check();
    }
    const std::lock_guard<std::mutex> guard(lock);
    worst.join(mine);
  };
  std::vector<std::thread> pool;
  for (unsigned t = 0; t < threads; ++t) pool.emplace_back(work);
  for (std::thread& t : pool) t.join();
  std::printf("%-8s %.4f ulp at %.9g (0x%08x)", name.c_str(), worst.most, static_cast<double>(number(worst.at[0])), worst.at[0]);
  if (pow) std::printf(" ^ %.9g", static_cast<double>(number(worst.at[1])));
  std::printf(", %llu of %llu special values wrong", static_cast<unsigned long long>(worst.wrong), static_cast<unsigned long long>(worst.tried));
  if (worst.wrong) std::printf(" (first 0x%08x)", worst.wrong_at);
  if (other_path) std::printf(", %llu differ in bits", static_cast<unsigned long long>(worst.differ));
  std::printf("\n");
  return worst.most > 2 || worst.wrong || worst.differ;
}
