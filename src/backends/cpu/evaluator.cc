#include "backends/cpu/evaluator.h"

#include <algorithm>
#include <cstring>

#include "graph_opt/fold.h"
#include "loop/expand_math.h"
#include "loop/interpreter.h"
#include "lower/lower.h"

namespace tripod::cpu {

using graph::ValueId;

// Iterations of all blocks; nothing when an extent is not a constant.
static std::optional<int64_t> work_of(const loop::Function& f) {
  int64_t total = 0;
  bool known = true;
  loop::visit(f.body, [&](const loop::Stmt& s) {
    if (s->kind != loop::StmtKind::block) return;
    int64_t n = 1;
    for (const loop::Iter& i : s->iters) {
      known = known && i.extent.is_const();
      if (known) n *= std::max<int64_t>(i.extent.value(), 1);
      if (n > Evaluator::kMostWork) known = false;
    }
    total += n;
  });
  return known ? std::optional(total) : std::nullopt;
}

std::optional<std::vector<graph::ConstAttr>> Evaluator::evaluate(const graph::Graph& g, graph::NodeId n) {
  const graph::Node& node = g.node(n);
  if (auto plain = graph_opt::fold_plain(g, node)) return std::vector{*std::move(plain)};
  if (!lower::lowering_of(node.op)) return std::nullopt;
  graph::Group group;
  group.nodes = {n};
  for (ValueId v : node.operands) {
    if (v == graph::kNoValue || std::find(group.inputs.begin(), group.inputs.end(), v) != group.inputs.end()) continue;
    if (!g.is_constant(v) || info(g.type(v).dtype).bits < 8 || !g.bytes(v).strings.empty()) return std::nullopt;
    group.inputs.push_back(v);
  }
  for (ValueId v : node.results)
    if (info(g.type(v).dtype).bits < 8 || g.type(v).dtype == DType::string) return std::nullopt;
  group.outputs = node.results;
  Numbering sites;
  const lower::Lowered l = lower::lower_group(g, group, sites);
  const auto work = work_of(l.function);
  if (!work || *work > kMostWork || !l.function.dims.empty()) return std::nullopt;

  std::vector<loop::Memory> memory;
  for (ValueId v : l.params) {
    const int64_t count = graph::element_count(g.sym(), g.type(v).shape).value();
    memory.push_back({std::vector<std::byte>(static_cast<size_t>(byte_size(g.type(v).dtype, count)))});
    if (g.is_constant(v)) std::memcpy(memory.back().bytes.data(), g.bytes(v).data, memory.back().bytes.size());
  }
  loop::InterpretOptions options;
  options.check_races = false;
  const auto r = loop::interpret(loop::expand_math(l.function), {}, memory, options);
  // A failing check (an index out of range) is left for the run to report.
  if (!r.violations.empty() || !r.failed_checks.empty()) return std::nullopt;
  std::vector<graph::ConstAttr> results;
  for (size_t i = group.inputs.size(); i < memory.size(); ++i) {
    auto bytes = std::make_shared<std::vector<std::byte>>(std::move(memory[i].bytes));
    graph::ConstAttr a;
    a.data = bytes->data();
    a.size = static_cast<int64_t>(bytes->size());
    a.owner = bytes;
    results.push_back(std::move(a));
  }
  return results;
}

}  // namespace tripod::cpu
