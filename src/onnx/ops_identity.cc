// Identity on tensors. Sequences and optionals come with the operators that make them.
#include "onnx/op_importer.h"

namespace tripod::importer {
namespace {

std::vector<ValueId> identity(NodeContext& c) { return {c.add(OpKind::identity, {c.input(0)})}; }

constexpr Row kRows[] = {{"Identity", 1, kMaxOpset, 1, 1, identity, OpKind::identity}};

}  // namespace

std::span<const Row> identity_rows() { return kRows; }

}  // namespace tripod::importer
