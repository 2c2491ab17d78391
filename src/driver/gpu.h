// What a compile does differently when its kernels run on a GPU: they are scheduled and printed by backends/cuda, and
// compiled by nvcc into images that the host program carries.
#pragma once

#include <string>
#include <vector>

#include "backends/cuda/kernel.h"
#include "driver/execute.h"
#include "driver/options.h"
#include "host/emit.h"

namespace tripod {

class GpuKernels {
 public:
  explicit GpuKernels(sym::Context& c) : compiler_(c), c_(c) {}

  // Fills e.kernel.function, params and dims, and e.gpu. `log`: why each rule before the one that applied did not.
  // Returns the symbol of the last launch.
  std::string add(KernelEntry& e, std::vector<std::string>* log);

  // All images, and what to name when a kernel of the program fails.
  host::DevicePart part(const host::Program& p, const Options& o) const;

  const std::unordered_map<std::string, std::string>& sources() const { return compiler_.sources(); }  // CUDA C

 private:
  cuda::KernelCompiler compiler_;
  sym::Context& c_;
  std::unordered_map<std::string, std::string> origins_;   // by symbol
};

}  // namespace tripod
