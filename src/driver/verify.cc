#include "driver/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "driver/execute.h"
#include "driver/reference.h"
#include "driver/session.h"
#include "driver/temporary_folder.h"

namespace tripod {
namespace {

std::string type_text(const Tensor& t) {
  std::string s;
  for (int64_t d : t.shape) s += (s.empty() ? "" : ", ") + std::to_string(d);
  return std::string(name(t.dtype)) + "[" + s + "]";
}

// What the compiled model computes: its outputs, and every value that leaves a kernel.
struct Observed {
  struct Value {
    Tensor tensor;
    std::string kernel;
    std::vector<std::string> nodes;
  };
  std::vector<std::string> order;
  std::map<std::string, Value> values;
  std::vector<Tensor> outputs;
};

class Observer {
 public:
  explicit Observer(const std::string& path) : model_(path, "", [this](const tripod_step& s) { see(s); }) {
    for (const auto& s : model_.manifest()["steps"])
      if (s.contains("results")) steps_[s["id"].get<int32_t>()] = &s;
  }
  LoadedModel& model() { return model_; }
  Observed run(const std::vector<Tensor>& inputs) {
    seen_ = {};
    seen_.outputs = model_.run(inputs);
    return std::move(seen_);
  }

 private:
  void see(const tripod_step& s) {
    const auto found = steps_.find(s.number);
    if (found == steps_.end()) return;
    const nlohmann::json& step = *found->second;
    const SizeReader sizes(model_.manifest(), s.dims);
    for (const auto& r : step["results"]) {
      const auto shape = sizes.read_shape(r["shape"]);
      const int32_t buffer = r["buffer"];
      const auto dtype = parse_dtype(r["dtype"].get<std::string>());
      if (!shape || !dtype || buffer >= s.num_buffers || info(*dtype).bits < 8) continue;
      const DType stored = r.contains("stored") ? parse_dtype(r["stored"].get<std::string>()).value_or(*dtype) : *dtype;
      Observed::Value v;
      v.tensor.dtype = stored, v.tensor.shape = *shape;
      v.tensor.bytes = to_row_major(static_cast<const std::byte*>(s.buffers[buffer]), *shape,
                                    r.value("order", std::vector<int>{}), byte_size(stored, 1));
      v.tensor = converted(v.tensor, *dtype);
      v.kernel = step.contains("kernel") ? step["kernel"] : step["operator"];
      if (step.contains("work"))
        v.nodes = model_.manifest()["works"][step["work"].get<size_t>()]["nodes"].get<std::vector<std::string>>();
      const std::string name = r["value"];
      if (!seen_.values.count(name)) seen_.order.push_back(name);
      seen_.values[name] = std::move(v);
    }
  }

  LoadedModel model_;
  std::map<int32_t, const nlohmann::json*> steps_;
  Observed seen_;
};

class Verifier {
 public:
  Verifier(const VerifyOptions& o, const CompileHooks& hooks)
      : o_(o), hooks_(hooks), tolerance_(o.tolerance > 0 ? o.tolerance : tolerance_of(o.compile.precision)) {}

  VerifyReport run() {
    Options compile_options = o_.compile;
    compile_options.output = folder_.file("model.so");
    compile(compile_options, hooks_);
    Observer observer(compile_options.output);
    if (o_.threads > 0) observer.model().set_threads(o_.threads);
    const size_t count = observer.model().manifest()["inputs"].size();
    inputs_ =
        o_.input_dir.empty() ? observer.model().random_inputs(o_.dims, o_.seed) : read_inputs(o_.input_dir, count);
    const Observed compiled = observer.run(inputs_);
    for (const auto& out : observer.model().manifest()["outputs"])
      output_names_.push_back(out["name"].get<std::string>());
    find_reference();
    compare_all(compiled);
    if (o_.bisect && !bad_.empty()) bisect(compiled);
    return std::move(report_);
  }

