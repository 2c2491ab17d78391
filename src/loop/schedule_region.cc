// Which part of a buffer one iteration of a loop touches, and the loops that compute such a part.
#include <algorithm>

#include "loop/schedule_state.h"

namespace tripod::loop {

// --- intervals of indices -----------------------------------------------------------------------------------------

namespace {

class Evaluate {
 public:
  // Each of `facts` is an expression that is never positive.
  explicit Evaluate(const Intervals& of, const std::vector<Index>& facts = {}) : of_(of), facts_(facts) {}

  Interval run(Index e) {
    if (auto it = done_.find(e); it != done_.end()) return it->second;
    Interval r;
    if (auto it = of_.find(e); it != of_.end()) r = limited(e, it->second);
    else if (e.is_const() || e.is_var() || fixed(e)) r = {e, e};
    else r = limited(e, node(e));
    done_.emplace(e, r);
    return r;
  }

 private:
  // fact <= 0 and e - fact == d mean e <= d; e + fact == d means e >= d. Where that is no worse for sure.
  Interval limited(Index e, Interval i) const {
    for (Index fact : facts_) {
      if (!i) break;
      const Index above = e - fact, below = e + fact;
      const auto better = [&](Index size) { return size.is_const() || !(i.hi - i.lo).is_const(); };
      if (fixed(above) && better(above - i.lo) && sym::proved(sym::le(above, i.hi))) i.hi = above;
      if (fixed(below) && better(i.hi - below) && sym::proved(sym::le(i.lo, below))) i.lo = below;
    }
    return i;
  }

  bool fixed(Index e) const {
    const std::vector<Index> vs = sym::variables(e);
    return std::none_of(vs.begin(), vs.end(), [&](Index v) { return of_.count(v) > 0; });
  }

  Interval node(Index e) {
    switch (e->op) {
      case sym::Op::add: return sum(e);
      case sym::Op::mul: return product(run(e.arg(0)), run(e.arg(1)));
      case sym::Op::floordiv: {
        const Interval a = run(e.arg(0));
        const Index b = e.arg(1);
        if (!a || !fixed(b) || !sym::proved(sym::lt(b.context().constant(0), b))) return {};
        return {sym::floordiv(a.lo, b), sym::floordiv(a.hi, b)};
      }
      case sym::Op::mod: return modulo(run(e.arg(0)), e.arg(1));
      case sym::Op::min:
      case sym::Op::max: {
        const Interval a = run(e.arg(0)), b = run(e.arg(1));
        if (!a || !b) return {};
        return e->op == sym::Op::min ? Interval{sym::min(a.lo, b.lo), sym::min(a.hi, b.hi)}
                                     : Interval{sym::max(a.lo, b.lo), sym::max(a.hi, b.hi)};
      }
      case sym::Op::select: {
        const Interval a = run(e.arg(1)), b = run(e.arg(2));
        if (!a || !b) return {};
        const Index c = e.arg(0);
        if (fixed(c)) return {sym::select(c, a.lo, b.lo), sym::select(c, a.hi, b.hi)};
        return {sym::min(a.lo, b.lo), sym::max(a.hi, b.hi)};
      }
      default: break;
    }
    const sym::Range r = sym::bounds(e);
    if (r.lo == sym::Range::kMin || r.hi == sym::Range::kMax) return {};
    return {e.context().constant(r.lo), e.context().constant(r.hi)};
  }

  Interval sum(Index e) {
    int64_t constant = 0;
    const std::vector<sym::Term> ts = sym::terms(e, constant);
    Index lo = e.context().constant(constant), hi = lo;
    for (const sym::Term& t : ts) {
      const Interval f = run(t.factor);
      if (!f) return {};
      lo = lo + (t.coefficient < 0 ? f.hi : f.lo) * t.coefficient;
      hi = hi + (t.coefficient < 0 ? f.lo : f.hi) * t.coefficient;
    }
    return {lo, hi};
  }

  static Interval product(const Interval& a, const Interval& b) {
    if (!a || !b) return {};
    const auto never_negative = [](Index i) { return sym::proved(sym::ge(i, 0)); };
    if (a.lo == a.hi && never_negative(a.lo)) return {a.lo * b.lo, a.lo * b.hi};
    if (b.lo == b.hi && never_negative(b.lo)) return {a.lo * b.lo, a.hi * b.lo};
    if (never_negative(a.lo) && never_negative(b.lo)) return {a.lo * b.lo, a.hi * b.hi};
    return {};
  }

