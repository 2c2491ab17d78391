// What can be checked of ops whose result types the caller states.
#include "graph/shape_rules.h"

namespace tripod::graph {
namespace {

std::string becomes(const Rule& r, const Type& t) { return text(r.type(0)) + " does not become " + text(t); }

void same_element_type(const Rule& r, const Type& t) {
  r.tensor(0);
  if (t.kind != Type::tensor || t.dtype != r.dtype(0)) throw ShapeError(becomes(r, t) + ": element types differ");
}

void same_rank(const Rule& r, const Type& t) {
  if (t.rank() != r.rank(0)) throw ShapeError(becomes(r, t) + ": ranks differ");
}

void check_constant(const Rule& r, const Type& t) {
  const auto& a = r.as<ConstAttr>();
  const auto count = element_count(r.g.sym(), t.shape).constant();
  if (!count) throw ShapeError("a constant needs a static shape, not " + text(t));
  const bool is_string = t.dtype == DType::string;
  const int64_t have = is_string ? static_cast<int64_t>(a.strings.size()) : a.size;
  const int64_t want = is_string ? *count : byte_size(t.dtype, *count);
  if (have != want)
    throw ShapeError("a constant " + text(t) + " needs " + std::to_string(want) + (is_string ? " strings" : " bytes") +
                     ", it has " + std::to_string(have));
}

void check_sym_values(const Rule& r, const Type& t) {
  const auto count = element_count(r.g.sym(), t.shape).constant();
  if (!is_int(t.dtype) && t.dtype != DType::b1) throw ShapeError("sym_values must have an integer type, not " + text(t));
  if (count != static_cast<int64_t>(r.as<ExprsAttr>().values.size()))
    throw ShapeError(text(t) + " does not have " + std::to_string(r.as<ExprsAttr>().values.size()) + " elements");
}

void check_iota(const Rule& r, const Type& t) {
  if (t.rank() != 1) throw ShapeError("iota is 1-D, not " + text(t));
  for (int i = 0; i < 2; ++i) {
    r.tensor(i, 0);
    if (r.dtype(i) != t.dtype) throw ShapeError(operand_text(i) + " is " + text(r.type(i)) + ", the result " + text(t));
  }
}

void check_reshape(Rule& r, const Type& t) {
  same_element_type(r, t);
  sym::Context& c = r.g.sym();
  const Expr before = element_count(c, r.shape(0)), after = element_count(c, t.shape);
  r.same(before, after, becomes(r, t) + ": " + sym::text(before) + " elements, not " + sym::text(after));
}

// A dim of 1 may become anything; any other stays.
void check_broadcast(Rule& r, const Type& t) {
  same_element_type(r, t);
  r.broadcasts_to(0, t.shape, "source");
}

// start + (n - 1) * step stays inside [0, dim), unless the slice is empty.
void check_slice(Rule& r, const Type& t) {
  same_element_type(r, t);
  same_rank(r, t);
  const auto& a = r.as<SliceAttr>();
  if (a.starts.size() != t.shape.size() || a.steps.size() != t.shape.size())
    throw ShapeError("a slice needs a start and a step for each dim of " + text(r.type(0)));
  for (int d = 0; d < t.rank(); ++d) {
    const size_t k = static_cast<size_t>(d);
    if (a.steps[k] == 0) throw ShapeError("the step of a slice is 0 in dim " + std::to_string(d));
    const Expr n = t.shape[k], first = a.starts[k], last = first + (n - 1) * a.steps[k], extent = r.dim(0, d);
    auto outside = [&](Expr i) {
      return sym::prove(sym::logical_and(sym::ge(n, 1), sym::logical_or(sym::lt(i, 0), sym::ge(i, extent)))) ==
             sym::Truth::yes;
    };
    if (outside(first) || outside(last))
      throw ShapeError("the slice of " + sym::text(n) + " elements from " + sym::text(first) + " by " +
                       std::to_string(a.steps[k]) + " leaves dim " + std::to_string(d) + " of " + text(r.type(0)));
  }
}

void check_tile(Rule& r, const Type& t) {
  same_element_type(r, t);
  same_rank(r, t);
  for (int d = 0; d < t.rank(); ++d) {
    const Expr from = r.dim(0, d), to = t.shape[static_cast<size_t>(d)];
    if (from.is_const(0)) r.same(from, to, becomes(r, t) + ": dim " + std::to_string(d) + " is empty");
    else if (!from.is_const(1) && from != to)
      r.require(sym::eq(sym::mod(to, from), 0), becomes(r, t) + ": dim " + std::to_string(d) + " is not a multiple");
  }
}

void check_one_hot(const Rule& r, const Type& t) {
  r.tensor(0);
  r.check_axis(r.as<AxisAttr>().axis, t.rank());
  if (t.rank() != r.rank(0) + 1) throw ShapeError(becomes(r, t) + ": one_hot adds one dim");
  for (int i = 1; i < 3; ++i) {
    r.tensor(i);
    if (r.dtype(i) != t.dtype) throw ShapeError(operand_text(i) + " is " + text(r.type(i)) + ", the result " + text(t));
  }
}

void check_topk(Rule& r, const Type& values, const Type& indices) {
  same_element_type(r, values);
  same_rank(r, values);
  const int axis = r.as<AxisAttr>().axis;
  r.check_axis(axis, r.rank(0));
  if (indices.dtype != DType::i64 || indices.shape != values.shape)
    throw ShapeError("topk's indices must be i64 and shaped like its values, they are " + text(indices));
  const Expr k = values.shape[static_cast<size_t>(axis)];
  r.require(sym::le(k, r.dim(0, axis)),
            "topk of " + sym::text(k) + " elements from a dim of " + sym::text(r.dim(0, axis)));
}

void check_resize(Rule& r, const Type& t) {
  same_element_type(r, t);
  same_rank(r, t);
  const auto& a = r.as<ResizeAttr>();
  const size_t rank = t.shape.size();
  if (a.scales.size() != rank && !(a.scales.empty() && r.has(1)))
    throw ShapeError("resize has " + std::to_string(a.scales.size()) + " scales for rank " + std::to_string(rank));
  if (!a.roi.empty() && a.roi.size() != 2 * rank)
    throw ShapeError("resize has " + std::to_string(a.roi.size()) + " roi entries for rank " + std::to_string(rank));
  r.vector_of(1, r.constant(t.rank()), "scales");
  r.vector_of(2, r.constant(2 * t.rank()), "roi");
}

void check_if(const Rule& r, const std::vector<Type>& types) {
  for (int32_t i : r.as<SubgraphAttr>().graphs) {
    const Graph& body = r.g.module().graph(i);
    if (body.outputs().size() != types.size())
      throw ShapeError("branch @" + body.name() + " has " + std::to_string(body.outputs().size()) +
                       " outputs, the if has " + std::to_string(types.size()) + " results");
    if (static_cast<int>(body.inputs().size()) != r.count() - 1)
      throw ShapeError("branch @" + body.name() + " has " + std::to_string(body.inputs().size()) + " inputs for " +
                       std::to_string(r.count() - 1) + " captures");
  }
}

}  // namespace

void check_given(Rule& r, const std::vector<Type>& types) {
  auto first = [&]() -> const Type& { return types[0]; };
  switch (r.op) {
    case OpKind::constant: return check_constant(r, first());
    case OpKind::sym_values: return check_sym_values(r, first());
    case OpKind::iota: return check_iota(r, first());
    case OpKind::reshape: return check_reshape(r, first());
    case OpKind::broadcast: return check_broadcast(r, first());
    case OpKind::slice: return check_slice(r, first());
    case OpKind::tile: return check_tile(r, first());
    case OpKind::one_hot: return check_one_hot(r, first());
    case OpKind::topk: return check_topk(r, types[0], types[1]);
    case OpKind::resize: return check_resize(r, first());
    case OpKind::copy: same_element_type(r, first()); return same_rank(r, first());
    case OpKind::if_: return check_if(r, types);
    default: return;  // call, loop, scan and the data-dependent ops: the caller knows
  }
}

}  // namespace tripod::graph
