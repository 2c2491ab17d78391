// What every ONNX op family is written against.
//
// A family (src/onnx/ops_*.cc) is a table of rows, one for each range of opset versions that an operator is imported
// in the same way, and the functions the rows name. `families.cc` lists the tables; there is no registration.
//
// An importer function reads operands, attributes and constants through its NodeContext, adds core ops to `c.g`, and
// returns one value for each output of the ONNX node (kNoValue for an optional output it does not make; those after
// the last one returned count as not made). What is wrong with the node is said by throwing: c.fail() here,
// graph::ShapeError and sym::Overflow from below. The import loop catches it, records it with the node's index, op
// type and name, marks the node's outputs as bad and goes on, so that every offending node is reported at once;
// nodes that only use bad values are not reported.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "graph/graph.h"

// Families do not see the protobuf classes (they are slow to compile); NodeContext reads them.
namespace onnx {
class AttributeProto;
class GraphProto;
class NodeProto;
}  // namespace onnx

namespace tripod::importer {

using graph::Attr;
using graph::Expr;
using graph::Graph;
using graph::Ints;
using graph::kNoValue;
using graph::OpKind;
using graph::Shape;
using graph::Type;
using graph::ValueId;

inline constexpr int kMinOpset = 6, kMaxOpset = 28;
inline constexpr int kMaxRank = 64;  // far beyond any real tensor; keeps damaged files from costing time

class NodeContext;
using Importer = std::vector<ValueId> (*)(NodeContext&);

struct Row {
  std::string_view op;
  int since, until;             // opsets of the model for which this row holds, inclusive
  int min_inputs, max_inputs;   // leading inputs that must be there; most inputs (-1: any). The loop checks both.
  Importer import;
  OpKind kind = OpKind::identity;  // for functions that serve many rows: c.row.kind
  std::string_view domain = "";    // "" is ai.onnx
};

// The tables, in families.cc.
std::span<const std::span<const Row>> families();

// What a node does wrong. Thrown by NodeContext::fail, caught by the import loop.
struct NodeError {
  std::string message, hint;
};

class Scope;  // the importer's own: names of the graph being imported (scope.h)

class NodeContext {
 public:
  NodeContext(Scope& scope, Graph& g, const ::onnx::NodeProto& node, const Row& row, int opset, Site site,
              std::vector<ValueId> inputs);

  Scope& scope;
  Graph& g;
  const ::onnx::NodeProto& node;
  const Row& row;
  const int opset;  // of the node's domain
  const Site site;

  [[noreturn]] void fail(std::string message, std::string hint = "") const;

  // --- operands ---------------------------------------------------------------------------------------------------
  int num_inputs() const { return static_cast<int>(inputs_.size()); }    // trailing empty ones not counted
  int num_outputs() const;
  bool has_input(int i) const { return i < num_inputs() && inputs_[i] != kNoValue; }
  bool wants_output(int i) const;
  ValueId input(int i) const;            // fails when it is missing
  ValueId optional_input(int i) const;   // kNoValue when it is missing
  const std::vector<ValueId>& inputs() const { return inputs_; }

  // Copies: a reference into the graph would not survive the next node that is added.
  Type type(ValueId v) const { return g.type(v); }
  const Shape& shape(ValueId v) const { return g.type(v).shape; }
  int rank(ValueId v) const { return g.type(v).rank(); }
  Expr dim(ValueId v, int axis) const { return g.type(v).shape[axis]; }
  DType dtype(ValueId v) const { return g.type(v).dtype; }
  sym::Context& sym() const { return g.sym(); }
  Expr expr(int64_t v) const { return g.sym().constant(v); }
  // Wraps a negative axis, fails when it is outside of [-rank, rank).
  int axis(int64_t axis, int rank, std::string_view what = "axis") const;
  // Same for a list; fails on duplicates. Order is kept.
  std::vector<int> axes(const Ints& axes, int rank, std::string_view what = "axes") const;
  // Fail with a message that names the input when it does not have the wanted type or rank.
  void need_rank(int input, int rank) const;
  void need_min_rank(int input, int rank) const;
  void need_float(int input) const;
  void need_integer(int input) const;                 // i8..u64
  void need_same_dtype(int input_a, int input_b) const;

  // --- attributes. A wrong type fails; so does a missing one where no default is given. ----------------------------
  bool has(std::string_view name) const { return find(name) != nullptr; }
  int64_t attr_int(std::string_view name) const;
  int64_t attr_int(std::string_view name, int64_t otherwise) const;
  bool attr_bool(std::string_view name, bool otherwise) const;  // an int that must be 0 or 1
  double attr_float(std::string_view name) const;
  double attr_float(std::string_view name, double otherwise) const;
  std::string attr_string(std::string_view name) const;
  std::string attr_string(std::string_view name, std::string_view otherwise) const;
  // One of the given words, else a failure that lists them.
  std::string attr_choice(std::string_view name, std::string_view otherwise,
                          std::initializer_list<std::string_view> words) const;
  Ints attr_ints(std::string_view name) const;
  Ints attr_ints(std::string_view name, Ints otherwise) const;
  std::vector<double> attr_floats(std::string_view name, std::vector<double> otherwise = {}) const;
  std::vector<std::string> attr_strings(std::string_view name, std::vector<std::string> otherwise = {}) const;
  DType attr_dtype(std::string_view name, DType otherwise = DType::none) const;  // a TensorProto.DataType
  ValueId attr_tensor(std::string_view name) const;                              // as a constant of the graph
  const ::onnx::GraphProto& attr_graph(std::string_view name) const;

