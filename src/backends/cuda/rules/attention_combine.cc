// The second kernel of attention whose keys were split over blocks: the parts of a row in order.
#include "backends/cuda/rules/attention.h"

namespace tripod::cuda {

namespace {
constexpr int64_t kThreads = 128;
}

Stmt combine_splits(const AttentionProblem& p, const AttentionParts& parts, Index splits, sym::Context& c) {
  const Index zero = c.constant(0), columns = p.form().columns, total = p.batches() * p.rows() * columns;
  const Expr unit = loop::constant(DType::f32, p.unit()), nothing = loop::constant(DType::f32, 0), one = loop::constant(DType::f32, 1);
  const auto number = [&](const char* name) { return loop::make_buffer(name, DType::f32, {c.constant(1)}, loop::Scope::reg); };
  const Buffer most = number("most"), sum = number("sum"), of_all = number("total");
  const auto now = [&](const Buffer& b) { return loop::load(b, {zero}); };
  return grid(c, sym::ceildiv(total, kThreads), [&](Index block) {
    return threads(c, kThreads, [&](Index th) {
      const Index flat = block * kThreads + th;
      const Indices at = unflatten(flat, {p.batches(), p.rows(), columns});
      const auto body = [&] {
        const Stmt maxima = serial(c, "split", splits, [&](Index s) { return loop::store(most, {zero}, loop::max(now(most), loop::load(parts.maxima, {s, at[0], at[1]}))); });
        const Stmt sums = serial(c, "split", splits, [&](Index s) {
          const Expr factor = weight((loop::load(parts.maxima, {s, at[0], at[1]}) - shift_of(now(most))) * unit);
          return loop::seq({loop::store(of_all, {zero}, loop::fma(loop::load(parts.totals, {s, at[0], at[1]}), factor, now(of_all))),
                            loop::store(sum, {zero}, loop::fma(loop::load(parts.sums, {s, at[0], at[1], at[2]}), factor, now(sum)))});
        });
        const Expr divisor = loop::select(loop::eq(now(of_all), nothing), one, now(of_all));
        Stmt r = loop::seq({loop::store(most, {zero}, loop::constant(DType::f32, -rules::kInfinity)), loop::store(of_all, {zero}, nothing),
                            loop::store(sum, {zero}, nothing), maxima, sums, p.store(at[0], at[1], at[2], now(sum) / divisor)});
        for (const Buffer& b : {most, sum, of_all}) r = loop::alloc(b, r);
        return r;
      };
      return where(sym::lt(flat, total), body);
    });
  });
}

}  // namespace tripod::cuda
