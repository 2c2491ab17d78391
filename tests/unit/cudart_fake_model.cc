// See cudart_fake_model.h.
#include "cudart_fake_model.h"

#include "runtime/abi.h"

namespace fake {
Behaviour behaviour;
fake_cuda::Controls* machine;
}  // namespace fake

namespace {

using fake_cuda::Launch;
using fake_cuda::Result;

enum Symbol { kN, kM, kK };
constexpr Result kIllegalAddress = 700;

template <typename T>
T argument(const Launch& l, int i) {
  return *static_cast<T*>(l.parameters[i]);
}
bool good(const void* p, int64_t bytes) { return bytes == 0 || fake::machine->on_device(p, static_cast<size_t>(bytes)); }

// record, in, out, n, factor (an integer)
Result scale(const Launch& l) {
  auto *in = argument<float*>(l, 1), *out = argument<float*>(l, 2);
  auto n = argument<int64_t>(l, 3), factor = argument<int64_t>(l, 4);
  if (!good(in, n * 4) || !good(out, n * 4)) return kIllegalAddress;
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] * static_cast<float>(factor);
  return 0;
}

// record, in, weights, out, n
Result weigh(const Launch& l) {
  auto *in = argument<float*>(l, 1), *weights = argument<float*>(l, 2), *out = argument<float*>(l, 3);
  auto n = argument<int64_t>(l, 4);
  if (!good(in, n * 4) || !good(weights, 4) || !good(out, n * 4)) return kIllegalAddress;
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] * weights[0];
  return 0;
}

// record, table, ids, out, m, address of the number of rows
Result pick(const Launch& l) {
  auto* record = argument<tp_error_record*>(l, 0);
  auto *table = argument<float*>(l, 1), *out = argument<float*>(l, 3);
  auto *ids = argument<int64_t*>(l, 2), *rows = argument<int64_t*>(l, 5);
  auto m = argument<int64_t>(l, 4);
  if (!good(record, 24) || !good(ids, m * 8) || !good(rows, 8) || !good(table, *rows * 16) || !good(out, m * 16)) return kIllegalAddress;
  for (int64_t i = 0; i < m; ++i) {
    int64_t r = ids[i];
    if ((r < 0 || r >= *rows) && record->flag == 0) *record = {1, 1, r, *rows};
    r = r < 0 || r >= *rows ? 0 : r;
    for (int64_t k = 0; k < 4; ++k) out[i * 4 + k] = table[r * 4 + k];
  }
  return 0;
}

// record, x, out or 0, count, n
Result select(const Launch& l) {
  auto *x = argument<float*>(l, 1), *out = argument<float*>(l, 2);
  auto* count = argument<int64_t*>(l, 3);
  auto n = argument<int64_t>(l, 4);
  if (!good(x, n * 16) || !good(count, 8)) return kIllegalAddress;
  int64_t k = 0;
  for (int64_t r = 0; r < n; ++r) {
    if (x[4 * r] <= 0) continue;
    for (int64_t c = 0; out && c < 4; ++c) out[4 * k + c] = x[4 * r + c];
    ++k;
  }
  *count = k;
  return 0;
}

Result nothing(const Launch&) { return 0; }
Result fault(const Launch&) { return kIllegalAddress; }

enum Kernels { kScale, kWeigh, kPick, kSelect, kNothing, kFault };
const fake_cuda::NamedKernel kCode[] = {{"scale", scale, 5, 0}, {"weigh", weigh, 5, 0},     {"pick", pick, 6, 0},
                                        {"select", select, 5, 0}, {"nothing", nothing, 1, 1024}, {"fault", fault, 1, 0}};
const fake_cuda::Image kCubin = {fake_cuda::kMagic, 6, kCode};

uint64_t bits(const void* p) { return reinterpret_cast<uint64_t>(p); }
uint64_t bits(int64_t n) { return static_cast<uint64_t>(n); }

template <int kCount>
int32_t launch(tp_run* run, int32_t kernel, uint64_t (&args)[kCount], int64_t work) {
  int64_t block = fake::behaviour.block;
  int64_t geometry[] = {(work + block - 1) / block, 1, 1, block, 1, 1, kernel == kNothing ? fake::behaviour.shared : 0};
  return tp_launch_grid(run, kernel, args, kCount, geometry);
}

void sizes0(const int64_t* dims, int64_t* sizes) { sizes[0] = dims[kN] * 16, sizes[1] = sizes[2] = 8; }
void sizes1(const int64_t*, int64_t* sizes) { sizes[0] = sizes[1] = 8; }
void sizes2(const int64_t* dims, int64_t* sizes) { sizes[0] = dims[kK] * 16; }

