// Types of values in the graph, and the attribute structs of nodes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "sym/expr.h"

namespace tripod::graph {

using sym::Expr;
using Shape = std::vector<Expr>;

// Where a value lives. `place` decides; before it everything is on the host.
struct Space {
  enum Kind : uint8_t { host, cuda, npu } kind = host;
  uint8_t index = 0;
  bool operator==(const Space&) const = default;
};

// real = (stored - zero_point) * scale, per tensor, per axis or per block along the axis.
struct Quantisation {
  std::vector<float> scale;
  std::vector<int32_t> zero_point;
  int axis = -1;   // -1: per tensor
  int block = 0;   // 0: one scale an index of the axis
  bool operator==(const Quantisation&) const = default;
};

// Which named mesh axis splits which dim (nothing uses it yet; collectives will).
struct Sharding {
  std::vector<std::string> mesh_axis_of_dim;
  bool operator==(const Sharding&) const = default;
};

// The order of the dims in memory, outermost first; empty means row-major. `layout` decides; shapes stay logical.
using DimOrder = std::vector<int>;

struct Type {
  enum Kind : uint8_t { tensor, sequence, optional, absent } kind = tensor;
  // tensor
  DType dtype = DType::none;
  Shape shape;
  Space space;
  DimOrder order;
  std::shared_ptr<const Quantisation> quant;
  std::shared_ptr<const Sharding> sharding;
  // sequence, optional
  std::shared_ptr<const Type> element;
  // A tensor's elements in memory between kernels, where `precision` stores them narrower; none: dtype. What is
  // computed stays dtype.
  DType storage = DType::none;

