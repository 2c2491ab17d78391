// Attention on tensor cores against the function that it schedules, by the interpreter: results to what 16 bits hold,
// every access inside its buffer, no races between threads.
#include "backends/cuda/rules/attention.h"

#include "loop/expand_math.h"
#include "loop/flatten.h"
#include "loop_testing.h"

namespace tripod::loop {
namespace {

// Numbers from -2 to 2, and flags.
std::vector<Memory> inputs(const Function& f, const sym::Values& dims) {
  std::vector<Memory> params = made_up_params(f, dims);
  uint64_t state = 1;
  for (size_t p = 0; p + static_cast<size_t>(f.num_outputs) < params.size(); ++p) {
    const DType t = f.params[p]->dtype;
    const int64_t n = static_cast<int64_t>(params[p].bytes.size()) * 8 / info(t).bits;
    for (int64_t i = 0; i < n; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const double v = static_cast<double>(state >> 40) / static_cast<double>(1 << 22) - 2;
      write_element(t, params[p].bytes.data(), i, t == DType::b1 ? state >> 40 & 1 : bits_from_double(t, v));
    }
  }
  return params;
}

std::vector<double> result(const Function& f, const std::map<std::string, int64_t>& named) {
  const sym::Values dims = dims_of(f, named);
  std::vector<Memory> params = inputs(f, dims);
  for (std::byte& b : params.back().bytes) b = std::byte{0x7f};  // NaN where nobody writes
  const InterpretResult r = interpret(f, dims, params);
  for (const std::string& v : r.violations) ADD_FAILURE() << v << "\n" << text(f);
  return values_of(f.params.back()->dtype, params.back());
}

struct Tried {
  cuda::AttentionShape shape;
  int64_t splits = 1;
  bool packed = false;
};
const Tried kRows = {{2, 1, 16, 32, 2, false}}, kWide = {{2, 1, 32, 64, 2, false}}, kKept = {{2, 1, 16, 32, 3, true}}, kKeys = {{1, 2, 16, 64, 3, true}},
            kSplit = {{1, 2, 16, 32, 2, true}, 3}, kBoth = {{2, 2, 16, 64, 2, false}, 2}, kPacked = {{1, 2, 16, 32, 2, true}, 2, true};

void close(const std::string& source, const std::vector<Tried>& tried, const std::vector<std::map<std::string, int64_t>>& sizes, double tolerance = 4e-3) {
  sym::Context c;
  const Function f = parsed(c, source);
  const Function plain = expand_math(f);
  for (const Tried& t : tried) {
    const cuda::RuleResult r = cuda::attention_with(f, c, {{t.shape, t.packed, c.constant(t.splits), {}}});
    ASSERT_TRUE(r.outcome.applied) << r.outcome.reason;
    const Function flat = expand_math(flatten(r.function));
    for (const std::string& e : verify(flat)) ADD_FAILURE() << e << "\n" << text(flat);
    for (const auto& dims : sizes) {
      const std::vector<double> want = result(plain, dims), got = result(flat, dims);
      ASSERT_EQ(want.size(), got.size());
      double worst = 0;
      for (size_t i = 0; i < want.size(); ++i) worst = std::isfinite(got[i]) ? std::max(worst, std::fabs(want[i] - got[i])) : INFINITY;
      EXPECT_LE(worst, tolerance) << cuda::text(t.shape) << ", split " << t.splits << "\n" << text(flat);
    }
  }
}

// The blocks of lower/attention.cc for heads q of size D and values of size E; `logit` of `score`, and further inputs.
std::string attention(const std::string& dims, const std::string& shapes, const std::string& logit = "score[b, h, q, k] * 0.25", const std::string& type = "f16",
                      const std::string& kv = "h") {
  std::string s = R"(
func @attention)" + dims + "(" + shapes + R"() {
  alloc weighted: f32[B, H, Q, E] {
    alloc sum: f32[B, H, Q] {
      alloc e: f32[B, H, Q, K] {
        alloc most: f32[B, H, Q] {
          alloc logit: f32[B, H, Q, K] {
            alloc score: f32[B, H, Q, K] {
              block score(b: B, h: H, q: Q, k: K; reduce d: D) {
                init { score[b, h, q, k] = 0 }
                score[b, h, q, k] = fma(f32(x[b, h, q, d]), f32(y[b, KV, k, d]), score[b, h, q, k])
              }
              block logit(b: B, h: H, q: Q, k: K) { logit[b, h, q, k] = LOGIT }
              block most(b: B, h: H, q: Q; reduce k: K) {
                init { most[b, h, q] = -inf }
                most[b, h, q] = max(most[b, h, q], logit[b, h, q, k])
              }
              block e(b: B, h: H, q: Q, k: K) { e[b, h, q, k] = exp(logit[b, h, q, k] - select(most[b, h, q] == -inf, 0, most[b, h, q])) }
              block sum(b: B, h: H, q: Q; reduce k: K) {
                init { sum[b, h, q] = 0 }
                sum[b, h, q] = sum[b, h, q] + e[b, h, q, k]
              }
              block weighted(b: B, h: H, q: Q, c: E; reduce k: K) {
                init { weighted[b, h, q, c] = 0 }
                weighted[b, h, q, c] = fma(e[b, h, q, k], f32(z[b, KV, k, c]), weighted[b, h, q, c])
              }
              block result(b: B, h: H, q: Q, c: E) { r[b, h, q, c] = TYPE(weighted[b, h, q, c] / select(sum[b, h, q] == 0, 1, sum[b, h, q])) }
            }
          }
        }
      }
    }
  }
})";
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"LOGIT", logit}, {"KV", kv}, {"TYPE", type}})
    for (size_t at = 0; (at = s.find(from, at)) != std::string::npos; at += to.size()) s.replace(at, from.size(), to);
  return s;
}