 private:
  void find_reference() {
    if (o_.reference != "interpreter") {
      reference_ = onnxruntime_reference(o_.python, o_.compile.model, inputs_, folder_.path());
      if (reference_.problem.empty()) {
        report_.reference = "ONNX Runtime";
        return;
      }
      if (o_.reference == "onnxruntime")
        throw CompileError(
            {}, "no reference from ONNX Runtime: " + reference_.problem,
            "--python names a Python that has onnx and onnxruntime; --reference interpreter does without");
      report_.note = "not ONNX Runtime: " + reference_.problem;
    }
    report_.reference = "the graph interpreter";
    reference_ = {};
    // Without the tests' hooks: the reference is not spoiled.
    std::optional<ExecuteResult> r;
    CompileHooks hooks;
    hooks.after_phase = [&](PhaseView& v) {
      if (v.phase == "import")
        r = execute({v.module, Form::nodes, nullptr, nullptr, &inputs_, nullptr, 100 * o_.work, {}});
    };
    stop_after("import", -1, hooks);
    if (!r->stopped.empty())
      throw CompileError({}, "no reference: " + r->stopped,
                         report_.note.empty() ? "use ONNX Runtime, or raise --work" : report_.note);
    reference_.values = std::move(r->values);
    reference_.outputs = std::move(r->outputs);
  }

  void stop_after(const std::string& phase, int64_t limit, const CompileHooks& hooks) {
    Options options = o_.compile;
    options.output = folder_.file("again.so");
    options.stop_after = phase;
    options.opt_limit = limit;
    try {
      compile(options, hooks);
    } catch (const Stopped&) {
    }
  }

  // How far output i may be from the reference: what ONNX Runtime's own two modes differ by counts double.
  double bound_of(size_t i) const {
    if (i >= reference_.optimised.size() || reference_.optimised[i].dtype == DType::none) return tolerance_;
    const Difference own = compare(reference_.optimised[i], reference_.outputs[i]);
    return own.problem.empty() && own.is_float ? std::max(tolerance_, 2 * own.relative) : tolerance_;
  }

  void compare_all(const Observed& compiled) {
    for (size_t i = 0; i < compiled.outputs.size(); ++i) bounds_.push_back(bound_of(i));
    report_.bound = bounds_.empty() ? tolerance_ : *std::max_element(bounds_.begin(), bounds_.end());
    std::set<std::string> done;
    for (size_t i = 0; i < compiled.outputs.size() && i < reference_.outputs.size(); ++i) {
      if (reference_.outputs[i].dtype == DType::none) continue;  // not a tensor
      VerifyRow row = row_of(output_names_[i], compiled.outputs[i], reference_.outputs[i], bounds_[i]);
      row.output = true;
      const auto made = compiled.values.find(row.value);
      if (made != compiled.values.end()) row.kernel = made->second.kernel, row.nodes = made->second.nodes;
      if (row.over) report_.good = false;
      done.insert(row.value);
      report_.rows.push_back(std::move(row));
    }
    for (const std::string& name : compiled.order) {
      const auto wanted = reference_.values.find(name);
      if (wanted == reference_.values.end() || !done.insert(name).second) continue;
      const Observed::Value& v = compiled.values.at(name);
      VerifyRow row = row_of(name, v.tensor, wanted->second, report_.bound);
      row.kernel = v.kernel, row.nodes = v.nodes;
      report_.rows.push_back(std::move(row));
    }
    for (const VerifyRow& r : report_.rows)
      if (r.over) bad_.insert(r.value);
    std::stable_sort(report_.rows.begin(), report_.rows.end(), [](const VerifyRow& a, const VerifyRow& b) {
      return a.difference.relative > b.difference.relative;
    });
  }

  static VerifyRow row_of(const std::string& value, const Tensor& got, const Tensor& want, double bound) {
    VerifyRow row;
    row.value = value, row.type = type_text(got);
    row.difference = compare(got, want);
    row.over = row.difference.over(bound);
    return row;
  }

  // --- bisect -----------------------------------------------------------------------------------------------------

  PhaseResult judge(const PhaseView& v) {
    ExecuteInput in{v.module, Form::nodes, v.groups, v.kernels, &inputs_, &reference_.values, o_.work, {}};
    if (v.phase == "lower") in.form = Form::lowered;
    if (v.phase == "schedule") in.form = Form::scheduled;
    if (!focus_.empty()) in.always = {focus_};
    const ExecuteResult r = execute(in);
    PhaseResult p;
    p.phase = v.phase, p.taken = r.taken.size(), p.violations = r.violations, p.stopped = r.stopped;
    // Only what the compiled model has wrong, too, counts: a value may keep its name and change its meaning.
    for (const std::string& name : r.order) {
      const auto wanted = reference_.values.find(name);
      if (wanted == reference_.values.end()) continue;
      ++p.compared;
      const Difference d = compare(r.values.at(name), wanted->second);
      if (p.good && bad_.count(name) && d.over(report_.bound)) fail(p, v, name, d);
    }
    for (size_t i = 0; p.good && i < r.outputs.size() && i < reference_.outputs.size(); ++i) {
      if (reference_.outputs[i].dtype == DType::none) continue;
      const Difference d = compare(r.outputs[i], reference_.outputs[i]);
      if (d.over(bounds_[i])) fail(p, v, v.module->main().value(v.module->main().outputs()[i]).name, d);
    }
    if (p.good && !p.violations.empty()) p.good = false, p.node = p.violations[0];
    return p;
  }

