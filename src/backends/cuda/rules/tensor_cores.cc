// Contractions of 16-bit floats, accumulated in f32, on tensor cores: matrix products, batches of them, convolutions as
// implicit products (rows are pixels, the reduction runs over the window with the channels innermost).
//
// Applies when the accumulator is f32 and both operands are f16, or both bf16, before they are converted (or both f32,
// where the precision tf32 was asked for). The order of the sum is the hardware's.
#include <set>

#include "backends/cuda/rules/tensor_cores.h"
#include "rules/inline.h"

namespace tripod::cuda {

using loop::Expr;

namespace {

// The type that an operand is converted from.
DType narrow_type(const Expr& e) { return e->op == loop::Op::cast ? e->args[0]->dtype : e->dtype; }

std::string fits(const rules::Contraction& k, const TensorCoreOptions& o) {
  const DType a = narrow_type(k.a), b = narrow_type(k.b);
  if (k.dtype != DType::f32) return "the sum is not of f32";
  if (a != b) return "operands of different types";
  if (a == DType::f16 || a == DType::bf16) return "";
  if (a == DType::f32 && o.tf32) return "";
  return "operands of " + std::string(name(a));
}

// Bytes of the tensors of a contraction, each counted once; 0 where a size is open.
double memory(sym::Context& c, const rules::Contraction& k) {
  std::set<const loop::BufferNode*> seen;
  double total = 0;
  bool open = false;
  const auto add = [&](const Buffer& b) {
    if (b == k.acc || !seen.insert(b.get()).second) return;
    const Index size = loop::storage_size(c, b);
    open = open || !size.is_const();
    if (!open) total += static_cast<double>(size.value()) * info(b->dtype).bits / 8;
  };
  std::vector<Expr> values{k.a, k.b};
  for (const auto& e : k.epilogue) values.push_back(e.value), add(e.target);
  for (const Expr& v : values)
    loop::visit(v, [&](const Expr& x) { if (x->op == loop::Op::load) add(x->buffer); });
  return open ? 0 : total;
}

}  // namespace

RuleResult tensor_cores_with(const loop::Function& f, sym::Context& c, const TensorCoreOptions& o) {
  const loop::Function inlined = rules::inline_elementwise(f, c);
  std::string why;
  auto k = rules::match_contraction(inlined, c, &why);
  if (k) why = fits(*k, o);
  if (!why.empty()) return {loop::not_applicable(why), {}};
  const DType operands = narrow_type(k->a);
  const TensorProblem p(c, std::move(*k), operands);
  const Problem sizes{p.batches.constant(), p.rows.constant(), p.columns.constant(), p.depth.constant(), info(operands).bits / 8, memory(c, p.contraction())};
  const Choice choice = choose_tile(sizes, o);
  return {{true, ""}, tensor_kernel(inlined, p, choice, c)};
}

RuleResult tensor_cores(const loop::Function& f, sym::Context& c, const ScheduleOptions& o) {
  TensorCoreOptions t;
  t.tf32 = o.tf32;
  return tensor_cores_with(f, c, t);
}

}  // namespace tripod::cuda
