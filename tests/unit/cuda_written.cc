// The operators whose CUDA kernels are written in scheduled form, by the interpreter: right results, every access inside
// its buffer, no races between threads.
#include "backends/cuda/written.h"

#include <numeric>

#include "lower_testing.h"

namespace tripod::lower {
namespace {

std::string dims_text(const std::vector<int64_t>& shape) {
  std::string s;
  for (int64_t d : shape) s += (s.empty() ? "" : ", ") + std::to_string(d);
  return "[" + s + "]";
}

LowerGroup written(const std::string& rule) {
  return [rule](const graph::Graph& g, const graph::Group& group, Numbering& sites) {
    auto l = cuda::write(g, group, sites);
    if (!l) throw std::runtime_error(rule + " does not apply");
    EXPECT_EQ(l->function.rule, rule);
    return std::move(*l);
  };
}

// NaN above everything, equal elements in their order.
void check_topk(const std::string& dtype, const Tensor& x, int axis, int64_t k, bool largest, const std::string& free = "") {
  std::vector<int64_t> shape = x.shape;
  shape[axis] = k;
  std::string in = dims_text(x.shape), out = dims_text(shape);
  Model m;
  if (!free.empty()) {  // the axis is a symbol
    std::string text;
    for (size_t d = 0; d < x.shape.size(); ++d) text += (d ? ", " : "") + (static_cast<int>(d) == axis ? free : std::to_string(x.shape[d]));
    in = "[" + text + "]";
    m.dims = {{free, x.shape[axis]}};
    m.where = std::to_string(k) + " <= " + free;
  }
  m.inputs = "%x: " + dtype + in;
  m.body = "%v, %i = topk(%x) {axis: " + std::to_string(axis) + ", flag_a: " + (largest ? "true" : "false") + ", flag_b: true} : " + dtype + out + ", i64" + out;
  m.results = "%v, %i";
  const Outcome r = run(m, {x}, written("topk"));
  Tensor values(shape), places(shape);
  std::vector<int64_t> lines = shape;
  lines[axis] = 1;
  each(lines, [&](std::vector<int64_t> at) {
    std::vector<int64_t> order(static_cast<size_t>(x.shape[axis]));
    std::iota(order.begin(), order.end(), 0);
    const auto value = [&](int64_t i) { return at[axis] = i, x[at]; };
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      const double p = value(largest ? a : b), q = value(largest ? b : a);
      return std::isnan(p) ? !std::isnan(q) : p > q;
    });
    for (int64_t j = 0; j < k; ++j) {
      const double v = value(order[j]);
      at[axis] = j;
      values[at] = v, places[at] = static_cast<double>(order[j]);
    }
  });
  for (size_t i = 0; i < places.v.size(); ++i) {
    ASSERT_EQ(r.results[1].v[i], places.v[i]) << "place " << i;
    ASSERT_TRUE(r.results[0].v[i] == values.v[i] || (std::isnan(values.v[i]) && std::isnan(r.results[0].v[i]))) << "value " << i;
  }
}

TEST(CudaWritten, TopK) {
  for (bool largest : {true, false}) {
    check_topk("f32", made_up({3, 40}), 1, 7, largest);
    check_topk("f32", made_up({2, 50, 3}), 1, 50, largest);
    check_topk("f16", fill({2, 300}, [](const auto& at) { return static_cast<double>(at[1] * 37 % 11) - 5; }), 1, 20, largest);  // many are equal
    check_topk("i32", fill({1, 64}, [](const auto& at) { return static_cast<double>(at[1] * 29 % 64) * 1e7 - 3e8; }), 1, 64, largest);
    check_topk("u8", fill({1, 64}, [](const auto& at) { return static_cast<double>(at[1] * 29 % 64) * 4; }), 1, 3, largest);
  }
}

