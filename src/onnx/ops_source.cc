// Operators that make tensors from attributes and shapes.
#include <cmath>
#include <cstring>

#include "onnx/op_importer.h"
#include "onnx/scope.h"

namespace tripod::importer {
namespace {

ValueId strings(NodeContext& c, std::vector<std::string> values, Shape shape) {
  graph::ConstAttr a;
  a.strings = std::move(values);
  return c.g.add_constant(Type::make(DType::string, std::move(shape)), std::move(a));
}

std::vector<ValueId> constant(NodeContext& c) {
  const auto& a = c.node.attribute();
  if (a.size() != 1) c.fail("needs exactly one attribute, it has " + std::to_string(a.size()));
  const std::string& name = a[0].name();
  const auto count = [](size_t n) { return Ints{static_cast<int64_t>(n)}; };
  if (name == "value") return {c.attr_tensor(name)};
  if (name == "value_int") return {c.int_scalar(DType::i64, c.attr_int(name))};
  if (name == "value_float") return {c.scalar(DType::f32, c.attr_float(name))};
  if (name == "value_ints") return {c.g.add_ints(c.attr_ints(name))};
  if (name == "value_floats") {
    const std::vector<double> values = c.attr_floats(name);
    return {c.constant(count(values.size()), std::vector<float>(values.begin(), values.end()))};
  }
  if (name == "value_string") return {strings(c, {c.attr_string(name)}, {})};
  if (name == "value_strings") {
    std::vector<std::string> values = c.attr_strings(name);
    const Expr n = c.expr(static_cast<int64_t>(values.size()));
    return {strings(c, std::move(values), {n})};
  }
  if (name == "sparse_value") {
    if (!a[0].has_sparse_tensor()) c.fail("attribute \"sparse_value\" must be of type sparse_tensor");
    const TensorData t = c.scope.import.tensors.read_sparse(a[0].sparse_tensor());
    Shape shape;
    for (int64_t d : t.dims) shape.push_back(c.expr(d));
    return {c.g.add_constant(Type::make(t.dtype, std::move(shape)), t.bytes)};
  }
  c.fail("has no attribute \"" + name + "\"");
}

std::vector<ValueId> constant_of_shape(NodeContext& c) {
  const std::vector<Expr> dims = c.dims(c.input(0));
  ValueId fill = c.has("value") ? c.attr_tensor("value") : c.scalar(DType::f32, 0);
  if (!graph::element_count(c.sym(), c.shape(fill)).is_const(1))
    c.fail("attribute \"value\" must have one element, it is " + c.text(fill));
  return {c.broadcast(c.reshape(fill, {}), dims)};
}

// --- range --------------------------------------------------------------------------------------------------------

// ceil((limit - start) / delta), at least 0, for numbers that are known.
Expr float_count(NodeContext& c, double start, double limit, double delta) {
  if (delta == 0) c.fail("delta must not be 0");
  const double n = std::ceil((limit - start) / delta);
  if (!(n < 9e15)) c.fail("the range has too many elements");
  return c.expr(n > 0 ? static_cast<int64_t>(n) : 0);
}

// The same with expressions; floordiv rounds down for either sign of delta, so ceil(a / b) = -floordiv(-a, b).
Expr int_count(NodeContext& c, Expr start, Expr limit, Expr delta) {
  if (delta.is_const(0)) c.fail("delta must not be 0");
  if (delta.is_const() && delta.value() < 0) return sym::max(sym::ceildiv(start - limit, -delta.value()), 0);
  if (delta.is_const()) return sym::max(sym::ceildiv(limit - start, delta.value()), 0);
  graph::require(c.g, sym::ne(delta, 0), "delta must not be 0");
  return sym::max(-sym::floordiv(start - limit, delta), 0);
}

std::vector<ValueId> range(NodeContext& c) {
  c.need_same_dtype(0, 1);
  c.need_same_dtype(0, 2);
  ValueId v[3];
  for (int i = 0; i < 3; ++i) v[i] = c.reshape(c.input(i), {});
  const DType t = c.dtype(v[0]);
  Expr n;
  if (is_int(t)) {
    n = int_count(c, c.dims_scalar(v[0], c.kAnyRange), c.dims_scalar(v[1], c.kAnyRange),
                  c.dims_scalar(v[2], c.kAnyRange));
  } else {
    const auto start = c.floats(v[0]), limit = c.floats(v[1]), delta = c.floats(v[2]);
    if (start && limit && delta) {
      n = float_count(c, (*start)[0], (*limit)[0], (*delta)[0]);
    } else {
      const auto wide = [&](ValueId x) { return c.cast(x, DType::f64); };
      const ValueId length = c.add(OpKind::sub, {wide(v[1]), wide(v[0])});
      const ValueId count = c.add(OpKind::ceil, {c.add(OpKind::div, {length, wide(v[2])})});
      const ValueId some = c.add(OpKind::maximum, {count, c.scalar(DType::f64, 0)});
      n = c.dims_scalar(c.cast(some, DType::i64));
    }
  }
  // f16 and bf16 count in f32 (the default of stash_type, and what the older versions do as well).
  const DType inside = compute_type(t);
  const ValueId y = c.g.add_given(OpKind::iota, {c.cast(v[0], inside), c.cast(v[2], inside)}, graph::NoAttr{},
                                  Type::make(inside, {n}));
  return {c.cast(y, t)};
}

// --- shapes -------------------------------------------------------------------------------------------------------

std::vector<ValueId> eye_like(NodeContext& c) {
  c.need_rank(0, 2);
  const ValueId x = c.input(0);
  const DType t = c.attr_dtype("dtype", c.dtype(x));
  const int64_t k = c.attr_int("k", 0);
  const auto count_from = [&](int64_t start, Expr n) {
    return c.g.add_given(OpKind::iota, {c.int_scalar(DType::i64, start), c.int_scalar(DType::i64, 1)}, graph::NoAttr{},
                         Type::make(DType::i64, {n}));
  };
  const ValueId row = c.reshape(count_from(k, c.dim(x, 0)), {c.dim(x, 0), c.expr(1)});
  return {c.cast(c.add(OpKind::equal, {row, count_from(0, c.dim(x, 1))}), t)};
}

std::vector<ValueId> shape(NodeContext& c) {
  const Shape s = c.shape(c.input(0));
  const int64_t rank = static_cast<int64_t>(s.size());
  const auto bound = [&](const char* name, int64_t otherwise) {
    const int64_t v = c.attr_int(name, otherwise);
    return std::clamp<int64_t>(v < 0 ? v + rank : v, 0, rank);
  };
  const int64_t start = c.opset < 15 ? 0 : bound("start", 0), end = c.opset < 15 ? rank : bound("end", rank);
  return {c.g.add_exprs({s.begin() + start, s.begin() + std::max(start, end)})};
}

std::vector<ValueId> size(NodeContext& c) {
  const Expr n = graph::element_count(c.sym(), c.shape(c.input(0)));
  return {c.reshape(c.g.add_exprs({n}), {})};
}

// clang-format off
const Row kRows[] = {
    {"Constant", 6, kMaxOpset, 0, 0, constant},
    {"ConstantOfShape", 9, kMaxOpset, 1, 1, constant_of_shape},
    {"Range", 11, kMaxOpset, 3, 3, range},
    {"EyeLike", 9, kMaxOpset, 1, 1, eye_like},
    {"Shape", 6, kMaxOpset, 1, 1, shape},
    {"Size", 6, kMaxOpset, 1, 1, size},
};
// clang-format on

}  // namespace

std::span<const Row> source_rows() { return kRows; }

}  // namespace tripod::importer
