// Checks the inputs of a call and binds the dims. Everything is checked before anything runs; the text of an error
// names the input, the axis, what came and what was wanted.
#include <stdio.h>

#include "runtime/cuda.h"
#include "runtime/internal.h"

namespace tripod::rt {
namespace {

constexpr const char* kKinds[] = {"a tensor", "a string tensor", "a sequence", "an optional"};

// The input as it is called in messages: its name is empty in some models.
#define INPUT "input %d '%s'"

tripod_status bad_axis(tp_run& run, int32_t i, int32_t axis, int64_t got, const char* wanted) {
  const tp_io& io = tp_the_model.inputs[i];
  int32_t symbol = io.axes[axis].symbol;
  auto value = static_cast<long long>(got);
  if (symbol < 0)
    return fail(run, TRIPOD_INVALID_ARGUMENT, INPUT " axis %d: got %lld, wanted %s", i, io.name, axis, value, wanted);
  return fail(run, TRIPOD_INVALID_ARGUMENT, INPUT " axis %d ('%s'): got %lld, wanted %s", i, io.name, axis,
              tp_the_model.symbols[symbol].name, value, wanted);
}

// The first input axis that has this symbol: the one that bound it.
void where_bound(int32_t symbol, char* text, size_t size) {
  for (int32_t i = 0; i < tp_the_model.num_inputs; ++i)
    for (int32_t a = 0; a < tp_the_model.inputs[i].rank; ++a)
      if (tp_the_model.inputs[i].axes[a].symbol == symbol) {
        snprintf(text, size, "as in input %d '%s' axis %d", i, tp_the_model.inputs[i].name, a);
        return;
      }
}

tripod_status bad_symbol(tp_run& run, int32_t i, int32_t axis, int64_t got) {
  const tp_symbol& s = tp_the_model.symbols[tp_the_model.inputs[i].axes[axis].symbol];
  int64_t bound = run.dims[tp_the_model.inputs[i].axes[axis].symbol];
  char wanted[160], where[128] = "";
  if (bound >= 0) {
    where_bound(tp_the_model.inputs[i].axes[axis].symbol, where, sizeof where);
    snprintf(wanted, sizeof wanted, "%lld %s", static_cast<long long>(bound), where);
  } else if (got >= s.lo && got <= s.hi) {
    snprintf(wanted, sizeof wanted, "a multiple of %lld", static_cast<long long>(s.divisor));
  } else if (s.hi == INT64_MAX) {
    snprintf(wanted, sizeof wanted, "at least %lld", static_cast<long long>(s.lo));
  } else {
    snprintf(wanted, sizeof wanted, "%lld..%lld", static_cast<long long>(s.lo), static_cast<long long>(s.hi));
  }
  return bad_axis(run, i, axis, got, wanted);
}

// One axis: a constant, or a symbol that is bound here or was bound before.
tripod_status bind_axis(tp_run& run, int32_t i, int32_t axis, int64_t got) {
  const tp_axis& want = tp_the_model.inputs[i].axes[axis];
  if (want.symbol < 0) {
    if (got == want.extent) return TRIPOD_OK;
    char text[24];
    snprintf(text, sizeof text, "%lld", static_cast<long long>(want.extent));
    return bad_axis(run, i, axis, got, text);
  }
  int64_t& dim = run.dims[want.symbol];
  if (dim >= 0) return got == dim ? TRIPOD_OK : bad_symbol(run, i, axis, got);
  const tp_symbol& s = tp_the_model.symbols[want.symbol];
  if (got < s.lo || got > s.hi || got < 0 || (s.divisor > 1 && got % s.divisor != 0))
    return bad_symbol(run, i, axis, got);
  dim = got;
  return TRIPOD_OK;
}

tripod_status check_type(tp_run& run, int32_t i, const tripod_value& value) {
  const tp_io& io = tp_the_model.inputs[i];
  const tripod_tensor& t = value.tensor;
  auto kind = io.dtype == TRIPOD_STRING ? TRIPOD_STRINGS : TRIPOD_TENSOR;
  if (enum_value(value.kind) != kind)
    return fail(run, TRIPOD_INVALID_ARGUMENT, INPUT ": got %s, wanted %s", i, io.name, kind_name(enum_value(value.kind)),
                kind_name(kind));
  if (kind == TRIPOD_TENSOR && enum_value(t.dtype) != io.dtype)
    return fail(run, TRIPOD_INVALID_ARGUMENT, INPUT ": dtype is %s, wanted %s", i, io.name, dtype_name(enum_value(t.dtype)),
                dtype_name(io.dtype));
  if (!run.cuda && enum_value(t.device) != TRIPOD_CPU) {
    char device[32];
    return fail(run, TRIPOD_INVALID_ARGUMENT, INPUT ": is on %s, wanted cpu", i, io.name,
                describe_device(t, device, sizeof device));
  }
  if (t.rank != io.rank)
    return fail(run, TRIPOD_INVALID_ARGUMENT, INPUT ": rank is %d, wanted %d", i, io.name, t.rank, io.rank);
  if (t.rank > 0 && !t.shape)
    return fail(run, TRIPOD_INVALID_ARGUMENT, INPUT ": shape is null, wanted %d dims", i, io.name, io.rank);
  return TRIPOD_OK;
}

tripod_status stage(tp_run& run, int32_t i, const tripod_tensor& t, int64_t bytes) {
  const tp_io& io = tp_the_model.inputs[i];
  if (element_bits(io.dtype) < 8)
    return fail(run, TRIPOD_INVALID_ARGUMENT, INPUT ": is strided, wanted dense memory for %s", i, io.name,
                dtype_name(io.dtype));
  if (!reserve(run.input_staging[i], bytes))
    return fail(run, TRIPOD_OUT_OF_MEMORY, INPUT ": out of memory: %lld bytes for a dense copy", i, io.name,
                static_cast<long long>(bytes));
  run.inputs[i] = run.input_staging[i].data;
  copy_strided(Copy::gather, run.inputs[i], static_cast<char*>(t.data), t.rank, t.shape, t.strides,
               element_bytes(io.dtype));
  return TRIPOD_OK;
}

tripod_status bind_data(tp_run& run, int32_t i, const tripod_tensor& t) {
  const tp_io& io = tp_the_model.inputs[i];
  int64_t count, bytes;
  run.input_bytes[i] = 0;
  if (!dense_bytes(io.dtype, t.rank, t.shape, &count, &bytes))
    return fail(run, TRIPOD_INVALID_ARGUMENT, INPUT ": the shape has more elements than memory can hold", i, io.name);
  if (count == 0) {
    run.inputs[i] = empty_data();
    return TRIPOD_OK;
  }
  if (!t.data)
    return fail(run, TRIPOD_INVALID_ARGUMENT, INPUT ": data is null, wanted %lld elements", i, io.name,
                static_cast<long long>(count));
  int32_t unit = element_bytes(io.dtype);
  if (reinterpret_cast<uintptr_t>(t.data) & static_cast<uintptr_t>(unit - 1))
    return fail(run, TRIPOD_INVALID_ARGUMENT, INPUT ": data is at address %p, wanted a multiple of %d (its %s elements)",
                i, io.name, t.data, unit, dtype_name(io.dtype));
  if (run.cuda && enum_value(t.device) == TRIPOD_CUDA) return cuda::bind_device_input(run, i, t, bytes);
  run.inputs[i] = static_cast<char*>(t.data);
  if (!is_dense(t)) {
    if (tripod_status bad = stage(run, i, t, bytes)) return bad;
  } else if (!run.cuda) {
    run.input_bytes[i] = bytes;
  }
  return run.cuda ? cuda::upload_input(run, i, bytes) : TRIPOD_OK;
}

}  // namespace

const char* kind_name(int32_t kind) { return kind >= 0 && kind < 4 ? kKinds[kind] : "a value of unknown kind"; }

const char* describe_device(const tripod_tensor& t, char* text, size_t size) {
  if (enum_value(t.device) == TRIPOD_CPU) return "cpu";
  if (enum_value(t.device) == TRIPOD_CUDA)
    snprintf(text, size, "cuda:%d", t.device_id);
  else
    snprintf(text, size, "device type %d", enum_value(t.device));
  return text;
}

tripod_status bind_inputs(tp_run& run, const tripod_value* inputs, int32_t count) {
  const tp_model& model = tp_the_model;
  if (count != model.num_inputs)
    return fail(run, TRIPOD_INVALID_ARGUMENT, "got %d inputs, wanted %d", count, model.num_inputs);
  if (count > 0 && !inputs) return fail(run, TRIPOD_INVALID_ARGUMENT, "inputs is null, wanted %d", count);
  for (int32_t s = 0; s < model.num_symbols; ++s) run.dims[s] = -1;
  for (int32_t i = 0; i < count; ++i) {
    if (tripod_status bad = check_type(run, i, inputs[i])) return bad;
    if (run.cuda)
      if (tripod_status bad = cuda::check_input_device(run, i, inputs)) return bad;
    const tripod_tensor& t = inputs[i].tensor;
    for (int32_t axis = 0; axis < t.rank; ++axis)
      if (tripod_status bad = bind_axis(run, i, axis, t.shape[axis])) return bad;
  }
  for (int32_t i = 0; i < count; ++i)  // data after all dims: nothing is copied for a call that is refused
    if (tripod_status bad = bind_data(run, i, inputs[i].tensor)) return bad;
  return TRIPOD_OK;
}

}  // namespace tripod::rt
