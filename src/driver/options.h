// Options of a compile; every one of them is on the command line (docs/user-guide.md) and in the manifest.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sym/expr.h"

namespace tripod {

struct Options {
  std::string model;                       // path of the ONNX file
  std::string output = "model.so";
  std::string target = "cpu";              // cpu | cuda
  std::string cpu = "v3,v4";               // v3 | v4 | native, or several: variants in one file
  std::vector<std::string> archs = {"sm_90a", "compute_80"};  // --arch, of target cuda
  std::string precision = "f32";           // f32 | tf32 | f16 | bf16: what contractions multiply and memory holds
  bool exact_math = false;                 // no light forms of functions where results are stored in 16 bits (loop/light_math.h)
  bool debug_kernels = false;              // of target cuda: line information, and every access to memory is checked
  std::string nvcc;                        // its path; empty: on PATH or in /usr/local/cuda/bin
  std::string cache_folder;                // of compiled CUDA C; empty: none
  std::map<std::string, sym::Range> dims;  // --dim N=1..64, --dim N=8
  std::map<std::string, std::vector<int64_t>> shapes;  // --shape x=1,3,224,224
  std::map<std::string, std::string> aliases;           // --alias present=past: output -> input whose memory it may be
  bool external_weights = false;           // --weights=external: a file beside model.so, for the runtime to map
  std::string weights_file;                // its path from the folder of model.so; empty: model.weights
  // Finding faults.
  bool progress = false;                   // says on stderr which phase is at work
  bool time_passes = false;
  std::string print_after;                 // a pass, or "all"
  std::string stop_after;                  // a phase
  int64_t opt_limit = -1;                  // rewrites allowed in simplify; -1: all
  std::string repro;                       // folder for a bundle
  bool verify = false;                     // verifiers after every phase (always on in debug builds)
  bool keep_sources = true;                // loop IR of every kernel in the file, for inspect
};

}  // namespace tripod
