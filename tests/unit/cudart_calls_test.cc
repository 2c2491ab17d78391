// Calls of a model for a GPU through the C API: results from device and host memory, what waits and what does not,
// steady calls, streams, captures.
#include <thread>

#include "cudart_fixture.h"

namespace cudart {
namespace {

TEST_F(Cuda, DeviceTensorsAreUsedInPlace) {
  Call c(TRIPOD_CUDA);
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  EXPECT_EQ(api().synchronize(c.context), TRIPOD_OK) << api().last_error();
  c.check();
  EXPECT_EQ(c.outputs[2].tensor.device, TRIPOD_CUDA);
  EXPECT_EQ(gpu.copies, 3);  // the number to the GPU, the count to the host, one copy of the program's own
}

TEST_F(Cuda, HostTensorsAreCopiedAndTheCallWaits) {
  Call c(TRIPOD_CPU);
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  c.check();
  EXPECT_EQ(c.outputs[2].tensor.device, TRIPOD_CPU);
}

TEST_F(Cuda, HostInputsAndDeviceOutputs) {
  Call c(TRIPOD_CUDA);
  fake::behaviour.whole = true;
  c.inputs[0] = value(c.x.data(), TRIPOD_F32, c.x_shape);
  c.inputs[1] = value(c.ids.data(), TRIPOD_I64, c.ids_shape);
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  EXPECT_EQ(gpu.pending(nullptr), 0u);
  c.check();
}

TEST_F(Cuda, DeviceInputsAndHostOutputs) {
  Call c(TRIPOD_CUDA);
  c.outputs[0] = value(c.host[0].data(), TRIPOD_F32, c.x_shape);
  c.outputs[2].tensor.device = TRIPOD_CPU;
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  c.check();
}

TEST_F(Cuda, CallOnDeviceMemoryReturnsBeforeItsWorkIsDone) {
  auto* stream = gpu.make_stream(0);
  Call c(TRIPOD_CUDA, 6, 3, stream);
  fake::behaviour.whole = true;
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  EXPECT_EQ(gpu.waits, 0);
  EXPECT_GT(gpu.pending(stream), 0u);
  EXPECT_NE(c.output(0)[0], 6 * c.x[0]);
  EXPECT_EQ(api().synchronize(c.context), TRIPOD_OK);
  c.check();
}

TEST_F(Cuda, SizesMayChangeFromCallToCall) {
  Call small(TRIPOD_CUDA, 3, 2), large(TRIPOD_CUDA, 7000, 64), none(TRIPOD_CUDA, 0, 0);
  for (Call* c : {&small, &large, &none, &small, &large}) {
    c->outputs[2].tensor.data = nullptr;
    tripod_status status = api().run(small.context, c->inputs, 2, c->outputs, 3);
    // the context's allocator belongs to `small`: it looks at small's device, which is the same
    ASSERT_EQ(status, TRIPOD_OK) << api().last_error();
    ASSERT_EQ(api().synchronize(small.context), TRIPOD_OK);
    c->check();
  }
}

TEST_F(Cuda, TenThousandCallsAllocateAndWaitForNothing) {
  auto* stream = gpu.make_stream(0);
  Call c(TRIPOD_CUDA, 6, 3, stream);
  fake::behaviour.whole = true;
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();  // outputs[2] is now given
  int64_t allocations = gpu.allocations, launches = gpu.launches;
  for (int i = 0; i < 10000; ++i) {
    ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
    if (i % 100 == 99) {
      ASSERT_EQ(api().synchronize(c.context), TRIPOD_OK);
    }
  }
  c.check();
  EXPECT_EQ(gpu.allocations, allocations);
  EXPECT_EQ(gpu.launches, launches + 30000);
  EXPECT_EQ(gpu.waits, 100);
}

TEST_F(Cuda, ContextsComeAndGoWithoutALeak) {
  Call c(TRIPOD_CUDA);
  int64_t live = gpu.live_allocations;
  for (int i = 0; i < 300; ++i) {
    tripod_context* context = nullptr;
    tripod_context_options options = {TRIPOD_API_VERSION, TRIPOD_CUDA, 0, nullptr, nullptr, nullptr, nullptr, nullptr, 0};
    ASSERT_EQ(api().create_context(&options, &context), TRIPOD_OK);
    std::vector<float> out(static_cast<size_t>(c.n) * 4);
    c.outputs[2] = value(out.data(), TRIPOD_F32, c.positive_shape);
    ASSERT_EQ(api().run(context, c.inputs, 2, c.outputs, 3), TRIPOD_OK) << api().last_error();
    EXPECT_GT(gpu.live_allocations, live);
    api().destroy_context(context);
    ASSERT_EQ(gpu.live_allocations, live);
  }
  EXPECT_EQ(gpu.live_modules, 1);
}

TEST_F(Cuda, TheCallersContextStaysCurrent) {
  driver().push(gpu.context(1));
  Call c(TRIPOD_CUDA);
  EXPECT_EQ(gpu.current(), gpu.context(1));
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  EXPECT_EQ(gpu.current(), gpu.context(1));
  c.x_shape[1] = 5;
  EXPECT_NE(c.run(), TRIPOD_OK);
  EXPECT_EQ(gpu.current(), gpu.context(1));
  api().destroy_context(c.context);
  c.context = nullptr;
  EXPECT_EQ(gpu.current(), gpu.context(1));
  tripod::rt::cuda::Context* popped;
  driver().pop(&popped);
}

TEST_F(Cuda, TwoThreadsOnTwoStreams) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      Call c(TRIPOD_CUDA, 40 + t, 9, gpu.make_stream(0));
      for (int i = 0; i < 300; ++i) {
        c.outputs[2].tensor.data = nullptr;
        c.allocated.clear();
        ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
        ASSERT_EQ(api().synchronize(c.context), TRIPOD_OK);
        c.check();
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(gpu.live_modules, 1);  // loaded once
}

TEST_F(Cuda, StridedDeviceInputs) {
  Call c(TRIPOD_CUDA, 6, 4);
  std::vector<float> wide(6 * 10, -1.f), transposed(6 * 4);
  for (size_t r = 0; r < 6; ++r)
    for (size_t k = 0; k < 4; ++k) wide[r * 10 + k] = transposed[k * 6 + r] = c.x[r * 4 + k];
  DeviceArray a(wide.data(), wide.size() * 4), b(transposed.data(), transposed.size() * 4);
  int64_t rows[] = {10, 1}, columns[] = {1, 6};
  c.inputs[0] = value(a.data(), TRIPOD_F32, c.x_shape, TRIPOD_CUDA, rows);
  gpu.copies = 0;
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  EXPECT_EQ(gpu.copies, 4);  // one more than without strides
  ASSERT_EQ(api().synchronize(c.context), TRIPOD_OK);
  c.check();
  c.inputs[0] = value(b.data(), TRIPOD_F32, c.x_shape, TRIPOD_CUDA, columns);
  c.outputs[2].tensor.data = nullptr;
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  ASSERT_EQ(api().synchronize(c.context), TRIPOD_OK);
  c.check();
}

TEST_F(Cuda, BroadcastAndReversedDeviceInputs) {
  Call c(TRIPOD_CUDA, 6, 4);
  float row[] = {1, 2, 3, 4};
  DeviceArray one(row, sizeof row), backwards(std::vector<float>(c.x.rbegin(), c.x.rend()).data(), c.x.size() * 4);
  int64_t broadcast[] = {0, 1}, reversed[] = {-4, -1};
  c.inputs[0] = value(one.data(), TRIPOD_F32, c.x_shape, TRIPOD_CUDA, broadcast);
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  ASSERT_EQ(api().synchronize(c.context), TRIPOD_OK);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(c.output(0)[i], 6 * row[i % 4]);
  c.inputs[0] = value(backwards.as<float>() + c.x.size() - 1, TRIPOD_F32, c.x_shape, TRIPOD_CUDA, reversed);
  c.outputs[2].tensor.data = nullptr;
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  ASSERT_EQ(api().synchronize(c.context), TRIPOD_OK);
  c.check();
}

TEST_F(Cuda, StridedInputThatTakesTooManyCopies) {
  Call c(TRIPOD_CUDA, 5000, 4);
  int64_t strides[] = {-4, 1};
  c.inputs[0].tensor.strides = strides;
  EXPECT_EQ(c.error(), "input 0 'x': is strided, and packing it takes 5000 copies on the GPU: pass a contiguous tensor");
}

TEST_F(Cuda, StridedOutputs) {
  for (tripod_device where : {TRIPOD_CUDA, TRIPOD_CPU}) {
    Call c(where, 6, 4);
    std::vector<float> wide(6 * 10, -1.f);
    DeviceArray device(wide.data(), wide.size() * 4);
    int64_t strides[] = {10, 2};
    void* data = where == TRIPOD_CUDA ? device.data() : wide.data();
    c.outputs[0] = value(data, TRIPOD_F32, c.x_shape, where, strides);
    ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
    ASSERT_EQ(api().synchronize(c.context), TRIPOD_OK);
    for (size_t r = 0; r < 6; ++r)
      for (size_t k = 0; k < 10; ++k)
        EXPECT_EQ(static_cast<float*>(data)[r * 10 + k], k < 8 && k % 2 == 0 ? 6 * c.x[r * 4 + k / 2] : -1.f) << r << ' ' << k;
  }
}

TEST_F(Cuda, CapturedCallsAreRepeatedByTheGraph) {
  auto* stream = gpu.make_stream(0);
  Call c(TRIPOD_CUDA, 6, 3, stream);
  fake::behaviour.whole = true;
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  ASSERT_EQ(api().synchronize(c.context), TRIPOD_OK);
  gpu.begin_capture(stream);
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  gpu.end_capture(stream);
  EXPECT_EQ(gpu.pending(stream), 0u);
  for (float& v : c.x) v += 1;
  memcpy(c.memory[0]->data(), c.x.data(), c.x.size() * 4);
  gpu.replay(stream);
  c.check();
}

TEST_F(Cuda, WhatCannotBeCaptured) {
  auto* stream = gpu.make_stream(0);
  Call c(TRIPOD_CUDA, 6, 3, stream), h(TRIPOD_CPU, 6, 3, stream);
  gpu.begin_capture(stream);
  EXPECT_EQ(c.error(), "the call cannot be captured: the context has no memory for these sizes yet; call it once before the capture");
  EXPECT_EQ(h.error(), "the call cannot be captured: input 0 'x' is on cpu, wanted cuda:0");
  gpu.end_capture(stream);
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  gpu.begin_capture(stream);
  EXPECT_EQ(c.error(), "the call cannot be captured: the model reads 8 bytes of its data on the host");
  c.outputs[0] = value(c.host[0].data(), TRIPOD_F32, c.x_shape);
  EXPECT_EQ(c.error(), "the call cannot be captured: output 0 'sum' is on cpu, wanted cuda:0");
  gpu.end_capture(stream);
}

TEST_F(Cuda, PooledContextsFollowTheStream) {
  using namespace tripod::rt;
  auto *one = gpu.make_stream(0), *two = gpu.make_stream(0);
  Call c(TRIPOD_CUDA);
  fake::behaviour.whole = true;
  ASSERT_EQ(c.run(), TRIPOD_OK);  // outputs[2] is now given
  auto call = [&](void* stream) {
    tripod_context* context = nullptr;
    EXPECT_EQ(take_context(0, stream, &context), TRIPOD_OK) << last_error();
    EXPECT_EQ(run_model(context->run, c.inputs, 2, c.outputs, 3), TRIPOD_OK) << last_error();
    give_context(context);
    return context;
  };
  tripod_context* first = call(one);
  EXPECT_EQ(call(one), first);
  EXPECT_EQ(gpu.stream_waits, 0);
  EXPECT_NE(call(two), first);  // the first is busy on the other stream
  EXPECT_EQ(call(one), first);
  EXPECT_EQ(gpu.stream_waits, 0);
  EXPECT_EQ(synchronize_contexts(), TRIPOD_OK);
  EXPECT_EQ(gpu.pending(one) + gpu.pending(two), 0u);
  auto* three = gpu.make_stream(0);
  EXPECT_EQ(call(three), first);  // idle: taken over, behind an event
  EXPECT_EQ(gpu.stream_waits, 1);
  c.check();  // of the earlier calls
  gpu.begin_capture(three);
  EXPECT_EQ(call(three), first);
  gpu.end_capture(three);
  EXPECT_NE(call(three), first);  // a graph has it now
  EXPECT_EQ(synchronize_contexts(), TRIPOD_OK);
}

}  // namespace
}  // namespace cudart
