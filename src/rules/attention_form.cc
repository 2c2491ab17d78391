#include "rules/attention_form.h"

#include <algorithm>

namespace tripod::rules {

using loop::Iter;
using loop::Op;
using loop::StmtKind;
using loop::StmtNode;

namespace {

// One block: its store, and its iterators by kind.
struct Part {
  const StmtNode* store = nullptr;
  std::vector<Iter> spatial, reduce;
  Indices vars() const {
    Indices r;
    for (const Iter& i : spatial) r.push_back(i.var);
    return r;
  }
};

// Expressions are not interned: compared node by node. What is built here says exactly what must stand there.
bool same(const Expr& a, const Expr& b) {
  if (a == b) return true;
  if (!a || !b || a->op != b->op || a->dtype != b->dtype || a->bits != b->bits || !(a->buffer == b->buffer)) return false;
  if (!(a->value == b->value) || !(a->guard == b->guard) || a->indices != b->indices || a->args.size() != b->args.size()) return false;
  for (size_t i = 0; i < a->args.size(); ++i)
    if (!same(a->args[i], b->args[i])) return false;
  return same(a->other, b->other);
}

Expr number(double v) { return loop::constant(DType::f32, v); }

class Matcher {
 public:
  Matcher(const loop::Function& f, std::string* why) : f_(f), why_(why) {}

  std::optional<AttentionForm> run() {
    if (!take_apart() || !scores() || !exponentials() || !result()) return std::nullopt;
    return std::move(form_);
  }

 private:
  bool refuse(const std::string& why) { return *why_ = why, false; }

  bool take_apart() {
    Stmt s = f_.body;
    int internal = 0;
    while (s->kind == StmtKind::alloc) ++internal, s = s->body[0];
    for (const Stmt& b : s->kind == StmtKind::seq ? s->body : std::vector<Stmt>{s}) {
      if (b->kind != StmtKind::block || b->body[0]->kind != StmtKind::store || b->body[0]->guard) return refuse("a block is not one plain store");
      Part p;
      p.store = b->body[0].get();
      for (const Iter& i : b->iters) (i.reduce ? p.reduce : p.spatial).push_back(i);
      parts_.push_back(std::move(p));
    }
    // Six blocks, or seven where what makes logits of scores is costly.
    has_logits_ = parts_.size() == 7;
    if (parts_.size() != 6 && !has_logits_) return refuse("not the blocks of attention");
    if (internal + 1 != static_cast<int>(parts_.size())) return refuse("not the buffers of attention");
    const auto shape = [&](size_t i, size_t spatial, size_t reduce) {
      const Part& p = part(i);
      return p.spatial.size() == spatial && p.reduce.size() == reduce && p.store->buffer->dtype == DType::f32 && p.store->indices == p.vars();
    };
    if (!shape(kScore, 4, 1) || !shape(kMax, 3, 1) || !shape(kExp, 4, 0) || !shape(kSum, 3, 1) || !shape(kWeighted, 4, 1))
      return refuse("not the blocks of attention");
    if (has_logits_ && !(parts_[1].spatial.size() == 4 && parts_[1].reduce.empty() && parts_[1].store->indices == parts_[1].vars())) return refuse("not the blocks of attention");
    return part(kResult).spatial.size() == 4 && part(kResult).reduce.empty() && part(kResult).store->indices == part(kResult).vars() ? true : refuse("not the blocks of attention");
  }

  enum : size_t { kScore, kMax, kExp, kSum, kWeighted, kResult };
  const Part& part(size_t i) const { return parts_[i > kScore && has_logits_ ? i + 1 : i]; }
  static Expr element(const Part& written, const Indices& at) { return loop::load(written.store->buffer, at); }
  static bool sums(const Part& p, Op op) {
    const Expr& v = p.store->value;
    return v->op == op && same(v->args[op == Op::fma ? 2 : 0], element(p, p.vars()));
  }

  // An operand that is one load, or that converted: [.., .., key, along].
  bool operand(const Expr& e, Index key, Index along, const Indices& others, const char* name) {
    const Expr load = e->op == Op::cast ? e->args[0] : e;
    if (load->op != Op::load || load->guard || load->indices.size() != 4) return refuse(std::string(name) + " is not one load");
    if (!(load->indices[2] == key) || !(load->indices[3] == along)) return refuse(std::string(name) + " is not indexed by key and column");
    for (const Index& v : others)
      if (sym::uses(load->indices[0], v) || sym::uses(load->indices[1], v)) return refuse(std::string(name) + " moves with more than batch and head");
    return true;
  }

  bool scores() {
    const Part &score = part(kScore), &max = part(kMax);
    if (!sums(score, Op::fma) || !sums(max, Op::max)) return refuse("no scores and their maxima");
    const Indices at = {max.spatial[0].var, max.spatial[1].var, max.spatial[2].var, max.reduce[0].var};
    form_.b = at[0], form_.h = at[1], form_.query = at[2], form_.key = at[3], form_.d = score.reduce[0].var;
    form_.batch = max.spatial[0].extent, form_.heads = max.spatial[1].extent, form_.queries = max.spatial[2].extent;
    form_.keys = max.reduce[0].extent, form_.depth = score.reduce[0].extent;
    if (!form_.depth.is_const() || form_.depth.value() < 1) return refuse("the head size is not known");
    sym::Map m;
    for (size_t d = 0; d < 4; ++d) m[score.spatial[d].var] = at[d];
    form_.q = loop::substitute(score.store->value->args[0], m), form_.k = loop::substitute(score.store->value->args[1], m);
    if (!operand(form_.k, form_.key, form_.d, {form_.query, form_.key, form_.d}, "k")) return false;
    return logits(at);
  }

