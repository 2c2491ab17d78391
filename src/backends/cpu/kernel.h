// From a fusion group to machine code: lower, schedule by rule, flatten, expand math, split into phases, emit.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "backends/cpu/cpu_target.h"
#include "codegen/llvm_unit.h"
#include "loop/ir.h"

namespace tripod::cpu {

// One launch: a parallel loop, or a serial stretch, of a kernel. All phases take the kernel's arguments.
struct Phase {
  std::string symbol;
  loop::Index extent, scratch;
  int64_t grain = 1;
};

struct Kernel {
  loop::Function function;             // scheduled and flattened, as printed
  std::vector<loop::Buffer> params;    // function.params, then the workspace
  std::vector<loop::Index> dims;
  int64_t num_workspace = 0;           // the last ones of params, which live only during the kernel
  std::vector<Phase> phases;
};

// Prepares functions and collects the code of all kernels.
class KernelCompiler {
 public:
  KernelCompiler(sym::Context& c, const CpuTarget& target, codegen::LlvmUnit& unit) : c_(c), target_(target), unit_(unit) {}

  // `log` (may be null): why each rule before the one that applied did not.
  Kernel add(const loop::Function& compute_form, std::vector<std::string>* log = nullptr);
  const std::unordered_map<std::string, std::string>& sources() const { return sources_; }  // symbol -> loop IR

 private:
  std::string new_symbol(const std::string& name);
  sym::Context& c_;
  CpuTarget target_;
  codegen::LlvmUnit& unit_;
  std::unordered_map<std::string, int> names_;
  std::unordered_map<std::string, std::string> sources_;
};

// The phases of a flattened function: top-level statements, each with at most one parallel loop. Buffers allocated
// around them in global scope become workspace parameters.
std::vector<loop::Function> split_phases(const loop::Function& f, sym::Context& c, std::vector<loop::Buffer>& workspace);

}  // namespace tripod::cpu
