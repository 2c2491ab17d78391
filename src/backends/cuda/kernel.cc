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
    k.params.insert(k.params.end(), workspace.begin(), workspace.end());
    k.num_outputs += static_cast<int>(workspace.size());
    k.body = s;
    kernels.push_back(std::move(k));
  }
  return kernels;
}

Kernel KernelCompiler::add(const loop::Function& compute_form, std::vector<std::string>* log) {
  Kernel k;
  k.function = loop::expand_math(loop::flatten(schedule(compute_form, c_, log, options_)));
  std::vector<loop::Buffer> workspace;
  const auto kernels = split_kernels(k.function, workspace);
  k.params = k.function.params;
  k.params.insert(k.params.end(), workspace.begin(), workspace.end());
  k.dims = k.function.dims;
  for (const loop::Function& f : kernels) {
    const int n = names_[f.name]++;
    const auto printed = print_kernel(f, "k_" + f.name + (n ? "_" + std::to_string(n) : ""), c_, bounds_);
    for (const CudaKernel& p : printed) {
      sources_[p.symbol] = p.source;
      symbols_.push_back(p.symbol);
    }
    k.launches.push_back({printed[0], printed.size() > 1 ? printed[1].symbol : ""});
  }
  return k;
}

}  // namespace tripod::cuda