int32_t positive(tp_run* run, int64_t* dims, char* const* inputs, char* count, char* host) {
  if (fake::behaviour.whole) {
    if (tp_set_dim(run, kK, dims[kN], 2)) return 1;
  } else {
    uint64_t a[] = {0, bits(inputs[0]), 0, bits(count), bits(dims[kN])};
    if (launch(run, kSelect, a, 1) || tp_copy_between(run, host, count, 8, kTpToHost)) return 1;
    if (tp_set_dim(run, kK, *reinterpret_cast<int64_t*>(host), 2)) return 1;
  }
  int64_t shape[] = {dims[kK], 4};
  char* arena = tp_enter_segment(run, 2);
  char* out = arena ? tp_output(run, 2, 2, shape) : nullptr;
  if (!out) return 1;
  if (fake::behaviour.whole) return tp_copy_between(run, out, inputs[0], dims[kN] * 16, kTpWithinDevice);
  arena += tp_offsets(run, 2)[0];
  uint64_t b[] = {0, bits(inputs[0]), bits(arena), bits(count), bits(dims[kN])};
  return launch(run, kSelect, b, dims[kK]) || tp_copy_between(run, out, arena, dims[kK] * 16, kTpWithinDevice);
}

int32_t program(tp_run* run, int64_t* dims, char* const* inputs, const char*) {
  char *device = tp_enter_segment(run, 0), *host = tp_enter_segment(run, 1);
  const char* weights = tp_device_weights(run);
  if (!device || !host || !weights) return 1;
  const int64_t* at = tp_offsets(run, 0);
  char *doubled = device + at[0], *rows = device + at[1], *count = device + at[2];
  int64_t n = dims[kN], m = dims[kM], shape[] = {n, 4}, picked[] = {m, 4};
  char *sum = tp_output(run, 0, 2, shape), *out = tp_output(run, 1, 2, picked);
  if (!sum || !out) return 1;
  auto* number = reinterpret_cast<int64_t*>(host + tp_offsets(run, 1)[1]);
  *number = n;
  if (tp_copy_between(run, rows, number, 8, kTpToDevice)) return 1;
  *number = -1;  // what was copied is what was there
  uint64_t a[] = {0, bits(inputs[0]), bits(doubled), bits(n * 4), 2};
  uint64_t b[] = {0, bits(doubled), bits(weights), bits(sum), bits(n * 4)};
  uint64_t c[] = {0, bits(sum), bits(inputs[1]), bits(out), bits(m), bits(rows)};
  uint64_t none[] = {0};
  if (launch(run, kScale, a, n * 4) || launch(run, kWeigh, b, n * 4) || launch(run, kPick, c, m)) return 1;
  for (int i = 0; i < fake::behaviour.extra; ++i)
    if (launch(run, kNothing, none, 1)) return 1;
  if (fake::behaviour.fault && launch(run, kFault, none, 1)) return 1;
  if (fake::behaviour.shared && launch(run, kNothing, none, 1)) return 1;
  if (fake::behaviour.fail) return tp_fail(run, 5, 0, "no solution", 0, 0);
  return positive(run, dims, inputs, count, host + tp_offsets(run, 1)[0]);
}

const tp_axis kX[] = {{0, kN}, {4, -1}};
const tp_axis kIds[] = {{0, kM}};
const tp_io kInputs[] = {{"x", 0, 2, kX}, {"ids", 7, 1, kIds}};
const tp_io kOutputs[] = {{"sum", 0, 2, nullptr}, {"picked", 0, 2, nullptr}, {"positive", 0, 2, nullptr}};
const tp_symbol kSymbols[] = {{"N", 0, 1 << 30, 1, 1}, {"M", 0, 1 << 30, 1, 1}, {"K", 0, 1 << 30, 1, 0}};
const tp_buffer kBuffers0[] = {{0, 1}, {0, 5}, {0, 5}};
const tp_buffer kBuffers1[] = {{0, 0}, {0, 0}};
const tp_buffer kBuffers2[] = {{0, 0}};
const tp_segment kSegments[] = {
    {3, kTpDevice, kBuffers0, sizes0}, {2, kTpHost, kBuffers1, sizes1}, {1, kTpDevice, kBuffers2, sizes2}};
const char* const kSites[] = {"node 0 Foo 'foo'", "node 7 Gather 'emb'", "node 9 NonZero 'nz'"};
const char kManifest[] = R"({"name": "fake gpu"})";
const float kWeights[] = {3};

const tp_image kImages[] = {{90, 0, &kCubin, sizeof kCubin}, {70, 1, &kCubin, sizeof kCubin}, {80, 1, &kCubin, sizeof kCubin}};
const char* const kNames[] = {"scale", "weigh", "pick", "select", "nothing", "fault"};
const char* const kOrigins[] = {"node 1 Mul 'm1'",  "node 2 Mul 'm2'",   "node 7 Gather 'emb'",
                                "node 9 NonZero 'nz'", "node 3 Foo 'shared'", "node 4 Conv 'c1'"};
const tp_device_part kDevice = {3, 6, kImages, kNames, kOrigins};

}  // namespace

extern "C" {
extern const tp_model tp_the_model __attribute__((visibility("hidden"))) = {
    kTripodAbiVersion, kTpAvx2, kManifest, sizeof kManifest - 1, 2, 3, 3, 3, kInputs, kOutputs, kSymbols, kSegments,
    program, reinterpret_cast<const char*>(kWeights), sizeof kWeights, nullptr, nullptr, kSites, 3, &kDevice, nullptr};
}
