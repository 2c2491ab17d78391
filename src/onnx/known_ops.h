// The operators of ONNX by name, for messages only: a typo, an operator that is too new for the model's opset and
// one that is not supported yet are three different errors.
#pragma once

#include <string_view>

namespace tripod::importer {

struct KnownOp {
  std::string_view name;
  int since;      // first opset that has it
  int until = 0;  // first opset that has it no more; 0: it is there
};

const KnownOp* known_op(std::string_view name);

}  // namespace tripod::importer