  // --- values of operands -----------------------------------------------------------------------------------------
  // The elements of an integer (or bool) tensor, row-major: as numbers when v is constant; as expressions when its
  // contents are known. Nothing otherwise.
  std::optional<Ints> ints(ValueId v) const;
  std::optional<std::vector<Expr>> exprs(ValueId v) const;
  std::optional<std::vector<double>> floats(ValueId v) const;  // of a constant of any number type
  // The elements of a rank 0 or 1 integer tensor as expressions, whatever it takes: what is not known is read at run
  // time (read_dim), which makes data symbols with the given range. Reading the same value twice gives the same
  // symbols. Fails when the number of elements is not known.
  std::vector<Expr> dims(ValueId v, sym::Range range = kDimRange) const;
  Expr dims_scalar(ValueId v, sym::Range range = kDimRange) const;  // of a tensor with one element
  // Constants or a failure that names the input ("axes must be constant: ...").
  Ints need_ints(int input, std::string_view what) const;
  static constexpr sym::Range kDimRange{0, (int64_t{1} << 31) - 1};
  // For numbers that may be negative or "as far as it goes" (starts and ends of Slice): what is read at run time is
  // clamped to this range, so that arithmetic with it cannot overflow.
  static constexpr sym::Range kAnyRange{-(int64_t{1} << 40), int64_t{1} << 40};
  // A symbol that only the run can know (a count that a runtime operator will define).
  Expr new_data_symbol(std::string_view name, sym::Range range = kDimRange) const;

  // --- short cuts -------------------------------------------------------------------------------------------------
  ValueId add(OpKind op, std::vector<ValueId> operands, Attr attr = graph::NoAttr{}) const {
    return g.add(op, std::move(operands), std::move(attr));
  }
  ValueId reshape(ValueId x, Shape shape) const { return g.reshape(x, std::move(shape)); }
  ValueId cast(ValueId x, DType to) const;                   // x itself when it has the type already
  ValueId scalar(DType t, double v) const { return g.scalar(t, v); }
  ValueId int_scalar(DType t, int64_t v) const;              // exact for 64-bit values
  ValueId scalar_of(ValueId like, double v) const { return g.scalar(g.type(like).dtype, v); }
  ValueId transpose(ValueId x, std::vector<int> perm) const;
  ValueId broadcast(ValueId x, Shape shape) const;           // x itself when it has the shape already
  // Rank becomes `rank` with x's dims at `axis` and after, ones elsewhere: a [C] bias against [N, C, H, W].
  ValueId align(ValueId x, int axis, int rank) const;
  ValueId unsqueeze(ValueId x, int axis) const;              // 0 <= axis <= rank
  ValueId squeeze(ValueId x, int axis) const;                // the dim must be 1
  // x[.., start : start + size*step : step, ..] along one axis, no clamping.
  ValueId slice(ValueId x, int axis, Expr start, Expr size, int64_t step = 1) const;
  ValueId concat(std::vector<ValueId> xs, int axis) const;   // x itself when there is one
  ValueId constant(const Ints& shape, const std::vector<float>& values) const;  // f32

  // Description of an operand for messages: `x : f32[N, 3, 8]`.
  std::string text(ValueId v) const;

 private:
  const ::onnx::AttributeProto* find(std::string_view name) const;
  const ::onnx::AttributeProto& get(std::string_view name, int type) const;  // AttributeProto::AttributeType
  std::vector<ValueId> inputs_;
};

// ONNX element types.
std::optional<DType> dtype_of(int32_t onnx_data_type);
std::string onnx_type_name(int32_t onnx_data_type);

// --- the families -------------------------------------------------------------------------------------------------
// (importer A)
std::span<const Row> elementwise_rows();
std::span<const Row> elementwise_legacy_rows();
std::span<const Row> identity_rows();
std::span<const Row> source_rows();
std::span<const Row> move_rows();
std::span<const Row> slice_rows();
std::span<const Row> gather_rows();
std::span<const Row> control_rows();
// (importer B)
std::span<const Row> attention_rows();
std::span<const Row> conv_rows();
std::span<const Row> einsum_rows();
std::span<const Row> loss_rows();
std::span<const Row> matmul_rows();
std::span<const Row> norm_rows();
std::span<const Row> pool_rows();
std::span<const Row> quantize_rows();
std::span<const Row> reduce_rows();
std::span<const Row> resize_rows();
std::span<const Row> rnn_rows();
std::span<const Row> select_rows();
std::span<const Row> softmax_rows();

}  // namespace tripod::importer
