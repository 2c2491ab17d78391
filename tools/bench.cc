// tripod bench: how long a call takes, into outputs that the caller gives; which kernels take how much of it, and how
// far each is from what the machine could do.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <thread>

#include "base/diagnostic.h"
#include "commands.h"
#include "driver/loaded_model.h"
#include "roofline.h"

namespace tripod::tools {
namespace {

using Json = nlohmann::ordered_json;

struct BenchOptions {
  std::string model, device;
  std::vector<std::string> dims;
  int threads = 0, runs = 50;
  bool json = false, total_only = false, cuda_graphs = false;
};

struct Spread {
  double min = 0, low = 0, median = 0, high = 0, p90 = 0;  // low and high: quartiles
  explicit Spread(std::vector<double> all) {
    std::sort(all.begin(), all.end());
    const auto at = [&](double q) {
      return all.empty() ? 0 : all[static_cast<size_t>(q * static_cast<double>(all.size() - 1) + 0.5)];
    };
    min = at(0), low = at(0.25), median = at(0.5), high = at(0.75), p90 = at(0.9);
  }
};

std::vector<double> time_runs(LoadedModel& model, const std::vector<Tensor>& inputs, int runs,
                              const std::function<void()>& after_run = nullptr) {
  auto outputs = model.run(inputs);
  if (after_run) after_run();
  std::vector<double> ms;
  for (int i = 0; i < runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    model.run_into(inputs, outputs);
    ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    if (after_run) after_run();
  }
  return ms;
}

// A fusion group (an entry of the manifest's "works"), whose launches count together.
struct Row {
  std::string kernel, rule;  // symbol of the last launch, or the operator
  std::vector<std::string> nodes;
  int64_t calls = 0;                   // of its last launch, in one run
  double ms = 0;                       // median over the runs of its time in one run
  std::optional<double> flops, bytes;  // in one run
  double least_ms = 0;
};

// Collects what the step hook says, a run at a time.
class Profile {
 public:
  void add(const tripod_step& s) {
    Step& step = steps_[s.number];
    step.now += s.nanoseconds;
    ++step.calls_now;
    const auto& dims = manifest_->value("dims", nlohmann::json::array());
    dims_.assign(s.dims, s.dims + dims.size());
  }
  // The first run is a warm-up.
  void end_run() {
    for (auto& [id, s] : steps_) {
      if (warm_) s.ns.push_back(static_cast<double>(s.now));
      s.calls = s.calls_now;
      s.now = s.calls_now = 0;
    }
    warm_ = true;
  }
  void set_manifest(const nlohmann::json& m) { manifest_ = &m; }

  std::vector<Row> rows() const {
    const nlohmann::json& m = *manifest_;
    const SizeReader sizes(m, dims_.data());
    std::map<int64_t, Row> rows;  // by work; steps without one by -1 - id
    std::map<int64_t, std::vector<double>> runs;
    for (const auto& j : m["steps"]) {
      const auto found = steps_.find(j["id"].get<int32_t>());
      if (found == steps_.end()) continue;
      const int64_t key = j.contains("work") ? j["work"].get<int64_t>() : -1 - j["id"].get<int64_t>();
      Row& r = rows[key];
      r.kernel = j.contains("kernel") ? j["kernel"] : j["operator"];
      r.calls = found->second.calls;
      auto& sums = runs[key];
      sums.resize(found->second.ns.size());
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += found->second.ns[i];
      if (key < 0) continue;
      const nlohmann::json& work = m["works"][static_cast<size_t>(key)];
      r.rule = work["rule"], r.nodes = work["nodes"];
      // Work inside a loop is counted with the dims that its last iteration had.
      if (const auto f = sizes.read(work.value("flops", nlohmann::json()))) r.flops = static_cast<double>(*f * r.calls);
      if (const auto b = sizes.read(work.value("bytes", nlohmann::json()))) r.bytes = static_cast<double>(*b * r.calls);
    }
    std::vector<Row> sorted;
    for (auto& [key, r] : rows) {
      r.ms = Spread(runs[key]).median * 1e-6;
      sorted.push_back(std::move(r));
    }
    std::stable_sort(sorted.begin(), sorted.end(), [](const Row& a, const Row& b) { return a.ms > b.ms; });
    return sorted;
  }