TEST(CudaWritten, TopKSpecialValues) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  check_topk("f32", Tensor({1, 8}, {1, nan, -kInf, kInf, -0.0, 0.0, nan, -1}), 1, 8, true);
  check_topk("f32", Tensor({1, 8}, {1, nan, -kInf, kInf, -0.0, 0.0, nan, -1}), 1, 8, false);
}

// More than one sort a block; a row split between blocks; sizes that are only known when it runs.
TEST(CudaWritten, TopKOfLongRows) {
  check_topk("f32", made_up({1, 5000}, 7), 1, 5, true);
  check_topk("f32", made_up({1, 9001}, 8), 1, 300, true);
  check_topk("f32", made_up({1, 9000}, 9), 1, 9, false, "N");
  check_topk("f32", made_up({1, 10}, 9), 1, 9, true, "N");
}

TEST(CudaWritten, TopKThatStaysWithTheRunTime) {
  const auto applies = [](const std::string& text) {
    const auto m = graph::parse("graph @main(%x: " + text + "\n return %v\n}\n");
    Numbering sites;
    const graph::Graph& g = m->main();
    return cuda::write(g, group_of(g), sites).has_value();
  };
  EXPECT_FALSE(applies("f64[9]) {\n %v, %i = topk(%x) {axis: 0, flag_a: true} : f64[3], i64[3]"));
  EXPECT_FALSE(applies("f32[5000]) {\n %v, %i = topk(%x) {axis: 0, flag_a: true} : f32[2000], i64[2000]"));
  EXPECT_TRUE(applies("f32[5000]) {\n %v, %i = topk(%x) {axis: 0, flag_a: true} : f32[1000], i64[1000]"));
}

void check_cumsum(const std::string& dtype, const Tensor& x, bool exclusive, bool reverse, bool open = false) {
  Model m;
  std::vector<int64_t> lines(x.shape.begin(), x.shape.end() - 1);
  std::string shape = dims_text(x.shape);
  if (open) m.dims = {{"N", x.shape.back()}}, shape = "[" + std::to_string(x.shape[0]) + ", N]";
  m.inputs = "%x: " + dtype + shape;
  m.body = "%y = cumsum(%x) {axis: " + std::to_string(x.shape.size() - 1) + ", flag_a: " + (exclusive ? "true" : "false") + ", flag_b: " + (reverse ? "true" : "false") +
           "} : " + dtype + shape;
  const Outcome r = run(m, {x}, written("scan"));
  Tensor want(x.shape);
  const int64_t n = x.shape.back();
  for (int64_t row = 0; row < x.count() / std::max<int64_t>(n, 1); ++row) {
    double sum = 0;
    for (int64_t step = 0; step < n; ++step) {
      const size_t i = static_cast<size_t>(row * n + (reverse ? n - 1 - step : step));
      want.v[i] = exclusive ? sum : sum + x.v[i];
      sum += x.v[i];
    }
  }
  expect_close(r.results[0], want, dtype == "f16" ? 2e-3 : 2e-5);
}

TEST(CudaWritten, CumSum) {
  for (bool exclusive : {false, true})
    for (bool reverse : {false, true}) {
      check_cumsum("f32", made_up({3, 70}), exclusive, reverse);
      check_cumsum("i64", fill({2, 1025}, [](const auto& at) { return static_cast<double>(at[1] * 7 % 13) - 6; }), exclusive, reverse);
      check_cumsum("i32", fill({1, 5001}, [](const auto& at) { return static_cast<double>(at[1] % 5); }), exclusive, reverse);
      check_cumsum("f32", fill({2, 3000}, [](const auto& at) { return static_cast<double>(at[1] % 3); }), exclusive, reverse);
    }
  check_cumsum("f16", fill({2, 100}, [](const auto& at) { return static_cast<double>(at[1] % 4); }), false, false);
}

TEST(CudaWritten, CumSumOfOpenLengths) {
  for (int64_t n : {0, 1, 100, 9000})
    check_cumsum("f32", fill({2, n}, [](const auto& at) { return static_cast<double>(at[1] % 5); }), false, true, true);
}

}  // namespace
}  // namespace tripod::lower
