// The symbols that tvm_ffi.load_module("model.so") finds. Built for plain x86-64: the CPU is checked here.
#include <dlfcn.h>

#include "runtime/internal.h"
#include "runtime/tvm_ffi.h"

#define TP_EXPORT extern "C" __attribute__((visibility("default")))

namespace tripod::rt::ffi {
namespace {

Library functions;
std::atomic<uint32_t> found;  // looking twice finds the same

constexpr const char* kNames[] = {
    "TVMFFIErrorSetRaisedFromCStr", "TVMFFIStringFromByteArray",
    "TVMFFIObjectDecRef",           "TVMFFIFunctionGetGlobal",
    "TVMFFIFunctionCall",           "TVMFFITensorFromDLPackVersioned",
    "TVMFFIEnvGetDLPackManagedTensorAllocator", "TVMFFIEnvTensorAlloc",
    "TVMFFIEnvGetStream",
};
constexpr size_t kCount = sizeof(kNames) / sizeof(kNames[0]);
static_assert(kCount * sizeof(void*) == sizeof(Library));  // in the order of Library's members

const char* error_kind(tripod_status status) {
  switch (status) {
    case TRIPOD_INVALID_ARGUMENT: return "ValueError";
    case TRIPOD_INDEX_OUT_OF_RANGE: return "IndexError";
    case TRIPOD_OUT_OF_MEMORY: return "MemoryError";
    default: return "RuntimeError";
  }
}

int return_text(const char* text, Any* result) {
  const Library* l = library();
  Bytes bytes = {text, __builtin_strlen(text)};
  return l ? l->string_from(&bytes, result) : -1;
}

}  // namespace

const Library* library() {
  if (found.load(std::memory_order_acquire)) return &functions;
  void* handle = dlopen("libtvm_ffi.so", RTLD_LAZY | RTLD_NOLOAD);
  void* addresses[kCount];
  bool all = true;
  for (size_t i = 0; i < kCount; ++i) {
    // A host may have it linked in statically.
    addresses[i] = handle ? dlsym(handle, kNames[i]) : dlsym(RTLD_DEFAULT, kNames[i]);
    all = all && addresses[i];
  }
  if (handle) dlclose(handle);  // the host's own reference keeps it
  if (!all) return nullptr;
  __builtin_memcpy(&functions, addresses, sizeof functions);
  found.store(1, std::memory_order_release);
  return &functions;
}

int raise(tripod_status status, const char* message) {
  if (const Library* l = library()) l->raise(error_kind(status), message);
  return -1;
}

}  // namespace tripod::rt::ffi

using namespace tripod::rt;
using ffi::Any;

#define TP_FFI_FUNCTION(name) \
  TP_EXPORT int name([[maybe_unused]] void* self, [[maybe_unused]] const Any* args, [[maybe_unused]] int32_t count, \
                     [[maybe_unused]] Any* result)

TP_FFI_FUNCTION(__tvm_ffi_main) {
  if (const char* problem = cpu_problem()) return ffi::raise(TRIPOD_UNSUPPORTED, problem);
  return ffi::call_main(args, count, result);
}

TP_FFI_FUNCTION(__tvm_ffi_main_into) {
  if (const char* problem = cpu_problem()) return ffi::raise(TRIPOD_UNSUPPORTED, problem);
  return ffi::call_main_into(args, count);
}

TP_FFI_FUNCTION(__tvm_ffi_synchronize) {
  if (const char* problem = cpu_problem()) return ffi::raise(TRIPOD_UNSUPPORTED, problem);
  return ffi::call_synchronize();
}

TP_FFI_FUNCTION(__tvm_ffi_describe) { return ffi::return_text(tp_the_model.manifest, result); }

TP_FFI_FUNCTION(__tvm_ffi_set_num_threads) {
  if (const char* problem = cpu_problem()) return ffi::raise(TRIPOD_UNSUPPORTED, problem);
  if (count != 1 || args[0].type != ffi::kInt)
    return ffi::raise(TRIPOD_INVALID_ARGUMENT, "set_num_threads: wanted one integer");
  int64_t n = args[0].integer;
  tripod_status status = set_num_threads(n < 0 || n > INT32_MAX ? -1 : static_cast<int32_t>(n));
  return status == TRIPOD_OK ? 0 : ffi::raise(status, last_error());
}

TP_FFI_FUNCTION(__tvm_ffi__metadata_main) {
  if (const char* problem = cpu_problem()) return ffi::raise(TRIPOD_UNSUPPORTED, problem);
  return ffi::describe_main(false, result);
}

TP_FFI_FUNCTION(__tvm_ffi__metadata_main_into) {
  if (const char* problem = cpu_problem()) return ffi::raise(TRIPOD_UNSUPPORTED, problem);
  return ffi::describe_main(true, result);
}

TP_FFI_FUNCTION(__tvm_ffi__metadata_describe) {
  return ffi::return_text(
      R"({"type_schema":"{\"type\":\"ffi.Function\",\"named_args\":{\"return\":[{\"type\":\"ffi.String\"}],\"params\":[]}}"})",
      result);
}

TP_FFI_FUNCTION(__tvm_ffi__metadata_synchronize) {
  return ffi::return_text(
      R"({"type_schema":"{\"type\":\"ffi.Function\",\"named_args\":{\"return\":[{\"type\":\"None\"}],\"params\":[]}}"})",
      result);
}

TP_FFI_FUNCTION(__tvm_ffi__metadata_set_num_threads) {
  return ffi::return_text(
      R"({"type_schema":"{\"type\":\"ffi.Function\",\"named_args\":{\"return\":[{\"type\":\"None\"}],\"params\":[{\"type\":\"int\"}]}}"})",
      result);
}

TP_FFI_FUNCTION(__tvm_ffi__doc_main) {
  if (const char* problem = cpu_problem()) return ffi::raise(TRIPOD_UNSUPPORTED, problem);
  return ffi::document_main(false, result);
}

TP_FFI_FUNCTION(__tvm_ffi__doc_main_into) {
  if (const char* problem = cpu_problem()) return ffi::raise(TRIPOD_UNSUPPORTED, problem);
  return ffi::document_main(true, result);
}

TP_FFI_FUNCTION(__tvm_ffi__doc_describe) {
  return ffi::return_text("The manifest of this model as JSON: inputs, outputs, dims, kernels, options.", result);
}

TP_FFI_FUNCTION(__tvm_ffi__doc_synchronize) {
  return ffi::return_text("Waits for earlier calls on GPUs and raises the error that one of their kernels recorded.", result);
}

TP_FFI_FUNCTION(__tvm_ffi__doc_set_num_threads) {
  return ffi::return_text("Threads used by a call, the calling one included; 0: one for each core.", result);
}
