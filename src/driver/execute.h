// Runs a module phase by phase without compiling it: every node or kernel by the loop interpreter, on tensors by name.
// Slow and obvious, the judge of `tripod verify --bisect`.
//
// What cannot be interpreted (runtime operators, loops, more work than allowed) takes its results from `given`, by the
// names of the values, so that the rest of a large model can still be judged.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "backends/cpu/kernel.h"
#include "driver/loaded_model.h"
#include "graph/group.h"
#include "host/plan.h"
#include "lower/lower.h"

namespace tripod {

// A kernel group on its way from compute form to code.
struct KernelEntry {
  const graph::Graph* graph;
  const graph::Group* group;
  lower::Lowered lowered;
  cpu::Kernel kernel;
  std::vector<host::GroupKernel::Phase> gpu;  // its launches where it runs on a GPU; kernel.phases is empty then
};

using NamedTensors = std::map<std::string, Tensor>;

// Which form of the model runs.
enum class Form {
  nodes,      // the graph, one node at a time
  lowered,    // fused groups in compute form
  scheduled,  // the same with their loops
};

struct ExecuteInput {
  const graph::Module* module;
  Form form = Form::nodes;
  const std::vector<graph::Groups>* groups = nullptr;  // of each graph; not for `nodes`
  const std::vector<KernelEntry>* kernels = nullptr;   // likewise
  const std::vector<Tensor>* inputs = nullptr;
  const NamedTensors* given = nullptr;
  int64_t most_work = 0;         // innermost iterations, of all that is interpreted
  std::set<std::string> always;  // values whose node is interpreted whatever its work
};

struct ExecuteResult {
  NamedTensors values;                  // of the main graph, row-major
  std::vector<std::string> order;       // their names as they were made
  std::vector<std::string> taken;       // names of values that came from `given`
  std::vector<std::string> violations;  // bounds, races, unwritten reads, failed checks: "kernel: what"
  std::vector<Tensor> outputs;          // of the module; empty when `stopped`
  std::string stopped;                  // why it could not go on; empty: it ran to the end
  int64_t work = 0;
};

ExecuteResult execute(const ExecuteInput& in);

// Row-major elements from memory whose dims lie in `order` (outermost first; empty: row-major), and back.
std::vector<std::byte> to_row_major(const std::byte* data, const std::vector<int64_t>& shape,
                                    const std::vector<int>& order, int64_t element_bytes);
std::vector<std::byte> from_row_major(const std::byte* data, const std::vector<int64_t>& shape,
                                      const std::vector<int>& order, int64_t element_bytes);

}  // namespace tripod
