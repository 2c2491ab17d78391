// The contract between the code that the compiler generates for a model and the runtime that is linked into the
// same model.so. Both sides include this header; plain C++ without libstdc++ (the runtime is built with
// -fno-exceptions -fno-rtti and may use libc only).
//
// A model.so contains: the generated kernels and the generated host program (LLVM objects), this runtime, the
// weights (a read-only page-aligned section), and one constant `tp_model` that ties them together.
//
// One call of the model:
//   1. The runtime checks the inputs against tp_model.inputs and binds dims: dims[k] is the value of symbol k.
//   2. It calls tp_model.program(run, dims, inputs, weights), the generated host program, which
//      - enters segments: tp_enter_segment() makes the arena of segment s hold its buffers for the current dims,
//      - asks for outputs: tp_output() gives the caller's memory or that of the allocator,
//      - launches kernels: tp_launch(), calls runtime operators, reads dims from data (tp_set_dim),
//      - runs structured control flow in plain machine code.
//   3. It reports the first error that a kernel recorded (tp_kernel_error).
// Everything that a steady call needs is kept in the context: with the same dims as the last call nothing is
// allocated and no plan is solved.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

struct tp_run;  // the state of one call; opaque to generated code

// args[1 + i]: the kernel's buffers (pointers) and then its dims (int64), in the order of the loop function's
// parameters; args[0] is the tp_run. The kernel carries out iterations [begin, end) of its outermost parallel loop.
// scratch: this thread's scratch memory, 64-byte aligned, of the size given at the launch.
typedef void (*tp_kernel)(const uint64_t* args, int64_t begin, int64_t end, void* scratch);

// A tensor as runtime operators see it: dense, row-major.
struct tp_view {
  void* data;
  int32_t dtype;  // tripod::DType
  int32_t rank;
  int64_t shape[8];
};

// A runtime operator (sort, top-k, NMS, ...): `views` are inputs then outputs, `attrs` constants from the compiler.
// Data-dependent extents are returned by tp_set_dim. Returns 0, or an error code after tp_fail().
typedef int32_t (*tp_operator)(tp_run* run, const tp_view* views, const int64_t* attrs);

// One buffer of a segment's arena: alive from step `first` to step `last`, inclusive. Two buffers may share memory
// when their intervals do not overlap.
struct tp_buffer {
  int32_t first, last;
};

enum tp_space : int32_t { kTpHost = 0, kTpDevice = 1 };

struct tp_segment {
  int32_t num_buffers;
  int32_t space;  // tp_space: where the arena lies
  const tp_buffer* buffers;
  // Bytes of each buffer for these dims; every one is rounded up to 64 by the runtime.
  void (*sizes)(const int64_t* dims, int64_t* sizes);
};

struct tp_axis {
  int64_t extent;  // when symbol < 0: the axis must have exactly this extent
  int32_t symbol;  // otherwise: dims[symbol]; bound by its first occurrence, compared at later ones
};

struct tp_io {
  const char* name;
  int32_t dtype;
  int32_t rank;
  const tp_axis* axes;  // of an output: nullptr, the program gives its shape to tp_output
};

struct tp_symbol {
  const char* name;
  int64_t lo, hi;    // inclusive
  int64_t divisor;   // 1: none
  int32_t bound_by_input;  // 0: set by the program (derived from data)
};

// --- a model for a GPU ------------------------------------------------------------------------------------------
// The kernels of a device, in one image for each architecture they were compiled for.
struct tp_image {
  int32_t arch;  // compute capability times ten (90): what a cubin was made for, or the least for PTX
  int32_t ptx;   // 0: cubin; 1: PTX text, ending in a NUL
  const void* data;
  int64_t size;
};

// In such a model inputs, outputs and arenas of kTpDevice segments are device memory. What the program reads on the
// host (conditions, data-dependent dims, operands of runtime operators) it copies into kTpHost segments first.
struct tp_device_part {
  int32_t num_images, num_kernels;
  const tp_image* images;
  const char* const* kernels;  // names in every image; tp_launch_grid counts into this list
  const char* const* origins;  // "node 12 Conv 'c1'" of each kernel, for errors
};

// What args[0] of a kernel points to. The first to set flag, by an atomicCAS from 0 to 1, writes the rest: an index `got`
// that is not in [0, limit) at `site` (of tp_model.sites). The kernel clamps the index and goes on. The memory is
// page-locked memory of the host, so that nothing is copied back: kernels touch it in case of an error only.
struct tp_error_record {
  int32_t flag, site;
  int64_t got, limit;
};

