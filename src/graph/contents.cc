// Symbolic contents: the elements of small integer tensors as expressions over dims. This is what makes the shape
// arithmetic that exporters write (Shape, Gather, Mul, Concat, Reshape) disappear.
//
// Everything here is exact or nothing: an element that may leave the range of its type, or a division whose rounding
// the expressions cannot state, gives no contents.
#include "base/float_bits.h"
#include "graph/contents.h"
#include "graph/infer.h"

namespace tripod::graph {

bool carries_contents(const Type& t) {
  return t.kind == Type::tensor && (is_int(t.dtype) || t.dtype == DType::b1) && static_count(t) &&
         *static_count(t) <= kMaxContents;
}

std::optional<int64_t> static_count(const Type& t) {
  int64_t n = 1;
  for (Expr d : t.shape) {
    if (!d.is_const()) return std::nullopt;
    if (__builtin_mul_overflow(n, d.value(), &n)) return std::nullopt;
  }
  return n;
}

Ints static_dims(const Type& t) {
  Ints d;
  for (Expr e : t.shape) d.push_back(e.value());
  return d;
}

const Elements* contents_of(const Graph& g, const Node& n, size_t operand) {
  if (operand >= n.operands.size() || n.operands[operand] == kNoValue) return nullptr;
  const auto& c = g.value(n.operands[operand]).contents;
  return c ? &*c : nullptr;
}

namespace {

// --- elementwise ----------------------------------------------------------------------------------------------------

// Integer division that truncates. With a divisor of known sign the quotient's sign is the dividend's; where that is
// unknown, select states both cases.
Expr truncated_div(Expr a, Expr b) {
  const sym::Range ra = sym::bounds(a), rb = sym::bounds(b);
  if (rb.lo < 1 && rb.hi >= 0) return {};  // zero is possible
  if (rb.hi < 0) return truncated_div(-a, -b);
  if (ra.lo >= 0 || sym::proved(sym::ge(a, 0))) return sym::floordiv(a, b);
  if (ra.hi <= 0) return -sym::floordiv(-a, b);
  return sym::select(sym::ge(a, 0), sym::floordiv(a, b), -sym::floordiv(-a, b));
}

bool never_zero(Expr e) {
  const sym::Range r = sym::bounds(e);
  return r.lo > 0 || r.hi < 0;
}

Expr binary(OpKind op, Expr a, Expr b) {
  switch (op) {
    case OpKind::add: return a + b;
    case OpKind::sub: return a - b;
    case OpKind::mul: return a * b;
    case OpKind::div: return truncated_div(a, b);
    case OpKind::mod: return never_zero(b) ? sym::mod(a, b) : Expr{};
    case OpKind::fmod: {  // sign of the dividend
      const Expr q = truncated_div(a, b);
      return q ? a - q * b : Expr{};
    }
    case OpKind::minimum: return sym::min(a, b);
    case OpKind::maximum: return sym::max(a, b);
    case OpKind::equal: return sym::eq(a, b);
    case OpKind::less: return sym::lt(a, b);
    case OpKind::less_equal: return sym::le(a, b);
    case OpKind::logical_and: return sym::logical_and(a, b);
    case OpKind::logical_or: return sym::logical_or(a, b);
    case OpKind::logical_xor: return sym::ne(a, b);
    default: return {};
  }
}

Expr unary(OpKind op, Expr a) {
  switch (op) {
    case OpKind::identity:
    case OpKind::copy:
    case OpKind::ceil:
    case OpKind::floor:
    case OpKind::round: return a;
    case OpKind::neg: return -a;
    case OpKind::abs: return sym::max(a, -a);
    case OpKind::relu: return sym::max(a, 0);
    case OpKind::sign: return sym::select(sym::lt(a, 0), a.context().constant(-1), sym::lt(a.context().constant(0), a));
    case OpKind::logical_not: return sym::logical_not(a);
    default: return {};
  }
}

// Positions of the operand's elements in a result it broadcasts to.
class Broadcast {
 public:
  Broadcast(const Ints& from, const Ints& to) : to_(to), stride_(to.size(), 0) {
    int64_t stride = 1;
    for (size_t i = from.size(); i-- > 0;) {
      stride_[i + to.size() - from.size()] = from[i] == 1 ? 0 : stride;
      stride *= from[i];
    }
  }
  size_t operator()(int64_t position) const {
    int64_t at = 0;
    for (size_t d = to_.size(); d-- > 0;) {
      at += position % to_[d] * stride_[d];
      position /= to_[d];
    }
    return static_cast<size_t>(at);
  }

