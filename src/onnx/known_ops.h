// The operators of ONNX by name, for messages only: a typo, an operator that is too new for the model's opset and
// one that is not supported yet are three different errors. With their attributes: one that an operator does not have
// (a typo, or one of another opset) would change nothing, which is not what the model wants.
#pragma once

#include <string_view>
#include <vector>

namespace tripod::importer {

struct KnownOp {
  std::string_view name;
  int since;      // first opset that has it
  // Its attributes, with the opsets that have them where those are not all: "axes@1-12 keepdims noop_with_empty_axes@13".
  std::string_view attributes = "";
  int until = 0;  // first opset that has it no more; 0: it is there
};

const KnownOp* known_op(std::string_view name);
std::vector<std::string_view> attribute_names(const KnownOp& op, int opset);

}  // namespace tripod::importer
