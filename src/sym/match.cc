// The engine behind the rule table: finds values for the names of a pattern, checks the condition, builds the result.
// A match is a search: each step calls its continuation for the rest, and tries its next choice when that fails.
#include <algorithm>
#include <array>

#include "sym/rules.h"
#include "sym/syntax.h"

namespace tripod::sym {
namespace {

struct CompiledRule {
  size_t row;
  Syntax pattern, result;
  std::vector<Syntax> conditions;
};
constexpr size_t kOps = static_cast<size_t>(Op::bit_xor) + 1;
constexpr size_t kMaxNames = 8;

Syntax parse_row(std::string_view text, std::vector<std::string>& names) {
  size_t position = 0;
  Syntax s = parse_syntax(text, position);
  if (position != text.size()) throw std::logic_error("rule table: " + std::string(text));
  auto number = [&](auto& self, Syntax& n) -> void {
    for (Syntax& a : n.args) self(self, a);
    if (n.op != Op::variable || !n.args.empty()) return;
    auto it = std::find(names.begin(), names.end(), n.name);
    n.value = it - names.begin();
    if (it == names.end()) names.push_back(n.name);
  };
  number(number, s);
  return s;
}

void split_conjunction(Syntax s, std::vector<Syntax>& out) {
  if (s.op == Op::logical_and) {
    split_conjunction(std::move(s.args[0]), out);
    split_conjunction(std::move(s.args[1]), out);
  } else {
    out.push_back(std::move(s));
  }
}

// The table as trees, by the operator of the pattern.
const std::array<std::vector<CompiledRule>, kOps>& compiled() {
  static const auto table = [] {
    std::array<std::vector<CompiledRule>, kOps> t;
    for (size_t i = 0; i < rules().size(); ++i) {
      const Rule& r = rules()[i];
      std::vector<std::string> names;
      CompiledRule c{i, parse_row(r.pattern, names), {}, {}};
      if (!r.condition.empty()) split_conjunction(parse_row(r.condition, names), c.conditions);
      const size_t bound = names.size();
      c.result = parse_row(r.result, names);
      if (names.size() != bound || bound > kMaxNames) throw std::logic_error("rule table: names of " + std::string(r.name));
      t[static_cast<size_t>(c.pattern.op)].push_back(std::move(c));
    }
    return t;
  }();
  return table;
}

// A reference to a callable that outlives the call.
class Then {
 public:
  template <typename F>
  Then(const F& f) : f_(&f), call_([](const void* p) { return (*static_cast<const F*>(p))(); }) {}  // NOLINT
  bool operator()() const { return call_(f_); }

 private:
  const void* f_;
  bool (*call_)(const void*);
};

class Matcher {
 public:
  Matcher(Context::Impl& ctx, const Node* const args[3]) : ctx_(ctx), args_(args) {}

  const Node* apply(const CompiledRule& rule) {
    bound_.fill(nullptr);
    const Node* result = nullptr;
    try {
      match_args(rule.pattern, args_, [&] {
        for (const Syntax& c : rule.conditions)
          if (!holds(c)) return false;
        result = build(rule.result);
        return true;
      });
    } catch (const Overflow&) {
      return nullptr;  // the constants do not allow this rewrite
    }
    return result;
  }

 private:
  bool is_bare(const Syntax& p) const { return p.op == Op::variable && p.args.empty(); }
  bool is_bound(const Syntax& p) const { return is_bare(p) && bound_[static_cast<size_t>(p.value)]; }
  bool is_free(const Syntax& p) const { return is_bare(p) && !bound_[static_cast<size_t>(p.value)]; }

  bool match_args(const Syntax& p, const Node* const a[3], Then then) {
    auto in_order = [&](size_t i, size_t j) {
      return match(p.args[i], a[i], [&] { return match(p.args[j], a[j], then); });
    };
    switch (p.op) {
      case Op::floordiv:
      case Op::mod: return in_order(1, 0);  // the divisor says how to look at the dividend
      case Op::lt:
      case Op::le: return in_order(0, 1);
      case Op::logical_not: return match(p.args[0], a[0], then);
      case Op::select:
        return match(p.args[0], a[0], [&] {
          return match(p.args[1], a[1], [&] { return match(p.args[2], a[2], then); });
        });
      default:  // commutative
        if (in_order(0, 1)) return true;
        return match(p.args[0], a[1], [&] { return match(p.args[1], a[0], then); });
    }
  }

  bool match(const Syntax& p, const Node* e, Then then) {
    switch (p.op) {
      case Op::constant: return e->op == Op::constant && e->value == p.value && then();
      case Op::variable:
        if (p.args.empty()) return match_name(p, e, then);
        return match_at_most(p, e, then);
      case Op::add: return match_sum(p, e, then);
      case Op::mul: return match_product(p, e, then);
      case Op::logical_not:
        if (is_bound(p.args[0]) && ctx_.make(Op::logical_not, value(p.args[0])) == e) return then();
        [[fallthrough]];
      default: return e->op == p.op && match_args(p, e->args, then);
    }
  }

  const Node*& value(const Syntax& p) { return bound_[static_cast<size_t>(p.value)]; }

  bool match_name(const Syntax& p, const Node* e, Then then) {
    const Node*& v = value(p);
    if (v) return v == e && then();
    if (p.name[0] == 'c' && e->op != Op::constant) return false;
    if (p.name[0] == 'p' && !is_condition(e)) return false;
    v = e;
    if (then()) return true;
    v = nullptr;
    return false;
  }

