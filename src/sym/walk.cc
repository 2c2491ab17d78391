// Walks over the DAG of an expression: substitute, variables, uses, evaluate, linear_in. Each visits a node once.
#include <algorithm>
#include <unordered_set>

#include "sym/impl.h"

namespace tripod::sym {
namespace {

class Substitution {
 public:
  Substitution(Context::Impl& ctx, const Map& vars) : ctx_(ctx), vars_(vars) {
    for (const auto& [v, e] : vars) {
      if (!v.is_var()) throw std::invalid_argument("sym: substitute() replaces variables only");
      bits_ |= v->var_bits;
    }
  }

  const Node* visit(const Node* n) {
    if ((n->var_bits & bits_) == 0) return n;
    if (n->op == Op::variable) {
      auto it = vars_.find(Expr(n));
      return it == vars_.end() ? n : it->second.node();
    }
    if (auto it = done_.find(n); it != done_.end()) return it->second;
    const Node* r = n->op == Op::add || n->op == Op::mul ? polynomial(n) : other(n);
    return done_[n] = r;
  }

 private:
  // All terms at once: the partial sums of the chain are of no interest.
  const Node* polynomial(const Node* n) {
    const Poly p = to_poly(n);
    Poly sum = constant_poly(p.constant);
    bool same = true;
    for (const auto& t : p.terms) {
      Poly term = constant_poly(t.c);
      for (const Node* a : atoms(t.m)) {
        const Node* r = visit(a);
        same = same && r == a;
        term = times(ctx_, term, to_poly(r));
      }
      sum = plus(sum, term);
    }
    // The filter lets through what has none of the variables; that must stay the same node.
    return same ? n : to_node(ctx_, std::move(sum));
  }

  const Node* other(const Node* n) {
    const Node* args[3] = {};
    bool same = true;
    for (int i = 0; i < 3 && n->args[i]; ++i) {
      args[i] = visit(n->args[i]);
      same = same && args[i] == n->args[i];
    }
    return same ? n : ctx_.make(n->op, args[0], args[1], args[2]);
  }

  Context::Impl& ctx_;
  const Map& vars_;
  uint64_t bits_ = 0;
  std::unordered_map<const Node*, const Node*> done_;
};

// Every node of e, left to right, each once, that the filter lets through.
template <typename Enter>
void walk(const Node* n, std::unordered_set<const Node*>& seen, const Enter& enter) {
  if (n->op == Op::constant || !seen.insert(n).second || !enter(n)) return;
  for (int i = 0; i < 3 && n->args[i]; ++i) walk(n->args[i], seen, enter);
}

class Evaluation {
 public:
  explicit Evaluation(const Values& values) : values_(values) {}

  int64_t visit(const Node* n) {
    if (n->op == Op::constant) return n->value;
    if (n->op == Op::variable) {
      auto it = values_.find(Expr(n));
      if (it == values_.end()) throw std::invalid_argument("sym: no value for '" + display_name(n) + "'");
      return it->second;
    }
    if (auto it = done_.find(n); it != done_.end()) return it->second;
    int64_t v = compute(n);
    done_.emplace(n, v);
    return v;
  }

 private:
  int64_t compute(const Node* n) {
    auto arg = [&](int i) { return visit(n->args[i]); };
    switch (n->op) {
      case Op::add: {
        // The sum has to fit, its partial sums need not.
        __extension__ __int128 s = 0;
        for (; n->op == Op::add; n = n->args[0]) s += visit(n->args[1]);
        s += visit(n);
        if (s < Range::kMin || s > Range::kMax) throw_overflow("+");
        return static_cast<int64_t>(s);
      }
      case Op::mul: return checked_mul(arg(0), arg(1));
      case Op::floordiv: return floor_div(arg(0), arg(1));
      case Op::mod: return floor_mod(arg(0), arg(1));
      case Op::min: return std::min(arg(0), arg(1));
      case Op::max: return std::max(arg(0), arg(1));
      case Op::select: return arg(0) ? arg(1) : arg(2);  // the other side may well have no value
      case Op::lt: return arg(0) < arg(1);
      case Op::le: return arg(0) <= arg(1);
      case Op::eq: return arg(0) == arg(1);
      case Op::ne: return arg(0) != arg(1);
      case Op::logical_and: return arg(0) && arg(1);
      case Op::logical_or: return arg(0) || arg(1);
      case Op::logical_not: return !arg(0);
      case Op::bit_xor: return arg(0) ^ arg(1);
      case Op::constant:
      case Op::variable: break;
    }
    throw std::logic_error("sym: evaluate");
  }

  const Values& values_;
  std::unordered_map<const Node*, int64_t> done_;
};

}  // namespace

Expr substitute(Expr e, const Map& vars) {
  if (vars.empty()) return e;
  return Expr(Substitution(impl_of(e.node()), vars).visit(e.node()));
}

std::vector<Expr> variables(Expr e) {
  std::vector<Expr> found;
  std::unordered_set<const Node*> seen;
  walk(e.node(), seen, [&](const Node* n) {
    if (n->op == Op::variable) found.push_back(Expr(n));
    return n->var_bits != 0;
  });
  return found;
}

bool uses(Expr e, Expr var) {
  bool found = false;
  std::unordered_set<const Node*> seen;
  walk(e.node(), seen, [&](const Node* n) {
    found = found || n == var.node();
    return !found && (n->var_bits & var->var_bits) != 0;
  });
  return found;
}

int64_t evaluate(Expr e, const Values& values) { return Evaluation(values).visit(e.node()); }

std::optional<Linear> linear_in(Expr e, Expr var) {
  Context::Impl& ctx = impl_of(e.node());
  if (!uses(e, var)) return Linear{Expr(ctx.constant(0)), e};
  Split s = split(ctx, to_poly(e.node()), var.node());
  if (!s.found) return std::nullopt;
  Linear r{Expr(to_node(ctx, std::move(s.coefficient))), Expr(to_node(ctx, std::move(s.rest)))};
  if (uses(r.coefficient, var) || uses(r.rest, var)) return std::nullopt;
  return r;
}

}  // namespace tripod::sym
