// See fake_libcuda.h.
#include "fake_libcuda.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <set>

namespace tripod::rt::cuda {  // the handles
using Work = std::function<Result()>;
struct Context {
  int32_t device = 0, retained = 0;
  Result fault = 0;
};
struct Stream {
  Context* context = nullptr;
  std::deque<Work> queue;
  bool capturing = false;
  std::vector<Work> captured;
};
struct Event {
  Stream* stream = nullptr;
  bool captured = false;
  int64_t recorded = 0, reached = 0;
  bool done() const { return reached >= recorded; }
};
struct Function {
  const fake_cuda::NamedKernel* kernel;
  int32_t allowed_shared;
};
struct Module {
  std::deque<Function> functions;
};
struct GraphNode {
  GraphNode* after;
  KernelNode kernel;
  std::vector<uint64_t> arguments;
};
struct Graph {
  std::deque<GraphNode> nodes;
};
struct GraphExec {
  std::vector<std::pair<GraphNode*, GraphNode>> nodes;  // what the graph had, and what is launched
};
}  // namespace tripod::rt::cuda

namespace fake_cuda {
namespace {

enum : Result { kSuccess = 0, kInvalidValue = 1, kInvalidContext = 201, kInvalidHandle = 400, kCaptureUnsupported = 900 };
constexpr int32_t kSharedOptInBytes = 227 << 10;

std::recursive_mutex mutex;
thread_local std::vector<Context*> stack;
thread_local int32_t capture_mode = 0;
Context contexts[2];
Stream default_streams[2];
std::map<uintptr_t, size_t> device_memory, host_memory;
std::set<Stream*> streams;
std::set<Event*> events;
std::set<Module*> modules;

struct TheControls final : Controls {
  void reset() override;
  Stream* make_stream(int32_t device) override {
    auto* s = new Stream{.context = &contexts[device], .queue = {}, .captured = {}};
    streams.insert(s);
    return s;
  }
  Context* context(int32_t device) override { return &contexts[device]; }
  void begin_capture(Stream* s) override { s->capturing = true, s->captured.clear(); }
  void end_capture(Stream* s) override { s->capturing = false; }
  void replay(Stream* s) override {
    for (Work& w : s->captured)
      if (Result r = w()) s->context->fault = r;
  }
  size_t pending(Stream* s) override { return (s ? s : &default_streams[0])->queue.size(); }
  Context* current() override { return stack.empty() ? nullptr : stack.back(); }
  bool on_device(const void* p, size_t bytes) override;
};
TheControls controls;

Result complain(Result r, const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  controls.complaints.push_back(text);
  return r;
}

bool inside(const std::map<uintptr_t, size_t>& memory, uintptr_t p, size_t bytes) {
  auto i = memory.upper_bound(p);
  return i != memory.begin() && (--i, p + bytes <= i->first + i->second);
}
bool TheControls::on_device(const void* p, size_t bytes) {
  std::lock_guard lock(mutex);
  return inside(device_memory, reinterpret_cast<uintptr_t>(p), bytes) || inside(host_memory, reinterpret_cast<uintptr_t>(p), bytes);
}
bool capture_forbids() {
  if (capture_mode == kCaptureRelaxed) return false;
  for (Stream* s : streams)
    if (s->capturing) return true;
  return false;
}

void TheControls::reset() {
  static_cast<Controls&>(*this).complaints.clear();
  devices = 2, arch[0] = 90, arch[1] = 80, memory = 1 << 30;
  missing.clear(), load_log.clear(), large_shared.clear();
  init_result = load_result = 0;
  launches = waits = allocations = copies = stream_waits = 0;
  graphs_made = graph_launches = graph_patches = 0;
  for (Context& c : contexts) c.fault = 0;
  for (Stream& d : default_streams) d.queue.clear();  // what a fault has left undone
  for (Stream* s : streams) delete s;
  streams.clear();
}

// The current context, or an error in *r.
Context* current(const char* function, Result* r) {
  if (stack.empty()) {
    *r = complain(kInvalidContext, "%s: no context is current", function);
    return nullptr;
  }
  *r = stack.back()->fault;
  return stack.back();
}

// The stream behind a handle, checked against the current context.
Stream* stream_of(Stream* s, const char* function, Result* r) {
  Context* c = current(function, r);
  if (!c) return nullptr;
  if (!s) return &default_streams[c - contexts];
  if (!streams.count(s)) {
    *r = complain(kInvalidHandle, "%s: no such stream", function);
    return nullptr;
  }
  if (s->context != c) *r = complain(kInvalidContext, "%s: the stream belongs to another context", function);
  return s;
}

Result run_all(Stream* s) {
  while (!s->queue.empty() && !s->context->fault) {
    Work w = std::move(s->queue.front());
    s->queue.pop_front();
    if (Result r = w()) s->context->fault = r;
  }
  return s->context->fault;
}

Result enqueue(Stream* s, const char* function, Work work) {
  Result r;
  s = stream_of(s, function, &r);
  if (!s || r) return r;
  if (s->capturing)
    s->captured.push_back(std::move(work));
  else
    s->queue.push_back(std::move(work));
  return kSuccess;
}

Result check_device(const char* function, Address p, size_t bytes) {
  if (inside(device_memory, p, bytes)) return kSuccess;
  return complain(kInvalidValue, "%s: %zu bytes at %p are not in one allocation on the device", function, bytes, reinterpret_cast<void*>(p));
}

template <typename T>
T* at(Address p) {
  return reinterpret_cast<T*>(p);
}

// --- the functions, named as the members of Driver ---
using Lock = std::lock_guard<std::recursive_mutex>;

Result init(uint32_t) { return controls.init_result; }
Result driver_version(int32_t* v) { return *v = 12040, kSuccess; }
Result error_name(Result r, const char** text) {
  *text = r == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : r == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : r == 1 ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_OTHER";
  return kSuccess;
}
Result error_text(Result r, const char** text) {
  *text = r == 700 ? "an illegal memory access was encountered" : r == 2 ? "out of memory" : r == 1 ? "invalid argument" : "some other error";
  return kSuccess;
}
Result device_count(int32_t* n) { return *n = controls.devices, kSuccess; }
Result device_get(int32_t* d, int32_t ordinal) { return *d = ordinal, kSuccess; }
Result device_name(char* name, int32_t size, int32_t) { return snprintf(name, static_cast<size_t>(size), "Fake GPU"), kSuccess; }
Result device_attribute(int32_t* v, int32_t attribute, int32_t device) {
  int32_t arch = controls.arch[device];
  *v = attribute == kComputeMajor ? arch / 10 : attribute == kComputeMinor ? arch % 10 : kSharedOptInBytes;
  return kSuccess;
}
Result primary_retain(Context** c, int32_t device) {
  Lock lock(mutex);
  *c = &contexts[device];
  contexts[device].device = device;
  default_streams[device].context = *c;
  ++controls.retained;
  return kSuccess;
}
Result primary_release(int32_t) {
  Lock lock(mutex);
  if (controls.retained-- == 0) complain(0, "cuDevicePrimaryCtxRelease: not retained");
  return kSuccess;
}
Result push(Context* c) { return stack.push_back(c), kSuccess; }
Result pop(Context** c) {
  if (stack.empty()) return complain(kInvalidContext, "cuCtxPopCurrent: no context is current");
  *c = stack.back();
  stack.pop_back();
  return kSuccess;
}
Result get_current(Context** c) { return *c = controls.current(), kSuccess; }
Result synchronize() {
  Lock lock(mutex);
  Result r;
  Context* c = current("cuCtxSynchronize", &r);
  if (!c || r) return r;
  for (Stream* s : streams)
    if (s->context == c) r = run_all(s);
  return run_all(&default_streams[c - contexts]) ? c->fault : r;
}
Result module_load(Module** m, const void* data, uint32_t count, int32_t* options, void** values) {
  Lock lock(mutex);
  Result r;
  if (!current("cuModuleLoadDataEx", &r) || r) return r;
  for (uint32_t i = 0; i < count; ++i)
    if (options[i] == kJitErrorLog) strcpy(static_cast<char*>(values[i]), controls.load_log.c_str());
  if (controls.load_result) return controls.load_result;
  auto* image = static_cast<const Image*>(data);
  if (image->magic != kMagic) return kInvalidImage;
  *m = new Module;
  for (int32_t i = 0; i < image->count; ++i) (*m)->functions.push_back({&image->kernels[i], (48 << 10) - image->kernels[i].static_shared});
  modules.insert(*m);
  ++controls.live_modules;
  return kSuccess;
}
Result module_unload(Module* m) {
  Lock lock(mutex);
  if (!modules.erase(m)) return complain(kInvalidHandle, "cuModuleUnload: no such module");
  delete m;
  --controls.live_modules;
  return kSuccess;
}
Result module_function(Function** f, Module* m, const char* name) {
  Lock lock(mutex);
  for (Function& candidate : m->functions)
    if (!strcmp(candidate.kernel->name, name)) return *f = &candidate, kSuccess;
  return kNotFound;
}
Result function_attribute(int32_t* v, int32_t, Function* f) { return *v = f->kernel->static_shared, kSuccess; }
Result function_set_attribute(Function* f, int32_t attribute, int32_t value) {
  Lock lock(mutex);
  if (attribute != kFunctionDynamicShared || value + f->kernel->static_shared > kSharedOptInBytes)
    return complain(kInvalidValue, "cuFuncSetAttribute: %d bytes", value);
  f->allowed_shared = value;
  ++controls.large_shared[f->kernel->name];
  return kSuccess;
}
// Parameters are taken at the launch.
std::vector<uint64_t> taken(Function* f, void** parameters) {
  std::vector<uint64_t> copy;
  for (int32_t i = 0; i < f->kernel->parameters; ++i) copy.push_back(*static_cast<uint64_t*>(parameters[i]));
  return copy;
}
bool possible(const KernelNode& k) {
  const uint32_t *g = k.grid, *b = k.block;
  uint64_t threads = uint64_t{b[0]} * b[1] * b[2];
  return g[0] && g[1] && g[2] && g[1] <= 65535 && g[2] <= 65535 && g[0] <= INT32_MAX && threads && threads <= 1024 && !k.extra &&
         static_cast<int32_t>(k.shared) <= k.function->allowed_shared;
}
Result work(const KernelNode& k, std::vector<uint64_t> arguments) {
  std::vector<void*> pointers;
  for (uint64_t& c : arguments) pointers.push_back(&c);
  return k.function->kernel->run({{k.grid[0], k.grid[1], k.grid[2]}, {k.block[0], k.block[1], k.block[2]}, k.shared, pointers.data()});
}
Result launch(Function* f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz, uint32_t shared,
              Stream* stream, void** parameters, void** extra) {
  Lock lock(mutex);
  const KernelNode k = {f, {gx, gy, gz}, {bx, by, bz}, shared, parameters, extra, nullptr, nullptr};
  if (!possible(k)) return kInvalidValue;
  ++controls.launches;
  return enqueue(stream, "cuLaunchKernel", [k, arguments = taken(f, parameters)] { return work(k, arguments); });
}

// A graph is a chain here, and its nodes run in the order in which they were added.
Result graph_create(Graph** g, uint32_t) {
  Lock lock(mutex);
  ++controls.live_graphs;
  return *g = new Graph, kSuccess;
}
Result graph_destroy(Graph* g) {
  Lock lock(mutex);
  --controls.live_graphs;
  return delete g, kSuccess;
}
Result graph_add_kernel(GraphNode** node, Graph* g, GraphNode* const* after, size_t count, const KernelNode* k) {
  Lock lock(mutex);
  if (!possible(*k)) return kInvalidValue;
  GraphNode* last = g->nodes.empty() ? nullptr : &g->nodes.back();
  if ((count ? *after : nullptr) != last) complain(kInvalidValue, "cuGraphAddKernelNode: not behind the node before it");
  g->nodes.push_back({last, *k, taken(k->function, k->parameters)});
  return *node = &g->nodes.back(), kSuccess;
}
Result graph_instantiate(GraphExec** exec, Graph* g, uint64_t) {
  Lock lock(mutex);
  Result r;
  if (!current("cuGraphInstantiateWithFlags", &r) || r) return r;
  *exec = new GraphExec;
  for (GraphNode& n : g->nodes) (*exec)->nodes.push_back({&n, n});
  ++controls.graphs_made, ++controls.live_graphs;
  return kSuccess;
}
Result graph_exec_set_kernel(GraphExec* exec, GraphNode* node, const KernelNode* k) {
  Lock lock(mutex);
  if (!possible(*k)) return kInvalidValue;
  ++controls.graph_patches;
  for (auto& [of, n] : exec->nodes)
    if (of == node) return n = {nullptr, *k, taken(k->function, k->parameters)}, kSuccess;
  return complain(kInvalidValue, "cuGraphExecKernelNodeSetParams: no such node");
}
Result graph_launch(GraphExec* exec, Stream* stream) {
  Lock lock(mutex);
  ++controls.graph_launches;
  return enqueue(stream, "cuGraphLaunch", [nodes = exec->nodes] {
    Result r = kSuccess;
    for (size_t i = 0; r == kSuccess && i < nodes.size(); ++i) r = work(nodes[i].second.kernel, nodes[i].second.arguments);
    return r;
  });
}
Result graph_exec_destroy(GraphExec* exec) {
  Lock lock(mutex);
  --controls.live_graphs;
  return delete exec, kSuccess;
}
Result memory_info(size_t* free, size_t* total) {
  Lock lock(mutex);
  *total = controls.memory;
  *free = controls.memory - static_cast<size_t>(controls.live_memory);
  return kSuccess;
}
Result alloc(Address* a, size_t bytes) {
  Lock lock(mutex);
  Result r;
  if (!current("cuMemAlloc", &r) || r) return r;
  if (capture_forbids()) return complain(kCaptureUnsupported, "cuMemAlloc during a capture");
  if (bytes == 0) return complain(kInvalidValue, "cuMemAlloc: 0 bytes");
  if (static_cast<size_t>(controls.live_memory) + bytes > controls.memory) return kOutOfMemory;
  void* p = aligned_alloc(512, (bytes + 511) / 512 * 512);
  memset(p, 0xcd, bytes);
  *a = reinterpret_cast<Address>(p);
  device_memory[*a] = bytes;
  controls.live_memory += static_cast<int64_t>(bytes);
  ++controls.live_allocations, ++controls.allocations;
  return kSuccess;
}
Result free_device(Address a) {
  Lock lock(mutex);
  Result r;
  Context* c = current("cuMemFree", &r);
  if (!c) return r;
  auto i = device_memory.find(a);
  if (i == device_memory.end()) return complain(kInvalidValue, "cuMemFree: freed twice, or never allocated");
  if (!r && !capture_forbids()) synchronize();
  controls.live_memory -= static_cast<int64_t>(i->second);
  --controls.live_allocations;
  device_memory.erase(i);
  free(at<void>(a));
  return r;
}
Result host_alloc(void** p, size_t bytes, uint32_t) {
  Lock lock(mutex);
  Result r;
  if (!current("cuMemHostAlloc", &r) || r) return r;
  if (capture_forbids()) return complain(kCaptureUnsupported, "cuMemHostAlloc during a capture");
  *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
  host_memory[reinterpret_cast<uintptr_t>(*p)] = bytes;
  ++controls.live_allocations, ++controls.allocations;
  return kSuccess;
}
Result host_free(void* p) {
  Lock lock(mutex);
  if (!host_memory.erase(reinterpret_cast<uintptr_t>(p))) return complain(kInvalidValue, "cuMemFreeHost: freed twice, or never allocated");
  --controls.live_allocations;
  free(p);
  return kSuccess;
}
Result host_address(Address* a, void* p, uint32_t) { return *a = reinterpret_cast<Address>(p), kSuccess; }
Result copy_to_device(Address to, const void* from, size_t bytes) {
  Lock lock(mutex);
  Result r;
  if (!current("cuMemcpyHtoD", &r) || r) return r;
  if ((r = check_device("cuMemcpyHtoD", to, bytes))) return r;
  memcpy(at<void>(to), from, bytes);
  return kSuccess;
}
Result copy_to_device_async(Address to, const void* from, size_t bytes, Stream* stream) {
  Lock lock(mutex);
  ++controls.copies;
  if (Result r = check_device("cuMemcpyHtoDAsync", to, bytes)) return r;
  if (stream && stream->capturing) complain(0, "cuMemcpyHtoDAsync from host memory during a capture");
  auto* begin = static_cast<const char*>(from);
  if (inside(host_memory, reinterpret_cast<uintptr_t>(from), bytes))
    return enqueue(stream, "cuMemcpyHtoDAsync", [=] { return memcpy(at<void>(to), from, bytes), kSuccess; });
  return enqueue(stream, "cuMemcpyHtoDAsync", [=, staged = std::vector<char>(begin, begin + bytes)] {
    return memcpy(at<void>(to), staged.data(), bytes), kSuccess;
  });
}
Result stream_synchronize(Stream* s);
Result copy_to_host_async(void* to, Address from, size_t bytes, Stream* stream) {
  Lock lock(mutex);
  ++controls.copies;
  if (Result r = check_device("cuMemcpyDtoHAsync", from, bytes)) return r;
  if (Result r = enqueue(stream, "cuMemcpyDtoHAsync", [=] { return memcpy(to, at<void>(from), bytes), kSuccess; })) return r;
  return inside(host_memory, reinterpret_cast<uintptr_t>(to), bytes) ? kSuccess : stream_synchronize(stream);
}
Result copy_async(Address to, Address from, size_t bytes, Stream* stream) {
  Lock lock(mutex);
  ++controls.copies;
  if (Result r = check_device("cuMemcpyDtoDAsync", to, bytes)) return r;
  if (Result r = check_device("cuMemcpyDtoDAsync", from, bytes)) return r;
  return enqueue(stream, "cuMemcpyDtoDAsync", [=] { return memcpy(at<void>(to), at<void>(from), bytes), kSuccess; });
}
Result copy_2d_async(const Copy2d* given, Stream* stream) {
  Lock lock(mutex);
  ++controls.copies;
  Copy2d c = *given;
  if (c.from_type != kMemoryDevice || c.to_type != kMemoryDevice || c.from_pitch < c.width || c.to_pitch < c.width)
    return complain(kInvalidValue, "cuMemcpy2DAsync: pitches %zu and %zu, width %zu", c.from_pitch, c.to_pitch, c.width);
  if (Result r = check_device("cuMemcpy2DAsync", c.from_device, c.from_pitch * (c.height - 1) + c.width)) return r;
  if (Result r = check_device("cuMemcpy2DAsync", c.to_device, c.to_pitch * (c.height - 1) + c.width)) return r;
  return enqueue(stream, "cuMemcpy2DAsync", [=] {
    for (size_t i = 0; i < c.height; ++i) memcpy(at<char>(c.to_device) + i * c.to_pitch, at<char>(c.from_device) + i * c.from_pitch, c.width);
    return kSuccess;
  });
}
Result set_bytes_async(Address to, uint8_t value, size_t count, Stream* stream) {
  Lock lock(mutex);
  if (Result r = check_device("cuMemsetD8Async", to, count)) return r;
  return enqueue(stream, "cuMemsetD8Async", [=] { return memset(at<void>(to), value, count), kSuccess; });
}
Result stream_synchronize(Stream* given) {
  Lock lock(mutex);
  Result r;
  Stream* s = stream_of(given, "cuStreamSynchronize", &r);
  if (!s || r) return r;
  ++controls.waits;
  if (s->capturing) return complain(kCaptureUnsupported, "cuStreamSynchronize of a stream that captures");
  return run_all(s);
}
Result stream_wait(Stream* given, Event* e, uint32_t) {
  Lock lock(mutex);
  ++controls.stream_waits;
  Result r;
  Stream* s = stream_of(given, "cuStreamWaitEvent", &r);
  if (!s || r) return r;
  if (!events.count(e)) return complain(kInvalidHandle, "cuStreamWaitEvent: no such event");
  if (s->capturing != e->captured) return complain(kCaptureUnsupported, "cuStreamWaitEvent: across a capture");
  return enqueue(given, "cuStreamWaitEvent", [=] { return e->done() ? kSuccess : run_all(e->stream); });
}
Result stream_capturing(Stream* s, int32_t* status) {
  Lock lock(mutex);
  Result r;
  if (!(s = stream_of(s, "cuStreamIsCapturing", &r))) return r;
  return *status = s->capturing, kSuccess;
}
Result exchange_capture_mode(int32_t* mode) { return std::swap(*mode, capture_mode), kSuccess; }
Result event_create(Event** e, uint32_t) {
  Lock lock(mutex);
  events.insert(*e = new Event);
  ++controls.live_events;
  return kSuccess;
}
Result event_destroy(Event* e) {
  Lock lock(mutex);
  if (!events.erase(e)) return complain(kInvalidHandle, "cuEventDestroy: no such event");
  --controls.live_events;
  delete e;
  return kSuccess;
}
Result event_record(Event* e, Stream* given) {
  Lock lock(mutex);
  Result r;
  Stream* s = stream_of(given, "cuEventRecord", &r);
  if (!s || r) return r;
  e->stream = s, e->captured = s->capturing;
  int64_t n = ++e->recorded;
  return enqueue(given, "cuEventRecord", [=] { return e->reached = n, kSuccess; });
}
Result event_query(Event* e) {
  Lock lock(mutex);
  if (capture_forbids()) return complain(kCaptureUnsupported, "cuEventQuery during a capture");
  return e->done() ? Result{kSuccess} : Result{kNotReady};
}
Result event_synchronize(Event* e) {
  Lock lock(mutex);
  if (capture_forbids()) return complain(kCaptureUnsupported, "cuEventSynchronize during a capture");
  return e->done() ? kSuccess : run_all(e->stream);
}
// Every event is a microsecond behind the one before it.
Result event_elapsed(float* milliseconds, Event* begin, Event* end) {
  Lock lock(mutex);
  if (!begin->done() || !end->done()) return kNotReady;
  return *milliseconds = 0.001f, kSuccess;
}

const Driver kTable = {
    init, driver_version, error_name, error_text, device_count, device_get, device_name, device_attribute, primary_retain,
    primary_release, push, pop, get_current, synchronize, module_load, module_unload, module_function, function_attribute,
    function_set_attribute, launch, memory_info, alloc, free_device, host_alloc, host_free, host_address, copy_to_device,
    copy_to_device_async, copy_to_host_async, copy_async, copy_2d_async, set_bytes_async, stream_synchronize, stream_wait,
    stream_capturing, exchange_capture_mode, graph_create, graph_destroy, graph_add_kernel, graph_instantiate,
    graph_exec_set_kernel, graph_launch, graph_exec_destroy, event_elapsed, event_create, event_destroy, event_record, event_query, event_synchronize};

constexpr const char* kNames[] = {
#define X(member, name, parameters) #name,
    TP_CUDA_FUNCTIONS(X)
#undef X
};

}  // namespace
}  // namespace fake_cuda

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int32_t cuGetProcAddress_v2(const char* name, void** address, int32_t version, uint64_t, void*) {
  *address = nullptr;
  if (version < 12000) return 1;
  for (size_t i = 0; i < sizeof(fake_cuda::kNames) / sizeof(fake_cuda::kNames[0]); ++i)
    if (!strcmp(name, fake_cuda::kNames[i]) && fake_cuda::controls.missing != name)
      memcpy(address, reinterpret_cast<const char*>(&fake_cuda::kTable) + i * sizeof(void*), sizeof(void*));
  return *address ? 0 : 500;
}
EXPORT fake_cuda::Controls* fake_cuda_controls() { return &fake_cuda::controls; }
