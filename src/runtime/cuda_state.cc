// The GPU side of one context, from its making to the end of each call.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda.h"

namespace tripod::rt::cuda {
namespace {

constexpr size_t kRecordBytes = 64;
constexpr size_t kBounceBytes = 64 << 10;
constexpr int64_t kUnit = 512, kLargeUnit = 2 << 20;
constexpr int32_t kMaxFills = 64;

// The whole device is lost: said in full once, in short afterwards.
tripod_status report_lost(tp_run& run, Result error) {
  Device& d = *run.cuda->device;
  char text[128];
  describe(*d.driver, error, text, sizeof text);
  Lock lock(d.losing);
  if (!d.lost.load(std::memory_order_relaxed)) {
    snprintf(d.lost_text, sizeof d.lost_text, "%s", text);
    d.lost.store(1, std::memory_order_release);
  }
  const tp_device_part& part = *tp_the_model.device;
  int32_t k = run.cuda->last_kernel;
  if (k < 0) return fail(run, TRIPOD_RUNTIME_ERROR, "cuda:%d failed: %s; no kernel of this context had been launched", d.id, text);
  return fail(run, TRIPOD_RUNTIME_ERROR,
              "cuda:%d failed: %s, in kernel '%s' (%s) or in one launched before it; with CUDA_LAUNCH_BLOCKING=1 in the "
              "environment it is exactly the one named", d.id, text, part.kernels[k], part.origins[k]);
}

tripod_status check_lost(tp_run& run) {
  Device& d = *run.cuda->device;
  if (!d.lost.load(std::memory_order_acquire)) return TRIPOD_OK;
  return fail(run, TRIPOD_RUNTIME_ERROR, "cuda:%d cannot be used any more after an earlier error (%s): start a new process",
              d.id, d.lost_text);
}

int32_t flag_of(const State& s) { return *static_cast<const volatile int32_t*>(&s.record->flag); }

// Takes the record out. The stream has been waited for, unless it is capturing.
tripod_status report_record(tp_run& run, const char* when) {
  State& s = *run.cuda;
  if (flag_of(s) == 0) return TRIPOD_OK;
  std::atomic_thread_fence(std::memory_order_acquire);
  tp_error_record r = *s.record;
  memset(s.record, 0, sizeof *s.record);
  return fail(run, TRIPOD_INDEX_OUT_OF_RANGE, "%s: index %lld is not in [0, %lld)%s", site_name(r.site),
              static_cast<long long>(r.got), static_cast<long long>(r.limit), when);
}

tripod_status check_earlier(tp_run& run) {
  State& s = *run.cuda;
  if (flag_of(s) == 0) return TRIPOD_OK;
  if (!is_capturing(s))
    if (Result r = s.driver->stream_synchronize(s.stream)) return driver_failed(run, r, "waiting for the GPU");
  return report_record(run, " (found on the GPU by an earlier call; this call did not run)");
}

// A pooled context comes from another stream: this one goes on when the other has got to the end of that call.
tripod_status wait_for_last(tp_run& run) {
  State& s = *run.cuda;
  if (!s.waits) return TRIPOD_OK;
  Result r;
  if (is_capturing(s)) {  // a graph may not wait for what is outside it
    Uncaptured uncaptured(*s.driver);
    r = s.driver->event_synchronize(s.last);
  } else {
    r = s.driver->stream_wait(s.stream, s.last, 0);
  }
  if (r != 0) return driver_failed(run, r, "waiting for another stream");
  s.waits = false;
  return TRIPOD_OK;
}

tripod_status fill_state(tp_run& run) {
  State& s = *run.cuda;
  const tp_model& model = tp_the_model;
  auto buffers = [](int32_t n) { return static_cast<Buffer*>(calloc(n > 0 ? static_cast<size_t>(n) : 1, sizeof(Buffer))); };
  s.inputs = buffers(model.num_inputs);
  s.outputs = buffers(model.num_outputs);
  if (!s.inputs || !s.outputs) return set_last_error(TRIPOD_OUT_OF_MEMORY, "out of memory");
  Uncaptured uncaptured(*s.driver);
  Current current(*s.device);
  void* locked = nullptr;
  Result r = current.status();
  if (r == 0) r = s.driver->host_alloc(&locked, kRecordBytes + kBounceBytes, kHostDeviceMap);
  if (r == 0) {
    s.record = static_cast<tp_error_record*>(locked);
    s.bounce = static_cast<char*>(locked) + kRecordBytes;
    memset(s.record, 0, sizeof *s.record);
    r = s.driver->host_address(&s.record_address, locked, 0);
  }
  if (r == 0 && s.pooled) r = s.driver->event_create(&s.last, kEventNoTiming);
  if (r == 0) return TRIPOD_OK;
  char text[256];
  return set_last_error(r == kOutOfMemory ? TRIPOD_OUT_OF_MEMORY : TRIPOD_RUNTIME_ERROR,
                        "cuda:%d: making a context: %s", s.device->id, describe(*s.driver, r, text, sizeof text));
}

// A copy that a captured graph repeats: the bytes become part of the graph, as fills, since the host's memory may have
// changed by then.
tripod_status fill_device(tp_run& run, Address to, const uint8_t* from, int64_t bytes) {
  State& s = *run.cuda;
  int32_t fills = 0;
  for (int64_t begin = 0, end = 0; begin < bytes; begin = end) {
    while (end < bytes && from[end] == from[begin]) ++end;
    if (++fills > kMaxFills)
      return fail(run, TRIPOD_UNSUPPORTED, "the call cannot be captured: the model copies %lld bytes from the host",
                  static_cast<long long>(bytes));
    if (Result r = s.driver->set_bytes_async(to + static_cast<Address>(begin), from[begin], static_cast<size_t>(end - begin), s.stream))
      return driver_failed(run, r, "copying to the GPU");
  }
  return TRIPOD_OK;
}

tripod_status read_back(tp_run& run, void* to, Address from, int64_t bytes) {
  State& s = *run.cuda;
  if (is_capturing(s))
    return fail(run, TRIPOD_UNSUPPORTED, "the call cannot be captured: the model reads %lld bytes of its data on the host",
                static_cast<long long>(bytes));
  auto size = static_cast<size_t>(bytes);
  bool small = size <= kBounceBytes;
  if (Result r = s.driver->copy_to_host_async(small ? s.bounce : to, from, size, s.stream))
    return driver_failed(run, r, "copying to the host");
  if (tripod_status bad = wait(run)) return bad;
  if (small) memcpy(to, s.bounce, size);
  return TRIPOD_OK;
}

}  // namespace

tripod_status driver_failed(tp_run& run, Result error, const char* what) {
  if (is_sticky(error)) return report_lost(run, error);
  char text[256];
  return fail(run, error == kOutOfMemory ? TRIPOD_OUT_OF_MEMORY : TRIPOD_RUNTIME_ERROR, "cuda:%d: %s: %s",
              run.cuda->device->id, what, describe(*run.cuda->driver, error, text, sizeof text));
}

tripod_status attach(tp_run& run, int32_t device_id, void* stream, bool pooled, bool graphs) {
  Device* device;
  if (tripod_status bad = open_device(device_id, &device)) return bad;
  run.cuda = static_cast<State*>(calloc(1, sizeof(State)));
  if (!run.cuda) return set_last_error(TRIPOD_OUT_OF_MEMORY, "out of memory");
  run.cuda->device = device;
  run.cuda->driver = device->driver;
  run.cuda->stream = static_cast<Stream*>(stream);
  run.cuda->last_kernel = -1;
  run.cuda->pooled = pooled;
  if (graphs)
    if (tripod_status bad = make_graphs(*run.cuda)) return bad;
  return fill_state(run);
}

// The caller's stream may be gone by now: memory is freed behind everything that runs on the device.
void detach(tp_run& run) {
  State* s = run.cuda;
  if (!s) return;
  const tp_model& model = tp_the_model;
  Context* before;
  const bool works = s->driver->current(&before) == 0;  // not so at the end of a process, and in a forked child
  if (works) {
    Uncaptured uncaptured(*s->driver);
    Current current(*s->device);
    s->driver->synchronize();
    delete_graphs(*s, true);
    for (int32_t i = 0; s->inputs && i < model.num_inputs; ++i) release_device(*s, s->inputs[i]);
    for (int32_t i = 0; s->outputs && i < model.num_outputs; ++i) release_device(*s, s->outputs[i]);
    for (int32_t i = 0; run.arenas && i < model.num_segments; ++i)
      if (model.segments[i].space == kTpDevice) release_device(*s, run.arenas[i].memory);
    for (Event* e : {s->last, s->begin, s->end})
      if (e) s->driver->event_destroy(e);
    if (s->record) s->driver->host_free(s->record);
  }
  for (int32_t i = 0; run.arenas && i < model.num_segments; ++i)
    if (model.segments[i].space == kTpDevice) run.arenas[i].memory = {};
  delete_graphs(*s, false);
  free(s->inputs);
  free(s->outputs);
  free(s);
  run.cuda = nullptr;
}

void set_stream(State& s, void* stream) {
  if (s.stream == stream) return;
  s.stream = static_cast<Stream*>(stream);
  s.waits = s.pooled;
}

bool is_capturing(const State& s) {
  int32_t status = 0;
  return s.driver->stream_capturing(s.stream, &status) == 0 && status != 0;
}

bool suits(const State& s, int32_t device_id, const void* stream, bool idle) {
  if (s.device->id != device_id) return false;
  if (s.stream == stream) return true;
  if (!idle) return false;
  Uncaptured uncaptured(*s.driver);
  Current current(*s.device);
  return current.status() == 0 && s.driver->event_query(s.last) == 0;
}

tripod_status begin_call(tp_run& run) {
  State& s = *run.cuda;
  s.host_data = false;
  if (tripod_status bad = check_lost(run)) return bad;
  if (Result r = s.driver->push(s.device->primary)) return driver_failed(run, r, "making the device's context current");
  if (s.graphs) begin_graphs(run);
  if (wait_for_last(run) == TRIPOD_OK && check_earlier(run) == TRIPOD_OK) return TRIPOD_OK;
  Context* popped;
  s.driver->pop(&popped);
  return static_cast<tripod_status>(run.status);
}

// Also after an error, for what was enqueued before it.
void end_call(tp_run& run) {
  State& s = *run.cuda;
  flush_launches(run);
  if (s.host_data) {
    if (run.status == TRIPOD_OK)
      wait(run);
    else
      s.driver->stream_synchronize(s.stream);  // the caller's memory must not be in use; the first error is the one told
  }
  if (s.pooled) {
    if (is_capturing(s))
      s.captured = true;
    else if (Result r = s.driver->event_record(s.last, s.stream))
      driver_failed(run, r, "marking the end of the call");
  }
  Context* popped;
  s.driver->pop(&popped);
}

tripod_status wait(tp_run& run) {
  State& s = *run.cuda;
  if (Result r = s.driver->stream_synchronize(s.stream)) return driver_failed(run, r, "waiting for the GPU");
  s.host_data = false;
  return report_record(run, "");
}

tripod_status synchronize(tp_run& run) {
  run.status = TRIPOD_OK;
  if (check_lost(run) == TRIPOD_OK) {
    State& s = *run.cuda;
    Current current(*s.device);
    Result r = current.status();
    if (r == 0 && s.captured)
      r = s.driver->synchronize();  // a graph that replays its work may run on any stream
    else if (r == 0)
      r = s.driver->stream_synchronize(s.stream);
    if (r != 0)
      driver_failed(run, r, "waiting for the GPU");
    else
      report_record(run, "");
  }
  if (run.status == TRIPOD_OK) return TRIPOD_OK;
  return set_last_error(static_cast<tripod_status>(run.status), "%s", run.message);
}

bool reserve_device(tp_run& run, Buffer& buffer, int64_t bytes, const char* what) {
  State& s = *run.cuda;
  if (bytes <= buffer.capacity) return true;
  if (is_capturing(s)) {
    fail(run, TRIPOD_UNSUPPORTED,
         "the call cannot be captured: the context has no memory for these sizes yet; call it once before the capture");
    return false;
  }
  if (buffer.data) {  // what is enqueued may still use it
    if (flush_launches(run) != TRIPOD_OK) return false;
    if (Result r = s.driver->stream_synchronize(s.stream)) return driver_failed(run, r, "waiting for the GPU") == TRIPOD_OK;
    release_device(s, buffer);
  }
  int64_t unit = bytes >= 2 * kLargeUnit ? kLargeUnit : kUnit;
  Address address = 0;
  size_t free = 0, total = 0;
  Result r = kOutOfMemory;
  if (bytes <= INT64_MAX - unit) {
    Uncaptured uncaptured(*s.driver);
    bytes = (bytes + unit - 1) & -unit;
    r = s.driver->alloc(&address, static_cast<size_t>(bytes));
  }
  if (r == 0) {
    buffer = {reinterpret_cast<char*>(address), bytes};
    return true;
  }
  if (r == kOutOfMemory && s.driver->memory_info(&free, &total) == 0)
    fail(run, TRIPOD_OUT_OF_MEMORY, "out of memory on cuda:%d: %lld bytes wanted for %s, %zu free of %zu", s.device->id,
         static_cast<long long>(bytes), what, free, total);
  else
    driver_failed(run, r, what);
  return false;
}

void release_device(const State& s, Buffer& buffer) {
  if (buffer.data) s.driver->free(reinterpret_cast<Address>(buffer.data));
  buffer = {};
}

}  // namespace tripod::rt::cuda

using namespace tripod::rt;

const char* tp_device_weights(tp_run* run) {
  auto address = run->cuda->device->weights;
  return address ? reinterpret_cast<const char*>(address) : empty_data();
}

int32_t tp_copy_between(tp_run* run, void* to, const void* from, int64_t bytes, int32_t direction) {
  if (bytes <= 0) return TRIPOD_OK;
  if (tripod_status bad = cuda::flush_launches(*run)) return bad;
  cuda::State& s = *run->cuda;
  auto size = static_cast<size_t>(bytes);
  auto target = reinterpret_cast<cuda::Address>(to), source = reinterpret_cast<cuda::Address>(from);
  cuda::Result r = 0;
  if (direction == kTpToHost) return cuda::read_back(*run, to, source, bytes);
  if (direction == kTpWithinDevice)
    r = s.driver->copy_async(target, source, size, s.stream);
  else if (cuda::is_capturing(s))
    return cuda::fill_device(*run, target, static_cast<const uint8_t*>(from), bytes);
  else  // memory that is not page-locked: the driver has taken a copy when it returns
    r = s.driver->copy_to_device_async(target, from, size, s.stream);
  return r == 0 ? TRIPOD_OK : cuda::driver_failed(*run, r, "copying on the GPU");
}
