#include "rules/inline.h"

#include <algorithm>

namespace tripod::rules {

using loop::StmtKind;
using loop::StmtNode;

namespace {

// The blocks of a function in compute form, in order, and the buffers allocated around them.
struct Parts {
  std::vector<Buffer> temporaries;
  std::vector<Stmt> blocks;
};
Parts take_apart(const loop::Function& f) {
  Parts p;
  Stmt s = f.body;
  while (s->kind == StmtKind::alloc) p.temporaries.push_back(s->buffer), s = s->body[0];
  p.blocks = s->kind == StmtKind::seq ? s->body : std::vector<Stmt>{s};
  return p;
}

bool reads(const Stmt& s, const Buffer& b) {
  bool found = false;
  loop::visit(s, [](const Stmt&) {}, [&](const Expr& e) { found = found || (e->op == loop::Op::load && e->buffer == b); });
  return found;
}
bool writes(const Stmt& s, const Buffer& b) {
  bool found = false;
  loop::visit(s, [&](const Stmt& t) { found = found || (t->kind == StmtKind::store && t->buffer == b); });
  return found;
}
bool is_reduction(const Stmt& s) {
  return std::any_of(s->iters.begin(), s->iters.end(), [](const loop::Iter& i) { return i.reduce; });
}

// Cheap enough to compute again for every reader: no math, division or root, and few operations.
bool is_cheap(const Expr& e) {
  int count = 0;
  bool costly = false;
  loop::visit(e, [&](const Expr& x) {
    count += x->op != loop::Op::constant && x->op != loop::Op::load && x->op != loop::Op::index;
    costly = costly || loop::is_math(x->op) || x->op == loop::Op::div || x->op == loop::Op::sqrt;
  });
  return !costly && count <= 8;
}

// buffer[its iterators] = value, nothing else: what can be put in the place of a load.
bool is_definition(const Stmt& b) {
  if (is_reduction(b) || b->init || b->body[0]->kind != StmtKind::store || b->body[0]->guard) return false;
  const StmtNode& s = *b->body[0];
  if (s.indices.size() != b->iters.size()) return false;
  for (size_t d = 0; d < s.indices.size(); ++d)
    if (!(s.indices[d] == b->iters[d].var)) return false;
  return true;
}

struct Inliner : loop::Rewriter {
  explicit Inliner(const Stmt& producer) : p_(*producer) {}
  using loop::Rewriter::rewrite;
  Expr rewrite(const Expr& e) override {
    if (e->op != loop::Op::load || !(e->buffer == p_.body[0]->buffer)) return nullptr;
    const Expr v = value_at(e->indices);
    if (!e->guard) return v;
    return loop::select(loop::from_index(DType::b1, e->guard), guard_loads(v, e->guard), apply(e->other));
  }

 private:
  // Loads of one place share one value: else a chain of x*x would double with every link.
  Expr value_at(const Indices& at) {
    for (const auto& [known, value] : values_)
      if (known == at) return value;
    sym::Map m;
    for (size_t d = 0; d < p_.iters.size(); ++d) m[p_.iters[d].var] = at[d];
    return values_.emplace_back(at, loop::substitute(p_.body[0]->value, m)).second;
  }
  const StmtNode& p_;
  std::vector<std::pair<Indices, Expr>> values_;
};

}  // namespace

loop::Function inline_elementwise(const loop::Function& f, sym::Context&) {
  Parts p = take_apart(f);
  for (size_t i = 0; i < p.blocks.size();) {
    const Stmt b = p.blocks[i];
    const Buffer t = is_definition(b) ? b->body[0]->buffer : Buffer();
    const bool internal = std::find(p.temporaries.begin(), p.temporaries.end(), t) != p.temporaries.end();
    std::vector<size_t> readers;
    int writers = 0, reducing = 0;
    for (size_t j = 0; t && j < p.blocks.size(); ++j) {
      writers += writes(p.blocks[j], t);
      if (j != i && reads(p.blocks[j], t)) readers.push_back(j), reducing += is_reduction(p.blocks[j]);
    }
    // A reader may repeat the work: a second reader always does, a contraction once for each result.
    const bool repeats = readers.size() > 1 || (reducing && b->iters.size() < p.blocks[readers[0]]->iters.size());
    if (!t || !internal || writers != 1 || readers.empty() || (repeats && !is_cheap(b->body[0]->value))) {
      ++i;
      continue;
    }
    for (size_t j : readers) p.blocks[j] = Inliner(b).apply(p.blocks[j]);
    p.blocks.erase(p.blocks.begin() + i);
    p.temporaries.erase(std::find(p.temporaries.begin(), p.temporaries.end(), t));
  }
  loop::Function r = f;
  r.body = loop::seq(p.blocks);
  for (size_t i = p.temporaries.size(); i-- > 0;) r.body = loop::alloc(p.temporaries[i], r.body);
  return r;
}

namespace {
struct Replacer : loop::Rewriter {
  Replacer(const Expr& from, const Expr& to) : from_(from), to_(to) {}
  using loop::Rewriter::rewrite;
  Expr rewrite(const Expr& e) override { return e == from_ ? to_ : nullptr; }
  Expr from_, to_;
};
struct Guarder : loop::Rewriter {
  explicit Guarder(Index guard) : guard_(guard) {}
  using loop::Rewriter::rewrite;
  Expr rewrite(const Expr& e) override {
    if (e->op != loop::Op::load || e->buffer->scope == loop::Scope::reg) return nullptr;
    const Index g = e->guard ? sym::logical_and(e->guard, guard_) : guard_;
    return loop::load_guarded(e->buffer, e->indices, g, e->other ? apply(e->other) : loop::constant_bits(e->dtype, 0));
  }
  Index guard_;
};
}  // namespace

bool uses(const Expr& e, Index var) {
  bool found = false;
  loop::visit(e, [&](const Expr& x) {
    for (const Index& i : x->indices) found = found || sym::uses(i, var);
    if (x->guard) found = found || sym::uses(x->guard, var);
    if (x->value) found = found || sym::uses(x->value, var);
  });
  return found;
}

Expr replace_load(const Expr& e, const Expr& from, const Expr& to) { return Replacer(from, to).apply(e); }
Expr guard_loads(const Expr& e, Index guard) { return Guarder(guard).apply(e); }

}  // namespace tripod::rules
