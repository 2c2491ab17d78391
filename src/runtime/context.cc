// Contexts, and one run of the model from checked inputs to finished outputs.
#include <immintrin.h>
#include <stdlib.h>

#include "runtime/cuda.h"
#include "runtime/internal.h"

namespace tripod::rt {
namespace {

// Idle contexts of the TVM-FFI entry. A slot is emptied by an exchange and filled when it is empty: no lock, so
// nothing to be left locked in a forked child.
constexpr int32_t kPooled = 64;
std::atomic<tripod_context*> idle_contexts[kPooled];
std::atomic<tripod_context*> captured_contexts;  // a list: CUDA graphs replay work on their memory

template <typename T>
bool make(T*& array, int32_t n) {
  array = static_cast<T*>(calloc(n > 0 ? static_cast<size_t>(n) : 1, sizeof(T)));
  return array != nullptr;
}

bool make_arena(Arena& arena, int32_t buffers) {
  return make(arena.sizes, buffers) && make(arena.offsets, buffers) && make(arena.wanted, buffers) &&
         make(arena.order, buffers) && make(arena.placed, buffers);
}

bool fill_context(tripod_context& context) {
  const tp_model& model = tp_the_model;
  tp_run& run = context.run;
  bool ok = make(run.dims, model.num_symbols) && make(run.inputs, model.num_inputs) &&
            make(run.input_bytes, model.num_inputs) &&
            make(run.input_staging, model.num_inputs) && make(run.outputs, model.num_outputs) &&
            make(run.arenas, model.num_segments) && make(context.values, model.num_inputs + model.num_outputs) &&
            make(context.handles, model.num_outputs);
  for (int32_t s = 0; ok && s < model.num_segments; ++s) ok = make_arena(run.arenas[s], model.segments[s].num_buffers);
  return ok;
}

void delete_arena(Arena& arena) {
  free(arena.sizes);
  free(arena.offsets);
  free(arena.wanted);
  free(arena.order);
  free(arena.placed);
  release(arena.memory);
}

// Results must not depend on the caller's rounding mode or flush-to-zero bits, and be the same as on the pool's threads.
class DefaultArithmetic {
 public:
  DefaultArithmetic() : before_(_mm_getcsr()) {
    if ((before_ & kControl) != kDefault) _mm_setcsr(kDefault);
  }
  ~DefaultArithmetic() {
    if ((before_ & kControl) != kDefault) _mm_setcsr(before_);
  }
  DefaultArithmetic(const DefaultArithmetic&) = delete;
  DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;

