// From an ONNX file to a model.so.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "driver/execute.h"
#include "driver/explain.h"
#include "driver/options.h"
#include "graph_opt/simplify.h"

namespace tripod {

struct CompileReport {
  std::string timings;       // one line a phase
  std::vector<std::pair<std::string, double>> seconds;   // the same as numbers
  std::string manifest;      // JSON
  std::vector<Explanation> explanation;
};

// What there is after a phase. Phases, in order: import, simplify, layout, lower, schedule.
struct PhaseView {
  std::string phase;
  graph::Module* module = nullptr;
  std::vector<graph::Groups>* groups = nullptr;        // of each graph, from layout on
  std::vector<KernelEntry>* kernels = nullptr;         // from lower on; scheduled after schedule
  graph_opt::SimplifyResult simplified;
};

// For tools that look at the phases, and tests that spoil them.
struct CompileHooks {
  std::function<void(PhaseView&)> after_phase;
  std::vector<graph_opt::SimplifyOptions::ExtraPass> extra_passes;
};

// Compiles options.model to options.output. Throws CompileError (the model or the options are at fault), Stopped
// (--stop-after), or InternalError.
CompileReport compile(const Options& options, const CompileHooks& hooks = {});

}  // namespace tripod
