// A model written by hand the way the compiler would emit it; see runtime_fake_model.h. Like generated code it needs
// no libstdc++: runtime_so_test links the same file into a model.so.
#include "runtime_fake_model.h"

#include <stddef.h>

namespace {

using fake::Mode;

// args: run, x, y, out, elements of a row
void add_kernel(const uint64_t* args, int64_t begin, int64_t end, void*) {
  auto* a = reinterpret_cast<const float*>(args[1]);
  auto* b = reinterpret_cast<const float*>(args[2]);
  auto* out = reinterpret_cast<float*>(args[3]);
  auto width = static_cast<int64_t>(args[4]);
  for (int64_t i = begin * width; i < end * width; ++i) out[i] = a[i] + b[i];
}

// args: run, in, out, elements of a row, factor bits
void scale_kernel(const uint64_t* args, int64_t begin, int64_t end, void* scratch) {
  auto* in = reinterpret_cast<const float*>(args[1]);
  auto* out = reinterpret_cast<float*>(args[2]);
  auto width = static_cast<int64_t>(args[3]);
  auto* row = static_cast<float*>(scratch);  // every thread has its own
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t i = 0; i < width; ++i) row[i] = in[r * width + i] * static_cast<float>(args[4]);
    for (int64_t i = 0; i < width; ++i) out[r * width + i] = row[i];
  }
}

// args: run, rows. Reports an index on every seventh row.
void failing_kernel(const uint64_t* args, int64_t begin, int64_t end, void*) {
  for (int64_t r = begin; r < end; ++r)
    if (r % 7 == 3) tp_kernel_error(reinterpret_cast<tp_run*>(args[0]), 1, 12, 10);
}

uint64_t bits(const void* p) { return reinterpret_cast<uint64_t>(p); }

void sizes0(const int64_t* dims, int64_t* sizes) {
  for (int i = 0; i < 3; ++i) sizes[i] = dims[fake::kN] * 4 * 4;
}
// Segment 2 is for the planner's test: many buffers with random lives, and sizes that follow N.
constexpr int kMany = 150;
struct Lives {
  tp_buffer buffers[kMany];
};
constexpr uint32_t scramble(uint32_t x) { return (x * 2654435761u) ^ (x * 2654435761u >> 15); }
constexpr Lives random_lives() {
  Lives lives = {};
  for (uint32_t i = 0; i < kMany; ++i) {
    int32_t first = static_cast<int32_t>(scramble(i + 1) % 300);
    lives.buffers[i] = {first, first + static_cast<int32_t>(scramble(i + 1000) % 40)};
  }
  return lives;
}
constexpr Lives kLives = random_lives();
void sizes2(const int64_t* dims, int64_t* sizes) {
  for (uint32_t i = 0; i < kMany; ++i)
    sizes[i] = i % 10 == 0 ? 0 : scramble(i + static_cast<uint32_t>(dims[fake::kN])) % 5000;
}
void sizes1(const int64_t* dims, int64_t* sizes) { sizes[0] = dims[fake::kK] * 8; }

// sum = ((x + x) + x) * 2 by way of three arena buffers, of which the first and the last share memory.
int32_t compute_sum(tp_run* run, const int64_t* dims, char* const* inputs, int64_t grain) {
  char* arena = tp_enter_segment(run, 0);
  if (!arena) return 1;
  const int64_t* at = tp_offsets(run, 0);
  int64_t n = dims[fake::kN], shape[] = {n, 4};
  char* sum = tp_output(run, 0, 2, shape);
  if (!sum) return 1;
  // Step 11, which has 3 buffers, and step 12.
  uint64_t a[] = {11 | uint64_t{3} << 32, bits(inputs[0]), bits(inputs[0]), bits(arena + at[0]), 4};
  uint64_t b[] = {0, bits(arena + at[0]), bits(inputs[0]), bits(arena + at[1]), 4};
  uint64_t c[] = {0, bits(arena + at[1]), bits(arena + at[2]), 4, 2};
  if (tp_step_launch(run, add_kernel, a, n, grain, 0) || tp_launch(run, add_kernel, b, n, grain, 0) ||
      tp_launch(run, scale_kernel, c, n, grain, 16))
    return 1;
  tp_step_copy(run, sum, arena + at[2], n * 16, 12);
  return 0;
}

