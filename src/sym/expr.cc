#include "sym/expr.h"

#include <algorithm>
#include <array>

#include "sym/impl.h"
#include "sym/rules.h"

namespace tripod::sym {

void throw_overflow(const char* what) {
  throw Overflow(std::string("integer overflow in a size or index computation (") + what + ")");
}

std::string display_name(const Node* v) { return v->value == 0 ? v->name : v->name + "." + std::to_string(v->value); }

int compare(const Node* a, const Node* b) {
  // Two different interned nodes of one kind differ in an argument, so this follows one path down.
  auto sign = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : 0; };
  while (a != b) {
    auto rank = [](Op op) { return op == Op::variable ? -1 : static_cast<int>(op); };
    if (int c = sign(rank(a->op), rank(b->op))) return c;
    if (a->op == Op::constant) return sign(a->value, b->value);
    if (a->op == Op::variable) {
      if (int c = a->name.compare(b->name)) return c;
      return sign(a->value, b->value);
    }
    int i = 0;
    while (a->args[i] == b->args[i]) ++i;
    a = a->args[i];
    b = b->args[i];
  }
  return 0;
}

Context::Impl::Impl(Context* c) : context(c), fired(rules().size()) {}

const Node* Context::Impl::constant(int64_t v) {
  auto [it, fresh] = interned.try_emplace(Key{Op::constant, v, {}});
  if (fresh) {
    Node n{.op = Op::constant, .id = static_cast<uint32_t>(nodes.size()), .value = v, .name = {}, .range = {v, v}};
    n.divisor = v == Range::kMin ? 1 : std::abs(v);
    n.context = context;
    it->second = &nodes.emplace_back(std::move(n));
  }
  return it->second;
}

const Node* Context::Impl::raw(Op op, const Node* a, const Node* b, const Node* c) {
  auto [it, fresh] = interned.try_emplace(Key{op, 0, {a, b, c}});
  if (!fresh) return it->second;
  Node n{.op = op, .id = static_cast<uint32_t>(nodes.size()), .name = {}, .args = {a, b, c}, .range = {}};
  n.context = context;
  Range args[3];
  uint64_t size = 1;
  for (int i = 0; i < 3 && n.args[i]; ++i) {
    args[i] = n.args[i]->range;
    size += n.args[i]->size;
    n.var_bits |= n.args[i]->var_bits;
    if (n.args[i]->op == Op::variable) used.insert(n.args[i]);
  }
  n.size = static_cast<uint32_t>(std::min<uint64_t>(size, 1u << 30));
  n.range = infer_range(n, args);
  n.divisor = infer_divisor(n);
  return it->second = &nodes.emplace_back(std::move(n));
}

const Node* Context::Impl::make(Op op, const Node* a, const Node* b, const Node* c) {
  const Key key{op, 0, {a, b, c}};
  if (auto it = made.find(key); it != made.end()) return it->second;
  const Node* n = simplify(op, a, b, c);
  if (n->op != Op::constant && n->range.lo == n->range.hi && n->range.lo != Range::kMin && n->range.lo != Range::kMax)
    n = constant(n->range.lo);
  made[key] = n;
  made[Key{n->op, 0, {n->args[0], n->args[1], n->args[2]}}] = n;  // what is canonical stays as it is
  return n;
}

const Node* Context::Impl::simplify(Op op, const Node* a, const Node* b, const Node* c) {
  auto condition = [&](const Node* n) { return is_condition(n) ? n : make(Op::ne, n, constant(0)); };
  switch (op) {
    case Op::add:
      return to_node(*this, plus(to_poly(a), to_poly(b)));
    case Op::mul:
      return to_node(*this, times(*this, to_poly(a), to_poly(b)));
    case Op::floordiv:
    case Op::mod:
      if (b->op == Op::constant && b->value == 0) return raw(op, a, b);  // has no value, evaluation says so
      if (a->op == Op::constant && b->op == Op::constant)
        return constant(op == Op::mod ? floor_mod(a->value, b->value) : floor_div(a->value, b->value));
      // As a sum of one term: mod(x, 8) is x - 8 where the quotient turns out to be 1.
      return to_node(*this, to_poly(with_rules(op, a, b, nullptr)));
    case Op::logical_and:
    case Op::logical_or:
      return chain(op, condition(a), condition(b));
    case Op::min:
    case Op::max:
      return chain(op, a, b);
    case Op::bit_xor:
      if (a->op == Op::constant && b->op == Op::constant) return constant(a->value ^ b->value);
      return chain(op, a, b);
    case Op::lt:
    case Op::le:
    case Op::eq:
    case Op::ne:
      return compare(op, a, b);
    case Op::logical_not:
      a = condition(a);
      if (a->op == Op::constant) return constant(!a->value);
      return with_rules(op, a, nullptr, nullptr);
    case Op::select:
      return with_rules(op, condition(a), b, c);
    case Op::constant:
    case Op::variable:
      break;
  }
  throw std::invalid_argument("sym: make() takes an operator");
}

