// Steps as the program takes them: a kernel, an operator, a copy; and what a context with a step hook hears of them.
// Without a hook a step costs one test of a field that the call has in cache, and a jump.
#include <time.h>

#include "runtime/internal.h"

namespace tripod::rt {
namespace {

constexpr int32_t kMaxBuffers = 32;  // of a step, that a hook is shown

int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{1'000'000'000} * t.tv_sec + t.tv_nsec;
}

template <typename F>
auto hooked(tp_run& run, int32_t step, int32_t count, const void* const* buffers, const F& work) {
  const int64_t start = now();
  auto code = work();
  tripod_step seen = {step, count, buffers, run.dims, now() - start};
  run.step_hook(run.step_user, &seen);
  return code;
}

}  // namespace
}  // namespace tripod::rt

using namespace tripod::rt;

int32_t tp_step_launch(tp_run* run, tp_kernel kernel, uint64_t* args, int64_t extent, int64_t grain,
                       int64_t scratch_bytes) {
  if (!run->step_hook) return tp_launch(run, kernel, args, extent, grain, scratch_bytes);
  const auto step = static_cast<int32_t>(args[0]), count = static_cast<int32_t>(args[0] >> 32);
  return hooked(*run, step, count, reinterpret_cast<const void* const*>(args + 1),
                [&] { return tp_launch(run, kernel, args, extent, grain, scratch_bytes); });
}

int32_t tp_step_call(tp_run* run, tp_operator function, const tp_view* views, const int64_t* attrs, int32_t num_views,
                     int32_t step) {
  if (!run->step_hook) return function(run, views, attrs);
  const int32_t count = num_views < kMaxBuffers ? num_views : kMaxBuffers;
  const void* buffers[kMaxBuffers];
  for (int32_t i = 0; i < count; ++i) buffers[i] = views[i].data;
  return hooked(*run, step, count, buffers, [&] { return function(run, views, attrs); });
}

void tp_step_copy(tp_run* run, void* to, const void* from, int64_t bytes, int32_t step) {
  if (!run->step_hook) return tp_copy(to, from, bytes);
  const void* buffers[] = {to, from};
  hooked(*run, step, 2, buffers, [&] { return tp_copy(to, from, bytes), 0; });
}
