// The part of the CUDA driver API (libcuda) that the runtime uses, declared here so that neither header nor library is
// needed to build a model, and a model.so loads where there is no driver. Names, types and values are CUDA's own.
//
// open_driver() loads the library the first time that it works; the table then stays for the life of the process.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tripod::rt::cuda {

using Result = int32_t;  // CUresult; 0 is success
using Address = uint64_t;  // CUdeviceptr

// Opaque handles.
struct Context;
struct Module;
struct Function;
struct Stream;
struct Event;
struct Graph;
struct GraphNode;
struct GraphExec;

enum : Result {
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kInvalidImage = 200,
  kNoBinaryForGpu = 209,
  kEccUncorrectable = 214,
  kNvlinkUncorrectable = 220,
  kUnsupportedPtx = 222,
  kContained = 226,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchTimeout = 702,
  kContextIsDestroyed = 709,
  kAssert = 710,
  kFirstStickyFault = 714,  // hardware stack, illegal instruction, misaligned address, address space, PC,
  kLastStickyFault = 719,   // launch failed
};

enum : int32_t {
  kComputeMajor = 75,  // device attributes
  kComputeMinor = 76,
  kSharedOptIn = 97,
  kFunctionStaticShared = 1,  // function attributes
  kFunctionDynamicShared = 8,
  kJitErrorLog = 5,
  kJitErrorLogBytes = 6,
  kMemoryHost = 1,  // CUmemorytype
  kMemoryDevice = 2,
  kCaptureRelaxed = 2,
};
enum : uint32_t { kHostDeviceMap = 2, kEventNoTiming = 2 };

// CUDA_MEMCPY2D
struct Copy2d {
  size_t from_x, from_y;
  int32_t from_type;
  const void* from_host;
  Address from_device;
  void* from_array;
  size_t from_pitch;
  size_t to_x, to_y;
  int32_t to_type;
  void* to_host;
  Address to_device;
  void* to_array;
  size_t to_pitch;
  size_t width, height;
};
static_assert(sizeof(Copy2d) == 128);

// CUDA_KERNEL_NODE_PARAMS_v2
struct KernelNode {
  Function* function;
  uint32_t grid[3], block[3], shared;
  void** parameters;
  void** extra;
  void* kernel;
  Context* context;
};
static_assert(sizeof(KernelNode) == 72);

