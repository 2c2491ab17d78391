// Windows without weights: max, average and Lp pools, and local response normalisation. The window is reduce
// iterators; what lies over the padding is a guarded load.
#include <cmath>

#include "lower/ops.h"
#include "lower/parts.h"

namespace tripod::lower {

using graph::PoolAttr;
using graph::Shape;
using graph::ValueId;

namespace {

struct PoolIters {
  std::vector<Iter> all;  // the result's, then the window's
  Indices to, from;       // indices into the result and the input
  Index inside;           // the input index is in bounds
};

PoolIters pool_iters(Lowering& l, const PoolAttr& a, const Shape& x, const Shape& y) {
  PoolIters r;
  r.all = l.iters(y);
  r.to = Lowering::vars(r.all);
  r.from = {r.to[0], r.to[1]};
  r.inside = l.sym().constant(1);
  for (size_t d = 0; d < a.kernel.size(); ++d) {
    const Iter k = l.reduce(l.sym().constant(a.kernel[d]), "r");
    r.all.push_back(k);
    const Index i = r.to[2 + d] * a.strides[d] + k.var * a.dilations[d] - a.pads_begin[d];
    if (a.pads_begin[d] != 0) r.inside = sym::logical_and(r.inside, sym::le(zero(l), i));
    // Without padding behind, the last window ends in the input: (y - 1) * stride + extent <= x + pads_begin.
    if (a.pads_end[d] != 0 || a.ceil_mode) r.inside = sym::logical_and(r.inside, sym::lt(i, x[2 + d]));
    r.from.push_back(i);
  }
  return r;
}

// An element under the window in compute type, `other` over the padding.
Expr element(Lowering& l, ValueId x, const PoolIters& r, double other) {
  const Buffer b = l.buffer(x);
  return loop::cast(loop::load_guarded(b, r.from, r.inside, loop::constant(b->dtype, other)), compute_type(b->dtype));
}

double lowest(DType t) {
  if (is_float(t)) return -kInfinity;
  return is_signed(t) ? -std::ldexp(1.0, info(t).bits - 1) : 0;
}

// The position of an element in the whole input as ONNX's Indices count it: row-major, or within one image with the
// first spatial dim running fastest.
Index flat_index(Lowering& l, const Indices& at, const Shape& x, bool column_major) {
  Index image = at[0] * x[1] + at[1], size = l.sym().constant(1), within = zero(l);
  for (size_t d = 2; d < x.size(); ++d) size = size * x[d];
  if (column_major)
    for (size_t d = x.size(); d-- > 2;) within = within * x[d] + at[d];
  else
    for (size_t d = 2; d < x.size(); ++d) within = within * x[d] + at[d];
  return image * size + within;
}

// The best value and its index side by side; the first of equal elements, NaN above all. -1: no element seen.
void max_pool_with_indices(Lowering& l, const graph::Node& n, const PoolIters& r) {
  const PoolAttr& a = std::get<PoolAttr>(n.attr);
  const ValueId x = n.operands[0], y = n.results[0];
  const DType t = compute_type(l.type(x).dtype);
  const bool direct = l.buffer(y)->dtype == t;
  const Buffer best = direct ? l.buffer(y) : l.temporary("best", t, l.type(y).shape);
  const Buffer index = l.buffer(n.results[1]);
  const Expr value = element(l, x, r, lowest(t));
  const Expr old = loop::load(best, r.to), old_index = loop::load(index, r.to);
  Expr better = loop::lt(old, value);
  if (is_float(t)) better = either(both(better, negate(is_nan(old))), both(is_nan(value), negate(is_nan(old))));
  better = either(better, loop::lt(old_index, loop::constant_int(DType::i64, 0)));
  better = both(better, holds(r.inside));
  const Expr here = loop::from_index(DType::i64, flat_index(l, r.from, l.type(x).shape, a.column_major_indices));
  // The value stays what it was where the element is no better, so both stores are unconditional.
  const loop::Stmt update = loop::seq({loop::store(index, r.to, loop::select(better, here, old_index)),
                                       loop::store(best, r.to, loop::select(better, value, old))});
  const loop::Stmt init = loop::seq({loop::store(index, r.to, loop::constant_int(DType::i64, -1)),
                                     loop::store(best, r.to, loop::constant(t, lowest(t)))});
  l.block(l.block_name(), r.all, update, init);
  if (!direct) l.map(y, l.block_name() + "_result", [&](const Indices& at) { return loop::load(best, at); });
}

// How many taps of the window at `o` count in dim d: those with least <= tap < limit, in closed form.
Index taps(const PoolAttr& a, size_t d, Index o, Index least, Index limit) {
  const Index start = o * a.strides[d] - a.pads_begin[d];
  const Index first = sym::max(sym::ceildiv(least - start, a.dilations[d]), 0);
  const Index last = sym::min(sym::ceildiv(limit - start, a.dilations[d]), a.kernel[d]);
  return sym::max(last - first, 0);
}

}  // namespace

void lower_max_pool(Lowering& l, const graph::Node& n) {
  const ValueId x = n.operands[0], y = n.results[0];
  const DType t = compute_type(l.type(x).dtype);
  const PoolIters r = pool_iters(l, std::get<PoolAttr>(n.attr), l.type(x).shape, l.type(y).shape);
  if (wanted(l, n.results[1])) return max_pool_with_indices(l, n, r);
  const bool direct = l.buffer(y)->dtype == t;
  const Buffer acc = direct ? l.buffer(y) : l.temporary("acc", t, l.type(y).shape);
  l.block(l.block_name(), r.all,
          loop::store(acc, r.to, loop::max(loop::load(acc, r.to), element(l, x, r, lowest(t)))),
          loop::store(acc, r.to, loop::constant(t, lowest(t))));
  if (!direct) l.map(y, l.block_name() + "_result", [&](const Indices& at) { return loop::load(acc, at); });
}

void lower_average_pool(Lowering& l, const graph::Node& n) {
  const PoolAttr& a = std::get<PoolAttr>(n.attr);
  const ValueId x = n.operands[0], y = n.results[0];
  const Shape& shape = l.type(x).shape;
  const DType t = compute_type(l.type(x).dtype);
  const PoolIters r = pool_iters(l, a, shape, l.type(y).shape);
  const Buffer sum = l.temporary("sum", t, l.type(y).shape);
  sum_block(l, l.block_name(), r.all, sum, r.to, element(l, x, r, 0));
  l.map(y, l.block_name() + "_result", [&](const Indices& at) {
    Index count = l.sym().constant(1);
    for (size_t d = 0; d < a.kernel.size(); ++d) {
      // Padding that counts does so only as far as it was asked for: ceil_mode's windows may reach beyond.
      const int64_t begin = a.count_include_pad ? a.pads_begin[d] : 0, end = a.count_include_pad ? a.pads_end[d] : 0;
      const bool all_count = !a.ceil_mode && (a.count_include_pad || (a.pads_begin[d] == 0 && a.pads_end[d] == 0));
      count = count * (all_count ? l.sym().constant(a.kernel[d])
                                 : taps(a, d, at[2 + d], l.sym().constant(-begin), shape[2 + d] + end));
    }
    return loop::load(sum, at) / loop::from_index(t, sym::max(count, 1));
  });
}

void lower_lp_pool(Lowering& l, const graph::Node& n) {
  const PoolAttr& a = std::get<PoolAttr>(n.attr);
  const ValueId x = n.operands[0], y = n.results[0];
  const DType t = compute_type(l.type(x).dtype);
  const PoolIters r = pool_iters(l, a, l.type(x).shape, l.type(y).shape);
  const Buffer sum = l.temporary("sum", t, l.type(y).shape);
  const Expr v = element(l, x, r, 0), p = loop::constant(t, static_cast<double>(a.p));
  if (a.p == 2)
    sum_of_products_block(l, l.block_name(), r.all, sum, r.to, v, v);
  else
    sum_block(l, l.block_name(), r.all, sum, r.to,
              a.p == 1 ? unary(loop::Op::abs, v) : loop::make(loop::Op::pow, {unary(loop::Op::abs, v), p}));
  l.map(y, l.block_name() + "_result", [&](const Indices& at) {
    const Expr s = loop::load(sum, at);
    if (a.p == 1) return s;
    if (a.p == 2) return unary(loop::Op::sqrt, s);
    return loop::make(loop::Op::pow, {s, loop::constant(t, 1.0 / static_cast<double>(a.p))});
  });
}

// y = x / (bias + alpha / size * sum of squares over `size` channels around)^beta
void lower_lrn(Lowering& l, const graph::Node& n) {
  const graph::ScalarAttr& a = std::get<graph::ScalarAttr>(n.attr);
  const ValueId x = n.operands[0], y = n.results[0];
  const Shape& shape = l.type(x).shape;
  const DType t = compute_type(l.type(x).dtype);
  std::vector<Iter> is = l.iters(shape);
  const Indices to = Lowering::vars(is);
  const Iter k = l.reduce(l.sym().constant(a.axis), "r");
  is.push_back(k);
  PoolIters r;
  r.from = to;
  r.from[1] = to[1] + k.var - (a.axis - 1) / 2;
  r.inside = sym::logical_and(sym::le(zero(l), r.from[1]), sym::lt(r.from[1], shape[1]));
  const Expr v = element(l, x, r, 0);
  const Buffer sum = l.temporary("sum", t, shape);
  sum_of_products_block(l, l.block_name(), is, sum, to, v, v);
  l.map(y, l.block_name() + "_result", [&](const Indices& at) {
    const Expr base = loop::fma(loop::load(sum, at), loop::constant(t, a.a / a.axis), loop::constant(t, a.c));
    // Nearly every model has beta = 3/4: two square roots are cheaper than a power.
    const Expr root = unary(loop::Op::sqrt, base);
    const Expr scale = a.b == 0.75 ? root * unary(loop::Op::sqrt, root)
                                   : loop::make(loop::Op::pow, {base, loop::constant(t, a.b)});
    return l.load(x, at) / scale;
  });
}

}  // namespace tripod::lower
