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

#include "onnx.pb.h"
#include "onnx/import.h"
#include "onnx/op_importer.h"

namespace tripod::importer {
namespace {

namespace fs = std::filesystem;

fs::path data_root() { return fs::path(__FILE__).parent_path() / ".." / ".." / "build" / "onnx-data"; }

template <class M>
M read(const fs::path& path) {
  M m;
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(m.ParseFromIstream(&in)) << path;
  return m;
}

std::set<std::string> my_operators() {
  std::set<std::string> r;
  for (const auto& rows : {attention_rows(), conv_rows(), einsum_rows(), loss_rows(), matmul_rows(), norm_rows(),
                           pool_rows(), quantize_rows(), reduce_rows(), resize_rows(), rnn_rows(), select_rows(),
                           softmax_rows()}) {
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

}  // namespace
}  // namespace tripod::importer
