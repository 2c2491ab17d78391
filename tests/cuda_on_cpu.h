// Runs generated CUDA C kernels on the CPU: what a generated file uses of CUDA, in plain C++. Include it in front of the
// prelude and the kernels, in one file; the compiler is g++ -std=c++17.
//
// The threads of a block are fibers (ucontext) that give way at barriers and shuffles only, in the order of their
// numbers; blocks run one after the other. A barrier that not all threads reach, and dynamic shared memory beyond what
// the launch asked for, end the program with a message. Under AddressSanitizer accesses outside global buffers (each its
// own heap block) and outside shared and local arrays are found.
#pragma once

#include <ucontext.h>

#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#define TRIPOD_CUDA_ON_CPU 1
#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __shared__ static  // blocks run one after the other
#define __align__(n) __attribute__((aligned(n)))

struct Dim3 { unsigned x, y, z; };
inline Dim3 threadIdx, blockIdx, blockDim, gridDim;
alignas(16) inline unsigned char tp_shared_memory[227 * 1024];
#define tp_shared tp_shared_memory

namespace cuda_on_cpu {

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "cuda_on_cpu: %s\n", what);
  std::exit(3);
}

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool done = false;
  int waits = 0;  // what it stopped at: 0 nothing, 1 barrier, 2 shuffle
  // Asynchronous copies that have not happened yet, by group; the last group is not committed.
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
    bool inside;
  };
  std::vector<std::vector<Copy>> copies{1};
};

struct Machine {
  static constexpr size_t kStack = 256 * 1024;
  std::vector<Fiber> fibers;
  std::function<void()> kernel;
  ucontext_t main;
  size_t current = 0;
  uint64_t exchange[1024];          // what each thread offers in a shuffle
  float operands[2][1024][8];       // and in an mma
  void* fake = nullptr;
  const void* main_bottom = nullptr;
  size_t main_size = 0;

  void number(size_t t) {
    threadIdx = {static_cast<unsigned>(t % blockDim.x), static_cast<unsigned>(t / blockDim.x % blockDim.y),
                 static_cast<unsigned>(t / blockDim.x / blockDim.y)};
  }
  void enter(Fiber& f) {
    (void)f;
#if defined(__SANITIZE_ADDRESS__)
    void* mine = nullptr;
    __sanitizer_start_switch_fiber(&mine, f.stack.get(), kStack);
    swapcontext(&main, &f.context);
    __sanitizer_finish_switch_fiber(mine, nullptr, nullptr);
#else
    swapcontext(&main, &f.context);
#endif
  }
  void leave(bool for_good) {
    (void)for_good;
    Fiber& f = fibers[current];
#if defined(__SANITIZE_ADDRESS__)
    void* mine = nullptr;
    __sanitizer_start_switch_fiber(for_good ? nullptr : &mine, main_bottom, main_size);
    swapcontext(&f.context, &main);
    __sanitizer_finish_switch_fiber(mine, &main_bottom, &main_size);
#else
    swapcontext(&f.context, &main);
#endif
  }
  void yield(int why) {
    fibers[current].waits = why;
    leave(false);
  }
};
inline Machine machine;

inline void run_fiber() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &machine.main_bottom, &machine.main_size);
#endif
  machine.kernel();
  machine.fibers[machine.current].done = true;
  machine.leave(true);
}

