// From CUDA C to cubins and PTX: nvcc in child processes, several at once, behind a cache on disk.
#pragma once

#include <string>
#include <vector>

namespace tripod::cuda {

struct Arch {
  int number = 90;          // sm_90a: 90; compute_80 as PTX: 80
  bool ptx = false;
};

// The kernels lie in several files, so that compilers run side by side: each architecture has an image a part, and a
// kernel is in the same part for all of them. The runtime looks for a kernel in all images of its architecture.
struct Image {
  Arch arch;
  int part = 0;
  std::string bytes;        // ELF of a cubin, or PTX text
};

struct NvccOptions {
  std::string nvcc;            // path of the compiler; empty: the one on PATH, or in /usr/local/cuda/bin
  std::vector<Arch> archs;
  std::string cache_folder;    // empty: no cache. Several processes may share it
  int jobs = 0;                // compilers at once; 0: one a core, fewer where memory is short
  bool line_info = false;
};

// All kernels of `sources` (each the text of one or more kernels without the prelude; equal texts are compiled once).
// Throws CompileError with the compiler's message, the kernel's name and its ONNX nodes. The cache key is the text, the
// flags, the architecture and the compiler's version. The images depend on the sources and the compiler only, not on
// `jobs` or on what the cache holds.
std::vector<Image> compile(const std::vector<std::string>& sources, const NvccOptions& options);

}  // namespace tripod::cuda
