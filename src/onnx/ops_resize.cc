// Resize and Upsample, every version: one core op, with the result dims worked out here.
//
// Dims are expressions of the input's dims where scales are constant, and what `sizes` says where that is given.
// Otherwise (scales computed at run time; sizes that keep the aspect ratio of free dims) they are computed as a tensor
// and read back.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "onnx/pieces.h"

namespace tripod::importer {

namespace {

struct Request {
  std::vector<int> axes;      // what the three below refer to
  ValueId scales = kNoValue;  // f32 [axes], unless const_scales
  ValueId sizes = kNoValue;   // [axes]
  ValueId roi = kNoValue;     // f32 [2 * axes], only for tf_crop_and_resize
  std::vector<double> const_scales, const_roi;
  std::string policy = "stretch";
  graph::ResizeAttr attr;
  bool simple_nearest = false;  // before opset 11: up takes the floor, down the ceiling (ONNX Runtime's rule)
};

// p / q with the least q that is `scale` when rounded to f32: what the exporter meant by 0.33333334.
std::pair<int64_t, int64_t> as_fraction(float scale) {
  double rest = scale;
  int64_t p0 = 0, q0 = 1, p1 = 1, q1 = 0;
  for (int i = 0; i < 24; ++i) {
    const double whole = std::floor(rest);
    if (std::abs(whole) > 1e9) break;
    const int64_t a = static_cast<int64_t>(whole);
    const int64_t p = a * p1 + p0, q = a * q1 + q0;
    if (q > 1'000'000 || p > 1'000'000'000) break;
    p0 = std::exchange(p1, p);
    q0 = std::exchange(q1, q);
    if (static_cast<float>(static_cast<double>(p1) / static_cast<double>(q1)) == scale) return {p1, q1};
    rest = 1.0 / (rest - whole);
  }
  int exponent = 0;
  const double mantissa = std::frexp(static_cast<double>(scale), &exponent);  // 24 significant bits
  const int64_t m = static_cast<int64_t>(std::ldexp(mantissa, 24));
  const int shift = 24 - exponent;
  if (shift <= 0) return {m << std::min(-shift, 30), 1};
  return {m, int64_t{1} << std::min(shift, 60)};
}

// floor(dim * scale): in f32 for a known dim, as ONNX's shape inference does it.
Expr scaled(const NodeContext& c, Expr dim, double scale) {
  if (dim.is_const()) {
    const float product = static_cast<float>(dim.value()) * static_cast<float>(scale);
    if (!(product < 9e18f)) c.fail("the result of the resize is too large");
    return c.expr(static_cast<int64_t>(std::floor(product)));
  }
  const auto [p, q] = as_fraction(static_cast<float>(scale));
  return sym::floordiv(dim * p, q);
}

// --- run-time tensors ----------------------------------------------------------------------------------------------

// One entry a dim of x from one entry an axis; `otherwise` for the dims that are no axes. `at`: where the list starts.
ValueId one_a_dim(const NodeContext& c, ValueId list, const std::vector<int>& axes, int rank, float otherwise,
                  int at = 0) {
  std::vector<ValueId> pieces;
  for (int d = 0; d < rank; ++d) {
    const auto i = std::find(axes.begin(), axes.end(), d);
    pieces.push_back(i == axes.end() ? c.constant({1}, {otherwise})
                                     : c.slice(list, 0, c.expr(at + (i - axes.begin())), c.expr(1)));
  }
  return c.concat(pieces, 0);
}

bool in_order(const std::vector<int>& axes, int rank) {
  return static_cast<int>(axes.size()) == rank && std::is_sorted(axes.begin(), axes.end());
}

ValueId full_scales(const NodeContext& c, ValueId scales, const Request& r, int rank) {
  return in_order(r.axes, rank) ? scales : one_a_dim(c, scales, r.axes, rank, 1);
}

ValueId full_roi(const NodeContext& c, const Request& r, int rank) {
  if (in_order(r.axes, rank)) return r.roi;
  const int n = static_cast<int>(r.axes.size());
  return c.concat({one_a_dim(c, r.roi, r.axes, rank, 0), one_a_dim(c, r.roi, r.axes, rank, 1, n)}, 0);
}

// Result dims of the axes from tensors; sets r.scales where the aspect ratio decides them.
std::vector<Expr> computed_dims(const NodeContext& c, ValueId x, Request& r) {
  std::vector<Expr> in;
  for (int a : r.axes) in.push_back(c.dim(x, a));
  const ValueId dims = c.cast(c.g.add_exprs(in), DType::f32);
  const Expr n = c.expr(static_cast<int64_t>(in.size()));
  ValueId real;
  if (r.policy != "stretch") {
    const ValueId ratios = c.add(OpKind::div, {c.cast(r.sizes, DType::f32), dims});
    const OpKind pick = r.policy == "not_larger" ? OpKind::reduce_min : OpKind::reduce_max;
    r.scales = c.broadcast(c.add(pick, {ratios}, reduce_attr({0}, true)), {n});
    r.sizes = kNoValue;
    real = c.add(OpKind::add, {c.add(OpKind::mul, {dims, r.scales}), c.scalar(DType::f32, 0.5)});
  } else {
    real = c.add(OpKind::mul, {dims, r.scales});
  }
  return c.dims(c.cast(c.add(OpKind::floor, {real}), DType::i64));
}

// --- dims known without --------------------------------------------------------------------------------------------

// Sizes that keep the aspect ratio, all numbers known.
bool fixed_aspect(const NodeContext& c, ValueId x, Request& r, std::vector<Expr>& dims) {
  const auto sizes = c.ints(r.sizes);
  if (!sizes) return false;
  double scale = r.policy == "not_larger" ? std::numeric_limits<double>::infinity() : 0;
  for (size_t i = 0; i < r.axes.size(); ++i) {
    const Expr in = c.dim(x, r.axes[i]);
    if (!in.is_const() || in.value() == 0) return false;
    const double ratio = static_cast<double>((*sizes)[i]) / static_cast<double>(in.value());
    scale = r.policy == "not_larger" ? std::min(scale, ratio) : std::max(scale, ratio);
  }
  for (int a : r.axes) {
    const double size = std::floor(scale * static_cast<double>(c.dim(x, a).value()) + 0.5);
    if (!(size >= 0 && size < 9e18)) c.fail("the sizes are not possible");
    dims.push_back(c.expr(static_cast<int64_t>(size)));
  }
  r.const_scales.assign(r.axes.size(), scale);
  r.sizes = kNoValue;
  return true;
}

std::vector<Expr> result_dims(const NodeContext& c, ValueId x, Request& r) {
  std::vector<Expr> dims;
  if (r.sizes != kNoValue) {
    if (r.policy == "stretch") return c.dims(r.sizes);
    return fixed_aspect(c, x, r, dims) ? dims : computed_dims(c, x, r);
  }
  if (r.scales != kNoValue) return computed_dims(c, x, r);
  // The text of ONNX also multiplies by the extent of the roi; its shape inference, its reference implementation and
  // ONNX Runtime all do not.
  for (size_t i = 0; i < r.axes.size(); ++i) dims.push_back(scaled(c, c.dim(x, r.axes[i]), r.const_scales[i]));
  return dims;
}

void choose_simple_nearest(const NodeContext& c, Request& r) {
  const bool down = std::any_of(r.const_scales.begin(), r.const_scales.end(), [](double s) { return s < 1; });
  const bool up = std::any_of(r.const_scales.begin(), r.const_scales.end(), [](double s) { return s > 1; });
  if (down && up) c.fail("nearest with scales above and below 1 is not supported before opset 11");
  r.attr.nearest = down ? "ceil" : "floor";
}

std::vector<ValueId> finish(const NodeContext& c, ValueId x, Request r) {
  const int rank = c.rank(x);
  const size_t n = r.axes.size();
  if (r.scales != kNoValue && r.sizes == kNoValue) {
    if (const auto known = c.floats(r.scales)) {
      r.const_scales = *known;
      r.scales = kNoValue;
    } else {
      r.scales = c.cast(r.scales, DType::f32);
    }
  }
  if (r.roi != kNoValue) {
    if (const auto known = c.floats(r.roi)) {
      r.const_roi = *known;
      r.roi = kNoValue;
    } else {
      r.roi = c.cast(r.roi, DType::f32);
    }
  }
  const auto entries = [&](ValueId list, const std::vector<double>& known, size_t want, std::string_view what) {
    if (list == kNoValue ? !known.empty() && known.size() != want
                         : c.rank(list) != 1 || differ(c.dim(list, 0), c.expr(static_cast<int64_t>(want)))) {
      c.fail(std::string(what) + " must have " + std::to_string(want) + " entries for " + c.text(x));
    }
  };
  entries(r.scales, r.const_scales, n, "scales");
  entries(r.sizes, {}, r.sizes == kNoValue ? 0 : n, "sizes");
  entries(r.roi, r.const_roi, 2 * n, "roi");
  for (double s : r.const_scales) {
    if (!(s > 0) || std::isinf(s)) c.fail("a scale must be positive");
  }
  if (r.simple_nearest) choose_simple_nearest(c, r);

  const std::vector<Expr> dims = result_dims(c, x, r);
  Shape shape = c.shape(x);
  r.attr.scales.assign(rank, 1);
  if (!r.const_roi.empty()) {
    r.attr.roi.assign(2 * rank, 0);
    std::fill(r.attr.roi.begin() + rank, r.attr.roi.end(), 1);
  }
  for (size_t i = 0; i < n; ++i) {
    const int a = r.axes[i];
    shape[a] = dims[i];
    if (dims[i].is_const() && dims[i].value() < 0) c.fail("a size is negative: " + sym::text(dims[i]));
    r.attr.scales[a] = r.const_scales.empty() ? std::numeric_limits<double>::quiet_NaN() : r.const_scales[i];
    if (r.const_roi.empty()) continue;
    r.attr.roi[a] = r.const_roi[i];
    r.attr.roi[rank + a] = r.const_roi[i + n];
  }
  std::vector<ValueId> operands{x};
  if (r.scales != kNoValue || r.roi != kNoValue) {
    operands.push_back(r.scales == kNoValue ? kNoValue : full_scales(c, r.scales, r, rank));
    if (r.roi != kNoValue) operands.push_back(full_roi(c, r, rank));
  }
  return {c.g.add_given(OpKind::resize, operands, r.attr, Type::make(c.dtype(x), shape))};
}

Request all_axes(const NodeContext& c) {
  Request r;
  r.axes.resize(c.rank(c.input(0)));
  std::iota(r.axes.begin(), r.axes.end(), 0);
  return r;
}

// A list that is there: some exporters write an empty one for "not given".
ValueId list(const NodeContext& c, int i) {
  const ValueId v = c.optional_input(i);
  return v != kNoValue && c.rank(v) == 1 && c.dim(v, 0).is_const(0) ? kNoValue : v;
}

// Upsample, and Resize of opset 10: scales only.
std::vector<ValueId> upsample(NodeContext& c) {
  Request r = all_axes(c);
  const std::string mode = c.attr_choice("mode", "nearest", {"nearest", "linear", "bilinear"});
  r.attr.mode = mode == "nearest" ? "nearest" : "linear";
  r.attr.coordinate = "asymmetric";
  r.attr.nearest = "floor";
  r.simple_nearest = mode == "nearest";
  if (c.opset < 9) {
    r.const_scales = c.attr_floats("scales");
    if (r.const_scales.empty()) c.fail("attribute scales is missing");
  } else {
    r.scales = c.input(1);
  }
  return finish(c, c.input(0), r);
}

std::vector<ValueId> resize(NodeContext& c) {
  const ValueId x = c.input(0);
  Request r = all_axes(c);
  if (c.has("axes") && !c.attr_ints("axes").empty()) r.axes = c.axes(c.attr_ints("axes"), c.rank(x));
  graph::ResizeAttr& a = r.attr;
  a.mode = c.attr_choice("mode", "nearest", {"nearest", "linear", "cubic"});
  a.coordinate = c.attr_choice("coordinate_transformation_mode", "half_pixel",
                               {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
                                "asymmetric", "tf_crop_and_resize", "tf_half_pixel_for_nn"});
  a.nearest =
      c.attr_choice("nearest_mode", "round_prefer_floor", {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"});
  a.cubic_a = c.attr_float("cubic_coeff_a", -0.75);
  a.extrapolation = c.attr_float("extrapolation_value", 0);
  a.exclude_outside = c.attr_bool("exclude_outside", false);
  a.antialias = c.attr_bool("antialias", false);
  if (a.antialias && a.mode == "nearest") c.fail("antialias has no meaning with mode = nearest");
  r.policy = c.attr_choice("keep_aspect_ratio_policy", "stretch", {"stretch", "not_larger", "not_smaller"});
  if (a.coordinate == "tf_crop_and_resize") {
    r.roi = list(c, 1);
    if (r.roi == kNoValue) c.fail("tf_crop_and_resize needs the input roi");
  }
  r.scales = list(c, 2);
  r.sizes = list(c, 3);
  if ((r.scales == kNoValue) == (r.sizes == kNoValue))
    c.fail("exactly one of the inputs scales and sizes must be given");
  if (r.sizes == kNoValue) r.policy = "stretch";
  return finish(c, x, r);
}

constexpr Row kRows[] = {
    {"Upsample", 7, 8, 1, 1, upsample},
    {"Upsample", 9, 9, 2, 2, upsample},
    {"Resize", 10, 10, 2, 2, upsample},
    {"Resize", 11, kMaxOpset, 1, 4, resize},
};

}  // namespace

std::span<const Row> resize_rows() { return kRows; }

}  // namespace tripod::importer
