// softmax, log_softmax and the normalisations against f64 loops.
#include "lower_testing.h"

namespace tripod::lower {
namespace {

// Statistics over the elements that share a key.
struct Stats {
  std::map<std::vector<int64_t>, std::vector<double>> rows;
  std::function<std::vector<int64_t>(const std::vector<int64_t>&)> key;

  Stats(const Tensor& x, std::function<std::vector<int64_t>(const std::vector<int64_t>&)> k) : key(std::move(k)) {
    each(x.shape, [&](const auto& at) { rows[key(at)].push_back(x[at]); });
  }
  double mean(const std::vector<int64_t>& at) const {
    double s = 0;
    for (double v : rows.at(key(at))) s += v;
    return s / static_cast<double>(rows.at(key(at)).size());
  }
  double variance(const std::vector<int64_t>& at) const {
    const double m = mean(at);
    double s = 0;
    for (double v : rows.at(key(at))) s += (v - m) * (v - m);
    return s / static_cast<double>(rows.at(key(at)).size());
  }
  double max(const std::vector<int64_t>& at) const {
    return *std::max_element(rows.at(key(at)).begin(), rows.at(key(at)).end());
  }
  double exp_sum(const std::vector<int64_t>& at) const {
    double s = 0;
    for (double v : rows.at(key(at))) s += std::exp(v - max(at));
    return s;
  }
};

std::function<std::vector<int64_t>(const std::vector<int64_t>&)> without(size_t axis) {
  return [axis](std::vector<int64_t> at) {
    at.erase(at.begin() + static_cast<int64_t>(axis));
    return at;
  };
}

TEST(Norms, Softmax) {
  const Tensor x = made_up({3, 4, 5}, 1, -60, 60);
  for (size_t axis = 0; axis < 3; ++axis) {
    const Stats s(x, without(axis));
    const Tensor p = fill(x.shape, [&](const auto& at) { return std::exp(x[at] - s.max(at)) / s.exp_sum(at); });
    const Tensor log = fill(x.shape, [&](const auto& at) { return x[at] - s.max(at) - std::log(s.exp_sum(at)); });
    const std::string attr = "(%x) {axis: " + std::to_string(axis) + "}";
    const std::map<std::string, int64_t> dims = {{"A", 3}, {"B", 4}, {"C", 5}};
    check({"%x: f32[A, B, C]", "%y = softmax" + attr, "%y", dims}, {x}, {p}, 1e-6);
    check({"%x: f64[3, 4, 5]", "%y = softmax" + attr}, {x}, {p}, 1e-14);
    check({"%x: f32[A, B, C]", "%y = log_softmax" + attr, "%y", dims}, {x}, {log}, 1e-6);
  }
  Tensor half = x;
  for (double& v : half.v) v = std::round(v);
  const Stats s(half, without(2));
  check({"%x: f16[3, 4, 5]", "%y = softmax(%x) {axis: 2}"}, {half},
        {fill(x.shape, [&](const auto& at) { return std::exp(half[at] - s.max(at)) / s.exp_sum(at); })}, 1e-3);
}

TEST(Norms, SoftmaxOfInfinities) {
  check({"%x: f32[2, 3]", "%y = softmax(%x) {axis: 1}"}, {Tensor({2, 3}, {-kInf, 0, 0, -kInf, -kInf, -kInf})},
        {Tensor({2, 3}, {0, 0.5, 0.5, std::nan(""), std::nan(""), std::nan("")})});
}

TEST(Norms, SoftmaxOfNothing) {
  check({"%x: f32[N, M]", "%y = softmax(%x) {axis: 1}", "%y", {{"N", 2}, {"M", 0}}}, {Tensor({2, 0})}, {Tensor({2, 0})});
}

TEST(Norms, Layer) {
  const Tensor x = made_up({2, 3, 4}), scale = made_up({3, 4}, 2), bias = made_up({3, 4}, 3);
  const Stats s(x, [](const auto& at) { return std::vector<int64_t>{at[0]}; });
  const Tensor plain = fill(x.shape, [&](const auto& at) {
    return (x[at] - s.mean(at)) / std::sqrt(s.variance(at) + 0.01);
  });
  const auto with = [&](bool scaled, bool moved) {
    return fill(x.shape, [&](const auto& at) {
      return plain[at] * (scaled ? scale[{at[1], at[2]}] : 1) + (moved ? bias[{at[1], at[2]}] : 0);
    });
  };
  const std::string attr = " {a: 0.01, axis: 1}", operands = "%x: f32[N, 3, M]", where = "1 <= M";
  const std::map<std::string, int64_t> dims = {{"N", 2}, {"M", 4}};
  check({operands, "%y = layer_norm(%x)" + attr, "%y", dims}, {x}, {plain}, 1e-6);
  check({operands + ", %s: f32[3, M]", "%y = layer_norm(%x, %s)" + attr, "%y", dims}, {x, scale}, {with(true, false)}, 1e-6);
  check({operands + ", %b: f32[3, M]", "%y = layer_norm(%x, none, %b)" + attr, "%y", dims}, {x, bias}, {with(false, true)},
        1e-6);
  check({operands + ", %s: f32[3, M], %b: f32[3, M]", "%y = layer_norm(%x, %s, %b)" + attr, "%y", dims, where},
        {x, scale, bias}, {with(true, true)}, 1e-6);
  check({"%x: f64[2, 3, 4], %s: f64[3, 4], %b: f64[3, 4]", "%y = layer_norm(%x, %s, %b)" + attr}, {x, scale, bias},
        {with(true, true)}, 1e-14);
  check({"%x: f16[2, 3, 4], %s: f32[3, 4], %b: f32[3, 4]", "%y = layer_norm(%x, %s, %b)" + attr}, {x, scale, bias},
        {with(true, true)}, 1e-2);
}

// An offset that is large against the spread: f32 sums of the elements themselves would lose everything.
TEST(Norms, LargeOffset) {
  const Tensor x = fill({2, 512}, [n = 0](const auto& at) mutable { return 65536.0 * (at[0] + 1) + (n = (n * 5 + 1) % 8) / 8.0; });
  const Stats s(x, [](const auto& at) { return std::vector<int64_t>{at[0]}; });
  const Tensor want = fill(x.shape, [&](const auto& at) { return (x[at] - s.mean(at)) / std::sqrt(s.variance(at) + 1e-5); });
  check({"%x: f32[2, N]", "%y = layer_norm(%x) {a: 1e-05, axis: 1}", "%y", {{"N", 512}}}, {x}, {want}, 1e-4);
  Tensor image = x, expected = want;
  image.shape = expected.shape = {1, 2, 512};
  check({"%x: f32[1, 2, 512]", "%y = group_norm(%x) {a: 1e-05, axis: 2}"}, {image}, {expected}, 1e-4);
}

TEST(Norms, EmptyRows) {
  check({"%x: f32[2, N]", "%y = layer_norm(%x) {a: 1e-05, axis: 1}", "%y", {{"N", 0}}}, {Tensor({2, 0})}, {Tensor({2, 0})});
}

TEST(Norms, RootMeanSquare) {
  const Tensor x = made_up({3, 8}), scale = made_up({8}, 2);
  const Tensor want = fill(x.shape, [&](const auto& at) {
    double sum = 0;
    for (int64_t k = 0; k < 8; ++k) sum += x[{at[0], k}] * x[{at[0], k}];
    return x[at] / std::sqrt(sum / 8 + 0.1) * scale[{at[1]}];
  });
  check({"%x: f32[N, 8], %s: f32[8]", "%y = rms_norm(%x, %s) {a: 0.1, axis: 1}", "%y", {{"N", 3}}}, {x, scale}, {want}, 1e-6);
  check({"%x: f16[3, 8], %s: f16[8]", "%y = rms_norm(%x, %s) {a: 0.1, axis: 1}"}, {x, scale}, {want}, 1e-2);
}

TEST(Norms, Group) {
  const Tensor x = made_up({2, 6, 3, 2}), scale = made_up({6}, 2), bias = made_up({6}, 3);
  for (int64_t groups : {1, 2, 6}) {
    const Stats s(x, [&](const auto& at) { return std::vector<int64_t>{at[0], at[1] / (6 / groups)}; });
    const Tensor want = fill(x.shape, [&](const auto& at) {
      return (x[at] - s.mean(at)) / std::sqrt(s.variance(at) + 0.01) * scale[{at[1]}] + bias[{at[1]}];
    });
    const std::string node = "%y = group_norm(%x, %s, %b) {a: 0.01, axis: " + std::to_string(groups) + "}";
    check({"%x: f32[2, 6, 3, 2], %s: f32[6], %b: f32[6]", node}, {x, scale, bias}, {want}, 2e-6);
    check({"%x: f32[N, C, H, W], %s: f32[C], %b: f32[C]", node, "%y", {{"N", 2}, {"C", 6}, {"H", 3}, {"W", 2}},
           "6 <= C by 6, 1 <= H, 1 <= W"}, {x, scale, bias}, {want}, 2e-6);
  }
}

TEST(Norms, Batch) {
  const Tensor x = made_up({2, 3, 4}), scale = made_up({3}, 2), bias = made_up({3}, 3), mean = made_up({3}, 4),
               var = made_up({3}, 5, 0.5, 2);
  const Tensor want = fill(x.shape, [&](const auto& at) {
    const std::vector<int64_t> c = {at[1]};
    return (x[at] - mean[c]) / std::sqrt(var[c] + 0.01) * scale[c] + bias[c];
  });
  const std::string node = "%y = batch_norm(%x, %s, %b, %m, %v) {a: 0.01}";
  check({"%x: f32[N, 3, W], %s: f32[3], %b: f32[3], %m: f32[3], %v: f32[3]", node, "%y", {{"N", 2}, {"W", 4}}},
        {x, scale, bias, mean, var}, {want}, 1e-6);
  check({"%x: f16[2, 3, 4], %s: f16[3], %b: f16[3], %m: f32[3], %v: f32[3]", node}, {x, scale, bias, mean, var}, {want},
        2e-2);
}

}  // namespace
}  // namespace tripod::lower
