// ONNX TensorProto files (.pb), as the conformance data and `tripod run` use them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace tripod::importer {

struct TensorFile {
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;  // row-major
};

// Throws CompileError when the file cannot be read or is not a numeric tensor.
TensorFile read_tensor_file(const std::string& path);
void write_tensor_file(const std::string& path, const TensorFile& t);

}  // namespace tripod::importer
