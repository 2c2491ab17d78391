// The host program as machine code: emits `tp_the_model` and everything it points to into an LLVM module.
#pragma once

#include <string>

#include "host/program.h"

namespace llvm {
class Module;
}

namespace tripod::host {

struct EmitOptions {
  std::string manifest;            // JSON
  int64_t weights_size = 0;
  std::string external_weights;    // file name, empty: embedded under the symbol tp_weights
  std::string external_header;     // what the external file begins with, after its size field
  uint32_t cpu_features = 0;       // tp_cpu_feature bits
};

void emit(const Program& p, const EmitOptions& options, llvm::Module& module);

}  // namespace tripod::host
