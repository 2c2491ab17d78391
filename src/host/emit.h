// The host program as machine code: emits `tp_the_model` and everything it points to into an LLVM module.
#pragma once

#include <string>
#include <vector>

#include "host/program.h"

namespace llvm {
class Module;
}

namespace tripod::host {

// The device's part of a model (runtime/abi.h: tp_device_part). Kernel names and origins in the order of
// Program::kernels.
struct DeviceImage {
  int32_t arch = 0;
  bool ptx = false;
  std::string bytes;
};
struct DevicePart {
  std::vector<DeviceImage> images;
  std::vector<std::string> origins;
};

struct EmitOptions {
  std::string manifest;            // JSON
  int64_t weights_size = 0;
  std::string external_weights;    // file name, empty: embedded under the symbol tp_weights
  std::string external_header;     // what the external file begins with, after its size field
  uint32_t cpu_features = 0;       // tp_cpu_feature bits
  const DevicePart* device = nullptr;
};

void emit(const Program& p, const EmitOptions& options, llvm::Module& module);

}  // namespace tripod::host
