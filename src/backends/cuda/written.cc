#include "backends/cuda/written.h"

#include "graph/op_table.h"

namespace tripod::cuda {
namespace {

struct Row {
  graph::OpKind op;
  const char* rule;
  bool (*applies)(const graph::Graph&, const graph::Node&);
  lower::LowerOp write;
};
constexpr Row kRows[] = {
    {graph::OpKind::topk, "topk", topk_applies, write_topk},
    {graph::OpKind::cumsum, "scan", scan_applies, write_scan},
};

}  // namespace

std::optional<lower::Lowered> write(const graph::Graph& g, const graph::Group& group, Numbering& sites) {
  if (group.nodes.size() != 1) return std::nullopt;
  const graph::Node& n = g.node(group.nodes[0]);
  for (const Row& row : kRows) {
    if (row.op != n.op || !row.applies(g, n)) continue;
    lower::Lowered l = lower::lower_group(g, group, sites, row.write);
    l.function.rule = row.rule;
    return l;
  }
  return std::nullopt;
}

}  // namespace tripod::cuda