// where = the rows of x that begin with a positive number.
int32_t compute_where(tp_run* run, int64_t* dims, char* const* inputs) {
  auto* x = reinterpret_cast<const float*>(inputs[0]);
  int64_t count = 0;
  for (int64_t r = 0; r < dims[fake::kN]; ++r) count += x[4 * r] > 0;
  if (tp_set_dim(run, fake::kK, count, 2)) return 1;
  char* arena = tp_enter_segment(run, 1);
  if (!arena) return 1;
  auto* rows = reinterpret_cast<int64_t*>(arena + tp_offsets(run, 1)[0]);
  for (int64_t r = 0, k = 0; r < dims[fake::kN]; ++r)
    if (x[4 * r] > 0) rows[k++] = r;
  char* where = tp_output(run, 2, 1, &count);
  if (!where) return 1;
  tp_copy(where, rows, count * 8);
  return 0;
}

int32_t program(tp_run* run, int64_t* dims, char* const* inputs, const char* weights) {
  int64_t mode = *reinterpret_cast<const int64_t*>(inputs[2]);
  if (mode == fake::kFail) return tp_fail(run, 2, 0, "bad number", 5, 4);
  if (mode == fake::kFailPlain) return tp_fail(run, 5, 99, "no solution", 0, 0);
  if (mode == fake::kForget) return 0;
  if (compute_sum(run, dims, inputs, mode == fake::kSerial ? INT64_MAX / 4 : 2)) return 1;
  int64_t shape[] = {dims[fake::kN], dims[fake::kM]};
  char* cols = tp_output(run, 1, 2, shape);
  if (!cols) return 1;
  uint64_t factor = static_cast<uint64_t>(weights[0]);  // 3
  uint64_t a[] = {0, bits(inputs[1]), bits(cols), static_cast<uint64_t>(shape[1]), factor};
  if (tp_launch(run, scale_kernel, a, shape[0], 8, 64 * 4)) return 1;
  uint64_t f[] = {0};
  if (mode == fake::kKernelError && tp_launch(run, failing_kernel, f, shape[0], 1, 0)) return 1;
  return compute_where(run, dims, inputs);
}

const tp_axis kX[] = {{0, fake::kN}, {4, -1}};
const tp_axis kY[] = {{0, fake::kN}, {0, fake::kM}};
const tp_io kInputs[] = {{"x", 0, 2, kX}, {"y", 0, 2, kY}, {"mode", 7, 0, nullptr}};
const tp_io kOutputs[] = {{"sum", 0, 2, nullptr}, {"cols", 0, 2, nullptr}, {"where", 7, 1, nullptr}};
const tp_symbol kSymbols[] = {{"N", 0, 100000, 1, 1}, {"M", 2, 64, 2, 1}, {"K", 0, 1000, 1, 0}};
const tp_buffer kBuffers0[] = {{0, 1}, {1, 2}, {2, 3}};
const tp_buffer kBuffers1[] = {{0, 0}};
const tp_segment kSegments[] = {{3, kTpHost, kBuffers0, sizes0}, {1, kTpHost, kBuffers1, sizes1}, {kMany, kTpHost, kLives.buffers, sizes2}};
const char* const kSites[] = {"node 0 Foo 'foo'", "node 7 Gather 'emb'", "node 9 NonZero 'nz'"};
const char kManifest[] = R"({"name": "fake"})";
const char kWeights[] = "\3";

}  // namespace

extern "C" {
extern const tp_model tp_the_model __attribute__((visibility("hidden"))) = {
    kTripodAbiVersion, kTpAvx2, kManifest, sizeof kManifest - 1, 3, 3, 3, 3, kInputs, kOutputs, kSymbols, kSegments,
    program, kWeights, sizeof kWeights, nullptr, nullptr, kSites, 3, nullptr, nullptr};
}
