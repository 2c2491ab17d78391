#include "backends/cpu/cpu_target.h"

namespace tripod::cpu {

CpuTarget cpu_v3() { return {}; }

CpuTarget cpu_v4() {
  CpuTarget t;
  t.name = "v4";
  t.vector_bytes = 64;
  t.vector_registers = 32;
  t.l2_bytes = 1024 * 1024;
  return t;
}

codegen::CpuTarget CpuTarget::llvm() const {
  return name == "v4" ? codegen::CpuTarget{"x86-64-v4", "-prefer-256-bit"} : codegen::CpuTarget{"x86-64-v3", ""};
}

}  // namespace tripod::cpu
