// What the runtime's own files share. Nothing here is seen by generated code (that is abi.h) or by the host program
// (that is tripod/model.h).
//
// One tp_run per context: it is both the state of a call and everything that is kept between calls, so that a
// steady call allocates nothing. The runtime may use libc and header-only templates, and no more: no exceptions, no
// static constructors, no thread-local objects with destructors.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "runtime/abi.h"
#include "runtime/sync.h"
#include "tripod/model.h"

#define TP_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))

namespace tripod::rt {

namespace cuda {
struct State;
}

// Enums of the C API hold whatever the caller put there; C++ may assume otherwise, so they are read as integers.
template <typename E>
int32_t enum_value(const E& e) {
  return __builtin_bit_cast(int32_t, e);
}
template <typename E>
E enum_from(int32_t value) {
  return __builtin_bit_cast(E, value);
}

// Memory that only grows; contents are lost when it does. 64-byte aligned.
struct Buffer {
  char* data;
  int64_t capacity;
};
bool reserve(Buffer& buffer, int64_t bytes);
void release(Buffer& buffer);

// The arena of one segment: offsets are solved for `sizes` and kept while the sizes stay the same.
struct Arena {
  int64_t* sizes;      // of the last plan
  int64_t* offsets;
  int64_t* wanted;     // for the current dims; swapped with `sizes` when they differ
  int32_t* order;      // scratch of the planner
  int32_t* placed;
  bool planned;
  Buffer memory;
};

struct OutputSlot {
  tripod_value* value;  // the caller's
  int64_t shape[TRIPOD_MAX_RANK];
  int32_t rank;
  char* data;      // where the program writes
  int64_t bytes;
  bool produced;   // by tp_output in this run
  bool allocated;  // by the allocator in this run: taken back out of `value` when the run fails
  bool staged;     // the program writes into memory of the context, finish_outputs() copies to the caller's
  bool strided;    // ... because the caller's is strided (else: it is host memory, the program's is a GPU's)
  Buffer staging;
};

}  // namespace tripod::rt

struct tp_run {
  int32_t status;  // of the first error
  bool pool_checked;
  std::atomic<uint32_t> kernel_error;  // 0: none, 1: being written, 2: complete
  int32_t kernel_site;
  int64_t kernel_got, kernel_limit;
  char message[512];

  int64_t* dims;
  char** inputs;
  int64_t* input_bytes;  // of the caller's memory that the program reads itself; 0 where it reads a copy
  tripod::rt::Buffer* input_staging;
  tripod::rt::OutputSlot* outputs;
  tripod::rt::Arena* arenas;
  tripod::rt::Buffer thread_scratch;
  tripod::rt::Buffer operator_memory;
  tripod_allocator allocator;
  void* allocator_user;
  tripod::rt::cuda::State* cuda;  // of a model for a GPU (cuda.h), else nullptr
  tripod_step_hook step_hook;  // null: nobody listens
  void* step_user;
};

// A context of the C API; the TVM-FFI entry keeps a pool of the same kind.
struct tripod_context {
  tripod::rt::Mutex lock;
  tp_run run;
  tripod_value* values;  // num_inputs + num_outputs, for entries that convert from another form
  void** handles;        // num_outputs, tensors made by the TVM-FFI entry
  tripod_context* next;  // of those that a captured CUDA graph keeps
};

namespace tripod::rt {

// --- element types (dtype.cc) ---
int32_t element_bits(int32_t dtype);
const char* dtype_name(int32_t dtype);
// Bytes of a dense tensor; false when a dim is negative or the size does not fit in 63 bits.
bool dense_bytes(int32_t dtype, int32_t rank, const int64_t* shape, int64_t* count, int64_t* bytes);
inline int32_t element_bytes(int32_t dtype) { return (element_bits(dtype) + 7) / 8; }

// --- errors (errors.cc) ---
// Records the first error of a run; returns the status for `return fail(...)`.
tripod_status fail(tp_run& run, tripod_status status, const char* format, ...) TP_PRINTF(3, 4);
// The message of this thread, for failures outside a run and after one.
tripod_status set_last_error(tripod_status status, const char* format, ...) TP_PRINTF(2, 3);
const char* last_error();
const char* site_name(int32_t site);

// --- inputs and outputs (inputs.cc, outputs.cc) ---
tripod_status bind_inputs(tp_run& run, const tripod_value* inputs, int32_t count);
tripod_status bind_outputs(tp_run& run, tripod_value* outputs, int32_t count);
tripod_status finish_outputs(tp_run& run);
void drop_outputs(tp_run& run);
const char* kind_name(int32_t kind);
const char* describe_device(const tripod_tensor& t, char* text, size_t size);
bool is_dense(const tripod_tensor& t);
enum class Copy { gather, scatter };
// The axes of a strided tensor, innermost first, merged where they are contiguous with each other; at least one. No
// extent may be 0.
struct Axes {
  int32_t count;
  int64_t extents[TRIPOD_MAX_RANK], steps[TRIPOD_MAX_RANK];
};
Axes merge_axes(int32_t rank, const int64_t* shape, const int64_t* strides);
// Between dense memory and strided memory (strides in elements of `size` bytes: 1, 2, 4 or 8).
void copy_strided(Copy direction, char* dense, char* strided, int32_t rank, const int64_t* shape,
                  const int64_t* strides, int32_t size);
// What kernels get for a tensor of no elements, so that no kernel sees a null pointer.
char* empty_data();

// --- contexts (context.cc) ---
tripod_context* new_context();
void delete_context(tripod_context* context);
tripod_context* take_context();  // from the pool, or a new one; nullptr: out of memory
tripod_status take_context(int32_t device_id, void* stream, tripod_context** out);  // for a GPU; sets last_error
tripod_status synchronize_contexts();  // of the pool; last_error is the first error of a kernel
void give_context(tripod_context* context);
void delete_pooled_contexts();
tripod_status run_model(tp_run& run, const tripod_value* inputs, int32_t num_inputs, tripod_value* outputs,
                        int32_t num_outputs);

// --- weights (weights.cc) ---
// Maps external weights once; nullptr and last_error when that fails. A model without weights gives empty_data().
const char* weights();
void unmap_weights();

// --- thread pool (pool.cc) ---
tripod_status set_num_threads(int32_t n);
void stop_pool();
int32_t default_threads();  // (threads.cc)

// --- operators ---
// Memory of a runtime operator, valid until the next operator of the same run asks.
char* operator_memory(tp_run& run, int64_t bytes);

// --- CPU (cpu.cc, built for plain x86-64) ---
uint32_t cpu_features();
// nullptr when this CPU runs the model, else a message.
const char* cpu_problem();

// --- implementations behind the entry points, which check the CPU first (entry.cc) ---
tripod_status api_create_context(const tripod_context_options* options, tripod_context** out);
void api_destroy_context(tripod_context* context);
tripod_status api_synchronize(tripod_context* context);
tripod_status api_run(tripod_context* context, const tripod_value* inputs, int32_t num_inputs, tripod_value* outputs,
                      int32_t num_outputs);

}  // namespace tripod::rt
