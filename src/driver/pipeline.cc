// The compiler, phase by phase (docs/design.md section 2). compile() at the end of the file is the list.
#include "driver/pipeline.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>

#include "backends/cpu/evaluator.h"
#include "driver/backends.h"
#include "driver/explain.h"
#include "driver/link.h"
#include "driver/manifest.h"
#include "driver/session.h"
#include "driver/temporary_folder.h"
#include "driver/weights_file.h"
#include "graph_opt/fuse.h"
#include "graph_opt/layout.h"
#include "graph_opt/precision.h"
#include "graph_opt/simplify.h"
#include "host/emit.h"
#include "host/plan.h"
#include "loop/cost.h"
#include "loop/light_math.h"
#include "lower/lower.h"
#include "onnx/import.h"
#include "runtime/abi.h"
#include "runtime/blob.h"

namespace tripod {
namespace {

// The groups of every graph of the module, by its number.
using ModuleGroups = std::vector<graph::Groups>;

std::unique_ptr<graph::Module> import(const Options& o) {
  Diagnostics diagnostics;
  cpu::Evaluator evaluator;
  auto m = importer::import_model(o.model, {.dims = o.dims, .shapes = o.shapes, .decisions = {}, .specialise = false, .evaluator = &evaluator}, diagnostics);
  diagnostics.stop_if_errors();
  return m;
}

void check(const Session& s, const graph::Module& m, const std::string& phase) {
#ifdef NDEBUG
  if (!s.options().verify) return;
#else
  (void)s;
#endif
  const auto problems = graph::verify(m);
  if (!problems.empty()) internal_error(__FILE__, __LINE__, "after " + phase + ": " + problems[0]);
}

graph_opt::SimplifyResult simplify(Session& s, graph::Module& m, const CompileHooks& hooks) {
  cpu::Evaluator evaluator;
  graph_opt::SimplifyOptions options;
  options.evaluator = &evaluator;
  options.opt_limit = s.options().opt_limit;
  options.small_weights = s.options().target == "cuda";
  options.whole_transposed = s.options().target == "cpu";
  options.after_pass = [&](const std::string& pass, const graph::Module& now) { if (s.wants(pass)) s.print(pass, [&] { return graph::text(now); }); };
  options.extra_passes = hooks.extra_passes;
  return graph_opt::simplify(m, options);
}

// --alias: both must be there, of one type.
void check_aliases(const Options& o, const graph::Graph& g) {
  Diagnostics d;
  for (const auto& [output, input] : o.aliases) {
    const graph::Type *to = nullptr, *from = nullptr;
    for (size_t i = 0; i < g.outputs().size(); ++i)
      if (g.output_names()[i] == output) to = &g.type(g.outputs()[i]);
    for (const graph::ValueId v : g.inputs())
      if (g.value(v).name == input) from = &g.type(v);
    const std::string option = "--alias " + output + "=" + input + ": ";
    if (!to) d.error({}, option + "the model has no output \"" + output + "\"");
    if (!from) d.error({}, option + "the model has no input \"" + input + "\"");
    if (to && from && (to->dtype != from->dtype || to->rank() != from->rank()))
      d.error({}, option + "the output is " + graph::text(*to) + ", the input " + graph::text(*from));
  }
  d.stop_if_errors();
}

DType storage_type(const std::string& precision) {
  return precision == "f16" ? DType::f16 : precision == "bf16" ? DType::bf16 : DType::f32;
}

ModuleGroups fuse(const graph::Module& m, bool small_weights) {
  ModuleGroups all;
  for (int32_t i = 0; i < m.num_graphs(); ++i) all.push_back(graph_opt::fuse(m.graph(i), small_weights));
  return all;
}

std::vector<KernelEntry> lower_all(const graph::Module& m, ModuleGroups& groups, Backend& backend, Numbering& sites) {
  std::vector<KernelEntry> entries;
  for (int32_t i = 0; i < m.num_graphs(); ++i)
    for (graph::Group& group : groups[i]) {
      std::optional<lower::Lowered> written = backend.write(m.graph(i), group, sites);
      if (written) group.kind = graph::Group::kernel;
      if (group.kind != graph::Group::kernel) continue;
      entries.push_back({&m.graph(i), &group, written ? std::move(*written) : lower::lower_group(m.graph(i), group, sites), {}, {}});
    }
  return entries;
}

// Why rules did not apply, by the symbol of the kernel's last phase.
using Refusals = std::map<std::string, std::vector<std::string>>;

Refusals schedule_all(const Session& s, std::vector<KernelEntry>& entries, Backend& backend) {
  Refusals all;
  for (KernelEntry& e : entries) {
    s.print("lower", [&] { return loop::text(e.lowered.function); });
    std::vector<std::string> refusals;
    const std::string symbol = backend.add(e, &refusals);
    if (!symbol.empty()) all[symbol] = std::move(refusals);
    s.print("schedule", [&] { return loop::text(e.kernel.function); });
  }
  return all;
}

host::GroupKernel as_group_kernel(const KernelEntry& e) {
  host::GroupKernel k{e.lowered.params, e.kernel.params, e.kernel.dims, e.gpu, {}};
  const auto code = [](const cpu::Phase::Code& c) { return host::GroupKernel::Phase::Code{c.features, c.symbol, c.extent, c.scratch, c.grain, {}, {}, {}}; };
  for (const cpu::Phase& p : e.kernel.phases) {
    k.phases.push_back({code(p.code), {}});
    for (const cpu::Phase::Code& v : p.variants) k.phases.back().variants.push_back(code(v));
  }
  const loop::Cost cost = loop::cost_of(e.graph->sym(), e.lowered.function);
  k.work = {e.kernel.function.rule, {}, cost.flops, cost.bytes};
  for (const Site& o : e.lowered.function.origins) k.work.nodes.push_back(o.text());
  return k;
}

host::Program plan(const Session& s, const graph::Module& m, const ModuleGroups& groups, const std::vector<KernelEntry>& entries,
                   Numbering& sites, host::Weights& weights) {
  std::map<const graph::Graph*, const graph::Groups*> groups_of;
  for (int32_t i = 0; i < m.num_graphs(); ++i) groups_of[&m.graph(i)] = &groups[i];
  std::map<graph::NodeId, std::vector<const KernelEntry*>> by_node;
  for (const KernelEntry& e : entries) by_node[e.group->nodes[0]].push_back(&e);
  host::PlanInputs in;
  in.fuse = [&](const graph::Graph& g) { return *groups_of.at(&g); };
  in.compile = [&](const graph::Graph& g, const graph::Group& group) {
    for (const KernelEntry* e : by_node.at(group.nodes[0]))
      if (e->graph == &g) return as_group_kernel(*e);
    internal_error(__FILE__, __LINE__, "a group has no kernel");
  };
  in.sites = &sites;
  for (const auto& [output, input] : s.options().aliases) in.aliased_outputs.insert(output);
  host::Program p = host::Planner(m, in, weights).run();
  const auto named = [](const std::vector<host::IoSpec>& list, const std::string& name) {
    return std::find_if(list.begin(), list.end(), [&](const host::IoSpec& io) { return io.name == name; });
  };
  for (const auto& [output, input] : s.options().aliases)
    p.outputs[named(p.outputs, output) - p.outputs.begin()].shares = static_cast<int32_t>(named(p.inputs, input) - p.inputs.begin());
  return p;
}

void write_file(const std::string& path, const void* data, size_t size) {
  std::FILE* f = std::fopen(path.c_str(), "wb");
  const bool good = f && (size == 0 || std::fwrite(data, 1, size, f) == size);
  if (f && std::fclose(f) == 0 && good) return;
  throw CompileError({}, "cannot write " + path);
}

// A file that appears under its name when it is complete, and leaves nothing behind otherwise.
class Written {
 public:
  explicit Written(const std::string& path) : path_(path), temporary_(path + ".tmp" + std::to_string(getpid())) {}
  ~Written() { std::remove(temporary_.c_str()); }
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;
  const std::string& temporary() const { return temporary_; }
  void keep() {
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) throw CompileError({}, "cannot write " + path_);
  }

