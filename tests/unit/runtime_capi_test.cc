// The C API on the fake model: results, what is refused and with which words, staging, allocators.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <immintrin.h>

#include <cstring>
#include <thread>
#include <vector>

#include "runtime_fake_model.h"
#include "tripod/model.h"

extern "C" const tripod_api* tripod_get_api(uint32_t version);

namespace {

const tripod_api& api() { return *tripod_get_api(TRIPOD_API_VERSION); }

tripod_value value(void* data, tripod_dtype dtype, const std::vector<int64_t>& shape,
                   const int64_t* strides = nullptr) {
  tripod_value v = {};
  v.tensor = {data, shape.data(), strides, static_cast<int32_t>(shape.size()), dtype, TRIPOD_CPU, 0};
  return v;
}

void* counting_allocator(void* user, int32_t output, size_t bytes, tripod_dtype, int32_t, const int64_t*) {
  auto& memory = *static_cast<std::vector<std::vector<int64_t>>*>(user);
  memory.resize(3);
  memory[static_cast<size_t>(output)].assign(bytes / 8 + 1, 0);
  return memory[static_cast<size_t>(output)].data();
}

// One call of the fake model with everything in its place; tests spoil a field and look at the error.
struct Call {
  int64_t n, m, mode = fake::kSerial;
  std::vector<float> x, y, sum, cols;
  std::vector<int64_t> x_shape, y_shape, no_shape, where_shape;
  std::vector<std::vector<int64_t>> allocated;
  tripod_value inputs[3], outputs[3];
  tripod_context* context = nullptr;

  explicit Call(int64_t n = 5, int64_t m = 6) : n(n), m(m) {
    for (int64_t i = 0; i < n * 4; ++i) x.push_back(static_cast<float>(i % 8 < 4 ? i + 1 : -i));
    for (int64_t i = 0; i < n * m; ++i) y.push_back(static_cast<float>(i));
    sum.resize(x.size());
    cols.resize(y.size());
    x_shape = {n, 4};
    y_shape = {n, m};
    inputs[0] = value(x.data(), TRIPOD_F32, x_shape);
    inputs[1] = value(y.data(), TRIPOD_F32, y_shape);
    inputs[2] = value(&mode, TRIPOD_I64, no_shape);
    outputs[0] = value(sum.data(), TRIPOD_F32, x_shape);
    outputs[1] = value(cols.data(), TRIPOD_F32, y_shape);
    outputs[2] = value(nullptr, TRIPOD_I64, no_shape);
    tripod_context_options options = {TRIPOD_API_VERSION, TRIPOD_CPU, 0, nullptr, counting_allocator, &allocated, nullptr, nullptr, 0};
    EXPECT_EQ(api().create_context(&options, &context), TRIPOD_OK);
  }
  ~Call() { api().destroy_context(context); }
  tripod_status run() { return api().run(context, inputs, 3, outputs, 3); }
  std::string error() { return run() == TRIPOD_OK ? "no error" : api().last_error(); }

