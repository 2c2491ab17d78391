#include "driver/reference.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/diagnostic.h"

namespace tripod {
namespace {

// Arguments: model, folder. Reads folder/input_K.pb, writes folder/value_K.pb and folder/index.json.
constexpr const char* kScript = R"(
import json, sys
try:
    import onnx, onnxruntime
    from onnx import numpy_helper
except ImportError as e:
    sys.exit(f"no {e.name}")
import numpy
path, folder = sys.argv[1:]
model = onnx.load(path)
for entry in model.opset_import:
    if entry.domain in ("", "ai.onnx") and entry.version > 27:  # as far as ONNX Runtime goes
        entry.version, model.ir_version = 27, min(model.ir_version, 13)
known = {i.name for i in model.graph.initializer} | {i.values.name for i in model.graph.sparse_initializer}
inputs = [i.name for i in model.graph.input if i.name not in known]
feeds = {name: numpy_helper.to_array(onnx.load_tensor(f"{folder}/input_{k}.pb")) for k, name in enumerate(inputs)}
outputs = [o.name for o in model.graph.output]
inner = [o for n in model.graph.node for o in n.output if o and o not in outputs]

def run(optimise, wanted):
    del model.graph.output[len(outputs):]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.x64quantprecision", "1")
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(outputs + wanted, session.run(outputs + wanted, feeds)))

try:
    values = run(False, inner)
except Exception:
    values = run(False, [])
try:
    optimised = run(True, [])
except Exception:
    optimised = {}
index = {"values": [], "outputs": [], "optimised": []}
count = 0

def save(array):
    global count
    count += 1
    with open(f"{folder}/value_{count}.pb", "wb") as f:
        f.write(numpy_helper.from_array(numpy.asarray(array, order="C")).SerializeToString())
    return f"value_{count}.pb"

plain = lambda a: isinstance(a, (numpy.ndarray, numpy.generic)) and numpy.asarray(a).dtype != object
for name, array in values.items():
    if plain(array):
        index["values"].append([name, save(array)])
where = dict(index["values"])
index["outputs"] = [where.get(name, "") for name in outputs]
index["optimised"] = [save(optimised[name]) if plain(optimised.get(name)) else "" for name in outputs]
with open(f"{folder}/index.json", "w") as f:
    json.dump(index, f)
)";

std::string read_text(const std::string& path) {
  std::ifstream in(path);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

// Runs a program with its messages in a file; its exit code, or -1 when it could not be started.
int run_program(std::vector<std::string> arguments, const std::string& messages) {
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, messages.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed) return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of(" \n");
  if (end == std::string::npos) return "no message";
  const size_t start = text.rfind('\n', end);
  return text.substr(start == std::string::npos ? 0 : start + 1,
                     end - (start == std::string::npos ? 0 : start + 1) + 1);
}

}  // namespace

Reference onnxruntime_reference(const std::string& python, const std::string& model, const std::vector<Tensor>& inputs,
                                const std::string& folder) {
  Reference r;
  for (size_t i = 0; i < inputs.size(); ++i) write_tensor(folder + "/input_" + std::to_string(i) + ".pb", inputs[i]);
  const std::string messages = folder + "/messages.txt";
  const int code = run_program({python, "-c", kScript, model, folder}, messages);
  if (code != 0) {
    r.problem = code < 0 ? "cannot run " + python : python + ": " + last_line(read_text(messages));
    return r;
  }
  try {
    const auto index = nlohmann::json::parse(read_text(folder + "/index.json"));
    const auto tensor = [&](const nlohmann::json& file) {
      return file.get<std::string>().empty() ? Tensor{} : read_tensor(folder + "/" + file.get<std::string>());
    };
    for (const auto& v : index["values"]) r.values[v[0].get<std::string>()] = tensor(v[1]);
    for (const auto& f : index["outputs"]) r.outputs.push_back(tensor(f));
    for (const auto& f : index["optimised"]) r.optimised.push_back(tensor(f));
  } catch (const std::exception& e) {
    r.problem = python + ": " + e.what();
  }
  return r;
}

}  // namespace tripod
