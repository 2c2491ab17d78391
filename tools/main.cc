// The command line: one subcommand a file of tools/ (commands.h).
#include <algorithm>
#include <cstdio>

#include "commands.h"
#include "crash.h"

int main(int argc, char** argv) {
  using namespace tripod::tools;
  CLI::App app("Tripod: an ahead-of-time AI compiler. ONNX in, one native model.so out.");
  app.require_subcommand(1);
  int code = 0;
  add_compile(app, code);
  add_explain(app, code);
  add_run(app, code);
  add_bench(app, code);
  add_inspect(app, code);
  add_opt(app, code);
  add_verify(app, code);
  const auto commands = app.get_subcommands([](CLI::App*) { return true; });
  const auto is_named = [&](const CLI::App* c) { return argv[1] == c->get_name(); };
  if (argc > 1 && argv[1][0] != '-' && std::none_of(commands.begin(), commands.end(), is_named)) {
    std::fprintf(stderr, "tripod: no command \"%s\"; tripod --help lists them\n", argv[1]);
    return 2;
  }
  install_crash_handler(argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    // 2 for bad usage; 0 where help was asked for.
    return app.exit(e) == 0 ? 0 : 2;
  }
  return code;
}
