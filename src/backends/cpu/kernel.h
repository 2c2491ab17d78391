// From a fusion group to machine code: schedule by rule, flatten, expand math, split into phases, emit; once for each
// instruction set of the file. Groups that do the same share their kernel.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "backends/cpu/cpu_target.h"
#include "codegen/llvm_unit.h"
#include "loop/canonical.h"
#include "loop/ir.h"

namespace tripod::cpu {

// One launch: a parallel loop, or a serial stretch, of a kernel. All phases take the kernel's arguments.
struct Phase {
  struct Code {
    uint32_t features = 0;             // what a CPU must have beyond the file's floor (runtime/abi.h)
    std::string symbol;
    loop::Index extent, scratch;
    int64_t grain = 1;
  };
  Code code;                           // runs on every CPU that the file accepts
  std::vector<Code> variants;          // better ones, the best first
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
  // One instruction set of the file, and the module that its code goes to.
  struct Target {
    CpuTarget cpu;
    codegen::LlvmUnit* unit;
  };
  // The first target is the file's floor; the others are variants beside it, in the order of preference.
  KernelCompiler(sym::Context& c, std::vector<Target> targets);

  // `log` (may be null): why each rule before the one that applied did not, and why there is no variant.
  Kernel add(const loop::Function& compute_form, std::vector<std::string>* log = nullptr);
  const std::unordered_map<std::string, std::string>& sources() const { return sources_; }  // symbol -> loop IR

 private:
  struct Known {
    Kernel kernel;
    std::vector<std::string> log;
  };
  const Known& compile(const loop::Function& compute_form);
  void add_variant(Kernel& k, const loop::Function& compute_form, const Target& target, std::vector<std::string>& log);
  std::string new_symbol(const std::string& name);
  Phase::Code emit(const loop::Function& phase, const std::string& symbol, const Target& target);

  sym::Context& c_;
  std::vector<Target> targets_;
  loop::Canonical canonical_;
  std::unordered_map<std::string, Known> known_;   // by canonical text
  std::unordered_map<std::string, int> names_;
  std::unordered_map<std::string, std::string> sources_;
};

// The phases of a flattened function: top-level statements, each with at most one parallel loop. Buffers allocated
// around them in global scope become workspace parameters.
std::vector<loop::Function> split_phases(const loop::Function& f, sym::Context& c, std::vector<loop::Buffer>& workspace);

}  // namespace tripod::cpu
