#include "backends/cuda/kernel.h"

#include "backends/cuda/rules/rules.h"
#include "loop/expand_math.h"
#include "loop/flatten.h"

namespace tripod::cuda {

using loop::Stmt;
using loop::StmtKind;

std::vector<loop::Function> split_kernels(const loop::Function& f, std::vector<loop::Buffer>& workspace) {
  Stmt body = f.body;
  while (body->kind == StmtKind::alloc && body->buffer->scope == loop::Scope::global) {
    workspace.push_back(body->buffer);
    body = body->body[0];
  }
  std::vector<loop::Function> kernels;
  for (const Stmt& s : body->kind == StmtKind::seq ? body->body : std::vector<Stmt>{body}) {
    loop::Function k = f;
    k.body = s;
    kernels.push_back(std::move(k));
  }
  return kernels;
}

// The same memory where `when` holds, else none.
static loop::Buffer only_when(const loop::Buffer& b, loop::Index when) {
  loop::Index elements = loop::storage_size(when.context(), b);
  return loop::make_buffer(b->name, b->dtype, {sym::select(when, elements, when.context().constant(0))}, b->scope);
}

Kernel KernelCompiler::add(const loop::Function& compute_form, std::vector<std::string>* log) {
  const RuleResult scheduled = schedule(compute_form, c_, log, options_);
  std::vector<Variant> all;
  loop::Index none = c_.constant(1);  // no variant so far
  const auto prepare = [](const loop::Function& f) { return loop::expand_math(loop::flatten(f)); };
  for (const Variant& v : scheduled.variants) {
    all.push_back({sym::logical_and(none, v.when), prepare(v.function)});
    none = sym::logical_and(none, sym::logical_not(v.when));
  }
  all.push_back({none, prepare(scheduled.function)});

  Kernel k;
  k.function = all.back().function;
  k.params = k.function.params;
  k.dims = k.function.dims;
  std::vector<loop::Buffer> workspace;  // of all
  std::vector<std::pair<loop::Index, std::vector<loop::Function>>> kernels;
  for (const Variant& v : all) {
    const size_t before = workspace.size();
    kernels.emplace_back(v.when, split_kernels(v.function, workspace));
    for (size_t i = before; i < workspace.size(); ++i)
      k.params.push_back(v.when.is_const(1) ? workspace[i] : only_when(workspace[i], v.when));
  }
  for (auto& [when, functions] : kernels)
    for (loop::Function& f : functions) {
      f.params.insert(f.params.end(), workspace.begin(), workspace.end());
      f.num_outputs += static_cast<int>(workspace.size());
      add_launch(k, f, when);
    }
  return k;
}

void KernelCompiler::add_launch(Kernel& k, const loop::Function& f, loop::Index when) {
  const int n = names_[f.name]++;
  auto printed = print_kernel(f, "k_" + f.name + (n ? "_" + std::to_string(n) : ""), c_, bounds_);
  for (CudaKernel& p : printed) {
    p.geometry.grid[0] = sym::select(when, p.geometry.grid[0], c_.constant(0));
    sources_[p.symbol] = p.source;
    symbols_.push_back(p.symbol);
  }
  k.launches.push_back({printed[0], printed.size() > 1 ? printed[1].symbol : ""});
}

}  // namespace tripod::cuda
