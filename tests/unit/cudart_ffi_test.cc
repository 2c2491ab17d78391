// A model for a GPU through TVM-FFI: tensors of device type 2, the host's stream and allocator. Needs libtvm_ffi (from
// the venv).
#include <dlfcn.h>

#include <filesystem>

#include "cudart_fixture.h"
#include "runtime/tvm_ffi.h"

using tripod::rt::ffi::Any;
using tripod::rt::ffi::ManagedTensor;
using tripod::rt::ffi::Tensor;

extern "C" int __tvm_ffi_main(void* self, const Any* args, int32_t count, Any* result);
extern "C" int __tvm_ffi_main_into(void* self, const Any* args, int32_t count, Any* result);
extern "C" int __tvm_ffi_synchronize(void* self, const Any* args, int32_t count, Any* result);

namespace cudart {
namespace {

constexpr int32_t kCuda = 2;

void* ffi_library() {
  static void* library = [] {
    void* found = nullptr;
    std::filesystem::path python = std::string(TRIPOD_SOURCE_DIR) + "/build/venv/lib";
    if (std::filesystem::exists(python))
      for (const auto& version : std::filesystem::directory_iterator(python))
        if (!found) found = dlopen((version.path() / "site-packages/tvm_ffi/lib/libtvm_ffi.so").c_str(), RTLD_NOW | RTLD_GLOBAL);
    return found;
  }();
  return library;
}

template <typename F>
F ffi_function(const char* name) {
  return reinterpret_cast<F>(dlsym(ffi_library(), name));
}

// Text of the error that was raised, and nothing is raised any more.
std::string raised() {
  void* error = nullptr;
  ffi_function<void (*)(void**)>("TVMFFIErrorMoveFromRaised")(&error);
  if (!error) return "no error";
  // TVMFFIErrorCell behind the header: kind, message, backtrace as byte arrays
  auto* text = reinterpret_cast<tripod::rt::ffi::Bytes*>(static_cast<char*>(error) + sizeof(tripod::rt::ffi::ObjectHeader));
  std::string all = std::string(text[0].data, text[0].size) + ": " + std::string(text[1].data, text[1].size);
  ffi_function<int (*)(void*)>("TVMFFIObjectDecRef")(error);
  return all;
}

std::vector<Any> arguments(std::vector<Tensor>& tensors) {
  std::vector<Any> args;
  for (Tensor& t : tensors) args.push_back({tripod::rt::ffi::kTensorPointer, 0, {.pointer = &t}});
  return args;
}

Tensor tensor(const tripod_value& v) {
  const tripod_tensor& t = v.tensor;
  tripod::rt::ffi::DataType type = {static_cast<uint8_t>(t.dtype == TRIPOD_I64 ? 0 : 2), static_cast<uint8_t>(t.dtype == TRIPOD_I64 ? 64 : 32), 1};
  return {t.data, {t.device == TRIPOD_CUDA ? kCuda : 1, t.device_id}, t.rank, type, const_cast<int64_t*>(t.shape), nullptr, 0};
}

struct CudaFfi : Cuda {
  void SetUp() override {
    if (!ffi_library()) GTEST_SKIP() << "no libtvm_ffi";
    fake::behaviour.whole = true;
  }
  // The stream of this thread on GPU 0, as torch sets it around a call.
  void use(void* stream) { ffi_function<int (*)(int32_t, int32_t, void*, void**)>("TVMFFIEnvSetStream")(kCuda, 0, stream, nullptr); }
};

TEST_F(CudaFfi, IntoGivenOutputsOnTheCurrentStream) {
  auto* stream = gpu.make_stream(0);
  Call c(TRIPOD_CUDA);
  DeviceArray positive(nullptr, c.x.size() * 4);
  c.outputs[2] = value(positive.data(), TRIPOD_F32, c.x_shape, TRIPOD_CUDA);
  std::vector<Tensor> all = {tensor(c.inputs[0]), tensor(c.inputs[1]), tensor(c.outputs[0]), tensor(c.outputs[1]), tensor(c.outputs[2])};
  Any result = {};
  use(stream);
  EXPECT_EQ(__tvm_ffi_main_into(nullptr, arguments(all).data(), 5, &result), 0) << raised();
  EXPECT_GT(gpu.pending(stream), 0u);
  EXPECT_EQ(__tvm_ffi_synchronize(nullptr, nullptr, 0, &result), 0) << raised();
  EXPECT_EQ(gpu.pending(stream), 0u);
  c.check();
  all[1].device.type = 1;
  EXPECT_EQ(__tvm_ffi_main_into(nullptr, arguments(all).data(), 5, &result), -1);
  EXPECT_EQ(raised(), "ValueError: input 1 'ids': is on cpu, input 0 'x' on cuda:0: wanted all of them on one device");
  all[1].device = {kCuda, 0};
  c.memory[1]->as<int64_t>()[0] = 6;
  EXPECT_EQ(__tvm_ffi_main_into(nullptr, arguments(all).data(), 5, &result), 0) << raised();
  EXPECT_EQ(__tvm_ffi_synchronize(nullptr, nullptr, 0, &result), -1);
  EXPECT_EQ(raised(), "IndexError: node 7 Gather 'emb': index 6 is not in [0, 6)");
  use(nullptr);
}

// What torch's allocator is to TVM-FFI.
std::vector<std::unique_ptr<DeviceArray>>* allocations;
int allocate(Tensor* prototype, ManagedTensor** out, void*, void (*)(void*, const char*, const char*)) {
  EXPECT_EQ(prototype->device.type, kCuda);
  int64_t count = 1;
  for (int32_t i = 0; i < prototype->rank; ++i) count *= prototype->shape[i];
  allocations->push_back(std::make_unique<DeviceArray>(nullptr, static_cast<size_t>(count) * 4));
  auto* shape = new int64_t[2]{prototype->shape[0], prototype->shape[1]};
  auto deleter = [](void* self) { delete[] static_cast<ManagedTensor*>(self)->tensor.shape, delete static_cast<ManagedTensor*>(self); };
  *out = new ManagedTensor{1, 0, nullptr, deleter, 0, *prototype};
  (*out)->tensor.data = allocations->back()->data();
  (*out)->tensor.shape = shape;
  return 0;
}

TEST_F(CudaFfi, OutputsComeFromTheHostsAllocator) {
  std::vector<std::unique_ptr<DeviceArray>> memory;
  allocations = &memory;
  Call c(TRIPOD_CUDA);
  std::vector<Tensor> inputs = {tensor(c.inputs[0]), tensor(c.inputs[1])};
  Any result = {};
  gpu.memory = 0;
  EXPECT_EQ(__tvm_ffi_main(nullptr, arguments(inputs).data(), 2, &result), -1);
  EXPECT_EQ(raised().rfind("MemoryError: out of memory on cuda:0", 0), 0u);
  gpu.memory = 1 << 20;
  EXPECT_EQ(__tvm_ffi_main(nullptr, arguments(inputs).data(), 2, &result), -1);
  EXPECT_EQ(raised(), "ValueError: output 0 'sum': the host has set no allocator for GPU memory: call main_into with outputs, or "
                      "pass torch tensors");
  auto set = ffi_function<int (*)(decltype(&allocate), int, decltype(&allocate)*)>("TVMFFIEnvSetDLPackManagedTensorAllocator");
  ASSERT_EQ(set(allocate, 0, nullptr), 0);
  EXPECT_EQ(__tvm_ffi_main(nullptr, arguments(inputs).data(), 2, &result), 0) << raised();
  set(nullptr, 0, nullptr);
  ASSERT_EQ(memory.size(), 3u);
  EXPECT_EQ(__tvm_ffi_synchronize(nullptr, nullptr, 0, &result), 0) << raised();
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(memory[0]->as<float>()[i], 6 * c.x[i]);
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(memory[2]->as<float>()[i], c.x[i]);
  ffi_function<int (*)(void*)>("TVMFFIObjectDecRef")(result.pointer);
}

TEST_F(CudaFfi, HostTensorsGiveHostTensors) {
  Call c(TRIPOD_CPU);
  std::vector<Tensor> inputs = {tensor(c.inputs[0]), tensor(c.inputs[1])};
  Any result = {};
  ASSERT_EQ(__tvm_ffi_main(nullptr, arguments(inputs).data(), 2, &result), 0) << raised();
  void* get_item = nullptr;
  tripod::rt::ffi::Bytes name = {"ffi.ArrayGetItem", 16};
  ASSERT_EQ(ffi_function<int (*)(const tripod::rt::ffi::Bytes*, void**)>("TVMFFIFunctionGetGlobal")(&name, &get_item), 0);
  Any args[] = {result, {tripod::rt::ffi::kInt, 0, {.integer = 0}}}, item = {};
  ASSERT_EQ(ffi_function<int (*)(void*, Any*, int32_t, Any*)>("TVMFFIFunctionCall")(get_item, args, 2, &item), 0) << raised();
  const Tensor* sum = tripod::rt::ffi::tensor_of(item.pointer);
  EXPECT_EQ(sum->device.type, 1);
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(static_cast<float*>(sum->data)[i], 6 * c.x[i]);
  auto release = ffi_function<int (*)(void*)>("TVMFFIObjectDecRef");
  release(item.pointer), release(result.pointer), release(get_item);
}

}  // namespace
}  // namespace cudart
