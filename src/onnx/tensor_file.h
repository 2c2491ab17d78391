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
// The files of external data that a model names, relative to its folder; those outside of it are left out, and a file
// that is not a model names none.
std::vector<std::string> external_files(const std::string& model);
void write_tensor_file(const std::string& path, const TensorFile& t);

}  // namespace tripod::importer
