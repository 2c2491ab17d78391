#include "backends/cpu/rules/prepare.h"

namespace tripod::cpu {

// Loops over xp in its memory order; the innermost dim in vectors where x is contiguous along it too. The guard does
// not depend on the innermost dim when that is the channel; then whole rows are copied or filled.
Stmt pad_stage(sym::Context& c, const Expr& load, const Buffer& xp, const std::vector<int>& order, const Indices& low,
               const CpuTarget& target) {
  const Buffer& x = load->buffer;
  const int inner = order.back();
  Indices outer;
  for (size_t i = 0; i + 2 < order.size(); ++i) outer.push_back(xp->shape[order[i]]);
  Index tasks = sym::product(c, outer);
  return parallel(c, "row", tasks, 1, [&](Index row) {
    Indices at(order.size());
    const Indices outer_at = unflatten(row, outer);
    for (size_t i = 0; i < outer_at.size(); ++i) at[order[i]] = outer_at[i];
    const auto along = [&](Index middle) {
      if (order.size() > 1) at[order[order.size() - 2]] = middle;
      Index inside = c.constant(1);
      const auto limit = [&](int d, Index i) {
        const Index from = i + low[d];
        inside = sym::logical_and(inside, sym::logical_and(sym::le(c.constant(0), from), sym::lt(from, x->shape[d])));
      };
      for (size_t d = 0; d < order.size(); ++d)
        if (static_cast<int>(d) != inner) limit(static_cast<int>(d), at[d]);
      const bool inner_padded = !(low[inner].is_const(0) && sym::proved(sym::le(xp->shape[inner], x->shape[inner])));
      const auto copy = [&](bool read) {
        return vectors(c, "c", xp->shape[inner], target.lanes(x->dtype), [&](Index i) {
          Indices to = at, from;
          to[inner] = i;
          for (size_t d = 0; d < to.size(); ++d) from.push_back(to[d] + low[d]);
          if (!read) return loop::store(xp, to, load->other);
          if (!inner_padded) return loop::store(xp, to, loop::load(x, from));
          const Index g = sym::logical_and(sym::le(c.constant(0), from[inner]), sym::lt(from[inner], x->shape[inner]));
          return loop::store(xp, to, loop::load_guarded(x, from, g, load->other));
        });
      };
      if (sym::proved(inside)) return copy(true);
      return loop::branch(loop::from_index(DType::b1, inside), copy(true), copy(false));
    };
    return order.size() > 1 ? serial(c, "x", xp->shape[order[order.size() - 2]], along) : along({});
  });
}

}  // namespace tripod::cpu
