#include <algorithm>
#include <unordered_set>

#include "loop/flatten_passes.h"

namespace tripod::loop {
namespace {

using VarSet = std::unordered_set<Index, sym::Hash>;

void add_variables(Index e, VarSet& out) {
  if (!e) return;
  for (Index v : sym::variables(e)) out.insert(v);
}

bool uses_any(Index e, const VarSet& vars) {
  if (!e) return false;
  const std::vector<Index> vs = sym::variables(e);
  return std::any_of(vs.begin(), vs.end(), [&](Index v) { return vars.count(v) > 0; });
}

bool uses_any(const Stmt& s, const VarSet& vars) {
  bool found = false;
  const auto look = [&](Index i) { found = found || uses_any(i, vars); };
  visit(
      s,
      [&](const Stmt& t) {
        for (Index i : t->indices) look(i);
        look(t->guard);
      },
      [&](const Expr& e) {
        look(e->value);
        for (Index i : e->indices) look(i);
        look(e->guard);
      });
  return found;
}

struct AddLoops : Rewriter {
  Stmt rewrite(const Stmt& s) override {
    if (s->kind != StmtKind::block) return nullptr;
    Ref<StmtNode> b(new StmtNode(*s));
    std::vector<Iter*> unbound;
    for (Iter& it : b->iters)
      if (!it.binding) {
        it.binding = loop_variable(it);
        unbound.push_back(&it);
      }
    Stmt r(b.get());
    std::for_each(unbound.rbegin(), unbound.rend(),
                  [&](const Iter* it) { r = loop(it->binding, it->extent, LoopKind::serial, r); });
    return r;
  }

  // The iterator's own variable, unless another block has it with another extent: what is known of one would then
  // be believed of the other.
  Index loop_variable(const Iter& it) {
    const auto [at, fresh] = extents.try_emplace(it.var, it.extent);
    const Index v = fresh || at->second == it.extent ? it.var : it.var.context().var(it.var->name, it.var->range);
    if (fresh || !(v == it.var)) v.context().assume_below(v, it.extent);
    return v;
  }
  sym::Map extents;
};

// One way down the tree: the statements around the current one, outermost first, and what has to go in front of each.
struct Around {
  Stmt stmt;
  std::vector<Stmt> in_front;
};

class HoistInits {
 public:
  Stmt run(const Stmt& s) {
    if (s->kind == StmtKind::block && s->init) return take_init(s);
    if (s->body.empty()) return s;
    if (s->kind != StmtKind::seq) path_.push_back({s, {}});
    Ref<StmtNode> n(new StmtNode(*s));
    for (Stmt& b : n->body) b = run(b);
    if (s->kind == StmtKind::seq) return seq(n->body);
    std::vector<Stmt> all = std::move(path_.back().in_front);
    path_.pop_back();
    all.push_back(Stmt(n.get()));
    return seq(std::move(all));
  }

 private:
  Stmt take_init(const Stmt& b) {
    Ref<StmtNode> rest(new StmtNode(*b));
    rest->init = nullptr;
    VarSet reduce;
    for (const Iter& it : b->iters)
      if (it.reduce) add_variables(it.binding, reduce);
    const auto outermost = std::find_if(path_.begin(), path_.end(), [&](const Around& a) {
      return a.stmt->kind == StmtKind::loop && reduce.count(a.stmt->var) > 0;
    });
    if (outermost != path_.end())
      if (Stmt init = init_nest(b, static_cast<size_t>(outermost - path_.begin()), reduce)) {
        outermost->in_front.push_back(init);
        return Stmt(rest.get());
      }
    rest->body = {seq({guarded_init(b), b->body[0]})};
    return Stmt(rest.get());
  }

  // `if (every reduce iterator is 0) init`, right before the body.
  static Stmt guarded_init(const Stmt& b) {
    Index first;
    for (const Iter& it : b->iters) {
      if (!it.reduce) continue;
      const Index zero = sym::eq(it.var, 0);
      first = first ? sym::logical_and(first, zero) : zero;
    }
    return first ? branch(from_index(DType::b1, first), b->init) : b->init;
  }

  // The loops from path_[at] inwards that spatial iterators use, around a block that runs the init. The loops of
  // reduce iterators are left out, their variables 0. Null where that would not be the same.
  Stmt init_nest(const Stmt& b, size_t at, const VarSet& reduce) const {
    VarSet spatial, inside, dropped;
    for (const Iter& it : b->iters)
      if (!it.reduce) add_variables(it.binding, spatial);
    std::vector<Stmt> kept;
    sym::Map zero;
    for (size_t i = at; i < path_.size(); ++i) {
      const Stmt& s = path_[i].stmt;
      if (s->kind == StmtKind::alloc) continue;
      if (s->kind != StmtKind::loop) return nullptr;
      inside.insert(s->var);
      const bool reduces = reduce.count(s->var) > 0;
      if (spatial.count(s->var) > 0) {
        if (reduces || uses_any(s->extent, dropped)) return nullptr;
        kept.push_back(s);
      } else {
        dropped.insert(s->var);
        zero[s->var] = s->extent.context().constant(0);
      }
    }
    Ref<StmtNode> n(new StmtNode(*b));
    n->name += "_init";
    n->body = {b->init};
    n->init = nullptr;
    for (Iter& it : n->iters) {
      it.binding = sym::substitute(it.binding, zero);
      if (it.reduce && !it.binding.is_const(0)) return nullptr;
    }
    n->predicate = init_predicate(b->predicate, zero, dropped, spatial, b->iters);
    if (allocated_inside(b, at) || uses_any(b->init, dropped)) return nullptr;
    Stmt r(n.get());
    for (size_t i = kept.size(); i-- > 0;) {
      const LoopKind kind = kept[i]->loop_kind == LoopKind::parallel ? LoopKind::serial : kept[i]->loop_kind;
      r = loop(kept[i]->var, kept[i]->extent, kind, r);
    }
    return r;
  }

  // What only limits the reduction does not limit its init: an empty sum is still 0.
  static Index init_predicate(Index predicate, const sym::Map& zero, const VarSet& dropped, const VarSet& spatial,
                              const std::vector<Iter>& iters) {
    VarSet reduce = dropped, rest = spatial;
    for (const Iter& it : iters) (it.reduce ? reduce : rest).insert(it.var);
    std::vector<Index> all;
    if (predicate) split_conjunction(predicate, all);
    Index r;
    for (Index c : all) {
      if (uses_any(c, reduce) && !uses_any(c, rest)) continue;
      c = sym::substitute(c, zero);
      r = r ? sym::logical_and(r, c) : c;
    }
    return r;
  }

  // Does the init write a buffer that only exists inside path_[at]?
  bool allocated_inside(const Stmt& b, size_t at) const {
    bool found = false;
    visit(b->init, [&](const Stmt& s) {
      for (size_t i = at; i < path_.size(); ++i)
        found = found || (path_[i].stmt->kind == StmtKind::alloc && s->buffer == path_[i].stmt->buffer);
    });
    return found;
  }

  std::vector<Around> path_;
};

}  // namespace

void split_conjunction(Index condition, std::vector<Index>& out) {
  if (condition->op == sym::Op::logical_and) {
    split_conjunction(condition.arg(0), out);
    split_conjunction(condition.arg(1), out);
  } else {
    out.push_back(condition);
  }
}

Stmt add_loops(const Stmt& s) { return AddLoops().apply(s); }
Stmt hoist_inits(const Stmt& s) { return HoistInits().run(s); }

}  // namespace tripod::loop
