// One kernel of a model.so in the forms it had on its way to machine code, made again from its loop IR in the manifest.
#pragma once

#include <string>

namespace tripod {

// `form`: loop, llvm (before optimisation), optimised, asm. `target` is the manifest's "cpu". Throws CompileError.
std::string kernel_source(const std::string& loop_text, const std::string& symbol, const std::string& target,
                          const std::string& form);

}  // namespace tripod
