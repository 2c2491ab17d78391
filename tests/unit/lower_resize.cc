// resize against ONNX's reference implementation (reference/ops/op_resize.py) in f64: interpolation axis by axis from
// the last, the neighbours of a position taken from the operand with its edges repeated.
#include <algorithm>
#include <numeric>

#include "lower_testing.h"

namespace tripod::lower {
namespace {

struct Options {
  std::string mode = "nearest", coordinate = "half_pixel", nearest = "round_prefer_floor";
  bool exclude_outside = false, antialias = false;
  double cubic_a = -0.75, extrapolation = 0;
  std::vector<double> scales;  // one a dim; empty: from the sizes
  std::vector<double> roi;
  std::vector<int64_t> sizes;
};

std::vector<double> coefficients(const Options& o, double ratio, double scale) {
  const double a = o.cubic_a, s = o.antialias ? std::min(scale, 1.0) : 1;
  if (o.mode == "nearest") {
    if (ratio == 1) return {0, 1};
    const bool right = o.nearest == "ceil" || (o.nearest == "round_prefer_floor" && ratio > 0.5) ||
                       (o.nearest == "round_prefer_ceil" && ratio >= 0.5);
    return {right ? 0.0 : 1.0, right ? 1.0 : 0.0};
  }
  const double support = o.mode == "linear" ? 1 : 2;
  const int64_t start = static_cast<int64_t>(std::floor(-support / s)) + 1;
  std::vector<double> c;
  for (int64_t i = start; i < 2 - start; ++i) {
    const double x = std::abs((static_cast<double>(i) - ratio) * s);
    if (o.mode == "linear")
      c.push_back(std::clamp(1 - x, 0.0, 1.0));
    else
      c.push_back(x <= 1  ? (a + 2) * x * x * x - (a + 3) * x * x + 1
                  : x < 2 ? a * x * x * x - 5 * a * x * x + 8 * a * x - 4 * a
                          : 0);
  }
  const double sum = std::accumulate(c.begin(), c.end(), 0.0);
  if (o.antialias)
    for (double& v : c) v /= sum;
  return c;
}

double at_position(const Options& o, const std::vector<double>& line, int64_t out, size_t dim, size_t rank, int64_t x) {
  const auto width = static_cast<double>(line.size());
  const double scale = o.scales.empty() ? static_cast<double>(out) / width : o.scales[dim];
  const double length = scale * width, at = static_cast<double>(x);
  double p = (at + 0.5) / scale - 0.5;
  if (o.coordinate == "align_corners") p = length == 1 ? 0 : at * (width - 1) / (length - 1);
  if (o.coordinate == "asymmetric") p = at / scale;
  if (o.coordinate == "tf_half_pixel_for_nn") p = (at + 0.5) / scale;
  if (o.coordinate == "pytorch_half_pixel" && out == 1) p = 0;
  if (o.coordinate == "half_pixel_symmetric") p += width / 2 * (1 - static_cast<double>(out) / length);
  if (o.coordinate == "tf_crop_and_resize") {
    const double start = o.roi[dim], end = o.roi[dim + rank];
    p = out == 1 ? (end - start) * (width - 1) / 2 : at * (end - start) * (width - 1) / static_cast<double>(out - 1);
    p += start * (width - 1);
    if (p < -1e-9 || p > width - 1 + 1e-9) return o.extrapolation;
  }
  if (std::abs(p - std::round(p)) < 1e-9) p = std::round(p);  // what decimal scales make of whole numbers
  const double whole = std::floor(p), ratio = p == whole ? 1 : p - whole;
  std::vector<double> c = coefficients(o, ratio, scale);
  const int64_t n = static_cast<int64_t>(c.size());
  const int64_t first = static_cast<int64_t>(p == whole ? whole - 1 : whole) - n / 2 + 1;
  if (o.exclude_outside) {
    for (int64_t i = 0; i < n; ++i)
      if (first + i < 0 || first + i >= static_cast<int64_t>(line.size())) c[static_cast<size_t>(i)] = 0;
    const double sum = std::accumulate(c.begin(), c.end(), 0.0);
    for (double& v : c) v /= sum;
  }
  double r = 0;
  for (int64_t i = 0; i < n; ++i)
    r += c[static_cast<size_t>(i)] *
         line[static_cast<size_t>(std::clamp<int64_t>(first + i, 0, static_cast<int64_t>(line.size()) - 1))];
  return r;
}

Tensor reference(const Options& o, const Tensor& x) {
  Tensor t = x;
  for (size_t d = x.shape.size(); d-- > 0;) {
    const double scale = o.scales.empty() ? 1 : o.scales[d];
    if (o.sizes[d] == x.shape[d] && scale == 1 && o.roi.empty()) continue;
    std::vector<int64_t> shape = t.shape;
    shape[d] = o.sizes[d];
    t = fill(shape, [&](const auto& at) {
      std::vector<double> line;
      auto from = at;
      for (from[d] = 0; from[d] < t.shape[d]; ++from[d]) line.push_back(t[from]);
      return at_position(o, line, shape[d], d, shape.size(), at[d]);
    });
  }
  return t;
}

std::string list(const std::vector<double>& v) {
  std::string s = "[";
  for (size_t i = 0; i < v.size(); ++i) s += (i ? ", " : "") + std::to_string(v[i]);
  return s + "]";
}

std::string attr(const Options& o, bool runtime_scales = false, bool runtime_roi = false) {
  std::string s = " {mode: '" + o.mode + "', coordinate: '" + o.coordinate + "', nearest: '" + o.nearest + "'";
  s += ", cubic_a: " + std::to_string(o.cubic_a) + ", extrapolation: " + std::to_string(o.extrapolation);
  if (o.exclude_outside) s += ", exclude_outside: true";
  if (o.antialias) s += ", antialias: true";
  std::string nans = "[";
  for (size_t i = 0; i < o.sizes.size(); ++i) nans += i ? ", nan" : "nan";
  s += ", scales: " + (o.scales.empty() || runtime_scales ? nans + "]" : list(o.scales));
  if (!o.roi.empty() && !runtime_roi) s += ", roi: " + list(o.roi);
  return s + "}";
}

std::string shape_text(const std::vector<int64_t>& s) {
  std::string t = "[";
  for (size_t i = 0; i < s.size(); ++i) t += (i ? ", " : "") + std::to_string(s[i]);
  return t + "]";
}

void check_resize(const Options& o, const Tensor& x, double tolerance, const std::string& type = "f32") {
  const std::string shape = shape_text(x.shape), out = " : " + type + shape_text(o.sizes);
  const Tensor want = reference(o, x);
  check({"%x: " + type + shape, "%y = resize(%x)" + attr(o) + out}, {x}, {want}, tolerance);
  // All dims free.
  Model m{"%x: " + type + "[", "%y = resize(%x)" + attr(o) + " : " + type + "["};
  for (size_t d = 0; d < x.shape.size(); ++d) {
    const std::string in = "I" + std::to_string(d), to = "O" + std::to_string(d);
    const bool same = x.shape[d] == o.sizes[d] && (o.scales.empty() || o.scales[d] == 1);
    m.inputs += (d ? ", " : "") + in;
    m.body += (d ? ", " : "") + (same ? in : to);
    m.where += (d ? ", 1 <= " : "1 <= ") + in;
    m.dims[in] = x.shape[d];
    m.dims[to] = o.sizes[d];
  }
  m.inputs += "]";
  m.body += "]";
  for (size_t d = 0; d < x.shape.size(); ++d)  // an operand that brings the symbols of the result
    if (m.body.find("O" + std::to_string(d)) != std::string::npos) m.inputs += ", %o" + std::to_string(d) + ": f32[O" + std::to_string(d) + "]";
  std::vector<Tensor> args = {x};
  for (size_t d = 0; d < x.shape.size(); ++d)
    if (m.body.find("O" + std::to_string(d)) != std::string::npos) args.push_back(Tensor({o.sizes[d]}));
  check(m, args, {want}, tolerance);
  // Scales that only the run knows.
  if (o.scales.empty()) return;
  Tensor scales({static_cast<int64_t>(o.scales.size())}, o.scales);
  check({"%x: " + type + shape + ", %s: f32" + shape_text(scales.shape), "%y = resize(%x, %s)" + attr(o, true) + out},
        {x, scales}, {want}, tolerance);
}

const char* const kCoordinates[] = {"half_pixel",         "half_pixel_symmetric", "pytorch_half_pixel",
                                    "align_corners",      "asymmetric",           "tf_half_pixel_for_nn"};

// Out = floor(in * scale).
Options scaled(const Tensor& x, std::vector<double> scales) {
  Options o;
  for (size_t d = 0; d < scales.size(); ++d)
    o.sizes.push_back(static_cast<int64_t>(std::floor(static_cast<double>(x.shape[d]) * scales[d] + 1e-9)));
  o.scales = std::move(scales);
  return o;
}

TEST(Resize, Nearest) {
  const Tensor x = made_up({1, 2, 5, 4});
  for (const auto& scales : std::vector<std::vector<double>>{{1, 1, 2, 3}, {1, 1, 0.6, 0.5}, {1, 1, 1.5, 2.25}})
    for (const char* c : kCoordinates)
      for (const char* rounding : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}) {
        Options o = scaled(x, scales);
        o.coordinate = c;
        o.nearest = rounding;
        check_resize(o, x, 0);
        o.scales.clear();
        check_resize(o, x, 0);
      }
}

TEST(Resize, NearestKeepsEveryType) {
  const Tensor x({1, 1, 3}, {1, 0, 3});
  Options o = scaled(x, {1, 1, 2});
  o.coordinate = "asymmetric";
  o.nearest = "floor";
  for (const char* type : {"f64", "f16", "i64", "u8"}) check_resize(o, x, 0, type);
  check({"%x: b1[1, 1, 2]", "%y = resize(%x)" + attr(o) + " : b1[1, 1, 4]"}, {Tensor({1, 1, 2}, {0, 1})},
        {Tensor({1, 1, 4}, {0, 0, 1, 1})});
}

TEST(Resize, LinearAndCubic) {
  const Tensor x = made_up({1, 2, 5, 4});
  for (const char* mode : {"linear", "cubic"})
    for (const auto& scales : std::vector<std::vector<double>>{{1, 1, 2, 3}, {1, 1, 0.6, 0.5}, {1, 1, 1.5, 0.75}})
      for (const char* c : {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"})
        for (bool exclude : {false, true}) {
          Options o = scaled(x, scales);
          o.mode = mode;
          o.coordinate = c;
          o.exclude_outside = exclude;
          o.cubic_a = exclude ? -0.5 : -0.75;
          check_resize(o, x, 3e-6);
          o.scales.clear();
          check_resize(o, x, 3e-6);
        }
}

TEST(Resize, OtherTypes) {
  const Tensor x = made_up({1, 1, 4, 3});
  for (const char* mode : {"linear", "cubic"}) {
    Options o = scaled(x, {1, 1, 2, 1.5});
    o.mode = mode;
    check_resize(o, x, 1e-6, "f64");
    const Tensor halves = fill(x.shape, [&](const auto& at) { return std::round(x[at] * 64) / 64; });
    check_resize(o, halves, 1e-3, "f16");
  }
  // Bytes saturate and truncate.
  Options o = scaled(Tensor({1, 1, 4}), {1, 1, 2});
  o.mode = "cubic";
  const Tensor bytes({1, 1, 4}, {0, 255, 255, 0});
  Tensor want = reference(o, bytes);
  for (double& v : want.v) v = std::floor(std::clamp(v, 0.0, 255.0));
  check({"%x: u8[1, 1, 4]", "%y = resize(%x)" + attr(o) + " : u8[1, 1, 8]"}, {bytes}, {want}, 0);
}

TEST(Resize, Trilinear) {
  const Tensor x = made_up({1, 1, 3, 2, 4});
  Options o = scaled(x, {1, 1, 2, 1.5, 0.5});
  o.mode = "linear";
  check_resize(o, x, 3e-6);
}

TEST(Resize, Antialias) {
  const Tensor x = made_up({1, 1, 7, 5});
  for (const char* mode : {"linear", "cubic"})
    for (const auto& scales : std::vector<std::vector<double>>{{1, 1, 0.6, 0.5}, {1, 1, 0.3, 2}})
      for (bool exclude : {false, true})
        for (const char* c : {"half_pixel", "align_corners", "asymmetric"}) {
          Options o = scaled(x, scales);
          o.mode = mode;
          o.coordinate = c;
          o.antialias = true;
          o.exclude_outside = exclude;
          check_resize(o, x, 5e-6);
          if (std::string(c) == "align_corners") continue;
          o.scales.clear();
          check_resize(o, x, 5e-6);
        }
}

TEST(Resize, CropAndResize) {
  const Tensor x = made_up({1, 1, 4, 5});
  for (const char* mode : {"nearest", "linear", "cubic"})
    for (const auto& roi : std::vector<std::vector<double>>{{0, 0, 0.4, 0.6, 1, 1, 0.6, 0.8}, {0, 0, 0.5, -0.5, 1, 1, 1.25, 1}})
      for (const auto& sizes : std::vector<std::vector<int64_t>>{{1, 1, 3, 3}, {1, 1, 1, 4}}) {
        Options o;
        o.mode = mode;
        o.coordinate = "tf_crop_and_resize";
        o.extrapolation = 10;
        o.sizes = sizes;
        o.roi = roi;
        const Tensor want = reference(o, x);
        check_resize(o, x, 3e-6);
        check({"%x: f32[1, 1, 4, 5], %r: f32[8]", "%y = resize(%x, none, %r)" + attr(o, false, true) + " : f32" + shape_text(sizes)},
              {x, Tensor({8}, roi)}, {want}, 3e-6);
      }
}

TEST(Resize, SameSizeIsACopy) {
  const Tensor x = made_up({1, 1, 4, 5});
  Options o = scaled(x, {1, 1, 1, 1});
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    o.mode = mode;
    check_resize(o, x, 0);
  }
}

}  // namespace
}  // namespace tripod::lower