const Node* Context::Impl::with_rules(Op op, const Node* a, const Node* b, const Node* c) {
  const Node* args[3] = {a, b, c};
  if (const Node* n = apply_rules(*this, op, args)) return n;
  return raw(op, a, b, c);
}

// lt and le as a difference with one constant, what is positive on the left: 32*i + j < N, 0 <= x, x <= 4.
// eq and ne likewise, the leading term on the left. Common factors are divided out.
const Node* Context::Impl::compare(Op op, const Node* a, const Node* b) {
  const bool order = op == Op::lt || op == Op::le;
  Poly d;
  try {
    d = plus(to_poly(a), to_poly(b), -1);
    if (op == Op::lt) d.constant = checked_add(d.constant, 1), op = Op::le;
    int64_t g = 0;
    for (const auto& t : d.terms) g = gcd(g, t.c);
    if (g == 0) {
      return constant(order ? d.constant <= 0 : (d.constant == 0) == (op == Op::eq));
    }
    if (!order && floor_mod(d.constant, g) != 0) return constant(op == Op::ne);
    if (!order && d.terms[0].c < 0) d = scaled(d, -1);
    for (auto& t : d.terms) t.c /= g;
    d.constant = checked_neg(floor_div(checked_neg(d.constant), g));
    Poly left, right;
    for (const auto& t : d.terms) (t.c > 0 ? left : right).terms.push_back({t.m, t.c > 0 ? t.c : checked_neg(t.c)});
    if (order && d.constant > 0)
      op = Op::lt, left.constant = d.constant - 1;
    else
      right.constant = checked_neg(d.constant);
    a = to_node(*this, left);
    b = to_node(*this, right);
  } catch (const Overflow&) {
    // The difference of the sides need not be an int64 for the comparison to have a value: leave it as written.
  }
  return with_rules(op, a, b, nullptr);
}

