#include "sym/poly.h"

#include <algorithm>

#include "sym/impl.h"

namespace tripod::sym {
namespace {

// The chain of a monomial is walked in place all through this file: these are the innermost loops of the compiler's
// integer arithmetic, and none of them allocates.
const Node* last(const Node* m) { return m->op == Op::mul ? m->args[1] : m; }
const Node* without_last(const Node* m) { return m->op == Op::mul ? m->args[0] : nullptr; }

int degree(const Node* m) {
  int d = 1;
  for (; m->op == Op::mul; m = m->args[0]) ++d;
  return d;
}

int compare_of_one_degree(const Node* a, const Node* b) {
  if (a == b) return 0;
  if (a->op == Op::mul)
    if (int c = compare_of_one_degree(a->args[0], b->args[0])) return c;
  return compare(last(a), last(b));
}

// Higher degree first, then lexicographic by atoms: a graded monomial order, which is what makes division end.
int compare_monomials(const Node* a, const Node* b) {
  if (a == b) return 0;
  const int x = degree(a), y = degree(b);
  return x != y ? (x > y ? -1 : 1) : compare_of_one_degree(a, b);
}

void normalise(Poly& p) {
  if (p.terms.size() < 2) return;
  std::sort(p.terms.begin(), p.terms.end(),
            [](const Poly::T& a, const Poly::T& b) { return compare_monomials(a.m, b.m) < 0; });
  size_t n = 0;
  for (size_t i = 0; i < p.terms.size();) {
    Poly::T t = p.terms[i++];
    while (i < p.terms.size() && p.terms[i].m == t.m) t.c = checked_add(t.c, p.terms[i++].c);
    if (t.c != 0) p.terms[n++] = t;
  }
  p.terms.resize(n);
}

void add_term(Poly& p, const Node* m, int64_t c) {
  if (m)
    p.terms.push_back({m, c});
  else
    p.constant = checked_add(p.constant, c);
}

Poly times_term(Context::Impl& ctx, const Poly& p, const Node* m, int64_t c) {
  Poly r;
  if (c == 0) return r;
  for (const auto& t : p.terms) r.terms.push_back({multiply(ctx, t.m, m), checked_mul(t.c, c)});
  if (p.constant != 0) add_term(r, m, checked_mul(p.constant, c));
  normalise(r);
  return r;
}

bool is_division(const Node* n) { return n->op == Op::floordiv || n->op == Op::mod; }

// mod(x, d) + d*floordiv(x, d) - x == 0, and
// b*mod(floordiv(x, b), d) + mod(x, b) - mod(x, b*d) == 0 for positive b and d (non-negative is enough: where a
// divisor is zero the expression has no value to preserve).
const std::vector<Relation>& relations_of(Context::Impl& ctx, const Node* atom) {
  auto [it, fresh] = ctx.relations.try_emplace(atom);
  if (!fresh) return it->second;  // also while it is being made: no relations then
  const Node *x = atom->args[0], *d = atom->args[1];
  std::vector<Relation> found;
  try {
    Poly dp = to_poly(d);
    Poly quotient_part = times(ctx, dp, to_poly(ctx.make(Op::floordiv, x, d)));
    Poly zero = plus(plus(to_poly(ctx.make(Op::mod, x, d)), quotient_part), to_poly(x), -1);
    if (!zero.is_zero()) found.push_back({zero, atom->op == Op::mod ? constant_poly(1) : dp});
    if (atom->op == Op::mod && x->op == Op::floordiv && d->range.lo >= 0 && x->args[1]->range.lo >= 0) {
      const Node *y = x->args[0], *b = x->args[1];
      Poly bp = to_poly(b);
      const Node* bd = ctx.make(Op::mul, b, d);
      Poly sum = plus(times_term(ctx, bp, atom, 1), to_poly(ctx.make(Op::mod, y, b)));
      found.push_back({plus(sum, to_poly(ctx.make(Op::mod, y, bd)), -1), bp});
    }
  } catch (const Overflow&) {
    // A relation with constants that large helps nobody.
  }
  return ctx.relations[atom] = std::move(found);
}

// Sizes of the atoms; floordiv a little dearer than mod so that of two equal forms one wins.
uint64_t cost(const Poly& p) {
  uint64_t c = p.constant != 0;
  for (const auto& t : p.terms)
    for (const Node* m = t.m; m; m = without_last(m)) c += uint64_t{last(m)->size} * 2 + (last(m)->op == Op::floordiv);
  return c;
}

// Adds multiples of the relations of its floordiv and mod atoms to p while that makes p smaller:
// floordiv(x, W)*W + mod(x, W) becomes x, x - mod(x, 4) becomes floordiv(x, 4)*4.
void fold_divisions(Context::Impl& ctx, Poly& p) {
  auto improve = [&]() {
    const uint64_t before = cost(p);
    for (const auto& t : p.terms) {
      for (const Node* m = t.m; m; m = without_last(m)) {
        const Node* a = last(m);
        if (!is_division(a)) continue;
        for (const Relation& r : relations_of(ctx, a)) {
          const auto& lead = r.coefficient.terms;
          const int64_t lead_c = lead.empty() ? r.coefficient.constant : lead[0].c;
          if (lead_c == 0 || t.c / lead_c == 0) continue;
          Quotient q = quotient(ctx, t.m, multiply(ctx, a, lead.empty() ? nullptr : lead[0].m));
          if (!q.found) continue;
          Poly candidate = plus(p, times_term(ctx, r.zero, q.m, 1), checked_neg(t.c / lead_c));
          if (cost(candidate) >= before) continue;
          p = std::move(candidate);
          return true;
        }
      }
    }
    return false;
  };
  try {
    while (improve()) {
    }
  } catch (const Overflow&) {
    // p is as good as it was
  }
}

}  // namespace

std::vector<const Node*> atoms(const Node* m) {
  std::vector<const Node*> r;
  if (!m) return r;
  for (; m->op == Op::mul; m = m->args[0]) r.push_back(m->args[1]);
  r.push_back(m);
  std::reverse(r.begin(), r.end());
  return r;
}

const Node* monomial(Context::Impl& ctx, std::vector<const Node*> atoms) {
  std::sort(atoms.begin(), atoms.end(), [](const Node* a, const Node* b) { return compare(a, b) < 0; });
  const Node* m = nullptr;
  for (const Node* a : atoms) m = m ? ctx.raw(Op::mul, m, a) : a;
  return m;
}

const Node* multiply(Context::Impl& ctx, const Node* a, const Node* b) {
  if (!a || !b) return a ? a : b;
  if (compare(last(a), last(b)) < 0) std::swap(a, b);
  const Node* rest = multiply(ctx, without_last(a), b);
  return ctx.raw(Op::mul, rest, last(a));
}

Quotient quotient(Context::Impl& ctx, const Node* a, const Node* b) {
  if (!b) return {true, a};
  if (!a) return {false, nullptr};
  if (a == b) return {true, nullptr};
  const Node *x = last(a), *y = last(b);
  if (x == y) return quotient(ctx, without_last(a), without_last(b));
  if (a->op != Op::mul) return {false, nullptr};
  Quotient q = quotient(ctx, a->args[0], b);
  if (q.found) q.m = q.m ? ctx.raw(Op::mul, q.m, x) : x;
  return q;
}

const Node* common_factor(Context::Impl& ctx, const Node* a, const Node* b) {
  if (!a || !b) return nullptr;
  const int order = compare(last(a), last(b));
  if (order > 0) return common_factor(ctx, without_last(a), b);
  if (order < 0) return common_factor(ctx, a, without_last(b));
  const Node* rest = common_factor(ctx, without_last(a), without_last(b));
  return rest ? ctx.raw(Op::mul, rest, last(a)) : last(a);
}

Poly to_poly(const Node* n) {
  Poly p;
  if (n->op == Op::constant) {
    p.constant = n->value;
    return p;
  }
  auto push = [&](const Node* t) {
    if (t->op == Op::constant)
      p.constant = t->value;
    else if (t->op == Op::mul && t->args[1]->op == Op::constant)
      p.terms.push_back({t->args[0], t->args[1]->value});
    else
      p.terms.push_back({t, 1});
  };
  for (; n->op == Op::add; n = n->args[0]) push(n->args[1]);
  push(n);
  std::reverse(p.terms.begin(), p.terms.end());
  return p;
}

const Node* to_node(Context::Impl& ctx, Poly p) {
  auto divides = [](const Poly::T& t) {
    for (const Node* m = t.m; m; m = without_last(m))
      if (is_division(last(m))) return true;
    return false;
  };
  if (std::any_of(p.terms.begin(), p.terms.end(), divides)) fold_divisions(ctx, p);
  const Node* sum = nullptr;
  for (const auto& t : p.terms) {
    const Node* term = t.c == 1 ? t.m : ctx.raw(Op::mul, t.m, ctx.constant(t.c));
    sum = sum ? ctx.raw(Op::add, sum, term) : term;
  }
  if (!sum) return ctx.constant(p.constant);
  return p.constant == 0 ? sum : ctx.raw(Op::add, sum, ctx.constant(p.constant));
}

Poly plus(const Poly& a, const Poly& b, int64_t k) {
  Poly r;
  if (k == 0) return a;
  r.constant = checked_add(a.constant, checked_mul(b.constant, k));
  r.terms.reserve(a.terms.size() + b.terms.size());
  auto x = a.terms.begin(), y = b.terms.begin();
  while (x != a.terms.end() || y != b.terms.end()) {
    int order = x == a.terms.end() ? 1 : y == b.terms.end() ? -1 : compare_monomials(x->m, y->m);
    if (order < 0) {
      r.terms.push_back(*x++);
    } else if (order > 0) {
      r.terms.push_back({y->m, checked_mul(y->c, k)});
      ++y;
    } else {
      if (int64_t c = checked_add(x->c, checked_mul(y->c, k))) r.terms.push_back({x->m, c});
      ++x, ++y;
    }
  }
  return r;
}

Poly scaled(const Poly& a, int64_t c) { return plus({}, a, c); }

Poly times(Context::Impl& ctx, const Poly& a, const Poly& b) {
  // Products of long sums stay products: as written they are no larger than what made them.
  constexpr size_t kMaxTerms = 256;
  if (a.terms.size() > 1 && b.terms.size() > 1 && a.terms.size() * b.terms.size() > kMaxTerms) {
    Poly r;
    r.terms.push_back({monomial(ctx, {to_node(ctx, a), to_node(ctx, b)}), 1});
    return r;
  }
  // The leading terms have the highest degree.
  if (!a.terms.empty() && !b.terms.empty() && degree(a.terms[0].m) + degree(b.terms[0].m) > kMaxDegree)
    throw Overflow("a product of dims has too many factors");
  Poly r;
  r.constant = checked_mul(a.constant, b.constant);
  for (const auto& x : a.terms) {
    for (const auto& y : b.terms) r.terms.push_back({multiply(ctx, x.m, y.m), checked_mul(x.c, y.c)});
    if (b.constant != 0) r.terms.push_back({x.m, checked_mul(x.c, b.constant)});
  }
  if (a.constant != 0)
    for (const auto& y : b.terms) r.terms.push_back({y.m, checked_mul(y.c, a.constant)});
  normalise(r);
  return r;
}

Division divide(Context::Impl& ctx, const Poly& p, const Poly& d) {
  Division out;
  if (d.is_zero()) {
    out.r = p;
    return out;
  }
  if (d.is_const() || (d.terms.size() == 1 && d.constant == 0)) {
    const Node* m = d.is_const() ? nullptr : d.terms[0].m;
    const int64_t c = d.is_const() ? d.constant : d.terms[0].c;
    for (const auto& t : p.terms) {
      Quotient q = c == -1 && t.c == Range::kMin ? Quotient{false, nullptr} : quotient(ctx, t.m, m);
      int64_t k = q.found ? t.c / c : 0;  // towards zero: the rest keeps its sign, and so its range
      if (k != 0) add_term(out.q, q.m, k);
      if (t.c - k * c != 0) out.r.terms.push_back({t.m, t.c - k * c});
    }
    if (!m) {
      out.q.constant = checked_add(out.q.constant, floor_div(p.constant, c));
      out.r.constant = floor_mod(p.constant, c);
    } else {
      out.r.constant = p.constant;
    }
    normalise(out.q);
    return out;
  }
  // Several terms: schoolbook division by the leading one.
  Poly left = p;
  const auto& lead = d.terms[0];
  for (int steps = 0; steps < 64; ++steps) {
    bool moved = false;
    for (const auto& t : left.terms) {
      Quotient q = quotient(ctx, t.m, lead.m);
      if (!q.found || (lead.c == -1 && t.c == Range::kMin) || t.c / lead.c == 0) continue;
      const int64_t k = t.c / lead.c;
      add_term(out.q, q.m, k);
      left = plus(left, times_term(ctx, d, q.m, k), -1);
      moved = true;
      break;
    }
    if (!moved) break;
  }
  normalise(out.q);
  out.r = std::move(left);
  return out;
}

std::optional<Poly> divide_exactly(Context::Impl& ctx, const Poly& p, const Poly& d) {
  if (d.is_zero()) return std::nullopt;
  Division v = divide(ctx, p, d);
  if (!v.r.is_zero()) return std::nullopt;
  return std::move(v.q);
}

Split split(Context::Impl& ctx, const Poly& p, const Node* atom) {
  Split s{false, {}, {}};
  s.rest.constant = p.constant;
  for (const auto& t : p.terms) {
    Quotient q = quotient(ctx, t.m, atom);
    if (!q.found) {
      s.rest.terms.push_back(t);
      continue;
    }
    if (q.m && quotient(ctx, q.m, atom).found) return {false, {}, {}};
    s.found = true;
    add_term(s.coefficient, q.m, t.c);
  }
  normalise(s.coefficient);
  return s;
}

}  // namespace tripod::sym