// X(member, name in libcuda, parameters)
#define TP_CUDA_FUNCTIONS(X)                                                                                       \
  X(init, cuInit, (uint32_t flags))                                                                                \
  X(driver_version, cuDriverGetVersion, (int32_t * version))                                                       \
  X(error_name, cuGetErrorName, (Result error, const char** text))                                                 \
  X(error_text, cuGetErrorString, (Result error, const char** text))                                               \
  X(device_count, cuDeviceGetCount, (int32_t * count))                                                             \
  X(device_get, cuDeviceGet, (int32_t * device, int32_t ordinal))                                                  \
  X(device_name, cuDeviceGetName, (char* name, int32_t size, int32_t device))                                      \
  X(device_attribute, cuDeviceGetAttribute, (int32_t * value, int32_t attribute, int32_t device))                  \
  X(primary_retain, cuDevicePrimaryCtxRetain, (Context * *context, int32_t device))                                \
  X(primary_release, cuDevicePrimaryCtxRelease, (int32_t device))                                                  \
  X(push, cuCtxPushCurrent, (Context * context))                                                                   \
  X(pop, cuCtxPopCurrent, (Context * *context))                                                                    \
  X(current, cuCtxGetCurrent, (Context * *context))                                                                \
  X(synchronize, cuCtxSynchronize, ())                                                                             \
  X(module_load, cuModuleLoadDataEx,                                                                               \
    (Module * *module, const void* image, uint32_t count, int32_t* options, void** values))                        \
  X(module_unload, cuModuleUnload, (Module * module))                                                              \
  X(module_function, cuModuleGetFunction, (Function * *function, Module * module, const char* name))               \
  X(function_attribute, cuFuncGetAttribute, (int32_t * value, int32_t attribute, Function * function))             \
  X(function_set_attribute, cuFuncSetAttribute, (Function * function, int32_t attribute, int32_t value))           \
  X(launch, cuLaunchKernel,                                                                                        \
    (Function * function, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz,            \
     uint32_t shared, Stream* stream, void** params, void** extra))                                                \
  X(memory_info, cuMemGetInfo, (size_t * free, size_t * total))                                                    \
  X(alloc, cuMemAlloc, (Address * address, size_t bytes))                                                          \
  X(free, cuMemFree, (Address address))                                                                            \
  X(host_alloc, cuMemHostAlloc, (void** memory, size_t bytes, uint32_t flags))                                     \
  X(host_free, cuMemFreeHost, (void* memory))                                                                      \
  X(host_address, cuMemHostGetDevicePointer, (Address * address, void* memory, uint32_t flags))                    \
  X(copy_to_device, cuMemcpyHtoD, (Address to, const void* from, size_t bytes))                                    \
  X(copy_to_device_async, cuMemcpyHtoDAsync, (Address to, const void* from, size_t bytes, Stream* stream))         \
  X(copy_to_host_async, cuMemcpyDtoHAsync, (void* to, Address from, size_t bytes, Stream* stream))                 \
  X(copy_async, cuMemcpyDtoDAsync, (Address to, Address from, size_t bytes, Stream* stream))                       \
  X(copy_2d_async, cuMemcpy2DAsync, (const Copy2d* copy, Stream* stream))                                          \
  X(set_bytes_async, cuMemsetD8Async, (Address to, uint8_t value, size_t count, Stream* stream))                   \
  X(stream_synchronize, cuStreamSynchronize, (Stream * stream))                                                    \
  X(stream_wait, cuStreamWaitEvent, (Stream * stream, Event * event, uint32_t flags))                              \
  X(stream_capturing, cuStreamIsCapturing, (Stream * stream, int32_t* status))                                     \
  X(capture_mode, cuThreadExchangeStreamCaptureMode, (int32_t * mode))                                             \
  X(graph_create, cuGraphCreate, (Graph * *graph, uint32_t flags))                                                 \
  X(graph_destroy, cuGraphDestroy, (Graph * graph))                                                                \
  X(graph_add_kernel, cuGraphAddKernelNode,                                                                        \
    (GraphNode * *node, Graph * graph, GraphNode* const* after, size_t count, const KernelNode* kernel))           \
  X(graph_instantiate, cuGraphInstantiateWithFlags, (GraphExec * *exec, Graph * graph, uint64_t flags))            \
  X(graph_exec_set_kernel, cuGraphExecKernelNodeSetParams,                                                         \
    (GraphExec * exec, GraphNode * node, const KernelNode* kernel))                                                \
  X(graph_launch, cuGraphLaunch, (GraphExec * exec, Stream * stream))                                              \
  X(graph_exec_destroy, cuGraphExecDestroy, (GraphExec * exec))                                                    \
  X(event_elapsed, cuEventElapsedTime, (float* milliseconds, Event* begin, Event* end))                            \
  X(event_create, cuEventCreate, (Event * *event, uint32_t flags))                                                 \
  X(event_destroy, cuEventDestroy, (Event * event))                                                                \
  X(event_record, cuEventRecord, (Event * event, Stream * stream))                                                 \
  X(event_query, cuEventQuery, (Event * event))                                                                    \
  X(event_synchronize, cuEventSynchronize, (Event * event))

struct Driver {
#define X(member, name, parameters) Result(*member) parameters;
  TP_CUDA_FUNCTIONS(X)
#undef X
};

constexpr const char* kDriverLibrary = "libcuda.so.1";

// False: there is no usable driver, and `problem` says why, beginning with "no GPU: " or "driver too old: ".
bool load_driver(const char* path, Driver* out, char* problem, size_t size);

// The driver that the whole process uses; nullptr and `problem` as above. `path` counts in the call that succeeds first
// only: tests name a library of their own in it.
const Driver* open_driver(const char* path, char* problem, size_t size);

// The driver that open_driver gave, nullptr before.
const Driver* opened_driver();

// "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)", in `text`.
const char* describe(const Driver& driver, Result error, char* text, size_t size);

// After these every call on the same primary context fails: only a new process helps.
inline bool is_sticky(Result r) {
  return r == kIllegalAddress || r == kLaunchTimeout || r == kAssert || r == kEccUncorrectable || r == kContained ||
         r == kNvlinkUncorrectable || r == kContextIsDestroyed || (r >= kFirstStickyFault && r <= kLastStickyFault);
}

}  // namespace tripod::rt::cuda
