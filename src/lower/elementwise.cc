// Elementwise ops: one block over the result's shape, operands broadcast.
#include "lower/ops.h"

namespace tripod::lower {

void lower_elementwise(Lowering& l, const graph::Node& n) {
  const graph::ValueId result = n.results[0];
  const DType t = l.type(result).dtype;
  l.map(result, l.block_name(), [&](const Indices& at) {
    std::vector<Expr> operands;
    for (graph::ValueId v : n.operands) operands.push_back(v == graph::kNoValue ? Expr() : l.load_broadcast(v, at));
    return formula(n, operands, compute_type(t));
  });
}

}  // namespace tripod::lower
