// What the files of this folder share: the tables of a context, checked and saturating arithmetic, and the
// inference of ranges. Nothing outside sym/ includes this.
#pragma once

#include <deque>
#include <numeric>
#include <unordered_set>

#include "sym/expr.h"
#include "sym/poly.h"

namespace tripod::sym {

[[noreturn]] void throw_overflow(const char* what);

inline int64_t checked_add(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_add_overflow(a, b, &r)) throw_overflow("+");
  return r;
}
inline int64_t checked_mul(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) throw_overflow("*");
  return r;
}
inline int64_t checked_neg(int64_t a) { return checked_mul(a, -1); }
inline int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) throw_overflow("division by zero");
  if (b == -1) return checked_neg(a);
  int64_t q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}
inline int64_t floor_mod(int64_t a, int64_t b) {
  if (b == 0) throw_overflow("division by zero");
  if (b == -1) return 0;
  int64_t r = a % b;
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}
// gcd(0, x) is |x|. INT64_MIN has no absolute value; 1 is a safe answer then.
inline int64_t gcd(int64_t a, int64_t b) {
  if (a == Range::kMin || b == Range::kMin) return 1;
  return std::gcd(a, b);
}

// Factors of a product; more of them throw Overflow (products are built and compared by recursion over them).
inline constexpr int kMaxDegree = 128;

inline bool is_condition(const Node* n) {
  return (n->op >= Op::lt && n->op <= Op::logical_not) || (n->op == Op::constant && (n->value == 0 || n->value == 1));
}
inline bool is_chain(Op op) {
  return op == Op::min || op == Op::max || op == Op::logical_and || op == Op::logical_or || op == Op::bit_xor;
}

struct Key {
  Op op;
  int64_t value;
  const Node* args[3];
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  size_t operator()(const Key& k) const {
    uint64_t h = static_cast<uint64_t>(k.op) * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(k.value);
    for (const Node* a : k.args) h = (h ^ (reinterpret_cast<uintptr_t>(a) >> 4)) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    return h;
  }
};

struct PolyHash {
  size_t operator()(const Poly& p) const {
    uint64_t h = static_cast<uint64_t>(p.constant);
    for (const auto& t : p.terms) h = (h ^ t.m->id ^ static_cast<uint64_t>(t.c) << 32) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    return h;
  }
};

// A polynomial that is zero whatever the variables are, and in it the coefficient of the atom it was asked for.
struct Relation {
  Poly zero, coefficient;
};

struct Context::Impl {
  explicit Impl(Context* c);
  const Node* constant(int64_t v);
  // The node for op(args) as it stands; interned, nothing simplified.
  const Node* raw(Op op, const Node* a, const Node* b = nullptr, const Node* c = nullptr);
  // The simplified node, computed once per (op, args).
  const Node* make(Op op, const Node* a, const Node* b = nullptr, const Node* c = nullptr);

  Context* context;
  std::deque<Node> nodes;  // by id; addresses stay
  std::unordered_map<Key, const Node*, KeyHash> interned, made;
  std::unordered_set<std::string> names;                                // variables, as they print
  std::unordered_map<std::string, int64_t> next_of_name;                // the first number that may be free
  std::unordered_map<const Node*, std::vector<const Node*>> uppers;     // assume_below
  std::unordered_map<const Node*, std::vector<Relation>> relations;     // of floordiv and mod atoms
  std::unordered_map<Poly, bool, PolyHash> proofs;                      // p <= 0, as far as rules go for it
  std::unordered_set<const Node*> used;                                 // variables that are in some node
  std::vector<uint64_t> fired;                                          // per row of the rule table

 private:
  const Node* simplify(Op op, const Node* a, const Node* b, const Node* c);
  const Node* compare(Op op, const Node* a, const Node* b);
  const Node* chain(Op op, const Node* a, const Node* b);
  const Node* with_rules(Op op, const Node* a, const Node* b, const Node* c);
};
inline Context::Impl& impl_of(const Node* n) { return n->context->impl(); }

// How a variable prints: its name, and ".k" when others had that name before.
std::string display_name(const Node* variable);

// A total order on the nodes of a context by structure; variables by how they print.
int compare(const Node* a, const Node* b);

// bounds.cc
Range infer_range(const Node& n, const Range args[3]);
int64_t infer_divisor(const Node& n);
Range range_of(const Poly& p);

// prove.cc: is p <= 0 always? `budget` limits the work; false means "not found".
bool proved_nonpositive(Context::Impl& ctx, const Poly& p, int budget);
inline constexpr int kRuleBudget = 8;     // inside the simplifier, where most questions have the answer no
inline constexpr int kProveBudget = 300;  // for prove()

}  // namespace tripod::sym
