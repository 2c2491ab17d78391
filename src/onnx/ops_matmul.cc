// MatMul, Gemm, MatMulInteger, Det.
#include "onnx/pieces.h"

namespace tripod::importer {

namespace {

std::vector<ValueId> matmul(NodeContext& c) {
  c.need_same_dtype(0, 1);
  return {c.add(OpKind::matmul, {c.input(0), c.input(1)})};
}

// alpha * A' * B' + beta * C: the transposes of constant weights are folded later.
std::vector<ValueId> gemm(NodeContext& c) {
  c.need_rank(0, 2);
  c.need_rank(1, 2);
  c.need_same_dtype(0, 1);
  ValueId a = c.input(0), b = c.input(1);
  if (c.attr_int("transA", 0) != 0) a = c.transpose(a, {1, 0});
  if (c.attr_int("transB", 0) != 0) b = c.transpose(b, {1, 0});
  const double alpha = c.attr_float("alpha", 1), beta = c.attr_float("beta", 1);
  ValueId y = c.add(OpKind::matmul, {a, b});
  if (alpha != 1) y = c.add(OpKind::mul, {y, c.scalar_of(y, alpha)});
  if (!c.has_input(2) || beta == 0) return {y};
  c.need_same_dtype(0, 2);
  ValueId bias = c.input(2);
  // C may only be stretched, never stretch the product.
  const Shape& to = c.shape(y);
  const int missing = 2 - c.rank(bias);
  bool fits = missing >= 0;
  for (int i = 0; fits && i < c.rank(bias); ++i) {
    fits = c.dim(bias, i).is_const(1) || !differ(c.dim(bias, i), to[i + missing]);
  }
  if (!fits) c.fail("C cannot be broadcast to the product: " + c.text(bias) + " against " + c.text(y));
  if (beta != 1) bias = c.add(OpKind::mul, {bias, c.scalar_of(bias, beta)});
  return {c.add(OpKind::add, {y, bias})};
}

std::vector<ValueId> matmul_integer(NodeContext& c) {
  const ValueId a = c.input(0), b = c.input(1);
  return {c.add(OpKind::matmul_integer, {a, b, per_row(c, c.optional_input(2), a), c.optional_input(3)})};
}

// Expansion along the first row, over the columns that are left. Exact for the small sizes it is made for; a larger
// one needs an LU decomposition, which no core op has.
ValueId determinant(const NodeContext& c, ValueId x, int row, const std::vector<int>& columns) {
  const int last = c.rank(x) - 1;
  ValueId sum = kNoValue;
  for (size_t i = 0; i < columns.size(); ++i) {
    ValueId e = c.slice(c.slice(x, last - 1, c.expr(row), c.expr(1)), last, c.expr(columns[i]), c.expr(1));
    if (columns.size() > 1) {
      std::vector<int> rest = columns;
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
      e = c.add(OpKind::mul, {e, determinant(c, x, row + 1, rest)});
    }
    if (sum == kNoValue) {
      sum = e;
    } else {
      sum = c.add(i % 2 == 0 ? OpKind::add : OpKind::sub, {sum, e});
    }
  }
  return sum;
}

std::vector<ValueId> det(NodeContext& c) {
  c.need_min_rank(0, 2);
  c.need_float(0);
  const ValueId x = c.input(0);
  const int r = c.rank(x);
  const Expr n = c.dim(x, r - 1);
  require_dim(c, x, r - 2, n, "the matrix must be square");
  constexpr int64_t kLargest = 4;
  if (!n.is_const() || n.value() < 1 || n.value() > kLargest) {
    c.fail("matrices larger than 4 x 4, or of free size, are not supported: " + c.text(x));
  }
  std::vector<int> columns;
  for (int i = 0; i < n.value(); ++i) columns.push_back(i);
  const ValueId y = determinant(c, x, 0, columns);
  return {c.reshape(y, Shape(c.shape(x).begin(), c.shape(x).end() - 2))};
}

constexpr Row kRows[] = {
    {"MatMul", 1, kMaxOpset, 2, 2, matmul}, {"Gemm", 1, 10, 3, 3, gemm},
    {"Gemm", 11, kMaxOpset, 2, 3, gemm},    {"MatMulInteger", 10, kMaxOpset, 2, 4, matmul_integer},
    {"Det", 11, kMaxOpset, 1, 1, det},
};

}  // namespace

ValueId per_row(const NodeContext& c, ValueId p, ValueId a) {
  if (p == kNoValue || c.rank(p) != 1) return p;
  if (c.dim(p, 0).is_const(1)) return c.reshape(p, {});
  if (c.rank(a) < 2) c.fail("one parameter a row, but the operand is a vector: " + c.text(p));
  return c.unsqueeze(p, 1);
}

std::span<const Row> matmul_rows() { return kRows; }

}  // namespace tripod::importer
