#include "driver/gpu.h"

#include "backends/cuda/nvcc.h"

namespace tripod {

static host::GroupKernel::Phase::Code as_code(const cuda::Launch& l, sym::Context& c) {
  host::GroupKernel::Phase::Code code;
  code.symbol = l.kernel.symbol;
  code.extent = code.scratch = c.constant(0);
  for (const auto& axes : {l.kernel.geometry.grid, l.kernel.geometry.block})
    for (int i = 0; i < 3; ++i) code.geometry.push_back(axes[i]);
  code.geometry.push_back(c.constant(l.kernel.geometry.shared_bytes));
  code.narrow = l.kernel.narrow;
  code.wide = l.wide;
  return code;
}

std::string GpuKernels::add(KernelEntry& e, std::vector<std::string>* log) {
  cuda::Kernel k = compiler_.add(e.lowered.function, log);
  const std::string origin = k.function.origins.empty() ? k.function.name : k.function.origins[0].text();
  std::string last;
  for (const cuda::Launch& l : k.launches) {
    e.gpu.push_back({as_code(l, c_), {}});
    origins_[last = l.kernel.symbol] = origin;
    if (!l.wide.empty()) origins_[l.wide] = origin;
  }
  e.kernel.function = std::move(k.function);
  e.kernel.params = std::move(k.params);
  e.kernel.dims = std::move(k.dims);
  e.kernel.num_workspace = static_cast<int64_t>(e.kernel.params.size() - e.kernel.function.params.size());
  return last;
}

host::DevicePart GpuKernels::part(const host::Program& p, const Options& o) const {
  cuda::NvccOptions nvcc;
  nvcc.nvcc = o.nvcc;
  nvcc.cache_folder = o.cache_folder;
  for (const std::string& a : o.archs) {
    if (a == "sm_90a") nvcc.archs.push_back({90, false});
    else if (a == "compute_80") nvcc.archs.push_back({80, true});
    else throw CompileError({}, "--arch " + a + ": sm_90a and compute_80 are built so far");
  }
  std::vector<std::string> texts;
  host::DevicePart part;
  for (const std::string& symbol : p.kernels) {
    texts.push_back(sources().at(symbol));
    part.origins.push_back(origins_.at(symbol));
  }
  for (cuda::Image& i : cuda::compile(texts, nvcc)) part.images.push_back({i.arch.number, i.arch.ptx, std::move(i.bytes)});
  return part;
}

}  // namespace tripod
