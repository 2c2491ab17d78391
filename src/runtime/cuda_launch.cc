// Kernel launches: the fast path of every model on a GPU. No lock, no look-up, no allocation.
#include <stdio.h>

#include "runtime/cuda.h"

namespace tripod::rt::cuda {
namespace {

tripod_status launch_failed(tp_run& run, int32_t k, const int64_t* g, Result error) {
  const tp_device_part& part = *tp_the_model.device;
  run.cuda->last_kernel = k;
  char what[320];
  snprintf(what, sizeof what, "kernel '%s' (%s), grid %lldx%lldx%lld, block %lldx%lldx%lld, %lld bytes of shared memory",
           part.kernels[k], part.origins[k], static_cast<long long>(g[0]), static_cast<long long>(g[1]),
           static_cast<long long>(g[2]), static_cast<long long>(g[3]), static_cast<long long>(g[4]),
           static_cast<long long>(g[5]), static_cast<long long>(g[6]));
  if (error) return driver_failed(run, error, what);
  return fail(run, TRIPOD_RUNTIME_ERROR, "%s: a launch cannot have these numbers", what);
}

// Static and dynamic shared memory of more than 48 KB together have to be asked for, once a kernel. The same limit from
// every thread, so that they cannot undo each other's.
tripod_status allow_shared(tp_run& run, int32_t k, const int64_t* g) {
  Device& d = *run.cuda->device;
  const tp_device_part& part = *tp_the_model.device;
  int32_t fixed = 0;
  Result r = d.driver->function_attribute(&fixed, kFunctionStaticShared, d.functions[k]);
  if (r == 0 && g[6] > d.shared_limit - fixed)
    return fail(run, TRIPOD_UNSUPPORTED, "kernel '%s' (%s): %lld bytes of shared memory wanted, cuda:%d has %d a block",
                part.kernels[k], part.origins[k], static_cast<long long>(g[6] + fixed), d.id, d.shared_limit);
  if (r == 0) r = d.driver->function_set_attribute(d.functions[k], kFunctionDynamicShared, d.shared_limit - fixed);
  if (r != 0) return launch_failed(run, k, g, r);
  d.shared_allowed[k].store(d.shared_limit - fixed, std::memory_order_release);
  return TRIPOD_OK;
}

// A launch that the step hook is told of: alone on the GPU, between two events. Its buffers are the GPU's and are not
// shown.
template <typename F>
Result timed(tp_run& run, int32_t step, const F& launch) {
  State& s = *run.cuda;
  const Driver& d = *s.driver;
  if (is_capturing(s)) return launch();
  Result r = 0;
  if (!s.begin) r = d.event_create(&s.begin, 0);
  if (r == 0 && !s.end) r = d.event_create(&s.end, 0);
  if (r == 0) r = d.stream_synchronize(s.stream);
  if (r == 0) r = d.event_record(s.begin, s.stream);
  if (r == 0) r = launch();
  if (r == 0) r = d.event_record(s.end, s.stream);
  if (r == 0) r = d.event_synchronize(s.end);
  float milliseconds = 0;
  if (r == 0) r = d.event_elapsed(&milliseconds, s.begin, s.end);
  if (r != 0) return r;
  const tripod_step seen = {step, 0, nullptr, run.dims, static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6)};
  run.step_hook(run.step_user, &seen);
  return 0;
}

}  // namespace
}  // namespace tripod::rt::cuda

using namespace tripod::rt;

int32_t tp_launch_grid(tp_run* run, int32_t k, uint64_t* args, int32_t num_args, const int64_t* g) {
  cuda::State& s = *run->cuda;
  if (g[0] == 0 || g[1] == 0 || g[2] == 0) return TRIPOD_OK;
  bool possible = ((g[0] | g[1] | g[2] | g[3] | g[4] | g[5] | g[6]) >> 31) == 0 && num_args <= cuda::kMaxArguments;
  if (!possible) return cuda::launch_failed(*run, k, g, 0);
  if (g[6] > s.device->shared_allowed[k].load(std::memory_order_acquire))
    if (tripod_status bad = cuda::allow_shared(*run, k, g)) return bad;
  const uint64_t step = args[0];
  args[0] = s.record_address;
  if (s.graphs && cuda::collect_launch(s, k, args, num_args, g)) return TRIPOD_OK;
  void* parameters[cuda::kMaxArguments];
  for (int32_t i = 0; i < num_args; ++i) parameters[i] = &args[i];
  auto n = [&](int i) { return static_cast<uint32_t>(g[i]); };
  const auto launch = [&] {
    return s.driver->launch(s.device->functions[k], n(0), n(1), n(2), n(3), n(4), n(5), n(6), s.stream, parameters, nullptr);
  };
  cuda::Result r = run->step_hook ? cuda::timed(*run, static_cast<int32_t>(step), launch) : launch();
  if (r != 0) return cuda::launch_failed(*run, k, g, r);
  s.last_kernel = k;
  return TRIPOD_OK;
}
