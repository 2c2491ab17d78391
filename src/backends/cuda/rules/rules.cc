#include "backends/cuda/rules/rules.h"

namespace tripod::cuda {

using loop::LoopKind;

const std::vector<RuleRow>& rule_table() {
  static const std::vector<RuleRow> kTable = {
      {"attention", attention},
      {"attention_parts", attention_parts},
      {"tensor_cores", tensor_cores},
      {"contraction", contraction},
      {"windows", windows},
      {"reduce", reduce},
      {"rows", rows},
      {"rows_shared", rows_shared},
      {"transpose", transpose},
      {"recurrent", recurrent},
      {"points", points},
  };
  return kTable;
}

RuleResult schedule(const loop::Function& f, sym::Context& c, std::vector<std::string>* log, const ScheduleOptions& o) {
  if (!f.rule.empty()) return {{true, ""}, f};  // written in scheduled form (written.h)
  for (const RuleRow& row : rule_table()) {
    RuleResult r = row.apply(f, c, o);
    if (r.outcome.applied) {
      r.function.rule = row.name;
      for (Variant& v : r.variants) v.function.rule = row.name;
      return r;
    }
    if (log) log->push_back(std::string(row.name) + ": " + r.outcome.reason);
  }
  internal_error(__FILE__, __LINE__, "no rule applies to " + f.name);
}

Stmt grid(sym::Context& c, Index extent, const std::function<Stmt(Index)>& body) {
  const Index v = loop_var(c, "block", extent);
  return loop::loop(v, extent, LoopKind::grid_x, body(v));
}

Stmt threads(sym::Context& c, int64_t extent, const std::function<Stmt(Index)>& body) {
  const Index n = c.constant(extent), v = loop_var(c, "thread", n);
  return loop::loop(v, n, LoopKind::block_x, body(v));
}

Stmt strided(sym::Context& c, const char* name, Index extent, Index t, int64_t threads, const std::function<Stmt(Index)>& body) {
  return serial(c, name, sym::ceildiv(extent, threads), [&](Index q) {
    const Index i = q * threads + t;
    return where(sym::lt(i, extent), [&] { return body(i); });
  });
}

std::optional<loop::TileOp> row_tile(loop::Op combiner) {
  if (combiner == loop::Op::add) return loop::TileOp::reduce_sum;
  if (combiner == loop::Op::max) return loop::TileOp::reduce_max;
  return std::nullopt;
}

std::string refuse_combiner(std::optional<loop::Op> combiner) {
  return combiner && row_tile(*combiner) ? "" : "neither a sum nor a maximum";
}

Buffer per_thread(sym::Context& c, const std::string& name, DType t, int64_t threads, Indices shape) {
  shape.insert(shape.begin(), c.constant(threads));
  loop::Layout layout;
  for (const Index& e : shape) {
    layout.args.push_back(loop_var(c, "i", e));
    layout.map.push_back(layout.args.back());
    layout.extents.push_back(e);
  }
  layout.thread_dims = 1;
  return loop::make_buffer(name, t, shape, loop::Scope::reg, layout);
}

}  // namespace tripod::cuda
