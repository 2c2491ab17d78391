// Groups the nodes of a graph into kernels.
//
// Nodes are visited from the outputs to the inputs. A node joins the group of its users when all of them are in that
// one group (so no cycle can arise and the value never goes to memory) and the group can take it:
//   - an elementwise node of the group's shape, feeding elementwise members;
//   - a contraction or a row op (softmax, norms), at most one a group, whose users are elementwise members of its
//     shape: they are its epilogue;
//   - an elementwise node in front of the group's row op;
//   - with `small_weights`, what dequantises the constant weights of the group's matrix product: they are converted on
//     their way into it, and stay small in memory.
#pragma once

#include "graph/group.h"

namespace tripod::graph_opt {

// Groups in an order in which producers come before users.
graph::Groups fuse(const graph::Graph& g, bool small_weights = false);

// v is a constant of 8 bits or less, dequantised, of which one matrix product makes use, as its second operand.
bool is_product_weight(const graph::Graph& g, graph::ValueId v);

}  // namespace tripod::graph_opt
