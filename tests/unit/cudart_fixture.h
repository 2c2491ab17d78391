// What the tests of the GPU runtime share: the fake driver, tensors in its memory, one call of the fake model.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cudart_fake_model.h"
#include "runtime/cuda.h"
#include "tripod/model.h"

extern "C" const tripod_api* tripod_get_api(uint32_t version);

namespace cudart {

inline const tripod_api& api() { return *tripod_get_api(TRIPOD_API_VERSION); }

// The fake driver, loaded but not yet opened by the runtime.
fake_cuda::Controls& controls();
// The table that the runtime opened (it stays open for the whole process).
const tripod::rt::cuda::Driver& driver();

// A fresh machine for each test; afterwards nothing may be left of it.
struct Cuda : testing::Test {
  Cuda();
  ~Cuda() override;
  fake_cuda::Controls& gpu = controls();
};

// Memory on device 0 or 1.
class DeviceArray {
 public:
  DeviceArray(const void* data, size_t bytes, int32_t device = 0);
  DeviceArray(const DeviceArray&) = delete;
  ~DeviceArray();
  void* data() const { return reinterpret_cast<void*>(address_); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data());
  }

 private:
  int32_t device_;
  tripod::rt::cuda::Address address_ = 0;
};

inline tripod_value value(void* data, tripod_dtype dtype, const std::vector<int64_t>& shape, tripod_device device = TRIPOD_CPU,
                          const int64_t* strides = nullptr) {
  tripod_value v = {};
  v.tensor = {data, shape.data(), strides, static_cast<int32_t>(shape.size()), dtype, device, 0};
  return v;
}

// One call of the model with host or device tensors; outputs of the size that they will have.
struct Call {
  int64_t n, m;
  std::vector<float> x;
  std::vector<int64_t> ids, x_shape, ids_shape, picked_shape, positive_shape;
  std::vector<std::unique_ptr<DeviceArray>> memory;
  std::vector<std::vector<float>> host;
  std::vector<std::unique_ptr<DeviceArray>> allocated;  // by the allocator, as the value's device says
  std::vector<std::vector<char>> allocated_host;
  tripod_value inputs[2], outputs[3];
  tripod_context* context = nullptr;

  // outputs[2] is left to the allocator.
  Call(tripod_device where, int64_t n = 6, int64_t m = 3, void* stream = nullptr, bool graphs = false);
  ~Call() { api().destroy_context(context); }
  Call(const Call&) = delete;
  tripod_status run() { return api().run(context, inputs, 2, outputs, 3); }
  std::string error() { return run() == TRIPOD_OK ? "no error" : api().last_error(); }
  const float* output(int i) const { return static_cast<const float*>(outputs[i].tensor.data); }
  void check();  // the contents, as they are now
};

}  // namespace cudart
