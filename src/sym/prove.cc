// Proofs. Every comparison becomes "p <= 0" for a polynomial p, and p is shown to be at most something simpler:
// an atom that occurs linearly is replaced by what bounds it on the side that its coefficient asks for, the
// innermost (newest) first, until the interval of what is left decides.
#include <algorithm>

#include "sym/impl.h"

namespace tripod::sym {
namespace {

class Prover {
 public:
  Prover(Context::Impl& ctx, int budget) : ctx_(ctx), budget_(budget) {}

  bool nonpositive(const Poly& p) {
    if (range_of(p).hi <= 0) return true;
    if (p.is_const() || --budget_ < 0) return false;
    for (const Node* a : candidates(p)) {
      if (budget_ <= 0) return false;
      Split s = split(ctx_, p, a);
      if (s.found && without(a, s, p)) return true;
    }
    return false;
  }

 private:
  bool bounded(const Node* n, bool again) const {
    switch (n->op) {
      // Without facts an interval says all there is about a variable, unless it occurs in several terms.
      case Op::variable: return again || ctx_.uppers.count(n) != 0;
      case Op::floordiv:
      case Op::mod:
      case Op::min:
      case Op::max:
      case Op::select: return true;
      default: return false;
    }
  }

  std::vector<const Node*> candidates(const Poly& p) const {
    std::vector<const Node*> all, found;
    for (const auto& t : p.terms) {
      const Node* m = t.m;
      for (; m->op == Op::mul; m = m->args[0]) all.push_back(m->args[1]);
      all.push_back(m);
    }
    std::sort(all.begin(), all.end(), [](const Node* a, const Node* b) { return a->id > b->id; });
    for (size_t i = 0, end = 0; i < all.size(); i = end) {
      while (end < all.size() && all[end] == all[i]) ++end;
      if (bounded(all[i], end - i > 1)) found.push_back(all[i]);
    }
    return found;
  }

  // +1: never negative, -1: never positive, 0: do not know. Coefficients such as W - 2 are small.
  int sign(const Poly& c) {
    Range r = range_of(c);
    if (r.lo >= 0) return 1;
    if (r.hi <= 0) return -1;
    if (c.terms.size() + (c.constant != 0) < 2) return 0;
    if (nonpositive(scaled(c, -1))) return 1;
    return nonpositive(c) ? -1 : 0;
  }

  bool with(const Split& s, const Poly& replacement) {
    return nonpositive(plus(s.rest, times(ctx_, s.coefficient, replacement)));
  }
  bool with(const Split& s, const Node* replacement) { return with(s, to_poly(replacement)); }

  bool without(const Node* a, const Split& s, const Poly& p) {
    switch (a->op) {
      case Op::variable: return without_variable(a, s);
      case Op::mod: return without_mod(a, s);
      case Op::floordiv: return without_floordiv(a, s, p);
      case Op::min:
      case Op::max: {
        const int sg = sign(s.coefficient);
        // min(x, y) is at most either; for the other side one of them is it.
        if (sg == (a->op == Op::min ? 1 : -1) && (with(s, a->args[0]) || with(s, a->args[1]))) return true;
        return with(s, a->args[0]) && with(s, a->args[1]);
      }
      case Op::select: return with(s, a->args[1]) && with(s, a->args[2]);
      default: return false;
    }
  }

  // Proofs that need a bound larger than this are none: such bounds are those of dims in general, and products of
  // them overflow.
  static bool small(int64_t bound) { return -(1 << 20) <= bound && bound <= (1 << 20); }

  bool without_variable(const Node* v, const Split& s) {
    auto facts = ctx_.uppers.find(v);
    const bool has_fact = facts != ctx_.uppers.end();
    switch (sign(s.coefficient)) {
      case 1:
        if (has_fact)
          for (const Node* u : facts->second)
            if (with(s, plus(to_poly(u), constant_poly(-1)))) return true;
        return small(v->range.hi) && with(s, constant_poly(v->range.hi));
      case -1: return small(v->range.lo) && with(s, constant_poly(v->range.lo));
      default: return false;
    }
  }