// Associative and commutative: a sorted chain in which no rule applies to any two members.
const Node* Context::Impl::chain(Op op, const Node* a, const Node* b) {
  std::vector<const Node*> members, queue;
  auto flatten = [op](const Node* n, std::vector<const Node*>& out) {
    for (; n->op == op; n = n->args[0]) out.push_back(n->args[1]);
    out.push_back(n);
  };
  flatten(a, members);
  flatten(b, queue);
  while (!queue.empty()) {
    const Node* y = queue.back();
    queue.pop_back();
    const Node* merged = nullptr;
    for (size_t i = 0; i < members.size() && !merged; ++i) {
      const Node* args[3] = {members[i], y, nullptr};
      merged = apply_rules(*this, op, args);
      if (merged) members.erase(members.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (merged)
      flatten(merged, queue);
    else
      members.push_back(y);
  }
  std::sort(members.begin(), members.end(), [](const Node* x, const Node* y) {
    const bool cx = x->op == Op::constant, cy = y->op == Op::constant;
    return cx != cy ? cy : sym::compare(x, y) < 0;
  });
  const Node* n = members[0];
  for (size_t i = 1; i < members.size(); ++i) n = raw(op, n, members[i]);
  return n;
}

Context::Context() : impl_(std::make_unique<Impl>(this)) {}
Context::~Context() = default;

Expr Context::constant(int64_t v) { return Expr(impl_->constant(v)); }

Expr Context::var(std::string_view name, Range range, int64_t divisor) {
  auto& nodes = impl_->nodes;
  Node n{.op = Op::variable, .id = static_cast<uint32_t>(nodes.size()), .name = std::string(name), .range = range};
  n.divisor = divisor;
  n.context = this;
  n.var_bits = uint64_t{1} << ((n.id * 0x9E3779B97F4A7C15u) >> 58);
  int64_t& next = impl_->next_of_name.try_emplace(n.name, 0).first->second;
  for (n.value = next; !impl_->names.insert(display_name(&n)).second;) ++n.value;
  next = n.value + 1;
  return Expr(&nodes.emplace_back(std::move(n)));
}

void Context::assume_below(Expr var, Expr upper) {
  if (!var.is_var()) throw std::invalid_argument("sym: assume_below() takes a variable");
  Node& n = impl_->nodes[var->id];
  Range u = bounds(upper);
  n.range.lo = std::max<int64_t>(n.range.lo, 0);
  if (u.hi != Range::kMax && u.hi != Range::kMin) n.range.hi = std::min(n.range.hi, u.hi - 1);
  if (!upper.is_const()) impl_->uppers[var.node()].push_back(upper.node());
  // What was simplified without the fact is asked for again.
  if (impl_->used.count(var.node())) {
    impl_->made.clear();
    impl_->proofs.clear();
  }
}

Expr Context::make(Op op, Expr a, Expr b, Expr c) { return Expr(impl_->make(op, a.node(), b.node(), c.node())); }

namespace {
Expr make2(Op op, Expr a, Expr b) { return Expr(impl_of(a.node()).make(op, a.node(), b.node())); }
Expr make2(Op op, Expr a, int64_t b) { return make2(op, a, a.context().constant(b)); }
}  // namespace

Expr operator+(Expr a, Expr b) { return make2(Op::add, a, b); }
Expr operator-(Expr a, Expr b) {
  return Expr(to_node(impl_of(a.node()), plus(to_poly(a.node()), to_poly(b.node()), -1)));
}
Expr operator*(Expr a, Expr b) { return make2(Op::mul, a, b); }
Expr operator+(Expr a, int64_t b) { return make2(Op::add, a, b); }
Expr operator-(Expr a, int64_t b) { return a - a.context().constant(b); }
Expr operator*(Expr a, int64_t b) { return make2(Op::mul, a, b); }
Expr operator-(int64_t a, Expr b) { return b.context().constant(a) - b; }
Expr operator-(Expr a) { return make2(Op::mul, a, -1); }
Expr floordiv(Expr a, Expr b) { return make2(Op::floordiv, a, b); }
Expr floordiv(Expr a, int64_t b) { return make2(Op::floordiv, a, b); }
Expr mod(Expr a, Expr b) { return make2(Op::mod, a, b); }
Expr mod(Expr a, int64_t b) { return make2(Op::mod, a, b); }
Expr ceildiv(Expr a, Expr b) {
  if (b->range.lo >= 0) return floordiv(a + b - 1, b);
  return -floordiv(-a, b);
}
Expr ceildiv(Expr a, int64_t b) { return ceildiv(a, a.context().constant(b)); }
Expr min(Expr a, Expr b) { return make2(Op::min, a, b); }
Expr max(Expr a, Expr b) { return make2(Op::max, a, b); }
Expr min(Expr a, int64_t b) { return make2(Op::min, a, b); }
Expr max(Expr a, int64_t b) { return make2(Op::max, a, b); }
Expr select(Expr c, Expr a, Expr b) { return Expr(impl_of(c.node()).make(Op::select, c.node(), a.node(), b.node())); }
Expr lt(Expr a, Expr b) { return make2(Op::lt, a, b); }
Expr le(Expr a, Expr b) { return make2(Op::le, a, b); }
Expr eq(Expr a, Expr b) { return make2(Op::eq, a, b); }
Expr ne(Expr a, Expr b) { return make2(Op::ne, a, b); }
Expr lt(Expr a, int64_t b) { return make2(Op::lt, a, b); }
Expr le(Expr a, int64_t b) { return make2(Op::le, a, b); }
Expr eq(Expr a, int64_t b) { return make2(Op::eq, a, b); }
Expr ne(Expr a, int64_t b) { return make2(Op::ne, a, b); }
Expr gt(Expr a, int64_t b) { return lt(a.context().constant(b), a); }
Expr ge(Expr a, int64_t b) { return le(a.context().constant(b), a); }
Expr logical_and(Expr a, Expr b) { return make2(Op::logical_and, a, b); }
Expr logical_or(Expr a, Expr b) { return make2(Op::logical_or, a, b); }
Expr logical_not(Expr a) { return Expr(impl_of(a.node()).make(Op::logical_not, a.node())); }
Expr bit_xor(Expr a, Expr b) { return make2(Op::bit_xor, a, b); }

Expr product(Context& context, const std::vector<Expr>& es) {
  Expr p = context.constant(1);
  for (Expr e : es) p = p * e;
  return p;
}

Expr sum(Context& context, const std::vector<Expr>& es) {
  Poly p;
  for (Expr e : es) p = plus(p, to_poly(e.node()));
  return Expr(to_node(context.impl(), std::move(p)));
}

std::vector<Term> terms(Expr e, int64_t& constant) {
  Poly p = to_poly(e.node());
  constant = p.constant;
  std::vector<Term> out;
  for (const auto& t : p.terms) out.push_back({t.c, Expr(t.m)});
  return out;
}

}  // namespace tripod::sym
