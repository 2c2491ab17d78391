// Evaluates nodes on constants at compile time: moves and plain arithmetic directly (graph_opt/fold.h), the others by the
// node's own lowering, run by the loop interpreter, so that folding and the compiled kernel share one definition.
#pragma once

#include "graph/graph.h"

namespace tripod::cpu {

class Evaluator : public graph::Evaluator {
 public:
  // Work (iterations of the innermost blocks) up to which a node is evaluated; larger ones are left to the run.
  static constexpr int64_t kMostWork = 4'000'000;
  std::optional<std::vector<graph::ConstAttr>> evaluate(const graph::Graph& g, graph::NodeId n) override;
};

}  // namespace tripod::cpu