// Sizes in place of their letters.
std::string with(std::string s, const std::map<char, std::string>& sizes) {
  std::string r;
  for (size_t i = 0; i < s.size(); ++i) {
    const auto word = [&](size_t j) { return j < s.size() && (std::isalnum(static_cast<unsigned char>(s[j])) || s[j] == '_' || s[j] == '.'); };
    const auto it = sizes.find(s[i]);
    const bool alone = (i == 0 || !word(i - 1)) && !word(i + 1);
    r += it != sizes.end() && alone ? it->second : std::string(1, s[i]);
  }
  return r;
}

const char kShapes[] = "x: f16[B, H, Q, D], y: f16[B, H, K, D], z: f16[B, H, K, E]) -> (r: f16[B, H, Q, E]";
using Sizes = std::map<char, std::string>;
const Sizes kSmall = {{'B', "1"}, {'H', "2"}, {'Q', "32"}, {'K', "64"}, {'D', "16"}, {'E', "16"}};

TEST(CudaAttention, WholeTiles) {
  close(with(attention("", kShapes), kSmall), {kRows, kKept, kKeys, kSplit}, {{}});
  close(with(attention("", kShapes), {{'B', "1"}, {'H', "1"}, {'Q', "64"}, {'K', "128"}, {'D', "32"}, {'E', "16"}}), {kWide, kBoth}, {{}});
}

// Sizes that no tile divides, head sizes that are no multiples of 16, values of another size than keys.
TEST(CudaAttention, RaggedSizes) {
  close(with(attention("", kShapes), {{'B', "2"}, {'H', "1"}, {'Q', "19"}, {'K', "37"}, {'D', "24"}, {'E', "40"}}), {kRows, kSplit}, {{}});
  close(with(attention("", kShapes), {{'B', "1"}, {'H', "1"}, {'Q', "1"}, {'K', "1"}, {'D', "5"}, {'E', "3"}}), {kKept, kKeys}, {{}});
}

TEST(CudaAttention, FreeSizes) {
  const std::string source = with(attention("[B, Q, K]", kShapes), {{'H', "2"}, {'D', "16"}, {'E', "16"}});
  const std::vector<std::map<std::string, int64_t>> sizes = {{{"B", 1}, {"Q", 5}, {"K", 33}}, {{"B", 1}, {"Q", 33}, {"K", 7}}, {{"B", 0}, {"Q", 4}, {"K", 4}}, {{"B", 1}, {"Q", 2}, {"K", 0}}};
  close(source, {kRows, kSplit}, sizes);
}

