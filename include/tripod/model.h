/* Tripod: calling a compiled model from C or C++. Needs nothing but this header and libc (dlopen).
 *
 * A model.so carries its own run time. It is opened with tripod_open(), which gives its function table; a context
 * made from it holds the memory of a run; calls on different contexts may run at the same time, calls on one
 * context are serialised by it. Functions return 0 when all went well and an error code otherwise; last_error()
 * then gives the message of the calling thread, naming the input, the axis, the value got and the value wanted.
 */
#ifndef TRIPOD_MODEL_H
#define TRIPOD_MODEL_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRIPOD_API_VERSION 3
#define TRIPOD_MAX_RANK 16

/* The values equal tripod::DType. Sub-byte types hold two elements a byte, low nibble first. */
typedef enum tripod_dtype {
  TRIPOD_F32 = 0, TRIPOD_F64, TRIPOD_F16, TRIPOD_BF16,
  TRIPOD_I8, TRIPOD_I16, TRIPOD_I32, TRIPOD_I64,
  TRIPOD_U8, TRIPOD_U16, TRIPOD_U32, TRIPOD_U64,
  TRIPOD_BOOL,
  TRIPOD_I4, TRIPOD_U4,
  TRIPOD_F8E4M3FN, TRIPOD_F8E4M3FNUZ, TRIPOD_F8E5M2, TRIPOD_F8E5M2FNUZ,
  TRIPOD_STRING
} tripod_dtype;

typedef enum tripod_device { TRIPOD_CPU = 0, TRIPOD_CUDA = 1 } tripod_device;

typedef enum tripod_status {
  TRIPOD_OK = 0,
  TRIPOD_INVALID_ARGUMENT = 1, /* wrong count, dtype, rank, dim, stride, device, null */
  TRIPOD_INDEX_OUT_OF_RANGE = 2, /* found by a kernel in the data of an input; on a GPU perhaps of an earlier run */
  TRIPOD_OUT_OF_MEMORY = 3,
  TRIPOD_UNSUPPORTED = 4, /* e.g. a CPU without AVX2, no GPU, a GPU that the file has no code for */
  TRIPOD_RUNTIME_ERROR = 5
} tripod_status;

/* Dense or strided; strides in elements, NULL means row-major. data is aligned to the element at least. */
typedef struct tripod_tensor {
  void* data;
  const int64_t* shape;
  const int64_t* strides;
  int32_t rank;
  tripod_dtype dtype;
  tripod_device device;
  int32_t device_id;
} tripod_tensor;

typedef enum tripod_kind { TRIPOD_TENSOR = 0, TRIPOD_STRINGS = 1, TRIPOD_SEQUENCE = 2, TRIPOD_OPTIONAL = 3 } tripod_kind;

/* One input or output. Sequences and optionals nest; an absent optional has count 0. */
typedef struct tripod_value {
  tripod_kind kind;
  tripod_tensor tensor;        /* TENSOR; for STRINGS the shape and rank, data is const char* const* (UTF-8) */
  struct tripod_value* items;  /* SEQUENCE, OPTIONAL */
  int64_t count;
} tripod_value;

/* Gives memory for an output of which the caller passed tensor.data == NULL; shape is final. The memory must hold
 * `bytes`, aligned to 64, and stays the caller's. NULL is reported as out of memory. For a model on a GPU the caller's
 * tensor.device says which memory it will be: TRIPOD_CUDA memory of the context's device, TRIPOD_CPU host memory. */
typedef void* (*tripod_allocator)(void* user, int32_t output, size_t bytes, tripod_dtype dtype, int32_t rank,
                                  const int64_t* shape);

/* One step of a run, for tools that time a model or look at its intermediate values: a kernel, an operator or a copy.
 * `number` is the "id" of an entry of the manifest's "steps", which says what the buffers are. All of it is valid
 * during the hook only; the buffers must not be written. */
typedef struct tripod_step {
  int32_t number;
  int32_t num_buffers;
  const void* const* buffers;
  const int64_t* dims;    /* the values of the manifest's "dims" at this moment */
  int64_t nanoseconds;    /* that the step took */
} tripod_step;

