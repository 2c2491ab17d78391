#include "driver/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "graph_opt/precision.h"

namespace tripod {
namespace {

class Explainer {
 public:
  Explainer(const host::Program& p, const std::map<std::string, std::vector<std::string>>& refused, const graph::Graph& main)
      : p_(p), refused_(refused) {
    for (const graph::NodeId n : main.order())
      for (const graph::ValueId v : main.node(n).results) {
        ops_[main.value(v).name] = main.node(n).op;
        narrow_ = narrow_ || main.type(v).storage != DType::none;
      }
  }

  void steps(const host::Steps& steps) {
    for (const host::Step& s : steps) {
      step(s);
      for (const host::Steps& b : s.body) this->steps(b);
    }
  }

  void step(const host::Step& s) {
    if (s.work < 0) return;
    const auto [at, is_new] = by_work_.try_emplace(s.work, all.size());
    if (is_new) all.emplace_back();
    const host::Work& w = p_.works[static_cast<size_t>(s.work)];
    Explanation& e = all[at->second];
    e.nodes = w.nodes;
    if (s.kind == host::Step::launch) {
      // The last launch of a group names it.
      e.who = "kernel " + p_.kernels[static_cast<size_t>(s.code.kernel)];
      e.why = "rule " + w.rule;
      if (const auto r = refused_.find(p_.kernels[static_cast<size_t>(s.code.kernel)]); r != refused_.end())
        e.refused = r->second;
    } else {
      e.who = s.kind == host::Step::copy ? "a copy" : "runtime operator " + s.symbol;
      e.why = s.kind == host::Step::copy ? "an output that is an input, a constant, a view, or wanted twice"
                                         : "its algorithm is not a loop nest";
    }
    if (narrow_)
      for (const host::Result& r : s.results) storage(r, e);
    if (w.flops) e.flops = sym::text(w.flops);
    if (w.bytes) e.bytes = sym::text(w.bytes);
    if (w.flops && w.bytes && w.flops.is_const() && w.bytes.is_const())
      e.least_us = 1e6 * std::max(static_cast<double>(w.flops.value()) / kModelFlops,
                                  static_cast<double>(w.bytes.value()) / kModelBandwidth);
    seen_.insert(w.nodes.begin(), w.nodes.end());
  }

  void no_code(const std::string& why, const std::vector<std::string>& nodes) {
    Explanation e;
    e.who = "no code", e.why = why;
    for (const std::string& n : nodes)
      if (seen_.insert(n).second) e.nodes.push_back(n);
    if (!e.nodes.empty()) all.push_back(std::move(e));
  }

  std::vector<Explanation> all;

 private:
  void storage(const host::Result& r, Explanation& e) {
    const auto made = ops_.find(r.value);
    const std::string why = made == ops_.end() ? "" : graph_opt::why_exact(made->second);
    if (r.stored != r.dtype)
      e.notes.push_back("stores " + r.value + " as " + std::string(name(r.stored)));
    else if (r.dtype == DType::f32)
      e.notes.push_back("stores " + r.value + " as f32: " + (why.empty() ? "it is an output, or who reads it needs it exact" : why));
  }

  const host::Program& p_;
  const std::map<std::string, std::vector<std::string>>& refused_;
  std::map<std::string, graph::OpKind> ops_;  // that make the main graph's values
  bool narrow_ = false;                       // some value is stored narrower
  std::map<int32_t, size_t> by_work_;
  std::set<std::string> seen_;
};

std::vector<std::string> nodes_of(const graph::Module& m, const std::vector<graph::Groups>& groups,
                                  graph::Group::Kind kind) {
  std::vector<std::string> nodes;
  for (size_t i = 0; i < groups.size(); ++i)
    for (const graph::Group& g : groups[i])
      if (g.kind == kind)
        for (const graph::NodeId n : g.nodes)
          for (const Site& s : m.graph(static_cast<int32_t>(i)).node(n).origins) nodes.push_back(s.text());
  return nodes;
}

}  // namespace

std::vector<std::string> node_names(const graph::Module& m) {
  std::vector<std::string> names;
  for (int32_t i = 0; i < m.num_graphs(); ++i)
    for (const graph::NodeId n : m.graph(i).order())
      for (const Site& s : m.graph(i).node(n).origins) names.push_back(s.text());
  return names;
}

std::vector<Explanation> explain(const host::Program& program,
                                 const std::map<std::string, std::vector<std::string>>& refused, const graph::Module& m,
                                 const std::vector<graph::Groups>& groups, const std::vector<std::string>& all_nodes) {
  Explainer e(program, refused, m.main());
  e.steps(program.steps);
  e.no_code("the host program's control flow", nodes_of(m, groups, graph::Group::control));
  e.no_code("another view of the same memory", nodes_of(m, groups, graph::Group::alias));
  e.no_code("computed from the dims, or a constant", nodes_of(m, groups, graph::Group::source));
  e.no_code("folded, or not needed", all_nodes);
  return std::move(e.all);
}

std::string text(const Explanation& e) {
  std::string s = fmt::format("{}  {}\n", e.who, e.why);
  for (const std::string& n : e.nodes) s += "    " + n + "\n";
  for (const std::string& n : e.notes) s += "    " + n + "\n";
  for (const std::string& r : e.refused) s += "    not " + r + "\n";
  if (!e.bytes.empty()) s += fmt::format("    cost: {} flop, {} bytes", e.flops.empty() ? "?" : e.flops, e.bytes);
  if (e.least_us > 0)
    s += fmt::format("; at least {:.3g} us on one core of {:g} GFLOP/s and {:g} GB/s", e.least_us, kModelFlops * 1e-9,
                     kModelBandwidth * 1e-9);
  return s + (e.bytes.empty() ? "" : "\n");
}

}  // namespace tripod
