// From an ONNX file to a model.so.
#pragma once

#include <string>

#include "driver/options.h"

namespace tripod {

struct CompileReport {
  std::string timings;       // one line a phase
  std::string manifest;      // JSON
  std::string explanation;   // per kernel: its ONNX nodes, its rule, and why the rules before did not apply
};

// Compiles options.model to options.output. Throws CompileError (the model or the options are at fault), Stopped
// (--stop-after), or InternalError.
CompileReport compile(const Options& options);

}  // namespace tripod
