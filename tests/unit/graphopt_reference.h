// A reference evaluator for the tests of graph_opt: every op in doubles, in the most obvious way. It serves to compare
// a graph before and after a pass on random data, so it shares no code with the compiler's own evaluation.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace tripod::graph_opt {

struct Tensor {
  graph::Ints dims;
  std::vector<double> data;
  int64_t size() const { return static_cast<int64_t>(data.size()); }
};

using Values = std::map<graph::ValueId, Tensor>;

// Values for every symbol of the module: small, different, inside their ranges, and satisfying what the module requires
// where that is possible.
sym::Values choose_symbols(const graph::Module& m, int seed);
// Random inputs: floats in [-2, 2], integers in [0, 3], bools.
std::vector<Tensor> random_inputs(const graph::Graph& g, const sym::Values& symbols, int seed);
// The outputs, or nothing when an op is not covered here (`missing` names it).
std::optional<std::vector<Tensor>> evaluate(const graph::Graph& g, const std::vector<Tensor>& inputs,
                                            const sym::Values& symbols, std::string& missing);

}  // namespace tripod::graph_opt
