// Steps for control flow. Sub-graphs are planned in place, with their inputs bound to the places of the operands.
#include <algorithm>
#include <utility>

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
  const auto define = [&](bool defined) {
    for (const Index& symbol_of : open) p_.symbols[symbol(symbol_of)].defined = defined;
  };
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
    if (!open.empty()) {
      const std::vector<bool> known = known_;
      define(true);
      require_known(bodies[arm]);
      add(bodies[arm], Step::segment).number = result_segment;
      // The other arm asks the same of its own extents.
      if (arm == 0) known_ = known, define(false);
    }
    for (size_t r = 0; r < n.results.size(); ++r) {
      const View from = view(sub, sub.outputs()[r]);
      Step& copy = add(bodies[arm], Step::copy);
      copy.views = {{results[r], from.dtype, from.shape}, from};
      touch(from.place), touch(results[r]);
    }
    segment_ = outer_segment;
  }
  s.body = std::move(bodies);
  // What was made after the branch must not land in a segment that only one arm has entered.
  segment_ = result_segment;
}

// --- loop and scan ------------------------------------------------------------------------------------------------

// Copies of `from` over the memory that the next iteration reads; through a temporary where `from` is itself carried.
void Planner::carry(const Place& to, const View& from, const std::vector<Place>& carried, Steps& steps) {
  View source = from;
  const auto same = [&](const Place& p) { return p.kind == from.place.kind && p.index == from.place.index; };
  if (same(to)) return;
  if (std::any_of(carried.begin(), carried.end(), same)) {
    const Index bytes = sym::product(*context_, from.shape) * (info(from.dtype).bits / 8);
    source.place = arena("carried", bytes);
    copy(source, from, steps);
  }
  late_copies_.push_back({{to, from.dtype, from.shape}, source});
}

void Planner::copy(const View& to, const View& from, Steps& steps) {
  Step& s = add(steps, Step::copy);
  s.views = {to, from};
  touch(to.place), touch(from.place);
}

// What was made before the loop and is used in it lives until its end: the next iteration reads it again.
void Planner::extend_over_loop(int32_t begin) {
  for (ArenaBuffer& b : p_.buffers)
    if (b.first < begin && b.last >= begin) b.last = std::max(b.last, next_ - 1);
}

int Planner::new_counter(const std::string& name) {
  const Index counter = context_->var(name, {0, sym::Range::kMax});
  p_.symbols.push_back({counter, counter->name, false, true});
  return static_cast<int>(p_.symbols.size()) - 1;
}

void Planner::set_symbol(int symbol, Index value, int32_t site, Steps& steps) {
  Step& s = add(steps, Step::set_dim);
  s.number = symbol, s.dims = {value}, s.site = site;
}

// Carried values that change their size. Their memory is a segment that is entered again whenever the sizes change,
// which gives up what it held: an iteration's values wait in a second segment until the first has room for them.
Planner::Growing Planner::start_growing(const Graph& g, const Node& n, const Graph& sub, size_t first, size_t carried, Steps& steps) {
  Growing grow;
  grow.value.assign(carried, false);
  for (size_t i = 0; i < carried; ++i) {
    const graph::Shape& shape = sub.type(sub.inputs()[first + i]).shape;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (!shape[d].is_var()) continue;
      Symbol& s = p_.symbols[symbol(shape[d])];
      if (s.bound_by_input || s.defined) continue;
      s.defined = grow.value[i] = true;
      grow.dims.push_back({i, static_cast<int>(d), symbol(shape[d]), new_counter(shape[d]->name + "_next")});
    }
  }
  if (grow.dims.empty()) return grow;
  grow.memory = ++num_segments_, grow.staging = ++num_segments_;
  for (const Changing& c : grow.dims) set_symbol(c.symbol, g.type(n.operands[first + c.value]).shape[c.dim], site(n), steps);
  add(steps, Step::segment).number = grow.memory;
  return grow;
}

// At the end of an iteration, when everything that reads the carried values has run.
void Planner::carry_growing(const Growing& grow, const Graph& sub, size_t first, const std::vector<Place>& memory, Steps& body) {
  for (const Changing& c : grow.dims) set_symbol(c.next, sub.type(sub.outputs()[first + c.value]).shape[c.dim], -1, body);
  add(body, Step::segment).number = grow.staging;
  std::vector<std::pair<View, View>> staged;  // memory, staging
  const int32_t outer = segment_;
  for (size_t i = 0; i < memory.size(); ++i) {
    if (!grow.value[i]) continue;
    const View from = view(sub, sub.outputs()[first + i]);
    graph::Type next = sub.type(sub.outputs()[first + i]);
    for (const Changing& c : grow.dims)
      if (c.value == i) next.shape[c.dim] = p_.symbols[c.next].var;
    segment_ = grow.staging;
    const View wait{arena("next", graph::element_count(*context_, next.shape) * (info(next.dtype).bits / 8)), next.dtype, next.shape};
    segment_ = outer;
    copy(wait, from, body);
    staged.push_back({{memory[i], next.dtype, next.shape}, wait});
  }
  finish_iteration(body);
  for (const Changing& c : grow.dims) set_symbol(c.symbol, p_.symbols[c.next].var, -1, body);
  add(body, Step::segment).number = grow.memory;
  for (const auto& [to, from] : staged) copy(to, from, body);
}

