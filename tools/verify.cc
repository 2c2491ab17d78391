// tripod verify: a compiled model against a reference, value by value; and which phase makes it differ.
#include "driver/verify.h"

#include <cstdio>
#include <memory>

#include "base/diagnostic.h"
#include "commands.h"
#include "crash.h"
#include "driver/bundle.h"

namespace tripod::tools {
namespace {

using Json = nlohmann::ordered_json;

std::string joined(const std::vector<std::string>& all) {
  std::string s;
  for (const std::string& t : all) s += (s.empty() ? "" : ", ") + t;
  return s;
}

Json difference_json(const Difference& d) {
  Json j;
  if (!d.problem.empty()) {
    j["problem"] = d.problem;
    return j;
  }
  j = {{"error", d.error}, {"range", d.range}, {"relative", d.relative}};
  if (d.is_float) j["ulp"] = d.ulp;
  j["at"] = d.at;
  return j;
}

void print_json(const VerifyReport& r) {
  Json j = {
      {"good", r.good}, {"reference", r.reference}, {"note", r.note}, {"bound", r.bound}, {"values", Json::array()}};
  for (const VerifyRow& row : r.rows)
    j["values"].push_back({{"value", row.value},
                           {"type", row.type},
                           {"output", row.output},
                           {"over", row.over},
                           {"difference", difference_json(row.difference)},
                           {"kernel", row.kernel},
                           {"nodes", row.nodes}});
  for (const PhaseResult& p : r.phases)
    j["phases"].push_back({{"phase", p.phase},
                           {"good", p.good},
                           {"compared", p.compared},
                           {"taken", p.taken},
                           {"value", p.value},
                           {"node", p.node},
                           {"violations", p.violations},
                           {"stopped", p.stopped}});
  if (!r.first_phase.empty()) j["first_phase"] = r.first_phase, j["culprit"] = r.culprit;
  if (!r.rewrite_text.empty()) j["rewrite"] = r.rewrite, j["rewrite_text"] = r.rewrite_text;
  std::printf("%s\n", j.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

void print_text(const VerifyReport& r, size_t top) {
  size_t over = 0;
  for (const VerifyRow& row : r.rows) over += row.over;
  std::printf("against %s%s: %zu values, %zu over the bound of %.2g of their range\n", r.reference.c_str(),
              r.note.empty() ? "" : (" (" + r.note + ")").c_str(), r.rows.size(), over, r.bound);
  std::printf("%12s %12s %12s    value\n", "error/range", "error", "ulp");
  for (size_t i = 0; i < r.rows.size() && i < top; ++i) {
    const VerifyRow& row = r.rows[i];
    const Difference& d = row.difference;
    if (d.problem.empty())
      std::printf("%12.3g %12.3g %12.4g  %c ", d.relative, d.error, d.ulp, row.over ? '!' : ' ');
    else
      std::printf("%38s  ! ", d.problem.c_str());
    std::printf("%s%s: %s  # %s: %s\n", row.output ? "output " : "", row.value.c_str(), row.type.c_str(),
                row.kernel.c_str(), joined(row.nodes).c_str());
  }
  if (r.rows.size() > top) std::printf("  ... and %zu more, better ones (--top)\n", r.rows.size() - top);
  for (const PhaseResult& p : r.phases) {
    std::printf("%-9s %s: %zu values compared", p.phase.c_str(), p.good ? "good" : "DIFFERS", p.compared);
    if (p.taken) std::printf(", %zu taken from the reference", p.taken);
    if (!p.stopped.empty()) std::printf(", stopped: %s", p.stopped.c_str());
    if (!p.good) std::printf("\n  first: %s%s%s", p.value.c_str(), p.value.empty() ? "" : ", ", p.node.c_str());
    std::printf("\n");
  }
  if (!r.first_phase.empty())
    std::printf("first phase that differs: %s\n  %s\n", r.first_phase.c_str(), r.culprit.c_str());
  if (r.rewrite)
    std::printf("  first wrong rewrite: %ld (--opt-limit %ld is right): %s\n", r.rewrite, r.rewrite - 1,
                r.rewrite_text.c_str());
  else if (!r.rewrite_text.empty())
    std::printf("  %s\n", r.rewrite_text.c_str());
  std::printf("%s\n", r.good ? "good: every output is within its bound" : "WRONG: an output is over its bound");
}

}  // namespace

void add_verify(CLI::App& app, int& code) {
  struct All {
    VerifyOptions verify;
    std::vector<std::string> dims;
    bool random = false, json = false;
    size_t top = 20;
  };
  auto o = std::make_shared<All>();
  CLI::App* c = app.add_subcommand(
      "verify", "compare a compiled model with a reference, value by value; find the phase that differs");
  add_compile_options(*c, o->verify.compile);
  CLI::Option* dir = c->add_option("--input-dir", o->verify.input_dir, "folder with input_0.pb or input_0.npy, ...");
  c->add_flag("--random", o->random, "normal random inputs (the default)")->excludes(dir);
  c->add_option("--size", o->dims,
                "NAME=VALUE: the size of a symbolic dim for random inputs; the compiled model leaves it free");
  c->add_option("--seed", o->verify.seed, "of random inputs");
  c->add_option("--reference", o->verify.reference, "auto: ONNX Runtime where Python has it")
      ->check(CLI::IsMember({"auto", "onnxruntime", "interpreter"}));
  c->add_option("--python", o->verify.python, "a Python with onnx and onnxruntime (python3)");
  c->add_option(
      "--tolerance", o->verify.tolerance,
      "error relative to a value's range that is good (1e-5, f16 and tf32 2e-2, bf16 1e-1; twice ONNX Runtime's own difference where that is more)");
  c->add_option("--threads", o->verify.threads, "threads of a call");
  c->add_flag("--bisect", o->verify.bisect, "execute the phases of the compiler, up to the first that differs");
  c->add_option("--work", o->verify.work,
                "iterations that may be interpreted in a phase of --bisect; beyond, values come from the reference");
  c->add_option("--top", o->top, "values to print, worst first");
  c->add_flag("--json", o->json, "for programs");
  c->callback([o, &code] {
    bool good = false;
    code = guarded(o->verify.compile.model, [&] {
      o->verify.dims = parse_dims(o->dims);
      if (!o->verify.compile.repro.empty())
        start_bundle(o->verify.compile.repro, command_arguments(), o->verify.compile.model);
      const VerifyReport r = verify(o->verify);
      o->json ? print_json(r) : print_text(r, o->top);
      good = r.good;
    });
    if (code == 0 && !good) code = 1;
  });
}

}  // namespace tripod::tools
