#include "rules/loops.h"

namespace tripod::rules {

using loop::LoopKind;

Index loop_var(sym::Context& c, const char* name, Index extent) {
  const sym::Range r = sym::bounds(extent);
  Index v = c.var(name, {0, r.hi == sym::Range::kMax ? sym::Range::kMax : std::max<int64_t>(0, r.hi - 1)});
  c.assume_below(v, extent);
  return v;
}

static Stmt counted(sym::Context& c, const char* name, Index extent, LoopKind kind, int64_t grain, const std::function<Stmt(Index)>& body) {
  if (extent.is_const(1) && kind == LoopKind::serial) return body(c.constant(0));
  Index v = loop_var(c, name, extent);
  return loop::loop(v, extent, kind, body(v), grain);
}

Stmt serial(sym::Context& c, const char* name, Index extent, const std::function<Stmt(Index)>& body) {
  return counted(c, name, extent, LoopKind::serial, 1, body);
}
Stmt parallel(sym::Context& c, const char* name, Index extent, int64_t grain, const std::function<Stmt(Index)>& body) {
  return counted(c, name, extent, LoopKind::parallel, grain, body);
}
Stmt unrolled(sym::Context& c, const char* name, int64_t extent, const std::function<Stmt(Index)>& body) {
  return counted(c, name, c.constant(extent), LoopKind::unrolled, 1, body);
}
Stmt vector(sym::Context& c, const char* name, int64_t lanes, const std::function<Stmt(Index)>& body) {
  return counted(c, name, c.constant(lanes), LoopKind::vector, 1, body);
}

// Whole groups of `factor` in a loop of `inner` kind, then what is left in a serial loop.
static Stmt grouped(sym::Context& c, const char* name, Index extent, int64_t factor, LoopKind inner, const std::function<Stmt(Index)>& body) {
  const Index groups = sym::floordiv(extent, factor), rest = sym::mod(extent, factor);
  std::vector<Stmt> parts;
  if (!groups.is_const(0))
    parts.push_back(serial(c, name, groups, [&](Index g) {
      return counted(c, name, c.constant(factor), inner, 1, [&](Index i) { return body(g * factor + i); });
    }));
  if (!rest.is_const(0)) parts.push_back(serial(c, name, rest, [&](Index i) { return body(groups * factor + i); }));
  return loop::seq(std::move(parts));
}

Stmt vectors(sym::Context& c, const char* name, Index extent, int64_t lanes, const std::function<Stmt(Index)>& body) {
  return grouped(c, name, extent, lanes, LoopKind::vector, body);
}
Stmt unrolled_by(sym::Context& c, const char* name, Index extent, int64_t factor, const std::function<Stmt(Index)>& body) {
  return grouped(c, name, extent, factor, LoopKind::unrolled, body);
}

Stmt where(Index condition, const std::function<Stmt()>& body) {
  if (sym::proved(condition)) return body();
  return loop::branch(loop::from_index(DType::b1, condition), body());
}

Indices unflatten(Index flat, const Indices& extents) {
  Indices r(extents.size());
  for (size_t d = extents.size(); d-- > 0;) {
    r[d] = d == 0 ? flat : sym::mod(flat, extents[d]);
    if (d > 0) flat = sym::floordiv(flat, extents[d]);
  }
  return r;
}

}  // namespace tripod::rules
