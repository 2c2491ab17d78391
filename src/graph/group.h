// A fusion group: the nodes that become one kernel (or one host step). Made by `fuse`, consumed by `choose`, `lower`
// and the planner.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace tripod::graph {

struct Group {
  enum Kind : uint8_t {
    kernel,   // a loop function computes it
    alias,    // reshape and identity: the result is the operand's memory
    source,   // input, constant, sym_values: nothing runs, or a store of dims
    runtime,  // a runtime operator
    control,  // read_dim, if, loop, scan
  } kind = kernel;
  std::vector<NodeId> nodes;       // in graph order
  std::vector<ValueId> inputs;     // values from outside, each once, in order of first use
  std::vector<ValueId> outputs;    // values that others use (or graph outputs)
};
using Groups = std::vector<Group>;

}  // namespace tripod::graph
