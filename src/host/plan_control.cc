// Steps for control flow.
#include "host/plan.h"

namespace tripod::host {

using graph::Graph;
using graph::Node;

static void unsupported(const Node& n) {
  throw CompileError(n.origins.empty() ? Site{} : n.origins[0], std::string(graph::info(n.op).text) + " is not supported on the CPU yet");
}

void Planner::plan_if(const Graph&, const Node& n, Steps&) { unsupported(n); }
void Planner::plan_loop(const Graph&, const Node& n, Steps&) { unsupported(n); }
void Planner::plan_scan(const Graph&, const Node& n, Steps&) { unsupported(n); }

}  // namespace tripod::host