// Runs one block. Threads stop at barriers (all of the block together) and shuffles (the 32 of a warp together).
inline void run_block(size_t threads) {
  Machine& m = machine;
  if (m.fibers.size() < threads) m.fibers.resize(threads);
  for (size_t t = 0; t < threads; ++t) {
    Fiber& f = m.fibers[t];
    if (!f.stack) f.stack.reset(new char[Machine::kStack]);
    f.done = false;
    f.waits = 0;
    f.copies.assign(1, {});
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.get();
    f.context.uc_stack.ss_size = Machine::kStack;
    f.context.uc_link = nullptr;
    makecontext(&f.context, run_fiber, 0);
  }
  for (;;) {
    bool ran = false;
    for (size_t t = 0; t < threads; ++t) {
      Fiber& f = m.fibers[t];
      if (f.done || f.waits != 0) continue;
      ran = true;
      m.current = t;
      m.number(t);
      m.enter(f);
    }
    if (ran) continue;
    // A warp whose threads all wait for a shuffle goes on; else the block at a barrier.
    bool released = false, all_done = true;
    for (size_t w = 0; w < threads; w += 32) {
      bool all = true;
      for (size_t t = w; t < threads && t < w + 32; ++t) all = all && !m.fibers[t].done && m.fibers[t].waits == 2;
      if (!all) continue;
      for (size_t t = w; t < threads && t < w + 32; ++t) m.fibers[t].waits = 0;
      released = true;
    }
    if (released) continue;
    bool all_wait = true;
    for (size_t t = 0; t < threads; ++t) {
      all_done = all_done && m.fibers[t].done;
      all_wait = all_wait && !m.fibers[t].done && m.fibers[t].waits == 1;
    }
    if (all_done) return;
    if (!all_wait) fail("a barrier or shuffle that not all threads of the block or warp reach");
    for (size_t t = 0; t < threads; ++t) m.fibers[t].waits = 0;
  }
}

inline void launch(const int64_t* geometry, std::function<void()> kernel) {
  machine.kernel = std::move(kernel);
  gridDim = {static_cast<unsigned>(geometry[0]), static_cast<unsigned>(geometry[1]), static_cast<unsigned>(geometry[2])};
  blockDim = {static_cast<unsigned>(geometry[3]), static_cast<unsigned>(geometry[4]), static_cast<unsigned>(geometry[5])};
  const size_t threads = static_cast<size_t>(geometry[3] * geometry[4] * geometry[5]);
  if (threads == 0 || threads > 1024) fail("a block of no or more than 1024 threads");
  if (geometry[6] > static_cast<int64_t>(sizeof tp_shared_memory)) fail("too much dynamic shared memory");
  for (unsigned z = 0; z < gridDim.z; ++z)
    for (unsigned y = 0; y < gridDim.y; ++y)
      for (unsigned x = 0; x < gridDim.x; ++x) {
        blockIdx = {x, y, z};
        std::memset(tp_shared_memory, 0xa5, sizeof tp_shared_memory);
        run_block(threads);
      }
}

template <class T>
T exchanged(T v, unsigned from) {
  static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
  Machine& m = machine;
  std::memcpy(&m.exchange[m.current], &v, sizeof v);
  m.yield(2);
  T r;
  std::memcpy(&r, &m.exchange[m.current / 32 * 32 + from % 32], sizeof r);
  m.yield(2);  // nobody offers the next value before all have read this one
  return r;
}

// As late as the program allows, so that a wait that is missing shows.
inline void copy_wait(size_t open) {
  auto& groups = machine.fibers[machine.current].copies;
  while (groups.size() - 1 > open) {
    for (const Fiber::Copy& c : groups[0])
      if (c.inside) std::memcpy(c.to, c.from, c.bytes);
      else std::memset(c.to, 0, c.bytes);
    groups.erase(groups.begin());
  }
}

}  // namespace cuda_on_cpu

inline void __syncthreads() { cuda_on_cpu::machine.yield(1); }
inline unsigned tp_lane() { return static_cast<unsigned>(cuda_on_cpu::machine.current % 32); }
template <class T> T __shfl_xor_sync(unsigned, T v, int mask) { return cuda_on_cpu::exchanged(v, tp_lane() ^ static_cast<unsigned>(mask)); }
template <class T> T __shfl_sync(unsigned, T v, int from) { return cuda_on_cpu::exchanged(v, static_cast<unsigned>(from)); }
inline void __syncwarp() { (void)cuda_on_cpu::exchanged(0, 0); }
inline int atomicCAS(int* at, int expected, int wanted) {
  const int before = *at;
  if (before == expected) *at = wanted;
  return before;
}
