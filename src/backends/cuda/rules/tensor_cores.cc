// Contractions of 16-bit floats, accumulated in f32, on tensor cores: matrix products, batches of them, convolutions as
// implicit products (rows are pixels, the reduction runs over the window with the channels innermost).
//
// Applies when the accumulator is f32 and both operands are f16, or both bf16, before they are converted (or both f32,
// where the precision tf32 was asked for), or one of them is made of small integers. The order of the sum is the
// hardware's.
#include <set>

#include "backends/cuda/rules/tensor_cores.h"
#include "rules/inline.h"

namespace tripod::cuda {

using loop::Expr;

namespace {

// The type that an operand is converted from.
DType narrow_type(const Expr& e) { return e->op == loop::Op::cast ? e->args[0]->dtype : e->dtype; }

// An operand that is made of integers of 8 bits or less, in f32: weights that are dequantised on the way.
bool is_dequantised(const Expr& e) {
  bool small = false;
  loop::visit(e, [&](const Expr& x) { small = small || (x->op == loop::Op::load && is_int(x->dtype) && info(x->dtype).bits <= 8); });
  return e->dtype == DType::f32 && narrow_type(e) == DType::f32 && small;
}

// Its value is rounded to the type of the other operand: as ONNX has it where the scale is of that type, and as weights of
// that type would be.
void round_dequantised(rules::Contraction& k) {
  for (Expr* e : {&k.a, &k.b}) {
    const DType other = narrow_type(e == &k.a ? k.b : k.a);
    if (info(other).bits == 16 && is_float(other) && is_dequantised(*e)) *e = loop::cast(loop::cast(*e, other), DType::f32);
  }
}

std::string fits(const rules::Contraction& k, const TensorCoreOptions& o) {
  const DType a = narrow_type(k.a), b = narrow_type(k.b);
  if (k.dtype != DType::f32) return "the sum is not of f32";
  if (a != b) return "operands of different types";
  if (a == DType::f16 || a == DType::bf16) return "";
  if (a == DType::f32 && o.tf32) return "";
  return "operands of " + std::string(name(a));
}

// Elements times bytes of the tensors of a contraction, each counted once.
Index memory(sym::Context& c, const rules::Contraction& k) {
  std::set<const loop::BufferNode*> seen;
  Index total = c.constant(0);
  const auto add = [&](const Buffer& b) {
    if (b != k.acc && seen.insert(b.get()).second) total = total + loop::storage_size(c, b) * std::max<int64_t>(1, info(b->dtype).bits / 8);
  };
  std::vector<Expr> values{k.a, k.b};
  for (const auto& e : k.epilogue) values.push_back(e.value), add(e.target);
  for (const Expr& v : values)
    loop::visit(v, [&](const Expr& x) { if (x->op == loop::Op::load) add(x->buffer); });
  return total;
}

// Sizes of f's open dims, all of them the same, at which e is nearest to `value`.
sym::Values dims_where(Index e, int64_t value, const loop::Function& f) {
  sym::Values best;
  int64_t distance = INT64_MAX;
  for (int64_t n = 1; n <= int64_t{1} << 20 && distance > 0; n += std::max<int64_t>(1, n / 16)) {
    sym::Values dims;
    for (Index d : f.dims) dims[d] = n;
    const int64_t off = std::abs(sym::evaluate(e, dims) - value);
    if (off >= distance) break;
    best = std::move(dims), distance = off;
  }
  return best;
}

Problem problem(const TensorProblem& p) {
  return {p.batches.constant(), p.rows.constant(), p.columns.constant(), p.depth.constant(), info(p.operands()).bits / 8, 0};
}

// Only the number of rows is open, as of a batch of pictures or of sentences: a tile for each class of sizes.
RuleResult by_rows(const loop::Function& f, const TensorProblem& p, Index bytes, sym::Context& c) {
  const auto classes = choose_tiles_by_rows([&](int64_t rows) {
    Problem sizes = problem(p);
    sizes.rows = rows;
    sizes.memory = static_cast<double>(sym::evaluate(bytes, dims_where(p.rows, rows, f)));
    return sizes;
  });
  RuleResult r{{true, ""}, tensor_kernel(f, p, classes.back().choice, c)};
  sym::Values least;
  for (Index d : f.dims) least[d] = std::max<int64_t>(1, d->range.lo);
  for (const RowClass& k : classes)
    if (k.most_rows && sym::evaluate(p.rows, least) <= *k.most_rows) r.variants.push_back({sym::le(p.rows, *k.most_rows), tensor_kernel(f, p, k.choice, c)});
  return r;
}

}  // namespace

RuleResult tensor_cores_with(const loop::Function& f, sym::Context& c, const TensorCoreOptions& o) {
  const loop::Function inlined = rules::inline_elementwise(f, c);
  std::string why;
  auto k = rules::match_contraction(inlined, c, &why, rules::Column::of_group);
  if (k) round_dequantised(*k);
  if (k) why = fits(*k, o);
  if (!why.empty()) return {loop::not_applicable(why), {}};
  const DType operands = narrow_type(k->a);
  const TensorProblem p(c, std::move(*k), operands);
  const Index bytes = memory(c, p.contraction());
  const bool rows_only = !p.rows.is_const() && p.batches.is_const() && p.columns.is_const() && p.depth.is_const();
  if (rows_only && !o.tile) return by_rows(inlined, p, bytes, c);
  Problem sizes = problem(p);
  if (bytes.is_const()) sizes.memory = static_cast<double>(bytes.value());
  return {{true, ""}, tensor_kernel(inlined, p, choose_tile(sizes, o), c)};
}

RuleResult tensor_cores(const loop::Function& f, sym::Context& c, const ScheduleOptions& o) {
  TensorCoreOptions t;
  t.tf32 = o.tf32;
  return tensor_cores_with(f, c, t);
}

}  // namespace tripod::cuda