  void check() {
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(sum[i], 6 * x[i]) << i;
    for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(cols[i], 3 * y[i]) << i;
    const tripod_tensor& where = outputs[2].tensor;
    ASSERT_EQ(where.rank, 1);
    ASSERT_EQ(where.dtype, TRIPOD_I64);
    ASSERT_EQ(where.shape[0], (n + 1) / 2);
    for (int64_t i = 0; i < where.shape[0]; ++i) ASSERT_EQ(static_cast<int64_t*>(where.data)[i], 2 * i);
  }
};

TEST(Capi, Table) {
  EXPECT_EQ(tripod_get_api(0), nullptr);
  EXPECT_EQ(tripod_get_api(TRIPOD_API_VERSION + 1), nullptr);
  EXPECT_STREQ(api().describe(), R"({"name": "fake"})");
  EXPECT_EQ(api().num_inputs(), 3);
  EXPECT_EQ(api().num_outputs(), 3);
}

TEST(Capi, RunsAndReportsShapes) {
  Call c;
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  c.check();
  EXPECT_EQ(c.outputs[0].tensor.shape[1], 4);
}

TEST(Capi, DimsMayChangeFromCallToCall) {
  Call small(3, 2), large(700, 64);
  for (Call* c : {&small, &large, &small, &large}) {
    std::swap(c->context, small.context);  // all on one context
    c->outputs[2].tensor.data = nullptr;
    ASSERT_EQ(c->run(), TRIPOD_OK) << api().last_error();
    c->check();
    std::swap(c->context, small.context);
  }
}

TEST(Capi, NoRows) {
  Call c(0, 2);
  c.inputs[0].tensor.data = c.inputs[1].tensor.data = nullptr;  // fine: there are no elements
  c.outputs[0].tensor.data = c.outputs[1].tensor.data = nullptr;
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  EXPECT_EQ(c.outputs[2].tensor.shape[0], 0);
}

TEST(Capi, OutputsOfTheLastRunMayBePassedAgain) {
  Call c;
  ASSERT_EQ(c.run(), TRIPOD_OK);
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();  // shapes now point into the context
  c.check();
}

TEST(Capi, StridedInputs) {
  Call c(6, 4);
  std::vector<float> transposed(c.x.size()), reversed(c.y.rbegin(), c.y.rend());
  for (size_t r = 0; r < 6; ++r)
    for (size_t k = 0; k < 4; ++k) transposed[k * 6 + r] = c.x[r * 4 + k];
  int64_t x_strides[] = {1, 6}, y_strides[] = {-4, -1};
  c.inputs[0] = value(transposed.data(), TRIPOD_F32, c.x_shape, x_strides);
  c.inputs[1] = value(&reversed.back(), TRIPOD_F32, c.y_shape, y_strides);
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  c.check();
}

TEST(Capi, StridesOfAxesOfOneDoNotMatter) {
  Call c(1, 4);
  int64_t strides[] = {999, 1};
  c.inputs[0].tensor.strides = strides;
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  c.check();
}

TEST(Capi, StridedOutput) {
  Call c(6, 4);
  std::vector<float> wide(6 * 10, -1.f);
  int64_t strides[] = {10, 2};
  c.outputs[1] = value(wide.data(), TRIPOD_F32, c.y_shape, strides);
  ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
  for (size_t r = 0; r < 6; ++r)
    for (size_t k = 0; k < 10; ++k)
      EXPECT_EQ(wide[r * 10 + k], k < 8 && k % 2 == 0 ? 3 * c.y[r * 4 + k / 2] : -1.f) << r << ' ' << k;
}

TEST(Capi, BadCounts) {
  Call c;
  EXPECT_EQ(api().run(c.context, c.inputs, 2, c.outputs, 3), TRIPOD_INVALID_ARGUMENT);
  EXPECT_STREQ(api().last_error(), "got 2 inputs, wanted 3");
  EXPECT_EQ(api().run(c.context, c.inputs, 3, c.outputs, 1), TRIPOD_INVALID_ARGUMENT);
  EXPECT_STREQ(api().last_error(), "got 1 outputs, wanted 3");
  EXPECT_EQ(api().run(nullptr, c.inputs, 3, c.outputs, 3), TRIPOD_INVALID_ARGUMENT);
  EXPECT_STREQ(api().last_error(), "run: the context is null");
}

TEST(Capi, BadInputs) {
  {
    Call c;
    c.x_shape[1] = 5;
    EXPECT_EQ(c.error(), "input 0 'x' axis 1: got 5, wanted 4");
  }
  {
    Call c;
    c.y_shape[0] = 7;
    EXPECT_EQ(c.error(), "input 1 'y' axis 0 ('N'): got 7, wanted 5 as in input 0 'x' axis 0");
  }
  {
    Call c;
    c.y_shape[1] = 66;
    EXPECT_EQ(c.error(), "input 1 'y' axis 1 ('M'): got 66, wanted 2..64");
    c.y_shape[1] = 7;
    EXPECT_EQ(c.error(), "input 1 'y' axis 1 ('M'): got 7, wanted a multiple of 2");
    c.y_shape[1] = -2;
    EXPECT_EQ(c.error(), "input 1 'y' axis 1 ('M'): got -2, wanted 2..64");
  }
  {
    Call c;
    c.inputs[0].tensor.dtype = TRIPOD_F64;
    EXPECT_EQ(c.error(), "input 0 'x': dtype is f64, wanted f32");
    memset(&c.inputs[0].tensor.dtype, 77, 1);
    EXPECT_EQ(c.error(), "input 0 'x': dtype is unknown, wanted f32");
  }
  {
    Call c;
    c.inputs[0].tensor.rank = 3;
    EXPECT_EQ(c.error(), "input 0 'x': rank is 3, wanted 2");
    c.inputs[0].tensor.rank = 2;
    c.inputs[0].tensor.shape = nullptr;
    EXPECT_EQ(c.error(), "input 0 'x': shape is null, wanted 2 dims");
  }
  {
    Call c;
    c.inputs[1].kind = TRIPOD_SEQUENCE;
    EXPECT_EQ(c.error(), "input 1 'y': got a sequence, wanted a tensor");
  }
  {
    Call c;
    c.inputs[2].tensor.data = nullptr;
    EXPECT_EQ(c.error(), "input 2 'mode': data is null, wanted 1 elements");
    c.inputs[2].tensor.data = reinterpret_cast<void*>(uintptr_t{0x1004});
    EXPECT_EQ(c.error(), "input 2 'mode': data is at address 0x1004, wanted a multiple of 8 (its i64 elements)");
    c.inputs[2].tensor.device = TRIPOD_CUDA;
    c.inputs[2].tensor.device_id = 1;
    EXPECT_EQ(c.error(), "input 2 'mode': is on cuda:1, wanted cpu");
  }
}

TEST(Capi, BadOutputs) {
  {
    Call c;
    c.outputs[0].tensor.dtype = TRIPOD_I32;
    EXPECT_EQ(c.error(), "output 0 'sum': dtype is i32, wanted f32");
  }
  {
    Call c;
    std::vector<int64_t> shape = {4, 4};
    c.outputs[0].tensor.shape = shape.data();
    EXPECT_EQ(c.error(), "output 0 'sum' axis 0: got 4, wanted 5");
    c.outputs[0].tensor.rank = 1;
    EXPECT_EQ(c.error(), "output 0 'sum': rank of the given memory is 1, wanted 2");
  }
  {
    Call c;
    tripod_context* plain = nullptr;
    ASSERT_EQ(api().create_context(nullptr, &plain), TRIPOD_OK);
    EXPECT_EQ(api().run(plain, c.inputs, 3, c.outputs, 3), TRIPOD_INVALID_ARGUMENT);
    EXPECT_STREQ(api().last_error(), "output 2 'where': data is null and the context has no allocator");
    api().destroy_context(plain);
  }
}

TEST(Capi, ErrorsOfTheProgram) {
  Call c;
  c.mode = fake::kKernelError;
  EXPECT_EQ(c.run(), TRIPOD_INDEX_OUT_OF_RANGE);
  EXPECT_STREQ(api().last_error(), "node 7 Gather 'emb': index 12 is not in [0, 10)");
  c.mode = fake::kFail;
  EXPECT_EQ(c.run(), TRIPOD_INDEX_OUT_OF_RANGE);
  EXPECT_STREQ(api().last_error(), "node 0 Foo 'foo': bad number: got 5, wanted 4");
  c.mode = fake::kFailPlain;
  EXPECT_EQ(c.run(), TRIPOD_RUNTIME_ERROR);
  EXPECT_STREQ(api().last_error(), "the model: no solution");
  c.mode = fake::kForget;
  EXPECT_EQ(c.error(), "output 0 'sum': the program ended without producing it");
  c.mode = fake::kSerial;  // the context is as good as new
  ASSERT_EQ(c.run(), TRIPOD_OK);
  c.check();
}

TEST(Capi, DataDependentDimOutOfRange) {
  Call c(4000, 2);
  EXPECT_EQ(c.error(), "node 9 NonZero 'nz': dim 'K': got 2000, wanted 0..1000");
}

TEST(Capi, BadContextOptions) {
  tripod_context* context = nullptr;
  tripod_context_options options = {7, TRIPOD_CPU, 0, nullptr, nullptr, nullptr, nullptr, nullptr, 0};
  EXPECT_EQ(api().create_context(&options, &context), TRIPOD_INVALID_ARGUMENT);
  const std::string wanted = "create_context: version is 7, wanted " + std::to_string(TRIPOD_API_VERSION);
  EXPECT_EQ(api().last_error(), wanted);
  options = {TRIPOD_API_VERSION, TRIPOD_CUDA, 0, nullptr, nullptr, nullptr, nullptr, nullptr, 0};
  EXPECT_EQ(api().create_context(&options, &context), TRIPOD_UNSUPPORTED);
  EXPECT_STREQ(api().last_error(), "create_context: this model has code for the CPU only");
  EXPECT_EQ(api().set_num_threads(-1), TRIPOD_INVALID_ARGUMENT);
  EXPECT_STREQ(api().last_error(), "set_num_threads: got -1, wanted 0..256");
}

TEST(Capi, LastErrorBelongsToTheThread) {
  Call c;
  c.mode = fake::kFail;
  EXPECT_NE(c.run(), TRIPOD_OK);
  std::thread([] { EXPECT_STREQ(api().last_error(), ""); }).join();
}

TEST(Capi, MemoryOfOutputsIsApart) {
  Call c;
  c.outputs[0].tensor.data = c.x.data();
  EXPECT_EQ(c.error(), "output 0 'sum': its memory overlaps that of input 0 'x'");
  c.outputs[0].tensor.data = c.y.data() + c.y.size() - 1;
  EXPECT_EQ(c.error(), "output 0 'sum': its memory overlaps that of input 1 'y'");
  std::vector<float> both(c.sum.size() + c.cols.size());
  c.outputs[0].tensor.data = both.data();
  c.outputs[1].tensor.data = both.data() + c.sum.size() - 1;
  EXPECT_EQ(c.error(), "output 1 'cols': its memory overlaps that of output 0 'sum'");
  c.outputs[1].tensor.data = both.data() + c.sum.size();
  EXPECT_EQ(c.run(), TRIPOD_OK);
}

TEST(Capi, TwoThreadsWithContextsOfTheirOwn) {
  api().set_num_threads(2);
  const auto work = [](int64_t n) {
    Call c(n, 6);
    c.mode = fake::kParallel;
    for (int i = 0; i < 200; ++i) {
      ASSERT_EQ(c.run(), TRIPOD_OK) << api().last_error();
      c.check();
      c.outputs[2].tensor.data = nullptr;
    }
  };
  std::thread other([&] { work(40); });
  work(33);
  other.join();
  api().set_num_threads(0);
}

TEST(Capi, TwoThreadsOnOneContextTakeTurns) {
  Call first(40, 6), second(33, 6);
  const auto work = [&](Call& c) {
    for (int i = 0; i < 200; ++i) {
      std::vector<int64_t> where((static_cast<size_t>(c.n) + 1) / 2), shape = {static_cast<int64_t>(where.size())};
      c.outputs[2] = value(where.data(), TRIPOD_I64, shape);
      ASSERT_EQ(api().run(first.context, c.inputs, 3, c.outputs, 3), TRIPOD_OK) << api().last_error();
      c.check();
    }
  };
  std::thread other([&] { work(second); });
  work(first);
  other.join();
}

TEST(Capi, CallersFloatingPointModeIsKeptOut) {
  Call c(1, 2);
  c.x[0] = 1e-39f;  // a denormal: with flush-to-zero it would vanish
  unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);
  tripod_status status = c.run();
  unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  ASSERT_EQ(status, TRIPOD_OK);
  EXPECT_EQ(after & 0x8040, 0x8040u);
  EXPECT_GT(c.sum[0], 5.9e-39f);
}

