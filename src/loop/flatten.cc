#include "loop/flatten.h"

#include <algorithm>
#include <optional>

#include "loop/flatten_passes.h"

namespace tripod::loop {
namespace {

using Conditions = std::vector<Index>;  // a conjunction, each once

void add(Conditions& to, Index c) {
  if (std::find(to.begin(), to.end(), c) == to.end()) to.push_back(c);
}
void add(Conditions& to, const Conditions& cs) {
  for (Index c : cs) add(to, c);
}
bool contains(const Conditions& cs, Index c) { return std::find(cs.begin(), cs.end(), c) != cs.end(); }
bool subset(const Conditions& a, const Conditions& b) {
  return std::all_of(a.begin(), a.end(), [&](Index c) { return contains(b, c); });
}
// Moves what depends on v out of cs.
Conditions take_uses(Conditions& cs, Index v) {
  Conditions taken, rest;
  for (Index c : cs) (sym::uses(c, v) ? taken : rest).push_back(c);
  cs = std::move(rest);
  return taken;
}

Index conjunction(const Conditions& cs) {
  Index all = cs[0];
  for (size_t i = 1; i < cs.size(); ++i) all = sym::logical_and(all, cs[i]);
  return all;
}

Stmt branch_on(const Conditions& cs, Stmt then, Stmt otherwise = nullptr) {
  if (cs.empty()) return then;
  return branch(from_index(DType::b1, conjunction(cs)), std::move(then), std::move(otherwise));
}

// A condition over one variable as a limit: `a * v + rest <= 0` with a constant a != 0.
struct Limit {
  int64_t a;
  Index rest;
};
std::optional<Limit> limit_of(Index c, Index v) {
  if (c->op != sym::Op::lt && c->op != sym::Op::le) return std::nullopt;
  Index d = c.arg(0) - c.arg(1);
  if (c->op == sym::Op::lt) d = d + 1;
  const auto l = sym::linear_in(d, v);
  if (!l || !l->coefficient.is_const() || l->coefficient.is_const(0)) return std::nullopt;
  return Limit{l->coefficient.value(), l->rest};
}
// The number of leading iterations v = 0, 1, ... where the condition holds (may be negative, for none). Needs a > 0.
Index leading(const Limit& l) { return floordiv(-l.rest, l.a) + 1; }

bool is_plain(LoopKind k) { return k == LoopKind::serial || k == LoopKind::parallel; }
bool is_lanes(LoopKind k) { return k == LoopKind::vector || k == LoopKind::unrolled; }

bool has_plain_loop(const Stmt& s) {
  bool found = false;
  visit(s, [&](const Stmt& t) { found = found || (t->kind == StmtKind::loop && is_plain(t->loop_kind)); });
  return found;
}

// Are registers indexed by v, so that a loop over v has to stay one of constant extent?
bool indexes_registers(const Stmt& s, Index v) {
  bool found = false;
  const auto look = [&](const Buffer& b, const std::vector<Index>& indices) {
    if (b->scope != Scope::reg) return;
    for (Index i : indices) found = found || sym::uses(i, v);
  };
  visit(
      s, [&](const Stmt& t) { if (t->kind == StmtKind::store) look(t->buffer, t->indices); },
      [&](const Expr& e) { if (e->op == Op::load) look(e->buffer, e->indices); });
  return found;
}

// Only stores, so that a condition over them can become a mask on their loads and stores?
bool only_stores(const Stmt& s) {
  bool good = true;
  visit(s, [&](const Stmt& t) { good = good && (t->kind == StmtKind::store || t->kind == StmtKind::seq); });
  return good;
}

// What does not depend on the lane takes the condition at the lane where it holds most easily, so that it stays one
// access for all of them.
struct Mask : Rewriter {
  Mask(Index condition, Index lane) : condition(condition), uniform(condition), lane(lane) {
    if (const auto l = limit_of(condition, lane); l && l->a > 0)
      uniform = sym::substitute(condition, {{lane, lane.context().constant(0)}});
  }
  Index with(Index guard, const std::vector<Index>& indices) const {
    const bool same = std::none_of(indices.begin(), indices.end(), [&](Index i) { return sym::uses(i, lane); });
    const Index c = same ? uniform : condition;
    return guard ? sym::logical_and(guard, c) : c;
  }
  Expr rewrite(const Expr& e) override {
    if (e->op != Op::load) return nullptr;
    const Expr other = e->other ? apply(e->other) : constant(e->dtype, 0);
    return load_guarded(e->buffer, e->indices, with(e->guard, e->indices), other);
  }
  Stmt rewrite(const Stmt& s) override {
    if (s->kind != StmtKind::store) return nullptr;
    return store(s->buffer, s->indices, apply(s->value), with(s->guard, s->indices));
  }
  Index condition, uniform, lane;
};

// Guards of loads and stores lose what is known where they stand.
struct Given : Rewriter {
  explicit Given(const Conditions& known) : known(known) {}
  Index without(Index guard) const {
    if (!guard) return guard;
    Conditions all, rest;
    split_conjunction(guard, all);
    for (Index c : all)
      if (!contains(known, c)) rest.push_back(c);
    if (rest.size() == all.size()) return guard;
    return rest.empty() ? Index() : conjunction(rest);
  }
  Expr rewrite(const Expr& e) override {
    if (e->op != Op::load || !e->guard) return nullptr;
    return load_guarded(e->buffer, e->indices, without(e->guard), apply(e->other));
  }
  Stmt rewrite(const Stmt& s) override {
    if (s->kind != StmtKind::store) return nullptr;
    return store(s->buffer, s->indices, apply(s->value), without(s->guard));
  }
  const Conditions& known;
};

// A flattened statement on its way outwards:
//   if (guards) { if (full) fast else slow }
// `full` says that the vector and unrolled loops inside are not cut short. Both conditions move outwards as far as
// their variables allow. slow is null when full is empty.
struct Piece {
  Stmt fast, slow;
  Conditions full, guards;