// The results' extents are those of the last iteration.
void Planner::finish_growing(const Growing& grow, const Graph& g, const Node& n, Steps& steps) {
  for (const Changing& c : grow.dims) {
    const Index result = g.type(n.results[c.value]).shape[c.dim];
    if (!result.is_var() || p_.symbols[symbol(result)].bound_by_input || p_.symbols[symbol(result)].defined) continue;
    p_.symbols[symbol(result)].defined = true;
    set_symbol(symbol(result), p_.symbols[c.symbol].var, site(n), steps);
  }
  enter_segment(steps);
}

void Planner::refuse_changing(const Graph& g, const Node& n, size_t first_result) {
  Node rest = n;
  rest.results.erase(rest.results.begin(), rest.results.begin() + static_cast<int64_t>(first_result));
  if (undefined_symbols(g, rest).empty()) return;
  throw CompileError(n.origins.empty() ? Site{} : n.origins[0],
                     "a result's extent depends on what the iterations do; this is not supported on the CPU yet");
}

// The carried values have memory of their own: the first ones are copied in, each iteration's are copied over.
void Planner::plan_loop(const Graph& g, const Node& n, Steps& steps) {
  const SubgraphAttr& a = std::get<SubgraphAttr>(n.attr);
  const Graph& sub = m_.graph(a.graphs[0]);
  const size_t carried = static_cast<size_t>(a.num_carried);
  refuse_changing(g, n, carried);
  const Growing grow = start_growing(g, n, sub, 2, carried, steps);
  const int32_t outer_segment = segment_;
  std::vector<Place> memory;
  for (size_t i = 0; i < carried; ++i) {
    if (grow.value[i]) segment_ = grow.memory;
    memory.push_back(start_carried(g, n.operands[2 + i], steps));
    if (grow.value[i]) {  // room for what the iterations make of it, not for what came in
      const graph::Type& t = sub.type(sub.inputs()[2 + i]);
      p_.buffers[memory[i].index].bytes = graph::element_count(*context_, t.shape) * (info(t.dtype).bits / 8);
    }
    segment_ = outer_segment;
  }
  const Place proceed = arena("proceed", context_->constant(1)), iteration = arena("iteration", context_->constant(8));
  const View flag{proceed, DType::b1, {}};
  if (n.operands[1] == graph::kNoValue) {
    Step& s = add(steps, Step::store);
    s.views = {flag}, s.dims = {context_->constant(1)};
    touch(proceed);
  } else {
    copy(flag, view(g, n.operands[1]), steps);
  }
  std::vector<Place> scanned;
  for (size_t i = carried; i < n.results.size(); ++i) scanned.push_back(make_inner_result(g, n.results[i]));
  const View trips = view(g, n.operands[0]);
  const int counter = new_counter();
  const int32_t begin = next_;
  Step& loop = add(steps, Step::loop);
  loop.views = {trips, flag, {iteration, DType::i64, {}}};
  loop.number = counter, loop.site = site(n);
  touch(trips.place), touch(proceed), touch(iteration);

  std::vector<Place> inputs = {iteration, proceed};
  inputs.insert(inputs.end(), memory.begin(), memory.end());
  for (size_t i = 2 + carried; i < n.operands.size(); ++i) inputs.push_back(place(g, n.operands[i]));
  Steps body = plan_body(sub, inputs, !grow.dims.empty());
  carry(proceed, view(sub, sub.outputs()[0]), memory, body);
  for (size_t i = 0; i < carried; ++i)
    if (!grow.value[i]) carry(memory[i], view(sub, sub.outputs()[1 + i]), memory, body);
  for (size_t i = 0; i < scanned.size(); ++i) store_slice(scanned[i], view(sub, sub.outputs()[1 + carried + i]), p_.symbols[counter].var, body);
  grow.dims.empty() ? finish_iteration(body) : carry_growing(grow, sub, 1, memory, body);
  loop.body = {std::move(body)};
  for (const Place& p : memory) touch(p);
  extend_over_loop(begin);
  for (size_t i = 0; i < carried; ++i) places_[{&g, n.results[i]}] = memory[i];
  if (!grow.dims.empty()) finish_growing(grow, g, n, steps);
}

