// Ops that pick elements by an index that is data. An index out of range is reported and clamped: nothing is read
// outside a buffer.
#include <algorithm>

#include "lower/ops.h"
#include "lower/parts.h"

namespace tripod::lower {

using graph::AxisAttr;
using graph::ValueId;

// Element of x, which may be empty where an index is out of range anyway: then there is no element to clamp to.
static Expr picked(Lowering& l, ValueId x, const Indices& at, Index extent) {
  const Buffer b = l.buffer(x);
  return loop::cast(loop::load_guarded(b, at, sym::lt(zero(l), extent), loop::constant(b->dtype, 0)),
                    compute_type(b->dtype));
}

static Expr index_at(Lowering& l, ValueId indices, const Indices& at) {
  return loop::cast(l.load(indices, at), DType::i64);
}

// y[before, which, after] = x[before, indices[which], after]
void lower_gather(Lowering& l, const graph::Node& n) {
  const int axis = std::get<AxisAttr>(n.attr).axis;
  const ValueId x = n.operands[0], indices = n.operands[1], y = n.results[0];
  const std::vector<Iter> is = l.iters(l.type(y).shape);
  const Indices at = Lowering::vars(is);
  const auto which = at.begin() + axis, after = which + l.type(indices).rank();
  const Index extent = l.type(x).shape[axis];
  l.block(l.block_name(), is, l.with_index(index_at(l, indices, Indices(which, after)), extent, true, [&](Index i) {
    Indices from(at.begin(), which);
    from.push_back(i);
    from.insert(from.end(), after, at.end());
    return l.store(y, at, picked(l, x, from, extent));
  }));
}

// y[.., i, ..] = x[.., indices[.., i, ..], ..]
void lower_gather_elements(Lowering& l, const graph::Node& n) {
  const int axis = std::get<AxisAttr>(n.attr).axis;
  const ValueId x = n.operands[0], indices = n.operands[1], y = n.results[0];
  const std::vector<Iter> is = l.iters(l.type(y).shape);
  const Indices at = Lowering::vars(is);
  const Index extent = l.type(x).shape[axis];
  l.block(l.block_name(), is, l.with_index(index_at(l, indices, at), extent, true, [&](Index i) {
    Indices from = at;
    from[axis] = i;
    return l.store(y, at, picked(l, x, from, extent));
  }));
}

// y[batch, which, rest] = x[batch, indices[batch, which, 0], indices[batch, which, 1], .., rest]
void lower_gather_nd(Lowering& l, const graph::Node& n) {
  const int64_t batch = std::get<AxisAttr>(n.attr).value;
  const ValueId x = n.operands[0], indices = n.operands[1], y = n.results[0];
  const int64_t depth = l.type(indices).shape.back().value();
  const std::vector<Iter> is = l.iters(l.type(y).shape);
  const Indices at = Lowering::vars(is);
  const auto rest = at.begin() + (l.type(indices).rank() - 1);
  Index extent = l.sym().constant(1);  // all indexed dims together
  for (int64_t j = 0; j < depth; ++j) extent = sym::min(extent, l.type(x).shape[batch + j]);
  Indices from(at.begin(), at.begin() + batch);
  const std::function<loop::Stmt()> next = [&]() -> loop::Stmt {
    const int64_t j = static_cast<int64_t>(from.size()) - batch;
    if (j == depth) {
      Indices whole = from;
      whole.insert(whole.end(), rest, at.end());
      return l.store(y, at, picked(l, x, whole, extent));
    }
    Indices which(at.begin(), rest);
    which.push_back(l.sym().constant(j));
    return l.with_index(index_at(l, indices, which), l.type(x).shape[batch + j], true, [&](Index i) {
      from.push_back(i);
      const loop::Stmt s = next();
      from.pop_back();
      return s;
    });
  };
  l.block(l.block_name(), is, next());
}

// Indices outside [-depth, depth) leave the row off: that is no error.
void lower_one_hot(Lowering& l, const graph::Node& n) {
  const int axis = std::get<AxisAttr>(n.attr).axis;
  const ValueId indices = n.operands[0], y = n.results[0];
  const Expr depth = loop::from_index(DType::i64, l.type(y).shape[axis]);
  l.map(y, l.block_name(), [&](const Indices& at) {
    Indices which = at;
    which.erase(which.begin() + axis);
    const Expr i = index_at(l, indices, which);
    const Expr wrapped = loop::select(loop::lt(i, loop::constant_int(DType::i64, 0)), i + depth, i);
    const Expr hit = loop::eq(wrapped, loop::from_index(DType::i64, at[axis]));
    return loop::select(hit, load_scalar(l, n.operands[2]), load_scalar(l, n.operands[1]));
  });
}

// upper keeps column >= row + k, lower keeps column <= row + k. Diagonals beyond +-2^40 are as good as any there.
void lower_trilu(Lowering& l, const graph::Node& n) {
  constexpr int64_t kFar = int64_t{1} << 40;
  const AxisAttr& a = std::get<AxisAttr>(n.attr);
  const ValueId x = n.operands[0];
  const Buffer b = l.buffer(x);
  const DType t = compute_type(b->dtype);
  l.map(n.results[0], l.block_name(), [&](const Indices& at) -> Expr {
    const Index row = at[at.size() - 2], column = at.back();
    if (!given(n, 1)) {
      const Index diagonal = row + std::clamp(a.value, -kFar, kFar);
      const Index kept = a.flag_a ? sym::le(diagonal, column) : sym::le(column, diagonal);
      return loop::cast(loop::load_guarded(b, at, kept, loop::constant(b->dtype, 0)), t);
    }
    const auto whole = [](int64_t v) { return loop::constant_int(DType::i64, v); };
    const Expr k = loop::cast(load_scalar(l, n.operands[1]), DType::i64);
    const Expr diagonal = loop::from_index(DType::i64, row) + loop::max(whole(-kFar), loop::min(whole(kFar), k));
    const Expr j = loop::from_index(DType::i64, column);
    return loop::select(a.flag_a ? loop::le(diagonal, j) : loop::le(j, diagonal), l.load(x, at), loop::constant(t, 0));
  });
}

// The first lens[batch] elements of the time axis in reverse order, the others as they are.
void lower_reverse_sequence(Lowering& l, const graph::Node& n) {
  const AxisAttr& a = std::get<AxisAttr>(n.attr);
  const ValueId x = n.operands[0], y = n.results[0];
  const std::vector<Iter> is = l.iters(l.type(y).shape);
  const Indices at = Lowering::vars(is);
  const Index steps = l.type(x).shape[a.axis], t = at[a.axis];
  l.block(l.block_name(), is,
          l.with_index(index_at(l, n.operands[1], {at[a.value]}), steps + 1, false, [&](Index length) {
            Indices from = at;
            from[a.axis] = sym::select(sym::lt(t, length), length - 1 - t, t);
            return l.store(y, at, l.load(x, from));
          }));
}

}  // namespace tripod::lower
