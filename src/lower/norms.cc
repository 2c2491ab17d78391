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
  Indices shape;                 // one set of statistics an index
  Index count;                   // elements in a row
  std::vector<Iter> row, inner;  // iterators over rows and (reducing ones) inside one
  Indices at;                    // of a row, by `row`
  Indices element;               // of an element, by `row` and `inner`
  Indices first;                 // of the first element of a row, by `row`

  std::vector<Iter> all() const {
    std::vector<Iter> r = row;
    r.insert(r.end(), inner.begin(), inner.end());
    return r;
  }
  // The same without reduction: every element once, rows first.
  std::vector<Iter> elements() const {
    std::vector<Iter> r = all();
    for (Iter& i : r) i.reduce = false;
    return r;
  }
};

// Rows are everything that differs only in dims [axis, end).
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
  return r;
}

struct Statistics {
  Buffer mean;       // of a row; null for the root mean square
  Buffer deviation;  // 1 / sqrt(variance + epsilon)
};

// `rows` makes the iterators anew for each block.
using NewRows = std::function<Rows()>;

Statistics statistics(Lowering& l, ValueId x, const NewRows& rows, double epsilon, bool centred) {
  const DType t = compute_type(l.type(x).dtype);
  const std::string name = l.block_name();
  const auto per_row = [&](const char* what) { return l.temporary(what, t, rows().shape); };
  // A block over rows: result = f(row).
  const auto row_block = [&](const Buffer& result, const std::string& what, const std::function<Expr(const Rows&)>& f) {
    const Rows r = rows();
    l.block(name + what, r.row, l.store(result, r.at, f(r)));
  };
  const auto count = [&](const Rows& r) { return loop::from_index(t, r.count); };
  Statistics s;
  if (centred) {
    const Buffer pivot = per_row("pivot"), sum = per_row("sum");
    s.mean = per_row("mean");
    row_block(pivot, "_pivot", [&](const Rows& r) {
      // Rows may be empty: then there is no first element, and nobody looks at the statistics.
      const Buffer b = l.buffer(x);
      return loop::load_guarded(b, r.first, sym::lt(zero(l), r.count), loop::constant(b->dtype, 0));
    });
    const Rows r = rows();
    sum_block(l, name + "_sum", r.all(), sum, r.at, l.load(x, r.element) - loop::load(pivot, r.at));
    row_block(s.mean, "_mean", [&](const Rows& w) {
      return loop::load(pivot, w.at) + loop::load(sum, w.at) / count(w);
    });
  }
  const Buffer squares = per_row("squares");
  s.deviation = per_row("deviation");
  const Rows r = rows();
  const Expr v = centred ? l.load(x, r.element) - loop::load(s.mean, r.at) : l.load(x, r.element);
  sum_of_products_block(l, name + "_squares", r.all(), squares, r.at, v, v);
  row_block(s.deviation, "_deviation", [&](const Rows& w) {
    const Expr variance = loop::load(squares, w.at) / count(w);
    return loop::constant(t, 1) / unary(loop::Op::sqrt, variance + loop::constant(t, epsilon));
  });
  return s;
}

// (x - mean) / deviation * scale + bias; a parameter of an element is found by `parameter`.
void normalise(Lowering& l, const graph::Node& n, const Rows& r, const Statistics& s,
               const std::function<Expr(ValueId)>& parameter) {
  Expr v = l.load(n.operands[0], r.element);
  if (s.mean) v = v - loop::load(s.mean, r.at);
  v = v * loop::load(s.deviation, r.at);
  const Expr scale = given(n, 1) ? loop::cast(parameter(n.operands[1]), v->dtype) : Expr();
  const Expr bias = given(n, 2) ? loop::cast(parameter(n.operands[2]), v->dtype) : Expr();
  if (scale) v = bias ? loop::fma(v, scale, bias) : v * scale;
  else if (bias) v = v + bias;
  l.block(l.block_name(), r.elements(), l.store(n.results[0], r.element, v));
}

// max and sum(exp(x - max)) of the rows along an axis.
struct Exponentials {
  size_t axis;
  Buffer max, sum;
  Buffer e;  // exp(x - max), when it is kept

  // The row of an element.
  Indices row(Indices at) const {
    at.erase(at.begin() + static_cast<std::ptrdiff_t>(axis));
    return at;
  }
};

Exponentials exponentials(Lowering& l, const graph::Node& n, bool keep) {
  const ValueId x = n.operands[0];
  const DType t = compute_type(l.type(x).dtype);
  Exponentials e;
  e.axis = static_cast<size_t>(std::get<AxisAttr>(n.attr).axis);
  const Rows of_max = rows_over(l, l.type(x).shape, e.axis, e.axis + 1);
  e.max = l.temporary("max", t, of_max.shape);
  e.sum = l.temporary("sum", t, of_max.shape);
  const auto exp_at = [&](const Indices& at) {
    return unary(loop::Op::exp, l.load(x, at) - loop::load(e.max, e.row(at)));
  };
  max_block(l, l.block_name() + "_max", of_max.all(), e.max, of_max.at, l.load(x, of_max.element));
  if (keep) {
    e.e = l.temporary("exp", t, l.type(x).shape);
    l.map(e.e, l.block_name() + "_exp", exp_at);
  }
  const Rows of_sum = rows_over(l, l.type(x).shape, e.axis, e.axis + 1);
  sum_block(l, l.block_name() + "_sum", of_sum.all(), e.sum, of_sum.at,
            keep ? loop::load(e.e, of_sum.element) : exp_at(of_sum.element));
  return e;
}

}  // namespace

void lower_softmax(Lowering& l, const graph::Node& n) {
  const Exponentials e = exponentials(l, n, true);
  l.map(n.results[0], l.block_name(),
        [&](const Indices& at) { return loop::load(e.e, at) / loop::load(e.sum, e.row(at)); });
}

void lower_log_softmax(Lowering& l, const graph::Node& n) {
  const Exponentials e = exponentials(l, n, false);
  const Buffer log = l.temporary("log", e.sum->dtype, e.sum->shape);
  l.map(log, l.block_name() + "_log", [&](const Indices& row) { return unary(loop::Op::log, loop::load(e.sum, row)); });
  l.map(n.results[0], l.block_name(), [&](const Indices& at) {
    return l.load(n.operands[0], at) - loop::load(e.max, e.row(at)) - loop::load(log, e.row(at));
  });
}

static void trailing_norm(Lowering& l, const graph::Node& n, bool centred) {
  const ScalarAttr& a = std::get<ScalarAttr>(n.attr);
  const Shape& x = l.type(n.operands[0]).shape;
  const NewRows rows = [&] { return rows_over(l, x, static_cast<size_t>(a.axis), x.size()); };
  const Statistics s = statistics(l, n.operands[0], rows, a.a, centred);
  const Rows r = rows();
  normalise(l, n, r, s, [&](ValueId v) { return l.load_broadcast(v, r.element); });
}

void lower_layer_norm(Lowering& l, const graph::Node& n) { trailing_norm(l, n, true); }

void lower_rms_norm(Lowering& l, const graph::Node& n) { trailing_norm(l, n, false); }

void lower_group_norm(Lowering& l, const graph::Node& n) {
  const ScalarAttr& a = std::get<ScalarAttr>(n.attr);
  const NewRows rows = [&] { return rows_of_groups(l, l.type(n.operands[0]).shape, a.axis); };
  const Statistics s = statistics(l, n.operands[0], rows, a.a, true);
  const Rows r = rows();
  normalise(l, n, r, s, [&](ValueId v) { return l.load(v, {r.element[1]}); });
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
