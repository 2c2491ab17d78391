// Integer expressions: one kind for the dims of tensors and for the indices of loops.
//
// An `Expr` is a handle to an immutable node that is interned in a `Context` (one per compile), so that equal
// expressions are the same pointer and `==` is identity. Every constructor returns the canonical simplified form:
// sums are polynomials (integer coefficient * product of sorted atoms, terms sorted, one constant, so that
// (N + 1)*W is N*W + W); comparisons are normalised differences; everything else goes through the one table of
// rules in sym/rules.cc, which also drives the tests (each rule against brute force, each rule fires).
// The order of terms depends on names and structure only, never on the order of creation: text is deterministic.
//
// Values are mathematical integers; constants are int64. Arithmetic on constants that overflows int64 throws
// sym::Overflow, which the callers turn into an error that names the tensor. Conditions are 0 or 1.
// floordiv and mod round towards minus infinity: a == floordiv(a,b)*b + mod(a,b), 0 <= mod < b for b > 0.
// Divisors that are not provably positive are legal; evaluating a division by zero throws Overflow.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tripod::sym {

class Context;

enum class Op : uint8_t {
  constant, variable,
  add,        // n-ary in the canonical form is a left-leaning chain; use terms() to look at it
  mul, floordiv, mod, min, max,
  select,     // select(cond, a, b)
  lt, le, eq, ne, logical_and, logical_or, logical_not,
  bit_xor,    // for swizzled layouts; operands non-negative
};

// Inclusive; kMin and kMax stand for "no bound".
struct Range {
  static constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  static constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  int64_t lo = kMin, hi = kMax;
  bool operator==(const Range&) const = default;
};

struct Overflow : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Node {
  Op op;
  uint32_t id;            // order of creation in the context
  int64_t value = 0;      // constant; of a variable how many share its name and came before it
  std::string name;       // variable, as given to var()
  const Node* args[3] = {nullptr, nullptr, nullptr};
  Range range;            // of a variable as declared; of any other node as inferred when it was made
  int64_t divisor = 1;    // the value is a multiple of this; 0 for the constant 0 only
  Context* context = nullptr;
  uint32_t size = 1;      // nodes of the expression written as a tree (saturating)
  uint64_t var_bits = 0;  // a Bloom filter over its variables, so that most walks for one stop at once
};

class Expr {
 public:
  Expr() = default;
  explicit Expr(const Node* n) : node_(n) {}
  const Node* node() const { return node_; }
  const Node* operator->() const { return node_; }
  explicit operator bool() const { return node_ != nullptr; }
  // Identity of the canonical form (not a symbolic comparison: that is eq()).
  friend bool operator==(Expr a, Expr b) { return a.node_ == b.node_; }

  bool is_const() const { return node_->op == Op::constant; }
  bool is_const(int64_t v) const { return is_const() && node_->value == v; }
  bool is_var() const { return node_->op == Op::variable; }
  int64_t value() const { return node_->value; }  // of a constant
  std::optional<int64_t> constant() const { return is_const() ? std::optional(node_->value) : std::nullopt; }
  Expr arg(int i) const { return Expr(node_->args[i]); }
  Context& context() const { return *node_->context; }

 private:
  const Node* node_ = nullptr;
};

struct Hash {
  size_t operator()(Expr e) const { return std::hash<const Node*>()(e.node()); }
};
using Map = std::unordered_map<Expr, Expr, Hash>;
using Values = std::unordered_map<Expr, int64_t, Hash>;

// Owns the nodes. Not thread-safe: a compile builds expressions on one thread.
class Context {
 public:
  Context();
  ~Context();
  Context(const Context&) = delete;

  Expr constant(int64_t v);
  // A new variable, distinct from every other even if the name is the same (printing adds ".1", ".2" then).
  Expr var(std::string_view name, Range range = {}, int64_t divisor = 1);
  // Records the fact 0 <= var < upper, for loop variables whose extent depends on symbols. Simplification and
  // prove() use it from here on: call it before var is used. The caller guarantees it wherever an expression
  // over var is evaluated. substitute() does not carry it over to the replacement.
  void assume_below(Expr var, Expr upper);
  // The canonical, simplified node for op(args). The free functions below are the way to call it.
  Expr make(Op op, Expr a, Expr b = {}, Expr c = {});

