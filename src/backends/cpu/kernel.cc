#include "backends/cpu/kernel.h"

#include "backends/cpu/rules/rules.h"
#include "loop/expand_math.h"
#include "loop/flatten.h"

namespace tripod::cpu {

using loop::LoopKind;
using loop::Stmt;
using loop::StmtKind;

static bool has_parallel(const Stmt& s) {
  bool found = false;
  loop::visit(s, [&](const Stmt& t) { found = found || (t->kind == StmtKind::loop && t->loop_kind == LoopKind::parallel); });
  return found;
}

std::vector<loop::Function> split_phases(const loop::Function& f, sym::Context&, std::vector<loop::Buffer>& workspace) {
  Stmt body = f.body;
  while (body->kind == StmtKind::alloc && body->buffer->scope == loop::Scope::global) {
    workspace.push_back(body->buffer);
    body = body->body[0];
  }
  std::vector<std::vector<Stmt>> groups;
  bool last_parallel = true;
  for (const Stmt& s : body->kind == StmtKind::seq ? body->body : std::vector<Stmt>{body}) {
    const bool p = has_parallel(s);
    if (p || last_parallel) groups.emplace_back();
    groups.back().push_back(s);
    last_parallel = p;
  }
  std::vector<loop::Function> phases;
  for (auto& g : groups) {
    loop::Function phase = f;
    phase.params.insert(phase.params.end(), workspace.begin(), workspace.end());
    phase.num_outputs += static_cast<int>(workspace.size());
    phase.body = loop::seq(g);
    phases.push_back(std::move(phase));
  }
  return phases;
}

// A new symbol for a name: readable, unique in the model.
std::string KernelCompiler::new_symbol(const std::string& name) {
  const int n = names_[name]++;
  return "k_" + name + (n ? "_" + std::to_string(n) : "");
}

Kernel KernelCompiler::add(const loop::Function& compute_form, std::vector<std::string>* log) {
  Kernel k;
  k.function = loop::expand_math(loop::flatten(schedule(compute_form, c_, target_, log)));
  std::vector<loop::Buffer> workspace;
  const auto phases = split_phases(k.function, c_, workspace);
  k.params = k.function.params;
  k.params.insert(k.params.end(), workspace.begin(), workspace.end());
  k.dims = k.function.dims;
  k.num_workspace = static_cast<int64_t>(workspace.size());
  for (const loop::Function& phase : phases) {
    const std::string symbol = new_symbol(phase.name);
    const codegen::KernelInfo info = unit_.add_kernel(phase, symbol, c_);
    sources_[symbol] = loop::text(phase);
    k.phases.push_back({info.symbol, info.parallel_extent, info.scratch_bytes, info.grain});
  }
  return k;
}

}  // namespace tripod::cpu
