// What the model's functions look like to tools that ask a TVM-FFI module: type schema and documentation.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/internal.h"
#include "runtime/tvm_ffi.h"

namespace tripod::rt::ffi {
namespace {

// Text that grows.
class Text {
 public:
  ~Text() { free(data_); }
  void add(const char* format, ...) TP_PRINTF(2, 3) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int n = vsnprintf(nullptr, 0, format, arguments);
    va_end(arguments);
    size_t wanted = size_ + static_cast<size_t>(n) + 1;
    if (wanted > capacity_) {
      char* grown = static_cast<char*>(realloc(data_, 2 * wanted));
      if (grown) data_ = grown, capacity_ = 2 * wanted;
    }
    if (wanted <= capacity_) size_ += static_cast<size_t>(vsnprintf(data_ + size_, capacity_ - size_, format, again));
    va_end(again);
  }
  int give(Any* result) {
    const Library* l = library();
    Bytes bytes = {data_ ? data_ : "", size_};
    return l ? l->string_from(&bytes, result) : -1;
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

void add_input(Text& text, const tp_io& io) {
  text.add("%s: %s[", io.name, dtype_name(io.dtype));
  for (int32_t a = 0; a < io.rank; ++a) {
    const tp_axis& axis = io.axes[a];
    if (a > 0) text.add(", ");
    if (axis.symbol >= 0)
      text.add("%s", tp_the_model.symbols[axis.symbol].name);
    else
      text.add("%lld", static_cast<long long>(axis.extent));
  }
  text.add("]");
}

}  // namespace

int describe_main(bool into, Any* result) {
  constexpr const char* kTensor = R"({\"type\":\"ffi.Tensor\"})";
  int32_t params = tp_the_model.num_inputs + (into ? tp_the_model.num_outputs : 0);
  int32_t returned = into ? 0 : tp_the_model.num_outputs;
  Text text;
  text.add(R"({"type_schema":"{\"type\":\"ffi.Function\",\"named_args\":{\"return\":[)");
  if (returned == 0) text.add(R"({\"type\":\"None\"})");
  if (returned == 1) text.add("%s", kTensor);
  if (returned > 1) text.add(R"({\"type\":\"ffi.Array\",\"args\":[%s]})", kTensor);
  text.add(R"(],\"params\":[)");
  for (int32_t i = 0; i < params; ++i) text.add("%s%s", i > 0 ? "," : "", kTensor);
  text.add(R"(]}}"})");
  return text.give(result);
}

int document_main(bool into, Any* result) {
  Text text;
  text.add(into ? "main_into(" : "main(");
  for (int32_t i = 0; i < tp_the_model.num_inputs; ++i) {
    if (i > 0) text.add(", ");
    add_input(text, tp_the_model.inputs[i]);
  }
  if (into && tp_the_model.num_inputs > 0 && tp_the_model.num_outputs > 0) text.add(", ");
  if (!into) text.add(") -> (");
  for (int32_t i = 0; i < tp_the_model.num_outputs; ++i) {
    const tp_io& io = tp_the_model.outputs[i];
    text.add("%s%s: %s rank %d", i > 0 ? ", " : "", io.name, dtype_name(io.dtype), io.rank);
  }
  text.add(")");
  return text.give(result);
}

}  // namespace tripod::rt::ffi
