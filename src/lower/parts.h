// Small things that several lowerings use.
#pragma once

#include <limits>

#include "lower/lower.h"

namespace tripod::lower {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline bool given(const graph::Node& n, size_t i) {
  return n.operands.size() > i && n.operands[i] != graph::kNoValue;
}

// Somebody looks at this value: results that nobody wants are not computed.
inline bool wanted(const Lowering& l, graph::ValueId v) {
  return !l.graph().value(v).users.empty() || l.graph().is_output(v);
}

inline Index zero(const Lowering& l) { return l.sym().constant(0); }

// The one element of a value.
inline Expr load_scalar(Lowering& l, graph::ValueId v) { return l.load(v, Indices(l.type(v).shape.size(), zero(l))); }

// A condition on indices as a value.
inline Expr holds(Index condition) { return loop::from_index(DType::b1, condition); }

inline Expr unary(loop::Op op, Expr x) { return loop::make(op, {std::move(x)}); }
inline Expr both(Expr a, Expr b) { return loop::make(loop::Op::bit_and, {std::move(a), std::move(b)}); }
inline Expr either(Expr a, Expr b) { return loop::make(loop::Op::bit_or, {std::move(a), std::move(b)}); }
inline Expr negate(Expr a) { return loop::make(loop::Op::bit_not, {std::move(a)}); }
inline Expr is_nan(const Expr& x) { return loop::ne(x, x); }

// acc[at] += x, or acc[at] = max(acc[at], x), from the identity.
inline void sum_block(Lowering& l, const std::string& name, std::vector<Iter> is, const Buffer& acc, const Indices& at,
                      Expr x) {
  l.block(name, std::move(is), loop::store(acc, at, loop::load(acc, at) + x),
          loop::store(acc, at, loop::constant(acc->dtype, 0)));
}
inline void sum_of_products_block(Lowering& l, const std::string& name, std::vector<Iter> is, const Buffer& acc,
                                  const Indices& at, Expr x, Expr y) {
  l.block(name, std::move(is), loop::store(acc, at, loop::fma(std::move(x), std::move(y), loop::load(acc, at))),
          loop::store(acc, at, loop::constant(acc->dtype, 0)));
}
inline void max_block(Lowering& l, const std::string& name, std::vector<Iter> is, const Buffer& acc, const Indices& at,
                      Expr x) {
  l.block(name, std::move(is), loop::store(acc, at, loop::max(loop::load(acc, at), x)),
          loop::store(acc, at, loop::constant(acc->dtype, -kInfinity)));
}

}  // namespace tripod::lower