  bool logits(const Indices& at) {
    Expr l = part(kMax).store->value->args[1];
    if (has_logits_) {
      const Part& p = parts_[1];
      if (!same(l, element(p, at))) return refuse("the maxima are not those of the logits");
      sym::Map m;
      for (size_t d = 0; d < 4; ++d) m[p.spatial[d].var] = at[d];
      l = loop::substitute(p.store->value, m);
    }
    const Buffer score = part(kScore).store->buffer;
    bool own = true;
    loop::visit(l, [&](const Expr& e) { own = own && (e->op != Op::load || !(e->buffer == score) || (e->indices == at && !e->guard)); });
    if (!own) return refuse("a logit depends on another score");
    form_.logit = [l, score](const Expr& value, const sym::Map& m) { return Logit(score, value, m).apply(l); };
    if (l->op == Op::select && l->args[0]->op == Op::index && same(l->args[2], number(-kInfinity))) form_.visible = monotonous(l->args[0]->value);
    form_.scale = factor_of(form_.visible ? l->args[1] : l, loop::load(score, at));
    return true;
  }

  // e == score * a positive number.
  static std::optional<double> factor_of(const Expr& e, const Expr& score) {
    if (same(e, score)) return 1;
    if (e->op != Op::mul) return std::nullopt;
    for (int i : {0, 1}) {
      const Expr& other = e->args[1 - i];
      if (same(e->args[i], score) && other->op == Op::constant && loop::constant_value(other) > 0) return loop::constant_value(other);
    }
    return std::nullopt;
  }

  // The condition where a later key or an earlier query makes it no truer.
  Index monotonous(Index e) const {
    if (e->op != sym::Op::lt && e->op != sym::Op::le) return {};
    const Index room = e.arg(1) - e.arg(0);
    const auto key = sym::linear_in(room, form_.key), query = sym::linear_in(room, form_.query);
    const bool good = key && query && sym::proved(sym::le(key->coefficient, 0)) && sym::proved(sym::ge(query->coefficient, 0));
    return good ? e : Index();
  }

  struct Logit : loop::Rewriter {
    Logit(Buffer score, Expr value, const sym::Map& m) : score(std::move(score)), value(std::move(value)), map(m) {}
    using loop::Rewriter::rewrite;
    Expr rewrite(const Expr& e) override { return e->op == Op::load && e->buffer == score ? value : Expr(); }
    Index rewrite_index(Index i) override { return sym::substitute(i, map); }
    Buffer score;
    Expr value;
    const sym::Map& map;
  };

  bool exponentials() {
    const Part &max = part(kMax), &e = part(kExp), &sum = part(kSum);
    const Indices at = e.vars();
    sym::Map m;
    for (size_t d = 0; d < 3; ++d) m[max.spatial[d].var] = at[d];
    m[max.reduce[0].var] = at[3];
    const Expr most = element(max, {at[0], at[1], at[2]});
    const Expr shift = loop::select(loop::eq(most, number(-kInfinity)), number(0), most);
    if (e.store->value->op == Op::exp_light) form_.exponential = Op::exp_light;
    const Expr want = loop::make(form_.exponential, {loop::substitute(max.store->value->args[1], m) - shift});
    if (!same(e.store->value, want)) return refuse("no exponentials of logits less their maxima");
    Indices row = sum.vars();
    row.push_back(sum.reduce[0].var);
    return sums(sum, Op::add) && same(sum.store->value->args[1], element(e, row)) ? true : refuse("no sums of the exponentials");
  }

  bool result() {
    const Part &w = part(kWeighted), &y = part(kResult);
    const Indices at = w.vars();
    const Index key = w.reduce[0].var;
    if (!sums(w, Op::fma) || !same(w.store->value->args[0], element(part(kExp), {at[0], at[1], at[2], key}))) return refuse("no sums of weighted values");
    form_.columns = w.spatial[3].extent;
    if (!form_.columns.is_const() || form_.columns.value() < 1) return refuse("the size of the values is not known");
    if (!operand(w.store->value->args[1], key, at[3], {at[2], at[3], key}, "v")) return false;
    form_.v = loop::substitute(w.store->value->args[1], {{at[0], form_.b}, {at[1], form_.h}});
    const Expr k = only_load(form_.k), v = only_load(form_.v);
    for (size_t d : {0, 1})
      if (!(k->indices[d] == v->indices[d]) || !(k->buffer->shape[d] == v->buffer->shape[d])) return refuse("k and v differ in batch or heads");
    const Indices to = y.vars();
    const Expr total = element(part(kSum), {to[0], to[1], to[2]});
    const Expr quotient = element(w, to) / loop::select(loop::eq(total, number(0)), number(1), total);
    form_.result = y.store->buffer;
    return same(y.store->value, loop::cast(quotient, form_.result->dtype)) ? true : refuse("the result is not the quotient");
  }

  const loop::Function& f_;
  std::string* why_;
  std::vector<Part> parts_;
  bool has_logits_ = false;
  AttentionForm form_;
};

}  // namespace

std::optional<AttentionForm> match_attention(const loop::Function& f, std::string* why) { return Matcher(f, why).run(); }

}  // namespace tripod::rules
