// Phase `simplify`: folding, canonical form, common subexpressions, dead code, algebra, and recovery of composite ops
// (norms, activations, attention) from what exporters write.
//
// A list of passes (simplify.cc), each a file of this folder, run in rounds until nothing changes. Every rewrite is
// counted against `opt_limit`, so that a wrong rewrite can be found by bisection.
//
// What holds afterwards: no dead nodes; no node all of whose operands are constants where folding pays; no two nodes
// that compute the same; batch norms with constant parameters are gone.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace tripod::graph_opt {

class Rewriter;

struct SimplifyOptions {
  int64_t opt_limit = -1;             // rewrites allowed; -1: all
  graph::Evaluator* evaluator = nullptr;   // null: only moves and plain arithmetic on constants are folded
  bool small_weights = false;         // weights of 8 bits and less are not dequantised in front of a matrix product
  bool whole_transposed = false;      // leave transposed convolutions: for targets that have a kernel for disjoint windows
  // Run after the list of passes; tests put a wrong one here. See graph_opt/pass.h.
  struct ExtraPass {
    std::string_view name;
    void (*run)(Rewriter&);
  };
  std::vector<ExtraPass> extra_passes;
  // Called after each pass that changed something, with its name.
  std::function<void(const std::string& pass, const graph::Module& m)> after_pass;
};

struct SimplifyResult {
  int64_t rewrites = 0;
  std::string last;   // the last of them: its pass and what it matched
};

SimplifyResult simplify(graph::Module& m, const SimplifyOptions& options);

// The names of the passes, in their order.
std::vector<std::string_view> pass_names();
// One pass of that name, once over every graph of the module, with dead code removed before and after. "simplify" runs
// all of them. Throws std::invalid_argument when there is no such pass.
SimplifyResult run_pass(graph::Module& m, std::string_view name, const SimplifyOptions& options);

}  // namespace tripod::graph_opt
