// One LLVM module that becomes one object file: kernels from loop functions, and the host program.
//
// Floating point is strict: no contraction, no fast-math flags; fma is an explicit intrinsic. f16 and bf16 live in
// memory and in values as 16-bit integers. Nothing that is emitted calls a library function other than the runtime's
// (tp_*) and memcpy/memset.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loop/ir.h"

namespace llvm {
class LLVMContext;
class Module;
class TargetMachine;
class Function;
}  // namespace llvm

namespace tripod::codegen {

// What to compile for: an LLVM CPU name and feature string ("x86-64-v3", "+avx512f,...").
struct CpuTarget {
  std::string cpu = "x86-64-v3";
  std::string features;
};

// What a kernel needs from its caller.
struct KernelInfo {
  std::string symbol;
  loop::Index parallel_extent;  // iterations of the outermost parallel loop; 1 when there is none
  int64_t grain = 1;
  loop::Index scratch_bytes;    // of each thread
};

class LlvmUnit {
 public:
  LlvmUnit(std::string_view name, const CpuTarget& target);
  ~LlvmUnit();

  // Emits a flattened loop function (loop/flatten.h; math expanded) with the tp_kernel signature of runtime/abi.h.
  // The function's body must be at most one parallel loop (with lets and checks around it).
  KernelInfo add_kernel(const loop::Function& f, const std::string& symbol, sym::Context& context);

  llvm::Module& module();
  llvm::LLVMContext& context();

  std::string ir_text() const;
  void optimise();                    // -O2-like, without unrolling and vectorising: schedules decide those
  std::vector<char> object();         // an ELF relocatable file; consumes the module
  std::string assembly();             // for `inspect`

 private:
  void finish_debug_info();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tripod::codegen
