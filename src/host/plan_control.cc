// Steps for control flow. Sub-graphs are planned in place, with their inputs bound to the places of the operands.
#include <algorithm>

#include "host/plan.h"

namespace tripod::host {

using graph::Graph;
using graph::Node;
using graph::SubgraphAttr;
using graph::ValueId;

static void unsupported(const Node& n) {
  throw CompileError(n.origins.empty() ? Site{} : n.origins[0], std::string(graph::info(n.op).text) + " is not supported on the CPU yet");
}

// Data symbols in the results' shapes that nobody has defined before: each branch defines them.
std::vector<Index> Planner::undefined_symbols(const Graph& g, const Node& n) const {
  std::vector<Index> r;
  for (ValueId v : n.results)
    for (const Index& d : g.type(v).shape)
      for (const Index& s : sym::variables(d)) {
        const Symbol& known = p_.symbols[symbol(s)];
        if (!known.bound_by_input && !known.defined && std::find(r.begin(), r.end(), s) == r.end()) r.push_back(s);
      }
  return r;
}

// The results get memory that both branches fill; where their extents are only known inside, a segment of its own that
// each branch enters once it has set them.
void Planner::plan_if(const Graph& g, const Node& n, Steps& steps) {
  const SubgraphAttr& a = std::get<SubgraphAttr>(n.attr);
  const View condition = view(g, n.operands[0]);
  const std::vector<Index> open = undefined_symbols(g, n);
  const int32_t outer_segment = segment_;
  int32_t result_segment = outer_segment;
  if (!open.empty()) result_segment = ++num_segments_;
  std::vector<Place> results;
  for (ValueId v : n.results) {
    segment_ = result_segment;
    results.push_back(arena_for(g, v));
    places_[{&g, v}] = results.back();
  }
  segment_ = outer_segment;
  Step& s = add(steps, Step::branch);
  s.views = {condition};
  s.site = site(n);
  touch(condition.place);
  std::vector<Steps> bodies(2);
  for (int arm = 0; arm < 2; ++arm) {
    const Graph& sub = m_.graph(a.graphs[arm]);
    for (size_t i = 0; i < sub.inputs().size(); ++i) places_[{&sub, sub.inputs()[i]}] = place(g, n.operands[1 + i]);
    plan_graph(sub, in_.fuse(sub), bodies[arm]);
    for (const Index& symbol_of : open)
      for (size_t r = 0; r < n.results.size(); ++r)
        for (int d = 0; d < g.type(n.results[r]).rank(); ++d)
          if (g.type(n.results[r]).shape[d] == symbol_of) {
            Step& set = add(bodies[arm], Step::set_dim);
            set.number = symbol(symbol_of);
            set.dims = {sub.type(sub.outputs()[r]).shape[d]};
            set.site = s.site;
          }
    if (!open.empty()) add(bodies[arm], Step::segment).number = result_segment;
    for (size_t r = 0; r < n.results.size(); ++r) {
      const View from = view(sub, sub.outputs()[r]);
      Step& copy = add(bodies[arm], Step::copy);
      copy.views = {{results[r], from.dtype, from.shape}, from};
      touch(from.place), touch(results[r]);
    }
    segment_ = outer_segment;
  }
  s.body = std::move(bodies);
  for (const Index& symbol_of : open) p_.symbols[symbol(symbol_of)].defined = true;
  // What was made after the branch must not land in a segment that only one arm has entered.
  segment_ = result_segment;
  require_known(steps);
}

void Planner::plan_loop(const Graph&, const Node& n, Steps&) { unsupported(n); }
void Planner::plan_scan(const Graph&, const Node& n, Steps&) { unsupported(n); }

}  // namespace tripod::host
