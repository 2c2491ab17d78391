// Broadcasting as it was up to opset 6: only with the attribute "broadcast", and the second operand's dims are
// matched with a run of the first one's from "axis" on (by default the last ones). Opsets 6 and 7 also had Sum, Max,
// Min and Mean without any broadcasting.
#include "onnx/op_importer.h"

namespace tripod::importer {
namespace {

bool same_dims(const Shape& a, const Shape& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].is_const() && b[i].is_const() && a[i] != b[i]) return false;
  return true;
}

// The second operand with dims of 1 around its own so that numpy's rules apply.
ValueId second_operand(NodeContext& c) {
  c.need_same_dtype(0, 1);
  const ValueId a = c.input(0), b = c.input(1);
  if (!c.attr_bool("broadcast", false)) {
    if (!same_dims(c.shape(a), c.shape(b)))
      c.fail("without the attribute \"broadcast\" both inputs must have one shape, they are " + c.text(a) + " and " +
             c.text(b));
    return b;
  }
  const int rank = c.rank(a);
  if (c.rank(b) > rank)
    c.fail("the second input must not have more dims than the first, they are " + c.text(a) + " and " + c.text(b));
  const int axis = c.has("axis") ? c.axis(c.attr_int("axis"), rank + 1) : rank - c.rank(b);
  if (axis + c.rank(b) > rank)
    c.fail("axis " + std::to_string(axis) + " is out of range: " + c.text(b) + " does not fit into " + c.text(a) +
           " from there");
  return c.align(b, axis, rank);
}

std::vector<ValueId> binary(NodeContext& c) { return {c.add(c.row.kind, {c.input(0), second_operand(c)})}; }

std::vector<ValueId> greater(NodeContext& c) { return {c.add(OpKind::less, {second_operand(c), c.input(0)})}; }

// The slope is one number or one for each channel (dim 1).
std::vector<ValueId> prelu(NodeContext& c) {
  const ValueId x = c.input(0), slope = c.input(1);
  if (c.rank(slope) != 1 || c.rank(x) < 2) return {c.add(OpKind::prelu, {x, slope})};
  return {c.add(OpKind::prelu, {x, c.align(slope, c.dim(slope, 0).is_const(1) ? 0 : 1, c.rank(x))})};
}

std::vector<ValueId> variadic(NodeContext& c) {
  ValueId sum = c.input(0);
  for (int i = 1; i < c.num_inputs(); ++i) {
    c.need_same_dtype(0, i);
    if (!same_dims(c.shape(c.input(0)), c.shape(c.input(i))))
      c.fail("all inputs must have one shape, they are " + c.text(c.input(0)) + " and " + c.text(c.input(i)));
    sum = c.add(c.row.kind, {sum, c.input(i)});
  }
  return {sum};
}

std::vector<ValueId> mean(NodeContext& c) {
  const ValueId sum = variadic(c)[0];
  return {c.add(OpKind::div, {sum, c.scalar_of(sum, c.num_inputs())})};
}

// clang-format off
const Row kRows[] = {
    {"Add", 6, 6, 2, 2, binary, OpKind::add},
    {"Sub", 6, 6, 2, 2, binary, OpKind::sub},
    {"Mul", 6, 6, 2, 2, binary, OpKind::mul},
    {"Div", 6, 6, 2, 2, binary, OpKind::div},
    {"Pow", 6, 6, 2, 2, binary, OpKind::pow},
    {"And", 6, 6, 2, 2, binary, OpKind::logical_and},
    {"Or", 6, 6, 2, 2, binary, OpKind::logical_or},
    {"Xor", 6, 6, 2, 2, binary, OpKind::logical_xor},
    {"Equal", 6, 6, 2, 2, binary, OpKind::equal},
    {"Less", 6, 6, 2, 2, binary, OpKind::less},
    {"Greater", 6, 6, 2, 2, greater, OpKind::less},
    {"PRelu", 6, 6, 2, 2, prelu, OpKind::prelu},
    {"Sum", 6, 7, 1, -1, variadic, OpKind::add},
    {"Max", 6, 7, 1, -1, variadic, OpKind::maximum},
    {"Min", 6, 7, 1, -1, variadic, OpKind::minimum},
    {"Mean", 6, 7, 1, -1, mean, OpKind::add},
};
// clang-format on

}  // namespace

std::span<const Row> elementwise_legacy_rows() { return kRows; }

}  // namespace tripod::importer
