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
  if (bounds_) return compile(compute_form, log);
  const auto [at, is_new] = known_.try_emplace(canonical_.text(compute_form));
  Known& known = at->second;
  if (is_new) known.kernel = compile(compute_form, &known.log);
  if (log) log->insert(log->end(), known.log.begin(), known.log.end());
  Kernel k = known.kernel;
  k.function.origins = compute_form.origins;
  return k;
}

Kernel KernelCompiler::compile(const loop::Function& compute_form, std::vector<std::string>* log) {
  const RuleResult scheduled = schedule(compute_form, c_, log, options_);
  const auto prepare = [](const loop::Function& f) { return loop::expand_math(loop::flatten(f)); };
  Kernel k;
  k.function = prepare(scheduled.function);
  k.params = k.function.params;
  k.dims = k.function.dims;

  struct Part {
    loop::Index when;
    std::vector<loop::Function> kernels;
    size_t workspace_end;
  };
  std::vector<Part> parts;
  std::vector<loop::Buffer> workspace;  // of all parts
  const auto split = [&](loop::Index when, const loop::Function& f) {
    auto kernels = split_kernels(f, workspace);
    parts.push_back({when, std::move(kernels), workspace.size()});
  };
  for (const Variant& v : scheduled.variants) split(v.when, prepare(v.function));
  split(c_.constant(1), k.function);

  loop::Index none = c_.constant(1);  // of the parts so far runs
  size_t from = 0;
  for (Part& part : parts) {
    for (loop::Function& f : part.kernels) {
      f.params.insert(f.params.end(), workspace.begin(), workspace.end());
      f.num_outputs += static_cast<int>(workspace.size());
    }
    const loop::Index runs = add_launches(k, part.kernels, part.when, none);
    for (; from < part.workspace_end; ++from) k.params.push_back(runs.is_const(1) ? workspace[from] : only_when(workspace[from], runs));
  }
  return k;
}

// Kernels that run where none of the parts before them does (`none`, which becomes: nor this one) and `when` holds: that
// is the result. A variant has kernels for small sizes only; for others there is the last part, whose condition is 1.
loop::Index KernelCompiler::add_launches(Kernel& k, const std::vector<loop::Function>& kernels, loop::Index when, loop::Index& none) {
  const bool is_variant = !when.is_const(1);
  std::vector<std::vector<CudaKernel>> printed;
  for (const loop::Function& f : kernels) {
    const int n = names_[f.name]++;
    printed.push_back(print_kernel(f, "k_" + f.name + (n ? "_" + std::to_string(n) : ""), c_, bounds_));
    if (!is_variant || printed.back().size() == 1) continue;
    when = sym::logical_and(when, printed.back()[0].narrow);
    printed.back()[0].narrow = {};
    printed.back().resize(1);
  }
  const loop::Index runs = sym::logical_and(none, when);
  none = sym::logical_and(none, sym::logical_not(when));
  for (std::vector<CudaKernel>& forms : printed) {
    for (CudaKernel& p : forms) {
      p.geometry.grid[0] = sym::select(runs, p.geometry.grid[0], c_.constant(0));
      sources_[p.symbol] = p.source;
      symbols_.push_back(p.symbol);
    }
    k.launches.push_back({forms[0], forms.size() > 1 ? forms[1].symbol : ""});
  }
  return runs;
}

}  // namespace tripod::cuda