  static void fail(PhaseResult& p, const PhaseView& v, const std::string& name, const Difference& d) {
    p.good = false, p.value = name, p.difference = d;
    const graph::Graph& g = v.module->main();
    for (graph::ValueId id = 0; id < g.num_values(); ++id) {
      if (g.value(id).name != name || g.node(g.value(id).producer).dead) continue;
      const graph::Node& n = g.producer(id);
      p.node = std::string(graph::info(n.op).text);
      for (const Site& s : n.origins) p.node += (&s == &n.origins[0] ? " of " : ", ") + s.text();
      if (!v.kernels) return;
      for (const KernelEntry& e : *v.kernels)
        if (e.graph == &g && std::find(e.group->outputs.begin(), e.group->outputs.end(), id) != e.group->outputs.end())
          p.node += " in kernel " + e.lowered.function.name;
      return;
    }
  }

  void bisect(const Observed& compiled) {
    for (const std::string& name : compiled.order)
      if (focus_.empty() && bad_.count(name)) focus_ = name;
    int64_t rewrites = 0;
    CompileHooks hooks = hooks_;
    hooks.after_phase = [&](PhaseView& v) {
      if (hooks_.after_phase) hooks_.after_phase(v);
      rewrites = v.simplified.rewrites;
      report_.phases.push_back(judge(v));
      if (!report_.phases.back().good) throw Stopped{v.phase};
    };
    stop_after("", o_.compile.opt_limit, hooks);
    if (!report_.phases.empty() && !report_.phases.back().good) {
      report_.first_phase = report_.phases.back().phase;
      report_.culprit = report_.phases.back().node;
      if (report_.first_phase == "simplify") find_rewrite(rewrites);
      return;
    }
    // Everything up to the schedules is right: what is left is code generation, the plan, the run time.
    report_.first_phase = "compiled";
    for (const VerifyRow& r : report_.rows)
      if (r.value == focus_ || (focus_.empty() && r.over)) {
        report_.culprit = "kernel " + r.kernel;
        for (const std::string& n : r.nodes) report_.culprit += (&n == &r.nodes[0] ? " of " : ", ") + n;
        return;
      }
  }

  // The least number of rewrites with which simplify is wrong; with none it is right, as import is.
  void find_rewrite(int64_t rewrites) {
    std::string last;
    const auto is_good = [&](int64_t limit) {
      bool good = true;
      CompileHooks hooks = hooks_;
      hooks.after_phase = [&](PhaseView& v) {
        if (hooks_.after_phase) hooks_.after_phase(v);
        if (v.phase != "simplify") return;
        last = v.simplified.last;
        good = judge(v).good;
      };
      stop_after("simplify", limit, hooks);
      return good;
    };
    if (!is_good(0)) {
      report_.rewrite_text = "wrong without any rewrite, too";
      return;
    }
    int64_t good = 0, bad = rewrites;
    while (bad - good > 1) {
      const int64_t middle = good + (bad - good) / 2;
      (is_good(middle) ? good : bad) = middle;
    }
    is_good(bad);
    report_.rewrite = bad;
    report_.rewrite_text = last;
  }

  static double tolerance_of(const std::string& precision) {
    return precision == "f32" ? 1e-5 : precision == "bf16" ? 1e-1 : 2e-2;
  }

  const VerifyOptions& o_;
  const CompileHooks& hooks_;
  const double tolerance_;
  TemporaryFolder folder_;
  std::vector<Tensor> inputs_;
  std::vector<std::string> output_names_;
  Reference reference_;
  VerifyReport report_;
  std::vector<double> bounds_;  // of the outputs
  std::set<std::string> bad_;   // values over their bound in the compiled model
  std::string focus_;           // the first of them
};

}  // namespace

VerifyReport verify(const VerifyOptions& options, const CompileHooks& hooks) { return Verifier(options, hooks).run(); }

}  // namespace tripod