  bool without_mod(const Node* a, const Split& s) {
    if (a->args[1]->range.lo < 0) return false;
    switch (sign(s.coefficient)) {
      case 1:
        if (with(s, plus(to_poly(a->args[1]), constant_poly(-1)))) return true;
        return a->args[0]->range.lo >= 0 && with(s, a->args[0]);
      case -1: return with(s, constant_poly(0));
      default: return false;
    }
  }

  // x - d + 1 <= d*floordiv(x, d) <= x for positive d.
  bool without_floordiv(const Node* a, const Split& s, const Poly& p) {
    if (a->args[1]->range.lo < 0) return false;
    const Poly x = to_poly(a->args[0]), d = to_poly(a->args[1]);
    auto q = divide_exactly(ctx_, s.coefficient, d);
    if (!q) {
      // p <= 0 exactly when m*p <= 0 for a positive m that makes d divide the coefficient.
      if (!d.is_const() && (d.terms.size() > 1 || p.terms.size() > 8)) return false;
      int64_t g = d.is_const() ? d.constant : 1;
      if (d.is_const()) {
        g = gcd(g, s.coefficient.constant);
        for (const auto& t : s.coefficient.terms) g = gcd(g, t.c);
      }
      return nonpositive(d.is_const() ? scaled(p, d.constant / g) : times(ctx_, p, d));
    }
    switch (sign(*q)) {
      case 1: return nonpositive(plus(s.rest, times(ctx_, *q, x)));
      case -1: return nonpositive(plus(s.rest, times(ctx_, *q, plus(plus(x, d, -1), constant_poly(1)))));
      default: return false;
    }
  }

  Context::Impl& ctx_;
  int budget_;
};

Truth negated(Truth t) { return t == Truth::yes ? Truth::no : t == Truth::no ? Truth::yes : Truth::unknown; }

Truth prove(Context::Impl& ctx, const Node* n) {
  auto below = [&](const Poly& p) { return proved_nonpositive(ctx, p, kProveBudget); };
  auto arg = [&](int i) { return prove(ctx, n->args[i]); };
  switch (n->op) {
    case Op::lt:
    case Op::le: {
      Poly d = plus(to_poly(n->args[0]), to_poly(n->args[1]), -1);
      if (n->op == Op::lt) d = plus(d, constant_poly(1));
      if (below(d)) return Truth::yes;
      return below(plus(constant_poly(1), d, -1)) ? Truth::no : Truth::unknown;
    }
    case Op::eq:
    case Op::ne: {
      const Poly d = plus(to_poly(n->args[0]), to_poly(n->args[1]), -1);
      Truth equal = Truth::unknown;
      if (below(d) && below(scaled(d, -1)))
        equal = Truth::yes;
      else if (below(plus(d, constant_poly(1))) || below(plus(constant_poly(1), d, -1)))
        equal = Truth::no;
      return n->op == Op::eq ? equal : negated(equal);
    }
    case Op::logical_not: return negated(arg(0));
    case Op::logical_and:
    case Op::logical_or: {
      const Truth decides = n->op == Op::logical_and ? Truth::no : Truth::yes;
      Truth a = arg(0), b = arg(1);
      if (a == decides || b == decides) return decides;
      return a == b ? a : Truth::unknown;
    }
    case Op::select: {
      Truth a = arg(1), b = arg(2);
      return a == b ? a : Truth::unknown;
    }
    default:
      if (n->range.lo > 0 || n->range.hi < 0) return Truth::yes;
      return n->range == Range{0, 0} ? Truth::no : Truth::unknown;
  }
}

}  // namespace

bool proved_nonpositive(Context::Impl& ctx, const Poly& p, int budget) {
  if (range_of(p).hi <= 0) return true;
  if (p.is_const()) return false;
  auto attempt = [&] {
    try {
      return Prover(ctx, budget).nonpositive(p);
    } catch (const Overflow&) {
      return false;  // no proof with numbers that large
    }
  };
  if (budget != kRuleBudget) return attempt();
  // Several rows ask the same of one expression.
  if (auto it = ctx.proofs.find(p); it != ctx.proofs.end()) return it->second;
  return ctx.proofs[p] = attempt();
}

Truth prove(Expr condition) {
  try {
    return prove(impl_of(condition.node()), condition.node());
  } catch (const Overflow&) {
    return Truth::unknown;
  }
}

}  // namespace tripod::sym
