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
  constexpr size_t kMostStatements = 128;  // LLVM takes more than linear time over very long functions
  std::vector<std::vector<Stmt>> groups;
  bool last_parallel = true;
  for (const Stmt& s : body->kind == StmtKind::seq ? body->body : std::vector<Stmt>{body}) {
    const bool p = has_parallel(s);
    if (p || last_parallel || groups.back().size() >= kMostStatements) groups.emplace_back();
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

KernelCompiler::KernelCompiler(sym::Context& c, std::vector<Target> targets)
    : c_(c), targets_(std::move(targets)), canonical_(c) {}

// A new symbol for a name: readable, unique in the model.
std::string KernelCompiler::new_symbol(const std::string& name) {
  const int n = names_[name]++;
  return "k_" + name + (n ? "_" + std::to_string(n) : "");
}

Phase::Code KernelCompiler::emit(const loop::Function& phase, const std::string& symbol, const Target& target) {
  const codegen::KernelInfo info = target.unit->add_kernel(phase, symbol, c_);
  sources_[symbol] = loop::text(phase);
  return {target.cpu.features, info.symbol, info.parallel_extent, info.scratch_bytes, info.grain};
}

Kernel KernelCompiler::add(const loop::Function& compute_form, std::vector<std::string>* log) {
  const Known& known = compile(compute_form);
  if (log) log->insert(log->end(), known.log.begin(), known.log.end());
  Kernel k = known.kernel;
  k.function.origins = compute_form.origins;
  return k;
}

const KernelCompiler::Known& KernelCompiler::compile(const loop::Function& compute_form) {
  const auto [at, is_new] = known_.try_emplace(canonical_.text(compute_form));
  Known& known = at->second;
  if (!is_new) return known;
  Kernel& k = known.kernel;
  k.function = loop::expand_math(loop::flatten(schedule(compute_form, c_, targets_[0].cpu, &known.log)));
  std::vector<loop::Buffer> workspace;
  const auto phases = split_phases(k.function, c_, workspace);
  k.params = k.function.params;
  k.params.insert(k.params.end(), workspace.begin(), workspace.end());
  k.dims = k.function.dims;
  k.num_workspace = static_cast<int64_t>(workspace.size());
  for (const loop::Function& phase : phases) k.phases.push_back({emit(phase, new_symbol(phase.name), targets_[0]), {}});
  for (size_t t = 1; t < targets_.size(); ++t) add_variant(k, compute_form, targets_[t], known.log);
  return known;
}

static bool same_memory(const loop::Buffer& a, const loop::Buffer& b) {
  const loop::Layout &x = a->layout, &y = b->layout;
  if (a->dtype != b->dtype || a->shape != b->shape || x.args.size() != y.args.size() || x.map.size() != y.map.size() || x.extents != y.extents)
    return false;
  sym::Map rename;
  for (size_t i = 0; i < x.args.size(); ++i) rename[x.args[i]] = y.args[i];
  for (size_t i = 0; i < x.map.size(); ++i)
    if (!(sym::substitute(x.map[i], rename) == y.map[i])) return false;
  return true;
}

// A variant takes the same arguments: the same layouts of weights, the same phases, workspace of the same kind (where
// sizes differ the larger one is kept).
void KernelCompiler::add_variant(Kernel& k, const loop::Function& compute_form, const Target& target, std::vector<std::string>& log) {
  const auto refuse = [&](const std::string& why) { log.push_back("variant " + target.cpu.name + ": " + why); };
  loop::Function scheduled = schedule(compute_form, c_, target.cpu, nullptr);
  if (!target.cpu.worth_a_variant(scheduled.rule)) return refuse("rule " + scheduled.rule + " gains nothing from it");
  const loop::Function f = loop::expand_math(loop::flatten(scheduled));
  std::vector<loop::Buffer> workspace;
  const auto phases = split_phases(f, c_, workspace);
  if (phases.size() != k.phases.size() || static_cast<int64_t>(workspace.size()) != k.num_workspace)
    return refuse("it has other phases");
  for (size_t i = 0; i < f.params.size(); ++i)
    if (!same_memory(f.params[i], k.params[i])) return refuse("it wants " + f.params[i]->name + " in another layout");
  for (size_t i = 0; i < workspace.size(); ++i) {
    loop::Buffer& b = k.params[f.params.size() + i];
    if (same_memory(workspace[i], b)) continue;
    const int64_t bits = info(b->dtype).bits;
    if (bits < 8 || info(workspace[i]->dtype).bits < 8) return refuse("its workspace is of another kind");
    const loop::Index bytes = sym::max(loop::storage_size(c_, b) * (bits / 8), loop::storage_size(c_, workspace[i]) * (info(workspace[i]->dtype).bits / 8));
    b = loop::make_buffer(b->name, DType::u8, {bytes}, b->scope);
  }
  for (size_t i = 0; i < phases.size(); ++i)
    k.phases[i].variants.push_back(emit(phases[i], k.phases[i].code.symbol + "." + target.cpu.name, target));
}

}  // namespace tripod::cpu