  bool match_at_most(const Syntax& p, const Node* e, Then then) {
    if (e->op != Op::le && e->op != Op::lt) return false;
    const Node* left = e->op == Op::le ? e->args[0] : ctx_.make(Op::add, e->args[0], ctx_.constant(1));
    return match(p.args[0], left, [&] { return match(p.args[1], e->args[1], then); });
  }

  const Node* term(const Node* m, int64_t c) {
    if (!m) return ctx_.constant(c);
    return c == 1 ? m : ctx_.raw(Op::mul, m, ctx_.constant(c));
  }

  bool match_sum(const Syntax& p, const Node* e, Then then) {
    const Syntax &first = p.args[0], &second = p.args[1];
    Poly sum = to_poly(e);
    if (first.op == Op::mul && is_free(first.args[0]) && is_bound(first.args[1])) {
      const Poly d = to_poly(value(first.args[1]));
      Division v = divide(ctx_, sum, d);
      if (v.q.is_zero()) return false;
      // By a divisor of several terms there is always something to take out; it has to make the rest simpler.
      auto length = [](const Poly& x) { return x.terms.size() + (x.constant != 0); };
      if (length(d) > 1 && length(v.r) >= length(sum)) return false;
      const Node *q = to_node(ctx_, std::move(v.q)), *r = to_node(ctx_, std::move(v.r));
      return match(first.args[0], q, [&] { return match(second, r, then); });
    }
    if (is_bare(first) && is_bare(second) && second.name[0] == 'c') {
      const Node* c = ctx_.constant(sum.constant);
      sum.constant = 0;
      const Node* x = to_node(ctx_, std::move(sum));
      return match(first, x, [&] { return match(second, c, then); });
    }
    for (size_t i = 0; i < sum.terms.size(); ++i) {
      Poly rest = sum;
      rest.terms.erase(rest.terms.begin() + static_cast<std::ptrdiff_t>(i));
      if (is_bare(first) && rest.is_zero()) return false;
      auto take_rest = [&] { return match(second, to_node(ctx_, rest), then); };
      if (match(first, term(sum.terms[i].m, sum.terms[i].c), take_rest)) return true;
    }
    return false;
  }

  bool match_product(const Syntax& p, const Node* e, Then then) {
    const Syntax &first = p.args[0], &second = p.args[1];
    const Poly whole = to_poly(e);
    if (is_bound(second)) {
      auto q = divide_exactly(ctx_, whole, to_poly(value(second)));
      return q && match(first, to_node(ctx_, std::move(*q)), then);
    }
    if (whole.terms.size() + (whole.constant != 0) != 1) return false;
    const Poly::T t = whole.is_const() ? Poly::T{nullptr, whole.constant} : whole.terms[0];
    if (is_free(second)) return match_common_factor(p, t, then);
    auto factors = atoms(t.m);
    for (size_t i = 0; i < factors.size(); ++i) {
      auto others = factors;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      const Node* k = term(monomial(ctx_, std::move(others)), t.c);
      if (match(second, factors[i], [&] { return match(first, k, then); })) return true;
    }
    return false;
  }

  // y*g in the divisor: every g that the divisor shares with all, or with one, of the terms of the dividend.
  bool match_common_factor(const Syntax& p, const Poly::T& divisor, Then then) {
    const Poly dividend = to_poly(args_[0]);
    std::vector<Poly::T> tried;
    auto attempt = [&](Poly::T g) {
      if ((!g.m && g.c == 1) || std::find(tried.begin(), tried.end(), g) != tried.end()) return false;
      tried.push_back(g);
      const Node* y = term(quotient(ctx_, divisor.m, g.m).m, divisor.c / g.c);
      return match(p.args[1], term(g.m, g.c), [&] { return match(p.args[0], y, then); });
    };
    Poly::T common = divisor;
    for (const auto& t : dividend.terms) common = {common_factor(ctx_, common.m, t.m), gcd(common.c, t.c)};
    if (!dividend.terms.empty() && attempt(common)) return true;
    for (const auto& t : dividend.terms)
      if (attempt({common_factor(ctx_, divisor.m, t.m), gcd(divisor.c, t.c)})) return true;
    return false;
  }

  const Node* build(const Syntax& s) {
    if (s.op == Op::constant) return ctx_.constant(s.value);
    if (s.op == Op::variable && s.args.empty()) return value(s);
    const Node* a[3] = {};
    for (size_t i = 0; i < s.args.size(); ++i) a[i] = build(s.args[i]);
    if (s.op != Op::variable) return ctx_.make(s.op, a[0], a[1], a[2]);
    if (s.name == "gcd") return ctx_.constant(gcd(a[0]->divisor, a[1]->value));
    throw std::logic_error("rule table: function " + s.name);
  }

  bool holds(const Syntax& c) {
    const Node *a = build(c.args[0]), *b = build(c.args[1]);
    switch (c.op) {
      case Op::eq: return a == b;
      case Op::ne: return a != b && a->op == Op::constant && b->op == Op::constant;
      case Op::le:
      case Op::lt: {
        Poly d = plus(to_poly(a), to_poly(b), -1);
        if (c.op == Op::lt) d = plus(d, constant_poly(1));
        return proved_nonpositive(ctx_, d, kRuleBudget);
      }
      default: throw std::logic_error("rule table: condition");
    }
  }

  Context::Impl& ctx_;
  const Node* const* args_;
  std::array<const Node*, kMaxNames> bound_;
};

}  // namespace

const Node* apply_rules(Context::Impl& ctx, Op op, const Node* const args[3]) {
  Matcher matcher(ctx, args);
  for (const CompiledRule& r : compiled()[static_cast<size_t>(op)]) {
    if (const Node* n = matcher.apply(r)) {
      ++ctx.fired[r.row];
      return n;
    }
  }
  return nullptr;
}

}  // namespace tripod::sym
