// Phase `precision`: which f32 values lie in memory as f16 or bf16.
//
// A value's Type::storage says how it is held between kernels; shapes, dtypes and arithmetic stay as they are. Kernels
// compute in f32 and round once, where a value leaves them, so no cast becomes a node, none has to be cancelled, and
// reductions accumulate in f32. Constants are converted at compile time; the model's inputs and outputs, and whatever
// runtime operators, branches and loops touch, keep their dtype.
#pragma once

#include <string>

#include "graph/group.h"

namespace tripod::graph_opt {

// f16, bf16; f32 for everything else, which leaves all as it is.
// Returns how many values are stored narrower.
int assign_storage(graph::Graph& g, graph::Groups& groups, DType narrow);

// What the table says of an op, for `explain`: "" where its results may be stored narrower.
std::string why_exact(graph::OpKind op);

}  // namespace tripod::graph_opt
