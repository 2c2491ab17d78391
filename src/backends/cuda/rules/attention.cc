// Attention of 16-bit floats as one kernel (the plan is in attention.h): what it works on, and its shape.
#include "backends/cuda/rules/attention.h"

#include <algorithm>
#include <cmath>

#include "rules/inline.h"

namespace tripod::cuda {

using loop::Iter;
using rules::AttentionForm;

namespace {

constexpr int64_t kHeadSize = 256;      // at most: a row's results are registers
constexpr int64_t kMostKeys = 128;      // of a step
constexpr double kLog2E = 1.4426950408889634;

DType narrow_type(const Expr& e) { return e->op == loop::Op::cast ? e->args[0]->dtype : e->dtype; }

std::string why_not(const AttentionForm& f) {
  const DType t = narrow_type(f.q);
  if (t != DType::f16 && t != DType::bf16) return "operands of " + std::string(name(t));
  if (narrow_type(f.k) != t || narrow_type(f.v) != t) return "operands of different types";
  if (f.depth.value() > kHeadSize || f.columns.value() > kHeadSize) return "heads of more than " + std::to_string(kHeadSize) + " numbers";
  return "";
}

Iter iterator(Index var, Index extent) { return {var, extent, false, {}}; }

}  // namespace

std::optional<int64_t> heads_of_a_group(const AttentionForm& f) {
  const Index at = rules::only_load(f.k)->indices[1];
  if (at == f.h) return 1;
  if (at.is_const(0)) return f.heads.constant();
  if (at->op == sym::Op::floordiv && at.arg(0) == f.h && at.arg(1).is_const() && sym::proved(sym::eq(sym::mod(f.heads, at.arg(1)), at.context().constant(0))))
    return at.arg(1).value();
  return std::nullopt;
}

AttentionProblem::AttentionProblem(sym::Context& c, AttentionForm f, bool packed) : c_(c), f_(std::move(f)), packed_(packed) {
  std::vector<Iter> batch{iterator(f_.b, f_.batch), iterator(f_.h, f_.heads)}, rows{iterator(f_.query, f_.queries)};
  sym::Map head;
  if (packed_) {
    const Index group = c.constant(*heads_of_a_group(f_));
    kv_head_ = rules::loop_var(c, "kv_head", sym::floordiv(f_.heads, group)), group_head_ = rules::loop_var(c, "group_head", group);
    batch[1] = iterator(kv_head_, sym::floordiv(f_.heads, group));
    rows.insert(rows.begin(), iterator(group_head_, group));
    head[f_.h] = kv_head_ * group + group_head_;
  }
  const auto operand = [&](const Expr& e) { return head.empty() ? e : loop::substitute(e, head); };
  const DType t = narrow_type(f_.q);
  rules::Contraction s;
  s.name = "score", s.a = operand(f_.q), s.b = operand(f_.k), s.dtype = DType::f32;
  s.batch = batch, s.rows = rows, s.column = iterator(f_.key, f_.keys), s.reduce = {iterator(f_.d, f_.depth)};
  scores_.emplace(c, s, t);
  rules::Contraction v = s;
  const Indices of_v = rules::only_load(f_.v)->indices;
  v.name = "value", v.a = Expr(), v.b = operand(f_.v);
  v.column = iterator(of_v[3], f_.columns), v.reduce = {iterator(of_v[2], f_.keys)};
  values_.emplace(c, v, t);
}

sym::Map AttentionProblem::place(Index batch, Index row) const {
  sym::Map m;
  scores_->bind_batch(m, batch);
  scores_->bind_line(m, true, row);
  if (packed_) m[f_.h] = m.at(kv_head_) * *heads_of_a_group(f_) + m.at(group_head_);
  return m;
}

// Rows and keys beyond the end repeat the last one, so that what the logit loads is there.
Expr AttentionProblem::logit(const Expr& score, Index batch, Index row, Index key) const {
  sym::Map m = place(batch, sym::min(row, rows() - 1));
  m[f_.key] = sym::min(key, f_.keys - 1);
  return f_.logit(score, m);
}

Stmt AttentionProblem::store(Index batch, Index row, Index column, const Expr& value) const {
  const sym::Map m = place(batch, row);
  return loop::store(f_.result, {m.at(f_.b), m.at(f_.h), m.at(f_.query), column}, loop::cast(value, f_.result->dtype));
}

AttentionProblem::Seen AttentionProblem::seen(Index first, Index last) const {
  const Index none = c_.constant(0);
  if (!f_.visible) return {f_.keys, f_.keys};
  const Index room = f_.visible.arg(1) - f_.visible.arg(0);
  const auto key = sym::linear_in(room, f_.key);
  if (!key || !key->coefficient.is_const(-1)) return {f_.keys, none};
  const Index count = key->rest + (f_.visible->op == sym::Op::le ? 1 : 0);  // keys that a query sees
  const auto of = [&](Index query) { return sym::max(sym::min(sym::substitute(count, {{f_.query, query}}), f_.keys), none); };
  if (packed_) return {of(f_.queries - 1), of(none)};
  return {of(sym::min(last, f_.queries - 1)), of(first)};
}

double AttentionProblem::unit() const { return f_.scale.value_or(1) * kLog2E; }

bool AttentionProblem::may_be_blind() const {
  return !plain() || f_.visible || !sym::proved(sym::ge(f_.keys, 1)) || f_.keys->divisor % kMostKeys != 0;
}

Expr shift_of(const Expr& m) {
  return loop::select(loop::eq(m, loop::constant(DType::f32, -rules::kInfinity)), loop::constant(DType::f32, 0), m);
}

RuleResult attention_with(const loop::Function& f, sym::Context& c, const std::vector<AttentionVariant>& variants) {
  std::string why;
  const loop::Function inlined = rules::inline_elementwise(f, c);
  auto form = rules::match_attention(inlined, &why);
  if (form) why = why_not(*form);
  if (!why.empty()) return {loop::not_applicable(why), {}};
  RuleResult result{{true, ""}, inlined};
  for (const AttentionVariant& v : variants.empty() ? choose_attention(*form, c) : variants) {
    const AttentionKernels k = attention_kernels(AttentionProblem(c, *form, v.packed), v, c);
    loop::Function r = inlined;
    r.body = loop::seq(k.kernels);
    for (const Buffer& b : k.workspace) r.body = loop::alloc(b, r.body);
    if (v.when) result.variants.push_back({v.when, r});
    else result.function = r;
  }
  return result;
}

RuleResult attention(const loop::Function& f, sym::Context& c) { return attention_with(f, c, {}); }

}  // namespace tripod::cuda
