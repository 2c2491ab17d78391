#include "graph_opt/simplify.h"

namespace tripod::graph_opt {

SimplifyResult simplify(graph::Module& m, const SimplifyOptions&) {
  for (int32_t i = 0; i < m.num_graphs(); ++i) m.graph(i).remove_dead();
  return {};
}

}  // namespace tripod::graph_opt