 private:
  static constexpr uint32_t kDefault = 0x1f80, kControl = 0xffc0;  // the low bits are sticky flags
  uint32_t before_;
};

void report_kernel_error(tp_run& run) {
  fail(run, TRIPOD_INDEX_OUT_OF_RANGE, "%s: index %lld is not in [0, %lld)", site_name(run.kernel_site),
       static_cast<long long>(run.kernel_got), static_cast<long long>(run.kernel_limit));
}

tripod_status run_program(tp_run& run) {
  const char* data = weights();
  if (!data) return fail(run, TRIPOD_RUNTIME_ERROR, "%s", last_error());
  DefaultArithmetic arithmetic;
  int32_t code = tp_the_model.program(&run, run.dims, run.inputs, data);
  if (run.kernel_error.load(std::memory_order_acquire)) report_kernel_error(run);
  if (run.status != TRIPOD_OK) return static_cast<tripod_status>(run.status);
  if (code != 0) return fail(run, TRIPOD_RUNTIME_ERROR, "the program ended with code %d and no message", code);
  return finish_outputs(run);
}

}  // namespace

tripod_context* new_context() {
  auto* context = static_cast<tripod_context*>(calloc(1, sizeof(tripod_context)));
  if (!context || fill_context(*context)) return context;
  delete_context(context);
  return nullptr;
}

void delete_context(tripod_context* context) {
  if (!context) return;
  const tp_model& model = tp_the_model;
  tp_run& run = context->run;
  cuda::detach(run);
  for (int32_t s = 0; run.arenas && s < model.num_segments; ++s) delete_arena(run.arenas[s]);
  for (int32_t i = 0; run.input_staging && i < model.num_inputs; ++i) release(run.input_staging[i]);
  for (int32_t i = 0; run.outputs && i < model.num_outputs; ++i) release(run.outputs[i].staging);
  release(run.thread_scratch);
  release(run.operator_memory);
  free(run.dims);
  free(run.inputs);
  free(run.input_bytes);
  free(run.input_staging);
  free(run.outputs);
  free(run.arenas);
  free(context->values);
  free(context->handles);
  free(context);
}

tripod_context* take_context() {
  for (auto& slot : idle_contexts)
    if (slot.load(std::memory_order_relaxed))
      if (tripod_context* context = slot.exchange(nullptr, std::memory_order_acquire)) return context;
  return new_context();
}

tripod_status take_context(int32_t device_id, void* stream, tripod_context** out) {
  for (bool idle : {false, true})  // one that served this stream last, else one whose work has ended
    for (auto& slot : idle_contexts) {
      if (!slot.load(std::memory_order_relaxed)) continue;
      tripod_context* context = slot.exchange(nullptr, std::memory_order_acquire);
      if (!context) continue;
      if (cuda::suits(*context->run.cuda, device_id, stream, idle)) {
        cuda::set_stream(*context->run.cuda, stream);
        *out = context;
        return TRIPOD_OK;
      }
      give_context(context);
    }
  *out = new_context();
  if (!*out) return set_last_error(TRIPOD_OUT_OF_MEMORY, "out of memory");
  tripod_status bad = cuda::attach((*out)->run, device_id, stream, true);
  if (bad) delete_context(*out);
  return bad;
}

void give_context(tripod_context* context) {
  if (context->run.cuda && context->run.cuda->captured) {
    context->next = captured_contexts.load();
    while (!captured_contexts.compare_exchange_weak(context->next, context)) {
    }
    return;
  }
  for (auto& slot : idle_contexts) {
    tripod_context* none = nullptr;
    if (!slot.load(std::memory_order_relaxed) &&
        slot.compare_exchange_strong(none, context, std::memory_order_release, std::memory_order_relaxed))
      return;
  }
  delete_context(context);
}

void delete_pooled_contexts() {
  for (auto& slot : idle_contexts) delete_context(slot.exchange(nullptr));
  for (tripod_context *next, *c = captured_contexts.exchange(nullptr); c; c = next) {
    next = c->next;
    delete_context(c);
  }
}

tripod_status synchronize_contexts() {
  tripod_status first = TRIPOD_OK;
  char message[sizeof tp_run::message];
  auto look = [&](tripod_context* c) {
    if (!c || !c->run.cuda || cuda::synchronize(c->run) == TRIPOD_OK || first != TRIPOD_OK) return;
    first = static_cast<tripod_status>(c->run.status);
    __builtin_memcpy(message, c->run.message, sizeof message);
  };
  for (auto& slot : idle_contexts)
    if (tripod_context* c = slot.exchange(nullptr, std::memory_order_acquire)) {
      look(c);
      give_context(c);
    }
  for (tripod_context* c = captured_contexts.load(std::memory_order_acquire); c; c = c->next) {
    Lock lock(c->lock);
    look(c);
  }
  return first == TRIPOD_OK ? TRIPOD_OK : set_last_error(first, "%s", message);
}

tripod_status run_model(tp_run& run, const tripod_value* inputs, int32_t num_inputs, tripod_value* outputs,
                        int32_t num_outputs) {
  run.status = TRIPOD_OK;
  run.pool_checked = false;
  run.kernel_error.store(0, std::memory_order_relaxed);
  if (!run.cuda || cuda::begin_call(run) == TRIPOD_OK) {
    bool bound = bind_inputs(run, inputs, num_inputs) == TRIPOD_OK && bind_outputs(run, outputs, num_outputs) == TRIPOD_OK;
    if (bound) run_program(run);
    if (run.cuda) cuda::end_call(run);
    if (bound && run.status != TRIPOD_OK) drop_outputs(run);
  }
  if (run.status == TRIPOD_OK) return TRIPOD_OK;
  return set_last_error(static_cast<tripod_status>(run.status), "%s", run.message);
}

}  // namespace tripod::rt