  Interval modulo(const Interval& a, Index b) {
    if (!fixed(b) || !sym::proved(sym::lt(b.context().constant(0), b))) return {};
    if (a) {
      const Index q = sym::floordiv(a.lo, b);
      if (q == sym::floordiv(a.hi, b) || sym::proved(sym::eq(q, sym::floordiv(a.hi, b))))
        return {sym::mod(a.lo, b), sym::mod(a.hi, b)};
    }
    return {b.context().constant(0), b - 1};
  }

  const Intervals& of_;
  const std::vector<Index> facts_;
  std::unordered_map<Index, Interval, sym::Hash> done_;
};

// Predicates as expressions that are never positive where they hold.
std::vector<Index> facts_of(const std::vector<Index>& predicates) {
  std::vector<Index> facts;
  for (Index p : predicates) {
    if (p->op == sym::Op::lt) facts.push_back(p.arg(0) - p.arg(1) + 1);
    if (p->op == sym::Op::le) facts.push_back(p.arg(0) - p.arg(1));
  }
  return facts;
}

}  // namespace

Interval interval(Index e, const Intervals& of) { return Evaluate(of).run(e); }

namespace {
void add_range(Intervals& of, Index var, Index extent) {
  const Interval e = interval(extent, of);
  of[var] = e ? Interval{var.context().constant(0), e.hi - 1} : Interval{};
}
}  // namespace

Intervals ranges_below(const Tree& scope, const Tree& leaf) {
  Intervals of;
  for (const Tree* l : loops_between(scope, leaf)) add_range(of, l->var, l->extent);
  for (const auto& [var, extent] : leaf.accesses().own_loops) add_range(of, var, extent);
  visit(leaf.body, [&](const Stmt& s) {
    if (s->kind != StmtKind::let) return;
    const sym::Range r = sym::bounds(s->var);
    const bool known = r.lo != sym::Range::kMin && r.hi != sym::Range::kMax;
    sym::Context& c = s->var.context();
    of[s->var] = known ? Interval{c.constant(r.lo), c.constant(r.hi)} : Interval{};
  });
  return of;
}

sym::Map bindings(const Tree& block) {
  sym::Map m;
  for (const Iter& it : block.iters) m[it.var] = it.binding;
  return m;
}

// --- regions ------------------------------------------------------------------------------------------------------

namespace {

// What one leaf touches, dim by dim.
class Leaf {
 public:
  Leaf(const ScheduleState& s, const Tree& scope, const Tree& leaf)
      : s_(s),
        loops_(ranges_below(scope, leaf)),
        by_loops_(loops_, facts_of(leaf.predicates)),
        with_iters_(loops_),
        bindings_(bindings(leaf)) {
    for (const Iter& it : leaf.iters) with_iters_[it.var] = of_iter(it);
  }

  Interval operator()(Index e) {
    const Interval by_iters = interval(e, with_iters_);
    if (rank(by_iters) == 0) return by_iters;
    // Bindings substituted first: what two iterators have in common cancels.
    const Interval by_loops = by_loops_.run(sym::substitute(e, bindings_));
    return rank(by_loops) < rank(by_iters) ? by_loops : by_iters;
  }

 private:
  // A binding that only loops inside determine runs over (at most) all values of the iterator: predicates see to it.
  Interval of_iter(const Iter& it) {
    Interval i = by_loops_.run(it.binding);
    if (!i) return {it.var.context().constant(0), it.extent - 1};
    if (s_.uses_loops(i.lo) || s_.uses_loops(i.hi)) return i;
    if (!sym::proved(sym::ge(i.lo, 0))) i.lo = it.var.context().constant(0);
    if (!sym::proved(sym::lt(i.hi, it.extent))) i.hi = it.extent - 1;
    return i;
  }
  // How good: a constant size, a size over dims, one that varies with the iteration, not known.
  int rank(const Interval& i) const {
    if (!i) return 3;
    const Index size = i.hi - i.lo;
    return size.is_const() ? 0 : s_.uses_loops(size) ? 2 : 1;
  }

