#include "onnx/tensor_file.h"

#include <cstring>
#include <fstream>
#include <set>

#include "base/diagnostic.h"
#include "onnx/op_importer.h"
#include "onnx/tensors.h"

namespace tripod::importer {

TensorFile read_tensor_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw CompileError({}, "cannot read " + path);
  auto proto = std::make_shared<::onnx::TensorProto>();
  if (!proto->ParseFromIstream(&in)) throw CompileError({}, path + ": not a TensorProto");
  try {
    const TensorData d = TensorReader({}, proto).read(*proto);
    if (d.dtype == DType::string) throw CompileError({}, path + ": string tensors are not supported yet");
    TensorFile f{d.dtype, d.dims, std::vector<std::byte>(static_cast<size_t>(d.bytes.size))};
    if (d.bytes.size > 0) std::memcpy(f.bytes.data(), d.bytes.data, static_cast<size_t>(d.bytes.size));
    return f;
  } catch (const NodeError& e) {
    throw CompileError({}, path + ": " + e.message);
  }
}

void write_tensor_file(const std::string& path, const TensorFile& t) {
  ::onnx::TensorProto proto;
  for (int type = 1; type <= 32; ++type)
    if (dtype_of(type) == t.dtype) proto.set_data_type(type);
  for (int64_t d : t.shape) proto.add_dims(d);
  proto.set_raw_data(t.bytes.data(), t.bytes.size());
  std::ofstream out(path, std::ios::binary);
  if (!proto.SerializeToOstream(&out)) throw CompileError({}, "cannot write " + path);
}

static void collect_external(const ::onnx::GraphProto& g, std::set<std::string>& files) {
  const auto tensor = [&](const ::onnx::TensorProto& t) {
    for (const auto& e : t.external_data())
      if (e.key() == "location") files.insert(e.value());
  };
  for (const auto& t : g.initializer()) tensor(t);
  for (const auto& n : g.node())
    for (const auto& a : n.attribute()) {
      if (a.has_t()) tensor(a.t());
      if (a.has_g()) collect_external(a.g(), files);
    }
}

std::vector<std::string> external_files(const std::string& model) {
  std::ifstream in(model, std::ios::binary);
  ::onnx::ModelProto proto;
  std::set<std::string> files;
  if (proto.ParseFromIstream(&in)) collect_external(proto.graph(), files);
  std::vector<std::string> inside;
  for (const std::string& f : files)
    if (!f.empty() && f[0] != '/' && f.find("..") == std::string::npos) inside.push_back(f);
  return inside;
}

}  // namespace tripod::importer