// A place in a place, which may itself lie in another.
static Place part(Place p, Index bytes) {
  p.at = p.at ? p.at + bytes : bytes;
  return p;
}

// scan(carried..., scanned..., captures...): slices of the scanned inputs are views into them.
void Planner::plan_scan(const Graph& g, const Node& n, Steps& steps) {
  const SubgraphAttr& a = std::get<SubgraphAttr>(n.attr);
  const Graph& sub = m_.graph(a.graphs[0]);
  refuse_changing(g, n);
  const size_t carried = static_cast<size_t>(a.num_carried), slices = static_cast<size_t>(a.num_scan_inputs);
  for (int axis : a.scan_input_axes)
    if (axis != 0) unsupported(n);
  for (int axis : a.scan_output_axes)
    if (axis != 0) unsupported(n);
  std::vector<Place> memory;
  for (size_t i = 0; i < carried; ++i) memory.push_back(start_carried(g, n.operands[i], steps));
  std::vector<Place> scanned;
  for (size_t i = carried; i < n.results.size(); ++i) scanned.push_back(make_inner_result(g, n.results[i]));
  const int counter = new_counter();
  const Index at = p_.symbols[counter].var, length = g.type(n.operands[carried]).shape[0];
  const int32_t begin = next_;
  Step& loop = add(steps, Step::loop);
  loop.views.resize(3);
  loop.number = counter, loop.site = site(n), loop.extent = length;

  std::vector<Place> inputs = memory;
  for (size_t i = 0; i < slices; ++i) {
    const ValueId v = n.operands[carried + i];
    const bool reverse = i < a.scan_input_reverse.size() && a.scan_input_reverse[i];
    Place p = place(g, v);
    touch(p);
    p = part(p, slice_bytes(g.type(v)) * (reverse ? length - 1 - at : at));
    inputs.push_back(p);
  }
  for (size_t i = carried + slices; i < n.operands.size(); ++i) inputs.push_back(place(g, n.operands[i]));
  Steps body = plan_body(sub, inputs);
  for (size_t i = 0; i < carried; ++i) carry(memory[i], view(sub, sub.outputs()[i]), memory, body);
  for (size_t i = 0; i < scanned.size(); ++i) {
    const bool reverse = i < a.scan_output_reverse.size() && a.scan_output_reverse[i];
    store_slice(scanned[i], view(sub, sub.outputs()[carried + i]), reverse ? length - 1 - at : at, body);
  }
  finish_iteration(body);
  loop.body = {std::move(body)};
  for (const Place& p : memory) touch(p);
  extend_over_loop(begin);
  for (size_t i = 0; i < carried; ++i) places_[{&g, n.results[i]}] = memory[i];
}

Place Planner::start_carried(const Graph& g, ValueId v, Steps& steps) {
  const View from = view(g, v);
  const View to{arena_for(g, v), from.dtype, from.shape};
  copy(to, from, steps);
  return to.place;
}

Place Planner::make_inner_result(const Graph& g, ValueId v) { return places_[{&g, v}] = arena_for(g, v); }

// The body's steps, with its inputs bound; a nested use of the planner must not see this level's pending copies.
// `own_segment`: its sizes change from one iteration to the next.
Steps Planner::plan_body(const Graph& sub, const std::vector<Place>& inputs, bool own_segment) {
  for (size_t i = 0; i < sub.inputs().size(); ++i) {
    places_[{&sub, sub.inputs()[i]}] = inputs[i];
    touch(inputs[i]);
  }
  Steps body;
  const int32_t segment = segment_;
  if (own_segment) enter_segment(body);
  plan_graph(sub, in_.fuse(sub), body);
  for (const Place& p : inputs) touch(p);
  segment_ = segment;
  return body;
}

void Planner::store_slice(const Place& to, const View& from, Index number, Steps& steps) {
  const Index bytes = sym::product(*context_, from.shape) * (info(from.dtype).bits / 8);
  copy({part(to, bytes * number), from.dtype, from.shape}, from, steps);
}

// Carried values are written when every output of the iteration has been read.
void Planner::finish_iteration(Steps& body) {
  for (const auto& [to, from] : std::exchange(late_copies_, {})) copy(to, from, body);
}

Index Planner::slice_bytes(const graph::Type& t) const {
  Index n = context_->constant(info(t.dtype).bits / 8);
  for (size_t d = 1; d < t.shape.size(); ++d) n = n * t.shape[d];
  return n;
}

}  // namespace tripod::host
