// same, cast, predicate, broadcast, pow, compare, where, clip: results shaped like their operands.
#include "graph/shape_rules.h"

namespace tripod::graph::rules {
namespace {

Type like(const Type& t, DType dtype) { return Type::make(dtype, t.shape); }

void wants(const Rule& r, int i, bool ok, std::string_view what) {
  r.tensor(i);
  if (!ok)
    throw ShapeError(operand_text(i) + " must be " + std::string(what) + ", it is " + text(r.type(i)));
}

// Scale and bias of norms: anything that broadcasts to the trailing dims that are normalised.
void check_same(Rule& r) {
  switch (r.op) {
    case OpKind::logical_not: return wants(r, 0, r.dtype(0) == DType::b1, "b1");
    case OpKind::bit_not: return wants(r, 0, is_int(r.dtype(0)), "an integer tensor");
    case OpKind::cumsum:
    case OpKind::cumprod:
    case OpKind::softmax:
    case OpKind::log_softmax: return r.check_axis(r.as<AxisAttr>().axis, r.rank(0));
    case OpKind::layer_norm:
    case OpKind::rms_norm:
      if (r.as<ScalarAttr>().axis != r.rank(0)) r.check_axis(r.as<ScalarAttr>().axis, r.rank(0));
      r.broadcasts_to(1, r.shape(0), "scale");
      return r.broadcasts_to(2, r.shape(0), "bias");
    default: return;
  }
}

void check_channel_norm(Rule& r) {
  if (r.rank(0) < 2) throw ShapeError("operand 1 must have rank 2 or more, it is " + text(r.type(0)));
  const Expr channels = r.dim(0, 1);
  constexpr std::string_view kNames[] = {"", "scale", "bias", "mean", "variance"};
  for (int i = 1; i < r.count(); ++i) r.vector_of(i, channels, kNames[i]);
  if (r.op != OpKind::group_norm) return;
  const int groups = r.as<ScalarAttr>().axis;
  if (groups < 1) throw ShapeError("the number of groups must be positive, it is " + std::to_string(groups));
  r.require(sym::eq(sym::mod(channels, groups), 0),
            sym::text(channels) + " channels do not divide into " + std::to_string(groups) + " groups");
}

void check_scatter(Rule& r) {
  r.tensor(1);
  r.tensor(2);
  r.same_dtype(0, 2);
  wants(r, 1, is_int(r.dtype(1)), "integer indices");
  if (r.op == OpKind::scatter_elements) {
    r.check_axis(r.as<AxisAttr>().axis, r.rank(0));
    if (r.rank(1) != r.rank(0) || r.rank(2) != r.rank(0))
      throw ShapeError("data, indices and updates must have one rank, got " + std::to_string(r.rank(0)) + ", " +
                       std::to_string(r.rank(1)) + " and " + std::to_string(r.rank(2)));
    for (int i = 0; i < r.rank(1); ++i)
      r.same(r.dim(1, i), r.dim(2, i), "indices " + shape_text(r.shape(1)) + " and updates " +
                                           shape_text(r.shape(2)) + " must have one shape");
    return;
  }
  // scatter_nd: updates are indices' outer dims, then data's dims that the index tuple does not reach.
  if (r.rank(1) < 1) throw ShapeError("the indices need rank 1 or more, they are " + text(r.type(1)));
  const auto depth = r.dim(1, r.rank(1) - 1).constant();
  if (!depth || *depth < 0 || *depth > r.rank(0))
    throw ShapeError("the last dim of the indices " + shape_text(r.shape(1)) +
                     " must be a constant of at most the rank of the data, " + std::to_string(r.rank(0)));
  Shape wanted(r.shape(1).begin(), r.shape(1).end() - 1);
  wanted.insert(wanted.end(), r.shape(0).begin() + *depth, r.shape(0).end());
  const std::string what = "the updates are " + shape_text(r.shape(2)) + ", " + shape_text(wanted) + " is wanted";
  if (wanted.size() != r.shape(2).size()) throw ShapeError(what);
  for (size_t i = 0; i < wanted.size(); ++i) r.same(wanted[i], r.shape(2)[i], what);
}

void check_sequence(Rule& r) {
  const auto& a = r.as<AxisAttr>();
  r.check_axis(a.axis, r.rank(0));
  r.check_axis(a.value, r.rank(0));
  r.vector_of(1, r.dim(0, static_cast<int>(a.value)), "sequence lengths");
}

void check_rotary(Rule& r) {
  if (r.rank(0) < 2) throw ShapeError("operand 1 must have rank 2 or more, it is " + text(r.type(0)));
  Shape half = r.shape(0);
  r.require(sym::eq(sym::mod(half.back(), 2), 0), "the last dim " + sym::text(half.back()) + " must be even");
  half.back() = sym::floordiv(half.back(), 2);
  r.broadcasts_to(1, half, "cosine");
  r.broadcasts_to(2, half, "sine");
}

}  // namespace

Types same(Rule& r) {
  r.tensor(0);
  switch (r.op) {
    case OpKind::batch_norm:
    case OpKind::group_norm: check_channel_norm(r); break;
    case OpKind::scatter_elements:
    case OpKind::scatter_nd: check_scatter(r); break;
    case OpKind::reverse_sequence: check_sequence(r); break;
    case OpKind::rotary: check_rotary(r); break;
    case OpKind::trilu:
      if (r.rank(0) < 2) throw ShapeError("operand 1 must have rank 2 or more, it is " + text(r.type(0)));
      break;
    default: check_same(r);
  }
  return {like(r.type(0), r.dtype(0))};
}

Types cast(Rule& r) {
  r.tensor(0);
  // quantize and dequantize: scale and zero point broadcast without widening x.
  r.broadcasts_to(1, r.shape(0), "scale");
  r.broadcasts_to(2, r.shape(0), "zero point");
  return {like(r.type(0), r.as<CastAttr>().to)};
}

Types predicate(Rule& r) {
  wants(r, 0, is_float(r.dtype(0)), "a float tensor");
  return {like(r.type(0), DType::b1)};
}

namespace {

Shape both(Rule& r) {
  r.tensor(0);
  r.tensor(1);
  return r.broadcast(r.shape(0), r.shape(1), "operands 1 and 2");
}

void check_element_kinds(const Rule& r) {
  switch (r.op) {
    case OpKind::logical_and:
    case OpKind::logical_or:
    case OpKind::logical_xor: return wants(r, 0, r.dtype(0) == DType::b1, "b1");
    case OpKind::bit_and:
    case OpKind::bit_or:
    case OpKind::bit_xor:
    case OpKind::shift_left:
    case OpKind::shift_right: return wants(r, 0, is_int(r.dtype(0)), "an integer tensor");
    default: return wants(r, 0, is_float(r.dtype(0)) || is_int(r.dtype(0)), "a tensor of numbers");
  }
}

}  // namespace

Types broadcast(Rule& r) {
  Shape s = both(r);
  r.same_dtype(0, 1);
  check_element_kinds(r);
  return {Type::make(r.dtype(0), std::move(s))};
}

Types pow(Rule& r) {
  Shape s = both(r);  // base and exponent may have different types; the base's wins
  return {Type::make(r.dtype(0), std::move(s))};
}

Types compare(Rule& r) {
  Shape s = both(r);
  r.same_dtype(0, 1);
  return {Type::make(DType::b1, std::move(s))};
}

Types where(Rule& r) {
  wants(r, 0, r.type(0).kind == Type::tensor && r.dtype(0) == DType::b1, "b1");
  r.tensor(1);
  r.tensor(2);
  r.same_dtype(1, 2);
  Shape s = r.broadcast(r.shape(0), r.shape(1), "operands 1 and 2");
  return {Type::make(r.dtype(1), r.broadcast(s, r.shape(2), "operands 1, 2 and 3"))};
}

Types clip(Rule& r) {
  r.tensor(0);
  for (int i = 1; i < r.count(); ++i) {
    if (!r.has(i)) continue;
    r.same_dtype(0, i);
    const Expr n = element_count(r.g.sym(), r.shape(i));
    if (r.rank(i) > 1 || !n.is_const(1))
      throw ShapeError("the bound (" + operand_text(i) + ") must be a scalar, it is " + text(r.type(i)));
  }
  return {like(r.type(0), r.dtype(0))};
}

}  // namespace tripod::graph::rules
