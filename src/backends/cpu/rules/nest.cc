#include "backends/cpu/rules/nest.h"

#include <algorithm>

namespace tripod::cpu {

using loop::Iter;
using loop::Op;
using loop::StmtKind;

Nest::Nest(sym::Context& c, const CpuTarget& target, const loop::StmtNode& block) : BlockWalk(c, block), target_(target) {}

// Vectors along the innermost iterator: plain stores that are contiguous along it.
bool Nest::may_vectorise() const {
  if (spatial_.empty()) return false;
  const Index v = spatial_.back().var;
  if (spatial_.back().extent.is_const() && spatial_.back().extent.value() < 4) return false;
  bool plain = true;
  for (const Stmt& s : {body_, init_})
    if (s)
      loop::visit(s, [&](const Stmt& t) {
        const bool structure = t->kind == StmtKind::seq || t->kind == StmtKind::let || t->kind == StmtKind::check;
        plain = plain && (structure || (t->kind == StmtKind::store && !t->guard && info(t->buffer->dtype).bits >= 8));
      });
  for (const Access& a : accesses_) {
    const auto l = sym::linear_in(a.offset, v);
    if (a.is_store) plain = plain && l && l->coefficient.is_const(1);
  }
  return plain;
}

// A rough count of operations for one result, for the grain of the parallel loop.
int64_t Nest::work_of_one() const {
  int64_t n = 1;
  loop::visit(body_, [](const Stmt&) {}, [&](const Expr& e) { n += loop::is_math(e->op) ? 10 : 1; });
  for (const Iter& i : reduce_) n *= i.extent.constant().value_or(64);
  return std::max<int64_t>(1, n / 4);
}

// The innermost iterator over [from, from + count), the others as in `outer`.
Stmt Nest::inner(const sym::Map& outer, Index from, Index count) {
  const Index v = spatial_.back().var;
  const auto lanes_of = [&](DType t) { return target_.lanes(t); };
  const auto at = [&](Index i, Index lane) {
    sym::Map m = outer;
    m[v] = from + i;
    return loop::substitute(point(lane, lanes_of), m);
  };
  if (!may_vectorise()) return serial(c_, "i", count, [&](Index i) { return at(i, {}); });
  const int64_t lanes = target_.lanes(DType::f32);
  const Index whole = sym::floordiv(count, lanes), rest = sym::mod(count, lanes);
  std::vector<Stmt> parts;
  if (!whole.is_const(0))
    parts.push_back(serial(c_, "v", whole, [&](Index g) {
      return vector(c_, "lane", lanes, [&](Index j) { return at(g * lanes + j, j); });
    }));
  if (!rest.is_const(0)) parts.push_back(serial(c_, "i", rest, [&](Index i) { return at(whole * lanes + i, {}); }));
  return loop::seq(parts);
}

Stmt Nest::build() {
  sort_spatial();
  collapse();
  if (spatial_.empty()) return parallel(c_, "once", c_.constant(1), 1, [&](Index) { return point({}, [](DType) { return 1; }); });
  constexpr int64_t kWorkOfAThread = 16384;
  const Iter last = spatial_.back();
  if (spatial_.size() == 1) {
    // One long line: chunks of it.
    const int64_t chunk = std::max<int64_t>(16, kWorkOfAThread / work_of_one() / 16 * 16);
    return parallel(c_, "chunk", sym::ceildiv(last.extent, chunk), 1, [&](Index p) {
      return inner({}, p * chunk, sym::min(c_.constant(chunk), last.extent - p * chunk));
    });
  }
  Indices extents;
  for (size_t d = 0; d + 1 < spatial_.size(); ++d) extents.push_back(spatial_[d].extent);
  // Two 4-bit elements share a byte: lines may meet in one, so one thread writes them all.
  bool nibbles = false;
  loop::visit(body_, [&](const Stmt& s) { nibbles = nibbles || (s->kind == StmtKind::store && info(s->buffer->dtype).bits < 8); });
  const int64_t line = nibbles ? 0 : work_of_one() * last.extent.constant().value_or(64);
  return parallel(c_, "line", sym::product(c_, extents), line == 0 ? INT64_MAX : std::max<int64_t>(1, kWorkOfAThread / line), [&](Index p) {
    sym::Map m;
    const Indices at = unflatten(p, extents);
    for (size_t d = 0; d < at.size(); ++d) m[spatial_[d].var] = at[d];
    return inner(m, c_.constant(0), last.extent);
  });
}

}  // namespace tripod::cpu
