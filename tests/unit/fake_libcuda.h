// A libcuda for machines without a GPU: the functions that the runtime uses, on host memory, with checks. It is a shared
// library of its own (fake_libcuda.so), opened by path; a test reaches its controls through the symbol `fake_cuda_controls`.
//
// What is enqueued on a stream is done late, when somebody waits for it, so that a result that is looked at too early is
// seen to be wrong. What a program must not do is noted in `complaints`: memory freed twice, copies outside of
// allocations, a stream of another context, a wait during a capture, ...
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/cuda_driver.h"

namespace fake_cuda {

using namespace tripod::rt::cuda;

struct Launch {
  uint32_t grid[3], block[3], shared;
  void** parameters;
};
// 0, or the error with which the GPU stops.
using Kernel = Result (*)(const Launch& launch);

// What the model has for a cubin: functions of the test program.
struct NamedKernel {
  const char* name;
  Kernel run;
  int32_t parameters, static_shared;
};
struct Image {
  uint64_t magic;
  int32_t count;
  const NamedKernel* kernels;
};
constexpr uint64_t kMagic = 0x656b6166;

struct Controls {
  // what the machine is like
  int32_t devices = 2;
  int32_t arch[2] = {90, 80};
  size_t memory = 1 << 30;
  std::string missing;            // this function is not in the driver
  Result init_result = 0, load_result = 0;
  std::string load_log;
  // what happened
  std::vector<std::string> complaints;
  int64_t launches = 0, waits = 0, allocations = 0, copies = 0, stream_waits = 0;
  int64_t graphs_made = 0, graph_launches = 0, graph_patches = 0, live_graphs = 0;
  int64_t live_memory = 0, live_allocations = 0, live_events = 0, live_modules = 0, retained = 0;
  std::map<std::string, int32_t> large_shared;  // by kernel: times it was asked for

  virtual void reset() = 0;             // of everything above, and of faults; nothing may be alive
  virtual Stream* make_stream(int32_t device) = 0;
  virtual Context* context(int32_t device) = 0;
  virtual void begin_capture(Stream* stream) = 0;
  virtual void end_capture(Stream* stream) = 0;
  virtual void replay(Stream* stream) = 0;      // does at once what was captured
  virtual size_t pending(Stream* stream) = 0;   // enqueued and not done; nullptr: the default one of device 0
  virtual Context* current() = 0;
  virtual bool on_device(const void* p, size_t bytes) = 0;

 protected:
  ~Controls() = default;
};

}  // namespace fake_cuda
