// Calls through TVM-FFI: arguments become tripod values, outputs become tensors of the host's allocator, or of our own
// memory where the host has none (numpy).
#include "runtime/tvm_ffi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/internal.h"

namespace tripod::rt::ffi {
namespace {

constexpr struct {
  int32_t dtype;
  uint8_t code, bits;
} kTypes[] = {
    {TRIPOD_F32, 2, 32},      {TRIPOD_I64, 0, 64},        {TRIPOD_I32, 0, 32},     {TRIPOD_F64, 2, 64},
    {TRIPOD_F16, 2, 16},      {TRIPOD_BF16, 4, 16},       {TRIPOD_U8, 1, 8},       {TRIPOD_I8, 0, 8},
    {TRIPOD_BOOL, 6, 8},      {TRIPOD_BOOL, 1, 1},        {TRIPOD_I16, 0, 16},     {TRIPOD_U16, 1, 16},
    {TRIPOD_U32, 1, 32},      {TRIPOD_U64, 1, 64},        {TRIPOD_I4, 0, 4},       {TRIPOD_U4, 1, 4},
    {TRIPOD_F8E4M3FN, 10, 8}, {TRIPOD_F8E4M3FNUZ, 11, 8}, {TRIPOD_F8E5M2, 12, 8}, {TRIPOD_F8E5M2FNUZ, 13, 8},
};

int32_t from_dlpack(DataType type) {
  for (const auto& row : kTypes)
    if (row.code == type.code && row.bits == type.bits && type.lanes == 1) return row.dtype;
  return -1;
}

DataType to_dlpack(int32_t dtype) {
  for (const auto& row : kTypes)
    if (row.dtype == dtype) return {row.code, row.bits, 1};
  return {};
}

tripod_device from_dlpack(Device device) {
  if (device.type == kDeviceCpu || device.type == kDeviceCudaHost) return TRIPOD_CPU;
  bool gpu = device.type == kDeviceCuda || device.type == kDeviceCudaManaged;
  return gpu ? TRIPOD_CUDA : enum_from<tripod_device>(device.type);
}

// nullptr when the argument is not a tensor.
const Tensor* as_tensor(const Any& argument) {
  if (argument.type == kTensorObject) return tensor_of(argument.pointer);
  return argument.type == kTensorPointer ? static_cast<Tensor*>(argument.pointer) : nullptr;
}

bool to_value(const Any& argument, tripod_value& value) {
  const Tensor* t = as_tensor(argument);
  if (!t) return false;
  value.kind = TRIPOD_TENSOR;
  value.tensor = {t->data ? static_cast<char*>(t->data) + t->byte_offset : nullptr,
                  t->shape,
                  t->strides,
                  t->rank,
                  enum_from<tripod_dtype>(from_dlpack(t->dtype)),
                  from_dlpack(t->device),
                  t->device.id};
  return true;
}

// A tensor in memory of our own: one block that begins with the managed tensor, so that its deleter can be free(),
// which is still there when model.so is not.
void* own_tensor(const Library& l, size_t bytes, int32_t dtype, int32_t rank, const int64_t* shape, void** data) {
  size_t head = (sizeof(ManagedTensor) + 2 * sizeof(int64_t) * static_cast<size_t>(rank) + 63) & ~size_t{63};
  void* block = nullptr;
  if (bytes > SIZE_MAX - head || posix_memalign(&block, 64, head + bytes) != 0) return nullptr;
  auto* managed = static_cast<ManagedTensor*>(block);
  auto* dims = reinterpret_cast<int64_t*>(managed + 1);
  int64_t stride = 1;
  for (int32_t i = rank; i-- > 0;) {
    dims[i] = shape[i];
    dims[rank + i] = stride;
    stride *= shape[i];
  }
  *data = static_cast<char*>(block) + head;
  *managed = {1, 0, nullptr, free, 0, {*data, {kDeviceCpu, 0}, rank, to_dlpack(dtype), dims, dims + rank, 0}};
  void* tensor = nullptr;
  if (l.tensor_from_dlpack(managed, 0, 0, &tensor) == 0) return tensor;
  free(block);
  return nullptr;
}

// The allocator of these contexts.
void* allocate(void* user, int32_t output, size_t bytes, tripod_dtype dtype, int32_t rank, const int64_t* shape) {
  auto* context = static_cast<tripod_context*>(user);
  const Library& l = *library();
  void* data = nullptr;
  const tripod_tensor& wanted = context->values[tp_the_model.num_inputs + output].tensor;
  bool gpu = enum_value(wanted.device) == TRIPOD_CUDA;
  if (l.environment_allocator()) {  // asking first: a failed environment_alloc collects a backtrace
    Tensor prototype = {nullptr, {gpu ? kDeviceCuda : kDeviceCpu, wanted.device_id}, rank, to_dlpack(dtype), const_cast<int64_t*>(shape), nullptr, 0};
    if (l.environment_alloc(&prototype, &context->handles[output]) != 0) return nullptr;
    Tensor* made = tensor_of(context->handles[output]);
    data = made->data ? static_cast<char*>(made->data) + made->byte_offset : nullptr;
  } else if (gpu) {
    fail(context->run, TRIPOD_INVALID_ARGUMENT,
         "output %d '%s': the host has set no allocator for GPU memory: call main_into with outputs, or pass torch tensors",
         output, tp_the_model.outputs[output].name);
  } else {
    context->handles[output] = own_tensor(l, bytes, dtype, rank, shape, &data);
  }
  return data;
}

// Where the call runs: on the GPU of the first tensor that is on one.
int32_t gpu_of(const Any* args, int32_t count, bool* found) {
  *found = false;
  for (int32_t i = 0; i < count; ++i) {
    const Tensor* t = as_tensor(args[i]);
    if (!t || from_dlpack(t->device) != TRIPOD_CUDA) continue;
    *found = true;
    return t->device.id;
  }
  return 0;
}

tripod_status context_for(const Library& l, const Any* args, int32_t count, tripod_context** out) {
  if (!tp_the_model.device) {
    *out = take_context();
    return *out ? TRIPOD_OK : set_last_error(TRIPOD_OUT_OF_MEMORY, "out of memory");
  }
  bool found;
  int32_t id = gpu_of(args, count, &found);
  return take_context(id, l.environment_stream(kDeviceCuda, id), out);
}

tripod_status run_with(tripod_context& context, const Any* args, int32_t count, bool into) {
  int32_t num_inputs = tp_the_model.num_inputs, num_outputs = tp_the_model.num_outputs;
  int32_t wanted = num_inputs + (into ? num_outputs : 0);
  if (count != wanted)
    return set_last_error(TRIPOD_INVALID_ARGUMENT, "%s: got %d arguments, wanted %d (%d inputs%s)",
                          into ? "main_into" : "main", count, wanted, num_inputs, into ? ", then the outputs" : "");
  for (int32_t i = 0; i < count; ++i)
    if (!to_value(args[i], context.values[i])) {
      bool input = i < num_inputs;
      const tp_io& io = input ? tp_the_model.inputs[i] : tp_the_model.outputs[i - num_inputs];
      return set_last_error(TRIPOD_INVALID_ARGUMENT, "%s %d '%s': got an argument of TVM-FFI type %d, wanted a tensor",
                            input ? "input" : "output", input ? i : i - num_inputs, io.name, args[i].type);
    }
  bool gpu = false;
  int32_t id = context.run.cuda ? gpu_of(args, num_inputs, &gpu) : 0;
  for (int32_t i = 0; !into && i < num_outputs; ++i) {
    tripod_value& output = context.values[num_inputs + i];
    output = {};
    output.tensor.device = gpu ? TRIPOD_CUDA : TRIPOD_CPU;
    output.tensor.device_id = id;
  }
  context.run.allocator = into ? nullptr : allocate;
  context.run.allocator_user = &context;
  return run_model(context.run, context.values, num_inputs, context.values + num_inputs, num_outputs);
}

// One tensor as itself, several as an ffi.Array, none as None. Takes over the references in `handles`.
int return_tensors(const Library& l, void** handles, int32_t count, Any* args, Any* result) {
  if (count == 0) return 0;
  for (int32_t i = 0; i < count; ++i) args[i] = {kTensorObject, 0, {.pointer = handles[i]}};
  if (count == 1) {
    *result = args[0];
    return 0;
  }
  static std::atomic<void*> array_function;
  void* make_array = array_function.load(std::memory_order_acquire);
  int code = 0;
  if (!make_array) {
    Bytes name = {"ffi.Array", 9};
    code = l.get_global(&name, &make_array);
    if (code == 0 && !make_array) code = raise(TRIPOD_RUNTIME_ERROR, "this libtvm_ffi has no function ffi.Array");
    if (code == 0) array_function.store(make_array, std::memory_order_release);
  }
  if (code == 0) code = l.call(make_array, args, count, result);
  for (int32_t i = 0; i < count; ++i) l.decrease_reference(handles[i]);
  return code;
}

}  // namespace

int call_main(const Any* args, int32_t count, Any* result) {
  const Library* l = library();
  if (!l) return -1;
  tripod_context* context;
  if (tripod_status bad = context_for(*l, args, count, &context)) return raise(bad, last_error());
  tripod_status status = run_with(*context, args, count, false);
  int32_t n = tp_the_model.num_outputs;
  int code = -1;
  if (status == TRIPOD_OK) {
    static_assert(sizeof(Any) <= sizeof(tripod_value));  // the values have served: their memory holds the arguments
    code = return_tensors(*l, context->handles, n, reinterpret_cast<Any*>(context->values), result);
  } else {
    for (int32_t i = 0; i < n; ++i)
      if (context->handles[i]) l->decrease_reference(context->handles[i]);
    raise(status, last_error());
  }
  for (int32_t i = 0; i < n; ++i) context->handles[i] = nullptr;
  give_context(context);
  return code;
}

int call_main_into(const Any* args, int32_t count) {
  const Library* l = library();
  if (!l) return -1;
  tripod_context* context;
  if (tripod_status bad = context_for(*l, args, count, &context)) return raise(bad, last_error());
  tripod_status status = run_with(*context, args, count, true);
  give_context(context);
  return status == TRIPOD_OK ? 0 : raise(status, last_error());
}

int call_synchronize() {
  tripod_status status = synchronize_contexts();
  return status == TRIPOD_OK ? 0 : raise(status, last_error());
}

}  // namespace tripod::rt::ffi