  const ScheduleState& s_;
  Intervals loops_;
  Evaluate by_loops_;
  Intervals with_iters_;
  sym::Map bindings_;
};

Interval unite(const Interval& a, const Interval& b) {
  if (!a || !b) return {};
  return {sym::min(a.lo, b.lo), sym::max(a.hi, b.hi)};
}

Side choose(const ScheduleState& s, Interval i, Index shape) {
  if (!i) return whole_side(shape);
  // What moves with the loops around is not worth a proof (they are dear): it hardly ever is all.
  const bool still = !s.uses_loops(i.lo) && !s.uses_loops(i.hi);
  if (still && sym::proved(sym::le(i.lo, 0)) && sym::proved(sym::ge(i.hi, shape - 1))) return whole_side(shape);
  Index size = i.hi - i.lo + 1;
  if (!s.uses_loops(size)) {
    if (sym::proved(sym::ge(size, shape))) return whole_side(shape);
    return {i.lo, size, {}, false};
  }
  // The size varies: now clipping pays.
  i = {sym::max(i.lo, 0), sym::min(i.hi, shape - 1)};
  size = i.hi - i.lo + 1;
  if (!s.uses_loops(size)) return {i.lo, size, {}, false};
  const int64_t most = sym::bounds(size).hi;
  const Index bound = most == sym::Range::kMax ? shape : shape.context().constant(std::max<int64_t>(most, 1));
  if (most == sym::Range::kMax || sym::proved(sym::ge(bound, shape))) return {i.lo, sym::max(size, 0), i.hi, false};
  return {i.lo, bound, i.hi, false};
}

}  // namespace

Side whole_side(Index extent) { return {extent.context().constant(0), extent, {}, true}; }

std::vector<Side> touched(const ScheduleState& s, Tree& scope, const Buffer& b, Touch which) {
  std::vector<std::optional<Interval>> dims(b->shape.size());
  for (const Tree* leaf : leaves(scope)) {
    std::optional<Leaf> of;  // made when needed
    for (const Access& a : leaf->accesses().list) {
      if (a.buffer != b || (which == Touch::read && a.is_store) || (which == Touch::write && !a.is_store)) continue;
      if (!of) of.emplace(s, scope, *leaf);
      for (size_t d = 0; d < dims.size(); ++d) {
        Interval i = (*of)(a.indices[d]);
        if (i && !a.extent.empty()) i.hi = (*of)(a.indices[d] + a.extent[d] - 1).hi;
        if (!i.hi) i = {};
        dims[d] = dims[d] ? unite(*dims[d], i) : i;
      }
    }
  }
  std::vector<Side> sides;
  for (size_t d = 0; d < dims.size(); ++d)
    sides.push_back(dims[d] ? choose(s, *dims[d], b->shape[d]) : whole_side(b->shape[d]));
  return sides;
}

// --- loops over a region ------------------------------------------------------------------------------------------

std::vector<Index> common_predicates(const Blocks& blocks, const Tree& loop) {
  std::vector<Index> out;
  if (blocks.empty()) return out;
  const auto outside = [&](Index p) {
    const std::vector<Tree*> inside = loops_between(loop, *blocks[0]);
    return std::none_of(inside.begin(), inside.end(), [&](const Tree* l) { return sym::uses(p, l->var); });
  };
  for (Index p : blocks[0]->predicates)
    if (outside(p) && std::all_of(blocks.begin(), blocks.end(), [&](const Tree* b) {
          return std::find(b->predicates.begin(), b->predicates.end(), p) != b->predicates.end();
        }))
      out.push_back(p);
  return out;
}

std::unique_ptr<Tree> nest(ScheduleState& s, std::unique_ptr<Tree> block, const std::vector<Side>& sides,
                           std::vector<Index> predicates) {
  block->predicates = std::move(predicates);
  std::vector<std::unique_ptr<Tree>> loops;
  for (size_t i = 0; i < sides.size(); ++i) {
    Iter& it = block->iters[i];
    const Side& side = sides[i];
    loops.push_back(s.new_loop(it.var->name, side.extent));
    it.binding = side.lo + loops.back()->var;
    if (side.whole && side.extent == it.extent) continue;
    const auto need = [&](Index condition) {
      std::vector<Index>& all = block->predicates;
      if (std::find(all.begin(), all.end(), condition) == all.end() && !sym::proved(condition)) all.push_back(condition);
    };
    need(sym::ge(it.binding, 0));
    if (!sym::proved(sym::le(side.lo + side.extent, it.extent))) need(sym::lt(it.binding, it.extent));
    if (side.last && side.extent.is_const()) need(sym::le(it.binding, side.last));
  }
  std::unique_ptr<Tree> t = std::move(block);
  for (size_t i = loops.size(); i-- > 0;) {
    insert(*loops[i], 0, std::move(t));
    t = std::move(loops[i]);
  }
  return t;
}

}  // namespace tripod::loop
