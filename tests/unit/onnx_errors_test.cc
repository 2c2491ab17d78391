// What the importer says about bad models, word for word.
#include <filesystem>
#include <fstream>

#include "onnx_models.h"

namespace tripod::importer::test {
namespace {

const std::string kX = input("x", {"N", "3", "8", "8"});

std::string raw_errors(const std::string& bytes) {
  Diagnostics d;
  EXPECT_FALSE(import_string(bytes, d).module);
  return d.text("m");
}

TEST(OnnxErrors, NotAModel) {
  EXPECT_EQ(raw_errors(""),
            "m: error: the model has no graph\n"
            "  hint: is this an ONNX file? An empty one reads as a model without a graph\n"
            "1 error\n");
  EXPECT_EQ(raw_errors("hello, this is not a model"),
            "m: error: is not an ONNX model, or a damaged one: the protobuf cannot be read\n1 error\n");
  const std::string whole = model(kX + node("Relu", {"x"}, {"y"}) + output("y"));
  EXPECT_EQ(raw_errors(whole.substr(0, whole.size() - 3)),
            "m: error: is not an ONNX model, or a damaged one: the protobuf cannot be read\n1 error\n");
}

TEST(OnnxErrors, EveryPrefixOfAModelIsAnErrorOrAModel) {
  const std::string whole = model(kX + node("Relu", {"x"}, {"y"}) + output("y"));
  for (size_t n = 0; n < whole.size(); ++n) {
    Diagnostics d;
    const auto r = import_bytes(std::as_bytes(std::span(whole.data(), n)), "", {}, d);
    EXPECT_EQ(r.module == nullptr, !d.ok()) << n;
  }
}

TEST(OnnxErrors, Versions) {
  EXPECT_EQ(errors(ir_version(2) + imports("", 5) + graph(kX + node("Relu", {"x"}, {"y"}) + output("y"))),
            "model.onnx: error: IR version 2 is not supported, those from 3 to 14 are\n"
            "  hint: re-export the model or convert it with onnx.version_converter\n"
            "model.onnx: error: opset 5 is not supported, those from 6 to 28 are\n"
            "  hint: convert the model with onnx.version_converter\n"
            "2 errors\n");
  EXPECT_EQ(errors(ir_version(8) + graph(kX + node("Relu", {"x"}, {"y"}) + output("y"))),
            "model.onnx: error: the model does not import the ONNX opset\n"
            "  hint: add \"\" to opset_import\n"
            "1 error\n");
}

TEST(OnnxErrors, UnknownOperatorsAllAtOnce) {
  EXPECT_EQ(
      errors(model(kX + node("Foo", {"x"}, {"a"}, "", "first") + node("Relu", {"a"}, {"b"}) +
                       node("Gelu", {"x"}, {"c"}) + node("Bar", {"b"}, {"d"}, domain("my.ops")) +
                       node("Upsample", {"x"}, {"e"}) + node("StringSplit", {"x"}, {"f"}) + output("d"),
                   17, imports("my.ops", 1))),
      "model.onnx: error: node 0 Foo 'first': ONNX has no operator \"Foo\"\n"
      "  hint: docs/status.md lists the operators; one of your own has to be a function in the model file\n"
      "model.onnx: error: node 2 Gelu: operator \"Gelu\" exists from opset 20 on, the model says 17\n"
      "  hint: raise the version in opset_import\n"
      "model.onnx: error: node 3 my.ops::Bar: domain \"my.ops\" has no operator \"Bar\"\n"
      "  hint: docs/status.md lists the operators; one of your own has to be a function in the model file\n"
      "model.onnx: error: node 4 Upsample: operator \"Upsample\" does not exist any more in opset 17\n"
      "  hint: the exporter should write its successor\n"
      "model.onnx: error: node 5 StringSplit: operator \"StringSplit\" exists from opset 20 on, the model says 17\n"
      "  hint: raise the version in opset_import\n"
      "5 errors\n");
}

TEST(OnnxErrors, Names) {
  EXPECT_EQ(errors(model(kX + node("Relu", {"nowhere"}, {"a"}) + node("Relu", {"x"}, {"b"}) +
                         node("Tanh", {"x"}, {"b"}) + node("Relu", {"a"}, {"c"}) + output("b") + output("lost"))),
            "model.onnx: error: node 0 Relu: input 0 'nowhere' is not defined\n"
            "  hint: no node, input or initializer has that name\n"
            "model.onnx: error: node 2 Tanh: the value 'b' is defined twice\n"
            "  hint: names of values must be unique in a graph\n"
            "model.onnx: error: output 'lost': is not defined\n"
            "  hint: no node, input or initializer has that name\n"
            "3 errors\n");
}

TEST(OnnxErrors, Cycle) {
  EXPECT_EQ(
      errors(model(kX + node("Add", {"x", "c"}, {"a"}, "", "in") + node("Relu", {"a"}, {"b"}) +
                   node("Tanh", {"b"}, {"c"}) + node("Neg", {"c"}, {"d"}) + output("d"))),
      "model.onnx: error: node 0 Add 'in': needs its own result: node 0 Add 'in' -> node 1 Relu -> node 2 Tanh -> "
      "node 0 Add 'in'\n"
      "  hint: ONNX graphs must not have cycles\n"
      "1 error\n");
}

TEST(OnnxErrors, Attributes) {
  EXPECT_EQ(errors(model(kX + node("LeakyRelu", {"x"}, {"a"}, attr_int("alpha", 1)) +
                         node("Concat", {"x", "x"}, {"b"}) + node("Concat", {"x", "x"}, {"c"}, attr_int("axis", 7)) +
                         node("Flatten", {"x"}, {"d"}, attr_int("axis", 1) + attr_int("axis", 2)) + output("a"))),
            "model.onnx: error: node 0 LeakyRelu: attribute \"alpha\" must be of type float, it is of type int\n"
            "model.onnx: error: node 1 Concat: attribute \"axis\" is missing\n"
            "model.onnx: error: node 2 Concat: axis 7 is out of range for 4 dims\n"
            "model.onnx: error: node 3 Flatten: attribute \"axis\" is given twice\n"
            "4 errors\n");
}

TEST(OnnxErrors, Operands) {
  EXPECT_EQ(
      errors(model(kX + input("i", {"2"}, kI64) + node("Add", {"x"}, {"a"}) + node("Relu", {"x", "x"}, {"b"}) +
                   node("Add", {"x", "i"}, {"c"}) + node("Exp", {"i"}, {"d"}) + output("a"))),
      "model.onnx: error: node 0 Add: input 1 is missing\n"
      "model.onnx: error: node 1 Relu: has 2 inputs, at most 1 are allowed\n"
      "model.onnx: error: node 2 Add: inputs 0 and 1 must have the same type, they are x : f32[N, 3, 8, 8] and i : "
      "i64[2]\n"
      "model.onnx: error: node 3 Exp: input 0 must have a float type, it is i : i64[2]\n"
      "4 errors\n");
}

TEST(OnnxErrors, Sizes) {
  EXPECT_EQ(errors(model(input("x", {"4294967296", "4294967296"}) + node("Relu", {"x"}, {"y"}) + output("y"))),
            "model.onnx: error: input 'x': has more elements than memory can hold\n"
            "1 error\n");
  GraphProto untyped;
  untyped.add_input()->set_name("u");
  const std::string no_type = untyped.SerializeAsString();
  EXPECT_EQ(errors(model(input("x", {"-2", "3"}) + input("z", {"3"}, 0) + no_type + output("x"))),
            "model.onnx: error: input 'x': dim 0 is -2, dims must not be negative\n"
            "model.onnx: error: input 'z': the element type UNDEFINED is not supported\n"
            "model.onnx: error: input 'u': has no type\n"
            "3 errors\n");
  const auto raw = [](TensorProto t, const std::string& bytes) {
    t.set_raw_data(bytes);
    return initializer(t);
  };
  EXPECT_EQ(
      errors(model(floats("a", {2, 2}, {1}) + raw(tensor("b", kF32, {2}), "abc") +
                   initializer(tensor("c", kF32, {-1})) + raw(tensor("d", kF32, {4611686018427387905}), "abcd") + kX +
                   node("Relu", {"x"}, {"y"}) + output("y"))),
      "model.onnx: error: initializer 'a': has 1 elements of data, f32[2, 2] needs 4\n"
      "model.onnx: error: initializer 'b': has 3 bytes of data, f32[2] needs 8\n"
      "model.onnx: error: initializer 'c': negative dim in the shape [-1]\n"
      "model.onnx: error: initializer 'd': the shape [4611686018427387905] has more elements than memory can hold\n"
      "4 errors\n");
}

TEST(OnnxErrors, Shapes) {
  EXPECT_EQ(errors(model(kX + input("y", {"5"}) + ints("s", {7, -1}) + node("Add", {"x", "y"}, {"a"}) +
                         node("Squeeze", {"x", "one"}, {"b"}) + ints("one", {1}) +
                         node("Transpose", {"x"}, {"c"}, attr_ints("perm", {0, 1, 1, 2})) + output("a"))),
            "model.onnx: error: node 0 Add: operands 1 and 2 do not broadcast: [N, 3, 8, 8] and [5] differ in dim 3\n"
            "model.onnx: error: node 1 Squeeze: dim 1 of x : f32[N, 3, 8, 8] is not 1 and cannot be dropped\n"
            "model.onnx: error: node 2 Transpose: perm must name each of the 4 dims of x : f32[N, 3, 8, 8] once\n"
            "3 errors\n");
}

TEST(OnnxErrors, Options) {
  ImportOptions o;
  o.dims["M"] = {1, 4};
  o.shapes["z"] = {1, 2};
  EXPECT_EQ(errors(model(kX + node("Relu", {"x"}, {"y"}) + output("y")), o),
            "model.onnx: error: --shape: the model has no input 'z'\n"
            "  hint: it has: x\n"
            "model.onnx: error: --dim: the model has no dim 'M'\n"
            "  hint: it has: N\n"
            "2 errors\n");
}

TEST(OnnxErrors, ExternalData) {
  const auto folder = std::filesystem::temp_directory_path() / "tripod_external_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "inner");
  std::ofstream(folder / "w.bin") << "0123456789abcdef";
  std::ofstream(folder / "inner" / "v.bin") << "0123";
  std::filesystem::create_symlink("/etc/passwd", folder / "link.bin");
  std::filesystem::create_symlink("/etc", folder / "etc");
  const auto external = [](const std::string& name, const std::string& location, const std::string& offset = "",
                           const std::string& length = "") {
    TensorProto t = tensor(name, kF32, {2});
    t.set_data_location(TensorProto::EXTERNAL);
    const auto add = [&](const char* key, const std::string& v) {
      if (v.empty()) return;
      auto* e = t.add_external_data();
      e->set_key(key);
      e->set_value(v);
    };
    add("location", location);
    add("offset", offset);
    add("length", length);
    return initializer(t);
  };
  const std::string rest = kX + node("Relu", {"x"}, {"y"}) + output("y");
  EXPECT_EQ(
      errors(model(external("a", "../w.bin") + external("b", "/etc/passwd") + external("c", "link.bin") +
                   external("d", "etc/passwd") + external("e", "none.bin") + external("f", "w.bin", "12") +
                   external("g", "w.bin", "-4") + external("h", "w.bin", "0", "4") + external("i", "inner") +
                   external("j", "w.bin", "9223372036854775807") + rest),
             {}, folder.string()),
      "model.onnx: error: initializer 'a': the external data location '../w.bin' leaves the model's folder\n"
      "  hint: remove the '..'\n"
      "model.onnx: error: initializer 'b': the external data location '/etc/passwd' must be a path relative to the "
      "model's folder\n"
      "model.onnx: error: initializer 'c': the external data file 'link.bin' is a symbolic link\n"
      "  hint: put the file itself into the model's folder\n"
      "model.onnx: error: initializer 'd': the external data location 'etc/passwd' leaves the model's folder through "
      "a link\n"
      "model.onnx: error: initializer 'e': the external data file 'none.bin' does not exist\n"
      "  hint: it is looked for in the folder of the model\n"
      "model.onnx: error: initializer 'f': the external data ends at byte 12 + 8, the file 'w.bin' has 16\n"
      "  hint: the file is damaged or not the one that belongs to the model\n"
      "model.onnx: error: initializer 'g': the offset '-4' of the external data is not a size\n"
      "model.onnx: error: initializer 'h': the external data has 4 bytes, f32[2] needs 8\n"
      "model.onnx: error: initializer 'i': the external data location 'inner' is not a regular file\n"
      "model.onnx: error: initializer 'j': the external data ends at byte 9223372036854775807 + 8, the file 'w.bin' "
      "has 16\n"
      "  hint: the file is damaged or not the one that belongs to the model\n"
      "10 errors\n");
  EXPECT_EQ(
      errors(model(external("a", "w.bin") + rest)),
      "model.onnx: error: initializer 'a': external data 'w.bin' needs the model as a file, it was given as bytes\n"
      "1 error\n");
  Diagnostics d;
  EXPECT_TRUE(import_string(model(external("a", "w.bin", "8") + rest), d, {}, folder.string()).module) << d.text("");
  std::filesystem::remove_all(folder);
}

TEST(OnnxErrors, InsideSubgraphsAndFunctions) {
  const std::string then_ = attr_graph("then_branch", node("Foo", {"x"}, {"t"}) + output("t"));
  const std::string else_ = attr_graph("else_branch", node("Relu", {"y"}, {"e"}) + output("e"));
  EXPECT_EQ(
      errors(model(kX + input("c", {}, kBool) + node("If", {"c"}, {"y1"}, then_ + else_, "choice") + output("y1"))),
      "model.onnx: error: node 0 Foo 'choice/then_branch': ONNX has no operator \"Foo\"\n"
      "  hint: docs/status.md lists the operators; one of your own has to be a function in the model file\n"
      "model.onnx: error: node 0 Relu 'choice/else_branch': input 0 'y' is not defined\n"
      "  hint: no node, input or initializer has that name\n"
      "2 errors\n");
  EXPECT_EQ(errors(model(kX + node("F", {"x"}, {"y"}, domain("my"), "call") + output("y"), 17,
                         imports("my", 1) + function("F", {"a"}, {"b"}, node("F", {"a"}, {"b"}, domain("my"))))),
            "model.onnx: error: node 0 my::F 'call': functions call each other more than 32 deep\n1 error\n");
}

}  // namespace
}  // namespace tripod::importer::test
