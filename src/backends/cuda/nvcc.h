// From CUDA C to cubins and PTX: nvcc in child processes, several at once, behind a cache on disk.
#pragma once

#include <string>
#include <vector>

namespace tripod::cuda {

struct Arch {
  int number = 90;          // sm_90a: 90; compute_80 as PTX: 80
  bool ptx = false;
};

struct Image {
  Arch arch;
  std::string bytes;        // ELF of a cubin, or PTX text
};

struct NvccOptions {
  std::vector<Arch> archs;
  std::string cache_folder;    // empty: no cache
  int jobs = 0;                // compilers at once; 0: one a core, fewer where memory is short
  bool line_info = false;
};

// One image an architecture, with all the kernels of `sources` (each the text of one or more kernels without the
// prelude). Throws CompileError with the compiler's message and the kernel's name. The cache key is the text, the
// flags, the architecture and the compiler's version.
std::vector<Image> compile(const std::vector<std::string>& sources, const NvccOptions& options);

}  // namespace tripod::cuda
