// Resize: every mode, coordinate transform and option of ONNX.
//
// An element o of an axis of the result looks at the position x(o) in the operand. Nearest takes one element near it,
// in one block over all axes. The other modes weigh the taps around floor(x(o)); they work axis by axis (last axis
// first), each a block of its own over an intermediate.
//
// Positions are exact where that is possible: with scale = p / q (from the dims, or the fraction that a constant scale
// stands for) x(o) is a quotient of integers N(o) / D, its floor is floordiv(N, D) and its fraction mod(N, D) / D.
// Scales that only the run knows, and regions of tf_crop_and_resize, are computed in floats. Positions and weights go
// into tables of one entry an element of the axis (and tap), so that the big blocks load them; only for whole scales
// the index is worked out in place, where it needs no load that depends on a load.
#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <utility>

#include "lower/ops.h"
#include "lower/parts.h"

namespace tripod::lower {

using graph::ResizeAttr;
using graph::ValueId;

namespace {

// scale = p / q
struct Fraction {
  int64_t p, q;
};

// The least fraction that is `scale` once rounded to f32: what the exporter meant by 0.33333334. Nothing where only
// large numbers will do.
std::optional<Fraction> as_fraction(double scale) {
  double rest = scale;
  int64_t p0 = 0, q0 = 1, p1 = 1, q1 = 0;
  for (int i = 0; i < 24; ++i) {
    const double whole = std::floor(rest);
    if (whole > 1e6) break;
    const int64_t a = static_cast<int64_t>(whole);
    const int64_t p = a * p1 + p0, q = a * q1 + q0;
    if (p > 1'000'000 || q > 1'000'000) break;
    p0 = std::exchange(p1, p);
    q0 = std::exchange(q1, q);
    if (static_cast<float>(static_cast<double>(p1) / static_cast<double>(q1)) == static_cast<float>(scale))
      return Fraction{p1, q1};
    rest = 1.0 / (rest - whole);
  }
  return std::nullopt;
}

// An index into the operand for each element of an axis of the result: worked out in place, or from a table.
struct Position {
  std::function<Index(Index)> in_place;
  Buffer table;
  Index limit = {};  // the entries of the table are in [0, limit), where that is given

  Expr value(Index o) const { return table ? loop::load(table, {o}) : loop::from_index(DType::i64, in_place(o)); }
  // Binds the index for `body`.
  loop::Stmt with(Index o, const std::function<loop::Stmt(Index)>& body) const {
    if (!table) return body(in_place(o));
    sym::Context& c = o.context();
    if (!limit) {
      const Index at = c.var("at");
      return loop::let(at, loop::load(table, {o}), body(at));
    }
    const int64_t most = sym::bounds(limit).hi;
    const Index at = c.var("at", {0, most == sym::Range::kMax ? most : std::max<int64_t>(most - 1, 0)});
    c.assume_below(at, limit);
    return loop::let(at, loop::load(table, {o}), body(at));
  }
};

// One axis that changes.
class Axis {
 public:
  Axis(Lowering& lowering, const graph::Node& node, size_t dim, DType weights)
      : l(lowering), n(node), a(std::get<ResizeAttr>(node.attr)), dim(dim), t(weights),
        in(l.type(n.operands[0]).shape[dim]), out(l.type(n.results[0]).shape[dim]) {
    given_scale_ = a.scales.size() > dim && !std::isnan(a.scales[dim]);
    runtime_scale_ = !given_scale_ && given(n, 1);
    crop_ = a.coordinate == "tf_crop_and_resize";
    if (crop_ || runtime_scale_) return;
    if (!given_scale_) {
      p_ = out, q_ = in;
      const bool whole = in.is_const() && out.is_const() && in.value() > 0;
      whole_ = whole && out.value() > 0 && (out.value() % in.value() == 0 || in.value() % out.value() == 0);
    } else if (const auto f = as_fraction(a.scales[dim])) {
      p_ = constant(f->p), q_ = constant(f->q);
      whole_ = f->p == 1 || f->q == 1;
    }
    if (p_) set_quotient();
  }

  // The element moves to itself.
  bool is_identity() const {
    if (!(in == out)) return false;
    if (given_scale_) return a.scales[dim] == 1 && (!crop_ || given(n, 2) || whole_region());
    return !runtime_scale_ && (!crop_ || (!given(n, 2) && whole_region()));
  }

