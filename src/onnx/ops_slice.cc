// Slice, Pad and CenterCropPad: windows onto a tensor, with starts, ends and pads that may be expressions.
#include <algorithm>

#include "onnx/axis_values.h"
#include "onnx/op_importer.h"

namespace tripod::importer {
namespace {

constexpr int64_t kFar = int64_t{1} << 40;  // "to the end"; INT64_MAX itself would overflow in arithmetic

Expr near(NodeContext& c, Expr e) { return e.is_const() ? c.expr(std::clamp(e.value(), -kFar, kFar)) : e; }

// A start or end counted from the end when negative, then clamped to [lo, hi].
Expr clamped(Expr e, Expr dim, Expr lo, Expr hi) {
  const Expr from_end = sym::max(sym::min(e + dim, hi), lo), from_start = sym::max(sym::min(e, hi), lo);
  if (e.is_const()) return e.value() < 0 ? from_end : from_start;
  return sym::select(sym::lt(e, 0), from_end, from_start);
}

struct Window {
  Expr start, size;
};

// Steps forwards stay in [0, dim], steps backwards in [-1, dim - 1].
Window window(NodeContext& c, Expr start, Expr end, Expr dim, Expr step) {
  const auto forwards = [&](Expr by) -> Window {
    const Expr s = clamped(start, dim, c.expr(0), dim), e = clamped(end, dim, c.expr(0), dim);
    return {s, sym::max(sym::ceildiv(e - s, by), 0)};
  };
  const auto backwards = [&](Expr by) -> Window {
    const Expr s = clamped(start, dim, c.expr(0), dim - 1), e = clamped(end, dim, c.expr(-1), dim - 1);
    // With dim 0 the upper bound is -1 and wins nothing: the size is 0.
    return {s, sym::max(sym::min(sym::ceildiv(s - e, by), dim), 0)};
  };
  if (step.is_const()) return step.value() > 0 ? forwards(step) : backwards(c.expr(-step.value()));
  // At run time: never divide by the step of the other sign.
  const Window up = forwards(sym::max(step, 1)), down = backwards(sym::max(-step, 1));
  const Expr is_up = sym::ge(step, 1);
  return {sym::select(is_up, up.start, down.start), sym::select(is_up, up.size, down.size)};
}

std::vector<ValueId> sliced(NodeContext& c, const AxisValues& axes, const std::vector<Expr>& starts,
                            const std::vector<Expr>& ends, const std::vector<Expr>& steps) {
  ValueId x = c.input(0);
  const int rank = c.rank(x);
  graph::SliceAttr a;
  a.starts.assign(rank, c.expr(0));
  a.steps.assign(rank, 1);
  Shape to = c.shape(x);
  struct Stride {  // of an axis whose step only the run knows: gathered by computed indices
    int axis;
    Window window;
    Expr step;
  };
  std::vector<Stride> strides;
  for (int i = 0; i < rank; ++i) {
    if (axes.named(i).is_const(0)) continue;
    const Expr dim = c.dim(x, i), step = steps.empty() ? c.expr(1) : near(c, axes.at(i, steps, c.expr(1)));
    if (step.is_const(0)) c.fail("the step of axis " + std::to_string(i) + " is 0");
    const Window w = window(c, near(c, axes.at(i, starts, c.expr(0))), near(c, axes.at(i, ends, dim)), dim, step);
    if (!step.is_const()) {
      strides.push_back({i, w, step});
      continue;
    }
    to[i] = w.size;
    a.starts[i] = w.start;
    a.steps[i] = step.value();
  }
  if (to != c.shape(x) || std::any_of(a.steps.begin(), a.steps.end(), [](int64_t s) { return s != 1; })) {
    Type t = Type::make(c.dtype(x), std::move(to));
    x = c.g.add_given(OpKind::slice, {x}, std::move(a), std::move(t));
  }
  const auto number = [&](Expr e) { return c.reshape(c.g.add_exprs({e}), {}); };
  for (const Stride& s : strides) {
    const ValueId indices = c.g.add_given(OpKind::iota, {number(s.window.start), number(s.step)}, graph::NoAttr{},
                                          Type::make(DType::i64, {s.window.size}));
    graph::AxisAttr gather;
    gather.axis = s.axis;
    x = c.add(OpKind::gather, {x, indices}, std::move(gather));
  }
  return {x};
}

std::vector<Expr> constants(NodeContext& c, const Ints& values) {
  std::vector<Expr> r;
  for (int64_t v : values) r.push_back(c.expr(v));
  return r;
}

std::vector<ValueId> slice_attributes(NodeContext& c) {  // up to opset 9
  const Ints starts = c.attr_ints("starts"), ends = c.attr_ints("ends");
  const int rank = c.rank(c.input(0));
  const AxisValues axes = c.has("axes") ? AxisValues::given(c, rank, c.attr_ints("axes"))
                                        : AxisValues::leading(c, rank, static_cast<int>(starts.size()));
  if (static_cast<int>(starts.size()) != axes.count() || ends.size() != starts.size())
    c.fail("starts, ends and axes must have one length");
  return sliced(c, axes, constants(c, starts), constants(c, ends), {});
}

std::vector<ValueId> slice(NodeContext& c) {
  const int rank = c.rank(c.input(0));
  const Shape s = c.shape(c.input(1));
  if (s.size() > 1 || (s.size() == 1 && (!s[0].is_const() || s[0].value() > rank)))
    c.fail("the number of starts must be known and at most " + std::to_string(rank) + ", they are " +
           c.text(c.input(1)));
  const int count = s.empty() ? 1 : static_cast<int>(s[0].value());
  const AxisValues axes = c.has_input(3) ? AxisValues::read(c, rank, c.input(3)) : AxisValues::leading(c, rank, count);
  if (axes.count() != count) c.fail("starts, ends and axes must have one length");
  const std::vector<Expr> starts = one_each(c, 1, count, c.kAnyRange, "starts");
  const std::vector<Expr> ends = one_each(c, 2, count, c.kAnyRange, "ends");
  std::vector<Expr> steps;
  if (c.has_input(4)) steps = one_each(c, 4, count, c.kAnyRange, "steps");
  return sliced(c, axes, starts, ends, steps);
}

// --- pad ----------------------------------------------------------------------------------------------------------

// begin and end may be negative: that part is cut off first.
ValueId padded(NodeContext& c, ValueId x, const std::vector<Expr>& begin, const std::vector<Expr>& end,
               graph::PadAttr::Mode mode, ValueId fill) {
  graph::PadAttr pad;
  graph::SliceAttr cut;
  Shape left = c.shape(x);
  bool pads = false, cuts = false;
  for (int i = 0; i < c.rank(x); ++i) {
    pad.begin.push_back(sym::max(begin[i], 0));
    pad.end.push_back(sym::max(end[i], 0));
    cut.starts.push_back(sym::max(-begin[i], 0));
    cut.steps.push_back(1);
    const Expr gone = cut.starts.back() + sym::max(-end[i], 0);
    if (!gone.is_const(0)) {
      graph::require(c.g, sym::le(gone, left[i]), "negative pads cut off more than dim " + std::to_string(i) + " has");
      left[i] = sym::max(left[i] - gone, 0);
    }
    pads |= !pad.begin.back().is_const(0) || !pad.end.back().is_const(0);
    cuts |= !gone.is_const(0);
  }
  if (cuts) {
    Type t = Type::make(c.dtype(x), std::move(left));
    x = c.g.add_given(OpKind::slice, {x}, std::move(cut), std::move(t));
  }
  if (!pads) return x;
  pad.mode = mode;
  return c.add(OpKind::pad, fill == kNoValue ? std::vector{x} : std::vector{x, fill}, std::move(pad));
}

graph::PadAttr::Mode pad_mode(NodeContext& c) {
  const std::string mode = c.opset < 19 ? c.attr_choice("mode", "constant", {"constant", "reflect", "edge"})
                                        : c.attr_choice("mode", "constant", {"constant", "reflect", "edge", "wrap"});
  if (mode == "reflect") return graph::PadAttr::reflect;
  if (mode == "edge") return graph::PadAttr::edge;
  if (mode == "wrap") return graph::PadAttr::wrap;
  return graph::PadAttr::constant;
}

std::vector<ValueId> pad_by(NodeContext& c, const AxisValues& axes, const std::vector<Expr>& pads, ValueId fill) {
  const int rank = c.rank(c.input(0));
  const size_t n = static_cast<size_t>(axes.count());
  if (pads.size() != 2 * n)
    c.fail("pads has " + std::to_string(pads.size()) + " elements, " + std::to_string(2 * n) + " are needed");
  const std::vector<Expr> begin(pads.begin(), pads.begin() + axes.count()),
      end(pads.begin() + axes.count(), pads.end());
  std::vector<Expr> b, e;
  for (int i = 0; i < rank; ++i) {
    b.push_back(axes.at(i, begin, c.expr(0)));
    e.push_back(axes.at(i, end, c.expr(0)));
  }
  return {padded(c, c.input(0), b, e, pad_mode(c), fill)};
}

std::vector<ValueId> pad_attributes(NodeContext& c) {  // up to opset 10
  const double value = c.attr_float("value", 0);
  const ValueId fill = value == 0 ? kNoValue : c.scalar_of(c.input(0), value);
  const int rank = c.rank(c.input(0));
  return pad_by(c, AxisValues::leading(c, rank, rank), constants(c, c.attr_ints("pads")), fill);
}

std::vector<ValueId> pad(NodeContext& c) {
  const int rank = c.rank(c.input(0));
  ValueId fill = kNoValue;
  if (c.has_input(2)) {
    c.need_same_dtype(0, 2);
    fill = c.reshape(c.input(2), {});
  }
  const AxisValues axes = c.has_input(3) ? AxisValues::read(c, rank, c.input(3)) : AxisValues::leading(c, rank, rank);
  return pad_by(c, axes, c.dims(c.input(1), {-c.kDimRange.hi, c.kDimRange.hi}), fill);
}

// --- center crop and pad ------------------------------------------------------------------------------------------

std::vector<ValueId> center_crop_pad(NodeContext& c) {
  const ValueId x = c.input(0);
  const int rank = c.rank(x);
  const AxisValues axes =
      c.has("axes") ? AxisValues::given(c, rank, c.attr_ints("axes")) : AxisValues::leading(c, rank, rank);
  const std::vector<Expr> wanted = one_each(c, 1, axes.count(), c.kDimRange, "shape");
  std::vector<Expr> begin, end;
  for (int i = 0; i < rank; ++i) {
    // More in front rounds down, and so does what is cut off: towards zero for both signs.
    const Expr more = axes.at(i, wanted, c.dim(x, i)) - c.dim(x, i);
    begin.push_back(sym::floordiv(sym::max(more, 0), 2) - sym::floordiv(sym::max(-more, 0), 2));
    end.push_back(more - begin.back());
  }
  return {padded(c, x, begin, end, graph::PadAttr::constant, kNoValue)};
}

// clang-format off
const Row kRows[] = {
    {"Slice", 6, 9, 1, 1, slice_attributes},
    {"Slice", 10, kMaxOpset, 3, 5, slice},
    {"Pad", 6, 10, 1, 1, pad_attributes},
    {"Pad", 11, 17, 2, 3, pad},
    {"Pad", 18, kMaxOpset, 2, 4, pad},
    {"CenterCropPad", 18, kMaxOpset, 2, 2, center_crop_pad},
};
// clang-format on

}  // namespace

std::span<const Row> slice_rows() { return kRows; }

}  // namespace tripod::importer
