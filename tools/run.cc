// tripod run: one call of a model.so on tensors from files, or on random ones.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/diagnostic.h"
#include "base/float_bits.h"
#include "commands.h"
#include "driver/loaded_model.h"

namespace tripod::tools {
namespace {

struct RunOptions {
  std::string model, input_dir, output_dir, device;
  bool random = false, json = false, cuda_graphs = false;
  int threads = 0;
  uint64_t seed = 0;
  std::vector<std::string> dims;
};

void print(const std::string& name, const Tensor& t) {
  std::string dims;
  for (int64_t d : t.shape) dims += (dims.empty() ? "" : ", ") + std::to_string(d);
  std::printf("%s: %s[%s] =", name.c_str(), std::string(tripod::name(t.dtype)).c_str(), dims.c_str());
  for (int64_t i = 0; i < std::min<int64_t>(t.count(), 8); ++i) std::printf(" %.7g", load_double(t.dtype, t.bytes.data(), i));
  std::printf(t.count() > 8 ? " ...\n" : "\n");
}

// The same for programs; NaN and infinities as text, which JSON has no numbers for.
nlohmann::ordered_json output_json(const std::string& name, const Tensor& t, const std::string& file) {
  nlohmann::ordered_json j = {{"name", name}, {"dtype", std::string(tripod::name(t.dtype))}, {"shape", t.shape}};
  if (!file.empty()) {
    j["file"] = file;
    return j;
  }
  j["values"] = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < t.count(); ++i) {
    const double v = load_double(t.dtype, t.bytes.data(), i);
    if (std::isfinite(v))
      j["values"].push_back(v);
    else
      j["values"].push_back(std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
  }
  return j;
}

void run(const RunOptions& o) {
  LoadedModel model(o.model, o.device);
  model.set_cuda_graphs(o.cuda_graphs);
  if (o.threads > 0) model.set_threads(o.threads);
  bool npy = false;
  const auto inputs = o.input_dir.empty() ? model.random_inputs(parse_dims(o.dims), o.seed) : read_inputs(o.input_dir, model.manifest()["inputs"].size(), &npy);
  const std::vector<Tensor> outputs = model.run(inputs);
  if (!o.output_dir.empty()) std::filesystem::create_directories(o.output_dir);
  nlohmann::ordered_json report = {{"outputs", nlohmann::ordered_json::array()}};
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string name = model.manifest()["outputs"][i]["name"];
    if (o.output_dir.empty()) {
      if (o.json)
        report["outputs"].push_back(output_json(name, outputs[i], ""));
      else
        print(name, outputs[i]);
      continue;
    }
    const std::string base = o.output_dir + "/output_" + std::to_string(i);
    npy ? write_npy(base + ".npy", outputs[i]) : write_tensor(base + ".pb", outputs[i]);
    if (o.json) report["outputs"].push_back(output_json(name, outputs[i], base + (npy ? ".npy" : ".pb")));
  }
  if (o.json) std::printf("%s\n", report.dump().c_str());
}

}  // namespace

void add_run(CLI::App& app, int& code) {
  auto o = std::make_shared<RunOptions>();
  CLI::App* c = app.add_subcommand("run", "call a compiled model once");
  c->add_option("model", o->model, "the model.so")->required();
  CLI::Option* dir = c->add_option("--input-dir", o->input_dir, "folder with input_0.pb or input_0.npy, ...");
  CLI::Option* random = c->add_flag("--random", o->random, "normal random inputs; symbolic dims by --dim, else 1");
  dir->excludes(random);
  c->add_option("--output-dir", o->output_dir, "write output_0.pb (.npy), ... there instead of printing their beginnings");
  c->add_flag("--json", o->json, "the outputs for programs: all elements, or the files written");
  c->add_option("--dim", o->dims, "NAME=VALUE for --random");
  c->add_option("--seed", o->seed, "of --random");
  c->add_option("--threads", o->threads, "threads of a call (default: one for each core)");
  c->add_option("--device", o->device, "cpu, cuda or cuda:N (default: what the model was compiled for, the first GPU)");
  c->add_flag("--cuda-graphs", o->cuda_graphs, "launch a GPU's kernels as CUDA graphs");
  c->callback([o, &code] {
    code = guarded(o->model, [&] {
      if (o->input_dir.empty() && !o->random) throw CompileError({}, "no inputs: give --input-dir or --random");
      run(*o);
    });
  });
}

}  // namespace tripod::tools
