// tripod run: one call of a model.so on tensors from files, or on random ones.
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/diagnostic.h"
#include "base/float_bits.h"
#include "commands.h"
#include "model.h"

namespace tripod::tools {
namespace {

struct RunOptions {
  std::string model, input_dir, output_dir, device;
  bool random = false, json = false;
  int threads = 0;
  uint64_t seed = 0;
  std::vector<std::string> dims;
};

// input_0.pb or input_0.npy, and so on for every input of the model.
std::vector<Tensor> read_inputs(const std::string& folder, size_t count, bool& npy) {
  std::vector<Tensor> all;
  for (size_t i = 0; i < count; ++i) {
    const std::string base = folder + "/input_" + std::to_string(i);
    npy = std::filesystem::exists(base + ".npy");
    if (!npy && !std::filesystem::exists(base + ".pb")) throw CompileError({}, "neither " + base + ".pb nor .npy is there: the model has " + std::to_string(count) + " inputs");
    all.push_back(npy ? read_npy(base + ".npy") : read_tensor(base + ".pb"));
  }
  return all;
}

void print(const std::string& name, const Tensor& t) {
  std::string dims;
  for (int64_t d : t.shape) dims += (dims.empty() ? "" : ", ") + std::to_string(d);
  std::printf("%s: %s[%s] =", name.c_str(), std::string(tripod::name(t.dtype)).c_str(), dims.c_str());
  for (int64_t i = 0; i < std::min<int64_t>(t.count(), 8); ++i) std::printf(" %.7g", load_double(t.dtype, t.bytes.data(), i));
  std::printf(t.count() > 8 ? " ...\n" : "\n");
}

void run(const RunOptions& o) {
  LoadedModel model(o.model, o.device);
  if (o.threads > 0) model.set_threads(o.threads);
  bool npy = false;
  const auto inputs = o.input_dir.empty() ? model.random_inputs(parse_dims(o.dims), o.seed) : read_inputs(o.input_dir, model.manifest()["inputs"].size(), npy);
  const std::vector<Tensor> outputs = model.run(inputs);
  if (!o.output_dir.empty()) std::filesystem::create_directories(o.output_dir);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (o.output_dir.empty()) {
      print(model.manifest()["outputs"][i]["name"], outputs[i]);
      continue;
    }
    const std::string base = o.output_dir + "/output_" + std::to_string(i);
    npy ? write_npy(base + ".npy", outputs[i]) : write_tensor(base + ".pb", outputs[i]);
  }
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
  c->add_option("--dim", o->dims, "NAME=VALUE for --random");
  c->add_option("--seed", o->seed, "of --random");
  c->add_option("--threads", o->threads, "threads of a call (default: one for each core)");
  c->add_option("--device", o->device, "cpu, cuda or cuda:N (default: what the model was compiled for, the first GPU)");
  c->callback([o, &code] {
    code = guarded(o->model, [&] {
      if (o->input_dir.empty() && !o->random) throw CompileError({}, "no inputs: give --input-dir or --random");
      run(*o);
    });
  });
}

}  // namespace tripod::tools
