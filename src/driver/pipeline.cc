// The compiler, phase by phase (docs/design.md section 2). compile() at the end of the file is the list.
#include "driver/pipeline.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

#include "backends/cpu/evaluator.h"
#include "backends/cpu/kernel.h"
#include "driver/elf_object.h"
#include "driver/link.h"
#include "driver/manifest.h"
#include "driver/session.h"
#include "graph_opt/fuse.h"
#include "graph_opt/layout.h"
#include "graph_opt/simplify.h"
#include "host/emit.h"
#include "host/plan.h"
#include "loop/cost.h"
#include "lower/lower.h"
#include "onnx/import.h"
#include "runtime/abi.h"
#include "runtime/blob.h"

namespace tripod {
namespace {

// A kernel group on its way from compute form to code.
struct KernelEntry {
  const graph::Graph* graph;
  const graph::Group* group;
  lower::Lowered lowered;
  cpu::Kernel kernel;
};

// The groups of every graph of the module, by its number.
using ModuleGroups = std::vector<graph::Groups>;

std::unique_ptr<graph::Module> import(const Options& o) {
  Diagnostics diagnostics;
  auto m = importer::import_model(o.model, {.dims = o.dims, .shapes = o.shapes, .decisions = {}, .specialise = false}, diagnostics);
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

void simplify(Session& s, graph::Module& m) {
  cpu::Evaluator evaluator;
  graph_opt::SimplifyOptions options;
  options.evaluator = &evaluator;
  options.opt_limit = s.options().opt_limit;
  options.after_pass = [&](const std::string& pass, const graph::Module& now) { s.print(pass, [&] { return graph::text(now); }); };
  graph_opt::simplify(m, options);
}

ModuleGroups fuse(const graph::Module& m) {
  ModuleGroups all;
  for (int32_t i = 0; i < m.num_graphs(); ++i) all.push_back(graph_opt::fuse(m.graph(i)));
  return all;
}

std::vector<KernelEntry> lower_all(const graph::Module& m, const ModuleGroups& groups, std::vector<std::string>& sites) {
  std::vector<KernelEntry> entries;
  for (int32_t i = 0; i < m.num_graphs(); ++i)
    for (const graph::Group& group : groups[i])
      if (group.kind == graph::Group::kernel)
        entries.push_back({&m.graph(i), &group, lower::lower_group(m.graph(i), group, sites), {}});
  return entries;
}

std::string explain(const cpu::Kernel& k, const std::vector<std::string>& refusals) {
  std::string text = fmt::format("{}  rule {}\n", k.phases.empty() ? k.function.name : k.phases.back().symbol, k.function.rule);
  for (const Site& o : k.function.origins) text += "    " + o.text() + "\n";
  for (const std::string& r : refusals) text += "    not " + r + "\n";
  return text;
}

std::string schedule_all(const Session& s, std::vector<KernelEntry>& entries, cpu::KernelCompiler& compiler) {
  std::string explanation;
  for (KernelEntry& e : entries) {
    s.print("lower", [&] { return loop::text(e.lowered.function); });
    std::vector<std::string> refusals;
    e.kernel = compiler.add(e.lowered.function, &refusals);
    explanation += explain(e.kernel, refusals);
    s.print("schedule", [&] { return loop::text(e.kernel.function); });
  }
  return explanation;
}

host::GroupKernel as_group_kernel(const KernelEntry& e) {
  host::GroupKernel k{e.lowered.params, e.kernel.params, e.kernel.dims, {}, {}};
  for (const cpu::Phase& p : e.kernel.phases) k.phases.push_back({p.symbol, p.extent, p.scratch, p.grain});
  const loop::Cost cost = loop::cost_of(e.graph->sym(), e.lowered.function);
  k.work = {e.kernel.function.rule, {}, cost.flops, cost.bytes};
  for (const Site& o : e.lowered.function.origins) k.work.nodes.push_back(o.text());
  return k;
}

host::Program plan(const graph::Module& m, const ModuleGroups& groups, const std::vector<KernelEntry>& entries,
                   std::vector<std::string>& sites, host::Weights& weights) {
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
  return host::Planner(m, in, weights).run();
}

// Files that a compile writes on the way; removed whatever happens.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_(std::filesystem::temp_directory_path() / ("tripod-" + std::to_string(getpid()) + "-XXXXXX")) {
    std::string s = path_.string();
    if (!mkdtemp(s.data())) throw CompileError({}, "cannot make a temporary folder in " + path_.parent_path().string());
    path_ = s;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

void write_file(const std::string& path, const void* data, size_t size) {
  std::FILE* f = std::fopen(path.c_str(), "wb");
  const bool good = f && (size == 0 || std::fwrite(data, 1, size, f) == size);
  if (f && std::fclose(f) == 0 && good) return;
  throw CompileError({}, "cannot write " + path);
}

void package(const Options& o, codegen::LlvmUnit& unit, const host::Weights& weights) {
  TemporaryFolder folder;
  std::vector<std::string> objects = {folder.file("model.o"), folder.file("runtime.o")};
  const std::vector<char> object = unit.object();
  write_file(objects[0], object.data(), object.size());
  write_file(objects[1], tripod_runtime_o, tripod_runtime_o_size);
  if (weights.size() > 0) {
    objects.push_back(folder.file("weights.o"));
    write_weights_object(objects.back(), weights);
  }
  link_shared_object(objects, o.output);
}

}  // namespace

CompileReport compile(const Options& o) {
  Session s(o);
  const std::filesystem::path folder = std::filesystem::path(o.output).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder)) throw CompileError({}, "cannot write " + o.output + ": there is no folder " + folder.string());
  const auto after = [&](const std::string& phase, const graph::Module& m) {
    check(s, m, phase);
    s.print(phase, [&] { return graph::text(m); });
    s.stop_here(phase);
  };

  std::unique_ptr<graph::Module> m = s.run("import", [&] { return import(o); });
  after("import", *m);
  s.run("simplify", [&] { simplify(s, *m); });
  after("simplify", *m);
  ModuleGroups groups = s.run("fuse", [&] { return fuse(*m); });
  s.run("layout", [&] {
    for (int32_t i = 0; i < m->num_graphs(); ++i) graph_opt::assign_layouts(m->graph(i), groups[i]);
  });
  after("layout", *m);

  std::vector<std::string> sites;
  const cpu::CpuTarget target = o.cpu == "v4" ? cpu::cpu_v4() : cpu::cpu_v3();
  codegen::LlvmUnit unit(m->name, target.llvm());
  cpu::KernelCompiler compiler(m->sym(), target, unit);
  std::vector<KernelEntry> kernels = s.run("lower", [&] { return lower_all(*m, groups, sites); });
  const std::string explanation = s.run("schedule", [&] { return schedule_all(s, kernels, compiler); });

  host::Weights weights;
  const host::Program program = s.run("plan", [&] { return plan(*m, groups, kernels, sites, weights); });
  s.print("plan", [&] { return host::text(program); });
  const std::string manifest = make_manifest(o, *m, program, compiler.sources());
  s.run("emit", [&] {
    host::emit(program, {manifest, weights.size(), "", kTpAvx2 | kTpFma | kTpF16c | (o.cpu == "v4" ? kTpAvx512 : 0u)}, unit.module());
    s.print("emit", [&] { return unit.ir_text(); });
  });
  s.run("optimise", [&] { unit.optimise(); });
  s.print("optimise", [&] { return unit.ir_text(); });
  s.run("package", [&] { package(o, unit, weights); });
  return {s.timings(), manifest, explanation};
}

}  // namespace tripod
