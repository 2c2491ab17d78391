// Outputs: the caller's memory, checked against the final shape and staged when it is strided, or the allocator's.
#include "runtime/cuda.h"
#include "runtime/internal.h"

namespace tripod::rt {
namespace {

#define OUTPUT "output %d '%s'"

// What can be checked before the shape is known.
tripod_status check_output(tp_run& run, int32_t i, const tripod_value& value) {
  const tp_io& io = tp_the_model.outputs[i];
  const tripod_tensor& t = value.tensor;
  int32_t kind = io.dtype == TRIPOD_STRING ? TRIPOD_STRINGS : TRIPOD_TENSOR;
  if (enum_value(value.kind) != kind)
    return fail(run, TRIPOD_INVALID_ARGUMENT, OUTPUT ": got %s, wanted %s", i, io.name,
                kind_name(enum_value(value.kind)), kind_name(kind));
  if (run.cuda)
    if (tripod_status bad = cuda::check_output_device(run, i, t)) return bad;
  if (!t.data) return TRIPOD_OK;
  if (io.dtype != TRIPOD_STRING && enum_value(t.dtype) != io.dtype)
    return fail(run, TRIPOD_INVALID_ARGUMENT, OUTPUT ": dtype is %s, wanted %s", i, io.name, dtype_name(enum_value(t.dtype)),
                dtype_name(io.dtype));
  if (!run.cuda && enum_value(t.device) != TRIPOD_CPU) {
    char device[32];
    return fail(run, TRIPOD_INVALID_ARGUMENT, OUTPUT ": is on %s, wanted cpu", i, io.name,
                describe_device(t, device, sizeof device));
  }
  int32_t unit = element_bytes(io.dtype);
  if (reinterpret_cast<uintptr_t>(t.data) & static_cast<uintptr_t>(unit - 1))
    return fail(run, TRIPOD_INVALID_ARGUMENT,
                OUTPUT ": data is at address %p, wanted a multiple of %d (its %s elements)", i, io.name, t.data, unit,
                dtype_name(io.dtype));
  return TRIPOD_OK;
}

tripod_status check_shape(tp_run& run, int32_t i, int32_t rank, const int64_t* shape) {
  const tripod_tensor& t = run.outputs[i].value->tensor;
  const char* name = tp_the_model.outputs[i].name;
  if (t.rank != rank)
    return fail(run, TRIPOD_INVALID_ARGUMENT, OUTPUT ": rank of the given memory is %d, wanted %d", i, name, t.rank,
                rank);
  if (rank > 0 && !t.shape)
    return fail(run, TRIPOD_INVALID_ARGUMENT, OUTPUT ": shape of the given memory is null, wanted %d dims", i, name,
                rank);
  for (int32_t a = 0; a < rank; ++a)
    if (t.shape[a] != shape[a])
      return fail(run, TRIPOD_INVALID_ARGUMENT, OUTPUT " axis %d: got %lld, wanted %lld", i, name, a,
                  static_cast<long long>(t.shape[a]), static_cast<long long>(shape[a]));
  return TRIPOD_OK;
}

bool overlap(const char* a, int64_t a_bytes, const char* b, int64_t b_bytes) { return a < b + b_bytes && b < a + a_bytes; }

// The program may write an output before it has read all of an input, so the caller's memory must be apart.
tripod_status check_apart(tp_run& run, int32_t i, const char* data, int64_t bytes) {
  const tp_model& model = tp_the_model;
  for (int32_t k = 0; k < model.num_inputs; ++k) {
    if (model.shares && model.shares[i] == k && data == run.inputs[k]) continue;
    if (overlap(data, bytes, run.inputs[k], run.input_bytes[k]))
      return fail(run, TRIPOD_INVALID_ARGUMENT, OUTPUT ": its memory overlaps that of input %d '%s'", i, model.outputs[i].name,
                  k, model.inputs[k].name);
  }
  for (int32_t k = 0; k < model.num_outputs; ++k)
    if (run.outputs[k].produced && overlap(data, bytes, run.outputs[k].data, run.outputs[k].bytes))
      return fail(run, TRIPOD_INVALID_ARGUMENT, OUTPUT ": its memory overlaps that of output %d '%s'", i,
                  model.outputs[i].name, k, model.outputs[k].name);
  return TRIPOD_OK;
}

// The caller's memory, or a staging buffer when it is strided.
char* given_memory(tp_run& run, int32_t i, int32_t rank, const int64_t* shape, int64_t bytes) {
  OutputSlot& slot = run.outputs[i];
  const tripod_tensor& t = slot.value->tensor;
  if (check_shape(run, i, rank, shape) != TRIPOD_OK) return nullptr;
  if (run.cuda) return cuda::output_memory(run, i, bytes, true);
  if (is_dense(t)) {
    char* data = static_cast<char*>(t.data);
    return check_apart(run, i, data, bytes) == TRIPOD_OK ? data : nullptr;
  }
  const tp_io& io = tp_the_model.outputs[i];
  if (element_bits(io.dtype) < 8) {
    fail(run, TRIPOD_INVALID_ARGUMENT, OUTPUT ": is strided, wanted dense memory for %s", i, io.name,
         dtype_name(io.dtype));
    return nullptr;
  }
  if (!reserve(slot.staging, bytes)) {
    fail(run, TRIPOD_OUT_OF_MEMORY, OUTPUT ": out of memory: %lld bytes for a dense copy", i, io.name,
         static_cast<long long>(bytes));
    return nullptr;
  }
  slot.staged = slot.strided = true;
  return slot.staging.data;
}

char* allocated_memory(tp_run& run, int32_t i, int32_t rank, const int64_t* shape, int64_t bytes) {
  const tp_io& io = tp_the_model.outputs[i];
  if (!run.allocator) {
    if (bytes == 0) return empty_data();
    fail(run, TRIPOD_INVALID_ARGUMENT, OUTPUT ": data is null and the context has no allocator", i, io.name);
    return nullptr;
  }
  auto dtype = static_cast<tripod_dtype>(io.dtype);
  void* data = run.allocator(run.allocator_user, i, static_cast<size_t>(bytes), dtype, rank, shape);
  if (!data && bytes == 0) return empty_data();
  if (!data)
    fail(run, TRIPOD_OUT_OF_MEMORY, OUTPUT ": out of memory: the allocator gave nothing for %lld bytes", i, io.name,
         static_cast<long long>(bytes));
  run.outputs[i].value->tensor.data = data;
  run.outputs[i].allocated = true;
  return run.cuda ? cuda::output_memory(run, i, bytes, false) : static_cast<char*>(data);
}

}  // namespace

tripod_status bind_outputs(tp_run& run, tripod_value* outputs, int32_t count) {
  const tp_model& model = tp_the_model;
  if (count != model.num_outputs)
    return fail(run, TRIPOD_INVALID_ARGUMENT, "got %d outputs, wanted %d", count, model.num_outputs);
  if (count > 0 && !outputs) return fail(run, TRIPOD_INVALID_ARGUMENT, "outputs is null, wanted %d", count);
  for (int32_t i = 0; i < count; ++i)
    if (tripod_status bad = check_output(run, i, outputs[i])) return bad;
  for (int32_t i = 0; i < count; ++i) {
    OutputSlot& slot = run.outputs[i];
    slot.value = &outputs[i];
    slot.produced = slot.allocated = slot.staged = slot.strided = false;
  }
  return TRIPOD_OK;
}

// After a good run: strided outputs are scattered, and the caller sees the final shapes.
tripod_status finish_outputs(tp_run& run) {
  for (int32_t i = 0; i < tp_the_model.num_outputs; ++i)
    if (!run.outputs[i].produced)
      return fail(run, TRIPOD_RUNTIME_ERROR, OUTPUT ": the program ended without producing it", i,
                  tp_the_model.outputs[i].name);
  if (run.cuda)
    if (tripod_status bad = cuda::collect_outputs(run)) return bad;
  for (int32_t i = 0; i < tp_the_model.num_outputs; ++i) {
    OutputSlot& slot = run.outputs[i];
    tripod_tensor& t = slot.value->tensor;
    const tp_io& io = tp_the_model.outputs[i];
    if (slot.staged && !run.cuda)
      copy_strided(Copy::scatter, slot.staging.data, static_cast<char*>(t.data), slot.rank, slot.shape, t.strides,
                   element_bytes(io.dtype));
    if (t.data && !slot.allocated) continue;  // the caller's own description, found to be right
    t.rank = slot.rank;
    t.shape = slot.shape;
    t.dtype = static_cast<tripod_dtype>(io.dtype);
    t.device = run.cuda ? t.device : TRIPOD_CPU;
    t.device_id = run.cuda && t.device == TRIPOD_CUDA ? run.cuda->device->id : 0;
  }
  return TRIPOD_OK;
}

// After a failed run: the caller's values are as they came, so that the call can be made again.
void drop_outputs(tp_run& run) {
  for (int32_t i = 0; i < tp_the_model.num_outputs; ++i)
    if (run.outputs[i].allocated) run.outputs[i].value->tensor.data = nullptr;
}

}  // namespace tripod::rt

using namespace tripod::rt;

char* tp_output(tp_run* run, int32_t i, int32_t rank, const int64_t* shape) {
  OutputSlot& slot = run->outputs[i];
  const tp_io& io = tp_the_model.outputs[i];
  int64_t count, bytes;
  if (rank < 0 || rank > TRIPOD_MAX_RANK || !dense_bytes(io.dtype, rank, shape, &count, &bytes)) {
    fail(*run, TRIPOD_RUNTIME_ERROR, OUTPUT ": the model computed a shape that no memory can hold", i, io.name);
    return nullptr;
  }
  // The caller's shape may be this slot's own, from the last run: it is compared before it is overwritten.
  char* memory = slot.value->tensor.data ? given_memory(*run, i, rank, shape, bytes)
                                         : allocated_memory(*run, i, rank, shape, bytes);
  if (!memory) return nullptr;
  slot.rank = rank;
  for (int32_t a = 0; a < rank; ++a) slot.shape[a] = shape[a];
  slot.data = memory;
  slot.bytes = bytes;
  slot.produced = true;
  return memory;
}
