// Phase `layout`: the order of dims in memory of every value between kernels.
//
// Shapes stay logical; a value's Type::order says how it lies in memory, and lowering follows it. Windowed ops
// (convolution, pooling, resize) work on channels-last memory [N, spatial..., C]: pixels are rows of a GEMM, channels
// are the vector, no channel count needs padding, and a 1x1 convolution is a matrix product. Everything else takes
// the order of its inputs. Values that somebody needs row-major (the caller, a reshape, a runtime operator, a
// sub-graph) keep it; where a convolution makes such a value, it writes channels-last and a copy follows.
#pragma once

#include "graph/group.h"

namespace tripod::graph_opt {

// What a target's kernels want of memory beyond that.
struct LayoutPreferences {
  // Weights of convolutions lie in the order [out, spatial, in] ([spatial, out] where every channel is convolved by
  // itself), so that what is contiguous in the image is contiguous in them. Otherwise the back end packs them.
  bool weights_channels_last = false;
  // A windowed op reads an operand that lies row-major through a channels-last copy where it has as many channels at
  // least; 0: never. For fewer the copy costs more than the strided reads.
  int64_t copy_operands_from = 0;
  // The same for depthwise convolutions, whatever copy_operands_from says of the others: they read a vector of channels,
  // and have too little arithmetic to hide strided reads.
  int64_t copy_depthwise_from = 0;
};

// Sets orders, and adds copies with their groups. Returns how many copies.
int assign_layouts(graph::Graph& g, graph::Groups& groups, const LayoutPreferences& wanted = {});

}  // namespace tripod::graph_opt
