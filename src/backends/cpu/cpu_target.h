// What the CPU back end knows of its target, and what schedule rules may ask.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "codegen/llvm_unit.h"

namespace tripod::cpu {

struct CpuTarget {
  std::string name = "v3";          // v3: AVX2 + FMA + F16C; v4: AVX-512
  uint32_t features = 0;            // tp_cpu_feature bits (runtime/abi.h)
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
  // Registers of sums that a tile may take: there must be room for a row of the other operand and a broadcast.
  int accumulators() const { return vector_registers >= 32 ? 24 : 12; }
  codegen::CpuTarget llvm() const;
  // As a variant beside v3 code: whether kernels of this rule are so much faster that they are worth their size.
  bool worth_a_variant(const std::string& rule) const;
};

CpuTarget cpu_v3();
CpuTarget cpu_v4();

// The targets of --cpu: names from v3, v4, native (what this machine has), separated by commas; several are variants in
// one file, of which the lowest is the floor. The lowest comes first. Throws CompileError.
std::vector<CpuTarget> parse_targets(const std::string& names);

}  // namespace tripod::cpu
