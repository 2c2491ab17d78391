// CUDA graphs of repeated calls (tripod_context_options::cuda_graphs): the kernels of a call are collected and launched
// as one graph, which costs the host and the GPU a fraction of as many launches.
//
// The program runs as ever; its launches wait in a list until something else goes to the stream (a copy, a look at data
// on the host, the end of the call). Each such run of launches is a part. A part's graph stays from call to call: where
// the kernels are the same ones, only the nodes whose arguments or grid differ are patched, so that changed pointers and
// dims (a decoder's length) keep the graph. Where they are others, it is made anew.
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda.h"

namespace tripod::rt::cuda {

struct Pending {
  int32_t kernel, num_args, first_arg;
  uint32_t geometry[7];
};

// A list of launches with their arguments; memory stays when it is emptied.
struct LaunchList {
  Pending* launches;
  uint64_t* args;
  int32_t count, capacity, num_args, args_capacity;
};

struct Part {
  LaunchList made;       // what the graph launches
  Graph* graph;
  GraphExec* exec;
  GraphNode** nodes;     // of the graph, one a launch
  int32_t node_capacity;
};

struct Graphs {
  bool active;           // in this call
  int32_t next_part;
  LaunchList pending;
  Part parts[kMaxGraphParts];
};

namespace {

constexpr int32_t kLeast = 4;  // fewer launches are not worth a graph

template <typename T>
bool grow(T*& data, int32_t& capacity, int32_t wanted) {
  if (wanted <= capacity) return true;
  int32_t more = wanted > 2 * capacity ? wanted : 2 * capacity;
  auto* grown = static_cast<T*>(realloc(data, static_cast<size_t>(more) * sizeof(T)));
  if (!grown) return false;
  data = grown, capacity = more;
  return true;
}

bool reserve(LaunchList& list, int32_t launches, int32_t args) {
  return grow(list.launches, list.capacity, launches) && grow(list.args, list.args_capacity, args);
}

// What the driver is told of a launch; `pointers` has room for its arguments.
KernelNode describe_node(const State& s, const LaunchList& list, const Pending& p, void** pointers) {
  for (int32_t i = 0; i < p.num_args; ++i) pointers[i] = &list.args[p.first_arg + i];
  KernelNode n = {};
  n.function = s.device->functions[p.kernel];
  for (int i = 0; i < 3; ++i) n.grid[i] = p.geometry[i], n.block[i] = p.geometry[3 + i];
  n.shared = p.geometry[6];
  n.parameters = pointers;
  return n;
}

Result launch_each(tp_run& run, const LaunchList& list) {
  State& s = *run.cuda;
  void* pointers[kMaxArguments];
  for (int32_t i = 0; i < list.count; ++i) {
    const Pending& p = list.launches[i];
    const KernelNode n = describe_node(s, list, p, pointers);
    s.last_kernel = p.kernel;
    if (Result r = s.driver->launch(n.function, n.grid[0], n.grid[1], n.grid[2], n.block[0], n.block[1], n.block[2],
                                    n.shared, s.stream, n.parameters, nullptr))
      return r;
  }
  return 0;
}

void drop_graph(const Driver& driver, Part& part) {
  if (part.exec) driver.graph_exec_destroy(part.exec);
  if (part.graph) driver.graph_destroy(part.graph);
  part.exec = nullptr, part.graph = nullptr;
  part.made.count = part.made.num_args = 0;
}

bool same_kernels(const LaunchList& a, const LaunchList& b) {
  if (a.count != b.count || a.num_args != b.num_args) return false;
  for (int32_t i = 0; i < a.count; ++i)
    if (a.launches[i].kernel != b.launches[i].kernel || a.launches[i].num_args != b.launches[i].num_args) return false;
  return true;
}

// Nodes whose grid or arguments are others than last time.
Result patch(State& s, Part& part, const LaunchList& now) {
  void* pointers[kMaxArguments];
  for (int32_t i = 0; i < now.count; ++i) {
    Pending& old = part.made.launches[i];
    const Pending& p = now.launches[i];
    auto bytes = static_cast<size_t>(p.num_args) * sizeof(uint64_t);
    uint64_t* old_args = part.made.args + old.first_arg;
    if (!memcmp(old.geometry, p.geometry, sizeof p.geometry) && !memcmp(old_args, now.args + p.first_arg, bytes)) continue;
    const KernelNode n = describe_node(s, now, p, pointers);
    if (Result r = s.driver->graph_exec_set_kernel(part.exec, part.nodes[i], &n)) return r;
    memcpy(old.geometry, p.geometry, sizeof p.geometry);
    memcpy(old_args, now.args + p.first_arg, bytes);
  }
  return 0;
}

// One node a launch, each behind the one before it, as on a stream.
Result make(State& s, Part& part, const LaunchList& now) {
  drop_graph(*s.driver, part);
  if (!reserve(part.made, now.count, now.num_args) || !grow(part.nodes, part.node_capacity, now.count)) return kOutOfMemory;
  void* pointers[kMaxArguments];
  Result r = s.driver->graph_create(&part.graph, 0);
  for (int32_t i = 0; r == 0 && i < now.count; ++i) {
    const KernelNode n = describe_node(s, now, now.launches[i], pointers);
    r = s.driver->graph_add_kernel(&part.nodes[i], part.graph, i ? &part.nodes[i - 1] : nullptr, i ? 1 : 0, &n);
  }
  if (r == 0) r = s.driver->graph_instantiate(&part.exec, part.graph, 0);
  if (r != 0) return drop_graph(*s.driver, part), r;
  memcpy(part.made.launches, now.launches, static_cast<size_t>(now.count) * sizeof(Pending));
  memcpy(part.made.args, now.args, static_cast<size_t>(now.num_args) * sizeof(uint64_t));
  part.made.count = now.count, part.made.num_args = now.num_args;
  return 0;
}

}  // namespace

tripod_status make_graphs(State& s) {
  s.graphs = static_cast<Graphs*>(calloc(1, sizeof(Graphs)));
  return s.graphs ? TRIPOD_OK : set_last_error(TRIPOD_OUT_OF_MEMORY, "out of memory");
}

void delete_graphs(State& s, bool driver_works) {
  if (!s.graphs) return;
  for (Part& part : s.graphs->parts) {
    if (driver_works) drop_graph(*s.driver, part);
    free(part.made.launches), free(part.made.args), free(part.nodes);
  }
  free(s.graphs->pending.launches), free(s.graphs->pending.args);
  free(s.graphs);
  s.graphs = nullptr;
}

// A stream that the caller captures takes plain launches: his graph is the one.
void begin_graphs(tp_run& run) {
  Graphs& g = *run.cuda->graphs;
  g.active = !run.step_hook && !is_capturing(*run.cuda);
  g.next_part = g.pending.count = g.pending.num_args = 0;
}

bool collect_launch(State& s, int32_t k, const uint64_t* args, int32_t num_args, const int64_t* geometry) {
  Graphs& g = *s.graphs;
  LaunchList& list = g.pending;
  if (!g.active || !reserve(list, list.count + 1, list.num_args + num_args)) return false;
  Pending& p = list.launches[list.count++];
  p.kernel = k, p.num_args = num_args, p.first_arg = list.num_args;
  for (int i = 0; i < 7; ++i) p.geometry[i] = static_cast<uint32_t>(geometry[i]);
  memcpy(list.args + list.num_args, args, static_cast<size_t>(num_args) * sizeof(uint64_t));
  list.num_args += num_args;
  return true;
}

tripod_status flush_launches(tp_run& run) {
  State& s = *run.cuda;
  if (!s.graphs || s.graphs->pending.count == 0) return TRIPOD_OK;
  Graphs& g = *s.graphs;
  LaunchList now = g.pending;
  g.pending.count = g.pending.num_args = 0;  // the list's memory stays as it is until the next launch
  if (run.status != TRIPOD_OK) return static_cast<tripod_status>(run.status);
  if (now.count < kLeast || g.next_part == kMaxGraphParts) {
    Result r = launch_each(run, now);
    return r == 0 ? TRIPOD_OK : driver_failed(run, r, "launching a kernel");
  }
  Part& part = g.parts[g.next_part++];
  Result r = part.exec && same_kernels(part.made, now) ? patch(s, part, now) : make(s, part, now);
  if (r == 0) {
    s.last_kernel = now.launches[now.count - 1].kernel;
    r = s.driver->graph_launch(part.exec, s.stream);
  }
  if (r == 0) return TRIPOD_OK;
  drop_graph(*s.driver, part);
  return driver_failed(run, r, "launching the call's kernels as a graph");
}

}  // namespace tripod::rt::cuda
