// Contents through floats: exporters compute sizes as cast(int, floor(cast(float, dim) * scale)).
//
// A float on that way is num/den with den a constant. It is exact as long as every intermediate is: den a power of
// two (a dyadic scale such as 2, 0.5 or 1.5) and |num| within the type's integer precision. One quotient by any
// integer is allowed too when the rounding to an integer follows at once: for integers 0 <= a, b within the precision,
// floor and ceil of the rounded a/b are those of the exact one.
// The bound on num becomes a requirement where it cannot be proved; with it the result is exact, not assumed.
#include <cmath>

#include "graph/contents.h"
#include "graph/infer.h"

namespace tripod::graph {
namespace {

struct Rational {
  Expr num;
  int64_t den = 1;  // > 0
  bool rounded = false;  // the float is the quotient rounded: only floor and ceil may follow
};
using Rationals = std::vector<Rational>;

constexpr int64_t kMaxDenominator = 256;

bool power_of_two(int64_t v) { return (v & (v - 1)) == 0; }

int64_t precision(DType t) {
  switch (t) {
    case DType::f64: return int64_t{1} << 53;
    case DType::f32: return int64_t{1} << 24;
    case DType::f16: return int64_t{1} << 11;
    default: return 0;
  }
}

// A constant as a dyadic rational, when it is a simple one.
std::optional<Rational> dyadic(sym::Context& c, double v) {
  for (int64_t den = 1; den <= kMaxDenominator; den *= 2) {
    const double num = v * static_cast<double>(den);
    if (num == std::floor(num) && std::fabs(num) < 1 << 24) return Rational{c.constant(static_cast<int64_t>(num)), den};
  }
  return std::nullopt;
}

class Walk {
 public:
  Walk(const Graph& g, Requirements& required) : g_(g), required_(required) {}

  std::optional<Rationals> values(ValueId v, int depth = 0) {
    if (v == kNoValue || depth > 16 || !static_count(g_.type(v)) || *static_count(g_.type(v)) > kMaxContents)
      return std::nullopt;
    const Type& t = g_.type(v);
    if (t.kind != Type::tensor || !precision(t.dtype)) return std::nullopt;
    auto r = compute(g_.producer(v), v, depth);
    if (!r || static_cast<int64_t>(r->size()) != *static_count(t)) return std::nullopt;
    for (const Rational& q : *r)
      if (!exact(q, precision(t.dtype))) return std::nullopt;
    return r;
  }

 private:
  // |num| <= limit: proved, or required.
  bool exact(const Rational& q, int64_t limit) {
    const sym::Range b = sym::bounds(q.num);
    if (b.lo < -limit) return false;
    if (q.num.is_const()) return b.hi <= limit;
    if (b.hi > limit)
      required_.push_back({sym::le(q.num, q.num.context().constant(limit)),
                           "a size computed in floating point is exact up to " + std::to_string(limit), {}, {q.num}});
    return true;
  }

  std::optional<Rationals> compute(const Node& n, ValueId v, int depth) {
    auto in = [&](size_t i) { return values(n.operands[i], depth + 1); };
    switch (n.op) {
      case OpKind::constant: return constant(v);
      case OpKind::cast: return from_ints(n, depth);
      case OpKind::identity:
      case OpKind::reshape: return in(0);
      case OpKind::floor:
      case OpKind::ceil: return round(n.op, in(0));
      case OpKind::concat: {
        if (g_.type(v).rank() != 1) return std::nullopt;
        Rationals all;
        for (size_t i = 0; i < n.operands.size(); ++i) {
          auto part = in(i);
          if (!part) return std::nullopt;
          all.insert(all.end(), part->begin(), part->end());
        }
        return all;
      }
      case OpKind::gather: return gather(n, depth);
      case OpKind::slice: return slice(n, v, depth);
      case OpKind::add:
      case OpKind::sub:
      case OpKind::maximum:
      case OpKind::minimum:
      case OpKind::mul:
      case OpKind::div: return arithmetic(n, in(0), in(1));
      default: return std::nullopt;
    }
  }

  std::optional<Rationals> constant(ValueId v) {
    const auto numbers = g_.float_values(v);
    Rationals out;
    for (double x : *numbers) {
      auto q = dyadic(g_.sym(), x);
      if (!q) return std::nullopt;
      out.push_back(*q);
    }
    return out;
  }

  std::optional<Rationals> from_ints(const Node& n, int depth) {
    const ValueId x = n.operands[0];
    if (is_float(g_.type(x).dtype)) return values(x, depth + 1);  // f32 <-> f64; exact() checks the narrower one
    if (!g_.value(x).contents) return std::nullopt;
    Rationals out;
    for (Expr e : *g_.value(x).contents) out.push_back({e});
    return out;
  }