TEST(Steps, AreShownToTheHook) {
  struct Seen {
    int32_t number, num_buffers;
    std::vector<float> last;   // of the last buffer of step 11, of the first of step 12
    int64_t n, nanoseconds;
  };
  Call call(3, 2);
  std::vector<Seen> all;
  tripod_context_options options = {TRIPOD_API_VERSION, TRIPOD_CPU, 0, nullptr, counting_allocator, &call.allocated, nullptr, nullptr, 0};
  options.step_hook = [](void* user, const tripod_step* s) {
    auto* x = static_cast<const float*>(s->buffers[s->number == 11 ? 2 : 0]);
    static_cast<std::vector<Seen>*>(user)->push_back({s->number, s->num_buffers, {x, x + 12}, s->dims[fake::kN], s->nanoseconds});
  };
  options.step_user = &all;
  api().destroy_context(call.context);
  ASSERT_EQ(api().create_context(&options, &call.context), TRIPOD_OK);
  ASSERT_EQ(call.run(), TRIPOD_OK);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].number, 11);
  EXPECT_EQ(all[0].num_buffers, 3);
  EXPECT_EQ(all[1].number, 12);
  EXPECT_EQ(all[1].num_buffers, 2);
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(all[0].last[i], 2 * call.x[i]);
    EXPECT_EQ(all[1].last[i], 6 * call.x[i]);
  }
  for (const Seen& s : all) {
    EXPECT_EQ(s.n, 3);
    EXPECT_GE(s.nanoseconds, 0);
  }
}

}  // namespace