  bool has_versions() const { return !full.empty(); }
  Stmt always() const { return slow ? slow : fast; }  // right whether full holds or not
  Stmt versions() const { return has_versions() ? branch_on(full, fast, slow) : fast; }
  Stmt whole() const { return branch_on(guards, versions()); }
};

class Flatten {
 public:
  Piece run(const Stmt& s) {
    switch (s->kind) {
      case StmtKind::seq: return run_seq(s);
      case StmtKind::block: return run_block(s);
      case StmtKind::loop: return run_loop(s);
      case StmtKind::alloc: return wrap(run(s->body[0]), [&](const Stmt& b) { return alloc(s->buffer, b); });
      case StmtKind::let: return run_let(s);
      case StmtKind::branch: {
        const Stmt otherwise = s->body.size() > 1 ? run(s->body[1]).whole() : nullptr;
        return {branch(s->value, run(s->body[0]).whole(), otherwise), nullptr, {}, {}};
      }
      default: return {s, nullptr, {}, {}};
    }
  }

 private:
  template <class F>
  static Piece wrap(Piece p, F f) {
    p.fast = f(p.fast);
    if (p.slow) p.slow = f(p.slow);
    return p;
  }

  Piece run_block(const Stmt& s) {
    sym::Map bindings;
    for (const Iter& it : s->iters) bindings[it.var] = it.binding;
    Conditions guards;
    if (s->predicate) {
      std::vector<Index> all;
      split_conjunction(sym::substitute(s->predicate, bindings), all);
      for (Index c : all) {
        const sym::Truth t = sym::prove(c);
        if (t == sym::Truth::no) return {seq({}), nullptr, {}, {}};
        if (t == sym::Truth::unknown) add(guards, c);
      }
    }
    Stmt body = substitute(s->body[0], bindings);
    if (!guards.empty()) body = Given(guards).apply(body);
    Piece p = run(body);
    add(p.guards, guards);
    return p;
  }

