// max_pool, average_pool, lp_pool, lrn against loops over windows.
#include "lower_testing.h"

namespace tripod::lower {
namespace {

struct Window {
  std::vector<int64_t> kernel, strides, dilations, begin, end;
  bool ceil = false;

  std::string attr(const std::string& more = "") const {
    const auto list = [](const std::vector<int64_t>& v) {
      std::string s = "[";
      for (size_t i = 0; i < v.size(); ++i) s += (i ? ", " : "") + std::to_string(v[i]);
      return s + "]";
    };
    return "{kernel: " + list(kernel) + ", strides: " + list(strides) + ", dilations: " + list(dilations) +
           ", pads_begin: " + list(begin) + ", pads_end: " + list(end) + (ceil ? ", ceil_mode: true" : "") + more + "}";
  }
  int64_t extent(int64_t in, size_t d) const {
    const int64_t free = in + begin[d] + end[d] - dilations[d] * (kernel[d] - 1) - 1;
    int64_t n = (ceil ? (free + strides[d] - 1) / strides[d] : free / strides[d]) + 1;
    if (ceil && (n - 1) * strides[d] >= in + begin[d]) --n;
    return n;
  }
  std::vector<int64_t> result_shape(const Tensor& x) const {
    std::vector<int64_t> s = {x.shape[0], x.shape[1]};
    for (size_t d = 0; d < kernel.size(); ++d) s.push_back(extent(x.shape[2 + d], d));
    return s;
  }
  // f(index into x, inside, inside or in the padding that was asked for) for the taps of one window.
  void taps(const Tensor& x, const std::vector<int64_t>& at,
            const std::function<void(const std::vector<int64_t>&, bool, bool)>& f) const {
    each(kernel, [&](const auto& k) {
      std::vector<int64_t> i = at;
      bool inside = true, padded = true;
      for (size_t d = 0; d < kernel.size(); ++d) {
        i[2 + d] = at[2 + d] * strides[d] + k[d] * dilations[d] - begin[d];
        inside = inside && i[2 + d] >= 0 && i[2 + d] < x.shape[2 + d];
        padded = padded && i[2 + d] < x.shape[2 + d] + end[d];
      }
      f(i, inside, padded);
    });
  }
};

const std::vector<std::pair<std::vector<int64_t>, Window>>& cases() {
  static const std::vector<std::pair<std::vector<int64_t>, Window>> kCases = {
      {{2, 3, 6, 5}, {{2, 2}, {2, 2}, {1, 1}, {0, 0}, {0, 0}}},
      {{1, 2, 7, 6}, {{3, 3}, {2, 1}, {1, 1}, {1, 1}, {1, 0}}},
      {{1, 2, 7, 6}, {{3, 2}, {2, 2}, {2, 1}, {1, 0}, {0, 1}, true}},
      {{2, 1, 9}, {{3}, {2}, {1}, {1}, {1}, true}},
      {{1, 1, 4, 4, 3}, {{2, 2, 2}, {1, 2, 1}, {1, 1, 2}, {0, 1, 1}, {0, 1, 0}}},
  };
  return kCases;
}

// Spatial dims are symbols in one half of the runs.
Model model(const std::vector<int64_t>& shape, bool symbolic, const std::string& node, const std::string& type = "f32",
            const std::string& results = "%y") {
  Model m{"%x: " + type + "[", results + " = " + node, results};
  for (size_t d = 0; d < shape.size(); ++d) {
    const std::string name = "D" + std::to_string(d);
    m.inputs += (d ? ", " : "") + (symbolic ? name : std::to_string(shape[d]));
    m.dims[name] = shape[d];
    if (symbolic) m.where += (d ? ", 1 <= " : "1 <= ") + name;
  }
  m.inputs += "]";
  return m;
}

TEST(Pools, Max) {
  for (const auto& [shape, w] : cases())
    for (bool symbolic : {false, true}) {
      const Tensor x = made_up(shape);
      const Tensor want = fill(w.result_shape(x), [&](const auto& at) {
        double best = -kInf;
        w.taps(x, at, [&](const auto& i, bool inside, bool) {
          if (inside) best = std::max(best, x[i]);
        });
        return best;
      });
      Model m = model(shape, symbolic, "max_pool(%x) " + w.attr());
      m.body = "%y, %i = max_pool(%x) " + w.attr();
      check(m, {x}, {want});
    }
}

TEST(Pools, MaxOfBytes) {
  const Window w{{2}, {1}, {1}, {1}, {1}};
  check({"%x: i8[1, 1, 3]", "%y, %i = max_pool(%x) " + w.attr()}, {Tensor({1, 1, 3}, {-128, -5, 3})},
        {Tensor({1, 1, 4}, {-128, -5, 3, 3})});
  check({"%x: u8[1, 1, 3]", "%y, %i = max_pool(%x) " + w.attr(), "%y, %i"}, {Tensor({1, 1, 3}, {0, 0, 200})},
        {Tensor({1, 1, 4}, {0, 0, 200, 200}), Tensor({1, 1, 4}, {0, 0, 2, 2})});
}

TEST(Pools, MaxWithIndices) {
  for (const auto& [shape, w] : cases())
    for (bool symbolic : {false, true})
      for (bool columns : {false, true}) {
        const Tensor x = fill(shape, [n = 0](const auto&) mutable { return (n = (n * 7 + 3) % 11) / 2; });  // ties
        Tensor index(w.result_shape(x));
        const Tensor want = fill(w.result_shape(x), [&](const auto& at) {
          double best = -kInf;
          w.taps(x, at, [&](const auto& i, bool inside, bool) {
            if (!inside || x[i] <= best) return;
            best = x[i];
            int64_t flat = x.offset(i);
            if (columns) {
              int64_t size = 1, within = 0;
              for (size_t d = shape.size(); d-- > 2;) within = within * shape[d] + i[d], size *= shape[d];
              flat = (i[0] * shape[1] + i[1]) * size + within;
            }
            index[at] = static_cast<double>(flat);
          });
          return best;
        });
        const std::string node = "max_pool(%x) " + w.attr(columns ? ", column_major_indices: true" : "");
        check(model(shape, symbolic, node, "f32", "%y, %i"), {x}, {want, index});
        check(model(shape, symbolic, node, "f16", "%y, %i"), {x}, {want, index});
      }
}

TEST(Pools, MaxSeesNanAndInfinity) {
  const Window w{{2}, {1}, {1}, {0}, {0}};
  const double nan = std::nan("");
  check({"%x: f32[1, 1, 5]", "%y, %i = max_pool(%x) " + w.attr(), "%y, %i"},
        {Tensor({1, 1, 5}, {-kInf, -kInf, 1, nan, 2})},
        {Tensor({1, 1, 4}, {-kInf, 1, nan, nan}), Tensor({1, 1, 4}, {0, 2, 3, 3})});
}

TEST(Pools, Average) {
  for (const auto& [shape, w] : cases())
    for (bool symbolic : {false, true})
      for (bool include : {false, true}) {
        const Tensor x = made_up(shape);
        const Tensor want = fill(w.result_shape(x), [&](const auto& at) {
          double sum = 0, count = 0;
          w.taps(x, at, [&](const auto& i, bool inside, bool padded) {
            if (inside) sum += x[i];
            count += include ? padded : inside;
          });
          return sum / count;
        });
        const std::string attr = w.attr(include ? ", count_include_pad: true" : "");
        check(model(shape, symbolic, "average_pool(%x) " + attr), {x}, {want}, 1e-6);
        check(model(shape, symbolic, "average_pool(%x) " + attr, "f64"), {x}, {want}, 1e-15);
        check(model(shape, symbolic, "average_pool(%x) " + attr, "f16"), {x}, {want}, 2e-3);
      }
}

TEST(Pools, Lp) {
  for (const auto& [shape, w] : cases())
    for (int p : {1, 2, 3}) {
      const Tensor x = made_up(shape);
      const Tensor want = fill(w.result_shape(x), [&](const auto& at) {
        double sum = 0;
        w.taps(x, at, [&](const auto& i, bool inside, bool) {
          if (inside) sum += std::pow(std::abs(x[i]), p);
        });
        return std::pow(sum, 1.0 / p);
      });
      check(model(shape, true, "lp_pool(%x) " + w.attr(", p: " + std::to_string(p))), {x}, {want}, 1e-6);
    }
}

TEST(Pools, Lrn) {
  const Tensor x = made_up({2, 7, 3});
  for (int size : {3, 4, 9})
    for (double beta : {0.75, 0.4}) {
      const Tensor want = fill(x.shape, [&](const auto& at) {
        double sum = 0;
        for (int64_t c = std::max<int64_t>(0, at[1] - (size - 1) / 2); c <= std::min<int64_t>(6, at[1] + size / 2); ++c)
          sum += x[{at[0], c, at[2]}] * x[{at[0], c, at[2]}];
        return x[at] / std::pow(1.5 + 0.3 / size * sum, beta);
      });
      const std::string attr = " {a: 0.3, b: " + std::to_string(beta) + ", c: 1.5, axis: " + std::to_string(size) + "}";
      check({"%x: f32[2, C, 3]", "%y = lrn(%x)" + attr, "%y", {{"C", 7}}}, {x}, {want}, 1e-6);
    }
}

}  // namespace
}  // namespace tripod::lower