 private:
  std::string path_, temporary_;
};

// Weights in a file beside the model; no name: embedded, or there are none.
struct External {
  std::string name;     // as the model looks for it: from its own folder, or a whole path
  std::string path;     // as it is written
  std::string header;
};

External external_weights(const Options& o, const host::Weights& weights) {
  if (!o.external_weights || weights.size() == 0) return {};
  const std::filesystem::path output(o.output);
  const std::filesystem::path name = o.weights_file.empty() ? output.stem().string() + ".weights" : o.weights_file;
  return {name.string(), (output.parent_path() / name).string(), external_weights_header(weights)};
}

void package(const Options& o, Units& units, const host::Weights& weights, const External& external) {
  TemporaryFolder folder;
  std::vector<std::string> objects(units.size());
  units.each([&](size_t i) {
    objects[i] = folder.file("model" + std::to_string(i) + ".o");
    const std::vector<char> object = units[i].object();
    write_file(objects[i], object.data(), object.size());
  });
  objects.push_back(folder.file("runtime.o"));
  write_file(objects.back(), tripod_runtime_o, tripod_runtime_o_size);
  const bool embedded = weights.size() > 0 && external.name.empty();
  if (embedded) {
    objects.push_back(folder.file("weights.o"));
    write_weights_placeholder(objects.back());
  }
  Written output(o.output);
  link_shared_object(objects, output.temporary());
  if (embedded) embed_weights(output.temporary(), weights);
  if (external.name.empty()) return output.keep();
  Written beside(external.path);
  write_external_weights(beside.temporary(), external.header, weights);
  beside.keep();
  output.keep();
}

}  // namespace

