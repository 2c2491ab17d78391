// tripod compile, tripod explain.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <sstream>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/diagnostic.h"
#include "commands.h"
#include "crash.h"
#include "driver/bundle.h"
#include "driver/loaded_model.h"
#include "driver/pipeline.h"
#include "driver/session.h"
#include "driver/temporary_folder.h"

namespace tripod::tools {

int guarded(const std::string& file, const std::function<void()>& work) {
  try {
    work();
    return 0;
  } catch (const Stopped&) {
    return 0;
  } catch (const CompileError& e) {
    std::fprintf(stderr, "%s", e.diagnostics.text(file).c_str());
    return 2;
  } catch (const sym::Overflow& e) {
    std::fprintf(stderr, "tripod: %s: error: the sizes of this model are too large: %s\n  hint: narrow its dims with --dim or --shape\n1 error\n",
                 file.c_str(), e.what());
    return 2;
  } catch (const RunError& e) {
    std::fprintf(stderr, "tripod: %s: error: %s\n", file.c_str(), e.what());
    return 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tripod: %s: internal error: %s\n", file.c_str(), e.what());
    leave_bundle();
    return 1;
  }
}

static int64_t number(const std::string& s, const std::string& what) {
  try {
    size_t used = 0;
    const int64_t v = std::stoll(s, &used);
    if (used == s.size()) return v;
  } catch (const std::exception&) {
  }
  throw CLI::ValidationError(what, "\"" + s + "\" is not a number");
}

// N=8 or N=1..64
static void parse_dim(const std::string& text, Options& o) {
  const size_t eq = text.rfind('=');
  if (eq == std::string::npos || eq == 0) throw CLI::ValidationError("--dim", "wanted NAME=VALUE or NAME=LEAST..MOST, got \"" + text + "\"");
  const std::string name = text.substr(0, eq), value = text.substr(eq + 1);
  const size_t dots = value.find("..");
  sym::Range r;
  r.lo = number(value.substr(0, dots), "--dim");
  r.hi = dots == std::string::npos ? r.lo : number(value.substr(dots + 2), "--dim");
  if (r.lo < 0 || r.hi < r.lo) throw CLI::ValidationError("--dim", "the range of \"" + text + "\" is empty or negative");
  if (!o.dims.emplace(name, r).second) throw CLI::ValidationError("--dim", "\"" + name + "\" is given twice");
}

// x=1,3,224,224
static void parse_shape(const std::string& text, Options& o) {
  const size_t eq = text.rfind('=');
  if (eq == std::string::npos || eq == 0) throw CLI::ValidationError("--shape", "wanted INPUT=D0,D1,..., got \"" + text + "\"");
  std::stringstream dims(text.substr(eq + 1));
  std::vector<int64_t> shape;
  for (std::string d; std::getline(dims, d, ',');) shape.push_back(number(d, "--shape"));
  if (std::any_of(shape.begin(), shape.end(), [](int64_t d) { return d < -1; }))
    throw CLI::ValidationError("--shape", "a dim of \"" + text + "\" is negative (-1 leaves it as it is)");
  if (!o.shapes.emplace(text.substr(0, eq), std::move(shape)).second)
    throw CLI::ValidationError("--shape", "\"" + text.substr(0, eq) + "\" is given twice");
}

// present=past
static void parse_alias(const std::string& text, Options& o) {
  const size_t eq = text.find('=');
  if (eq == std::string::npos || eq == 0 || eq + 1 == text.size()) throw CLI::ValidationError("--alias", "wanted OUTPUT=INPUT, got \"" + text + "\"");
  o.aliases[text.substr(0, eq)] = text.substr(eq + 1);
}

void add_repro_option(CLI::App& c, std::string& folder) {
  c.add_option("--repro", folder, "write a bundle there that reproduces this run: inputs, options, IR after each phase");
}

void add_compile_options(CLI::App& c, Options& o) {
  c.add_option("model", o.model, "the ONNX file")->required();
  c.add_option("--target", o.target, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  c.add_option("--arch", o.archs, "of target cuda: sm_80, sm_86, sm_89, sm_90a (cubins), compute_80 (PTX for whatever is later); default sm_90a,compute_80")->delimiter(',');
  c.add_option("--precision", o.precision, "f32; f16 or bf16: values between kernels and weights; tf32: products, of target cuda")->check(CLI::IsMember({"f32", "tf32", "f16", "bf16"}));
  c.add_flag("--exact-math", o.exact_math, "functions within 2 ulp of f32 also where results are stored in 16 bits");
  c.add_flag("--debug-kernels", o.debug_kernels, "of target cuda: line information for debuggers, and indices into memory are checked");
  c.add_option("--nvcc", o.nvcc, "path of nvcc, for target cuda");
  c.add_option("--cache", o.cache_folder, "folder that keeps compiled CUDA C between compiles");
  c.add_option("--cpu", o.cpu, "v3: AVX2, FMA, F16C; v4: AVX-512; native: what this machine has; v3,v4: both in one file");
  c.add_option_function<std::string>("--weights", [&o](const std::string& where) { o.external_weights = where == "external"; }, "embedded (default), or external: in a file beside the output")->check(CLI::IsMember({"embedded", "external"}));
  c.add_option_function<std::string>("--weights-file", [&o](const std::string& path) { o.external_weights = true, o.weights_file = path; }, "external weights in this file: from the folder of the output, or a whole path");
  c.add_option_function<std::vector<std::string>>("--dim", [&o](const std::vector<std::string>& all) { for (const auto& t : all) parse_dim(t, o); }, "NAME=VALUE or NAME=LEAST..MOST for a symbolic dim; may be repeated");
  c.add_option_function<std::vector<std::string>>("--shape", [&o](const std::vector<std::string>& all) { for (const auto& t : all) parse_shape(t, o); }, "INPUT=D0,D1,... fixes an input's shape (-1 leaves a dim); may be repeated");
  c.add_option_function<std::vector<std::string>>("--alias", [&o](const std::vector<std::string>& all) { for (const auto& t : all) parse_alias(t, o); }, "OUTPUT=INPUT: the caller may give the output the input's memory (KV caches, states); may be repeated");
  c.add_option("--opt-limit", o.opt_limit, "rewrites that simplify may make; for finding the one that is wrong");
  add_repro_option(c, o.repro);
  c.add_flag("--verify", o.verify, "check the IR after every phase");
}

// What `compile --json` prints: times in seconds, the file, and the kernels.
static nlohmann::ordered_json report_json(const Options& o, const CompileReport& r) {
  nlohmann::ordered_json j = {{"output", o.output}, {"bytes", std::filesystem::file_size(o.output)}};
  double total = 0;
  for (const auto& [phase, seconds] : r.seconds) j["seconds"][phase] = seconds, total += seconds;
  j["seconds"]["total"] = total;
  j["kernels"] = nlohmann::ordered_json::array();
  for (const Explanation& e : r.explanation)
    if (e.who.rfind("kernel ", 0) == 0) j["kernels"].push_back({{"kernel", e.who.substr(7)}, {"rule", e.why.substr(5)}, {"nodes", e.nodes}, {"flops", e.flops}, {"bytes", e.bytes}});
  return j;
}

void add_compile(CLI::App& app, int& code) {
  auto o = std::make_shared<Options>();
  auto json = std::make_shared<bool>(false);
  CLI::App* c = app.add_subcommand("compile", "compile an ONNX model to one native shared object");
  add_compile_options(*c, *o);
  c->add_option("-o,--output", o->output, "the file to write (model.so)");
  c->add_option("--print-after", o->print_after, "print the IR after this pass or phase; \"all\"");
  c->add_option("--stop-after", o->stop_after, "stop after this phase: import, simplify, layout")->check(CLI::IsMember({"import", "simplify", "layout"}));
  c->add_flag("--time-passes", o->time_passes, "print how long each phase took");
  c->add_flag("--json", *json, "print times, kernels and the file's size for programs");
  c->footer("Dims that the model leaves free stay free: one file serves every size.\n"
            "  tripod compile model.onnx -o model.so\n"
            "  tripod compile model.onnx -o model.so --dim N=1..64 --time-passes");
  c->callback([o, json, &code] {
    code = guarded(o->model, [&] {
      if (!o->repro.empty()) start_bundle(o->repro, command_arguments(), o->model);
      o->progress = isatty(2) && o->print_after.empty();
      const CompileReport r = compile(*o);
      if (o->time_passes) std::fprintf(stderr, "%s", r.timings.c_str());
      if (*json) std::printf("%s\n", report_json(*o, r).dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
    });
  });
}

static nlohmann::ordered_json explanation_json(const Explanation& e) {
  nlohmann::ordered_json j = {{"who", e.who}, {"why", e.why}, {"nodes", e.nodes}, {"not", e.refused}};
  if (!e.notes.empty()) j["notes"] = e.notes;
  if (!e.flops.empty()) j["flops"] = e.flops;
  if (!e.bytes.empty()) j["bytes"] = e.bytes;
  if (e.least_us > 0) j["least_us"] = e.least_us;
  return j;
}

void add_explain(CLI::App& app, int& code) {
  auto o = std::make_shared<Options>();
  auto json = std::make_shared<bool>(false);
  CLI::App* c = app.add_subcommand("explain", "who runs each node, by which rule, why not by another, and at what cost");
  add_compile_options(*c, *o);
  c->add_flag("--json", *json, "for programs");
  c->callback([o, json, &code] {
    code = guarded(o->model, [&] {
      TemporaryFolder folder;
      o->output = folder.file("model.so");
      if (!o->repro.empty()) start_bundle(o->repro, command_arguments(), o->model);
      const CompileReport r = compile(*o);
      nlohmann::ordered_json all = nlohmann::ordered_json::array();
      for (const Explanation& e : r.explanation)
        if (*json)
          all.push_back(explanation_json(e));
        else
          std::printf("%s", text(e).c_str());
      if (*json) std::printf("%s\n", all.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
    });
  });
}

}  // namespace tripod::tools
