// What the CPU back end knows of its target, and what schedule rules may ask.
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "codegen/llvm_unit.h"

namespace tripod::cpu {

struct CpuTarget {
  std::string name = "v3";          // v3: AVX2 + FMA + F16C; v4: AVX-512
  int vector_bytes = 32;
  int vector_registers = 16;
  int64_t l1_bytes = 32 * 1024;     // data cache of a core
  int64_t l2_bytes = 512 * 1024;

  // Lanes of one operation on t. Two registers' worth: enough parallel work to hide latency, and the unit in which
  // weights are packed for every instruction set.
  int lanes(DType) const { return 16; }
  // The contraction micro-kernel's tile: rows x columns of accumulators that fit the registers with room for one
  // column vector and one broadcast.
  int tile_rows() const { return vector_registers >= 32 ? 12 : 6; }
  int tile_columns() const { return 16; }
  codegen::CpuTarget llvm() const;
};

CpuTarget cpu_v3();
CpuTarget cpu_v4();

}  // namespace tripod::cpu
