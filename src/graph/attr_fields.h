// The fields of each attribute struct by name, in the order of the text form. One description serves the printer and
// the parser: a visitor is called with (name, pointer to member) for each field.
//
// Fields that equal the default are left out of the text; those in `always` are not, because a reader wants them.
#pragma once

#include <string_view>

#include "graph/types.h"

namespace tripod::graph {

enum class Show : uint8_t { changed, always };

// `V` has: template <class A, class T> void operator()(std::string_view name, T A::*member, Show show).
template <class A>
struct Fields;

template <>
struct Fields<NoAttr> {
  template <class V> static void visit(V&&) {}
};
template <>
struct Fields<AxisAttr> {
  template <class V> static void visit(V&& v) {
    v("axis", &AxisAttr::axis, Show::always);
    v("value", &AxisAttr::value, Show::changed);
    v("flag_a", &AxisAttr::flag_a, Show::changed);
    v("flag_b", &AxisAttr::flag_b, Show::changed);
    v("text", &AxisAttr::text, Show::changed);
  }
};
template <>
struct Fields<ReduceAttr> {
  template <class V> static void visit(V&& v) {
    v("axes", &ReduceAttr::axes, Show::always);
    v("keep_dims", &ReduceAttr::keep_dims, Show::changed);
    v("last_index", &ReduceAttr::last_index, Show::changed);
  }
};
template <>
struct Fields<ScalarAttr> {
  template <class V> static void visit(V&& v) {
    v("a", &ScalarAttr::a, Show::changed);
    v("b", &ScalarAttr::b, Show::changed);
    v("c", &ScalarAttr::c, Show::changed);
    v("axis", &ScalarAttr::axis, Show::changed);
  }
};
template <>
struct Fields<CastAttr> {
  template <class V> static void visit(V&& v) {
    v("to", &CastAttr::to, Show::always);
    v("saturate", &CastAttr::saturate, Show::changed);
  }
};
template <>
struct Fields<ConvAttr> {
  template <class V> static void visit(V&& v) {
    v("strides", &ConvAttr::strides, Show::always);
    v("dilations", &ConvAttr::dilations, Show::always);
    v("pads_begin", &ConvAttr::pads_begin, Show::always);
    v("pads_end", &ConvAttr::pads_end, Show::always);
    v("output_padding", &ConvAttr::output_padding, Show::changed);
    v("group", &ConvAttr::group, Show::changed);
  }
};
template <>
struct Fields<PoolAttr> {
  template <class V> static void visit(V&& v) {
    v("kernel", &PoolAttr::kernel, Show::always);
    v("strides", &PoolAttr::strides, Show::always);
    v("dilations", &PoolAttr::dilations, Show::always);
    v("pads_begin", &PoolAttr::pads_begin, Show::always);
    v("pads_end", &PoolAttr::pads_end, Show::always);
    v("ceil_mode", &PoolAttr::ceil_mode, Show::changed);
    v("count_include_pad", &PoolAttr::count_include_pad, Show::changed);
    v("column_major_indices", &PoolAttr::column_major_indices, Show::changed);
    v("p", &PoolAttr::p, Show::changed);
  }
};
template <>
struct Fields<PermAttr> {
  template <class V> static void visit(V&& v) { v("perm", &PermAttr::perm, Show::always); }
};
template <>
struct Fields<SliceAttr> {
  template <class V> static void visit(V&& v) {
    v("starts", &SliceAttr::starts, Show::always);
    v("steps", &SliceAttr::steps, Show::always);
  }
};
template <>
struct Fields<PadAttr> {
  template <class V> static void visit(V&& v) {
    v("begin", &PadAttr::begin, Show::always);
    v("end", &PadAttr::end, Show::always);
    v("mode", &PadAttr::mode, Show::changed);
  }
};
template <>
struct Fields<ResizeAttr> {
  template <class V> static void visit(V&& v) {
    v("mode", &ResizeAttr::mode, Show::always);
    v("coordinate", &ResizeAttr::coordinate, Show::always);
    v("nearest", &ResizeAttr::nearest, Show::changed);
    v("cubic_a", &ResizeAttr::cubic_a, Show::changed);
    v("extrapolation", &ResizeAttr::extrapolation, Show::changed);
    v("exclude_outside", &ResizeAttr::exclude_outside, Show::changed);
    v("antialias", &ResizeAttr::antialias, Show::changed);
    v("scales", &ResizeAttr::scales, Show::always);
    v("roi", &ResizeAttr::roi, Show::changed);
  }
};
template <>
struct Fields<AttentionAttr> {
  template <class V> static void visit(V&& v) {
    v("scale", &AttentionAttr::scale, Show::changed);
    v("causal", &AttentionAttr::causal, Show::changed);
    v("softcap", &AttentionAttr::softcap, Show::changed);
  }
};
template <>
struct Fields<RnnAttr> {
  template <class V> static void visit(V&& v) {
    v("direction", &RnnAttr::direction, Show::always);
    v("hidden", &RnnAttr::hidden, Show::always);
    v("activations", &RnnAttr::activations, Show::changed);
    v("alpha", &RnnAttr::alpha, Show::changed);
    v("beta", &RnnAttr::beta, Show::changed);
    v("clip", &RnnAttr::clip, Show::changed);
    v("input_forget", &RnnAttr::input_forget, Show::changed);
    v("linear_before_reset", &RnnAttr::linear_before_reset, Show::changed);
  }
};
template <>
struct Fields<ExprsAttr> {
  template <class V> static void visit(V&& v) { v("values", &ExprsAttr::values, Show::always); }
};
template <>
struct Fields<ConstAttr> {  // has a form of its own
  template <class V> static void visit(V&&) {}
};
template <>
struct Fields<CallAttr> {
  template <class V> static void visit(V&& v) {
    v("function", &CallAttr::function, Show::always);
    v("ints", &CallAttr::ints, Show::changed);
  }
};
template <>
struct Fields<SubgraphAttr> {
  template <class V> static void visit(V&& v) {
    v.bodies("graphs", &SubgraphAttr::graphs);  // by name, not by index
    v("num_carried", &SubgraphAttr::num_carried, Show::changed);
    v("num_scan_inputs", &SubgraphAttr::num_scan_inputs, Show::changed);
    v("scan_input_axes", &SubgraphAttr::scan_input_axes, Show::changed);
    v("scan_output_axes", &SubgraphAttr::scan_output_axes, Show::changed);
    v("scan_input_reverse", &SubgraphAttr::scan_input_reverse, Show::changed);
    v("scan_output_reverse", &SubgraphAttr::scan_output_reverse, Show::changed);
  }
};

// The words of the enums, in the order of their values.
inline constexpr std::string_view kPadModes[] = {"constant", "reflect", "edge", "wrap"};
inline constexpr std::string_view kDirections[] = {"forward", "reverse", "bidirectional"};
inline constexpr std::string_view kSpaces[] = {"host", "cuda", "npu"};

inline constexpr int64_t kMaxPrintedElements = 64;

}  // namespace tripod::graph
