// Sums of products: matmul, conv and their integer forms. One reduction block each; a bias is a block of its own, so
// that it is part of the epilogue.
#include "lower/ops.h"

namespace tripod::lower {

using graph::ConvAttr;
using graph::kNoValue;
using graph::ValueId;

// acc[at] += a * b as an explicit fma on floats.
static void contraction_block(Lowering& l, const Buffer& acc, std::vector<Iter> is, const Indices& to, Expr a, Expr b) {
  const DType t = acc->dtype;
  const Expr sum = loop::load(acc, to);
  const Expr next = is_float(t) ? loop::fma(loop::cast(a, t), loop::cast(b, t), sum) : sum + loop::cast(a, t) * loop::cast(b, t);
  l.block(l.block_name(), std::move(is), loop::store(acc, to, next), loop::store(acc, to, loop::constant(t, 0)));
}

// The buffer that a contraction accumulates in: the result itself where it has the compute type and nothing follows.
static Buffer accumulator(Lowering& l, ValueId y, bool more, DType t) {
  return !more && l.buffer(y)->dtype == t ? l.buffer(y) : l.temporary("acc", t, l.type(y).shape);
}

static bool given(const graph::Node& n, size_t i) { return n.operands.size() > i && n.operands[i] != kNoValue; }

// An index into a batched operand: its own batch dims (broadcast against the result's) and the two last ones.
static Indices batched(const graph::Shape& shape, const Indices& batch, Index row, Index column, sym::Context& c) {
  Indices at;
  const size_t own = shape.size() - 2;
  for (size_t d = 0; d < own; ++d) at.push_back(shape[d].is_const(1) ? c.constant(0) : batch[batch.size() - own + d]);
  at.push_back(row);
  at.push_back(column);
  return at;
}

namespace {
struct MatmulIters {
  std::vector<Iter> all;
  Indices to, batch;
  Index row, column, k;
};
}  // namespace

// numpy's matmul: 1-D operands have a dim added and the result has it removed.
static MatmulIters matmul_iters(Lowering& l, const graph::Shape& a, const graph::Shape& b, const graph::Shape& y) {
  MatmulIters m;
  m.all = l.iters(y);
  m.to = Lowering::vars(m.all);
  size_t batch = y.size() - (a.size() > 1) - (b.size() > 1);
  m.batch.assign(m.to.begin(), m.to.begin() + batch);
  m.row = a.size() > 1 ? m.to[batch++] : Index();
  m.column = b.size() > 1 ? m.to[batch] : Index();
  const Iter k = l.reduce(a.back());
  m.k = k.var;
  m.all.push_back(k);
  return m;
}

void lower_matmul(Lowering& l, const graph::Node& n) {
  const ValueId a = n.operands[0], b = n.operands[1], y = n.results[0];
  const graph::Shape &sa = l.type(a).shape, &sb = l.type(b).shape;
  const DType t = compute_type(l.type(y).dtype);
  const MatmulIters m = matmul_iters(l, sa, sb, l.type(y).shape);
  const Indices at_a = sa.size() == 1 ? Indices{m.k} : batched(sa, m.batch, m.row, m.k, l.sym());
  const Indices at_b = sb.size() == 1 ? Indices{m.k} : batched(sb, m.batch, m.k, m.column, l.sym());
  const Buffer acc = accumulator(l, y, false, t);
  contraction_block(l, acc, m.all, m.to, l.load(a, at_a), l.load(b, at_b));
  if (!(acc == l.buffer(y))) l.map(y, l.block_name() + "_result", [&](const Indices& at) { return loop::load(acc, at); });
}

// Zero points: none, a scalar, or one for each row of a (column of b).
static Expr zero_point(Lowering& l, ValueId z, Index along) {
  const graph::Shape& s = l.type(z).shape;
  Indices at(s.size(), l.sym().constant(0));
  if (!s.empty() && !s.back().is_const(1)) at.back() = along;
  return loop::cast(l.load(z, at), DType::i32);
}

void lower_matmul_integer(Lowering& l, const graph::Node& n) {
  const ValueId a = n.operands[0], b = n.operands[1], y = n.results[0];
  const graph::Shape &sa = l.type(a).shape, &sb = l.type(b).shape;
  const MatmulIters m = matmul_iters(l, sa, sb, l.type(y).shape);
  const Indices at_a = sa.size() == 1 ? Indices{m.k} : batched(sa, m.batch, m.row, m.k, l.sym());
  const Indices at_b = sb.size() == 1 ? Indices{m.k} : batched(sb, m.batch, m.k, m.column, l.sym());
  Expr va = loop::cast(l.load(a, at_a), DType::i32), vb = loop::cast(l.load(b, at_b), DType::i32);
  if (given(n, 2)) va = va - zero_point(l, n.operands[2], m.row);
  if (given(n, 3)) vb = vb - zero_point(l, n.operands[3], m.column);
  contraction_block(l, l.buffer(y), m.all, m.to, va, vb);
}

namespace {
struct ConvIters {
  std::vector<Iter> all;   // n, k (output channel), spatial; then reduce: channel in the group, kernel
  Indices to, x, w;        // indices into the result, input, weights
  Index inside;            // the input index is in bounds
  Index channel;
};
}  // namespace

static ConvIters conv_iters(Lowering& l, const ConvAttr& a, const graph::Shape& x, const graph::Shape& w, const graph::Shape& y) {
  ConvIters r;
  r.all = l.iters(y);
  r.to = Lowering::vars(r.all);
  r.channel = r.to[1];
  const Index groups = l.sym().constant(a.group);
  const Index per_group = w[1];
  const Iter c = l.reduce(per_group, "c");
  r.all.push_back(c);
  const Index group = a.group == 1 ? l.sym().constant(0) : sym::floordiv(r.channel, sym::floordiv(w[0], groups));
  r.x = {r.to[0], group * per_group + c.var};
  r.w = {r.channel, c.var};
  r.inside = l.sym().constant(1);
  for (size_t d = 0; d < a.strides.size(); ++d) {
    const Iter k = l.reduce(w[2 + d], "r");
    r.all.push_back(k);
    const Index i = r.to[2 + d] * a.strides[d] + k.var * a.dilations[d] - a.pads_begin[d];
    if (a.pads_begin[d] != 0) r.inside = sym::logical_and(r.inside, sym::le(l.sym().constant(0), i));
    r.inside = sym::logical_and(r.inside, sym::lt(i, x[2 + d]));
    r.x.push_back(i);
    r.w.push_back(k.var);
  }
  return r;
}

// An element of the input, `other` where the window is over the padding.
static Expr window(Lowering& l, ValueId x, const ConvIters& r, Expr other) {
  const Buffer b = l.buffer(x);
  return loop::cast(loop::load_guarded(b, r.x, r.inside, loop::cast(std::move(other), b->dtype)), compute_type(b->dtype));
}

void lower_conv(Lowering& l, const graph::Node& n) {
  const ValueId x = n.operands[0], w = n.operands[1], y = n.results[0];
  const DType t = compute_type(l.type(y).dtype);
  const ConvIters r = conv_iters(l, std::get<ConvAttr>(n.attr), l.type(x).shape, l.type(w).shape, l.type(y).shape);
  const Buffer acc = accumulator(l, y, given(n, 2), t);
  contraction_block(l, acc, r.all, r.to, window(l, x, r, loop::constant(t, 0)), l.load(w, r.w));
  if (acc == l.buffer(y)) return;
  l.map(y, l.block_name() + "_bias", [&](const Indices& at) {
    const Expr v = loop::load(acc, at);
    return given(n, 2) ? v + l.load(n.operands[2], {at[1]}) : v;
  });
}

void lower_conv_integer(Lowering& l, const graph::Node& n) {
  const ValueId x = n.operands[0], w = n.operands[1], y = n.results[0];
  const ConvIters r = conv_iters(l, std::get<ConvAttr>(n.attr), l.type(x).shape, l.type(w).shape, l.type(y).shape);
  // Padding is the input's zero point, so it contributes nothing.
  const Expr zero = given(n, 2) ? zero_point(l, n.operands[2], l.sym().constant(0)) : loop::constant(DType::i32, 0);
  Expr vx = loop::cast(window(l, x, r, zero), DType::i32) - zero;
  Expr vw = loop::cast(l.load(w, r.w), DType::i32);
  if (given(n, 3)) vw = vw - zero_point(l, n.operands[3], r.channel);
  contraction_block(l, l.buffer(y), r.all, r.to, vx, vw);
}

// Do the windows of a transposed convolution touch without overlapping? Then every result has one tap in a dim.
static bool are_disjoint(const ConvAttr& a, const graph::Shape& w) {
  for (size_t d = 0; d < a.strides.size(); ++d)
    if (!w[2 + d].is_const(a.strides[d]) || a.dilations[d] != 1 || a.pads_begin[d] != 0 || a.pads_end[d] != 0 || a.output_padding[d] != 0)
      return false;
  return true;
}

// Gathered form: y[o] sums the inputs i and kernel taps k with o = i*stride + k*dilation - pad, that is, the taps for
// which (o + pad - k*dilation) is divisible by the stride. Where windows are disjoint that is the tap o mod stride of the input
// o / stride. Weights are [C, M/group, kernel].
void lower_conv_transpose(Lowering& l, const graph::Node& n) {
  const ConvAttr& a = std::get<ConvAttr>(n.attr);
  const ValueId x = n.operands[0], w = n.operands[1], y = n.results[0];
  const graph::Shape &sx = l.type(x).shape, &sw = l.type(w).shape;
  const DType t = compute_type(l.type(y).dtype);
  std::vector<Iter> is = l.iters(l.type(y).shape);
  const Indices to = Lowering::vars(is);
  const Index per_group = sym::floordiv(sx[1], l.sym().constant(a.group));
  const Iter c = l.reduce(per_group, "c");
  is.push_back(c);
  const Index group = a.group == 1 ? l.sym().constant(0) : sym::floordiv(to[1], sw[1]);
  Indices at_x = {to[0], group * per_group + c.var}, at_w = {group * per_group + c.var, to[1] - group * sw[1]};
  Index inside = l.sym().constant(1);
  const bool disjoint = are_disjoint(a, sw);
  for (size_t d = 0; d < a.strides.size(); ++d) {
    if (disjoint) {
      at_x.push_back(sym::floordiv(to[2 + d], a.strides[d]));
      at_w.push_back(sym::mod(to[2 + d], a.strides[d]));
      continue;
    }
    const Iter k = l.reduce(sw[2 + d], "r");
    is.push_back(k);
    const Index p = to[2 + d] + a.pads_begin[d] - k.var * a.dilations[d];
    const Index i = sym::floordiv(p, a.strides[d]);
    if (a.strides[d] != 1) inside = sym::logical_and(inside, sym::eq(sym::mod(p, a.strides[d]), 0));
    inside = sym::logical_and(inside, sym::logical_and(sym::le(l.sym().constant(0), i), sym::lt(i, sx[2 + d])));
    at_x.push_back(i);
    at_w.push_back(k.var);
  }
  const Buffer b = l.buffer(x);
  const Expr vx = loop::cast(disjoint ? loop::load(b, at_x) : loop::load_guarded(b, at_x, inside, loop::constant(b->dtype, 0)), t);
  const Buffer acc = accumulator(l, y, given(n, 2), t);
  contraction_block(l, acc, is, to, vx, l.load(w, at_w));
  if (acc == l.buffer(y)) return;
  l.map(y, l.block_name() + "_bias", [&](const Indices& at) {
    const Expr v = loop::load(acc, at);
    return given(n, 2) ? v + l.load(n.operands[2], {at[1]}) : v;
  });
}

}  // namespace tripod::lower
