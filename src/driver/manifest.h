// The manifest of a model.so: JSON that describe() returns and `tripod inspect` prints.
#pragma once

#include <string>
#include <unordered_map>

#include "driver/options.h"
#include "graph/graph.h"
#include "host/program.h"

namespace tripod {

inline constexpr const char* kToolVersion = "0.1.0";

// `sources`: loop IR of each kernel by its symbol.
std::string make_manifest(const Options& o, const graph::Module& m, const host::Program& p,
                          const std::unordered_map<std::string, std::string>& sources);

}  // namespace tripod
