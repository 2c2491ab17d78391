// Reductions over attribute axes, arg-reductions, prefix sums and products.
#include <algorithm>
#include <cmath>
#include <limits>

#include "lower/ops.h"

namespace tripod::lower {

using graph::OpKind;
using graph::ReduceAttr;

static double identity_of(OpKind op, DType t) {
  const double inf = std::numeric_limits<double>::infinity();
  const bool floating = is_float(t);
  switch (op) {
    case OpKind::reduce_prod: return 1;
    case OpKind::reduce_max:
    case OpKind::arg_max: return floating ? -inf : is_signed(t) ? -std::ldexp(1.0, info(t).bits - 1) : 0;
    case OpKind::reduce_min:
    case OpKind::arg_min: return floating ? inf : std::ldexp(1.0, info(t).bits - (is_signed(t) ? 1 : 0)) - (t == DType::i64 || t == DType::u64 ? 1024 : 1);
    default: return 0;
  }
}

// The identity as a constant: exact for 64-bit integers too, which f64 cannot hold.
static Expr identity(OpKind op, DType t) {
  if (op == OpKind::reduce_min && t == DType::i64) return loop::constant_int(t, std::numeric_limits<int64_t>::max());
  if (op == OpKind::reduce_min && t == DType::u64) return loop::constant_bits(t, std::numeric_limits<uint64_t>::max());
  if (t == DType::b1) return loop::constant(t, op == OpKind::reduce_min || op == OpKind::reduce_prod);
  return loop::constant(t, identity_of(op, t));
}

static Expr combine(OpKind op, Expr acc, Expr x) {
  if (acc->dtype == DType::b1) return loop::make(op == OpKind::reduce_min ? loop::Op::bit_and : loop::Op::bit_or, {acc, x});
  switch (op) {
    case OpKind::reduce_prod: return acc * x;
    case OpKind::reduce_max: return loop::max(acc, x);
    case OpKind::reduce_min: return loop::min(acc, x);
    default: return acc + x;
  }
}

// Iterators of a reduction: spatial ones in the order of the result, then one for each reduced axis. `from` indexes
// the operand, `to` the result.
struct ReduceIters {
  std::vector<Iter> all;
  Indices from, to;
  Index count;
};
static ReduceIters reduce_iters(Lowering& l, const Indices& shape, const ReduceAttr& a) {
  ReduceIters r;
  r.count = l.sym().constant(1);
  std::vector<Iter> reduced;
  r.from.resize(shape.size());
  std::vector<Iter> spatial = l.iters(shape);
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool is_reduced = std::find(a.axes.begin(), a.axes.end(), static_cast<int>(d)) != a.axes.end();
    if (!is_reduced) {
      r.all.push_back(spatial[d]);
      r.from[d] = spatial[d].var;
      r.to.push_back(spatial[d].var);
      continue;
    }
    reduced.push_back(l.reduce(shape[d]));
    r.from[d] = reduced.back().var;
    r.count = r.count * shape[d];
    if (a.keep_dims) r.to.push_back(l.sym().constant(0));
  }
  r.all.insert(r.all.end(), reduced.begin(), reduced.end());
  return r;
}

void lower_reduce(Lowering& l, const graph::Node& n) {
  const ReduceAttr& a = std::get<ReduceAttr>(n.attr);
  const graph::ValueId x = n.operands[0], y = n.results[0];
  const ReduceIters r = reduce_iters(l, l.type(x).shape, a);
  const DType t = compute_type(l.type(x).dtype);
  // The accumulator has the compute type; a mean or a narrower result needs a buffer of its own for it.
  const bool direct = n.op != OpKind::reduce_mean && l.buffer(y)->dtype == t;
  const Buffer acc = direct ? l.buffer(y) : l.temporary("acc", t, l.type(y).shape);
  l.block(l.block_name(), r.all, loop::store(acc, r.to, combine(n.op, loop::load(acc, r.to), l.load(x, r.from))),
          loop::store(acc, r.to, identity(n.op, t)));
  if (direct) return;
  l.map(y, l.block_name() + "_result", [&](const Indices& at) {
    const Expr sum = loop::load(acc, at);
    // The mean of nothing is 0, as in ONNX Runtime (ONNX leaves it open), and no integer is divided by zero.
    return n.op == OpKind::reduce_mean ? sum / loop::from_index(t, sym::max(r.count, 1)) : sum;
  });
}