 private:
  Ints to_, stride_;
};

struct Operand {
  const Elements* elements;
  Broadcast at;
  Expr operator()(int64_t position) const { return (*elements)[at(position)]; }
};

std::optional<Elements> elementwise(const Graph& g, const Node& n, const Type& t) {
  std::vector<Operand> in;
  for (size_t i = 0; i < n.operands.size(); ++i) {
    if (n.operands[i] == kNoValue && n.op == OpKind::clip) continue;
    const Elements* e = contents_of(g, n, i);
    if (!e) return std::nullopt;
    in.push_back({e, Broadcast(static_dims(g.type(n.operands[i])), static_dims(t))});
  }
  Elements out;
  const int64_t count = *static_count(t);
  for (int64_t p = 0; p < count; ++p) {
    Expr e;
    if (n.op == OpKind::where) {
      e = sym::select(in[0](p), in[1](p), in[2](p));
    } else if (n.op == OpKind::clip) {
      e = in[0](p);
      size_t next = 1;
      if (n.operands.size() > 1 && n.operands[1] != kNoValue) e = sym::max(e, in[next++](p));
      if (n.operands.size() > 2 && n.operands[2] != kNoValue) e = sym::min(e, in[next](p));
    } else if (in.size() == 2) {
      e = binary(n.op, in[0](p), in[1](p));
    } else if (in.size() == 1) {
      e = unary(n.op, in[0](p));
    }
    if (!e) return std::nullopt;
    out.push_back(e);
  }
  return out;
}

// --- casts ----------------------------------------------------------------------------------------------------------

std::optional<Elements> cast(const Graph& g, const Node& n, const Type& t) {
  const Elements* in = contents_of(g, n, 0);
  if (!in) return float_round_trip(g, n, t);
  if (t.dtype != DType::b1) return *in;  // fits_type() refuses what would wrap
  Elements out;
  for (Expr e : *in) out.push_back(g.type(n.operands[0]).dtype == DType::b1 ? e : sym::ne(e, e.context().constant(0)));
  return out;
}

// --- reductions -----------------------------------------------------------------------------------------------------

std::optional<Elements> reduce(const Graph& g, const Node& n, const Type& t) {
  const Elements* in = contents_of(g, n, 0);
  if (!in) return std::nullopt;
  const Ints from = static_dims(g.type(n.operands[0]));
  // The result's shape with the reduced dims kept as 1: then positions are those of a broadcast.
  Ints kept = from;
  for (int axis : std::get<ReduceAttr>(n.attr).axes) kept[static_cast<size_t>(axis)] = 1;
  const Broadcast at(kept, from);
  Elements out(static_cast<size_t>(*static_count(t)));
  for (size_t p = 0; p < in->size(); ++p) {
    Expr& acc = out[at(static_cast<int64_t>(p))];
    const Expr e = (*in)[p];
    switch (n.op) {
      case OpKind::reduce_sum: acc = acc ? acc + e : e; break;
      case OpKind::reduce_prod: acc = acc ? acc * e : e; break;
      case OpKind::reduce_max: acc = acc ? sym::max(acc, e) : e; break;
      case OpKind::reduce_min: acc = acc ? sym::min(acc, e) : e; break;
      default: return std::nullopt;
    }
  }
  for (Expr& acc : out) {
    if (acc) continue;
    // Nothing was reduced: the neutral element of sum and product; max and min have none.
    if (n.op != OpKind::reduce_sum && n.op != OpKind::reduce_prod) return std::nullopt;
    acc = g.sym().constant(n.op == OpKind::reduce_prod);
  }
  return out;
}

// --- sources --------------------------------------------------------------------------------------------------------

std::optional<Elements> constant(const Graph& g, const Node& n, const Type& t) {
  const auto& a = std::get<ConstAttr>(n.attr);
  Elements out;
  for (int64_t i = 0; i < *static_count(t); ++i) {
    const auto v = load_int(t.dtype, a.data, i);
    if (!v) return std::nullopt;
    out.push_back(g.sym().constant(*v));
  }
  return out;
}

std::optional<Elements> iota(const Graph& g, const Node& n, const Type& t) {
  const Elements *start = contents_of(g, n, 0), *step = contents_of(g, n, 1);
  if (!start || !step) return std::nullopt;
  Elements out;
  for (int64_t i = 0; i < *static_count(t); ++i) out.push_back((*start)[0] + (*step)[0] * i);
  return out;
}

// Does every element stay in the range of its type? Sizes are checked against int64 at entry, so i64 holds any
// expression of dims. Exporters compute shapes in i32 too: a symbolic upper bound there becomes a requirement.
bool fits_type(const Type& t, const Elements& elements, Requirements& required) {
  if (t.dtype == DType::i64 || t.dtype == DType::b1) return true;
  for (Expr e : elements) {
    const sym::Range r = sym::bounds(e);
    if (r.lo < int_min(t.dtype)) return false;
    if (r.hi <= int_max(t.dtype)) continue;
    if (e.is_const() || t.dtype != DType::i32) return false;
    const int64_t limit = int_max(t.dtype);
    required.push_back({sym::le(e, limit), "a size computed in i32 must be at most " + std::to_string(limit), {}, {e}});
  }
  return true;
}

std::optional<Elements> dispatch(const Graph& g, const Node& n, int result, const Type& t) {
  switch (n.op) {
    case OpKind::constant: return constant(g, n, t);
    case OpKind::sym_values: return std::get<ExprsAttr>(n.attr).values;
    case OpKind::read_dim: return std::get<ExprsAttr>(n.attr).values;
    case OpKind::iota: return iota(g, n, t);
    case OpKind::cast: return cast(g, n, t);
    case OpKind::copy: return elementwise(g, n, t);
    case OpKind::reduce_sum:
    case OpKind::reduce_prod:
    case OpKind::reduce_max:
    case OpKind::reduce_min: return reduce(g, n, t);
    case OpKind::scatter_elements:
    case OpKind::scatter_nd: return scatter_contents(g, n);
    default: break;
  }
  if (has(n.op, kElementwise)) return elementwise(g, n, t);
  if (has(n.op, kMove) && result == 0) return move_contents(g, n, t);
  return std::nullopt;
}

}  // namespace

std::optional<std::vector<Expr>> infer_contents(const Graph& g, const Node& n, int result) {
  const Type& t = g.type(n.results[static_cast<size_t>(result)]);
  if (!carries_contents(t)) return std::nullopt;
  try {
    auto elements = dispatch(g, n, result, t);
    Requirements required;
    if (!elements || static_cast<int64_t>(elements->size()) != *static_count(t) || !fits_type(t, *elements, required))
      return std::nullopt;
    merge_requirements(g.module(), required, n.origins);
    return elements;
  } catch (const sym::Overflow&) {
    return std::nullopt;  // a run would wrap; the expressions would not
  }
}

}  // namespace tripod::graph
