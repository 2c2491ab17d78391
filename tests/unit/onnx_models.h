// Small ONNX models for the importer's tests.
//
// Every helper returns the bytes of a partial message; the concatenation of partial messages is a message (protobuf
// merges), so that models are put together with +: model(input(..) + node(..) + output(..)).
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <string>
#include <vector>

#include "onnx.pb.h"
#include "onnx/import.h"

namespace tripod::importer::test {

using ::onnx::AttributeProto;
using ::onnx::FunctionProto;
using ::onnx::GraphProto;
using ::onnx::ModelProto;
using ::onnx::NodeProto;
using ::onnx::TensorProto;

using Words = std::vector<std::string>;

// --- parts of a model ---------------------------------------------------------------------------------------------

inline std::string imports(const std::string& domain, int version) {
  ModelProto m;
  auto* o = m.add_opset_import();
  o->set_domain(domain);
  o->set_version(version);
  return m.SerializeAsString();
}
inline std::string ir_version(int v) {
  ModelProto m;
  m.set_ir_version(v);
  return m.SerializeAsString();
}
inline std::string graph(const std::string& parts) {
  ModelProto m;
  EXPECT_TRUE(m.mutable_graph()->ParseFromString(parts));
  m.mutable_graph()->set_name("g");
  return m.SerializeAsString();
}
inline std::string model(const std::string& parts, int opset = 17, const std::string& more = "") {
  return ir_version(8) + imports("", opset) + more + graph(parts);
}
// A function of domain "my"; `nodes` as for a graph.
inline std::string function(const std::string& name, const Words& in, const Words& out, const std::string& nodes) {
  ModelProto m;
  FunctionProto* f = m.add_functions();
  f->set_name(name);
  f->set_domain("my");
  for (const auto& i : in) f->add_input(i);
  for (const auto& o : out) f->add_output(o);
  GraphProto g;
  EXPECT_TRUE(g.ParseFromString(nodes));
  *f->mutable_node() = g.node();
  for (const char* d : {"", "my"}) {
    auto* o = f->add_opset_import();
    o->set_domain(d);
    o->set_version(*d ? 1 : 17);
  }
  return m.SerializeAsString();
}

// --- parts of a graph ---------------------------------------------------------------------------------------------

constexpr int kF32 = 1, kI64 = 7, kBool = 9;

// Dims: numbers, names, or empty for one that is not named.
inline std::string input(const std::string& name, const Words& dims, int type = kF32) {
  GraphProto g;
  auto* i = g.add_input();
  i->set_name(name);
  auto* t = i->mutable_type()->mutable_tensor_type();
  t->set_elem_type(type);
  t->mutable_shape();
  for (const std::string& d : dims) {
    auto* p = t->mutable_shape()->add_dim();
    if (d.empty()) continue;
    if (std::isdigit(static_cast<unsigned char>(d[0])) || d[0] == '-')
      p->set_dim_value(std::stoll(d));
    else
      p->set_dim_param(d);
  }
  return g.SerializeAsString();
}
inline std::string output(const std::string& name, int type = kF32) {
  GraphProto g;
  auto* o = g.add_output();
  o->set_name(name);
  o->mutable_type()->mutable_tensor_type()->set_elem_type(type);
  return g.SerializeAsString();
}
inline std::string initializer(const TensorProto& t) {
  GraphProto g;
  *g.add_initializer() = t;
  return g.SerializeAsString();
}
inline TensorProto tensor(const std::string& name, int type, const std::vector<int64_t>& dims) {
  TensorProto t;
  t.set_name(name);
  t.set_data_type(type);
  for (int64_t d : dims) t.add_dims(d);
  return t;
}
inline std::string ints(const std::string& name, const std::vector<int64_t>& vs) {
  TensorProto t = tensor(name, kI64, {static_cast<int64_t>(vs.size())});
  for (int64_t v : vs) t.add_int64_data(v);
  return initializer(t);
}
inline std::string scalar(const std::string& name, int64_t v) {
  TensorProto t = tensor(name, kI64, {});
  t.add_int64_data(v);
  return initializer(t);
}
inline std::string floats(const std::string& name, const std::vector<int64_t>& dims, const std::vector<float>& vs) {
  TensorProto t = tensor(name, kF32, dims);
  for (float v : vs) t.add_float_data(v);
  return initializer(t);
}
// `more`: attributes and domain, below.
inline std::string node(const std::string& op, const Words& in, const Words& out, const std::string& more = "",
                        const std::string& name = "") {
  GraphProto g;
  NodeProto* n = g.add_node();
  EXPECT_TRUE(n->ParseFromString(more));
  n->set_op_type(op);
  if (!name.empty()) n->set_name(name);
  for (const auto& i : in) n->add_input(i);
  for (const auto& o : out) n->add_output(o);
  return g.SerializeAsString();
}

// --- parts of a node ----------------------------------------------------------------------------------------------

inline std::string domain(const std::string& d) {
  NodeProto n;
  n.set_domain(d);
  return n.SerializeAsString();
}
inline std::string attr_int(const std::string& name, int64_t v) {
  NodeProto n;
  auto* a = n.add_attribute();
  a->set_name(name);
  a->set_type(AttributeProto::INT);
  a->set_i(v);
  return n.SerializeAsString();
}
inline std::string attr_float(const std::string& name, float v) {
  NodeProto n;
  auto* a = n.add_attribute();
  a->set_name(name);
  a->set_type(AttributeProto::FLOAT);
  a->set_f(v);
  return n.SerializeAsString();
}
inline std::string attr_ref(const std::string& name, const std::string& of) {
  NodeProto n;
  auto* a = n.add_attribute();
  a->set_name(name);
  a->set_type(AttributeProto::FLOAT);
  a->set_ref_attr_name(of);
  return n.SerializeAsString();
}
inline std::string attr_ints(const std::string& name, const std::vector<int64_t>& vs) {
  NodeProto n;
  auto* a = n.add_attribute();
  a->set_name(name);
  a->set_type(AttributeProto::INTS);
  for (int64_t v : vs) a->add_ints(v);
  return n.SerializeAsString();
}
inline std::string attr_graph(const std::string& name, const std::string& parts) {
  NodeProto n;
  auto* a = n.add_attribute();
  a->set_name(name);
  a->set_type(AttributeProto::GRAPH);
  EXPECT_TRUE(a->mutable_g()->ParseFromString(parts));
  a->mutable_g()->set_name(name);
  return n.SerializeAsString();
}

// --- importing ----------------------------------------------------------------------------------------------------

inline ImportResult import_string(const std::string& bytes, Diagnostics& d, const ImportOptions& options = {},
                                  const std::string& folder = "") {
  return import_bytes(std::as_bytes(std::span(bytes.data(), bytes.size())), folder, options, d);
}

// The graphs as text; fails the test when the model is not imported or does not verify.
inline std::string imported(const std::string& bytes, const ImportOptions& options = {}) {
  Diagnostics d;
  ImportResult r = import_string(bytes, d, options);
  if (!r.module) {
    ADD_FAILURE() << d.text("model.onnx");
    return "";
  }
  for (const std::string& e : tripod::graph::verify(*r.module)) ADD_FAILURE() << e;
  return tripod::graph::text(*r.module);
}

inline std::string errors(const std::string& bytes, const ImportOptions& options = {}, const std::string& folder = "") {
  Diagnostics d;
  const ImportResult r = import_string(bytes, d, options, folder);
  EXPECT_FALSE(r.module);
  return d.text("model.onnx");
}

}  // namespace tripod::importer::test
