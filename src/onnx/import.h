// ONNX -> graph::Module: the public side of src/onnx.
//
// The importer takes IR versions 3 to 14 and opsets 6 to 28. It is given untrusted files: whatever is wrong with one
// ends as diagnostics, all of them at once, each naming the node (index, op type, name). Nothing is executed and no
// file outside of the model's folder is opened.
//
// What the module looks like afterwards:
//  - inputs are the graph inputs that are not initializers, in order. An initializer that is also listed as an input
//    (a default that a caller could override, IR >= 4; required by IR 3) is a constant here.
//  - dims: a dim_param is one symbol for the whole model; an unnamed dim (none, or -1 as Paddle writes it) gets the
//    name INPUT_dAXIS. The range of a symbol is 0 .. 2^31-1 unless ImportOptions::dims says otherwise.
//  - constants share the bytes of the protobuf, which stays alive with them, or of the mapped external file.
//  - functions of the model are expanded; an If whose condition is known is replaced by the branch taken.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "graph/graph.h"

namespace tripod::importer {

struct ImportOptions {
  // Ranges of dims by name (--dim N=1..64); lo == hi makes it a constant.
  std::map<std::string, sym::Range> dims;
  // Dims of inputs by name (--shape x=1,3,224,224); -1 leaves a dim as it is.
  std::map<std::string, std::vector<int64_t>> shapes;
  // Where an If has a condition that depends on dims only, is not decidable, and has branches of different rank, the
  // program is specialised: decisions[k] is the outcome taken for the k-th such If (in the order of import) and
  // becomes a requirement of the module. Where one is missing and only one outcome leads to a legal model, that is
  // taken. Otherwise it is an error, or, with `specialise`, ImportResult::needs_decision: the caller imports again
  // with both outcomes and compiles every variant.
  std::vector<bool> decisions;
  bool specialise = false;
  // Evaluates small constant expressions as they are imported (may be null): sizes that an exporter computes in
  // floating point out of constants are then constants too.
  graph::Evaluator* evaluator = nullptr;
};

struct ImportResult {
  std::unique_ptr<graph::Module> module;       // null when there were errors
  std::vector<std::string> decisions;          // the conditions met, as text; the last one may be open
  bool needs_decision = false;
};

// From a file; external data is looked for in its folder.
ImportResult import_file(const std::string& path, const ImportOptions& options, Diagnostics& diagnostics);
// From memory. `folder` is where external data lies; empty: there is none.
ImportResult import_bytes(std::span<const std::byte> bytes, const std::string& folder, const ImportOptions& options,
                          Diagnostics& diagnostics);

// The older, shorter way to say it.
std::unique_ptr<graph::Module> import_model(const std::string& path, const ImportOptions& options,
                                            Diagnostics& diagnostics);

}  // namespace tripod::importer
