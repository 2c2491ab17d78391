// Error state: of a run (the first error wins) and of the calling thread (what last_error() gives).
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/internal.h"

namespace tripod::rt {
namespace {

// Touched by the host's threads only, never by the pool's: the first access on a thread may lock the loader.
thread_local char thread_message[512];

}  // namespace

tripod_status fail(tp_run& run, tripod_status status, const char* format, ...) {
  if (run.status != TRIPOD_OK) return static_cast<tripod_status>(run.status);
  run.status = status;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(run.message, sizeof run.message, format, arguments);
  va_end(arguments);
  return status;
}

tripod_status set_last_error(tripod_status status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(thread_message, sizeof thread_message, format, arguments);
  va_end(arguments);
  return status;
}

const char* last_error() { return thread_message; }

const char* site_name(int32_t site) {
  return site >= 0 && site < tp_the_model.num_sites ? tp_the_model.sites[site] : "the model";
}

}  // namespace tripod::rt

using namespace tripod::rt;

int32_t tp_fail(tp_run* run, int32_t status, int32_t site, const char* message, int64_t got, int64_t wanted) {
  auto code = static_cast<tripod_status>(status);
  if (got == 0 && wanted == 0) return fail(*run, code, "%s: %s", site_name(site), message);
  return fail(*run, code, "%s: %s: got %lld, wanted %lld", site_name(site), message, static_cast<long long>(got),
              static_cast<long long>(wanted));
}

int32_t tp_fail_sizes(tp_run* run, int32_t site, const char* message, const int64_t* numbers) {
  char text[sizeof run->message];
  size_t used = 0;
  for (const char* c = message; *c && used + 1 < sizeof text; ++c) {
    if (*c == kTripodNumber)
      used += static_cast<size_t>(snprintf(text + used, sizeof text - used, "%lld", static_cast<long long>(*numbers++)));
    else
      text[used++] = *c;
  }
  text[used < sizeof text ? used : sizeof text - 1] = 0;
  return fail(*run, TRIPOD_INVALID_ARGUMENT, "%s: %s", site_name(site), text);
}

void tp_kernel_error(tp_run* run, int32_t site, int64_t got, int64_t limit) {
  uint32_t none = 0;
  if (!run->kernel_error.compare_exchange_strong(none, 1)) return;
  run->kernel_site = site;
  run->kernel_got = got;
  run->kernel_limit = limit;
  run->kernel_error.store(2, std::memory_order_release);
}

int32_t tp_set_dim(tp_run* run, int32_t symbol, int64_t value, int32_t site) {
  const tp_symbol& s = tp_the_model.symbols[symbol];
  auto got = static_cast<long long>(value);
  if (value < s.lo || value > s.hi)
    return fail(*run, TRIPOD_RUNTIME_ERROR, "%s: dim '%s': got %lld, wanted %lld..%lld", site_name(site), s.name, got,
                static_cast<long long>(s.lo), static_cast<long long>(s.hi));
  if (s.divisor > 1 && value % s.divisor != 0)
    return fail(*run, TRIPOD_RUNTIME_ERROR, "%s: dim '%s': got %lld, wanted a multiple of %lld", site_name(site),
                s.name, got, static_cast<long long>(s.divisor));
  run->dims[symbol] = value;
  return TRIPOD_OK;
}
