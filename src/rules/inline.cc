#include "rules/inline.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

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

// Blocks that are put in the place of loads, by the buffer that each defines. Values are kept in iterators that all
// definitions of one shape share: a chain then takes each value as it is, instead of renaming all that came before it
// once more with every link.
class Definitions {
 public:
  struct Value {
    std::vector<loop::Iter> iters;
    Expr value;
    std::vector<std::pair<Indices, Expr>> at;  // loads of one place share one value: else x*x doubles with every link
  };
  Value& add(const Stmt& block) {
    Indices extents;
    for (const loop::Iter& i : block->iters) extents.push_back(i.extent);
    const auto& shared = shared_.emplace(extents, block->iters).first->second;
    return values_[block->body[0]->buffer.get()] = {shared, nullptr, {}};
  }
  void remove(const Buffer& b) { values_.erase(b.get()); }

  // nullptr when b is not put in the place of loads.
  Expr value(const Buffer& b, const Indices& at) {
    const auto found = values_.find(b.get());
    if (found == values_.end()) return nullptr;
    Value& v = found->second;
    sym::Map m;
    bool same = true;
    for (size_t d = 0; d < v.iters.size(); ++d) {
      m[v.iters[d].var] = at[d];
      same = same && v.iters[d].var == at[d];
    }
    if (same) return v.value;
    for (const auto& [known, value] : v.at)
      if (known == at) return value;
    return v.at.emplace_back(at, loop::substitute(v.value, m)).second;
  }

 private:
  struct ByHash {
    size_t operator()(const Indices& is) const {
      size_t h = is.size();
      for (const Index& i : is) h = h * 31 + sym::Hash()(i);
      return h;
    }
  };
  std::unordered_map<Indices, std::vector<loop::Iter>, ByHash> shared_;
  std::unordered_map<const loop::BufferNode*, Value> values_;
};

// Renames iterators and puts definitions in the place of loads; what is put there is not walked again.
struct Inliner : loop::Rewriter {
  Inliner(Definitions& definitions, sym::Map renamed) : definitions_(definitions), renamed_(std::move(renamed)) {}
  using loop::Rewriter::rewrite;
  Index rewrite_index(Index i) override { return renamed_.empty() ? i : sym::substitute(i, renamed_); }
  Expr rewrite(const Expr& e) override {
    if (e->op != loop::Op::load) return nullptr;
    const Expr v = definitions_.value(e->buffer, rewrite_indices(e->indices));
    if (!v || !e->guard) return v;
    const Index guard = rewrite_index(e->guard);
    return loop::select(loop::from_index(DType::b1, guard), guard_loads(v, guard), apply(e->other));
  }

 private:
  Definitions& definitions_;
  sym::Map renamed_;
};

// The blocks that read and write each buffer, in order.
struct Uses {
  std::vector<size_t> readers, writers;
};
std::unordered_map<const loop::BufferNode*, Uses> find_uses(const std::vector<Stmt>& blocks) {
  std::unordered_map<const loop::BufferNode*, Uses> uses;
  const auto note = [](std::vector<size_t>& list, size_t i) {
    if (list.empty() || list.back() != i) list.push_back(i);
  };
  for (size_t i = 0; i < blocks.size(); ++i)
    loop::visit(
        blocks[i], [&](const Stmt& s) { if (s->kind == StmtKind::store) note(uses[s->buffer.get()].writers, i); },
        [&](const Expr& e) { if (e->op == loop::Op::load) note(uses[e->buffer.get()].readers, i); });
  return uses;
}

}  // namespace

loop::Function inline_elementwise(const loop::Function& f, sym::Context&) {
  const Parts p = take_apart(f);
  std::unordered_set<const loop::BufferNode*> internal;
  for (const Buffer& t : p.temporaries) internal.insert(t.get());
  const auto uses = find_uses(p.blocks);
  Definitions definitions;
  std::vector<Stmt> left;
  for (const Stmt& b : p.blocks) {
    const Buffer t = is_definition(b) ? b->body[0]->buffer : Buffer();
    if (t && internal.contains(t.get()) && uses.at(t.get()).writers.size() == 1 && !uses.at(t.get()).readers.empty()) {
      const std::vector<size_t>& readers = uses.at(t.get()).readers;
      int reducing = 0;
      for (size_t j : readers) reducing += is_reduction(p.blocks[j]);
      // A reader may repeat the work: a second reader always does, a contraction once for each result.
      const bool repeats = readers.size() > 1 || (reducing && b->iters.size() < p.blocks[readers[0]]->iters.size());
      Definitions::Value& d = definitions.add(b);
      sym::Map renamed;
      for (size_t i = 0; i < b->iters.size(); ++i)
        if (!(b->iters[i].var == d.iters[i].var)) renamed[b->iters[i].var] = d.iters[i].var;
      d.value = Inliner(definitions, renamed).apply(b->body[0]->value);
      if (!repeats || is_cheap(d.value)) {
        internal.erase(t.get());
        continue;
      }
      definitions.remove(t);
    }
    left.push_back(Inliner(definitions, {}).apply(b));
  }
  loop::Function r = f;
  r.body = loop::seq(left);
  for (size_t i = p.temporaries.size(); i-- > 0;)
    if (internal.contains(p.temporaries[i].get())) r.body = loop::alloc(p.temporaries[i], r.body);
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

Expr only_load(const Expr& e) {
  Expr found;
  bool several = false;
  loop::visit(e, [&](const Expr& x) {
    if (x->op != loop::Op::load || x->indices.empty()) return;
    several = several || (found && !(found == x));
    found = x;
  });
  return several ? Expr() : found;
}

Expr replace_load(const Expr& e, const Expr& from, const Expr& to) { return Replacer(from, to).apply(e); }

namespace {
struct LoadsReplacer : loop::Rewriter {
  LoadsReplacer(const Buffer& b, const Expr& e, const sym::Map& m) : from(b), to(e), iters(m) {}
  using loop::Rewriter::rewrite;
  Expr rewrite(const Expr& e) override { return e->op == loop::Op::load && e->buffer == from ? to : Expr(); }
  Index rewrite_index(Index i) override { return sym::substitute(i, iters); }
  const Buffer& from;
  const Expr& to;
  const sym::Map& iters;
};
}  // namespace

Expr replace_loads(const Expr& e, const Buffer& from, const Expr& to, const sym::Map& iters) {
  return LoadsReplacer(from, to, iters).apply(e);
}
Expr guard_loads(const Expr& e, Index guard) { return Guarder(guard).apply(e); }

}  // namespace tripod::rules
