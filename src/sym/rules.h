// The table of rewrite rules, and what the tests need of it.
//
// A row says: an expression of the form `pattern`, where `condition` is proved, equals `result`. The text is that
// of expressions (sym/text.cc) with these conventions:
//   c, c0, c1, ...   match constants only;   p, p0, p1, ...   conditions only;   every other name anything;
//   q*b + r          with b known from the divisor: q is the part of the sum that b divides, and not zero;
//   P + x            one term of the sum matches P, x is the rest; the rest may be zero unless P is a bare name;
//   x + c            the constant of the sum and the rest (either may be zero);
//   k*P              P is one factor of the term;   y*g in a divisor: g also divides a term of the dividend;
//   at_most(x, y)    x <= y, also x - 1 < y;
//   gcd(x, c)        in conditions and results: gcd of c with the known divisor of x.
// Arguments of commutative operators match in either order. A condition is a conjunction; `==` and `!=` in it are
// between constants.
#pragma once

#include <string_view>
#include <vector>

#include "sym/impl.h"

namespace tripod::sym {

struct Syntax;

struct Rule {
  std::string_view name, pattern, condition, result;
};

const std::vector<Rule>& rules();

// The result of the first row that applies to op(args), or nullptr.
const Node* apply_rules(Context::Impl& ctx, Op op, const Node* const args[3]);

}  // namespace tripod::sym
