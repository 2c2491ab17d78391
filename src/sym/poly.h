// Polynomials over atoms: the canonical form of sums and products, and the arithmetic behind them.
//
// An atom is any node that is not a constant, a sum or a product. A monomial is a product of sorted atoms, as a
// node: the atom, or a left-leaning chain of mul. nullptr stands for the empty monomial, 1.
#pragma once

#include "sym/expr.h"

namespace tripod::sym {

struct Poly {
  struct T {
    const Node* m;  // never nullptr here: that part is `constant`
    int64_t c;      // never 0
    bool operator==(const T&) const = default;
  };
  int64_t constant = 0;
  std::vector<T> terms;  // higher degree first, then by the order of their atoms

  bool is_const() const { return terms.empty(); }
  bool is_zero() const { return terms.empty() && constant == 0; }
  bool operator==(const Poly&) const = default;
};

Poly to_poly(const Node* n);
inline Poly constant_poly(int64_t c) { return {c, {}}; }
// The node of p; sums in which a floordiv and its mod meet are folded on the way.
const Node* to_node(Context::Impl& ctx, Poly p);

Poly plus(const Poly& a, const Poly& b, int64_t times_b = 1);
Poly scaled(const Poly& a, int64_t c);
Poly times(Context::Impl& ctx, const Poly& a, const Poly& b);

// p == q*d + r, moving into q every term that the leading term of d divides (constants round down).
struct Division {
  Poly q, r;
};
Division divide(Context::Impl& ctx, const Poly& p, const Poly& d);
std::optional<Poly> divide_exactly(Context::Impl& ctx, const Poly& p, const Poly& d);

std::vector<const Node*> atoms(const Node* monomial);
const Node* monomial(Context::Impl& ctx, std::vector<const Node*> atoms);
const Node* multiply(Context::Impl& ctx, const Node* a, const Node* b);
// a / b where b divides a: found, and the quotient (nullptr is 1).
struct Quotient {
  bool found;
  const Node* m;
};
Quotient quotient(Context::Impl& ctx, const Node* a, const Node* b);
const Node* common_factor(Context::Impl& ctx, const Node* a, const Node* b);

// p == coefficient * atom + rest; not found when the atom is there with a power, or not at all.
struct Split {
  bool found;
  Poly coefficient, rest;
};
Split split(Context::Impl& ctx, const Poly& p, const Node* atom);

}  // namespace tripod::sym
