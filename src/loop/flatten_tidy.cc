#include "loop/flatten_passes.h"

namespace tripod::loop {
namespace {

bool is_empty(const Stmt& s) { return s->kind == StmtKind::seq && s->body.empty(); }

// A guard without the conjuncts that always hold; empty when nothing is left, the constant 0 when it never holds.
Index simplify_guard(Index guard) {
  std::vector<Index> all;
  split_conjunction(guard, all);
  Index r;
  for (Index c : all) {
    const sym::Truth t = sym::prove(c);
    if (t == sym::Truth::no) return guard.context().constant(0);
    if (t == sym::Truth::unknown) r = r ? sym::logical_and(r, c) : c;
  }
  return r;
}

struct Tidy : Rewriter {
  Expr rewrite(const Expr& e) override {
    if (e->op != Op::load || !e->guard) return nullptr;
    const Index g = simplify_guard(e->guard);
    return load_guarded(e->buffer, e->indices, g, apply(e->other));
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

  Stmt tidy_loop(const Stmt& s) {
    if (sym::proved(sym::le(s->extent, 0))) return seq({});
    if (s->extent.is_const(1)) return apply(substitute(s->body[0], {{s->var, s->extent.context().constant(0)}}));
    const Stmt r = rewrite_children(s);
    return is_empty(r->body[0]) ? seq({}) : r;
  }

  Stmt tidy_branch(const Stmt& s) {
    if (s->value->op != Op::index) return drop_empty(rewrite_children(s));
    const Index g = simplify_guard(s->value->value);
    if (!g) return apply(s->body[0]);
    const Stmt otherwise = s->body.size() > 1 ? apply(s->body[1]) : nullptr;
    if (g.is_const(0)) return otherwise ? otherwise : seq({});
    return drop_empty(branch(from_index(DType::b1, g), apply(s->body[0]), otherwise));
  }

  static Stmt drop_empty(const Stmt& s) {
    if (s->kind != StmtKind::branch) return s;
    if (s->body.size() > 1 && is_empty(s->body[1])) return drop_empty(branch(s->value, s->body[0]));
    return s->body.size() == 1 && is_empty(s->body[0]) ? seq({}) : s;
  }
};

}  // namespace

Stmt tidy(const Stmt& s) { return Tidy().apply(s); }

}  // namespace tripod::loop
