// Integer expressions: int where the kernel is narrow, long long otherwise.
#include <algorithm>
#include <cstdint>

#include "backends/cuda/printer.h"

namespace tripod::cuda {

using sym::Op;

namespace {

void atoms(sym::Expr factor, std::vector<sym::Expr>& out) {
  if (factor->op != Op::mul) return out.push_back(factor);
  atoms(factor.arg(0), out);
  atoms(factor.arg(1), out);
}

int log2_of(int64_t v) {
  for (int k = 0; k < 63; ++k)
    if (v == int64_t{1} << k) return k;
  return -1;
}

// Worth a local of its own when a loop would compute it again and again: more than a scaled variable.
bool is_costly(sym::Expr e) {
  switch (e->op) {
    case Op::constant:
    case Op::variable: return false;
    case Op::add:
    case Op::mul: {
      int64_t constant = 0;
      const std::vector<sym::Term> ts = sym::terms(e, constant);
      int products = 0;
      for (const sym::Term& t : ts) {
        if (t.factor->op != Op::variable) return true;
        products += t.coefficient != 1;
      }
      return ts.size() > 2 || (ts.size() == 2 && products > 0);
    }
    default: return true;
  }
}

}  // namespace

std::string within(const Text& t, Level needed) { return t.level < needed ? "(" + t.s + ")" : t.s; }

std::string KernelPrinter::literal(int64_t v) const {
  if (v == INT64_MIN) return "(-9223372036854775807ll - 1)";
  const bool is_long = !narrow_ || v > INT32_MAX || v <= INT32_MIN;
  return std::to_string(v) + (is_long && (v > INT32_MAX || v <= INT32_MIN) ? "ll" : "");
}

size_t KernelPrinter::home(sym::Expr e) const {
  size_t h = 0;
  for (const sym::Expr& v : sym::variables(e)) {
    const auto it = homes_.find(v);
    TRIPOD_CHECK(it != homes_.end(), "variable " + sym::text(v) + " is not bound in kernel " + f_.name);
    h = std::max(h, it->second);
  }
  return h;
}

bool KernelPrinter::loop_between(size_t outer, size_t inner) const {
  for (size_t s = outer + 1; s <= inner; ++s)
    if (scopes_[s].is_loop) return true;
  return false;
}

// A dim or an axis is declared when it is used first: an unused variable is a warning.
std::string KernelPrinter::variable(sym::Expr v) {
  if (const auto it = lazy_.find(v); it != lazy_.end()) {
    const auto declaration = std::move(it->second);
    lazy_.erase(it);
    line(declaration(), 0);
  }
  const auto it = names_.find(v);
  TRIPOD_CHECK(it != names_.end(), "variable " + sym::text(v) + " is not bound in kernel " + f_.name);
  return it->second;
}

// i / C, i % C and the like say in their names what they are, others what they are for.
static std::string name_of(sym::Expr e, const std::string& hint) {
  if (e->op == Op::floordiv || e->op == Op::mod) {
    const auto part = [](sym::Expr x) {
      return x.is_const() ? std::to_string(x.value()) : x.is_var() ? identifier(x->name) : std::string();
    };
    const std::string a = part(e.arg(0)), b = part(e.arg(1));
    if (!a.empty() && !b.empty()) return a + (e->op == Op::mod ? "_mod_" : "_div_") + b;
  }
  return hint.empty() ? "at" : hint;
}

std::string KernelPrinter::local(sym::Expr e, size_t scope) {
  const std::string text = index_node(e, scope).s;  // may itself put locals in front
  const std::string name = unique(name_of(e, hint_), scope);
  line("const " + index_type() + " " + name + " = " + text + ";", scope);
  scopes_[scope].locals[e] = name;
  return name;
}

Text KernelPrinter::index(sym::Expr e, size_t at) {
  if (e.is_const()) return {literal(e.value()), e.value() < 0 ? kUnary : kPrimary};
  if (e.is_var()) return {variable(e)};
  for (size_t s = std::min(at + 1, scopes_.size()); s-- > 0;)
    if (const auto it = scopes_[s].locals.find(e); it != scopes_[s].locals.end()) return {it->second};
  const size_t h = home(e);
  const bool is_condition = e->op >= Op::lt && e->op <= Op::logical_not;
  const bool divides = e->op == Op::floordiv || e->op == Op::mod;
  if (!is_condition && (divides || (is_costly(e) && loop_between(h, at)))) return {local(e, h)};
  return index_node(e, at);
}

Text KernelPrinter::index_node(sym::Expr e, size_t at) {
  const auto infix = [&](const char* op, Level level, Level operands) -> Text {
    return {within(index(e.arg(0), at), operands) + op + within(index(e.arg(1), at), operands), level};
  };
  switch (e->op) {
    case Op::constant:
    case Op::variable: return index(e, at);
    case Op::add:
    case Op::mul: return sum(e, at);
    case Op::floordiv:
    case Op::mod: return divide(e, at);
    case Op::min:
    case Op::max:
      return {std::string(e->op == Op::min ? "min_of(" : "max_of(") + index(e.arg(0), at).s + ", " + index(e.arg(1), at).s + ")"};
    case Op::select:
      return {within(index(e.arg(0), at), kOr) + " ? " + within(index(e.arg(1), at), kOr) + " : " +
                  within(index(e.arg(2), at), kConditional), kConditional};
    case Op::lt: return infix(" < ", kOrder, kSum);
    case Op::le: return infix(" <= ", kOrder, kSum);
    case Op::eq: return infix(" == ", kEqual, kSum);
    case Op::ne: return infix(" != ", kEqual, kSum);
    case Op::logical_and: return infix(" && ", kAnd, kAnd);
    case Op::logical_or: {
      const auto operand = [&](sym::Expr x) {
        const Text t = index(x, at);
        return within(t, t.level == kAnd ? kEqual : kOr);
      };
      return {operand(e.arg(0)) + " || " + operand(e.arg(1)), kOr};
    }
    case Op::logical_not: return {"!" + within(index(e.arg(0), at), kUnary), kUnary};
    case Op::bit_xor: return infix(" ^ ", kBits, kUnary);
  }
  internal_error(__FILE__, __LINE__, "no text for " + sym::text(e));
}

// A sum, its terms that do not change in the loops around as one local per loop where that saves work. A positive term
// first where there is one, the constant last.
Text KernelPrinter::sum(sym::Expr e, size_t at) {
  int64_t constant = 0;
  std::vector<sym::Term> ts = sym::terms(e, constant);
  const size_t h = home(e);
  size_t below = 0;
  sym::Expr invariant;
  for (const sym::Term& t : ts)
    if (const size_t th = home(t.factor); th < h) {
      below = std::max(below, th);
      const sym::Expr x = t.factor * t.coefficient;
      invariant = invariant ? invariant + x : x;
    }
  std::vector<Text> parts;
  std::vector<bool> negative;
  if (invariant && is_costly(invariant) && loop_between(below, h)) {
    parts.push_back(index(invariant, at));
    negative.push_back(false);
    std::erase_if(ts, [&](const sym::Term& t) { return home(t.factor) < h; });
  }
  std::stable_partition(ts.begin(), ts.end(), [](const sym::Term& t) { return t.coefficient > 0; });
  for (const sym::Term& t : ts) {
    negative.push_back(t.coefficient < 0);
    parts.push_back(term(t.coefficient, t.factor, at));
  }
  if (parts.empty()) return {literal(constant), constant < 0 ? kUnary : kPrimary};
  if (parts.size() == 1 && constant == 0 && !negative[0]) return parts[0];
  std::string s;
  if (negative[0] && constant > 0) s = literal(constant), constant = 0;
  for (size_t i = 0; i < parts.size(); ++i)
    s += (s.empty() ? (negative[i] ? "-" : "") : negative[i] ? " - " : " + ") + within(parts[i], negative[i] ? kProduct : kSum);
  if (constant > 0) s += " + " + literal(constant);
  if (constant < 0) s += " - " + (constant == INT64_MIN ? literal(constant) : literal(-constant));
  return {s, kSum};
}

// The magnitude of coefficient * factor.
Text KernelPrinter::term(int64_t coefficient, sym::Expr factor, size_t at) {
  const int64_t size = coefficient < 0 ? -coefficient : coefficient;
  std::vector<sym::Expr> as;
  atoms(factor, as);
  // What is bound outermost first: C++ multiplies from the left, and the compiler moves what it can out of loops.
  std::stable_sort(as.begin(), as.end(), [&](sym::Expr a, sym::Expr b) { return home(a) < home(b); });
  if (as.size() == 1 && size == 1) return index(as[0], at);
  std::string s;
  for (sym::Expr a : as) s += (s.empty() ? "" : "*") + within(index(a, at), kUnary);
  if (size != 1) s += "*" + literal(size);
  return {s, kProduct};
}

static bool is_positive(sym::Expr e) { return sym::bounds(e).lo > 0 || sym::proved(sym::gt(e, 0)); }

// Bounds look at one operand at a time; here a quotient's divisor may be positive for a reason that takes a proof.
static bool is_not_negative(sym::Expr e) {
  if (sym::bounds(e).lo >= 0) return true;
  if (e->op == Op::floordiv || e->op == Op::mod) return is_not_negative(e.arg(0)) && is_positive(e.arg(1));
  if (e->op != Op::add && e->op != Op::mul) return sym::proved(sym::ge(e, 0));
  int64_t constant = 0;
  const std::vector<sym::Term> all = sym::terms(e, constant);
  const auto adds = [&](const sym::Term& t) { return t.coefficient > 0 && !(t.factor == e) && is_not_negative(t.factor); };
  return constant >= 0 && std::all_of(all.begin(), all.end(), adds);
}

// floordiv and mod. A power of two is a shift or a mask whatever the sign; operands that are known not to be negative
// take C's operators; the helpers round down, and give 0 for a division by 0 (an extent of 0, whose loop does not run).
Text KernelPrinter::divide(sym::Expr e, size_t at) {
  const bool remainder = e->op == Op::mod;
  const sym::Expr a = e.arg(0), b = e.arg(1);
  const Text x = index(a, at);
  if (b.is_const())
    if (const int k = log2_of(b.value()); k >= 0)
      return {within(x, kUnary) + (remainder ? " & " + literal(b.value() - 1) : " >> " + std::to_string(k)), kBits};
  const Text y = index(b, at);
  if (is_positive(b) && is_not_negative(a))
    return {within(x, kProduct) + (remainder ? " % " : " / ") + within(y, kUnary), kProduct};
  return {std::string(remainder ? "floor_mod(" : "floor_div(") + x.s + ", " + y.s + ")"};
}

}  // namespace tripod::cuda
