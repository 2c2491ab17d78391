// The C API called with any tensors: a status and a message, or results; the model is the hand-written one of the
// runtime's unit tests. Data pointers are right for what the other fields say, or null, or misaligned: what a caller
// must not do is lie about its own memory.
#include <vector>

#include "fuzz.h"
#include "tripod/model.h"

using tripod::fuzz::Bytes;

extern "C" const tripod_api* tripod_get_api(uint32_t version);

namespace {

constexpr int64_t kNumbers[] = {0, 1, 2, 3, 4, 5, 8, 64, 100, -1, 1 << 20, int64_t{1} << 40, INT64_MAX, INT64_MIN};
constexpr int64_t kStrides[] = {1, 4, 2, 0, -1, 8, 64, -4};
alignas(64) char memory[1 << 22];

struct Tensors {
  std::vector<tripod_value> values;
  std::vector<int64_t> numbers[8];
};

int64_t number(Bytes& b) { return b.pick(4) ? kNumbers[b.pick(8)] : kNumbers[b.pick(std::size(kNumbers))]; }

void fill(Bytes& b, tripod_value& v, std::vector<int64_t>& numbers, const tripod_value& good) {
  v = good;
  const uint8_t what = b.next();
  numbers.assign(40, 1);
  const int32_t rank = (what & 1) ? static_cast<int32_t>(b.pick(20)) - 2 : good.tensor.rank;
  for (int32_t i = 0; i < rank && i < 20; ++i) {
    const bool own = !(what & 2) && i < good.tensor.rank;
    numbers[static_cast<size_t>(i)] = own ? good.tensor.shape[i] : number(b);
    numbers[20 + static_cast<size_t>(i)] = kStrides[b.pick(std::size(kStrides))];
  }
  v.tensor.rank = rank;
  v.tensor.shape = (what & 4) && b.pick(4) == 0 ? nullptr : numbers.data();
  // In the middle of the memory: strides of at most 64 over dims of at most 100 stay inside. Larger dims are refused
  // before the data is touched only where the model says so, so they come without strides.
  bool small = true;
  for (int i = 0; i < 20; ++i) small = small && numbers[static_cast<size_t>(i)] <= 100;
  v.tensor.strides = (what & 8) && small ? numbers.data() + 20 : nullptr;
  char* data = memory + (1 << 21);
  if (what & 16) data += b.pick(9);
  v.tensor.data = (what & 32) && b.pick(3) == 0 ? nullptr : data;
  if (what & 64) {
    const int32_t dtype = static_cast<int32_t>(b.next()) - 4, device = static_cast<int32_t>(b.pick(4)) - 1, kind = static_cast<int32_t>(b.pick(6)) - 1;
    __builtin_memcpy(&v.tensor.dtype, &dtype, sizeof dtype);
    __builtin_memcpy(&v.tensor.device, &device, sizeof device);
    __builtin_memcpy(&v.kind, &kind, sizeof kind);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const tripod_api* const api = tripod_get_api(TRIPOD_API_VERSION);
  Bytes b(data, size);
  tripod_context* context = nullptr;
  api->set_num_threads(1);
  if (api->create_context(nullptr, &context)) return 0;
  while (!b.empty()) {
    const int64_t n = kNumbers[b.pick(8)], x[] = {n, 4}, y[] = {n, 2}, k[] = {number(b)};
    *reinterpret_cast<int64_t*>(memory + (1 << 21)) = static_cast<int64_t>(b.pick(7));  // the mode, and a bit of x
    const auto tensor = [](const int64_t* shape, int32_t rank, tripod_dtype type) {
      tripod_value v = {};
      v.tensor = {memory + (1 << 21), shape, nullptr, rank, type, TRIPOD_CPU, 0};
      return v;
    };
    const tripod_value in[] = {tensor(x, 2, TRIPOD_F32), tensor(y, 2, TRIPOD_F32), tensor(nullptr, 0, TRIPOD_I64)};
    const tripod_value out[] = {tensor(x, 2, TRIPOD_F32), tensor(y, 2, TRIPOD_F32), tensor(k, 1, TRIPOD_I64)};
    tripod_value inputs[3], outputs[3];
    std::vector<int64_t> numbers[6];
    for (size_t i = 0; i < 3; ++i) fill(b, inputs[i], numbers[i], in[i]), fill(b, outputs[i], numbers[3 + i], out[i]);
    const int32_t counts[] = {3, 3, 3, 3, 3, 2, 0, -1};
    const tripod_status s = api->run(context, b.pick(16) ? inputs : nullptr, counts[b.pick(8)], outputs, counts[b.pick(8)]);
    tripod::fuzz::check(s == TRIPOD_OK || *api->last_error(), "an error without a message");
  }
  api->destroy_context(context);
  return 0;
}
