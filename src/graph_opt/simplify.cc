#include "graph_opt/simplify.h"

#include <stdexcept>

#include "graph_opt/pass.h"

namespace tripod::graph_opt {

namespace {

struct Pass {
  std::string_view name;
  PassFunction run;
};

// In this order, and again from the first after any change: a pass sees a graph on which those before it have nothing
// left to do. So composites are looked for in canonical form, and before their constants are folded into weights.
constexpr Pass kPasses[] = {
    {"known_values", known_values},
    {"algebra", algebra},
    {"moves", moves},
    {"fold", fold},
    {"captures", captures},
    {"cse", cse},
    {"activations", activations},
    {"norms", norms},
    {"softmaxes", softmaxes},
    {"attentions", attentions},
    {"rotaries", rotaries},
    {"transposes", transposes},
    {"pads", pads},
    {"fold_scale", fold_scale},
    {"batch_norm", batch_norm},
    {"disjoint_windows", disjoint_windows},
};

void remove_dead(graph::Module& m) {
  for (int32_t i = 0; i < m.num_graphs(); ++i) m.graph(i).remove_dead();
  m.remove_unreachable();
}

bool run_everywhere(graph::Module& m, const Pass& pass, Budget& budget, const SimplifyOptions& options) {
  bool changed = false;
  budget.pass = pass.name;
  for (int32_t i = 0; i < m.num_graphs(); ++i) {
    Rewriter r(m.graph(i), budget, options.evaluator, options.small_weights);
    pass.run(r);
    m.graph(i).set_origins({});
    if (r.changed()) m.graph(i).sort();
    changed |= r.changed();
  }
  if (changed && options.after_pass) options.after_pass(std::string(pass.name), m);
  return changed;
}

SimplifyResult result(const Budget& budget) {
  SimplifyResult r{budget.used, {}};
  if (!budget.last_pass.empty()) r.last = std::string(budget.last_pass) + ":";
  for (const std::string& m : budget.matched) r.last += (&m == &budget.matched[0] ? " " : "; ") + m;
  return r;
}

// Runs the list up to the first pass that changes something.
bool round(graph::Module& m, Budget& budget, const SimplifyOptions& options) {
  for (const Pass& p : kPasses) {
    if (p.run == disjoint_windows && options.whole_transposed) continue;
    if (run_everywhere(m, p, budget, options)) return true;
  }
  for (const SimplifyOptions::ExtraPass& p : options.extra_passes)
    if (run_everywhere(m, {p.name, p.run}, budget, options)) return true;
  return false;
}

// More rounds than any model needs: two passes that undo each other must not hang the compiler.
constexpr int kMaxRounds = 1000;

}  // namespace

SimplifyResult simplify(graph::Module& m, const SimplifyOptions& options) {
  Budget budget;
  budget.limit = options.opt_limit;
  remove_dead(m);
  for (int i = 0; i < kMaxRounds && round(m, budget, options); ++i) remove_dead(m);
  return result(budget);
}

std::vector<std::string_view> pass_names() {
  std::vector<std::string_view> names;
  for (const Pass& p : kPasses) names.push_back(p.name);
  return names;
}

SimplifyResult run_pass(graph::Module& m, std::string_view name, const SimplifyOptions& options) {
  if (name == "simplify") return simplify(m, options);
  for (const Pass& p : kPasses) {
    if (p.name != name) continue;
    Budget budget;
    budget.limit = options.opt_limit;
    remove_dead(m);
    run_everywhere(m, p, budget, options);
    remove_dead(m);
    return result(budget);
  }
  throw std::invalid_argument("no pass is called '" + std::string(name) + "'");
}

}  // namespace tripod::graph_opt
