// Every published ONNX case of the operators of the conv, matmul, norm, pool, quantize, reduce, resize, rnn, softmax,
// einsum, attention, loss and select families imports, without the declared output shapes, to the types of the
// expected outputs. Skipped where build/onnx-data (tests/ops/data.py) has not been made.
//
// ONNX_CASES=word,word runs only the cases with a word in their name, of any operator, and prints what goes wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>

#include "onnx.pb.h"
#include "onnx/import.h"
#include "onnx/op_importer.h"

namespace tripod::importer {
namespace {

namespace fs = std::filesystem;

fs::path data_root() { return "build/onnx-data"; }

template <class M>
M read(const fs::path& path) {
  M m;
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(m.ParseFromIstream(&in)) << path;
  return m;
}

std::set<std::string> my_operators() {
  std::set<std::string> r;
  for (const auto& rows :
       {attention_rows(), conv_rows(), einsum_rows(), loss_rows(), matmul_rows(), norm_rows(), pool_rows(),
        quantize_rows(), reduce_rows(), resize_rows(), rnn_rows(), select_rows(), softmax_rows()}) {
    for (const Row& row : rows) r.emplace(row.op);
  }
  return r;
}

// Cases that are refused on purpose, by a part of their name, and why.
struct Refused {
  std::string_view name, why;
};
constexpr Refused kRefused[] = {
    {"test_training_dropout", "training_mode is an input"},
    {"float4e2m1", "element type"},
    {"int2", "element type"},
};

std::string refused(const std::string& name) {
  for (const Refused& r : kRefused) {
    if (name.find(r.name) != std::string::npos) return std::string(r.why);
  }
  return "";
}

// "" when the type fits the tensor: same dtype, rank, and no constant dim that differs.
std::string misfit(const graph::Type& t, const ::onnx::TensorProto& want) {
  std::string dims;
  bool fits = t.rank() == want.dims_size() && dtype_of(want.data_type()) == t.dtype;
  for (int i = 0; i < want.dims_size(); ++i) {
    dims += (i == 0 ? "" : ", ") + std::to_string(want.dims(i));
    if (i < t.rank() && t.shape[i].is_const() && !t.shape[i].is_const(want.dims(i))) fits = false;
  }
  return fits ? "" : graph::text(t) + ", expected " + onnx_type_name(want.data_type()) + "[" + dims + "]";
}

// What is wrong with one case; "" when nothing is.
std::string check(const fs::path& folder) {
  fs::path model = folder / "model_stripped.onnx";
  if (!fs::exists(model)) model = folder / "model.onnx";
  Diagnostics diagnostics;
  ImportResult result;
  try {
    result = import_file(model.string(), {}, diagnostics);
  } catch (const std::exception& e) {
    return std::string("thrown: ") + e.what();
  }
  if (!diagnostics.ok()) return diagnostics.text("model");
  if (!result.module) return "no module";
  for (const std::string& problem : graph::verify(*result.module)) return "verify: " + problem;
  const graph::Graph& g = result.module->main();
  for (size_t i = 0; i < g.outputs().size(); ++i) {
    const fs::path expected = folder / "test_data_set_0" / ("output_" + std::to_string(i) + ".pb");
    if (!fs::exists(expected) || g.type(g.outputs()[i]).kind != graph::Type::tensor) continue;
    const std::string problem = misfit(g.type(g.outputs()[i]), read<::onnx::TensorProto>(expected));
    if (!problem.empty()) return "output " + std::to_string(i) + " is " + problem;
  }
  return "";
}

std::vector<std::string> wanted_words() {
  std::vector<std::string> words;
  const char* text = std::getenv("ONNX_CASES");
  for (std::string rest = text ? text : ""; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    words.push_back(rest.substr(0, comma));
    rest.erase(0, comma + 1);
  }
  return words;
}

TEST(OnnxFamilies, PublishedCasesImport) {
  if (!fs::exists(data_root() / "node")) GTEST_SKIP() << "build/onnx-data has not been made";
  const std::set<std::string> mine = my_operators();
  const std::vector<std::string> words = wanted_words();
  int cases = 0, failed = 0;
  for (const char* kind : {"node", "simple", "pytorch-converted", "pytorch-operator"}) {
    for (const fs::directory_entry& entry : fs::directory_iterator(data_root() / kind)) {
      const std::string name = entry.path().filename().string();
      const auto named = [&](const std::string& w) { return name.find(w) != std::string::npos; };
      if (!words.empty() && std::none_of(words.begin(), words.end(), named)) continue;
      const auto model = read<::onnx::ModelProto>(entry.path() / "model.onnx");
      const auto& nodes = model.graph().node();
      const bool all_mine = std::all_of(nodes.begin(), nodes.end(), [&](const ::onnx::NodeProto& n) {
        return n.domain().empty() && mine.count(n.op_type()) != 0;
      });
      if (words.empty() && !all_mine) continue;
      ++cases;
      const std::string problem = check(entry.path()), why = refused(name);
      if (!why.empty() && words.empty()) {
        EXPECT_NE(problem, "") << name << " is taken now: remove it from the list";
      } else {
        failed += !problem.empty();
        EXPECT_EQ(problem, "") << name;
      }
    }
  }
  std::printf("%d cases, %d failed\n", cases, failed);
}

// --- one node over free dims
// -------------------------------------------------------------------------------------------

using Attribute = std::pair<std::string, std::vector<int64_t>>;  // one entry: an int; more: ints

struct OneNode {
  std::string op;
  int opset;
  std::vector<std::vector<std::string>> inputs;  // f32, dims by name or number
  std::vector<Attribute> attributes;
  std::vector<std::pair<std::string, std::string>> words;  // string attributes
  std::vector<float> scales;                               // of Resize: its third input
};

// The type of the only output, or the first error.
std::string import_one(const OneNode& one) {
  ::onnx::ModelProto m;
  m.set_ir_version(8);
  m.add_opset_import()->set_version(one.opset);
  auto* g = m.mutable_graph();
  auto* n = g->add_node();
  n->set_op_type(one.op);
  for (size_t i = 0; i < one.inputs.size(); ++i) {
    auto* in = g->add_input();
    in->set_name("x" + std::to_string(i));
    n->add_input(in->name());
    auto* t = in->mutable_type()->mutable_tensor_type();
    t->set_elem_type(::onnx::TensorProto::FLOAT);
    for (const std::string& d : one.inputs[i]) {
      auto* dim = t->mutable_shape()->add_dim();
      if (std::isdigit(static_cast<unsigned char>(d[0]))) {
        dim->set_dim_value(std::stoll(d));
      } else {
        dim->set_dim_param(d);
      }
    }
  }
  if (!one.scales.empty()) {
    auto* t = g->add_initializer();
    t->set_name("scales");
    t->set_data_type(::onnx::TensorProto::FLOAT);
    t->add_dims(static_cast<int64_t>(one.scales.size()));
    for (float s : one.scales) t->add_float_data(s);
    n->add_input("");
    n->add_input("scales");
  }
  for (const auto& [name, values] : one.attributes) {
    auto* a = n->add_attribute();
    a->set_name(name);
    a->set_type(values.size() == 1 ? ::onnx::AttributeProto::INT : ::onnx::AttributeProto::INTS);
    if (values.size() == 1) a->set_i(values[0]);
    for (size_t i = 0; values.size() > 1 && i < values.size(); ++i) a->add_ints(values[i]);
  }
  for (const auto& [name, value] : one.words) {
    auto* a = n->add_attribute();
    a->set_name(name);
    a->set_type(::onnx::AttributeProto::STRING);
    a->set_s(value);
  }
  n->add_output("y");
  auto* out = g->add_output();
  out->set_name("y");
  out->mutable_type()->mutable_tensor_type()->set_elem_type(::onnx::TensorProto::FLOAT);
  const std::string bytes = m.SerializeAsString();
  Diagnostics diagnostics;
  const ImportResult r = import_bytes(std::as_bytes(std::span(bytes)), "", {}, diagnostics);
  if (!diagnostics.ok()) return "error: " + diagnostics.errors()[0].message;
  return graph::text(r.module->main().type(r.module->main().outputs()[0]));
}

TEST(OnnxFamilies, ResultDimsOfFreeDims) {
  const std::vector<std::string> image{"N", "4", "H", "W"}, kernel{"6", "4", "3", "3"};
  EXPECT_EQ(import_one({"Conv", 11, {image, kernel}, {{"pads", {1, 1, 1, 1}}}, {}, {}}), "f32[N, 6, H, W]");
  EXPECT_EQ(import_one({"Conv", 11, {image, kernel}, {{"strides", {2, 2}}}, {{"auto_pad", "VALID"}}, {}}),
            "f32[N, 6, floordiv(H + 1, 2) - 1, floordiv(W + 1, 2) - 1]");
  EXPECT_EQ(import_one({"ConvTranspose", 11, {image, {"4", "5", "2", "2"}}, {{"strides", {2, 2}}}, {}, {}}),
            "f32[N, 5, H*2, W*2]");
  EXPECT_EQ(import_one({"Resize", 13, {image}, {}, {}, {1, 1, 0.5f, 3}}), "f32[N, 4, floordiv(H, 2), W*3]");
  // 0.33333334 is meant as a third.
  EXPECT_EQ(import_one({"Resize", 13, {image}, {}, {}, {1, 1, 1.0f / 3, 1}}), "f32[N, 4, floordiv(H, 3), W]");
  EXPECT_EQ(import_one({"Softmax", 11, {image}, {{"axis", {1}}}, {}, {}}), "f32[N, 4, H, W]");
  EXPECT_EQ(import_one({"ReduceMean", 13, {image}, {{"axes", {2, 3}}, {"keepdims", {0}}}, {}, {}}), "f32[N, 4]");
  EXPECT_EQ(import_one({"Einsum", 12, {{"B", "S", "8"}, {"8", "T"}}, {}, {{"equation", "bsi,it->bst"}}, {}}),
            "f32[B, S, T]");
}

TEST(OnnxFamilies, BadAttributesAreErrors) {
  const std::vector<std::string> image{"N", "4", "H", "W"}, kernel{"6", "4", "3", "3"};
  const OneNode bad[] = {
      {"Conv", 11, {image, kernel}, {{"kernel_shape", {5, 5}}}, {}, {}},
      {"Conv", 11, {image, kernel}, {{"strides", {0, 1}}}, {}, {}},
      {"Conv", 11, {image, kernel}, {{"pads", {1, 1}}}, {}, {}},
      {"Conv", 11, {image, kernel}, {{"group", {0}}}, {}, {}},
      {"Conv", 11, {image, kernel}, {{"group", {2}}}, {}, {}},
      {"Conv", 11, {image, kernel}, {{"dilations", {int64_t{1} << 62, 1}}}, {}, {}},
      {"MaxPool", 12, {image}, {{"kernel_shape", {3, 3, 3}}}, {}, {}},
      {"Softmax", 13, {image}, {{"axis", {4}}}, {}, {}},
      {"ReduceSum", 11, {image}, {{"axes", {1, 1}}}, {}, {}},
      {"Einsum", 12, {{"2", "3"}}, {}, {{"equation", "ijk->i"}}, {}},
      {"Einsum", 12, {{"2", "3"}}, {}, {{"equation", "ij->k"}}, {}},
      {"Resize", 13, {image}, {}, {}, {1, 1, -2, 1}},
      {"Resize", 13, {image}, {}, {}, {1, 2}},
      {"GroupNormalization", 21, {image, {"4"}, {"4"}}, {{"num_groups", {3}}}, {}, {}},
      {"LSTM", 14, {{"S", "B", "3"}, {"1", "16", "3"}, {"1", "16", "4"}}, {{"hidden_size", {5}}}, {}, {}},
  };
  for (const OneNode& one : bad) EXPECT_EQ(import_one(one).rfind("error: ", 0), 0u) << one.op << ' ' << import_one(one);
}

}  // namespace
}  // namespace tripod::importer
