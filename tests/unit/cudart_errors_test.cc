// What a model for a GPU refuses, and with which words: machines without a GPU, other GPUs, memory, kernels that fail.
#include "cudart_fixture.h"
#include "runtime/internal.h"

namespace cudart {
namespace {

using namespace tripod::rt;

TEST_F(Cuda, Drivers) {
  char problem[384] = "";
  cuda::Driver driver;
  EXPECT_FALSE(cuda::load_driver("no_such_libcuda.so", &driver, problem, sizeof problem));
  EXPECT_EQ(std::string(problem).rfind("no GPU: the driver's library does not load: no_such_libcuda.so: ", 0), 0u) << problem;
  controls().init_result = 100;
  EXPECT_FALSE(cuda::load_driver(FAKE_LIBCUDA, &driver, problem, sizeof problem));
  EXPECT_STREQ(problem, "no GPU: some other error (CUDA_ERROR_OTHER, 100)");
  controls().init_result = 0;
  controls().devices = 0;
  EXPECT_FALSE(cuda::load_driver(FAKE_LIBCUDA, &driver, problem, sizeof problem));
  EXPECT_STREQ(problem, "no GPU: the driver sees none");
  controls().missing = "cuEventQuery";
  EXPECT_FALSE(cuda::load_driver(FAKE_LIBCUDA, &driver, problem, sizeof problem));
  EXPECT_EQ(std::string(problem).rfind("driver too old: ", 0), 0u) << problem;
  controls().missing.clear();
  controls().devices = 1;
  EXPECT_TRUE(cuda::load_driver(FAKE_LIBCUDA, &driver, problem, sizeof problem)) << problem;
}

tripod_status create(tripod_context_options options) {
  tripod_context* context = nullptr;
  options.version = TRIPOD_API_VERSION;
  tripod_status status = api().create_context(&options, &context);
  api().destroy_context(context);
  return status;
}
tripod_context_options on(int32_t id) { return {0, TRIPOD_CUDA, id, nullptr, nullptr, nullptr, nullptr, nullptr, 0}; }

TEST_F(Cuda, Describe) { EXPECT_STREQ(api().describe(), R"({"name": "fake gpu"})"); }

TEST_F(Cuda, WhichDevice) {
  EXPECT_EQ(create(on(0)), TRIPOD_OK);
  EXPECT_EQ(create(on(1)), TRIPOD_OK);
  EXPECT_EQ(create(on(2)), TRIPOD_UNSUPPORTED);
  EXPECT_STREQ(api().last_error(), "no GPU: cuda:2 was asked for, the driver sees 2");
  EXPECT_EQ(create({0, TRIPOD_CPU, 0, nullptr, nullptr, nullptr, nullptr, nullptr, 0}), TRIPOD_UNSUPPORTED);
  EXPECT_STREQ(api().last_error(), "create_context: this model has code for GPUs only: device must be TRIPOD_CUDA");
  tripod_context* context = nullptr;
  EXPECT_EQ(api().create_context(nullptr, &context), TRIPOD_OK);  // GPU 0
  api().destroy_context(context);
}

TEST_F(Cuda, Architectures) {
  gpu.arch[0] = 75;  // the PTX for 70, not the one for 80
  EXPECT_EQ(create(on(0)), TRIPOD_OK);
  gpu.arch[1] = 61;
  EXPECT_EQ(create(on(1)), TRIPOD_UNSUPPORTED);
  EXPECT_STREQ(api().last_error(),
               "architecture not in the file: the device is sm_61 (cuda:1, Fake GPU), the file has sm_90, PTX for "
               "compute_70, PTX for compute_80; compile the model with --arch=sm_61, or with --arch=compute_80 as well");
}

TEST_F(Cuda, CodeThatDoesNotLoad) {
  gpu.load_result = 222;
  gpu.load_log = "ptxas: version 9.9";
  EXPECT_EQ(create(on(0)), TRIPOD_UNSUPPORTED);
  EXPECT_STREQ(api().last_error(),
               "driver too old: the one on this machine (for CUDA 12.4) does not load the file's code for sm_90: some "
               "other error (CUDA_ERROR_OTHER, 222) ptxas: version 9.9");
  gpu.load_result = 2;
  EXPECT_EQ(create(on(0)), TRIPOD_OUT_OF_MEMORY);
  gpu.load_result = 0;
  EXPECT_EQ(create(on(0)), TRIPOD_OK);  // it is tried again
}

TEST_F(Cuda, OutOfMemory) {
  gpu.memory = 2;
  EXPECT_EQ(create(on(0)), TRIPOD_OUT_OF_MEMORY);
  EXPECT_STREQ(api().last_error(), "out of memory on cuda:0: 4 bytes wanted for the weights, 2 free of 2");
  gpu.memory = 1 << 20;
  Call c(TRIPOD_CUDA, 1000, 3);
  gpu.memory = static_cast<size_t>(gpu.live_memory) + 10000;
  std::string total = std::to_string(gpu.memory);
  EXPECT_EQ(c.run(), TRIPOD_OUT_OF_MEMORY);
  EXPECT_EQ(api().last_error(), "out of memory on cuda:0: 16384 bytes wanted for the arena of segment 0 for these dims, 10000 free of " + total);
  gpu.memory = 1 << 20;
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
}

TEST_F(Cuda, Devices) {
  {
    Call c(TRIPOD_CUDA);
    c.inputs[1] = value(c.ids.data(), TRIPOD_I64, c.ids_shape);
    EXPECT_EQ(c.error(), "input 1 'ids': is on cpu, input 0 'x' on cuda:0: wanted all of them on one device");
  }
  {
    Call c(TRIPOD_CUDA);
    c.inputs[1].tensor.device_id = 1;
    EXPECT_EQ(c.error(), "input 1 'ids': is on cuda:1, wanted cuda:0 or cpu");
  }
  {
    Call c(TRIPOD_CPU);
    c.inputs[0].tensor.device = TRIPOD_CUDA;
    c.inputs[0].tensor.device_id = 7;
    EXPECT_EQ(c.error(), "input 0 'x': is on cuda:7, wanted cuda:0 or cpu");
  }
  {
    Call c(TRIPOD_CUDA);
    c.outputs[1].tensor.device_id = 1;
    EXPECT_EQ(c.error(), "output 1 'picked': is on cuda:1, wanted cuda:0 or cpu");
  }
}

TEST_F(Cuda, ShapesAndNullsAsOnTheCpu) {
  Call c(TRIPOD_CUDA);
  c.x_shape[1] = 5;
  EXPECT_EQ(c.error(), "input 0 'x' axis 1: got 5, wanted 4");
  c.x_shape[1] = 4;
  c.inputs[0].tensor.data = nullptr;
  EXPECT_EQ(c.error(), "input 0 'x': data is null, wanted 24 elements");
}

TEST_F(Cuda, KernelErrorOfACallThatWaits) {
  Call c(TRIPOD_CPU);
  c.ids[1] = 17;
  EXPECT_EQ(c.run(), TRIPOD_INDEX_OUT_OF_RANGE);
  EXPECT_STREQ(api().last_error(), "node 7 Gather 'emb': index 17 is not in [0, 6)");
  EXPECT_EQ(c.outputs[2].tensor.data, nullptr);  // as they were passed
  c.ids[1] = 2;
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  c.check();
}

TEST_F(Cuda, KernelErrorOfACallThatDoesNotWait) {
  Call c(TRIPOD_CUDA);
  fake::behaviour.whole = true;
  c.memory[1]->as<int64_t>()[0] = -3;
  ASSERT_EQ(c.run(), TRIPOD_OK);
  ASSERT_EQ(api().synchronize(c.context), TRIPOD_INDEX_OUT_OF_RANGE);  // told here,
  EXPECT_STREQ(api().last_error(), "node 7 Gather 'emb': index -3 is not in [0, 6)");
  EXPECT_EQ(api().synchronize(c.context), TRIPOD_OK);  // and once
  ASSERT_EQ(c.run(), TRIPOD_OK);
  driver().push(gpu.context(0));
  driver().stream_synchronize(nullptr);  // the caller waits in his own way
  tripod::rt::cuda::Context* popped;
  driver().pop(&popped);
  int64_t launches = gpu.launches;
  EXPECT_EQ(c.run(), TRIPOD_INDEX_OUT_OF_RANGE);  // or by the next call
  EXPECT_STREQ(api().last_error(),
               "node 7 Gather 'emb': index -3 is not in [0, 6) (found on the GPU by an earlier call; this call did not run)");
  EXPECT_EQ(gpu.launches, launches);
  c.memory[1]->as<int64_t>()[0] = c.ids[0];
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  ASSERT_EQ(api().synchronize(c.context), TRIPOD_OK);
  c.check();
}

TEST_F(Cuda, KernelErrorOfAPooledContext) {
  Call c(TRIPOD_CUDA);
  fake::behaviour.whole = true;
  ASSERT_EQ(c.run(), TRIPOD_OK);
  c.memory[1]->as<int64_t>()[0] = 99;
  tripod_context* context = nullptr;
  ASSERT_EQ(take_context(0, gpu.make_stream(0), &context), TRIPOD_OK);
  ASSERT_EQ(run_model(context->run, c.inputs, 2, c.outputs, 3), TRIPOD_OK);
  give_context(context);
  EXPECT_EQ(synchronize_contexts(), TRIPOD_INDEX_OUT_OF_RANGE);
  EXPECT_STREQ(last_error(), "node 7 Gather 'emb': index 99 is not in [0, 6)");
  EXPECT_EQ(synchronize_contexts(), TRIPOD_OK);
}

TEST_F(Cuda, StickyErrorIsToldOnceInFull) {
  Call c(TRIPOD_CUDA), other(TRIPOD_CUDA);
  fake::behaviour.fault = true;
  EXPECT_EQ(c.run(), TRIPOD_RUNTIME_ERROR);
  EXPECT_STREQ(api().last_error(),
               "cuda:0 failed: an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS, 700), in kernel 'select' "
               "(node 9 NonZero 'nz') or in one launched before it; with CUDA_LAUNCH_BLOCKING=1 in the environment it is "
               "exactly the one named");
  for (Call* call : {&c, &other}) {
    EXPECT_EQ(call->run(), TRIPOD_RUNTIME_ERROR);
    EXPECT_STREQ(api().last_error(),
                 "cuda:0 cannot be used any more after an earlier error (an illegal memory access was encountered "
                 "(CUDA_ERROR_ILLEGAL_ADDRESS, 700)): start a new process");
  }
  EXPECT_EQ(api().synchronize(c.context), TRIPOD_RUNTIME_ERROR);
}

TEST_F(Cuda, LaunchesThatCannotBe) {
  Call c(TRIPOD_CUDA);
  fake::behaviour.block = 2048;
  EXPECT_EQ(c.error(), "cuda:0: kernel 'scale' (node 1 Mul 'm1'), grid 1x1x1, block 2048x1x1, 0 bytes of shared memory: invalid "
                       "argument (CUDA_ERROR_INVALID_VALUE, 1)");
  fake::behaviour.block = int64_t{1} << 40;
  EXPECT_EQ(c.error(), "kernel 'scale' (node 1 Mul 'm1'), grid 1x1x1, block 1099511627776x1x1, 0 bytes of shared memory: a launch "
                       "cannot have these numbers");
}

TEST_F(Cuda, SharedMemory) {
  Call c(TRIPOD_CUDA);
  fake::behaviour.shared = 48 << 10;  // with 1 KB of the kernel's own it is over what a block has without asking
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  EXPECT_EQ(gpu.large_shared["nothing"], 1);
  c.outputs[2].tensor.data = nullptr;
  fake::behaviour.shared = 300 << 10;
  c.outputs[2].tensor.data = nullptr;
  EXPECT_EQ(c.error(), "kernel 'nothing' (node 3 Foo 'shared'): 308224 bytes of shared memory wanted, cuda:0 has 232448 a block");
  for (int64_t kilobytes : {64, 100, 200}) {
    fake::behaviour.shared = kilobytes << 10;
    c.outputs[2].tensor.data = nullptr;
    ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  }
  EXPECT_EQ(gpu.large_shared["nothing"], 1);  // asked for once
}

TEST_F(Cuda, ErrorsOfTheProgram) {
  Call c(TRIPOD_CPU);
  fake::behaviour.fail = true;
  EXPECT_EQ(c.error(), "node 0 Foo 'foo': no solution");
  EXPECT_EQ(gpu.pending(nullptr), 0u);  // nothing uses the caller's memory any more
  fake::behaviour.fail = false;
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  c.check();
}

}  // namespace
}  // namespace cudart