  Index constant(int64_t v) const { return l.sym().constant(v); }

  // floor(x(o)), not clamped.
  Position base() {
    if (exact() && whole_) return {[this](Index o) { return sym::floordiv(numerator(o), denominator_); }, nullptr, {}};
    return {nullptr, table("base", DType::i64, [this](Index o) {
              return exact() ? loop::from_index(DType::i64, sym::floordiv(numerator(o), denominator_))
                             : to_index(unary(loop::Op::floor, position(o, t)));
            }), {}};
  }

  // The fraction of x(o).
  Expr fraction(Index o) {
    if (exact())
      return loop::from_index(t, sym::mod(numerator(o), denominator_)) / loop::from_index(t, denominator_);
    const Expr x = position(o, t);
    return x - unary(loop::Op::floor, x);
  }

  // The element that mode = nearest takes. Halves are ties.
  Position nearest() {
    const std::string& mode = a.nearest;
    const auto quotient = [this, mode](Index o) {
      const Index num = numerator(o), den = denominator_;
      const Index i = mode == "floor"               ? sym::floordiv(num, den)
                      : mode == "ceil"              ? sym::ceildiv(num, den)
                      : mode == "round_prefer_ceil" ? sym::floordiv(num * 2 + den, den * 2)
                                                    : sym::ceildiv(num * 2 - den, den * 2);
      return clamped(i);
    };
    if (exact() && whole_) return {quotient, nullptr, {}};
    return {nullptr, table("index", DType::i64, [&](Index o) {
              if (exact()) return loop::from_index(DType::i64, quotient(o));
              const Expr x = position(o, DType::f32), half = loop::constant(DType::f32, 0.5);
              Expr i = mode == "floor"               ? unary(loop::Op::floor, x)
                       : mode == "ceil"              ? unary(loop::Op::ceil, x)
                       : mode == "round_prefer_ceil" ? unary(loop::Op::floor, x + half)
                                                     : unary(loop::Op::ceil, x - half);
              i = loop::min(to_index(i), loop::from_index(DType::i64, in - 1));
              return loop::max(i, loop::constant_int(DType::i64, 0));
            }), in};
  }

  Index clamped(Index i) const { return sym::max(sym::min(i, in - 1), 0); }

  // A buffer of one entry an element of this axis of the result.
  Buffer table(const char* what, DType type, const std::function<Expr(Index)>& f) {
    const std::string name = what + std::to_string(dim);
    const Buffer b = l.temporary(name, type, {out});
    l.map(b, l.block_name() + "_" + name, [&](const Indices& at) { return f(at[0]); });
    return b;
  }

  // x(o) leaves the operand, which only the crop asks; null when it cannot.
  Buffer outside() {
    if (!crop_) return nullptr;
    return table("outside", DType::b1, [this](Index o) {
      const Expr x = position(o, t);
      return either(loop::lt(x, loop::constant(t, 0)), loop::lt(loop::from_index(t, in - 1), x));
    });
  }

  // min(scale, 1): by how much antialiasing stretches the filter.
  Expr shrink() const {
    const Expr one = loop::constant(t, 1);
    return loop::min(one, scale(t));
  }

  // How far the filter reaches in front of floor(x) and how many taps that makes: support / min(scale, 1) to both
  // sides. Where the scale is not the dims' quotient, out = round(in * scale) at least bounds it.
  void reach(int64_t support, Index& first, Index& taps) const {
    Index reach;
    if (given_scale_)
      reach = constant(static_cast<int64_t>(std::ceil(static_cast<double>(support) / std::min(1.0, a.scales[dim]))));
    else if (runtime_scale_)
      reach = sym::max(sym::ceildiv(in * (2 * support), sym::max(out * 2 - 1, 1)), support);
    else
      reach = sym::max(sym::ceildiv(in * support, sym::max(out, 1)), support);
    first = 1 - reach;
    taps = reach * 2;
  }

  Lowering& l;
  const graph::Node& n;
  const ResizeAttr& a;
  const size_t dim;
  const DType t;  // of weights and float positions
  const Index in, out;

 private:
  bool exact() const { return static_cast<bool>(denominator_); }

  bool whole_region() const {
    const size_t rank = l.type(n.operands[0]).shape.size();
    return a.roi.size() != 2 * rank || (a.roi[dim] == 0 && a.roi[dim + rank] == 1);
  }

