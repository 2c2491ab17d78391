// Operators whose kernels are written in scheduled form, without a compute form and a rule: what a loop over results
// says badly (a sort, a prefix sum), some of it runtime operators on the CPU. The interpreter runs and checks them like
// every other kernel.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lower/lower.h"

namespace tripod::cuda {

// The largest elements along an axis, in order. Up to kMostTopK of them, of types whose order 32 bits can say.
constexpr int64_t kMostTopK = 1024;
bool topk_applies(const graph::Graph& g, const graph::Node& n);
void write_topk(lower::Lowering& l, const graph::Node& n);

// Running sums along the innermost axis.
bool scan_applies(const graph::Graph& g, const graph::Node& n);
void write_scan(lower::Lowering& l, const graph::Node& n);

// The kernels of a group that one of them applies to.
std::optional<lower::Lowered> write(const graph::Graph& g, const graph::Group& group, Numbering& sites);

}  // namespace tripod::cuda
