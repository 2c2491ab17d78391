// TensorProto -> dtype, dims and bytes.
//
// Everything about the data is checked here: sizes against dims, overflow, the place and extent of external data.
// What is wrong is thrown as NodeError; the caller knows whom to blame.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "graph/graph.h"
#include "onnx.pb.h"

namespace tripod::importer {

// What the run time takes (TRIPOD_MAX_RANK); attributes that list dims may be longer, up to kMaxRank.
inline constexpr int kMostDims = 16;

struct TensorData {
  DType dtype = DType::none;
  graph::Ints dims;
  graph::ConstAttr bytes;
};

class TensorReader {
 public:
  // `owner` keeps the protobufs alive that read() is given. Without a folder there is no external data.
  TensorReader(std::filesystem::path folder, std::shared_ptr<const void> owner)
      : folder_(std::move(folder)), owner_(std::move(owner)) {}

  TensorData read(const ::onnx::TensorProto& t);
  TensorData read_sparse(const ::onnx::SparseTensorProto& t);  // made dense

 private:
  struct Mapping;
  TensorData read_external(const ::onnx::TensorProto& t, TensorData r, int64_t need);
  std::shared_ptr<const Mapping> map_file(const std::string& location);

  std::filesystem::path folder_;
  std::shared_ptr<const void> owner_;
  std::map<std::string, std::shared_ptr<const Mapping>> files_;
};

// Product of dims; throws NodeError when one is negative or the bytes do not fit int64.
int64_t checked_count(const graph::Ints& dims, DType dtype);
std::string dims_text(const graph::Ints& dims);  // [2, 3]

}  // namespace tripod::importer
