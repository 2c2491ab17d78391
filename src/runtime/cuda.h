// Models for a GPU: what the rest of the runtime sees of it. Nothing here is reached by a model whose `device` is null.
//
//   Device   one GPU as this model uses it: primary context, module, kernels, weights. Made once in a process, shared
//            by all contexts (cuda_device.cc).
//   State    the GPU side of one context: stream, staging memory, error record (cuda_state.cc). tp_run.cuda.
//
// A call is begin_call(), inputs, the program, outputs, end_call(); between the first and the last the primary context
// is current. Work goes to the context's stream, and a call returns when it is enqueued, unless
//   - an input or output is host memory: the call ends with a synchronisation,
//   - the program reads data on the host: tp_copy_between synchronises where it does.
// A call of neither kind allocates nothing once its sizes were seen, waits for nothing, and can be captured in a CUDA
// graph.
//
// Errors that kernels record (an index out of range) lie in page-locked memory that the kernel writes and the host
// reads without a copy. They are reported by the call that recorded them where it synchronises, otherwise by the next
// call on the context or by synchronize(), whichever comes first.
#pragma once

#include "runtime/cuda_driver.h"
#include "runtime/internal.h"

namespace tripod::rt::cuda {

constexpr int32_t kMaxArguments = 512;  // of a kernel: 4 KB of parameters, which every architecture takes
constexpr int32_t kMaxGraphParts = 64;  // further parts of a call are launched one by one
constexpr int32_t kMaxModules = 64;  // more parts than the compiler makes

struct Device {
  const Driver* driver;
  int32_t id;                        // ordinal, as in device_id
  int32_t handle;                    // CUdevice
  int32_t arch;                      // compute capability times ten
  Context* primary;
  Module* modules[kMaxModules];  // of the images that fit, each with a part of the kernels
  int32_t num_modules;
  Function** functions;              // by the numbers of tp_launch_grid
  std::atomic<int32_t>* shared_allowed;  // of each kernel: dynamic shared memory that it may have; 0 until it is asked for
  int32_t shared_limit;              // bytes of shared memory of a block, at most
  Address weights;                   // 0: the model has none
  Mutex losing;
  std::atomic<uint32_t> lost;        // a sticky error was reported, and lost_text says which
  char lost_text[160];
};

struct Graphs;

struct State {
  Device* device;
  const Driver* driver;
  Stream* stream;
  tp_error_record* record;               // page-locked, followed by `bounce`
  Address record_address;
  char* bounce;                      // page-locked: small copies to the host go through it
  Buffer *inputs, *outputs;          // device memory for host and strided tensors
  int32_t last_kernel;               // launched last, -1: none
  bool host_data;                    // this call touches the caller's host memory
  bool pooled;                       // the context goes from stream to stream (TVM-FFI)
  bool captured;                     // ... but no more: a CUDA graph replays work on its memory
  bool waits;                        // for `last`, before this call does anything
  Event* last;                       // of a pooled context: the end of its last call
  Graphs* graphs;                    // null: kernels are launched one by one (cuda_graph.cc)
  Event *begin, *end;                // around a kernel, for the step hook
};

// --- devices (cuda_device.cc) ---
// Sets last_error when there is no such GPU, when it cannot run the file's code, or memory is short.
tripod_status open_device(int32_t id, Device** out);
void close_devices();

// --- the GPU side of a context (cuda_state.cc) ---
tripod_status attach(tp_run& run, int32_t device_id, void* stream, bool pooled, bool graphs = false);  // sets last_error
void detach(tp_run& run);
void set_stream(State& state, void* stream);
tripod_status begin_call(tp_run& run);
void end_call(tp_run& run);
tripod_status synchronize(tp_run& run);  // sets last_error
// Whether a pooled context may serve a call on this stream; `idle`: also another stream's, if its work has ended.
bool suits(const State& state, int32_t device_id, const void* stream, bool idle);
// Waits for the stream, then looks at the error record.
tripod_status wait(tp_run& run);
bool is_capturing(const State& state);
// Device memory, at least `bytes`, contents lost; false after fail() with `what`.
bool reserve_device(tp_run& run, Buffer& buffer, int64_t bytes, const char* what);
void release_device(const State& state, Buffer& buffer);
tripod_status driver_failed(tp_run& run, Result error, const char* what);

// --- launches as graphs (cuda_graph.cc) ---
tripod_status make_graphs(State& state);  // sets last_error
void delete_graphs(State& state, bool driver_works);
void begin_graphs(tp_run& run);
// False: not now, it has to be launched by itself.
bool collect_launch(State& state, int32_t k, const uint64_t* args, int32_t num_args, const int64_t* geometry);
// Before anything else goes to the stream, and before memory is freed. Without graphs it does nothing.
tripod_status flush_launches(tp_run& run);

// --- the caller's tensors (cuda_tensors.cc) ---
tripod_status check_input_device(tp_run& run, int32_t i, const tripod_value* inputs);
tripod_status check_output_device(tp_run& run, int32_t i, const tripod_tensor& t);
tripod_status bind_device_input(tp_run& run, int32_t i, const tripod_tensor& t, int64_t bytes);
// run.inputs[i] is dense host memory; afterwards it is device memory.
tripod_status upload_input(tp_run& run, int32_t i, int64_t bytes);
// Where the program writes output i. `given`: the caller's memory (else the allocator's, which is dense).
char* output_memory(tp_run& run, int32_t i, int64_t bytes, bool given);
tripod_status collect_outputs(tp_run& run);

// Relaxed capture mode of this thread for a scope, so that what is done here does not break a capture elsewhere.
class Uncaptured {
 public:
  explicit Uncaptured(const Driver& driver) : driver_(driver), mode_(kCaptureRelaxed) { driver_.capture_mode(&mode_); }
  ~Uncaptured() { driver_.capture_mode(&mode_); }
  Uncaptured(const Uncaptured&) = delete;
  Uncaptured& operator=(const Uncaptured&) = delete;

 private:
  const Driver& driver_;
  int32_t mode_;
};

// A current context for a scope; the caller's is back afterwards.
class Current {
 public:
  explicit Current(const Device& device) : driver_(*device.driver), status_(driver_.push(device.primary)) {}
  ~Current() {
    Context* popped;
    if (status_ == 0) driver_.pop(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  Result status() const { return status_; }

 private:
  const Driver& driver_;
  Result status_;
};

}  // namespace tripod::rt::cuda
