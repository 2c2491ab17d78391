#include "backends/cuda/fragments.h"

namespace tripod::cuda {

using loop::Index;

namespace {

// One instruction's part: rows and columns, and where an element of it lies. (PTX ISA, "Matrix fragments for mma".)
struct Part {
  int rows, columns, registers;
};
Part part(Operand o, DType t) {
  const int k = t == DType::f32 ? 8 : 16;
  switch (o) {
    case Operand::a: return {16, k, 16 * k / 32};
    case Operand::b: return {k, 8, 8 * k / 32};
    case Operand::c: return {16, 8, 4};
  }
  return {};
}

Index bit(Index i, int size) { return sym::mod(sym::floordiv(i, size), 2); }  // which half of 2 * size

struct Where {
  Index lane, e;
};
Where where(Operand o, DType t, Index row, Index column) {
  using sym::floordiv;
  using sym::mod;
  const bool tf32 = t == DType::f32;
  switch (o) {
    case Operand::a:
      if (tf32) return {mod(row, 8) * 4 + mod(column, 4), bit(column, 4) * 2 + bit(row, 8)};
      return {mod(row, 8) * 4 + floordiv(mod(column, 8), 2), bit(column, 8) * 4 + bit(row, 8) * 2 + mod(column, 2)};
    case Operand::b:
      if (tf32) return {mod(column, 8) * 4 + mod(row, 4), bit(row, 4)};
      return {mod(column, 8) * 4 + floordiv(mod(row, 8), 2), bit(row, 8) * 2 + mod(row, 2)};
    case Operand::c: break;
  }
  return {mod(row, 8) * 4 + floordiv(mod(column, 8), 2), bit(row, 8) * 2 + mod(column, 2)};
}

}  // namespace

std::optional<MmaShape> mma_shape(DType t) {
  if (t == DType::f16 || t == DType::bf16) return MmaShape{16, 8, 16};
  if (t == DType::f32) return MmaShape{16, 8, 8};
  return std::nullopt;
}

int fragment_registers(Operand o, DType t) { return part(o, t).registers; }

loop::Layout fragment_layout(sym::Context& c, Operand o, DType t, int64_t warps, int64_t rows, int64_t columns) {
  const Part p = part(o, t);
  TRIPOD_CHECK(rows % p.rows == 0 && columns % p.columns == 0, "a fragment of whole instruction tiles");
  loop::Layout l;
  l.args = {c.var("w", {0, warps - 1}), c.var("r", {0, rows - 1}), c.var("q", {0, columns - 1})};
  const Where at = where(o, t, sym::mod(l.args[1], p.rows), sym::mod(l.args[2], p.columns));
  l.map = {l.args[0], at.lane, sym::floordiv(l.args[1], p.rows), sym::floordiv(l.args[2], p.columns), at.e};
  l.extents = {c.constant(warps), c.constant(32), c.constant(rows / p.rows), c.constant(columns / p.columns), c.constant(p.registers)};
  l.thread_dims = 2;
  return l;
}

FragmentPlace fragment_place(Operand o, DType t, Index lane, Index e) {
  using sym::floordiv;
  using sym::mod;
  const Index group = floordiv(lane, 4), four = mod(lane, 4);
  const bool tf32 = t == DType::f32;
  switch (o) {
    case Operand::a:
      if (tf32) return {group + mod(e, 2) * 8, four + floordiv(e, 2) * 4};
      return {group + mod(floordiv(e, 2), 2) * 8, four * 2 + mod(e, 2) + floordiv(e, 4) * 8};
    case Operand::b:
      if (tf32) return {four + e * 4, group};
      return {four * 2 + mod(e, 2) + floordiv(e, 2) * 8, group};
    case Operand::c: break;
  }
  return {group + floordiv(e, 2) * 8, four * 2 + mod(e, 2)};
}

std::optional<Fragment> fragment_of(const loop::Buffer& b) {
  const loop::Layout& l = b->layout;
  if (b->scope != loop::Scope::reg || l.thread_dims != 2 || l.args.size() != 3 || l.map.size() != 5) return std::nullopt;
  for (sym::Expr e : b->shape)
    if (!e.is_const()) return std::nullopt;
  sym::Context& c = b->shape[0].context();
  const auto is = [&](Operand o, DType t) {
    const Part p = part(o, t);
    if (b->shape[1].value() % p.rows != 0 || b->shape[2].value() % p.columns != 0) return false;
    const loop::Layout wanted = fragment_layout(c, o, t, b->shape[0].value(), b->shape[1].value(), b->shape[2].value());
    sym::Map args;  // to arguments whose ranges are known, so that both simplify alike
    for (size_t d = 0; d < 3; ++d) args[l.args[d]] = wanted.args[d];
    for (size_t d = 0; d < 5; ++d)
      if (!(sym::substitute(l.map[d], args) == wanted.map[d]) || !(wanted.extents[d] == l.extents[d])) return false;
    return true;
  };
  if (b->dtype == DType::f16 || b->dtype == DType::bf16) {
    if (is(Operand::a, b->dtype)) return Fragment{Operand::a, b->dtype};
    if (is(Operand::b, b->dtype)) return Fragment{Operand::b, b->dtype};
  } else if (b->dtype == DType::f32) {
    for (Operand o : {Operand::c, Operand::a, Operand::b})
      if (is(o, DType::f32)) return Fragment{o, DType::f32};
  }
  return std::nullopt;
}

}  // namespace tripod::cuda