  // What all parts have in common moves on outwards; the rest stays with each part.
  Piece run_seq(const Stmt& s) {
    std::vector<Piece> parts;
    for (const Stmt& b : s->body)
      if (Piece p = run(b); !(p.fast->kind == StmtKind::seq && p.fast->body.empty())) parts.push_back(std::move(p));
    if (parts.empty()) return {seq({}), nullptr, {}, {}};
    Conditions common;
    for (Index c : parts[0].guards)
      if (std::all_of(parts.begin(), parts.end(), [&](const Piece& p) { return contains(p.guards, c); }))
        common.push_back(c);
    Conditions widest;
    for (Piece& p : parts) {
      Conditions own;
      for (Index c : p.guards)
        if (!contains(common, c)) own.push_back(c);
      p = wrap(std::move(p), [&](const Stmt& b) { return branch_on(own, b); });
      if (p.full.size() > widest.size()) widest = p.full;
    }
    // Two versions of the sequence where its parts agree on what a full tile is, else versions of each part.
    const bool agree = std::all_of(parts.begin(), parts.end(), [&](const Piece& p) { return subset(p.full, widest); });
    if (!agree) widest.clear();
    std::vector<Stmt> fast, slow;
    for (const Piece& p : parts) {
      fast.push_back(agree ? p.fast : p.versions());
      slow.push_back(p.always());
    }
    return {seq(fast), widest.empty() ? nullptr : seq(slow), widest, common};
  }

  Piece run_let(const Stmt& s) {
    Piece p = run(s->body[0]);
    const Conditions bound_full = take_uses(p.full, s->var), bound = take_uses(p.guards, s->var);
    if (!bound_full.empty()) {
      add(p.full, bound_full);
      p = {p.versions(), nullptr, {}, p.guards};
    }
    return wrap(std::move(p), [&](const Stmt& b) { return let(s->var, s->value, branch_on(bound, b)); });
  }

  Piece run_loop(const Stmt& s) {
    if (s->extent.is_const() && s->extent.value() <= 1) {
      if (s->extent.value() <= 0) return {seq({}), nullptr, {}, {}};
      return run(substitute(s->body[0], {{s->var, s->extent.context().constant(0)}}));
    }
    Piece p = run(s->body[0]);
    const Conditions full = take_uses(p.full, s->var), guards = take_uses(p.guards, s->var);
    if (full.empty() && guards.empty())
      return wrap(std::move(p), [&](const Stmt& b) { return loop(s->var, s->extent, s->loop_kind, b, s->grain); });
    if (is_lanes(s->loop_kind) && s->extent.is_const()) return lanes_loop(s, std::move(p), full, guards);
    return plain_loop(s, std::move(p), full, guards);
  }

  // --- loops that stay loops ---

  // p with versions on `full` (which depend on the loop variable), and guards that depend on it.
  Piece plain_loop(const Stmt& s, Piece p, const Conditions& full, const Conditions& guards) {
    Index extent = s->extent;
    Conditions inner;
    for (Index c : guards) {
      const auto l = is_plain(s->loop_kind) ? limit_of(c, s->var) : std::nullopt;
      if (l && l->a > 0) extent = sym::min(extent, leading(*l));
      else inner.push_back(c);
    }
    const auto over = [&](const Stmt& b) { return loop(s->var, extent, s->loop_kind, branch_on(inner, b), s->grain); };
    if (full.empty()) return wrap(std::move(p), over);
    const Stmt slow = p.always();
    if (Stmt split = inner.empty() ? split_loop(s, extent, p, full) : nullptr) p.fast = split;
    else p.fast = over(branch_on(full, p.fast, slow));
    p.slow = p.full.empty() ? nullptr : over(slow);
    return p;
  }

