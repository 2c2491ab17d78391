#include <unordered_set>

#include "loop/ir.h"

namespace tripod::loop {

// --- Rewriter -----------------------------------------------------------------------------------------------------

Expr Rewriter::rewrite(const Expr& e) { return rewrite_children(e); }
Stmt Rewriter::rewrite(const Stmt& s) { return rewrite_children(s); }

Expr Rewriter::apply(const Expr& e) {
  if (auto it = done_.find(e.get()); it != done_.end()) return it->second.second;
  Expr r = rewrite(e);
  if (!r) r = rewrite_children(e);
  done_.emplace(e.get(), std::pair(e, r));
  return r;
}

Stmt Rewriter::apply(const Stmt& s) {
  Stmt r = rewrite(s);
  return r ? r : rewrite_children(s);
}

std::vector<Index> Rewriter::rewrite_indices(const std::vector<Index>& is) {
  std::vector<Index> r;
  r.reserve(is.size());
  for (Index i : is) r.push_back(rewrite_index(i));
  return r;
}

Expr Rewriter::rewrite_children(const Expr& e) {
  if (e->op == Op::constant) return e;
  if (e->op == Op::index) {
    const Index v = rewrite_index(e->value);
    return v == e->value ? e : from_index(e->dtype, v);
  }
  if (e->op == Op::load) {
    const Buffer b = rewrite_buffer(e->buffer);
    std::vector<Index> indices = rewrite_indices(e->indices);
    const Index guard = e->guard ? rewrite_index(e->guard) : e->guard;
    const Expr other = e->other ? apply(e->other) : e->other;
    if (b == e->buffer && indices == e->indices && guard == e->guard && other == e->other) return e;
    return load_guarded(b, std::move(indices), guard, other);
  }
  std::vector<Expr> args;
  args.reserve(e->args.size());
  for (const Expr& a : e->args) args.push_back(apply(a));
  if (args == e->args) return e;
  if (e->op == Op::cast) return cast(args[0], e->dtype);
  if (e->op == Op::bitcast) return bitcast(args[0], e->dtype);
  return make(e->op, std::move(args));
}

Stmt Rewriter::rewrite_children(const Stmt& s) {
  // A copy with every child rewritten; thrown away when nothing changed.
  Ref<StmtNode> n(new StmtNode(*s));
  bool changed = false;
  const auto set = [&](auto& field, auto value) {
    if (!(field == value)) {
      field = std::move(value);
      changed = true;
    }
  };
  const auto index = [&](Index& i) {
    if (i) set(i, rewrite_index(i));
  };
  // A variable that is bound here is renamed when it is rewritten to another variable, and else stays.
  const auto binder = [&](Index& i) {
    if (const Index v = rewrite_index(i); v.is_var()) set(i, v);
  };
  if (s->var) {
    if (s->kind == StmtKind::check) index(n->var);
    else binder(n->var);
  }
  index(n->extent);
  for (Iter& it : n->iters) {
    binder(it.var);
    index(it.extent);
    index(it.binding);
  }
  index(n->predicate);
  if (s->buffer) set(n->buffer, rewrite_buffer(s->buffer));
  set(n->indices, rewrite_indices(s->indices));
  if (s->value) set(n->value, apply(s->value));
  index(n->guard);
  for (Region& r : n->regions) {
    set(r.buffer, rewrite_buffer(r.buffer));
    set(r.offset, rewrite_indices(r.offset));
    set(r.extent, rewrite_indices(r.extent));
  }
  if (s->init) set(n->init, apply(s->init));
  for (Stmt& b : n->body) set(b, apply(b));
  if (!changed) return s;
  if (s->kind == StmtKind::seq) return seq(n->body);
  if (s->kind == StmtKind::branch) return branch(n->value, n->body[0], n->body.size() > 1 ? n->body[1] : nullptr);
  if (s->kind == StmtKind::store) return store(n->buffer, n->indices, n->value, n->guard);
  return Stmt(n.get());
}

// --- substitute ---------------------------------------------------------------------------------------------------

namespace {

struct Substitute : Rewriter {
  explicit Substitute(const sym::Map& vars) : vars(vars) {}
  Index rewrite_index(Index i) override { return sym::substitute(i, vars); }
  // A buffer whose shape or layout mentions a replaced variable becomes another buffer, the same one everywhere.
  Buffer rewrite_buffer(const Buffer& b) override {
    if (auto it = buffers.find(b.get()); it != buffers.end()) return it->second.second;
    std::vector<Index> shape = rewrite_indices(b->shape);
    Layout l = b->layout;
    l.map = rewrite_indices(l.map);
    l.extents = rewrite_indices(l.extents);
    const bool same = shape == b->shape && l.map == b->layout.map && l.extents == b->layout.extents;
    const Buffer r = same ? b : make_buffer(b->name, b->dtype, std::move(shape), b->scope, std::move(l));
    buffers.emplace(b.get(), std::pair(b, r));
    return r;
  }
  const sym::Map& vars;
  std::unordered_map<const BufferNode*, std::pair<Buffer, Buffer>> buffers;
};

}  // namespace

Stmt substitute(const Stmt& s, const sym::Map& vars) { return vars.empty() ? s : Substitute(vars).apply(s); }
Expr substitute(const Expr& e, const sym::Map& vars) { return vars.empty() ? e : Substitute(vars).apply(e); }

// --- visit --------------------------------------------------------------------------------------------------------

namespace {

struct Visitor {
  const std::function<void(const Stmt&)>* on_stmt;
  const std::function<void(const Expr&)>* on_expr;
  std::unordered_set<const ExprNode*> seen;

  void walk(const Expr& e) {
    if (!e || !seen.insert(e.get()).second) return;
    (*on_expr)(e);
    for (const Expr& a : e->args) walk(a);
    walk(e->other);
  }
  void walk(const Stmt& s) {
    if (!s) return;
    if (*on_stmt) (*on_stmt)(s);
    if (*on_expr) walk(s->value);
    walk(s->init);
    for (const Stmt& b : s->body) walk(b);
  }
};

}  // namespace

void visit(const Stmt& s, const std::function<void(const Stmt&)>& f, const std::function<void(const Expr&)>& g) {
  Visitor{&f, &g, {}}.walk(s);
}

void visit(const Expr& e, const std::function<void(const Expr&)>& g) {
  const std::function<void(const Stmt&)> none;
  Visitor{&none, &g, {}}.walk(e);
}

}  // namespace tripod::loop
