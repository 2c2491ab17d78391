// Schedule rules of the CUDA back end: each turns a function in compute form into kernels of the form that
// backends/cuda/cuda_c.h describes (one top-level statement with grid loops is one kernel), or says why it does not
// apply. They are tried in the order of the table in rules.cc; the last one always applies.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "loop/schedule.h"
#include "rules/loops.h"

namespace tripod::cuda {

using namespace rules;

// Kernels for some of the sizes that only a run knows: `function` is right where `when`, a condition over dims, holds.
struct Variant {
  Index when;
  loop::Function function;
};

struct RuleResult {
  loop::Outcome outcome;
  loop::Function function;   // scheduled, not yet flattened; right for all sizes
  // What is faster for some sizes. The first whose condition holds runs, else `function`.
  std::vector<Variant> variants = {};
};

// What the user allows (Options::precision), or the architectures do.
struct ScheduleOptions {
  int64_t shared_bytes = 99 << 10;  // that a block of threads may have
  bool tf32 = false;   // products of f32 factors may be those of their 11 leading bits
};

struct RuleRow {
  using Rule = RuleResult (*)(const loop::Function& compute_form, sym::Context& c);
  using RuleWithOptions = RuleResult (*)(const loop::Function& compute_form, sym::Context& c, const ScheduleOptions& o);

  RuleRow(const char* n, Rule r) : name(n), rule(r) {}
  RuleRow(const char* n, RuleWithOptions r) : name(n), with_options(r) {}
  RuleResult apply(const loop::Function& f, sym::Context& c, const ScheduleOptions& o) const {
    return with_options ? with_options(f, c, o) : rule(f, c);
  }

  const char* name;
  Rule rule = nullptr;                      // one of the two
  RuleWithOptions with_options = nullptr;
};
const std::vector<RuleRow>& rule_table();

RuleResult attention(const loop::Function& f, sym::Context& c);
RuleResult attention_parts(const loop::Function& f, sym::Context& c, const ScheduleOptions& o);
RuleResult tensor_cores(const loop::Function& f, sym::Context& c, const ScheduleOptions& o);
RuleResult contraction(const loop::Function& f, sym::Context& c);
RuleResult windows(const loop::Function& f, sym::Context& c);
RuleResult reduce(const loop::Function& f, sym::Context& c);
RuleResult rows(const loop::Function& f, sym::Context& c, const ScheduleOptions& o);
RuleResult rows_shared(const loop::Function& f, sym::Context& c);
RuleResult transpose(const loop::Function& f, sym::Context& c);
RuleResult recurrent(const loop::Function& f, sym::Context& c);
RuleResult points(const loop::Function& f, sym::Context& c);

// The first rule that applies; the functions carry its name, `log` (may be null) each rule's reason for not applying.
RuleResult schedule(const loop::Function& f, sym::Context& c, std::vector<std::string>* log, const ScheduleOptions& o = {});

// --- what the rules share ---

Stmt grid(sym::Context& c, Index extent, const std::function<Stmt(Index)>& body);
Stmt threads(sym::Context& c, int64_t extent, const std::function<Stmt(Index)>& body);
// Thread t's share of [0, extent): t, t + threads, t + 2 * threads, ...
Stmt strided(sym::Context& c, const char* name, Index extent, Index t, int64_t threads, const std::function<Stmt(Index)>& body);
// The tile statement for partial results that combine so; why there is none, or "".
std::optional<loop::TileOp> row_tile(loop::Op combiner);
std::string refuse_combiner(std::optional<loop::Op> combiner);
// A register array of every thread: the first index is the thread's number.
Buffer per_thread(sym::Context& c, const std::string& name, DType t, int64_t threads, Indices shape);

}  // namespace tripod::cuda