struct tp_model {
  uint32_t abi_version;  // kAbiVersion
  uint32_t cpu_features; // tp_cpu_feature bits that the code needs
  const char* manifest;  // JSON, and a NUL after manifest_size bytes
  int64_t manifest_size;
  int32_t num_inputs, num_outputs, num_symbols, num_segments;
  const tp_io* inputs;
  const tp_io* outputs;
  const tp_symbol* symbols;
  const tp_segment* segments;
  int32_t (*program)(tp_run* run, int64_t* dims, char* const* inputs, const char* weights);
  const char* weights;            // nullptr when external
  int64_t weights_size;
  const char* external_weights;   // a .safetensors file, by its path from the folder of model.so or an absolute one;
                                  // the program's `weights` is its data, after the header. nullptr: embedded
  const char* external_header;    // the JSON header of that file, which names its contents by their hash
  const char* const* sites;       // "node 12 Gather 'emb'" for error reports, indexed by the site numbers below
  int32_t num_sites;
  const tp_device_part* device;   // nullptr: the model runs on the CPU
  const int32_t* shares;          // nullptr, or for each output the input whose memory it may be given (--alias), or -1
};

enum : uint32_t { kTripodAbiVersion = 1 };
enum tp_cpu_feature : uint32_t { kTpAvx2 = 1, kTpFma = 2, kTpF16c = 4, kTpAvx512 = 8, kTpVnni = 16, kTpAmx = 32 };

// --- called by generated code -----------------------------------------------------------------------------------

// Base address of segment s's arena, after making room for the current dims; offsets are read with tp_offsets.
char* tp_enter_segment(tp_run* run, int32_t segment);
const int64_t* tp_offsets(tp_run* run, int32_t segment);

// Memory of output i, which has this final shape (row-major, dense). nullptr after an error was recorded.
char* tp_output(tp_run* run, int32_t output, int32_t rank, const int64_t* shape);

// Runs kernel over [0, extent) in chunks of at least `grain` iterations on the pool; scratch_bytes for each thread.
// args[0] is filled in by the runtime.
int32_t tp_launch(tp_run* run, tp_kernel kernel, uint64_t* args, int64_t extent, int64_t grain, int64_t scratch_bytes);

// The same as a step of the program, which the context's step hook (if there is one) is told of. On entry args[0] is
// the step's number, and in the high half the number of buffers.
int32_t tp_step_launch(tp_run* run, tp_kernel kernel, uint64_t* args, int64_t extent, int64_t grain,
                       int64_t scratch_bytes);
// A runtime operator as a step.
int32_t tp_step_call(tp_run* run, tp_operator function, const tp_view* views, const int64_t* attrs, int32_t num_views,
                     int32_t step);
// tp_copy as a step.
void tp_step_copy(tp_run* run, void* to, const void* from, int64_t bytes, int32_t step);

// Only in models for a GPU. The address of the weights on the context's device; nullptr after an error was recorded.
const char* tp_device_weights(tp_run* run);

// Launches kernel number `kernel` of tp_device_part on the context's stream. Kernel arguments are 8 bytes each:
// args[0] (filled in by the runtime: the device's error record), buffers, dims, as in tp_kernel. geometry: grid x, y, z
// (each >= 0; an empty grid launches nothing), block x, y, z, bytes of dynamic shared memory. A grid y or z beyond 65535
// does not reach this call: kernels fold such axes into x.
int32_t tp_launch_grid(tp_run* run, int32_t kernel, uint64_t* args, int32_t num_args, const int64_t* geometry);

// Copies on the context's stream. To the host: has ended when the call returns. From the host: `from` may be written
// again when the call returns.
enum tp_direction : int32_t { kTpToDevice = 0, kTpToHost = 1, kTpWithinDevice = 2 };
int32_t tp_copy_between(tp_run* run, void* to, const void* from, int64_t bytes, int32_t direction);

// Stores a data-dependent dim after checking it against the symbol's range. Returns 0 or an error code.
int32_t tp_set_dim(tp_run* run, int32_t symbol, int64_t value, int32_t site);

// Records an error (only the first of a run is kept) and returns its code, for the program to return. The numbers are
// left out of the message when both are 0.
int32_t tp_fail(tp_run* run, int32_t status, int32_t site, const char* message, int64_t got, int64_t wanted);

// A condition on sizes that does not hold (invalid argument): each byte kTripodNumber of `message` stands for one of `numbers`.
static const char kTripodNumber = 1;
int32_t tp_fail_sizes(tp_run* run, int32_t site, const char* message, const int64_t* numbers);

// The same from inside a kernel, where the program goes on: an index `got` that is not in [0, limit). The kernel
// clamps the index itself. The run fails when the program has ended.
void tp_kernel_error(tp_run* run, int32_t site, int64_t got, int64_t limit);

// 1 when CPU code for this feature may run (a variant's guard). Features are detected once.
int32_t tp_cpu_has(uint32_t features);

// Bytes copied between dense buffers (identity moves, loop-carried values).
void tp_copy(void* to, const void* from, int64_t bytes);

// The table that the compiler emits and the runtime reads.
extern const tp_model tp_the_model;
}