// Both variants of the choice: few queries, and many.
TEST(CudaAttention, ChosenForFreeSizes) {
  sym::Context c;
  const Function f = parsed(c, with(attention("[Q, K]", "x: f16[B, H, Q, D], y: f16[B, G, K, D], z: f16[B, G, K, E]) -> (r: f16[B, H, Q, E]", "score[b, h, q, k] * 0.25", "f16", "floordiv(h, 2)"),
                                   {{'B', "1"}, {'H', "2"}, {'G', "1"}, {'D', "16"}, {'E', "16"}}));
  const cuda::RuleResult r = cuda::schedule(f, c, nullptr);
  EXPECT_EQ(r.function.rule, "attention");
  ASSERT_EQ(r.variants.size(), 1u);
  const Function plain = expand_math(f);
  for (const std::map<std::string, int64_t>& dims : {std::map<std::string, int64_t>{{"Q", 1}, {"K", 300}}, {{"Q", 9}, {"K", 20}}}) {
    const bool few = sym::evaluate(r.variants[0].when, dims_of(f, dims)) != 0;
    EXPECT_EQ(few, dims.at("Q") == 1);
    const Function flat = expand_math(flatten(few ? r.variants[0].function : r.function));
    for (const std::string& e : verify(flat)) ADD_FAILURE() << e << "\n" << text(flat);
    const std::vector<double> want = result(plain, dims), got = result(flat, dims);
    ASSERT_EQ(want.size(), got.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(want[i], got[i], 4e-3);
  }
}

// Heads that share keys are rows of one tile.
TEST(CudaAttention, GroupedHeads) {
  const char shapes[] = "x: f16[B, H, Q, D], y: f16[B, G, K, D], z: f16[B, G, K, E]) -> (r: f16[B, H, Q, E]";
  const Sizes sizes = {{'B', "1"}, {'H', "6"}, {'G', "2"}, {'Q', "3"}, {'K', "40"}, {'D', "16"}, {'E', "16"}};
  close(with(attention("", shapes, "score[b, h, q, k] * 0.25", "f16", "floordiv(h, 3)"), sizes), {kRows, kPacked}, {{}});
  close(with(attention("", shapes, "select(index<b1>(k <= q + 37), score[b, h, q, k] * 0.25, -inf)", "f16", "floordiv(h, 3)"), sizes), {kPacked}, {{}});
}

// Keys that no row of a block sees are skipped; rows that see no key give zeros.
TEST(CudaAttention, Causal) {
  const char logit[] = "select(index<b1>(k <= q + K - Q), score[b, h, q, k] * 0.25, -inf)";
  close(with(attention("", kShapes, logit), {{'B', "1"}, {'H', "1"}, {'Q', "70"}, {'K', "70"}, {'D', "16"}, {'E', "16"}}), {kRows, kKeys}, {{}});
  close(with(attention("", kShapes, logit), {{'B', "1"}, {'H', "1"}, {'Q', "70"}, {'K', "20"}, {'D', "16"}, {'E', "16"}}), {kKept, kSplit}, {{}});
  close(with(attention("[Q, K]", kShapes, logit), {{'B', "1"}, {'H', "1"}, {'D', "16"}, {'E', "16"}}), {kRows, kBoth}, {{{"Q", 3}, {"K", 90}}, {{"Q", 40}, {"K", 30}}});
}

TEST(CudaAttention, Masks) {
  const Sizes sizes = {{'B', "2"}, {'H', "2"}, {'Q', "5"}, {'K', "40"}, {'D', "16"}, {'E', "16"}};
  const std::string shapes = "x: f16[B, H, Q, D], y: f16[B, H, K, D], z: f16[B, H, K, E], m: ", result = ") -> (r: f16[B, H, Q, E]";
  close(with(attention("", shapes + "f16[B, 1, 1, K]" + result, "score[b, h, q, k] * 0.25 + f32(m[b, 0, 0, k])"), sizes), {kRows, kSplit}, {{}});
  close(with(attention("", shapes + "b1[Q, K]" + result, "select(m[q, k], score[b, h, q, k] * 0.25, -inf)"), sizes), {kKept}, {{}});
  close(with(attention("", shapes + "f16[H, Q, K]" + result, "select(index<b1>(k <= q + 35), tanh(score[b, h, q, k] * 0.02) * 5 + f32(m[h, q, k]), -inf)"), sizes), {kRows, kKeys}, {{}});
}

TEST(CudaAttention, Bfloat) {
  close(with(attention("", "x: bf16[B, H, Q, D], y: bf16[B, H, K, D], z: bf16[B, H, K, E]) -> (r: bf16[B, H, Q, E]", "score[b, h, q, k] * 0.25", "bf16"), kSmall), {kRows, kSplit}, {{}}, 3e-2);
}

// f32: three kernels, of which the softmax reads the scores once.
TEST(CudaAttention, InParts) {
  for (const char* logit : {"score[b, h, q, k] * 0.25", "tanh(score[b, h, q, k] * 0.02) * 5"}) {
    sym::Context c;
    const Function f = parsed(c, with(attention("[Q, K]", "x: f32[B, H, Q, D], y: f32[B, H, K, D], z: f32[B, H, K, E]) -> (r: f32[B, H, Q, E]", logit, "f32"),
                                     {{'B', "1"}, {'H', "2"}, {'D', "16"}, {'E', "24"}}));
    const Function scheduled = cuda::schedule(f, c, nullptr).function, flat = expand_math(flatten(scheduled)), plain = expand_math(f);
    EXPECT_EQ(scheduled.rule, "attention_parts");
    for (const std::string& e : verify(flat)) ADD_FAILURE() << e << "\n" << text(flat);
    for (const std::map<std::string, int64_t>& dims : {std::map<std::string, int64_t>{{"Q", 7}, {"K", 40}}, {{"Q", 1}, {"K", 1}}, {{"Q", 0}, {"K", 3}}}) {
      const std::vector<double> want = result(plain, dims), got = result(flat, dims);
      ASSERT_EQ(want.size(), got.size());
      for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(want[i], got[i], 1e-5);
    }
  }
}

// What it does not take, it says.
TEST(CudaAttention, Refused) {
  sym::Context c;
  const Function f = parsed(c, with(attention("", "x: f32[B, H, Q, D], y: f32[B, H, K, D], z: f32[B, H, K, E]) -> (r: f32[B, H, Q, E]", "score[b, h, q, k] * 0.25", "f32"), kSmall));
  EXPECT_EQ(cuda::attention_with(f, c, {}).outcome.reason, "operands of f32");
}

}  // namespace
}  // namespace tripod::loop