  // x(o) = (slope * o + offset) / denominator
  void set_quotient() {
    const std::string& c = a.coordinate;
    if (c == "asymmetric") {
      slope_ = q_, offset_ = constant(0), denominator_ = p_;
    } else if (c == "align_corners") {
      // A constant scale gives the length before it is cut to a whole number: in * p / q.
      const Index length = given_scale_ ? in * p_ : out, unit = given_scale_ ? q_ : constant(1);
      slope_ = (in - 1) * unit, offset_ = constant(0), denominator_ = length - unit;
    } else if (c == "tf_half_pixel_for_nn") {
      // An axis that keeps its size keeps its elements (as in ONNX Runtime), though the formula adds a half.
      slope_ = q_ * 2, offset_ = sym::select(sym::eq(p_, q_), constant(0), q_), denominator_ = p_ * 2;
    } else {
      slope_ = q_ * 2, offset_ = q_ - p_, denominator_ = p_ * 2;
      // The centre of the result is that of the operand also where the length was cut.
      if (c == "half_pixel_symmetric" && given_scale_) offset_ = offset_ + in * p_ - out * q_;
      if (c == "pytorch_half_pixel") {
        slope_ = sym::select(sym::lt(constant(1), out), slope_, constant(0));
        offset_ = sym::select(sym::lt(constant(1), out), offset_, constant(0));
      }
    }
    // Of one element the position is 0 / 0 with align_corners, and an empty axis has none.
    denominator_ = sym::max(denominator_, 1);
  }
  Index numerator(Index o) const { return slope_ * o + offset_; }

  Expr scale(DType f) const {
    if (given_scale_) return loop::constant(f, a.scales[dim]);
    if (runtime_scale_) return loop::cast(l.load(n.operands[1], {constant(static_cast<int64_t>(dim))}), f);
    return loop::from_index(f, out) / loop::from_index(f, in);
  }

  // x(o) in floats.
  Expr position(Index o, DType f) const {
    const auto num = [&](Index i) { return loop::from_index(f, i); };
    const Expr half = loop::constant(f, 0.5), zero = loop::constant(f, 0);
    const std::string& c = a.coordinate;
    if (crop_) return crop_position(o, f);
    if (c == "asymmetric") return num(o) / scale(f);
    if (c == "align_corners") {
      const Expr length = num(in) * scale(f) - loop::constant(f, 1);
      return loop::select(loop::le(length, zero), zero, num(o) * num(in - 1) / length);
    }
    Expr x = (num(o) + half) / scale(f);
    if (c == "tf_half_pixel_for_nn") return loop::select(loop::eq(scale(f), loop::constant(f, 1)), num(o), x);
    x = x - half;
    if (c == "pytorch_half_pixel") return loop::select(holds(sym::lt(constant(1), out)), x, zero);
    if (c == "half_pixel_symmetric") {  // one quotient: rounded once, so that whole positions stay whole
      const Expr s = scale(f), cut = num(in) * s - num(out);
      return (cut + num(o * 2 + 1) - s) / (s + s);
    }
    return x;
  }

  // From start * (in - 1) to end * (in - 1); the ends of the region are met exactly.
  Expr crop_position(Index o, DType f) const {
    const size_t rank = l.type(n.operands[0]).shape.size();
    const auto region = [&](size_t i) {
      if (given(n, 2)) return loop::cast(l.load(n.operands[2], {constant(static_cast<int64_t>(i))}), f);
      return loop::constant(f, a.roi.size() == 2 * rank ? a.roi[i] : i < rank ? 0 : 1);
    };
    const Expr start = region(dim), end = region(dim + rank), last = loop::from_index(f, in - 1);
    const Expr one = loop::constant(f, 0.5) * (start + end) * last;
    const Expr many = (start * loop::from_index(f, out - 1 - o) + end * loop::from_index(f, o)) /
                      loop::from_index(f, sym::max(out - 1, 1)) * last;
    return loop::select(holds(sym::lt(constant(1), out)), many, one);
  }

  // Positions that are no number, or beyond what an index may be, go to the ends.
  static Expr to_index(Expr x) {
    const Expr far = loop::constant(x->dtype, 1e9);
    x = loop::select(is_nan(x), loop::constant(x->dtype, 0), x);
    return loop::cast(loop::max(-far, loop::min(far, x)), DType::i64);
  }

