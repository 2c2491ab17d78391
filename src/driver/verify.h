// Is the compiled model right, and if not, who made it wrong?
//
// verify() compares a compiled model, value by value, with a reference: ONNX Runtime where Python has it, the graph
// interpreter otherwise. A value can be compared when it leaves a kernel and still has its ONNX name. With `bisect` the
// phases of the compiler are then executed one by one (driver/execute.h) up to the first whose result differs; where
// that is simplify, the number of rewrites is halved down to the first wrong one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "driver/compare.h"
#include "driver/options.h"
#include "driver/pipeline.h"

namespace tripod {

struct VerifyOptions {
  Options compile;                      // output is not used
  std::string input_dir;                // empty: random inputs
  std::map<std::string, int64_t> dims;  // of random inputs
  uint64_t seed = 0;
  std::string python = "python3";
  std::string reference = "auto";  // auto | onnxruntime | interpreter
  double tolerance = 0;            // of the range; 0: that of the precision (1e-5, f16 and tf32 2e-2, bf16 1e-1)
  int threads = 0;
  bool bisect = false;
  int64_t work = 5'000'000;  // iterations that may be interpreted in one phase
};

struct VerifyRow {
  std::string value;
  std::vector<std::string> nodes;  // of the kernel that made it
  std::string kernel;              // its symbol, or the operator
  std::string type;                // f32[1, 64]
  bool output = false;
  bool over = false;  // its bound
  Difference difference;
};

struct PhaseResult {
  std::string phase;
  bool good = true;
  std::string value, node;  // the first that differs
  Difference difference;
  size_t compared = 0, taken = 0;       // values; `taken` from the reference instead of being interpreted
  std::vector<std::string> violations;  // out of bounds, races, ...
  std::string stopped;                  // why it could not be run to its end
};

struct VerifyReport {
  std::string reference;        // "ONNX Runtime", "the graph interpreter"
  std::string note;             // why not the other
  double bound = 0;             // the widest of the outputs'
  std::vector<VerifyRow> rows;  // worst first
  bool good = true;             // every output is within its bound
  std::vector<PhaseResult> phases;
  std::string first_phase;  // that differs; empty: none, or not asked
  std::string culprit;      // the node or kernel there
  int64_t rewrite = 0;      // simplify: number of the wrong rewrite, and what it is
  std::string rewrite_text;
};

// `hooks` are for tests, which spoil a phase.
VerifyReport verify(const VerifyOptions& options, const CompileHooks& hooks = {});

}  // namespace tripod
