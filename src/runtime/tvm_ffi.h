// The part of the TVM-FFI ABI (0.1) and of DLPack (1.x) that the runtime speaks, declared here so that neither header
// nor library is needed to build a model. The functions are found in the libtvm_ffi that the host has loaded.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tripod/model.h"

namespace tripod::rt::ffi {

struct Device {
  int32_t type, id;
};
enum : int32_t { kDeviceCpu = 1, kDeviceCuda = 2, kDeviceCudaHost = 3, kDeviceCudaManaged = 13 };

struct DataType {
  uint8_t code, bits;
  uint16_t lanes;
};

// DLTensor. strides are in elements and may be null; byte_offset counts.
struct Tensor {
  void* data;
  Device device;
  int32_t rank;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};

// DLManagedTensorVersioned.
struct ManagedTensor {
  uint32_t major, minor;
  void* context;
  void (*deleter)(void* self);
  uint64_t flags;
  Tensor tensor;
};

enum : int32_t {
  kNone = 0,
  kInt = 1,
  kTensorPointer = 7,   // DLTensor*
  kTensorObject = 70,   // an object; its DLTensor follows the header
};

struct Any {
  int32_t type;
  uint32_t padding;  // 0
  union {
    int64_t integer;
    void* pointer;
  };
};
static_assert(sizeof(Any) == 16 && sizeof(Tensor) == 48 && sizeof(ManagedTensor) == 80);

struct ObjectHeader {
  uint64_t counts;
  int32_t type;
  uint32_t padding;
  void* deleter;
};
static_assert(sizeof(ObjectHeader) == 24);

inline Tensor* tensor_of(void* object) {
  return reinterpret_cast<Tensor*>(static_cast<char*>(object) + sizeof(ObjectHeader));
}

struct Bytes {
  const char* data;
  size_t size;
};

// The functions used of libtvm_ffi.
struct Library {
  void (*raise)(const char* kind, const char* message);
  int (*string_from)(const Bytes* text, Any* out);
  int (*decrease_reference)(void* object);
  int (*get_global)(const Bytes* name, void** function);
  int (*call)(void* function, Any* args, int32_t count, Any* result);
  int (*tensor_from_dlpack)(ManagedTensor* from, int32_t alignment, int32_t contiguous, void** out);
  void* (*environment_allocator)();
  int (*environment_alloc)(Tensor* prototype, void** out);
  void* (*environment_stream)(int32_t device_type, int32_t device_id);
};

// nullptr when the host has no libtvm_ffi loaded: there is then nobody to call us through this ABI.
const Library* library();  // (tvm_ffi_entry.cc)

// Raises the error and returns -1, as the ABI wants.
int raise(tripod_status status, const char* message);

// Behind the CPU check.
int call_main(const Any* args, int32_t count, Any* result);
int call_main_into(const Any* args, int32_t count);
int call_synchronize();
int describe_main(bool into, Any* result);  // the type schema
int document_main(bool into, Any* result);

}  // namespace tripod::rt::ffi
