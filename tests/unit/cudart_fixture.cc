#include "cudart_fixture.h"

#include <dlfcn.h>

namespace cudart {

using namespace tripod::rt;

fake_cuda::Controls& controls() {
  static fake_cuda::Controls* found = [] {
    void* library = dlopen(FAKE_LIBCUDA, RTLD_NOW);
    if (!library) fprintf(stderr, "%s\n", dlerror()), abort();
    return reinterpret_cast<fake_cuda::Controls* (*)()>(dlsym(library, "fake_cuda_controls"))();
  }();
  return *found;
}

const cuda::Driver& driver() {
  char problem[256] = "";
  const cuda::Driver* d = cuda::open_driver(FAKE_LIBCUDA, problem, sizeof problem);
  if (!d) fprintf(stderr, "%s\n", problem), abort();
  return *d;
}

Cuda::Cuda() {
  gpu.reset();
  driver();
  fake::machine = &gpu;
  fake::behaviour = {};
}

Cuda::~Cuda() {
  delete_pooled_contexts();
  cuda::close_devices();
  for (const std::string& c : gpu.complaints) ADD_FAILURE() << c;
  EXPECT_EQ(gpu.live_allocations, 0);
  EXPECT_EQ(gpu.live_memory, 0);
  EXPECT_EQ(gpu.live_events, 0);
  EXPECT_EQ(gpu.live_graphs, 0);
  EXPECT_EQ(gpu.live_modules, 0);
  EXPECT_EQ(gpu.retained, 0);
  EXPECT_EQ(gpu.current(), nullptr);
}

DeviceArray::DeviceArray(const void* data, size_t bytes, int32_t device) : device_(device) {
  driver().push(controls().context(device));
  EXPECT_EQ(driver().alloc(&address_, bytes ? bytes : 1), 0);
  if (data) driver().copy_to_device(address_, data, bytes);
  cuda::Context* popped;
  driver().pop(&popped);
}

DeviceArray::~DeviceArray() {
  driver().push(controls().context(device_));
  driver().free(address_);
  cuda::Context* popped;
  driver().pop(&popped);
}

namespace {

void* allocate(void* user, int32_t output, size_t bytes, tripod_dtype, int32_t, const int64_t*) {
  auto& c = *static_cast<Call*>(user);
  if (c.outputs[output].tensor.device == TRIPOD_CUDA) {
    c.allocated.push_back(std::make_unique<DeviceArray>(nullptr, bytes));
    return c.allocated.back()->data();
  }
  c.allocated_host.emplace_back(bytes + 64);
  return c.allocated_host.back().data();
}

}  // namespace

Call::Call(tripod_device where, int64_t n, int64_t m, void* stream, bool graphs)
    : n(n), m(m), x_shape{n, 4}, ids_shape{m}, picked_shape{m, 4}, positive_shape{(n + 1) / 2, 4} {
  for (int64_t i = 0; i < n * 4; ++i) x.push_back(static_cast<float>(i % 8 < 4 ? i + 1 : -i));
  for (int64_t i = 0; i < m; ++i) ids.push_back((i * 5) % (n ? n : 1));
  host.resize(3);
  host[0].resize(x.size());
  host[1].resize(static_cast<size_t>(m) * 4);
  bool gpu = where == TRIPOD_CUDA;
  auto place = [&](void* data, size_t bytes) {
    if (!gpu) return data;
    memory.push_back(std::make_unique<DeviceArray>(data, bytes));
    return memory.back()->data();
  };
  inputs[0] = value(place(x.data(), x.size() * 4), TRIPOD_F32, x_shape, where);
  inputs[1] = value(place(ids.data(), ids.size() * 8), TRIPOD_I64, ids_shape, where);
  outputs[0] = value(place(host[0].data(), host[0].size() * 4), TRIPOD_F32, x_shape, where);
  outputs[1] = value(place(host[1].data(), host[1].size() * 4), TRIPOD_F32, picked_shape, where);
  outputs[2] = value(nullptr, TRIPOD_F32, positive_shape, where);
  tripod_context_options options = {TRIPOD_API_VERSION, TRIPOD_CUDA, 0, stream, allocate, this, nullptr, nullptr, graphs};
  EXPECT_EQ(api().create_context(&options, &context), TRIPOD_OK) << api().last_error();
}

void Call::check() {
  for (int64_t i = 0; i < n * 4; ++i) ASSERT_EQ(output(0)[i], 6 * x[static_cast<size_t>(i)]) << i;
  for (int64_t i = 0; i < m * 4; ++i)
    ASSERT_EQ(output(1)[i], 6 * x[static_cast<size_t>(ids[static_cast<size_t>(i / 4)] * 4 + i % 4)]) << i;
  int64_t k = fake::behaviour.whole ? n : (n + 1) / 2;
  ASSERT_EQ(outputs[2].tensor.shape[0], k);
  for (int64_t i = 0; i < k * 4; ++i)
    ASSERT_EQ(output(2)[i], x[static_cast<size_t>(fake::behaviour.whole ? i : i / 4 * 8 + i % 4)]) << i;
}

}  // namespace cudart
