// Phase `simplify`: folding, canonical form, common subexpressions, dead code, algebra, and recovery of composite ops
// (norms, activations, attention) from what exporters write.
//
// A list of passes (simplify.cc), each a file of this folder, run in rounds until nothing changes. Every rewrite is
// counted against `opt_limit`, so that a wrong rewrite can be found by bisection.
#pragma once

#include <functional>
#include <string>

#include "graph/graph.h"

namespace tripod::graph_opt {

struct SimplifyOptions {
  int64_t opt_limit = -1;             // rewrites allowed; -1: all
  graph::Evaluator* evaluator = nullptr;   // null: constants are not folded
  // Called after each pass that changed something, with its name.
  std::function<void(const std::string& pass, const graph::Module& m)> after_pass;
};

struct SimplifyResult {
  int64_t rewrites = 0;
};

SimplifyResult simplify(graph::Module& m, const SimplifyOptions& options);

}  // namespace tripod::graph_opt
