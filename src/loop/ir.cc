#include "loop/ir.h"

#include <algorithm>
#include <bit>

#include "loop/scalar.h"

namespace tripod::loop {
namespace {

struct OpInfo {
  std::string_view name;
  int arity;
};
constexpr OpInfo kOps[] = {
#define OP(kind, text, arity) {text, arity},
    TRIPOD_LOOP_OPS(OP)
#undef OP
};

Expr leaf(Op op, DType t) {
  auto* n = new ExprNode;
  n->op = op;
  n->dtype = t;
  return Expr(n);
}

// The nodes are ours alone until a constructor returns them.
ExprNode& fresh(const Expr& e) { return const_cast<ExprNode&>(*e); }

bool is_constant(const Expr& e) { return e->op == Op::constant; }
bool is_zero(const Expr& e) { return is_constant(e) && double_from_bits(e->dtype, e->bits) == 0; }
bool is_one(const Expr& e) { return is_constant(e) && double_from_bits(e->dtype, e->bits) == 1; }
bool is_negative_zero(const Expr& e) {
  return is_zero(e) && is_float(e->dtype) && std::bit_cast<int64_t>(double_from_bits(e->dtype, e->bits)) < 0;
}
// x + zero == x for every x: with floats only for -0, since -0 + +0 is +0.
bool neutral_in_sum(const Expr& e) { return is_float(e->dtype) ? is_negative_zero(e) : is_zero(e); }
// x - zero == x for every x: with floats only for +0.
bool neutral_as_subtrahend(const Expr& e) { return is_zero(e) && !is_negative_zero(e); }

bool is_comparison(Op op) { return op == Op::lt || op == Op::le || op == Op::eq || op == Op::ne; }
bool is_bitwise(Op op) { return op >= Op::bit_and && op <= Op::bit_not; }
bool float_only(Op op) { return (op >= Op::sqrt && op <= Op::rint) || op == Op::fma || is_math(op); }
bool int_only(Op op) { return (op >= Op::bit_and && op <= Op::shr); }

// Types that arithmetic exists for: the small floats and the 4-bit integers are storage.
bool is_arithmetic(DType t) { return info(t).bits != 4 && (is_int(t) || t == DType::f32 || t == DType::f64); }

void check_types(Op op, const std::vector<Expr>& a) {
  TRIPOD_CHECK(op >= Op::add && op != Op::cast && op != Op::bitcast, "make() is not for leaves and casts");
  const std::string what(name(op));
  TRIPOD_CHECK(static_cast<int>(a.size()) == arity(op), what);
  for (const Expr& e : a) TRIPOD_CHECK(e, what + ": an operand is missing");
  const size_t first = op == Op::select ? 1 : 0;
  const DType t = a[first]->dtype;
  for (size_t i = first; i < a.size(); ++i)
    TRIPOD_CHECK(a[i]->dtype == t, what + ": operands of " + std::string(name(t)) + " and " +
                                       std::string(name(a[i]->dtype)));
  if (op == Op::select) {
    TRIPOD_CHECK(a[0]->dtype == DType::b1, "select's condition is not b1");
    return;
  }
  const bool on_b1 = t == DType::b1 && (is_bitwise(op) || is_comparison(op));
  TRIPOD_CHECK(on_b1 || is_arithmetic(t), what + " does not exist on " + std::string(name(t)));
  if (float_only(op)) TRIPOD_CHECK(is_float(t), what + " is for floats");
  if (int_only(op)) TRIPOD_CHECK(!is_float(t), what + " is for integers");
}

// Identities that hold bit for bit, floats included. Null: none applies.
Expr identity(Op op, const std::vector<Expr>& a) {
  const bool ints = !is_float(a.back()->dtype);
  switch (op) {
    case Op::add:
      if (neutral_in_sum(a[1])) return a[0];
      if (neutral_in_sum(a[0])) return a[1];
      break;
    case Op::sub:
      if (neutral_as_subtrahend(a[1])) return a[0];
      if (ints && a[0] == a[1]) return constant_int(a[0]->dtype, 0);
      break;
    case Op::mul:
      if (is_one(a[1])) return a[0];
      if (is_one(a[0])) return a[1];
      if (ints && is_zero(a[0])) return a[0];
      if (ints && is_zero(a[1])) return a[1];
      break;
    case Op::div:
      if (is_one(a[1])) return a[0];
      break;
    case Op::min:
    case Op::max:
      if (a[0] == a[1]) return a[0];
      break;
    case Op::neg:
      if (a[0]->op == Op::neg) return a[0]->args[0];
      break;
    case Op::fma:
      if (neutral_in_sum(a[2])) return make(Op::mul, {a[0], a[1]});
      if (is_one(a[0])) return make(Op::add, {a[1], a[2]});
      if (is_one(a[1])) return make(Op::add, {a[0], a[2]});
      break;
    case Op::bit_and:
    case Op::bit_or:
      if (a[0] == a[1]) return a[0];
      for (int i : {0, 1})
        if (is_zero(a[i])) return op == Op::bit_and ? a[i] : a[1 - i];
      if (a[0]->dtype != DType::b1) break;
      for (int i : {0, 1})
        if (is_one(a[i])) return op == Op::bit_and ? a[1 - i] : a[i];
      break;
    case Op::bit_not:
      if (a[0]->op == Op::bit_not) return a[0]->args[0];
      break;
    case Op::shl:
    case Op::shr:
      if (is_zero(a[1])) return a[0];
      break;
    case Op::select:
      if (is_constant(a[0])) return a[0]->bits ? a[1] : a[2];
      if (a[1] == a[2]) return a[1];
      break;
    default: break;
  }
  return nullptr;
}

void check_access(const Buffer& b, const std::vector<Index>& indices) {
  TRIPOD_CHECK(b, "an access without a buffer");
  TRIPOD_CHECK(static_cast<int>(indices.size()) == b->rank(), "an access to " + b->name + " with " +
                                                                  std::to_string(indices.size()) + " indices");
  for (Index i : indices) TRIPOD_CHECK(i, "an access to " + b->name + " lacks an index");
}

}  // namespace

std::string_view name(Op op) { return kOps[static_cast<size_t>(op)].name; }
int arity(Op op) { return kOps[static_cast<size_t>(op)].arity; }

// --- expressions --------------------------------------------------------------------------------------------------

Expr constant(DType t, double v) { return constant_bits(t, bits_from_double(t, v)); }
Expr constant_int(DType t, int64_t v) { return constant_bits(t, bits_from_int(t, v)); }

Expr constant_bits(DType t, uint64_t bits) {
  Expr e = leaf(Op::constant, t);
  fresh(e).bits = canonical_bits(t, bits);
  return e;
}

double constant_value(const Expr& e) {
  TRIPOD_CHECK(is_constant(e), "not a constant");
  return double_from_bits(e->dtype, e->bits);
}

Expr from_index(DType t, Index i) {
  TRIPOD_CHECK(i, "from_index of nothing");
  if (i.is_const()) return constant_int(t, i.value());
  Expr e = leaf(Op::index, t);
  fresh(e).value = i;
  return e;
}

Expr load(const Buffer& b, std::vector<Index> indices) { return load_guarded(b, std::move(indices), {}, nullptr); }

Expr load_guarded(const Buffer& b, std::vector<Index> indices, Index guard, Expr other) {
  check_access(b, indices);
  if (guard && guard.is_const()) {
    if (guard.is_const(0)) return other;
    guard = {};
  }
  if (!guard) other = nullptr;
  TRIPOD_CHECK(!guard || (other && other->dtype == b->dtype), "a guarded load of " + b->name + " needs a value of " +
                                                                  "its type for where the guard is false");
  Expr e = leaf(Op::load, b->dtype);
  fresh(e).buffer = b;
  fresh(e).indices = std::move(indices);
  fresh(e).guard = guard;
  fresh(e).other = std::move(other);
  return e;
}

Expr make(Op op, std::vector<Expr> args) {
  if (op == Op::fma && args.size() == 3 && args[0] && is_int(args[0]->dtype))
    return make(Op::add, {make(Op::mul, {args[0], args[1]}), args[2]});
  check_types(op, args);
  if (Expr e = identity(op, args)) return e;
  const DType operand = args.back()->dtype;
  const DType result = is_comparison(op) ? DType::b1 : operand;
  if (!is_math(op) && std::all_of(args.begin(), args.end(), is_constant)) {
    uint64_t bits[3] = {};
    for (size_t i = 0; i < args.size(); ++i) bits[i] = args[i]->bits;
    return constant_bits(result, apply(op, operand, bits));
  }
  Expr e = leaf(op, result);
  fresh(e).args = std::move(args);
  return e;
}

Expr cast(Expr e, DType to) {
  TRIPOD_CHECK(e, "cast of nothing");
  if (e->dtype == to) return e;
  TRIPOD_CHECK(to < DType::string && e->dtype < DType::string, "cast of strings");
  if (is_constant(e)) return constant_bits(to, convert(e->dtype, to, e->bits));
  // There and back: widening a small float is exact, and narrowing again would saturate an f8's infinity.
  const bool small = is_float(to) && info(to).bits < 32;
  if (small && e->op == Op::cast && e->args[0]->dtype == to && is_float(e->dtype) && info(e->dtype).bits >= 32) return e->args[0];
  Expr r = leaf(Op::cast, to);
  fresh(r).args = {std::move(e)};
  return r;
}

Expr bitcast(Expr e, DType to) {
  TRIPOD_CHECK(e, "bitcast of nothing");
  TRIPOD_CHECK(info(e->dtype).bits == info(to).bits, "bitcast between sizes");
  if (e->dtype == to) return e;
  if (is_constant(e)) return constant_bits(to, e->bits);
  if (e->op == Op::bitcast) return bitcast(e->args[0], to);
  Expr r = leaf(Op::bitcast, to);
  fresh(r).args = {std::move(e)};
  return r;
}

// --- statements ---------------------------------------------------------------------------------------------------

namespace {
Ref<StmtNode> new_stmt(StmtKind kind) {
  Ref<StmtNode> s(new StmtNode);
  s->kind = kind;
  return s;
}
Stmt done(const Ref<StmtNode>& s) { return Stmt(s.get()); }
}  // namespace

Stmt seq(std::vector<Stmt> stmts) {
  std::vector<Stmt> flat;
  for (const Stmt& s : stmts) {
    if (!s) continue;
    if (s->kind == StmtKind::seq) flat.insert(flat.end(), s->body.begin(), s->body.end());
    else flat.push_back(s);
  }
  if (flat.size() == 1) return flat[0];
  auto s = new_stmt(StmtKind::seq);
  s->body = std::move(flat);
  return done(s);
}

Stmt loop(Index var, Index extent, LoopKind kind, Stmt body, int64_t grain) {
  TRIPOD_CHECK(var && var.is_var() && extent && body, "loop needs a variable, an extent and a body");
  auto s = new_stmt(StmtKind::loop);
  s->var = var;
  s->extent = extent;
  s->loop_kind = kind;
  s->grain = grain;
  s->body = {std::move(body)};
  return done(s);
}

Stmt store(const Buffer& b, std::vector<Index> indices, Expr value, Index guard) {
  check_access(b, indices);
  TRIPOD_CHECK(value && value->dtype == b->dtype, "store to " + b->name + " of another type");
  if (guard && guard.is_const()) {
    if (guard.is_const(0)) return seq({});
    guard = {};
  }
  auto s = new_stmt(StmtKind::store);
  s->buffer = b;
  s->indices = std::move(indices);
  s->value = std::move(value);
  s->guard = guard;
  return done(s);
}

Stmt let(Index var, Expr value, Stmt body) {
  TRIPOD_CHECK(var && var.is_var() && value && body, "let needs a variable, a value and a body");
  TRIPOD_CHECK(is_int(value->dtype) || value->dtype == DType::b1, "let binds integers");
  auto s = new_stmt(StmtKind::let);
  s->var = var;
  s->value = std::move(value);
  s->body = {std::move(body)};
  return done(s);
}

Stmt branch(Expr condition, Stmt then, Stmt otherwise) {
  TRIPOD_CHECK(condition && condition->dtype == DType::b1 && then, "branch needs a b1 condition");
  if (is_constant(condition)) return condition->bits ? then : otherwise ? otherwise : seq({});
  auto s = new_stmt(StmtKind::branch);
  s->value = std::move(condition);
  s->body = {std::move(then)};
  if (otherwise) s->body.push_back(std::move(otherwise));
  return done(s);
}

Stmt alloc(const Buffer& b, Stmt body) {
  TRIPOD_CHECK(b && body, "alloc needs a buffer and a body");
  auto s = new_stmt(StmtKind::alloc);
  s->buffer = b;
  s->body = {std::move(body)};
  return done(s);
}

Stmt check(Index value, Index limit, int32_t site) {
  TRIPOD_CHECK(value && limit, "check needs a value and a limit");
  auto s = new_stmt(StmtKind::check);
  s->var = value;
  s->extent = limit;
  s->site = site;
  return done(s);
}

Stmt block(std::string name, std::vector<Iter> iters, Stmt body, Stmt init) {
  TRIPOD_CHECK(body, "block " + name + " has no body");
  for (const Iter& i : iters)
    TRIPOD_CHECK(i.var && i.var.is_var() && i.extent, "block " + name + ": an iterator lacks variable or extent");
  auto s = new_stmt(StmtKind::block);
  s->name = std::move(name);
  s->iters = std::move(iters);
  s->body = {std::move(body)};
  s->init = std::move(init);
  return done(s);
}

Stmt tile(TileOp op, std::vector<Region> regions, int32_t token, int64_t count) {
  for (const Region& r : regions) {
    check_access(r.buffer, r.offset);
    check_access(r.buffer, r.extent);
  }
  auto s = new_stmt(StmtKind::tile);
  s->tile = op;
  s->regions = std::move(regions);
  s->token = token;
  s->count = count;
  return done(s);
}

Stmt sync(SyncKind kind, int32_t token, int64_t count) {
  auto s = new_stmt(StmtKind::sync);
  s->sync = kind;
  s->token = token;
  s->count = count;
  return done(s);
}

}  // namespace tripod::loop