CompileReport compile(const Options& o, const CompileHooks& hooks) {
  Session s(o);
  PhaseView view;
  const std::filesystem::path folder = std::filesystem::path(o.output).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder)) throw CompileError({}, "cannot write " + o.output + ": there is no folder " + folder.string());
  if (std::filesystem::exists(o.output) && !std::filesystem::is_regular_file(o.output)) throw CompileError({}, "cannot write " + o.output + ": it is there and not a file");
  check_options(o);
  const std::vector<cpu::CpuTarget> targets = cpu::parse_targets(o.cpu);
  const auto reached = [&](const std::string& phase) {
    view.phase = phase;
    if (hooks.after_phase) hooks.after_phase(view);
  };
  const auto after = [&](const std::string& phase, const graph::Module& m) {
    check(s, m, phase);
    reached(phase);
    s.show(phase, m);
    s.stop_here(phase);
  };

  std::unique_ptr<graph::Module> m = s.run("import", [&] { return import(o); });
  view.module = m.get();
  check_aliases(o, m->main());
  after("import", *m);
  const std::vector<std::string> all_nodes = node_names(*m);
  view.simplified = s.run("simplify", [&] { return simplify(s, *m, hooks); });
  after("simplify", *m);
  ModuleGroups groups = s.run("fuse", [&] { return fuse(*m, o.target == "cuda"); });
  s.run("precision", [&] {
    for (int32_t i = 0; i < m->num_graphs(); ++i) graph_opt::assign_storage(m->graph(i), groups[i], storage_type(o.precision));
  });
  Units units(m->name, targets);
  Numbering sites;
  const std::unique_ptr<Backend> backend = make_backend(o, m->sym(), units, targets, sites);
  s.run("layout", [&] {
    for (int32_t i = 0; i < m->num_graphs(); ++i) graph_opt::assign_layouts(m->graph(i), groups[i], backend->layouts());
  });
  view.groups = &groups;
  after("layout", *m);

  std::vector<KernelEntry> kernels = s.run("lower", [&] { return lower_all(*m, groups, *backend, sites); });
  s.run("light_math", [&] {
    for (KernelEntry& e : kernels)
      if (!o.exact_math) e.lowered.function = loop::light_math(e.lowered.function);
  });
  view.kernels = &kernels;
  reached("lower");
  const Refusals refusals = s.run("schedule", [&] { return schedule_all(s, kernels, *backend); });
  reached("schedule");

  host::Weights weights;
  host::Program program = s.run("plan", [&] { return plan(s, *m, groups, kernels, sites, weights); });
  const std::optional<host::DevicePart> device = s.run("device", [&] { return backend->device_part(program); });
  s.print("plan", [&] { return host::text(program); });
  const std::string manifest = make_manifest(o, *m, program, backend->sources());
  const External external = external_weights(o, weights);
  s.run("emit", [&] {
    host::emit(program, {manifest, weights.size(), external.name, external.header, targets[0].features, device ? &*device : nullptr}, units[0].module());
    s.print("emit", [&] { return units.ir_text(); });
  });
  s.run("optimise", [&] { units.each([&](size_t i) { units[i].optimise(); }); });
  if (s.wants("optimise")) s.print("optimise", [&] { return units.ir_text(); });
  s.check_printed();
  s.run("package", [&] { package(o, units, weights, external); });
  return {s.timings(), s.times(), manifest, explain(program, refusals, *m, groups, all_nodes)};
}

}  // namespace tripod
