// Softmax and the normalisations: row statistics as reductions, then one elementwise block over all elements. All
// blocks of an op name the dims of a row in the same order.
//
// Means and variances take two passes, and both sums are about a value of the row itself, so that an offset that is
// large against the spread costs no precision: mean = pivot + sum(x - pivot) / n with the row's first element as pivot,
// variance = sum((x - mean)^2) / n.
#include "lower/ops.h"
#include "lower/parts.h"

namespace tripod::lower {

using graph::AxisAttr;
using graph::ScalarAttr;
using graph::Shape;
using graph::ValueId;

namespace {

// The rows of a tensor: which elements share one set of statistics.
struct Rows {
  Indices shape;                                         // one set of statistics an index
  Index count;                                           // elements in a row
  std::vector<Iter> row, inner;                          // iterators over rows and inside one
  Indices at;                                            // of a row
  Indices element;                                       // of an element, by `row` and `inner`
  Indices first;                                         // of the first element of a row, by `row`
  std::function<Indices(const Indices&)> row_of;         // which row an element belongs to

  std::vector<Iter> all() const {
    std::vector<Iter> r = row;
    r.insert(r.end(), inner.begin(), inner.end());
    return r;
  }
};

// A row is everything that differs only in dims [axis, end).
Rows rows_over(Lowering& l, const Shape& x, size_t axis, size_t end) {
  Rows r;
  r.count = l.sym().constant(1);
  const std::vector<Iter> is = l.iters(x);
  for (size_t d = 0; d < x.size(); ++d) {
    if (d < axis || d >= end) {
      r.shape.push_back(x[d]);
      r.row.push_back(is[d]);
      r.element.push_back(is[d].var);
      r.first.push_back(is[d].var);
      continue;
    }
    r.count = r.count * x[d];
    r.inner.push_back(l.reduce(x[d]));
    r.element.push_back(r.inner.back().var);
    r.first.push_back(zero(l));
  }
  r.at = Lowering::vars(r.row);
  r.row_of = [axis, end](const Indices& at) {
    Indices row(at.begin(), at.begin() + axis);
    row.insert(row.end(), at.begin() + end, at.end());
    return row;
  };
  return r;
}

// x is [N, C, spatial]; a row is a group of channels of one image.
Rows rows_of_groups(Lowering& l, const Shape& x, int64_t groups) {
  Rows r;
  const Index each = sym::floordiv(x[1], groups);
  r.shape = {x[0], l.sym().constant(groups)};
  r.row = l.iters(r.shape);
  r.at = Lowering::vars(r.row);
  r.count = each;
  r.element = r.first = {r.at[0], r.at[1] * each};
  if (!each.is_const(1)) {  // instance norm has one channel a group
    r.inner.push_back(l.reduce(each, "c"));
    r.element[1] = r.element[1] + r.inner[0].var;
  }
  for (size_t d = 2; d < x.size(); ++d) {
    r.inner.push_back(l.reduce(x[d]));
    r.element.push_back(r.inner.back().var);
    r.first.push_back(zero(l));
    r.count = r.count * x[d];
  }
  r.row_of = [each](const Indices& at) { return Indices{at[0], sym::floordiv(at[1], each)}; };
  return r;
}

struct Statistics {
  Buffer mean;       // of a row; null for the root mean square
  Buffer deviation;  // 1 / sqrt(variance + epsilon)
};

Statistics statistics(Lowering& l, ValueId x, const Rows& r, double epsilon, bool centred) {
  const DType t = compute_type(l.type(x).dtype);
  const std::string name = l.block_name();
  const Expr n = loop::from_index(t, r.count);
  Statistics s;
  Expr v = l.load(x, r.element);
  if (centred) {
    const Buffer pivot = l.temporary("pivot", t, r.shape), sum = l.temporary("sum", t, r.shape);
    s.mean = l.temporary("mean", t, r.shape);
    const Buffer b = l.buffer(x);
    // Rows may be empty: then there is no first element, and nobody looks at the statistics.
    const Expr first = loop::load_guarded(b, r.first, sym::lt(zero(l), r.count), loop::constant(b->dtype, 0));
    l.block(name + "_pivot", r.row, l.store(pivot, r.at, first));
    sum_block(l, name + "_sum", r.all(), sum, r.at, v - loop::load(pivot, r.at));
    l.block(name + "_mean", r.row, loop::store(s.mean, r.at, loop::load(pivot, r.at) + loop::load(sum, r.at) / n));
    v = v - loop::load(s.mean, r.at);
  }
  const Buffer squares = l.temporary("squares", t, r.shape);
  s.deviation = l.temporary("deviation", t, r.shape);
  sum_of_products_block(l, name + "_squares", r.all(), squares, r.at, v, v);
  const Expr variance = loop::load(squares, r.at) / n;
  const Expr root = unary(loop::Op::sqrt, variance + loop::constant(t, epsilon));
  l.block(name + "_deviation", r.row, loop::store(s.deviation, r.at, loop::constant(t, 1) / root));
  return s;
}

// (x - mean) / deviation * scale + bias; the parameters are found by `parameter`.
void normalise(Lowering& l, const graph::Node& n, const Rows& r, const Statistics& s,
               const std::function<Expr(ValueId, const Indices&)>& parameter) {
  l.map(n.results[0], l.block_name(), [&](const Indices& at) {
    const Indices row = r.row_of(at);
    Expr v = l.load(n.operands[0], at);
    if (s.mean) v = v - loop::load(s.mean, row);
    v = v * loop::load(s.deviation, row);
    const Expr scale = given(n, 1) ? loop::cast(parameter(n.operands[1], at), v->dtype) : Expr();
    const Expr bias = given(n, 2) ? loop::cast(parameter(n.operands[2], at), v->dtype) : Expr();
    if (scale && bias) return loop::fma(v, scale, bias);
    return scale ? v * scale : bias ? v + bias : v;
  });
}

// max and sum(exp(x - max)) of the rows along an axis.
struct Exponentials {
  Rows rows;
  Buffer max, sum;
  Buffer e;  // exp(x - max), when it is kept
};

Exponentials exponentials(Lowering& l, const graph::Node& n, bool keep) {
  const ValueId x = n.operands[0];
  const size_t axis = static_cast<size_t>(std::get<AxisAttr>(n.attr).axis);
  const DType t = compute_type(l.type(x).dtype);
  Exponentials r{rows_over(l, l.type(x).shape, axis, axis + 1), {}, {}, {}};
  const Rows& rows = r.rows;
  r.max = l.temporary("max", t, rows.shape);
  r.sum = l.temporary("sum", t, rows.shape);
  const auto e_at = [&](const Indices& at) {
    return unary(loop::Op::exp, l.load(x, at) - loop::load(r.max, rows.row_of(at)));
  };
  max_block(l, l.block_name() + "_max", rows.all(), r.max, rows.at, l.load(x, rows.element));
  if (keep) {
    r.e = l.temporary("exp", t, l.type(x).shape);
    l.map(r.e, l.block_name() + "_exp", e_at);
  }
  sum_block(l, l.block_name() + "_sum", rows.all(), r.sum, rows.at,
            keep ? loop::load(r.e, rows.element) : e_at(rows.element));
  return r;
}

}  // namespace

void lower_softmax(Lowering& l, const graph::Node& n) {
  const Exponentials r = exponentials(l, n, true);
  l.map(n.results[0], l.block_name(),
        [&](const Indices& at) { return loop::load(r.e, at) / loop::load(r.sum, r.rows.row_of(at)); });
}

void lower_log_softmax(Lowering& l, const graph::Node& n) {
  const Exponentials r = exponentials(l, n, false);
  const Buffer log = l.temporary("log", r.sum->dtype, r.rows.shape);
  l.block(l.block_name() + "_log", r.rows.row,
          loop::store(log, r.rows.at, unary(loop::Op::log, loop::load(r.sum, r.rows.at))));
  l.map(n.results[0], l.block_name(), [&](const Indices& at) {
    const Indices row = r.rows.row_of(at);
    return l.load(n.operands[0], at) - loop::load(r.max, row) - loop::load(log, row);
  });
}

static void trailing_norm(Lowering& l, const graph::Node& n, bool centred) {
  const ScalarAttr& a = std::get<ScalarAttr>(n.attr);
  const Shape& x = l.type(n.operands[0]).shape;
  const Rows r = rows_over(l, x, static_cast<size_t>(a.axis), x.size());
  const Statistics s = statistics(l, n.operands[0], r, a.a, centred);
  normalise(l, n, r, s, [&](ValueId v, const Indices& at) { return l.load_broadcast(v, at); });
}

void lower_layer_norm(Lowering& l, const graph::Node& n) { trailing_norm(l, n, true); }

void lower_rms_norm(Lowering& l, const graph::Node& n) { trailing_norm(l, n, false); }

void lower_group_norm(Lowering& l, const graph::Node& n) {
  const ScalarAttr& a = std::get<ScalarAttr>(n.attr);
  const Rows r = rows_of_groups(l, l.type(n.operands[0]).shape, a.axis);
  const Statistics s = statistics(l, n.operands[0], r, a.a, true);
  normalise(l, n, r, s, [&](ValueId v, const Indices& at) { return l.load(v, {at[1]}); });
}

// The factor of a channel is worked out once: y = (x - mean) * (scale / sqrt(var + epsilon)) + bias.
void lower_batch_norm(Lowering& l, const graph::Node& n) {
  const double epsilon = std::get<ScalarAttr>(n.attr).a;
  const ValueId x = n.operands[0], scale = n.operands[1], bias = n.operands[2], mean = n.operands[3], var = n.operands[4];
  const DType t = compute_type(l.type(x).dtype);
  const auto parameter = [&](ValueId v, Index c) { return loop::cast(l.load(v, {c}), t); };
  const Buffer factor = l.temporary("factor", t, {l.type(x).shape[1]});
  l.map(factor, l.block_name() + "_factor", [&](const Indices& c) {
    return parameter(scale, c[0]) / unary(loop::Op::sqrt, parameter(var, c[0]) + loop::constant(t, epsilon));
  });
  l.map(n.results[0], l.block_name(), [&](const Indices& at) {
    return loop::fma(l.load(x, at) - parameter(mean, at[1]), loop::load(factor, {at[1]}), parameter(bias, at[1]));
  });
}

}  // namespace tripod::lower
