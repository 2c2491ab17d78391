#include "driver/backends.h"

#include <algorithm>

#include "backends/cpu/kernel.h"
#include "backends/cuda/kernel.h"
#include "backends/cuda/nvcc.h"
#include "backends/cuda/written.h"
#include "host/spaces.h"

namespace tripod {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(sym::Context& c, Units& units, const std::vector<cpu::CpuTarget>& targets) : compiler_(c, compiled(units, targets)) {}

  graph_opt::LayoutPreferences layouts() const override { return {.copy_depthwise_from = 8}; }
  std::string add(KernelEntry& e, std::vector<std::string>* log) override {
    e.kernel = compiler_.add(e.lowered.function, log);
    return e.kernel.phases.empty() ? "" : e.kernel.phases.back().code.symbol;
  }
  const std::unordered_map<std::string, std::string>& sources() const override { return compiler_.sources(); }

 private:
  static std::vector<cpu::KernelCompiler::Target> compiled(Units& units, const std::vector<cpu::CpuTarget>& targets) {
    std::vector<cpu::KernelCompiler::Target> r;
    for (size_t i = 0; i < units.size(); ++i) r.push_back({targets[i], &units[i]});
    return r;
  }
  cpu::KernelCompiler compiler_;
};

// What --arch takes. PTX runs on the named architecture and later ones, a cubin on its own (sm_80's also on sm_86, sm_89),
// so that both have the shared memory of the least of these.
struct ArchRow {
  const char* name;
  cuda::Arch arch;
  int64_t shared_bytes;  // that a block of threads may have
};
constexpr int64_t kLeastShared = 99 << 10, kSharedOfSm90 = 227 << 10;
constexpr ArchRow kArchs[] = {{"sm_80", {80, false}, kLeastShared},
                              {"sm_86", {86, false}, kLeastShared},
                              {"sm_89", {89, false}, kLeastShared},
                              {"sm_90a", {90, false}, kSharedOfSm90},
                              {"compute_80", {80, true}, kLeastShared}};

const ArchRow& parse_arch(const std::string& text) {
  std::string known;
  for (const ArchRow& r : kArchs) {
    if (text == r.name) return r;
    known += (known.empty() ? "" : ", ") + std::string(r.name);
  }
  throw CompileError({}, "--arch " + text + ": no such architecture", "there are " + known);
}

cuda::ScheduleOptions schedule_options(const Options& o) {
  cuda::ScheduleOptions s{.shared_bytes = kSharedOfSm90, .tf32 = o.precision == "tf32"};
  for (const std::string& a : o.archs) s.shared_bytes = std::min(s.shared_bytes, parse_arch(a).shared_bytes);
  return s;
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(const Options& o, sym::Context& c, Numbering& sites)
      : o_(o), compiler_(c, schedule_options(o), o.debug_kernels ? bounds_site(sites) : nullptr), c_(c) {}

  // Implicit GEMM reads 16 bytes along the channels of images and weights.
  graph_opt::LayoutPreferences layouts() const override { return {.weights_channels_last = true, .copy_operands_from = 8}; }

  std::string add(KernelEntry& e, std::vector<std::string>* log) override {
    at_work_ = e.lowered.function.origins.empty() ? "" : " of " + e.lowered.function.origins[0].text();
    cuda::Kernel k = compiler_.add(e.lowered.function, log);
    const std::string origin = k.function.origins.empty() ? k.function.name : k.function.origins[0].text();
    std::string last;
    for (const cuda::Launch& l : k.launches) {
      e.gpu.push_back({as_code(l), {}});
      add_origin(last = l.kernel.symbol, origin);
      if (!l.wide.empty()) add_origin(l.wide, origin);
    }
    e.kernel.function = std::move(k.function);
    e.kernel.params = std::move(k.params);
    e.kernel.dims = std::move(k.dims);
    e.kernel.num_workspace = static_cast<int64_t>(e.kernel.params.size() - e.kernel.function.params.size());
    return last;
  }

  std::optional<lower::Lowered> write(const graph::Graph& g, const graph::Group& group, Numbering& sites) override {
    return cuda::write(g, group, sites);
  }

  const std::unordered_map<std::string, std::string>& sources() const override { return compiler_.sources(); }

  std::optional<host::DevicePart> device_part(host::Program& p) override {
    host::place_on_device(p, c_);
    cuda::NvccOptions nvcc;
    nvcc.nvcc = o_.nvcc;
    nvcc.cache_folder = o_.cache_folder;
    nvcc.line_info = o_.debug_kernels;
    for (const std::string& a : o_.archs) nvcc.archs.push_back(parse_arch(a).arch);
    std::vector<std::string> texts;
    host::DevicePart part;
    for (const std::string& symbol : p.kernels) {
      texts.push_back(sources().at(symbol));
      part.origins.push_back(origins_.at(symbol));
    }
    for (cuda::Image& i : cuda::compile(texts, nvcc)) part.images.push_back({i.arch.number, i.arch.ptx, std::move(i.bytes)});
    return part;
  }

 private:
  host::GroupKernel::Phase::Code as_code(const cuda::Launch& l) const {
    host::GroupKernel::Phase::Code code;
    code.symbol = l.kernel.symbol;
    code.extent = code.scratch = c_.constant(0);
    for (const auto& axes : {l.kernel.geometry.grid, l.kernel.geometry.block})
      for (int i = 0; i < 3; ++i) code.geometry.push_back(axes[i]);
    code.geometry.push_back(c_.constant(l.kernel.geometry.shared_bytes));
    code.narrow = l.kernel.narrow;
    code.wide = l.wide;
    return code;
  }

  // Nodes that do the same share a kernel.
  void add_origin(const std::string& symbol, const std::string& origin) {
    std::string& all = origins_.try_emplace(symbol, origin).first->second;
    const std::string others = " or another node of its kind";
    if (all != origin && !all.ends_with(others)) all += others;
  }

  // --debug-kernels: one site a buffer of a kernel.
  cuda::BoundsSite bounds_site(Numbering& sites) {
    return [this, &sites](const std::string& symbol, const std::string& buffer) {
      return sites.number("kernel " + symbol + at_work_ + ", buffer '" + buffer + "'");
    };
  }

  const Options& o_;
  std::string at_work_;  // the node that the kernel being made is of
  cuda::KernelCompiler compiler_;
  sym::Context& c_;
  std::unordered_map<std::string, std::string> origins_;  // by symbol: what to name when a kernel fails
};

}  // namespace

void check_options(const Options& o) {
  if (o.target == "cuda") {
    if (o.archs.empty()) throw CompileError({}, "--arch: no architecture is given");
    for (const std::string& a : o.archs) {
      parse_arch(a);
      if (std::count(o.archs.begin(), o.archs.end(), a) > 1) throw CompileError({}, "--arch " + a + ": given twice");
    }
  } else if (o.precision == "tf32") {
    throw CompileError({}, "--precision tf32 is of --target cuda", "f16 and bf16 are for both targets");
  }
}

std::unique_ptr<Backend> make_backend(const Options& o, sym::Context& c, Units& units, const std::vector<cpu::CpuTarget>& targets,
                                      Numbering& sites) {
  check_options(o);
  if (o.target == "cuda") return std::make_unique<CudaBackend>(o, c, sites);
  return std::make_unique<CpuBackend>(c, units, targets);
}

}  // namespace tripod
