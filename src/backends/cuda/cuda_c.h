// Prints loop functions as CUDA C that a person can read.
//
// The form of a kernel (rules in rules/ produce it, the interpreter in loop/interpreter.h runs it as it stands):
//   grid loops      grid_x, grid_y, grid_z, outermost, each at most once: blocks of threads, independent of each other
//   alloc shared    inside the grid loops: one copy a block of threads
//   alloc reg with layout.thread_dims = n
//                   inside the grid loops, outside the thread loops: every thread has its part. The first n dims are
//                   the extents of the thread loops, always indexed by their variables; the printed array drops them.
//   thread loops    block_x, block_y, block_z (nested in any order), as often as needed one after the other, always of
//                   the same extents in a kernel. What one thread writes another may read behind a sync(barrier).
//   around thread loops only what is the same for all threads: serial and unrolled loops, branches, syncs, tiles
//   alloc reg or local without thread_dims: inside the thread loops, private to the iteration
//   tile(reduce_sum | reduce_max, to, from)  outside the thread loops: `from` is a reg buffer with thread_dims, `to` is
//                   shared; reduces over all threads of the block (warp shuffles, then shared memory), 32 to 1024 in
//                   whole warps: to[m] = op over the threads of from[thread, m], element i with element i + d for
//                   d = 16, 8, 4, 2, 1 among the 32 of a warp, then the same among the warps' results. `to` is
//                   overwritten and may be read behind the next barrier, which has to stand before the tile runs again
//                   Where `to` is a reg buffer with thread_dims, every thread gets the result of its own group of
//                   `count` neighbours (a power of two; 32, its warp, where nothing is said), and no barrier is needed:
//                   to[thread, m] = op over the threads of its group of from[thread, m], by the same halves
//   tile(copy, to, from) with a token, inside thread loops: cp.async of 4, 8 or 16 bytes from global to shared memory,
//                   zeros where its guard is false; sync(commit) closes a group, sync(wait, count) waits until at most
//                   `count` of the thread's groups are open. Other threads see the data behind a barrier after the wait
//   warp loops, tile(copy) into fragments and tile(mma): fragments.h
//   stores and checks outside thread loops, or inside loops over some of the axes only: done by the first thread
// Every buffer starts at a multiple of 16 bytes (an input of the caller that does not has to be copied first): vector
// loops move what lies together and is aligned then as 16, 8 or 4 bytes at once.
// Index arithmetic is 32-bit where every index and every buffer provably fits, otherwise the kernel is printed twice:
// for a launch whose buffers and nests of loops all count to less than 2^31 - 2^20, and with 64-bit indices.
// Grid axes y and z that may exceed 65535 are folded into x: `geometry` has the extents of the launch, not of the loops.
//
// Floating point is strict: compiled with -fmad=false, fma is explicit. f16 and bf16 are conversions to and from f32 in
// loads and stores. Scalar semantics are those of loop/ir.h, bit for bit.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "loop/ir.h"

namespace tripod::cuda {

// What a launch needs. Extents may be symbolic; a grid axis that is not used is 1.
struct Geometry {
  loop::Index grid[3], block[3];
  int64_t shared_bytes = 0;  // of dynamic shared memory (static shared arrays are not counted)
};

struct CudaKernel {
  std::string symbol;
  std::string source;       // the text of one __global__ function
  Geometry geometry;
  loop::Index narrow;       // empty, or the condition over dims under which this kernel may run (32-bit indices);
                            // then the next kernel of the list is the one without condition
};

// With it every element of global memory is checked before it is touched (scalar accesses, and the first element of a
// vector): an index outside its buffer is recorded as an error and becomes 0. It gives the number of a site for the
// messages about a buffer of a kernel.
using BoundsSite = std::function<int32_t(const std::string& symbol, const std::string& buffer)>;

// One kernel, or two (see above). `symbol` is a C identifier; the wide form of two gets "_wide" appended.
// `f` is flattened and its math expanded (loop/flatten.h, loop/expand_math.h).
std::vector<CudaKernel> print_kernel(const loop::Function& f, const std::string& symbol, sym::Context& c,
                                     const BoundsSite& bounds = nullptr);

// The offset of an element is a multiple of n: by its own form, or because it is along every dim (sums that were
// simplified, t*5 - mod(t, 4) for 20*floordiv(t, 4) + 4*mod(t, 4), do not show it). `known` (may be empty) says what else is a multiple of n.
bool is_multiple(sym::Context& c, const loop::Buffer& b, const std::vector<loop::Index>& indices, int64_t n,
                 const std::function<bool(loop::Index)>& known = nullptr);

// What stands in front of the kernels of a file: a few device helpers, no include (prelude.cc).
std::string prelude();

}  // namespace tripod::cuda