  // The innermost loop around lanes: first the iterations where all lanes are full, then the others:
  //   for v in 0..main { fast }  for v in main..extent { slow }
  // Null when that does not pay or the iterations are not the leading ones.
  static Stmt split_loop(const Stmt& s, Index extent, const Piece& p, const Conditions& full) {
    if (!is_plain(s->loop_kind) || has_plain_loop(p.fast)) return nullptr;
    Index main = extent;
    for (Index c : full) {
      const auto l = limit_of(c, s->var);
      if (!l || l->a < 0) return nullptr;
      main = sym::min(main, leading(*l));
    }
    main = sym::max(main, 0);
    sym::Context& c = main.context();
    const Stmt first = loop(s->var, main, s->loop_kind, p.fast, s->grain);
    const Index rest = extent - main;
    // Seldom more than one iteration is left: the second one has nothing to do.
    const Index later = c.var(s->var->name, {0, sym::Range::kMax});
    const Stmt second = tidy(substitute(p.slow, {{s->var, later + main + 1}}));
    if (second->kind == StmtKind::seq && second->body.empty())
      return seq({first, branch_on({sym::lt(main, extent)}, substitute(p.slow, {{s->var, main}}))});
    const Index v = c.var(s->var->name, {0, sym::Range::kMax});
    c.assume_below(v, rest);
    return seq({first, loop(v, rest, LoopKind::serial, substitute(p.slow, {{s->var, v + main}}))});
  }

  // --- vector and unrolled loops ---

  // Full lanes stay a vector (unrolled) loop; `full` gets the condition for all of them at once.
  Piece lanes_loop(const Stmt& s, Piece p, const Conditions& full, const Conditions& guards) {
    const Index v = s->var;
    Conditions all_lanes;
    const bool linear = all_full(full, s, all_lanes) && all_full(guards, s, all_lanes);
    Conditions inner = full;
    add(inner, p.full);
    const Stmt mixed = branch_on(inner, p.fast, p.always());  // right for every lane that the guards let through
    const Stmt slow = cut_lanes(s, p, inner, mixed, guards);
    p.full.clear();
    if (!linear) return {slow, nullptr, {}, p.guards};
    // all_lanes implies `full`; what does not depend on v still has to hold.
    Conditions needed = all_lanes;
    for (Index c : inner)
      if (!sym::uses(c, v)) add(needed, c);
    return {loop(v, s->extent, s->loop_kind, p.fast), needed.empty() ? nullptr : slow, needed, p.guards};
  }

  // The conditions at their worst lane. False when one is not a limit, or is never true.
  static bool all_full(const Conditions& cs, const Stmt& s, Conditions& out) {
    for (Index c : cs) {
      const auto l = limit_of(c, s->var);
      if (!l) return false;
      const int64_t worst = l->a > 0 ? s->extent.value() - 1 : 0;
      const Index at = sym::substitute(c, {{s->var, s->extent.context().constant(worst)}});
      const sym::Truth t = sym::prove(at);
      if (t == sym::Truth::no) return false;
      if (t == sym::Truth::unknown) add(out, at);
    }
    return true;
  }

  // The lanes where the guards hold, one after the other; registers keep constant indices, under a mask or a branch.
  static Stmt cut_lanes(const Stmt& s, const Piece& p, const Conditions& inner, const Stmt& mixed,
                        const Conditions& guards) {
    const bool registers = indexes_registers(mixed, s->var);
    if (registers && s->loop_kind == LoopKind::vector && inner.empty() && only_stores(p.fast)) {
      Stmt masked = p.fast;
      for (Index c : guards) masked = Mask(c, s->var).apply(masked);
      return loop(s->var, s->extent, LoopKind::vector, masked);
    }
    if (registers || guards.empty()) {
      const LoopKind kind = registers ? LoopKind::unrolled : s->loop_kind;
      const bool lanes_branch = kind == LoopKind::vector && !inner.empty();
      return loop(s->var, s->extent, lanes_branch ? LoopKind::serial : kind, branch_on(guards, mixed));
    }
    Index extent = s->extent;
    Conditions rest;
    for (Index c : guards) {
      const auto l = limit_of(c, s->var);
      if (l && l->a > 0) extent = sym::min(extent, leading(*l));
      else rest.push_back(c);
    }
    return loop(s->var, extent, LoopKind::serial, branch_on(rest, mixed));
  }
};

}  // namespace

Function flatten(const Function& f) {
  Function r = f;
  r.body = tidy(Flatten().run(hoist_inits(add_loops(f.body))).whole());
  return r;
}

}  // namespace tripod::loop
