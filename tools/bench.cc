// tripod bench: how long a call takes, into outputs that the caller gives.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "base/diagnostic.h"
#include "commands.h"
#include "model.h"

namespace tripod::tools {
namespace {

struct BenchOptions {
  std::string model, device;
  std::vector<std::string> dims;
  int threads = 0, runs = 50;
  bool json = false;
};

void bench(const BenchOptions& o) {
  LoadedModel model(o.model, o.device);
  if (o.threads > 0) model.set_threads(o.threads);
  std::map<std::string, int64_t> dims;
  for (const std::string& t : o.dims)
    if (const size_t eq = t.rfind('='); eq != std::string::npos) dims[t.substr(0, eq)] = std::stoll(t.substr(eq + 1));
  const auto inputs = model.random_inputs(dims, 0);
  auto outputs = model.run(inputs);
  std::vector<double> ms;
  for (int i = 0; i < o.runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    model.run_into(inputs, outputs);
    ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(ms.begin(), ms.end());
  const auto at = [&](double q) { return ms[static_cast<size_t>(q * static_cast<double>(ms.size() - 1))]; };
  if (o.json)
    std::printf("{\"runs\": %d, \"min_ms\": %.6f, \"median_ms\": %.6f, \"p90_ms\": %.6f}\n", o.runs, ms[0], at(0.5), at(0.9));
  else
    std::printf("%d runs: min %.4f ms, median %.4f ms, 90%% %.4f ms\n", o.runs, ms[0], at(0.5), at(0.9));
}

}  // namespace

void add_bench(CLI::App& app, int& code) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App* c = app.add_subcommand("bench", "time calls of a compiled model on random inputs");
  c->add_option("model", o->model, "the model.so")->required();
  c->add_option("--dim", o->dims, "NAME=VALUE for symbolic dims");
  c->add_option("--threads", o->threads, "threads of a call");
  c->add_option("--device", o->device, "cpu, cuda or cuda:N (default: what the model was compiled for); times include copies from and to host memory");
  c->add_option("--runs", o->runs, "calls that are timed")->check(CLI::PositiveNumber);
  c->add_flag("--json", o->json, "for programs");
  c->callback([o, &code] { code = guarded(o->model, [&] { bench(*o); }); });
}

}  // namespace tripod::tools