  DType stored() const { return storage == DType::none ? dtype : storage; }
  int rank() const { return static_cast<int>(shape.size()); }
  static Type make(DType t, Shape s) { return Type{tensor, t, std::move(s), {}, {}, {}, {}, {}, DType::none}; }
};

// --- attributes: about 15 structs serve all ops -------------------------------------------------------------------

using Ints = std::vector<int64_t>;

struct NoAttr { bool operator==(const NoAttr&) const = default; };
// More operands than this are put together in several steps.
inline constexpr size_t kWidestConcat = 32;

struct AxisAttr {            // softmax, concat, gather, cumsum, topk, norms, ...
  int axis = 0;              // 0 <= axis < rank
  int64_t value = 0;         // gather_nd: batch dims; others: 0
  bool flag_a = false;       // cumsum: exclusive; topk: largest; one_hot unused
  bool flag_b = false;       // cumsum: reverse;   topk: sorted
  std::string text;          // scatter reductions: "none", "add", "mul", "min", "max"
  bool operator==(const AxisAttr&) const = default;
};
struct ReduceAttr {          // reduce_*, arg_max, arg_min
  std::vector<int> axes;     // sorted, non-negative; empty: the identity
  bool keep_dims = true;
  bool last_index = false;   // arg_*: of equal elements the last
  bool operator==(const ReduceAttr&) const = default;
};
struct ScalarAttr {          // parameters of elementwise ops, epsilons of norms
  double a = 0, b = 0, c = 0;
  int axis = 0;              // layer_norm, rms_norm: the first normalised axis; group_norm: number of groups
  bool operator==(const ScalarAttr&) const = default;
};
struct CastAttr {
  DType to = DType::f32;
  bool saturate = true;      // only for f8
  bool operator==(const CastAttr&) const = default;
};
struct ConvAttr {            // conv, conv_transpose, conv_integer, im2col-like ops; one entry a spatial dim
  Ints strides, dilations, pads_begin, pads_end, output_padding;
  int64_t group = 1;
  bool operator==(const ConvAttr&) const = default;
};
struct PoolAttr {            // max_pool, average_pool, lp_pool
  Ints kernel, strides, dilations, pads_begin, pads_end;
  bool ceil_mode = false, count_include_pad = false;
  bool column_major_indices = false;  // max_pool's storage_order
  int64_t p = 2;             // lp_pool
  bool operator==(const PoolAttr&) const = default;
};
struct PermAttr {            // transpose: result dim i is operand dim perm[i]
  std::vector<int> perm;
  bool operator==(const PermAttr&) const = default;
};
struct SliceAttr {           // slice: result[i] = x[start + i*step] on every axis; extents are in the result type
  std::vector<Expr> starts;  // one a dim, already clamped to be in bounds
  Ints steps;                // non-zero, may be negative
  bool operator==(const SliceAttr&) const = default;
};
struct PadAttr {             // pad; negative pads are a slice in front (the importer splits them)
  std::vector<Expr> begin, end;  // one a dim, >= 0
  enum Mode : uint8_t { constant, reflect, edge, wrap } mode = constant;
  bool operator==(const PadAttr&) const = default;
};
struct ResizeAttr {          // resize: ONNX's modes as they are; sizes are in the result type
  std::string mode = "nearest", coordinate = "half_pixel", nearest = "round_prefer_floor";
  double cubic_a = -0.75, extrapolation = 0;
  bool exclude_outside = false, antialias = false;
  std::vector<double> scales;  // one a dim; NaN: result dim / operand dim at run time
  std::vector<double> roi;     // 2 * rank for tf_crop_and_resize, else empty
  bool operator==(const ResizeAttr&) const = default;
};
struct AttentionAttr {       // attention(q, k, v, mask?): q [B, H, S, D], k [B, Hkv, T, D], v [B, Hkv, T, Dv]
  double scale = 0;          // 0: 1/sqrt(D)
  bool causal = false;       // query i sees keys j <= i + T - S
  double softcap = 0;
  bool operator==(const AttentionAttr&) const = default;
};
struct RnnAttr {             // lstm, gru, rnn; operands and layouts as ONNX with layout = 0
  enum Direction : uint8_t { forward, reverse, bidirectional } direction = forward;
  int64_t hidden = 0;
  std::vector<std::string> activations;  // one for each gate function and direction, all lower case
  std::vector<double> alpha, beta;
  double clip = 0;           // 0: none
  bool input_forget = false, linear_before_reset = false;
  bool operator==(const RnnAttr&) const = default;
};
struct ExprsAttr {           // sym_values: the elements; read_dim: the one symbol that is defined
  std::vector<Expr> values;
  bool operator==(const ExprsAttr&) const = default;
};
struct ConstAttr;            // below: owns or maps bytes
struct CallAttr {            // call: a user's kernel or a runtime operator
  std::string function;      // "tp_op_topk" or a name from --ops
  Ints ints;
  bool operator==(const CallAttr&) const = default;
};
// Sub-graphs see nothing of the outer graph: values they use are operands of the node and inputs of the sub-graph
// (captures, always last). Dims are shared: one sym::Context serves the whole module.
//   if(cond, captures...)                              graphs {then, else}; inputs: captures
//   loop(trip?, cond?, carried..., captures...)        inputs: iteration i64, condition b1, carried, captures;
//                                                      outputs: condition, carried, scanned
//   scan(carried..., scanned..., captures...)          inputs: carried, slices, captures; outputs: carried, slices
struct SubgraphAttr {
  std::vector<int32_t> graphs;  // indices into Module::graphs
  int64_t num_carried = 0;
  int64_t num_scan_inputs = 0;
  std::vector<int> scan_input_axes, scan_output_axes;
  std::vector<bool> scan_input_reverse, scan_output_reverse;
  bool operator==(const SubgraphAttr&) const = default;
};

// Bytes of a constant: owned, or a view into a mapped file that `owner` keeps alive. Row-major, natural alignment
// not guaranteed (read with memcpy). Identity is by content (sha256 in text, fast hash inside).
struct ConstAttr {
  std::shared_ptr<const void> owner;
  const std::byte* data = nullptr;
  int64_t size = 0;          // bytes
  std::vector<std::string> strings;  // of a string tensor, instead of data
  bool operator==(const ConstAttr& o) const;
};

using Attr = std::variant<NoAttr, AxisAttr, ReduceAttr, ScalarAttr, CastAttr, ConvAttr, PoolAttr, PermAttr, SliceAttr,
                          PadAttr, ResizeAttr, AttentionAttr, RnnAttr, ExprsAttr, ConstAttr, CallAttr, SubgraphAttr>;

}  // namespace tripod::graph