  std::optional<Rationals> round(OpKind op, std::optional<Rationals> in) {
    if (!in) return std::nullopt;
    for (Rational& q : *in)
      q = {op == OpKind::floor ? sym::floordiv(q.num, q.den) : sym::ceildiv(q.num, q.den)};
    return in;
  }

  // 1-D operands with constant indices: what stands behind Shape.
  std::optional<Rationals> gather(const Node& n, int depth) {
    const auto x = values(n.operands[0], depth + 1);
    const auto& index = g_.value(n.operands[1]).contents;
    if (!x || !index || g_.type(n.operands[0]).rank() != 1) return std::nullopt;
    Rationals out;
    for (Expr i : *index) {
      if (!i.is_const()) return std::nullopt;
      const int64_t at = i.value() < 0 ? i.value() + static_cast<int64_t>(x->size()) : i.value();
      if (at < 0 || at >= static_cast<int64_t>(x->size())) return std::nullopt;
      out.push_back((*x)[static_cast<size_t>(at)]);
    }
    return out;
  }

  std::optional<Rationals> slice(const Node& n, ValueId v, int depth) {
    const auto x = values(n.operands[0], depth + 1);
    const auto& a = std::get<SliceAttr>(n.attr);
    if (!x || g_.type(v).rank() != 1 || !a.starts[0].is_const()) return std::nullopt;
    Rationals out;
    for (int64_t i = 0; i < *static_count(g_.type(v)); ++i) {
      const int64_t at = a.starts[0].value() + i * a.steps[0];
      if (at < 0 || at >= static_cast<int64_t>(x->size())) return std::nullopt;
      out.push_back((*x)[static_cast<size_t>(at)]);
    }
    return out;
  }

  std::optional<Rationals> arithmetic(const Node& n, std::optional<Rationals> a, std::optional<Rationals> b) {
    if (!a || !b || a->empty() || b->empty()) return std::nullopt;
    const size_t count = std::max(a->size(), b->size());
    if ((a->size() != 1 && a->size() != count) || (b->size() != 1 && b->size() != count)) return std::nullopt;
    Rationals out;
    for (size_t i = 0; i < count; ++i) {
      const Rational &x = (*a)[a->size() == 1 ? 0 : i], &y = (*b)[b->size() == 1 ? 0 : i];
      auto q = n.op == OpKind::mul ? product(x, y) : n.op == OpKind::div ? quotient(x, y) : over_common(n.op, x, y);
      if (!q || q->den > kMaxDenominator) return std::nullopt;
      out.push_back(*q);
    }
    return out;
  }

  // Sums, differences and the like: of numerators over one denominator.
  std::optional<Rational> over_common(OpKind op, const Rational& x, const Rational& y) {
    if (x.rounded || y.rounded) return std::nullopt;
    const bool same = x.den == y.den;
    const Expr a = same ? x.num : x.num * y.den, b = same ? y.num : y.num * x.den;
    const Expr num = op == OpKind::add ? a + b : op == OpKind::sub ? a - b : op == OpKind::maximum ? sym::max(a, b) : sym::min(a, b);
    return Rational{num, same ? x.den : x.den * y.den};
  }

  std::optional<Rational> product(const Rational& x, const Rational& y) {
    if (x.rounded || y.rounded) return std::nullopt;
    return Rational{x.num * y.num, x.den * y.den};
  }

  std::optional<Rational> quotient(const Rational& x, const Rational& y) {
    if (x.rounded || y.rounded || !y.num.is_const() || y.num.value() <= 0) return std::nullopt;
    // (a/b) / (c/d) = a*d / (b*c)
    const Rational q{x.num * y.den, x.den * y.num.value(), !power_of_two(y.num.value())};
    if (q.rounded && (x.den != 1 || y.den != 1 || sym::bounds(x.num).lo < 0)) return std::nullopt;
    return q;
  }

  const Graph& g_;
  Requirements& required_;
};

}  // namespace

std::optional<Elements> float_round_trip(const Graph& g, const Node& n, const Type&) {
  Requirements required;
  const auto in = Walk(g, required).values(n.operands[0]);
  if (!in) return std::nullopt;
  Elements out;
  for (const Rational& q : *in) {
    // A cast truncates: floor for what is not negative.
    if (q.den != 1 && sym::bounds(q.num).lo < 0) return std::nullopt;
    out.push_back(sym::floordiv(q.num, q.den));
  }
  merge_requirements(g.module(), required, n.origins);
  return out;
}

}  // namespace tripod::graph
