// A bundle: a folder with everything that a compile depends on and what it got to, so that a fault can be looked at
// elsewhere (--repro; a crash or internal error makes one by itself, tools/crash.h):
//   about.txt          the tool's version and the command
//   replay.sh          the same command on the files of the bundle; TRIPOD names the compiler, default `tripod`
//   model.onnx         and its external data; or the file of `tripod opt`
//   inputs/            the files of --input-dir
//   1-import.graph ... IR after each phase reached, for `tripod opt`; kernels in lower/ and schedule/
//   constants/HASH     what the graphs' constants hold
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace tripod {

// Written as the compile goes, so that a crash leaves what came before it.
class PhaseDumper {
 public:
  explicit PhaseDumper(std::string folder) : folder_(std::move(folder)) {}
  void dump_graph(const std::string& phase, const graph::Module& m);
  // Text of any other phase; each call for "lower" and "schedule" is one kernel.
  void dump_text(const std::string& phase, const std::string& text);

 private:
  void dump_constants(const graph::Module& m);
  std::string folder_;
  int graphs_ = 0;
  std::map<std::string, int> kernels_;
  std::set<std::string> written_;
  int64_t bytes_ = 0;  // of constants
};

// Starts a bundle: the folder, about.txt, replay.sh and copies of the files that the command reads. `arguments` are the
// command's, without the tool's name; `model` is the one among them that is the model. Throws CompileError.
void start_bundle(const std::string& folder, const std::vector<std::string>& arguments, const std::string& model);

// Constants of a graph's text, from the folder `constants` beside it.
std::function<graph::ConstAttr(std::string_view)> constants_beside(const std::string& file);

}  // namespace tripod
