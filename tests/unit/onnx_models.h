// Small ONNX models for the importer's tests, written in protobuf's text format.
#pragma once

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "onnx.pb.h"
#include "onnx/import.h"

namespace tripod::importer::test {

// A model around the text of its graph. `x` is f32[N, 3, H, W] unless the text has inputs of its own.
inline std::string model_text(const std::string& graph, int opset = 17, const std::string& more = "") {
  return "ir_version: 8 opset_import { domain: '' version: " + std::to_string(opset) + " } " + more + " graph { name: 'g' " +
         graph + " }";
}

inline std::string dim(const std::string& d) {
  return d.empty() ? "dim {} "
         : std::isdigit(static_cast<unsigned char>(d[0])) || d[0] == '-' ? "dim { dim_value: " + d + " } "
                                                                          : "dim { dim_param: '" + d + "' } ";
}

// elem_type: 1 f32, 6 i32, 7 i64, 9 bool
inline std::string value(const std::string& field, const std::string& name, int type, std::vector<std::string> dims) {
  std::string s = field + " { name: '" + name + "' type { tensor_type { elem_type: " + std::to_string(type) + " shape { ";
  for (const std::string& d : dims) s += dim(d);
  return s + "} } } } ";
}
inline std::string input(const std::string& name, std::vector<std::string> dims, int type = 1) {
  return value("input", name, type, std::move(dims));
}
inline std::string output(const std::string& name, int type = 1) {
  return "output { name: '" + name + "' type { tensor_type { elem_type: " + std::to_string(type) + " } } } ";
}

inline std::string node(const std::string& op, const std::vector<std::string>& in, const std::vector<std::string>& out,
                        const std::string& attributes = "", const std::string& name = "") {
  std::string s = "node { op_type: '" + op + "' ";
  if (!name.empty()) s += "name: '" + name + "' ";
  for (const std::string& i : in) s += "input: '" + i + "' ";
  for (const std::string& o : out) s += "output: '" + o + "' ";
  return s + attributes + "} ";
}
inline std::string attr_int(const std::string& name, int64_t v) {
  return "attribute { name: '" + name + "' type: INT i: " + std::to_string(v) + " } ";
}
inline std::string attr_ints(const std::string& name, const std::vector<int64_t>& vs) {
  std::string s = "attribute { name: '" + name + "' type: INTS ";
  for (int64_t v : vs) s += "ints: " + std::to_string(v) + " ";
  return s + "} ";
}
inline std::string ints(const std::string& name, const std::vector<int64_t>& vs) {
  std::string s = "initializer { name: '" + name + "' data_type: 7 dims: " + std::to_string(vs.size()) + " ";
  for (int64_t v : vs) s += "int64_data: " + std::to_string(v) + " ";
  return s + "} ";
}

inline std::string bytes_of(const std::string& text) {
  ::onnx::ModelProto m;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &m)) << text;
  return m.SerializeAsString();
}

inline ImportResult import_text(const std::string& text, Diagnostics& d, const ImportOptions& options = {},
                                const std::string& folder = "") {
  const std::string bytes = bytes_of(text);
  return import_bytes(std::as_bytes(std::span(bytes.data(), bytes.size())), folder, options, d);
}

// The graphs as text; fails the test when the model is not imported or does not verify.
inline std::string imported(const std::string& text, const ImportOptions& options = {}) {
  Diagnostics d;
  ImportResult r = import_text(text, d, options);
  if (!r.module) {
    ADD_FAILURE() << d.text("model.onnx");
    return "";
  }
  for (const std::string& e : graph::verify(*r.module)) ADD_FAILURE() << e;
  return graph::text(*r.module);
}

inline std::string errors(const std::string& text, const ImportOptions& options = {}, const std::string& folder = "") {
  Diagnostics d;
  const ImportResult r = import_text(text, d, options, folder);
  EXPECT_FALSE(r.module);
  return d.text("model.onnx");
}

}  // namespace tripod::importer::test