// Two accumulators: the best value and its index. Of equal elements the first (or last) wins; NaN counts as best.
void lower_arg_reduce(Lowering& l, const graph::Node& n) {
  const ReduceAttr& a = std::get<ReduceAttr>(n.attr);
  const graph::ValueId x = n.operands[0], y = n.results[0];
  const ReduceIters r = reduce_iters(l, l.type(x).shape, a);
  const DType t = compute_type(l.type(x).dtype);
  const Buffer best = l.temporary("best", t, l.type(y).shape);
  const Buffer index = l.buffer(y);
  const Expr value = l.load(x, r.from), old = loop::load(best, r.to);
  Expr better = n.op == OpKind::arg_max ? loop::lt(old, value) : loop::lt(value, old);
  if (a.last_index) better = loop::make(loop::Op::bit_not, {n.op == OpKind::arg_max ? loop::lt(value, old) : loop::lt(old, value)});
  const Index k = r.all.back().var;
  const Expr first = loop::make(loop::Op::eq, {loop::from_index(DType::i64, k), loop::constant(DType::i64, 0)});
  if (is_float(t)) {
    const Expr nan = loop::ne(value, value), had = loop::ne(old, old);
    const Expr not_had = loop::make(loop::Op::bit_not, {had});
    better = loop::make(loop::Op::bit_or, {loop::make(loop::Op::bit_and, {nan, not_had}), loop::make(loop::Op::bit_and, {better, not_had})});
  }
  better = loop::make(loop::Op::bit_or, {better, first});
  const loop::Stmt update = loop::seq({
      loop::store(index, r.to, loop::select(better, loop::from_index(DType::i64, k), loop::load(index, r.to))),
      loop::store(best, r.to, loop::select(better, value, old))});
  const loop::Stmt init = loop::seq({loop::store(index, r.to, loop::constant(DType::i64, 0)),
                                     loop::store(best, r.to, loop::constant(t, 0))});
  l.block(l.block_name(), r.all, update, init);
}

// Also cumprod. Serial along the axis: a running sum (or product) kept in a one-element buffer for each line.
void lower_cumsum(Lowering& l, const graph::Node& n) {
  const graph::AxisAttr& a = std::get<graph::AxisAttr>(n.attr);
  const graph::ValueId x = n.operands[0], y = n.results[0];
  const Indices& shape = l.type(x).shape;
  const DType t = compute_type(l.type(x).dtype);
  Indices lines;
  for (size_t d = 0; d < shape.size(); ++d)
    if (static_cast<int>(d) != a.axis) lines.push_back(shape[d]);
  std::vector<Iter> is = l.iters(lines);
  const Index k = l.iters({shape[a.axis]}, "k")[0].var;
  Indices at = Lowering::vars(is);
  at.insert(at.begin() + a.axis, a.flag_b ? shape[a.axis] - 1 - k : k);
  const Buffer sum = loop::make_buffer(l.block_name() + "_sum", t, {l.sym().constant(1)}, loop::Scope::reg);
  const Indices zero = {l.sym().constant(0)};
  const bool product = n.op == OpKind::cumprod;
  const Expr so_far = loop::load(sum, zero), here = l.load(x, at), next = product ? so_far * here : so_far + here;
  const loop::Stmt step = a.flag_a ? loop::seq({l.store(y, at, loop::load(sum, zero)), loop::store(sum, zero, next)})
                                   : loop::seq({loop::store(sum, zero, next), l.store(y, at, loop::load(sum, zero))});
  const loop::Stmt body = loop::alloc(sum, loop::seq({loop::store(sum, zero, loop::constant(t, product ? 1 : 0)),
                                                      loop::loop(k, shape[a.axis], loop::LoopKind::serial, step)}));
  l.block(l.block_name(), is, body);
}

}  // namespace tripod::lower
