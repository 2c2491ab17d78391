#include "loop/flatten_passes.h"

namespace tripod::loop {
namespace {

bool is_empty(const Stmt& s) { return s->kind == StmtKind::seq && s->body.empty(); }

// A comparison as `d <= 0`; nothing for other conditions.
Index as_difference(Index c) {
  if (c->op == sym::Op::le) return c.arg(0) - c.arg(1);
  if (c->op == sym::Op::lt) return c.arg(0) - c.arg(1) + 1;
  return {};
}

class Tidy : public Rewriter {
 public:
  Expr rewrite(const Expr& e) override {
    if (e->op != Op::load || !e->guard) return nullptr;
    return load_guarded(e->buffer, e->indices, simplify_guard(e->guard), apply(e->other));
  }

  Stmt rewrite(const Stmt& s) override {
    switch (s->kind) {
      case StmtKind::loop: return tidy_loop(s);
      case StmtKind::store:
        return store(s->buffer, s->indices, apply(s->value), s->guard ? simplify_guard(s->guard) : s->guard);
      case StmtKind::branch: return tidy_branch(s);
      case StmtKind::let:
      case StmtKind::alloc: {
        const Stmt r = rewrite_children(s);
        return is_empty(r->body[0]) ? seq({}) : r;
      }
      default: return nullptr;
    }
  }

 private:
  // --- what the branches around say: each is d <= 0 ---

  bool implied(Index c) const {
    if (sym::proved(c)) return true;
    const Index d = as_difference(c);
    if (!d) return false;
    for (Index k : known_)
      if (sym::proved(sym::le(d, k))) return true;
    return false;
  }

  // Runs f knowing that c holds.
  template <class F>
  Stmt knowing(Index c, F f) {
    std::vector<Index> all;
    split_conjunction(c, all);
    const size_t before = known_.size();
    for (Index a : all)
      if (Index d = as_difference(a)) known_.push_back(d);
    forget();
    Stmt r = f();
    forget();
    known_.resize(before);
    return r;
  }

  // A guard without the conjuncts that always hold; empty when nothing is left, the constant 0 when it never holds.
  Index simplify_guard(Index guard) const {
    std::vector<Index> all;
    split_conjunction(guard, all);
    Index r;
    for (Index c : all) {
      if (implied(c)) continue;
      if (implied(sym::logical_not(c))) return guard.context().constant(0);
      r = r ? sym::logical_and(r, c) : c;
    }
    return r;
  }

  Index simplify_extent(Index e) const {
    if (e->op != sym::Op::min) return e;
    const Index a = e.arg(0), b = e.arg(1);
    if (implied(sym::le(a, b))) return simplify_extent(a);
    if (implied(sym::le(b, a))) return simplify_extent(b);
    return e;
  }

  // --- statements ---

  Stmt tidy_loop(const Stmt& s) {
    const Index extent = simplify_extent(s->extent);
    if (implied(sym::le(extent, 0))) return seq({});
    if (extent.is_const(1)) return apply(substitute(s->body[0], {{s->var, extent.context().constant(0)}}));
    const Stmt body = apply(s->body[0]);
    if (is_empty(body)) return seq({});
    if (extent == s->extent && body == s->body[0]) return s;
    return loop(s->var, extent, s->loop_kind, body, s->grain);
  }

  Stmt tidy_branch(const Stmt& s) {
    const Stmt otherwise = s->body.size() > 1 ? s->body[1] : seq({});
    if (s->value->op != Op::index) return joined(apply(s->value), apply(s->body[0]), apply(otherwise));
    const Index g = simplify_guard(s->value->value);
    if (!g) return apply(s->body[0]);
    if (g.is_const(0)) return apply(otherwise);
    const Stmt then = knowing(g, [&] { return apply(s->body[0]); });
    return joined(from_index(DType::b1, g), then, knowing(sym::logical_not(g), [&] { return apply(otherwise); }));
  }

  static Stmt joined(const Expr& condition, const Stmt& then, const Stmt& otherwise) {
    if (is_empty(then) && is_empty(otherwise)) return seq({});
    return branch(condition, then, is_empty(otherwise) ? nullptr : otherwise);
  }

  std::vector<Index> known_;
};

}  // namespace

Stmt tidy(const Stmt& s) { return Tidy().apply(s); }

}  // namespace tripod::loop