  struct Impl;  // sym/impl.h, for the files of this folder
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Either side may be an int64_t where the other is an Expr.
Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator*(Expr a, Expr b);
Expr operator+(Expr a, int64_t b);
Expr operator-(Expr a, int64_t b);
Expr operator*(Expr a, int64_t b);
inline Expr operator+(int64_t a, Expr b) { return b + a; }
inline Expr operator*(int64_t a, Expr b) { return b * a; }
Expr operator-(int64_t a, Expr b);
Expr operator-(Expr a);
Expr floordiv(Expr a, Expr b);
Expr floordiv(Expr a, int64_t b);
Expr mod(Expr a, Expr b);
Expr mod(Expr a, int64_t b);
Expr ceildiv(Expr a, Expr b);
Expr ceildiv(Expr a, int64_t b);
Expr min(Expr a, Expr b);
Expr max(Expr a, Expr b);
Expr min(Expr a, int64_t b);
Expr max(Expr a, int64_t b);
Expr select(Expr cond, Expr a, Expr b);
Expr lt(Expr a, Expr b);
Expr le(Expr a, Expr b);
Expr eq(Expr a, Expr b);
Expr ne(Expr a, Expr b);
inline Expr gt(Expr a, Expr b) { return lt(b, a); }
inline Expr ge(Expr a, Expr b) { return le(b, a); }
Expr lt(Expr a, int64_t b);
Expr le(Expr a, int64_t b);
Expr eq(Expr a, int64_t b);
Expr ne(Expr a, int64_t b);
Expr ge(Expr a, int64_t b);
Expr gt(Expr a, int64_t b);
Expr logical_and(Expr a, Expr b);
Expr logical_or(Expr a, Expr b);
Expr logical_not(Expr a);
Expr bit_xor(Expr a, Expr b);

// Replaces variables (all at once) and simplifies again.
Expr substitute(Expr e, const Map& vars);
// Every distinct variable of e, in order of first occurrence.
std::vector<Expr> variables(Expr e);
bool uses(Expr e, Expr var);

// Inclusive bounds of e, from the ranges of its variables, tightened by `env` where it names one.
using Ranges = std::unordered_map<Expr, Range, Hash>;
Range bounds(Expr e);
Range bounds(Expr e, const Ranges& env);

enum class Truth : uint8_t { no, yes, unknown };
// Is the condition true for every value of its variables (yes), false for every value (no)?
// Tries simplification of the difference, bounds, divisibility, and the case split over min/max/select.
Truth prove(Expr condition);
inline bool proved(Expr condition) { return prove(condition) == Truth::yes; }

// e == coefficient * var + rest with neither using var; nothing when e is not of that form.
struct Linear {
  Expr coefficient, rest;
};
std::optional<Linear> linear_in(Expr e, Expr var);

// A canonical sum as its terms: e == constant + sum of coefficient * factor.
struct Term {
  int64_t coefficient;
  Expr factor;
};
std::vector<Term> terms(Expr e, int64_t& constant);

// The value of e; every variable must be in `values`. Throws Overflow on overflow or division by zero.
int64_t evaluate(Expr e, const Values& values);

// Text as in IR files: `N*4 + floordiv(H + 1, 2)`; parse() is its inverse with `lookup` finding variables by
// name (returning an empty Expr is an error). Throws std::invalid_argument with a position.
std::string text(Expr e);
std::string name(Expr var);  // of a variable, as lookup gets it: unlike any other's of the context
Expr parse(Context& context, std::string_view text, const std::function<Expr(std::string_view)>& lookup);

// The same for text that goes on after the expression: parses the longest expression that starts at `position`
// and moves `position` behind it (for the parsers of the IRs).
Expr parse_prefix(Context& context, std::string_view text, size_t& position,
                  const std::function<Expr(std::string_view)>& lookup);

// Product and sum of a list (1 and 0 when empty).
Expr product(Context& context, const std::vector<Expr>& es);
Expr sum(Context& context, const std::vector<Expr>& es);

}  // namespace tripod::sym