  bool given_scale_ = false, runtime_scale_ = false, crop_ = false;
  bool whole_ = false;     // the scale or its inverse is a whole number
  Index p_, q_;            // scale = p / q
  Index slope_, offset_, denominator_;
};

// The weight of an element at distance x from the position, in units of the (stretched) filter.
Expr filter(const ResizeAttr& a, const Expr& distance) {
  const auto num = [&](double v) { return loop::constant(distance->dtype, v); };
  const Expr x = unary(loop::Op::abs, distance);
  if (a.mode == "linear") return loop::max(num(0), num(1) - x);
  const double c = a.cubic_a;
  const Expr near = ((num(c + 2) * x - num(c + 3)) * x) * x + num(1);
  const Expr far = ((num(c) * x - num(5 * c)) * x + num(8 * c)) * x - num(4 * c);
  return loop::select(loop::le(x, num(1)), near, loop::select(loop::lt(x, num(2)), far, num(0)));
}

// The taps of an axis: elements base + first + k with weight(o, k), k < taps.
struct Taps {
  Position base;
  Index first, count;
  std::function<Expr(Index o, Index k)> weight;
};

// Linear without antialiasing needs no table of weights: the fraction says both. (Leaving out what is outside gives
// its weight to the edge, as clamping does.)
Taps linear_taps(Axis& axis) {
  Taps r{axis.base(), axis.constant(0), axis.constant(2), nullptr};
  const Buffer fraction =
      r.base.table ? axis.table("fraction", axis.t, [&](Index o) { return axis.fraction(o); }) : nullptr;
  r.weight = [&axis, fraction](Index o, Index k) {
    const Expr f = fraction ? loop::load(fraction, {o}) : axis.fraction(o);
    return k.is_const(1) ? f : loop::constant(axis.t, 1) - f;
  };
  return r;
}

Taps weighed_taps(Axis& axis) {
  Lowering& l = axis.l;
  const ResizeAttr& a = axis.a;
  const DType t = axis.t;
  const int64_t support = a.mode == "linear" ? 1 : 2;
  Taps r{axis.base(), axis.constant(1 - support), axis.constant(2 * support), nullptr};
  if (a.antialias) axis.reach(support, r.first, r.count);
  const std::string suffix = std::to_string(axis.dim), name = l.block_name() + "_weight" + suffix;
  const Buffer raw = l.temporary("raw" + suffix, t, {axis.out, r.count});
  l.map(raw, name, [&](const Indices& at) {
    const Index tap = r.first + at[1];
    Expr distance = loop::from_index(t, tap) - axis.fraction(at[0]);
    if (a.antialias) distance = distance * axis.shrink();
    const Expr w = filter(a, distance);
    if (!a.exclude_outside) return w;
    const Expr i = r.base.value(at[0]) + loop::from_index(DType::i64, tap);
    const Expr outside = either(loop::lt(i, loop::constant_int(DType::i64, 0)),
                                loop::le(loop::from_index(DType::i64, axis.in), i));
    return loop::select(outside, loop::constant(t, 0), w);
  });
  Buffer weights = raw;
  if (a.antialias || a.exclude_outside) {
    const Buffer total = l.temporary("total" + suffix, t, {axis.out});
    weights = l.temporary("weights" + suffix, t, raw->shape);
    std::vector<Iter> is = l.iters({axis.out});
    const Index o = is[0].var;
    is.push_back(l.reduce(r.count));
    sum_block(l, name + "_total", is, total, {o}, loop::load(raw, {o, is[1].var}));
    l.map(weights, name + "_normal",
          [&](const Indices& at) { return loop::load(raw, at) / loop::load(total, {at[0]}); });
  }
  r.weight = [weights](Index o, Index k) { return loop::load(weights, {o, k}); };
  return r;
}

// One axis: to[.., o, ..] = sum over k of weight(o, k) * from[.., base(o) + first + k, ..].
void pass(Lowering& l, Axis& axis, const std::function<Expr(const Indices&)>& from, const Buffer& to) {
  const ResizeAttr& a = axis.a;
  const Taps taps = a.mode == "linear" && !a.antialias ? linear_taps(axis) : weighed_taps(axis);
  std::vector<Iter> is = l.iters(to->shape);
  const Indices at = Lowering::vars(is);
  const Index o = at[axis.dim];
  const auto element = [&](Index base, Index k) {
    Indices i = at;
    i[axis.dim] = axis.clamped(base + taps.first + k);
    return from(i);
  };
  const std::string name = l.block_name() + "_axis" + std::to_string(axis.dim);
  if (!a.antialias) {  // two or four taps
    const auto sum = [&](Index base) {
      Expr v;
      for (int64_t k = 0; k < taps.count.value(); ++k) {
        const Expr w = taps.weight(o, axis.constant(k)), x = element(base, axis.constant(k));
        v = v ? loop::fma(x, w, v) : x * w;
      }
      return l.store(to, at, v);
    };
    return l.block(name, is, taps.base.with(o, sum));
  }
  const Iter k = l.reduce(taps.count);
  is.push_back(k);
  l.block(name, is, taps.base.with(o, [&](Index base) {
    return loop::store(to, at, loop::fma(element(base, k.var), taps.weight(o, k.var), loop::load(to, at)));
  }), loop::store(to, at, loop::constant(to->dtype, 0)));
}

// Floats to the result's type: the small integers saturate (cubic overshoots) and all truncate.
Expr result_value(Expr v, DType to) {
  if (is_float(to) || info(to).bits > 16) return v;
  const double low = is_signed(to) ? -std::ldexp(1.0, info(to).bits - 1) : 0;
  const double high = std::ldexp(1.0, info(to).bits - (is_signed(to) ? 1 : 0)) - 1;
  return loop::max(loop::constant(v->dtype, low), loop::min(loop::constant(v->dtype, high), v));
}

// `v`, or the extrapolation value where the region leaves the operand on any axis.
Expr or_extrapolated(const std::vector<std::pair<size_t, Buffer>>& outside, const Indices& at, double extrapolation, Expr v) {
  Expr any;
  for (const auto& [dim, table] : outside) {
    const Expr here = loop::load(table, {at[dim]});
    any = any ? either(any, here) : here;
  }
  return any ? loop::select(any, loop::constant(v->dtype, extrapolation), v) : v;
}

}  // namespace

void lower_resize(Lowering& l, const graph::Node& n) {
  const ResizeAttr& a = std::get<ResizeAttr>(n.attr);
  const ValueId x = n.operands[0], y = n.results[0];
  const DType result = l.type(y).dtype;
  const bool nearest = a.mode == "nearest";
  const DType t = is_float(result) ? compute_type(result) : DType::f32;
  std::deque<Axis> axes;
  std::vector<std::pair<size_t, Buffer>> outside;
  for (size_t d = 0; d < l.type(x).shape.size(); ++d) {
    axes.emplace_back(l, n, d, t);
    if (axes.back().is_identity())
      axes.pop_back();
    else if (const Buffer b = axes.back().outside())
      outside.emplace_back(d, b);
  }

  if (nearest || axes.empty()) {
    std::vector<Position> positions;
    for (Axis& axis : axes) positions.push_back(axis.nearest());
    const std::vector<Iter> is = l.iters(l.type(y).shape);
    const Indices at = Lowering::vars(is);
    Indices from = at;
    const std::function<loop::Stmt(size_t)> next = [&](size_t i) {
      if (i == axes.size()) return l.store(y, at, or_extrapolated(outside, at, a.extrapolation, l.load(x, from)));
      return positions[i].with(at[axes[i].dim], [&](Index index) {
        from[axes[i].dim] = index;
        return next(i + 1);
      });
    };
    return l.block(l.block_name(), is, next(0));
  }

  // The last pass writes the result itself where nothing is left to do.
  const bool direct = outside.empty() && l.buffer(y)->dtype == t;
  Indices shape = l.type(x).shape;
  std::function<Expr(const Indices&)> from = [&](const Indices& at) { return loop::cast(l.load(x, at), t); };
  for (size_t i = axes.size(); i-- > 0;) {
    shape[axes[i].dim] = axes[i].out;
    const Buffer to = i == 0 && direct ? l.buffer(y) : l.temporary("axis" + std::to_string(axes[i].dim), t, shape);
    pass(l, axes[i], from, to);
    from = [to](const Indices& at) { return loop::load(to, at); };
  }
  if (direct) return;
  l.map(y, l.block_name(), [&](const Indices& at) {
    return result_value(or_extrapolated(outside, at, a.extrapolation, from(at)), result);
  });
}

}  // namespace tripod::lower
