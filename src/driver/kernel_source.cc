#include "driver/kernel_source.h"

#include "backends/cpu/cpu_target.h"
#include "base/diagnostic.h"
#include "codegen/llvm_unit.h"
#include "loop/ir.h"

namespace tripod {

std::string kernel_source(const std::string& loop_text, const std::string& symbol, const std::string& target,
                          const std::string& form) {
  if (form == "loop") return loop_text;
  sym::Context c;
  const loop::Function f = loop::parse(c, loop_text);
  codegen::LlvmUnit unit(symbol, (target == "v4" ? cpu::cpu_v4() : cpu::cpu_v3()).llvm());
  unit.add_kernel(f, symbol, c);
  if (form == "llvm") return unit.ir_text();
  unit.optimise();
  if (form == "optimised") return unit.ir_text();
  if (form == "asm") return unit.assembly();
  throw CompileError({}, "no form \"" + form + "\"", "known: loop, llvm, optimised, asm");
}

}  // namespace tripod
