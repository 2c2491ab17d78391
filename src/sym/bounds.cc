// Ranges and divisors of expressions. Arithmetic saturates: an end beyond int64 is "no bound".
#include <algorithm>
#include <bit>

#include "sym/impl.h"

namespace tripod::sym {
namespace {

__extension__ typedef __int128 Wide;
constexpr Wide kInf = Wide{1} << 100;

struct Interval {
  Wide lo, hi;
};

Interval widen(Range r) { return {r.lo == Range::kMin ? -kInf : r.lo, r.hi == Range::kMax ? kInf : r.hi}; }
Range narrow(Interval i) {
  Range r;
  if (i.lo > Range::kMin) r.lo = static_cast<int64_t>(std::min<Wide>(i.lo, Range::kMax));
  if (i.hi < Range::kMax) r.hi = static_cast<int64_t>(std::max<Wide>(i.hi, Range::kMin));
  return r;
}

bool infinite(Wide a) { return a >= kInf || a <= -kInf; }
Wide clamp(Wide a) { return std::clamp(a, -kInf, kInf); }
Wide times(Wide a, Wide b) {
  if (a == 0 || b == 0) return 0;
  if (infinite(a) || infinite(b)) return (a < 0) == (b < 0) ? kInf : -kInf;
  return clamp(a * b);  // both fit 64 bits
}
Wide div(Wide a, Wide b) {  // floor, b > 0
  if (infinite(b)) return a < 0 ? -1 : 0;
  if (infinite(a)) return a;
  Wide q = a / b;
  return q - (a % b < 0);
}

Interval times(Interval a, Interval b) {
  const Wide p[] = {times(a.lo, b.lo), times(a.lo, b.hi), times(a.hi, b.lo), times(a.hi, b.hi)};
  return {*std::min_element(p, p + 4), *std::max_element(p, p + 4)};
}
Interval negate(Interval a) { return {-a.hi, -a.lo}; }

// A divisor is not zero where the quotient has a value.
Interval divisor(Interval b) {
  if (b.lo == 0) b.lo = 1;
  if (b.hi == 0) b.hi = -1;
  return b.lo <= b.hi ? b : Interval{1, 1};  // always zero, or contradictory facts: no value at all
}

Interval floordiv(Interval a, Interval b) {
  b = divisor(b);
  if (b.hi < 0) return floordiv(negate(a), negate(b));
  if (b.lo > 0) return {div(a.lo, a.lo < 0 ? b.lo : b.hi), div(a.hi, a.hi < 0 ? b.hi : b.lo)};
  const Wide m = std::max(a.hi < 0 ? -a.hi : a.hi, a.lo < 0 ? -a.lo : a.lo);
  return {-m, m};
}

Interval mod(Interval a, Interval b) {
  b = divisor(b);
  if (b.hi < 0) return negate(mod(negate(a), negate(b)));
  if (b.lo > 0) {
    if (b.lo == b.hi && !infinite(a.lo) && !infinite(a.hi)) {
      Wide q = div(a.lo, b.lo);
      if (q == div(a.hi, b.lo)) return {a.lo - q * b.lo, a.hi - q * b.lo};
    }
    if (a.lo >= 0 && a.hi < b.lo) return a;
    Wide hi = infinite(b.hi) ? kInf : b.hi - 1;
    return {0, a.lo >= 0 ? std::min(hi, a.hi) : hi};
  }
  return {infinite(b.lo) ? -kInf : b.lo + 1, infinite(b.hi) ? kInf : b.hi - 1};
}

Range truth(bool always, bool never) { return {always ? 1 : 0, never ? 0 : 1}; }

// Any factor of a multiple will do where the product does not fit.
int64_t multiply_divisors(int64_t a, int64_t b) {
  int64_t r;
  return __builtin_mul_overflow(a, b, &r) ? std::max(a, b) : r;
}

}  // namespace

Range infer_range(const Node& n, const Range r[3]) {
  const Interval a = widen(r[0]), b = widen(r[1]);
  switch (n.op) {
    case Op::add: return narrow({clamp(a.lo + b.lo), clamp(a.hi + b.hi)});
    case Op::mul: {
      Interval p = times(a, b);
      if (n.args[0] == n.args[1]) p.lo = std::max<Wide>(p.lo, 0);
      return narrow(p);
    }
    case Op::floordiv: return narrow(floordiv(a, b));
    case Op::mod: return narrow(mod(a, b));
    case Op::min: return {std::min(r[0].lo, r[1].lo), std::min(r[0].hi, r[1].hi)};
    case Op::max: return {std::max(r[0].lo, r[1].lo), std::max(r[0].hi, r[1].hi)};
    case Op::select: return {std::min(r[1].lo, r[2].lo), std::max(r[1].hi, r[2].hi)};
    case Op::lt: return truth(a.hi < b.lo, a.lo >= b.hi);
    case Op::le: return truth(a.hi <= b.lo, a.lo > b.hi);
    case Op::eq: return truth(a.lo == a.hi && b.lo == b.hi && a.lo == b.lo, a.hi < b.lo || a.lo > b.hi);
    case Op::ne: return truth(a.hi < b.lo || a.lo > b.hi, a.lo == a.hi && b.lo == b.hi && a.lo == b.lo);
    case Op::logical_and: return {std::min(r[0].lo, r[1].lo), std::min(r[0].hi, r[1].hi)};
    case Op::logical_or: return {std::max(r[0].lo, r[1].lo), std::max(r[0].hi, r[1].hi)};
    case Op::logical_not: return {1 - r[0].hi, 1 - r[0].lo};
    case Op::bit_xor:
      if (r[0].lo < 0 || r[1].lo < 0) return {};
      return {0, static_cast<int64_t>((uint64_t{1} << std::bit_width(static_cast<uint64_t>(std::max(r[0].hi, r[1].hi)))) - 1)};
    case Op::constant:
    case Op::variable: break;
  }
  return n.range;
}

int64_t infer_divisor(const Node& n) {
  auto d = [&](int i) { return n.args[i]->divisor; };
  switch (n.op) {
    case Op::mul: return multiply_divisors(d(0), d(1));
    case Op::add:
    case Op::mod:  // x - q*b
    case Op::min:
    case Op::max: return gcd(d(0), d(1));
    case Op::select: return gcd(d(1), d(2));
    case Op::floordiv:
      if (n.args[1]->op == Op::constant && n.args[1]->value > 0 && d(0) % n.args[1]->value == 0)
        return d(0) / n.args[1]->value;
      return 1;
    case Op::bit_xor: {
      int64_t g = gcd(d(0), d(1));
      return g & -g;  // the low bits that are zero in both
    }
    default: return 1;
  }
}

Range range_of(const Poly& p) {
  Interval s{p.constant, p.constant};
  for (const auto& t : p.terms) {
    Interval i = times(widen(t.m->range), Interval{t.c, t.c});
    s = {clamp(s.lo + i.lo), clamp(s.hi + i.hi)};
  }
  return narrow(s);
}

Range bounds(Expr e) { return e->op == Op::add || e->op == Op::mul ? range_of(to_poly(e.node())) : e->range; }

namespace {
class Bounds {
 public:
  explicit Bounds(const Ranges& env) : env_(env) {
    for (const auto& [v, r] : env) bits_ |= v->var_bits;
  }
  Range visit(const Node* n) {
    if (auto it = env_.find(Expr(n)); it != env_.end()) return both(n->range, it->second);
    if ((n->var_bits & bits_) == 0) return n->range;
    if (auto it = done_.find(n); it != done_.end()) return it->second;
    Range args[3];
    for (int i = 0; i < 3 && n->args[i]; ++i) args[i] = visit(n->args[i]);
    return done_[n] = both(n->range, infer_range(*n, args));
  }

 private:
  static Range both(Range a, Range b) { return {std::max(a.lo, b.lo), std::min(a.hi, b.hi)}; }

  const Ranges& env_;
  uint64_t bits_ = 0;
  std::unordered_map<const Node*, Range> done_;
};
}  // namespace

Range bounds(Expr e, const Ranges& env) { return Bounds(env).visit(e.node()); }

}  // namespace tripod::sym