 private:
  struct Step {
    int64_t now = 0, calls_now = 0, calls = 0;
    std::vector<double> ns;
  };
  const nlohmann::json* manifest_ = nullptr;
  std::map<int32_t, Step> steps_;
  std::vector<int64_t> dims_;
  bool warm_ = false;
};

struct Report {
  int threads = 1;
  std::vector<double> ms;
  bool kernels = false;
  Roofline roofline;
  std::vector<Row> rows;
  double hooked_ms = 0;  // median of a run with the hook
};

Json row_json(const Row& r, double total) {
  Json j = {{"kernel", r.kernel},
            {"rule", r.rule},
            {"ms", r.ms},
            {"share", total > 0 ? r.ms / total : 0},
            {"calls", r.calls}};
  if (r.flops) j["flops"] = *r.flops;
  if (r.bytes) j["bytes"] = *r.bytes;
  if (r.least_ms > 0 && r.ms > 0) j["roofline"] = r.least_ms / r.ms;
  j["nodes"] = r.nodes;
  return j;
}

void print_json(const Report& r) {
  const Spread s(r.ms);
  Json j = {{"runs", r.ms.size()},   {"threads", r.threads},       {"min_ms", s.min}, {"low_quartile_ms", s.low},
            {"median_ms", s.median}, {"high_quartile_ms", s.high}, {"p90_ms", s.p90}};
  if (r.kernels) {
    j["peak_flops"] = r.roofline.flops;
    for (const auto& [size, rate] : r.roofline.bandwidth)
      j["bandwidth"].push_back({{"bytes", size}, {"bytes_per_second", rate}});
    j["profiled_ms"] = r.hooked_ms;
    j["kernels"] = Json::array();
    for (const Row& row : r.rows) j["kernels"].push_back(row_json(row, r.hooked_ms));
  }
  std::printf("%s\n", j.dump(1).c_str());
}

std::string nodes_text(const Row& r) {
  std::string s = r.nodes.empty() ? "" : r.nodes[0];
  if (r.nodes.size() > 1) s += " and " + std::to_string(r.nodes.size() - 1) + " more";
  return s;
}

void print_text(const Report& r) {
  const Spread s(r.ms);
  std::printf("%zu runs, %d thread%s: min %.4f ms, median %.4f ms, quartiles %.4f..%.4f ms, 90%% %.4f ms\n",
              r.ms.size(), r.threads, r.threads == 1 ? "" : "s", s.min, s.median, s.low, s.high, s.p90);
  if (!r.kernels) return;
  if (!r.roofline.bandwidth.empty()) std::printf("this machine: %.1f GFLOP/s; copies of", r.roofline.flops * 1e-9);
  for (const auto& [size, rate] : r.roofline.bandwidth)
    size < (1 << 20) ? std::printf(" %ld KiB", size >> 10) : std::printf(" %ld MiB", size >> 20),
        std::printf(" %.1f GB/s%s", rate * 1e-9, size == r.roofline.bandwidth.back().first ? "\n" : ",");
  std::printf("%10s %7s %6s %9s %8s %9s  kernel (rule)  # ONNX nodes\n", "ms", "share", "calls", "GFLOP/s", "GB/s",
              "roofline");
  double sum = 0;
  for (const Row& row : r.rows) {
    sum += row.ms;
    std::printf("%10.4f %6.1f%% %6ld", row.ms, 100 * row.ms / r.hooked_ms, row.calls);
    row.flops&& row.ms > 0 ? std::printf(" %9.2f", *row.flops * 1e-6 / row.ms) : std::printf(" %9s", "-");
    row.bytes&& row.ms > 0 ? std::printf(" %8.2f", *row.bytes * 1e-6 / row.ms) : std::printf(" %8s", "-");
    row.least_ms > 0 && row.ms > 0 ? std::printf(" %8.1f%%", 100 * row.least_ms / row.ms)
                                       : std::printf(" %9s", "-");
    std::printf("  %s (%s)  # %s\n", row.kernel.c_str(), row.rule.c_str(), nodes_text(row).c_str());
  }
  std::printf("%10.4f %6.1f%%  checks, arena, the host program, and the clock\n", std::max(0.0, r.hooked_ms - sum),
              100 * std::max(0.0, r.hooked_ms - sum) / r.hooked_ms);
}

// Does this machine run a file's AVX-512 code?
bool runs_avx512(const std::string& cpus) { return cpus.find("v4") != std::string::npos && __builtin_cpu_supports("x86-64-v4"); }

void bench(const BenchOptions& o) {
  Report r;
  r.threads = o.threads > 0 ? o.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  LoadedModel model(o.model, o.device);
  model.set_threads(r.threads);
  model.set_cuda_graphs(o.cuda_graphs);
  const auto inputs = model.random_inputs(parse_dims(o.dims), 0);
  r.ms = time_runs(model, inputs, o.runs);
  if (!o.total_only) {
    r.kernels = true;
    const bool on_gpu = model.manifest().value("target", "") == "cuda";  // of which no roofline is known here
    if (!on_gpu) r.roofline = measure_roofline(r.threads, runs_avx512(model.manifest()["cpu"]));
    Profile profile;
    LoadedModel hooked(o.model, o.device, [&](const tripod_step& s) { profile.add(s); });
    profile.set_manifest(hooked.manifest());
    r.hooked_ms = Spread(time_runs(hooked, inputs, o.runs, [&] { profile.end_run(); })).median;
    r.rows = profile.rows();
    for (Row& row : r.rows)
      if (!on_gpu && row.flops && row.bytes) {
        const double calls = static_cast<double>(row.calls);  // a call's data may fit a cache that a run's does not
        row.least_ms = 1e3 * calls * r.roofline.least_seconds(*row.flops / calls, *row.bytes / calls);
      }
  }
  o.json ? print_json(r) : print_text(r);
}

}  // namespace

void add_bench(CLI::App& app, int& code) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App* c =
      app.add_subcommand("bench", "time calls of a compiled model on random inputs, as a whole and by kernel");
  c->add_option("model", o->model, "the model.so")->required();
  c->add_option("--dim", o->dims, "NAME=VALUE for symbolic dims (default: the least that each allows)");
  c->add_option("--threads", o->threads, "threads of a call (default: one for each core)");
  c->add_option("--device", o->device, "cpu, cuda or cuda:N (default: what the model was compiled for); times include copies from and to host memory");
  c->add_flag("--cuda-graphs", o->cuda_graphs, "launch a GPU's kernels as CUDA graphs");
  c->add_option("--runs", o->runs, "calls that are timed")->check(CLI::PositiveNumber);
  c->add_flag("--total-only", o->total_only, "no table of kernels");
  c->add_flag("--json", o->json, "for programs");
  c->footer(
      "The share of the roofline is the least time in which this machine could do a kernel's arithmetic and move its\n"
      "bytes once, both measured in the same run, divided by the time the kernel took.");
  c->callback([o, &code] { code = guarded(o->model, [&] { bench(*o); }); });
}

}  // namespace tripod::tools
