// tripod compile, tripod explain.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <sstream>

#include <unistd.h>

#include "base/diagnostic.h"
#include "commands.h"
#include "driver/pipeline.h"
#include "driver/session.h"

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
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tripod: %s: internal error: %s\n", file.c_str(), e.what());
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
  o.dims[name] = r;
}

// x=1,3,224,224
static void parse_shape(const std::string& text, Options& o) {
  const size_t eq = text.rfind('=');
  if (eq == std::string::npos || eq == 0) throw CLI::ValidationError("--shape", "wanted INPUT=D0,D1,..., got \"" + text + "\"");
  std::stringstream dims(text.substr(eq + 1));
  std::vector<int64_t>& shape = o.shapes[text.substr(0, eq)];
  for (std::string d; std::getline(dims, d, ',');) shape.push_back(number(d, "--shape"));
}

void add_compile_options(CLI::App& c, Options& o) {
  c.add_option("model", o.model, "the ONNX file")->required();
  c.add_option("--target", o.target, "cpu")->check(CLI::IsMember({"cpu"}));
  c.add_option("--cpu", o.cpu, "v3: AVX2, FMA, F16C; v4: AVX-512")->check(CLI::IsMember({"v3", "v4"}));
  c.add_option_function<std::vector<std::string>>("--dim", [&o](const std::vector<std::string>& all) { for (const auto& t : all) parse_dim(t, o); }, "NAME=VALUE or NAME=LEAST..MOST for a symbolic dim; may be repeated");
  c.add_option_function<std::vector<std::string>>("--shape", [&o](const std::vector<std::string>& all) { for (const auto& t : all) parse_shape(t, o); }, "INPUT=D0,D1,... fixes an input's shape (-1 leaves a dim); may be repeated");
  c.add_option("--opt-limit", o.opt_limit, "rewrites that simplify may make; for finding the one that is wrong");
  c.add_flag("--verify", o.verify, "check the IR after every phase");
}

void add_compile(CLI::App& app, int& code) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("compile", "compile an ONNX model to one native shared object");
  add_compile_options(*c, *o);
  c->add_option("-o,--output", o->output, "the file to write (model.so)");
  c->add_option("--print-after", o->print_after, "print the IR after this pass or phase; \"all\"");
  c->add_option("--stop-after", o->stop_after, "stop after this phase: import, simplify, layout");
  c->add_flag("--time-passes", o->time_passes, "print how long each phase took");
  c->callback([o, &code] {
    code = guarded(o->model, [&] {
      const CompileReport r = compile(*o);
      if (o->time_passes) std::fprintf(stderr, "%s", r.timings.c_str());
    });
  });
}

void add_explain(CLI::App& app, int& code) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("explain", "which rule schedules each kernel, and why not the others");
  add_compile_options(*c, *o);
  c->callback([o, &code] {
    code = guarded(o->model, [&] {
      o->output = (std::filesystem::temp_directory_path() / ("tripod-explain-" + std::to_string(getpid()) + ".so")).string();
      const CompileReport r = compile(*o);
      std::filesystem::remove(o->output);
      std::printf("%s", r.explanation.c_str());
    });
  });
}

}  // namespace tripod::tools
