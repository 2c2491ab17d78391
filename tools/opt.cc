// tripod opt: text IR in, text IR out.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>

#include "backends/cpu/evaluator.h"
#include "base/diagnostic.h"
#include "commands.h"
#include "crash.h"
#include "driver/bundle.h"
#include "graph/graph.h"
#include "graph_opt/simplify.h"
#include "loop/expand_math.h"
#include "loop/flatten.h"
#include "loop/light_math.h"
#include "loop/ir.h"

namespace tripod::tools {
namespace {

struct OptOptions {
  std::string file;
  std::vector<std::string> passes;
  std::string repro;
};

std::string read_text(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw CompileError({}, "cannot read it");
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

[[noreturn]] void unknown(const std::string& pass, const char* known) {
  throw CompileError({}, "no pass \"" + pass + "\" for this kind of file", std::string("known: ") + known);
}

// Two passes that are not in any list: how tests see what a fault of the compiler leaves behind.
void fail_for_tests(const std::string& pass) {
  if (pass == "test_internal_error") internal_error(__FILE__, __LINE__, "asked for by a test");
  if (pass == "test_crash") std::abort();
}

void opt_graph(const OptOptions& o) {
  auto m = graph::parse(read_text(o.file), constants_beside(o.file));
  for (const std::string& pass : o.passes) {
    fail_for_tests(pass);
    if (pass != "simplify") unknown(pass, "simplify");
    cpu::Evaluator evaluator;
    graph_opt::SimplifyOptions options;
    options.evaluator = &evaluator;
    graph_opt::simplify(*m, options);
  }
  std::printf("%s", graph::text(*m).c_str());
}

void opt_loop(const OptOptions& o) {
  sym::Context c;
  loop::Function f = loop::parse(c, read_text(o.file));
  for (const std::string& pass : o.passes) {
    fail_for_tests(pass);
    if (pass == "flatten")
      f = loop::flatten(f);
    else if (pass == "light_math")
      f = loop::light_math(f);
    else if (pass == "expand_math")
      f = loop::expand_math(f);
    else
      unknown(pass, "light_math, flatten, expand_math");
  }
  std::printf("%s", loop::text(f).c_str());
}

}  // namespace

void add_opt(CLI::App& app, int& code) {
  auto o = std::make_shared<OptOptions>();
  CLI::App* c = app.add_subcommand("opt", "run passes on IR in text form (.graph or .loop)");
  c->add_option("file", o->file, "the IR")->required();
  c->add_option("--passes", o->passes, "names, comma-separated")->delimiter(',');
  add_repro_option(*c, o->repro);
  c->callback([o, &code] {
    code = guarded(o->file, [&] {
      if (!o->repro.empty()) start_bundle(o->repro, command_arguments(), o->file);
      const bool loop_text = o->file.size() > 5 && o->file.substr(o->file.size() - 5) == ".loop";
      loop_text ? opt_loop(*o) : opt_graph(*o);
    });
  });
}

}  // namespace tripod::tools
