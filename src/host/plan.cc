#include "host/plan.h"

#include <algorithm>

#include "runtime/abi.h"

namespace tripod::host {

using graph::Graph;
using graph::Group;
using graph::kNoValue;
using graph::Node;
using graph::OpKind;
using graph::ValueId;

Program Planner::run() {
  const Graph& g = m_.main();
  context_ = &g.sym();
  for (ValueId v : g.inputs()) {
    const graph::Type& t = g.type(v);
    p_.inputs.push_back({g.value(v).name, t.dtype, t.shape, -1});
  }
  for (size_t i = 0; i < g.outputs().size(); ++i) {
    const graph::Type& t = g.type(g.outputs()[i]);
    p_.outputs.push_back({g.output_names()[i], t.dtype, t.shape, -1});
  }
  for (const Index& s : m_.symbols) p_.symbols.push_back({s, sym::name(s), true});
  for (const Index& s : m_.data_symbols) p_.symbols.push_back({s, sym::name(s), false});
  known_.assign(m_.requirements.size(), false);
  require_known(p_.steps);
  add(p_.steps, Step::segment).number = 0;
  const graph::Groups groups = in_.fuse(g);
  find_viewed_outputs(g, groups);
  plan_graph(g, groups, p_.steps);
  finish_outputs(p_.steps);
  p_.num_segments = num_segments_ + 1;
  p_.sites = in_.sites->texts();
  p_.kernels = kernels_.texts();
  return std::move(p_);
}

void Planner::plan_graph(const Graph& g, const graph::Groups& groups, Steps& steps) {
  for (const Group& group : groups) plan_group(g, group, steps);
}

void Planner::plan_group(const Graph& g, const Group& group, Steps& steps) {
  const Node& n = g.node(group.nodes[0]);
  switch (group.kind) {
    case Group::source: return plan_source(g, n, steps);
    case Group::alias: places_[{&g, n.results[0]}] = place(g, n.operands[0]); return;
    case Group::kernel: return plan_kernel(g, group, steps);
    case Group::runtime: return plan_runtime(g, n, steps);
    case Group::control: break;
  }
  switch (n.op) {
    case OpKind::read_dim: return plan_read_dim(g, n, steps);
    case OpKind::if_: return plan_if(g, n, steps);
    case OpKind::loop: return plan_loop(g, n, steps);
    case OpKind::scan: return plan_scan(g, n, steps);
    default: internal_error(__FILE__, __LINE__, "no plan for " + std::string(graph::info(n.op).text));
  }
}

void Planner::plan_source(const Graph& g, const Node& n, Steps& steps) {
  const ValueId v = n.results[0];
  if (n.op == OpKind::input) {
    const auto& inputs = g.inputs();
    if (!places_.count({&g, v}))
      places_[{&g, v}] = {Place::input, static_cast<int32_t>(std::find(inputs.begin(), inputs.end(), v) - inputs.begin()), 0};
    return;
  }
  // Constants are placed where they are used: a kernel may want them packed.
  if (n.op == OpKind::constant) return;
  const Place p = make_result(g, v, steps);
  Step& s = add(steps, Step::store);
  s.dims = std::get<graph::ExprsAttr>(n.attr).values;
  s.views = {{p, g.type(v).dtype, g.type(v).shape}};
  touch(p);
}

// What a launch reads and writes, then one launch a phase.
void Planner::plan_kernel(const Graph& g, const Group& group, Steps& steps) {
  const GroupKernel k = in_.compile(g, group);
  const int32_t work = add_work(k.work);
  std::vector<Place> places;
  std::vector<int32_t> results;
  for (size_t i = 0; i < k.params.size(); ++i) {
    const ValueId v = k.params[i];
    const bool result = std::find(group.outputs.begin(), group.outputs.end(), v) != group.outputs.end();
    if (result) results.push_back(static_cast<int32_t>(i));
    if (result)
      places.push_back(make_result(g, v, steps));
    else if (g.is_constant(v))
      places.push_back({Place::weight, -1, weights_.place(g.bytes(v), g.type(v), k.buffers[i])});
    else
      places.push_back(place(g, v));
  }
  for (size_t i = k.params.size(); i < k.buffers.size(); ++i) {
    const Index bytes = loop::storage_size(g.sym(), k.buffers[i]) * (info(k.buffers[i]->dtype).bits / 8);
    places.push_back(arena(k.buffers[i]->name, bytes));
  }
  for (const GroupKernel::Phase& phase : k.phases) {
    Step& s = add(steps, Step::launch);
    s.places = places;
    s.dims = k.dims;
    s.code = launch_code(phase.code);
    for (const auto& v : phase.variants) s.variants.push_back(launch_code(v));
    s.site = site(g.node(group.nodes[0]));
    s.work = work;
    for (const Place& p : places) touch(p);
  }
  for (int32_t i : results) note_result(steps.back(), i, g, k.params[i]);
}

void Planner::plan_read_dim(const Graph& g, const Node& n, Steps& steps) {
  const View from = view(g, n.operands[0]);
  Step& s = add(steps, Step::read_dim);
  s.number = symbol(std::get<graph::ExprsAttr>(n.attr).values[0]);
  s.views = {from};
  s.site = site(n);
  p_.symbols[s.number].defined = true;
  touch(from.place);
  places_[{&g, n.results[0]}] = from.place;
  enter_segment(steps);
}

void Planner::finish_outputs(Steps& steps) {
  const Graph& g = m_.main();
  std::vector<size_t> missing, aliased;
  for (size_t i = 0; i < g.outputs().size(); ++i) {
    const auto at = places_.find({&g, g.outputs()[i]});
    const bool done = at != places_.end() && at->second.kind == Place::output && at->second.index == static_cast<int32_t>(i);
    if (!done) (in_.aliased_outputs.count(g.output_names()[i]) ? aliased : missing).push_back(i);
  }
  // Outputs that may lie on an input come last, and an input that is to become one of them is saved first.
  std::map<size_t, View> sources;
  for (size_t i : missing) write_output(i, view(g, g.outputs()[i]), steps);
  for (size_t i : aliased) {
    const View from = view(g, g.outputs()[i]);
    View& source = sources[i] = from;
    if (from.place.kind != Place::input) continue;
    source.place = arena_for(g, g.outputs()[i]);
    copy(source, from, steps);
  }
  for (size_t i : aliased) write_output(i, sources[i], steps);
}

void Planner::write_output(size_t i, const View& from, Steps& steps) {
  const Graph& g = m_.main();
  const ValueId v = g.outputs()[i];
  Step& o = add(steps, Step::output);
  o.number = static_cast<int32_t>(i);
  o.dims = g.type(v).shape;
  Step& s = add(steps, Step::copy);
  s.views = {{{Place::output, static_cast<int32_t>(i), 0}, g.type(v).dtype, g.type(v).shape}, from};
  s.work = add_work(operator_work(g.producer(v), "copy", s.views));
  note_result(s, 0, g, v);
  touch(from.place);
}

// What a violated requirement says, with a place for each number: the sizes it speaks of where all their symbols are
// known, and the symbols of its condition. `numbers` are the values of those places.
std::string Planner::requirement_text(const graph::Module::Requirement& r, std::vector<Index>& numbers) const {
  constexpr size_t kMostText = 240, kMostSymbols = 4;  // the numbers must not fall victim to the message's length
  std::string s = r.what.size() <= kMostText ? r.what : r.what.substr(0, kMostText) + "...";
  std::replace(s.begin(), s.end(), kTripodNumber, '?');
  const auto vars = sym::variables(r.condition);
  const auto add = [&](std::string_view before, Index e) { s += std::string(before) + kTripodNumber, numbers.push_back(e); };
  if (std::all_of(r.sizes.begin(), r.sizes.end(), [&](Index e) { return is_known(e); }))
    for (const Index& e : r.sizes) add(&e == &r.sizes[0] ? ": " : " and ", e);
  std::string_view before = " (";
  for (size_t i = 0; i < std::min(vars.size(), kMostSymbols); ++i) {
    if (std::find(numbers.begin(), numbers.end(), vars[i]) != numbers.end()) continue;
    add(std::string(before) + sym::text(vars[i]) + " is ", vars[i]);
    before = ", ";
  }
  return before == " (" ? s : s + ")";
}

bool Planner::is_known(Index e) const {
  const auto vars = sym::variables(e);
  return std::all_of(vars.begin(), vars.end(), [&](Index v) {
    const Symbol& s = p_.symbols[symbol(v)];
    return s.bound_by_input || s.defined;
  });
}

// Requirements whose symbols are all known by now.
void Planner::require_known(Steps& steps) {
  for (size_t i = 0; i < known_.size(); ++i) {
    const auto& r = m_.requirements[i];
    if (known_[i] || !is_known(r.condition)) continue;
    known_[i] = true;
    Step& s = add(steps, Step::require);
    s.dims = {r.condition};
    s.text = requirement_text(r, s.dims);
    if (!r.origins.empty()) {
      Node origin;
      origin.op = OpKind::identity;
      origin.origins = r.origins;
      s.site = site(origin);
    }
  }
}

// --- parts --------------------------------------------------------------------------------------------------------

Step& Planner::add(Steps& steps, Step::Kind kind) {
  steps.emplace_back();
  steps.back().kind = kind;
  steps.back().id = next_++;
  steps.back().in_segment = segment_;
  return steps.back();
}

LaunchCode Planner::launch_code(const GroupKernel::Phase::Code& c) {
  return {c.features, kernels_.number(c.symbol), c.extent, c.scratch, c.grain, c.geometry, c.narrow, c.narrow ? kernels_.number(c.wide) : -1};
}

Place Planner::place(const Graph& g, ValueId v) const {
  auto it = places_.find({&g, v});
  TRIPOD_CHECK(it != places_.end() || g.is_constant(v), "value " + g.value(v).name + " has no place");
  if (it != places_.end()) return it->second;
  const loop::Buffer plain = loop::make_buffer("c", g.type(v).stored(), g.type(v).shape, loop::Scope::constant);
  return {Place::weight, -1, weights_.place(g.bytes(v), g.type(v), plain)};
}

View Planner::view(const Graph& g, ValueId v) {
  if (v == kNoValue) return absent();
  return {place(g, v), g.type(v).stored(), g.type(v).shape};
}

// Outputs that are views (a reshape, a transpose that moves nothing) of values with memory of their own: the value is
// computed in the output's memory.
void Planner::find_viewed_outputs(const Graph& g, const graph::Groups& groups) {
  std::map<ValueId, ValueId> viewed;
  for (const Group& group : groups) {
    const Node& n = g.node(group.nodes[0]);
    if (group.kind == Group::alias) viewed[n.results[0]] = n.operands[0];
  }
  for (size_t i = 0; i < g.outputs().size(); ++i) {
    ValueId v = g.outputs()[i];
    while (viewed.count(v)) v = viewed[v];
    if (v != g.outputs()[i] && !g.is_output(v) && g.type(v).stored() == g.type(g.outputs()[i]).stored()) viewed_outputs_.try_emplace(v, i);
  }
}

// The output in whose memory v may be computed now.
std::optional<size_t> Planner::output_for(const Graph& g, ValueId v) const {
  if (&g != &m_.main()) return std::nullopt;
  const auto itself = std::find(g.outputs().begin(), g.outputs().end(), v);
  const auto view = viewed_outputs_.find(v);
  if (itself == g.outputs().end() && view == viewed_outputs_.end()) return std::nullopt;
  const size_t i = itself != g.outputs().end() ? static_cast<size_t>(itself - g.outputs().begin()) : view->second;
  if (in_.aliased_outputs.count(g.output_names()[i])) return std::nullopt;
  // A view's dims may be those of a tensor that is only read later.
  for (const Index& d : g.type(g.outputs()[i]).shape)
    for (const Index& s : sym::variables(d))
      if (const Symbol& known = p_.symbols[symbol(s)]; !known.bound_by_input && !known.defined) return std::nullopt;
  return i;
}

Place Planner::make_result(const Graph& g, ValueId v, Steps& steps) {
  Place p;
  if (const auto output = output_for(g, v)) {
    p = {Place::output, static_cast<int32_t>(*output), 0};
    Step& s = add(steps, Step::output);
    s.number = p.index;
    s.dims = g.type(g.outputs()[*output]).shape;
  } else {
    p = arena_for(g, v);
  }
  places_[{&g, v}] = p;
  return p;
}

Place Planner::arena_for(const Graph& g, ValueId v) {
  const graph::Type& t = g.type(v);
  const Index count = graph::element_count(g.sym(), t.shape);
  const int bits = info(t.stored()).bits;
  return arena(g.value(v).name, bits >= 8 ? count * (bits / 8) : sym::ceildiv(count * bits, 8));
}

Place Planner::arena(const std::string& name, Index bytes) {
  p_.buffers.push_back({name, bytes, segment_, next_, next_});
  return {Place::arena, static_cast<int32_t>(p_.buffers.size()) - 1, 0};
}

void Planner::touch(const Place& p) {
  if (p.kind == Place::arena) p_.buffers[p.index].last = std::max(p_.buffers[p.index].last, next_ - 1);
}

void Planner::enter_segment(Steps& steps) {
  require_known(steps);
  add(steps, Step::segment).number = segment_ = ++num_segments_;
}

int Planner::symbol(Index var) const {
  for (size_t i = 0; i < p_.symbols.size(); ++i)
    if (p_.symbols[i].var == var) return static_cast<int>(i);
  internal_error(__FILE__, __LINE__, "symbol " + sym::text(var) + " is not one of the module's");
}

int32_t Planner::site(const Node& n) {
  const std::string text = n.origins.empty() ? std::string(graph::info(n.op).text) : n.origins[0].text();
  return in_.sites->number(text);
}

int32_t Planner::add_work(Work work) {
  p_.works.push_back(std::move(work));
  return static_cast<int32_t>(p_.works.size()) - 1;
}

Work Planner::operator_work(const Node& n, const std::string& name, const std::vector<View>& views) const {
  Work w{name, {}, {}, context_->constant(0)};
  for (const Site& s : n.origins) w.nodes.push_back(s.text());
  for (const View& v : views)
    if (v.place.kind != Place::none) w.bytes = w.bytes + sym::ceildiv(sym::product(*context_, v.shape) * info(v.dtype).bits, 8);
  return w;
}

void Planner::note_result(Step& s, int32_t buffer, const Graph& g, ValueId v) const {
  if (&g != &m_.main()) return;
  const graph::Type& t = g.type(v);
  s.results.push_back({buffer, g.value(v).name, t.dtype, t.shape, t.order, t.stored()});
}

}  // namespace tripod::host
