// From a fusion group to CUDA C: schedule by rule, flatten, expand math, one kernel a top-level statement, print.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "backends/cuda/cuda_c.h"
#include "backends/cuda/rules/rules.h"
#include "loop/canonical.h"
#include "loop/ir.h"

namespace tripod::cuda {

// One launch of a group: the kernel, and the one for buffers of 2^31 elements and more where sizes are open.
struct Launch {
  CudaKernel kernel;
  std::string wide;
};

struct Kernel {
  loop::Function function;             // scheduled and flattened, as printed; right for all sizes
  std::vector<loop::Buffer> params;    // function.params, then the workspace, that of variants included
  std::vector<loop::Index> dims;
  // Those of variants (rules/rules.h) too: whatever does not run for the sizes of a call has an empty grid then.
  std::vector<Launch> launches;
};

// One function a top-level statement of a flattened function. Buffers allocated around them in global scope are added to
// `workspace`: all of them have to become parameters of these functions, behind their own.
std::vector<loop::Function> split_kernels(const loop::Function& f, std::vector<loop::Buffer>& workspace);

class KernelCompiler {
 public:
  // `bounds` (may be empty): checks every access, see cuda_c.h.
  explicit KernelCompiler(sym::Context& c, const ScheduleOptions& o = {}, BoundsSite bounds = nullptr)
      : c_(c), options_(o), bounds_(std::move(bounds)), canonical_(c) {}

  // Functions that do the same (loop/canonical.h) share kernels, but where bounds are checked: sites name nodes.
  // `log` (may be null): why each rule before the one that applied did not.
  Kernel add(const loop::Function& compute_form, std::vector<std::string>* log = nullptr);
  const std::unordered_map<std::string, std::string>& sources() const { return sources_; }  // symbol -> CUDA C
  const std::vector<std::string>& symbols() const { return symbols_; }                      // in the order they were made

 private:
  struct Known {
    Kernel kernel;
    std::vector<std::string> log;
  };
  Kernel compile(const loop::Function& compute_form, std::vector<std::string>* log);
  loop::Index add_launches(Kernel& k, const std::vector<loop::Function>& kernels, loop::Index when, loop::Index& none);

  sym::Context& c_;
  ScheduleOptions options_;
  BoundsSite bounds_;
  loop::Canonical canonical_;
  std::unordered_map<std::string, Known> known_;  // by canonical text
  std::unordered_map<std::string, int> names_;
  std::unordered_map<std::string, std::string> sources_;
  std::vector<std::string> symbols_;
};

}  // namespace tripod::cuda
