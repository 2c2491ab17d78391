// The caller's tensors in a model for a GPU. Dense tensors on the context's device are used where they are; those in
// host memory are copied to and from staging memory of the context; strided ones on the device are copied by the
// driver's two-dimensional copies, as long as that does not take too many of them.
#include "runtime/cuda.h"

namespace tripod::rt::cuda {
namespace {

#define INPUT "input %d '%s'"
#define OUTPUT "output %d '%s'"

constexpr int64_t kMaxCopies = 4096;
constexpr int64_t kMaxPitch = INT32_MAX;

bool on_device(const tripod_tensor& t) { return enum_value(t.device) == TRIPOD_CUDA; }

// A strided tensor as `copies` two-dimensional copies of `height` pieces of `width` bytes each.
struct Pieces {
  Axes outer;                    // one copy for each index of these
  int64_t outer_dense[TRIPOD_MAX_RANK];  // their steps in the dense tensor, in elements
  int64_t width, height;         // bytes, pieces
  int64_t pitch, dense_pitch;    // bytes
  int64_t copies;
};

// The longest axis whose pieces can lie at a pitch becomes the height. Axes of negative steps, and broadcast ones, are
// copied one index after the other.
Pieces cut(int32_t rank, const int64_t* shape, const int64_t* strides, int32_t size) {
  Axes all = merge_axes(rank, shape, strides);
  int64_t dense[TRIPOD_MAX_RANK + 1] = {1};
  for (int32_t a = 0; a < all.count; ++a) dense[a + 1] = dense[a] * all.extents[a];
  Pieces p = {};
  bool row = all.steps[0] == 1;
  p.width = row ? all.extents[0] * size : size;
  p.height = p.copies = 1;
  p.pitch = p.dense_pitch = p.width;
  int32_t rows = -1;
  for (int32_t a = row ? 1 : 0; a < all.count; ++a) {
    bool fits = all.steps[a] >= (p.width + size - 1) / size && all.steps[a] <= kMaxPitch / size && dense[a] <= kMaxPitch / size;
    if (fits && (rows < 0 || all.extents[a] > all.extents[rows])) rows = a;
  }
  if (rows >= 0) p.height = all.extents[rows], p.pitch = all.steps[rows] * size, p.dense_pitch = dense[rows] * size;
  for (int32_t a = row ? 1 : 0; a < all.count; ++a) {
    if (a == rows) continue;
    int32_t k = p.outer.count++;
    p.outer.extents[k] = all.extents[a];
    p.outer.steps[k] = all.steps[a];
    p.outer_dense[k] = dense[a];
    if (__builtin_mul_overflow(p.copies, all.extents[a], &p.copies)) p.copies = INT64_MAX;
  }
  return p;
}

Result copy_piece(const State& s, const Pieces& p, Copy direction, Address dense, Address strided) {
  bool gather = direction == Copy::gather;
  Copy2d c = {};
  c.from_type = c.to_type = kMemoryDevice;
  c.from_device = gather ? strided : dense;
  c.to_device = gather ? dense : strided;
  c.from_pitch = static_cast<size_t>(gather ? p.pitch : p.dense_pitch);
  c.to_pitch = static_cast<size_t>(gather ? p.dense_pitch : p.pitch);
  c.width = static_cast<size_t>(p.width);
  c.height = static_cast<size_t>(p.height);
  return s.driver->copy_2d_async(&c, s.stream);
}

tripod_status copy_pieces(tp_run& run, Copy direction, const char* dense_data, const void* strided_data,
                          const tripod_tensor& t, int32_t size) {
  Pieces p = cut(t.rank, t.shape, t.strides, size);
  int64_t dense = 0, strided = 0, index[TRIPOD_MAX_RANK] = {};
  for (int64_t n = 0; n < p.copies; ++n) {
    Result r = copy_piece(*run.cuda, p, direction, reinterpret_cast<Address>(dense_data) + static_cast<Address>(dense * size),
                          reinterpret_cast<Address>(strided_data) + static_cast<Address>(strided * size));
    if (r != 0) return driver_failed(run, r, "copying a strided tensor");
    for (int32_t a = 0; a < p.outer.count; ++a) {
      dense += p.outer_dense[a];
      strided += p.outer.steps[a];
      if (++index[a] < p.outer.extents[a]) break;
      dense -= p.outer_dense[a] * p.outer.extents[a];
      strided -= p.outer.steps[a] * p.outer.extents[a];
      index[a] = 0;
    }
  }
  return TRIPOD_OK;
}

tripod_status refuse_capture(tp_run& run, const char* kind, int32_t i, const char* name) {
  return fail(run, TRIPOD_INVALID_ARGUMENT, "the call cannot be captured: %s %d '%s' is on cpu, wanted cuda:%d", kind, i,
              name, run.cuda->device->id);
}

bool may_copy(const tripod_tensor& t, int32_t dtype, int64_t* copies) {
  *copies = element_bits(dtype) < 8 ? INT64_MAX : cut(t.rank, t.shape, t.strides, element_bytes(dtype)).copies;
  return *copies <= kMaxCopies;
}

}  // namespace

tripod_status check_input_device(tp_run& run, int32_t i, const tripod_value* inputs) {
  const tripod_tensor& t = inputs[i].tensor;
  const char* name = tp_the_model.inputs[i].name;
  int32_t id = run.cuda->device->id;
  char device[32], first[32];
  describe_device(t, device, sizeof device);
  bool here = on_device(t) && t.device_id == id;
  if (!here && enum_value(t.device) != TRIPOD_CPU)
    return fail(run, TRIPOD_INVALID_ARGUMENT, INPUT ": is on %s, wanted cuda:%d or cpu", i, name,
                describe_device(t, device, sizeof device), id);
  if (here == on_device(inputs[0].tensor)) return TRIPOD_OK;
  return fail(run, TRIPOD_INVALID_ARGUMENT, INPUT ": is on %s, input 0 '%s' on %s: wanted all of them on one device", i,
              name, describe_device(t, device, sizeof device), tp_the_model.inputs[0].name,
              describe_device(inputs[0].tensor, first, sizeof first));
}

tripod_status check_output_device(tp_run& run, int32_t i, const tripod_tensor& t) {
  int32_t id = run.cuda->device->id;
  if (enum_value(t.device) == TRIPOD_CPU || (on_device(t) && (t.device_id == id || !t.data))) return TRIPOD_OK;
  char device[32];
  return fail(run, TRIPOD_INVALID_ARGUMENT, OUTPUT ": is on %s, wanted cuda:%d or cpu", i, tp_the_model.outputs[i].name,
              describe_device(t, device, sizeof device), id);
}

tripod_status bind_device_input(tp_run& run, int32_t i, const tripod_tensor& t, int64_t bytes) {
  if (is_dense(t)) {
    run.inputs[i] = static_cast<char*>(t.data);
    return TRIPOD_OK;
  }
  const tp_io& io = tp_the_model.inputs[i];
  int64_t copies;
  if (!may_copy(t, io.dtype, &copies))
    return fail(run, TRIPOD_INVALID_ARGUMENT,
                INPUT ": is strided, and packing it takes %lld copies on the GPU: pass a contiguous tensor", i, io.name,
                static_cast<long long>(copies));
  Buffer& staging = run.cuda->inputs[i];
  if (!reserve_device(run, staging, bytes, "a dense copy of an input")) return static_cast<tripod_status>(run.status);
  run.inputs[i] = staging.data;
  return copy_pieces(run, Copy::gather, staging.data, t.data, t, element_bytes(io.dtype));
}

tripod_status upload_input(tp_run& run, int32_t i, int64_t bytes) {
  State& s = *run.cuda;
  if (is_capturing(s)) return refuse_capture(run, "input", i, tp_the_model.inputs[i].name);
  s.host_data = true;
  Buffer& staging = s.inputs[i];
  if (!reserve_device(run, staging, bytes, "an input")) return static_cast<tripod_status>(run.status);
  Result r = s.driver->copy_to_device_async(reinterpret_cast<Address>(staging.data), run.inputs[i],
                                            static_cast<size_t>(bytes), s.stream);
  if (r != 0) return driver_failed(run, r, "copying an input to the GPU");
  run.inputs[i] = staging.data;
  return TRIPOD_OK;
}

char* output_memory(tp_run& run, int32_t i, int64_t bytes, bool given) {
  State& s = *run.cuda;
  OutputSlot& slot = run.outputs[i];
  const tripod_tensor& t = slot.value->tensor;
  const char* name = tp_the_model.outputs[i].name;
  bool dense = !given || is_dense(t);
  int32_t dtype = tp_the_model.outputs[i].dtype;
  if (bytes == 0) return empty_data();
  if (dense && on_device(t)) return static_cast<char*>(t.data);
  int64_t copies = 1;
  if (!on_device(t) && is_capturing(s)) {
    refuse_capture(run, "output", i, name);
    return nullptr;
  }
  if (!dense && on_device(t) && !may_copy(t, dtype, &copies)) {
    fail(run, TRIPOD_INVALID_ARGUMENT,
         OUTPUT ": is strided, and filling it takes %lld copies on the GPU: pass a contiguous tensor", i, name,
         static_cast<long long>(copies));
    return nullptr;
  }
  if (!on_device(t) && !dense && !reserve(slot.staging, bytes)) {
    fail(run, TRIPOD_OUT_OF_MEMORY, OUTPUT ": out of memory: %lld bytes for a dense copy", i, name,
         static_cast<long long>(bytes));
    return nullptr;
  }
  if (!reserve_device(run, s.outputs[i], bytes, "an output")) return nullptr;
  slot.staged = true;
  slot.strided = !dense;
  if (!on_device(t)) s.host_data = true;
  return s.outputs[i].data;
}

// Staged outputs go to where the caller wants them; the call has ended on the GPU if one of them is host memory.
tripod_status collect_outputs(tp_run& run) {
  State& s = *run.cuda;
  if (tripod_status bad = flush_launches(run)) return bad;
  bool host = false;
  for (int32_t i = 0; i < tp_the_model.num_outputs; ++i) {
    OutputSlot& slot = run.outputs[i];
    if (!slot.staged) continue;
    const tripod_tensor& t = slot.value->tensor;
    int32_t dtype = tp_the_model.outputs[i].dtype;
    if (on_device(t)) {
      if (tripod_status bad = copy_pieces(run, Copy::scatter, s.outputs[i].data, t.data, t, element_bytes(dtype))) return bad;
      continue;
    }
    int64_t count, bytes;
    dense_bytes(dtype, slot.rank, slot.shape, &count, &bytes);
    host = true;
    Result r = s.driver->copy_to_host_async(slot.strided ? slot.staging.data : t.data,
                                            reinterpret_cast<Address>(s.outputs[i].data), static_cast<size_t>(bytes), s.stream);
    if (r != 0) return driver_failed(run, r, "copying an output to the host");
  }
  if (!host) return TRIPOD_OK;
  if (tripod_status bad = wait(run)) return bad;
  for (int32_t i = 0; i < tp_the_model.num_outputs; ++i) {
    OutputSlot& slot = run.outputs[i];
    const tripod_tensor& t = slot.value->tensor;
    if (slot.staged && slot.strided && !on_device(t))
      copy_strided(Copy::scatter, slot.staging.data, static_cast<char*>(t.data), slot.rank, slot.shape, t.strides,
                   element_bytes(tp_the_model.outputs[i].dtype));
  }
  return TRIPOD_OK;
}

}  // namespace tripod::rt::cuda
