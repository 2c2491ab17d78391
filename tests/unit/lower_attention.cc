// attention and rotary against f64 loops.
#include "lower_testing.h"

namespace tripod::lower {
namespace {

struct Options {
  double scale = 0, softcap = 0;
  bool causal = false;
  std::function<double(int64_t b, int64_t h, int64_t s, int64_t t)> mask;  // added; -inf hides
};

Tensor reference(const Tensor& q, const Tensor& k, const Tensor& v, const Options& o) {
  const int64_t heads = q.shape[1], each_kv = heads / k.shape[1], length = k.shape[2], size = q.shape[3];
  Tensor y({q.shape[0], heads, q.shape[2], v.shape[3]});
  each({q.shape[0], heads, q.shape[2]}, [&](const auto& at) {
    std::vector<double> p;
    double best = -kInf, sum = 0;
    for (int64_t t = 0; t < length; ++t) {
      double s = 0;
      for (int64_t d = 0; d < size; ++d) s += q[{at[0], at[1], at[2], d}] * k[{at[0], at[1] / each_kv, t, d}];
      s *= o.scale != 0 ? o.scale : 1 / std::sqrt(static_cast<double>(size));
      if (o.softcap > 0) s = o.softcap * std::tanh(s / o.softcap);
      if (o.mask) s += o.mask(at[0], at[1], at[2], t);
      if (o.causal && t > at[2] + length - q.shape[2]) s = -kInf;
      best = std::max(best, s);
      p.push_back(s);
    }
    for (double& s : p) sum += s = best == -kInf ? 0 : std::exp(s - best);
    for (int64_t d = 0; d < v.shape[3]; ++d) {
      double r = 0;
      for (int64_t t = 0; t < length; ++t) r += p[static_cast<size_t>(t)] * v[{at[0], at[1] / each_kv, t, d}];
      y[{at[0], at[1], at[2], d}] = sum == 0 ? 0 : r / sum;
    }
  });
  return y;
}

const char kInputs[] = "%q: f32[B, 4, S, 3], %k: f32[B, 2, T, 3], %v: f32[B, 2, T, 5]";
const std::map<std::string, int64_t> kDims = {{"B", 2}, {"S", 3}, {"T", 5}};
const Tensor kQ = made_up({2, 4, 3, 3}, 1), kK = made_up({2, 2, 5, 3}, 2), kV = made_up({2, 2, 5, 5}, 3);

TEST(Attention, GroupedHeads) {
  check({kInputs, "%y = attention(%q, %k, %v) {}", "%y", kDims}, {kQ, kK, kV}, {reference(kQ, kK, kV, {})}, 1e-6);
  check({kInputs, "%y = attention(%q, %k, %v) {scale: 0.3, softcap: 0.7}", "%y", kDims}, {kQ, kK, kV},
        {reference(kQ, kK, kV, {0.3, 0.7, false, nullptr})}, 1e-6);
}

TEST(Attention, FreeHeadsAndSizes) {
  check({"%q: f32[B, H, S, D], %k: f32[B, G, T, D], %v: f32[B, G, T, E]", "%y = attention(%q, %k, %v) {}", "%y",
         {{"B", 2}, {"H", 4}, {"G", 2}, {"S", 3}, {"T", 5}, {"D", 3}, {"E", 5}}, "1 <= G, 1 <= H"},
        {kQ, kK, kV}, {reference(kQ, kK, kV, {})}, 1e-6);
}

TEST(Attention, Causal) {
  check({kInputs, "%y = attention(%q, %k, %v) {causal: true}", "%y", kDims}, {kQ, kK, kV},
        {reference(kQ, kK, kV, {0, 0, true, nullptr})}, 1e-6);
  // More queries than keys: the first ones see nothing.
  const Tensor q = made_up({2, 2, 7, 3}, 4);
  check({"%q: f32[2, 2, 7, 3], %k: f32[2, 2, 5, 3], %v: f32[2, 2, 5, 5]", "%y = attention(%q, %k, %v) {causal: true}"},
        {q, kK, kV}, {reference(q, kK, kV, {0, 0, true, nullptr})}, 1e-6);
}

TEST(Attention, Masks) {
  const Tensor bias = made_up({4, 1, 5}, 5);
  check({std::string(kInputs) + ", %m: f32[4, 1, T]", "%y = attention(%q, %k, %v, %m) {}", "%y", kDims}, {kQ, kK, kV, bias},
        {reference(kQ, kK, kV, {0, 0, false, [&](int64_t, int64_t h, int64_t, int64_t t) { return bias[{h, 0, t}]; }})}, 1e-6);
  // Query 1 sees nothing: zeros.
  const Tensor flags = fill({3, 5}, [](const auto& at) { return at[0] != 1 && (at[0] + at[1]) % 2 == 0; });
  const auto hides = [&](int64_t, int64_t, int64_t s, int64_t t) { return flags[{s, t}] != 0 ? 0 : -kInf; };
  check({std::string(kInputs) + ", %m: b1[S, T]", "%y = attention(%q, %k, %v, %m) {}", "%y", kDims}, {kQ, kK, kV, flags},
        {reference(kQ, kK, kV, {0, 0, false, hides})}, 1e-6);
}

TEST(Attention, Halves) {
  const auto half = [](Tensor t) {
    for (double& v : t.v) v = loop::double_from_bits(DType::f16, loop::bits_from_double(DType::f16, v));
    return t;
  };
  const Tensor q = half(kQ), k = half(kK), v = half(kV), mask = half(made_up({1, 1, 3, 5}, 6));
  check({"%q: f16[2, 4, 3, 3], %k: f16[2, 2, 5, 3], %v: f16[2, 2, 5, 5], %m: f16[1, 1, 3, 5]",
         "%y = attention(%q, %k, %v, %m) {causal: true}"}, {q, k, v, mask},
        {reference(q, k, v, {0, 0, true, [&](int64_t, int64_t, int64_t s, int64_t t) { return mask[{0, 0, s, t}]; }})},
        1e-3);
}

TEST(Rotary, HalvesAndNeighbours) {
  const Tensor x = made_up({2, 3, 4, 6}), cos = made_up({2, 1, 4, 3}, 2), sin = made_up({2, 1, 4, 3}, 3);
  for (bool interleaved : {false, true}) {
    const Tensor want = fill(x.shape, [&](const auto& at) {
      const int64_t pair = interleaved ? at[3] / 2 : at[3] % 3;
      const bool second = interleaved ? at[3] % 2 : at[3] / 3;
      auto a = at, b = at;
      a[3] = interleaved ? pair * 2 : pair;
      b[3] = interleaved ? pair * 2 + 1 : pair + 3;
      const double c = cos[{at[0], 0, at[2], pair}], s = sin[{at[0], 0, at[2], pair}];
      return second ? x[a] * s + x[b] * c : x[a] * c - x[b] * s;
    });
    const std::string node = std::string("%y = rotary(%x, %c, %s) {axis: 0, flag_a: ") + (interleaved ? "true}" : "false}");
    check({"%x: f32[N, 3, S, 6], %c: f32[N, 1, S, 3], %s: f32[N, 1, S, 3]", node, "%y", {{"N", 2}, {"S", 4}}}, {x, cos, sin},
          {want}, 1e-6);
  }
}

}  // namespace
}  // namespace tripod::lower
