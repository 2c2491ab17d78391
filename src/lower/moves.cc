// Ops that copy elements: an index map each.
#include "lower/ops.h"

namespace tripod::lower {

using graph::kNoValue;
using graph::PadAttr;
using graph::PermAttr;
using graph::SliceAttr;

// Row-major position of an index, and the index of a position.
static Index flatten(const Indices& at, const Indices& shape, sym::Context& c) {
  Index r = c.constant(0);
  for (size_t d = 0; d < at.size(); ++d) r = r * shape[d] + at[d];
  return r;
}
static Indices unflatten(Index flat, const Indices& shape) {
  Indices r(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    r[d] = d == 0 ? flat : sym::mod(flat, shape[d]);
    if (d > 0) flat = sym::floordiv(flat, shape[d]);
  }
  return r;
}

void lower_reshape(Lowering& l, const graph::Node& n) {
  const Indices &from = l.type(n.operands[0]).shape, &to = l.type(n.results[0]).shape;
  l.map(n.results[0], l.block_name(), [&](const Indices& at) {
    return l.load(n.operands[0], unflatten(flatten(at, to, l.sym()), from));
  });
}

void lower_transpose(Lowering& l, const graph::Node& n) {
  const std::vector<int>& perm = std::get<PermAttr>(n.attr).perm;
  l.map(n.results[0], l.block_name(), [&](const Indices& at) {
    Indices from(at.size());
    for (size_t d = 0; d < perm.size(); ++d) from[perm[d]] = at[d];
    return l.load(n.operands[0], from);
  });
}

void lower_broadcast(Lowering& l, const graph::Node& n) {
  l.map(n.results[0], l.block_name(), [&](const Indices& at) { return l.load_broadcast(n.operands[0], at); });
}

void lower_copy(Lowering& l, const graph::Node& n) {
  l.map(n.results[0], l.block_name(), [&](const Indices& at) { return l.load(n.operands[0], at); });
}

// One block an operand, each writing its part of the result: no element asks which operand it comes from.
void lower_concat(Lowering& l, const graph::Node& n) {
  const int axis = std::get<graph::AxisAttr>(n.attr).axis;
  Index start = l.sym().constant(0);
  for (graph::ValueId v : n.operands) {
    const Indices& shape = l.type(v).shape;
    std::vector<Iter> is = l.iters(shape);
    Indices from = Lowering::vars(is), to = from;
    to[axis] = to[axis] + start;
    l.block(l.block_name(), is, l.store(n.results[0], to, l.load(v, from)));
    start = start + shape[axis];
  }
}

void lower_slice(Lowering& l, const graph::Node& n) {
  const SliceAttr& a = std::get<SliceAttr>(n.attr);
  l.map(n.results[0], l.block_name(), [&](const Indices& at) {
    Indices from;
    for (size_t d = 0; d < at.size(); ++d) from.push_back(a.starts[d] + at[d] * a.steps[d]);
    return l.load(n.operands[0], from);
  });
}

void lower_pad(Lowering& l, const graph::Node& n) {
  const PadAttr& a = std::get<PadAttr>(n.attr);
  const graph::ValueId x = n.operands[0];
  const Indices& shape = l.type(x).shape;
  const graph::ValueId fill = n.operands.size() > 1 ? n.operands[1] : kNoValue;
  const Buffer buffer = l.buffer(x);
  l.map(n.results[0], l.block_name(), [&](const Indices& at) {
    Indices from;
    Index inside = l.sym().constant(1);
    for (size_t d = 0; d < at.size(); ++d) {
      Index i = at[d] - a.begin[d];
      const bool padded = !a.begin[d].is_const(0) || !a.end[d].is_const(0);
      if (padded && a.mode == PadAttr::constant)
        inside = sym::logical_and(inside, sym::logical_and(sym::le(l.sym().constant(0), i), sym::lt(i, shape[d])));
      if (padded && a.mode == PadAttr::edge) i = sym::max(sym::min(i, shape[d] - 1), 0);
      if (padded && a.mode == PadAttr::wrap) i = sym::mod(i, shape[d]);
      if (padded && a.mode == PadAttr::reflect) {
        // A triangle wave of period 2*(n-1); a dim of one element only has that.
        const Index period = sym::max((shape[d] - 1) * 2, 1);
        const Index m = sym::mod(i, period);
        i = sym::min(m, period - m);
        i = sym::min(i, shape[d] - 1);
      }
      from.push_back(i);
    }
    if (inside.is_const(1)) return l.load(x, from);
    const DType t = compute_type(buffer->dtype);
    const Expr other = fill == kNoValue ? loop::constant(buffer->dtype, 0) : loop::cast(l.load(fill, Indices(l.type(fill).rank(), l.sym().constant(0))), buffer->dtype);
    return loop::cast(loop::load_guarded(buffer, from, inside, other), t);
  });
}

void lower_tile(Lowering& l, const graph::Node& n) {
  const Indices& shape = l.type(n.operands[0]).shape;
  l.map(n.results[0], l.block_name(), [&](const Indices& at) {
    Indices from;
    for (size_t d = 0; d < at.size(); ++d) from.push_back(sym::mod(at[d], shape[d]));
    return l.load(n.operands[0], from);
  });
}

void lower_iota(Lowering& l, const graph::Node& n) {
  const DType t = compute_type(l.type(n.results[0]).dtype);
  l.map(n.results[0], l.block_name(), [&](const Indices& at) {
    return l.load(n.operands[0], {}) + loop::from_index(t, at[0]) * l.load(n.operands[1], {});
  });
}

}  // namespace tripod::lower
