// The functions of tripod_api that touch contexts.
#include "runtime/cuda.h"
#include "runtime/internal.h"

void tp_copy(void* to, const void* from, int64_t bytes) { __builtin_memmove(to, from, static_cast<size_t>(bytes)); }

namespace tripod::rt {

tripod_status api_create_context(const tripod_context_options* options, tripod_context** out) {
  if (!out) return set_last_error(TRIPOD_INVALID_ARGUMENT, "create_context: out is null");
  *out = nullptr;
  if (options && options->version != TRIPOD_API_VERSION)
    return set_last_error(TRIPOD_INVALID_ARGUMENT, "create_context: version is %u, wanted %u", options->version,
                          static_cast<uint32_t>(TRIPOD_API_VERSION));
  bool gpu = tp_the_model.device != nullptr;
  if (!gpu && options && enum_value(options->device) != TRIPOD_CPU)
    return set_last_error(TRIPOD_UNSUPPORTED, "create_context: this model has code for the CPU only");
  if (gpu && options && enum_value(options->device) != TRIPOD_CUDA)
    return set_last_error(TRIPOD_UNSUPPORTED, "create_context: this model has code for GPUs only: device must be TRIPOD_CUDA");
  if (!weights()) return TRIPOD_RUNTIME_ERROR;  // and its message
  tripod_context* context = new_context();
  if (!context) return set_last_error(TRIPOD_OUT_OF_MEMORY, "create_context: out of memory");
  if (gpu)
    if (tripod_status bad = cuda::attach(context->run, options ? options->device_id : 0, options ? options->stream : nullptr, false,
                                       options && options->cuda_graphs)) {
      delete_context(context);
      return bad;
    }
  if (options) {
    context->run.allocator = options->allocator;
    context->run.allocator_user = options->allocator_user;
    context->run.step_hook = options->step_hook;
    context->run.step_user = options->step_user;
  }
  *out = context;
  return TRIPOD_OK;
}

void api_destroy_context(tripod_context* context) { delete_context(context); }

tripod_status api_run(tripod_context* context, const tripod_value* inputs, int32_t num_inputs, tripod_value* outputs,
                      int32_t num_outputs) {
  if (!context) return set_last_error(TRIPOD_INVALID_ARGUMENT, "run: the context is null");
  Lock lock(context->lock);
  return run_model(context->run, inputs, num_inputs, outputs, num_outputs);
}

tripod_status api_synchronize(tripod_context* context) {
  if (!context) return set_last_error(TRIPOD_INVALID_ARGUMENT, "synchronize: the context is null");
  Lock lock(context->lock);
  return context->run.cuda ? cuda::synchronize(context->run) : TRIPOD_OK;
}

}  // namespace tripod::rt