/* Called after each step, on the thread that called run. It must not call the model. */
typedef void (*tripod_step_hook)(void* user, const tripod_step* step);

/* A model compiled for a GPU wants device TRIPOD_CUDA (without options: GPU 0, the default stream), one for the CPU
 * TRIPOD_CPU. On a GPU:
 * - All work goes to `stream`, of the device's primary context (the one of the CUDA runtime and of torch). The stream
 *   must outlive the context's last run. The calling thread's current CUDA context is left as it was.
 * - Inputs are all device memory of that GPU, used in place, or all host memory, which is copied. Outputs are device
 *   or host memory, each as its tensor says.
 * - run() returns when the work is enqueued. It waits for the GPU when an input or output is host memory, and where the
 *   model itself reads data on the host (sizes that depend on data). A run without either may be captured in a CUDA
 *   graph, after one run with the same sizes; the graph is valid as long as the context, which then should serve no
 *   runs beside it.
 * - What a kernel finds wrong in the data (an index out of range) is reported by the run that found it when that run
 *   waits, else by the context's next run, which then does nothing else, or by synchronize(). */
typedef struct tripod_context_options {
  uint32_t version;       /* TRIPOD_API_VERSION */
  tripod_device device;
  int32_t device_id;
  void* stream;           /* CUDA stream (CUstream, cudaStream_t) of the caller, NULL: the default one */
  tripod_allocator allocator;
  void* allocator_user;
  tripod_step_hook step_hook; /* NULL: nobody listens, and steps are not timed */
  void* step_user;
  int32_t cuda_graphs;        /* not 0: a GPU's kernels are launched as CUDA graphs, which are kept from call to call */
} tripod_context_options;

typedef struct tripod_context tripod_context;

typedef struct tripod_api {
  uint32_t version;
  /* The manifest, JSON: inputs, outputs, dims with constraints, kernels, back ends, options, hashes. */
  const char* (*describe)(void);
  int32_t (*num_inputs)(void);
  int32_t (*num_outputs)(void);
  tripod_status (*create_context)(const tripod_context_options* options /* NULL: defaults */, tripod_context** out);
  void (*destroy_context)(tripod_context* context);
  /* Runs the model. inputs[i] in the order of the manifest. outputs[i].tensor.data is the caller's memory with its
   * dtype, rank and shape filled in (strides NULL or not), apart from that of inputs and other outputs, or NULL for
   * the allocator. On success an allocated output's
   * data, rank, dtype and shape are set, the shape pointing into the context and valid until its next run; set data to
   * NULL again for the next run. After a failure the outputs are as they were passed, their contents undefined. */
  tripod_status (*run)(tripod_context* context, const tripod_value* inputs, int32_t num_inputs, tripod_value* outputs,
                       int32_t num_outputs);
  /* Threads used by a run, the calling one included; 0: one for each core the process may use. */
  tripod_status (*set_num_threads)(int32_t n);
  /* Message of the last failure on this thread, "" when there was none. */
  const char* (*last_error)(void);
  /* Waits for the context's runs on a GPU and returns the error that one of their kernels recorded. */
  tripod_status (*synchronize)(tripod_context* context);
} tripod_api;

/* The one C symbol of a model.so; returns NULL when the version is not supported. */
typedef const tripod_api* (*tripod_get_api_function)(uint32_t version);

/* Opens a model.so. NULL on failure, then *error (if not NULL) holds why. */
static inline const tripod_api* tripod_open(const char* path, const char** error) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  tripod_get_api_function get = handle ? (tripod_get_api_function)dlsym(handle, "tripod_get_api") : NULL;
  const tripod_api* api = get ? get(TRIPOD_API_VERSION) : NULL;
  if (!api && error) *error = handle && get ? "the file was built for another version of the Tripod API" : dlerror();
  return api;
}

#ifdef __cplusplus
}
#endif
#endif /* TRIPOD_MODEL_H */
