// What makes the kernels of a target, as the pipeline sees it. Adding a target is a class in backends.cc and its line in
// make_backend(); whatever differs between targets is asked here, not tested for in the pipeline.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/numbering.h"
#include "driver/execute.h"
#include "driver/options.h"
#include "driver/units.h"
#include "graph_opt/layout.h"
#include "host/emit.h"

namespace tripod {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual graph_opt::LayoutPreferences layouts() const = 0;
  // From compute form to code: fills e.kernel, and e.gpu where it launches on a GPU. `log`: why each rule before the one
  // that applied did not. Returns the symbol of the last launch, "" where there is none.
  virtual std::string add(KernelEntry& e, std::vector<std::string>* log) = 0;
  // The kernel that the back end writes itself for a group of one node, which may be one for a runtime operator; its
  // function has the name of a rule. Nothing: the group is lowered and scheduled, or stays with the run time.
  virtual std::optional<lower::Lowered> write(const graph::Graph&, const graph::Group&, Numbering& /*sites*/) { return std::nullopt; }
  virtual const std::unordered_map<std::string, std::string>& sources() const = 0;  // of kernels, by symbol, to be read
  // Moves what the program's kernels touch into the device's memory, and compiles for it. Nothing: kernels are host code.
  virtual std::optional<host::DevicePart> device_part(host::Program&) { return std::nullopt; }
};

// Throws CompileError for options that the target does not have. `units` and `targets` belong together.
// `sites`: texts of places for error messages, which kernels name by number; it may grow.
std::unique_ptr<Backend> make_backend(const Options& o, sym::Context& c, Units& units, const std::vector<cpu::CpuTarget>& targets,
                                      Numbering& sites);
// The same check without a compile.
void check_options(const Options& o);

}  // namespace tripod
