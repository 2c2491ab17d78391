// The C API's symbol, and what happens when model.so is unloaded. Built for plain x86-64, as cpu.cc: everything that
// a too old CPU may reach is here, and everything else is behind the check.
#include "runtime/cuda.h"
#include "runtime/internal.h"

#define TP_EXPORT __attribute__((visibility("default")))

namespace tripod::rt {
namespace {

tripod_status checked_create_context(const tripod_context_options* options, tripod_context** out) {
  if (const char* problem = cpu_problem()) return set_last_error(TRIPOD_UNSUPPORTED, "%s", problem);
  return api_create_context(options, out);
}

tripod_status checked_set_num_threads(int32_t n) {
  if (const char* problem = cpu_problem()) return set_last_error(TRIPOD_UNSUPPORTED, "%s", problem);
  return set_num_threads(n);
}

const char* describe() { return tp_the_model.manifest; }
int32_t num_inputs() { return tp_the_model.num_inputs; }
int32_t num_outputs() { return tp_the_model.num_outputs; }

// run and destroy_context need a context, which no CPU without the features gets.
constexpr tripod_api kApi = {
    TRIPOD_API_VERSION,  describe, num_inputs,              num_outputs, checked_create_context,
    api_destroy_context, api_run,  checked_set_num_threads, last_error,  api_synchronize,
};

// Helpers must be gone before their code is.
__attribute__((destructor)) void unload() {
  if (cpu_problem()) return;
  stop_pool();
  delete_pooled_contexts();
  cuda::close_devices();
  unmap_weights();
}

}  // namespace
}  // namespace tripod::rt

extern "C" TP_EXPORT const tripod_api* tripod_get_api(uint32_t version) {
  return version == TRIPOD_API_VERSION ? &tripod::rt::kApi : nullptr;
}
