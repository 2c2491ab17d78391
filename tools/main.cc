// The command line: one subcommand a file of tools/, registered here.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>

#include "base/diagnostic.h"
#include "driver/pipeline.h"
#include "driver/session.h"

int main(int argc, char** argv) {
  using namespace tripod;
  CLI::App app("Tripod: an ahead-of-time AI compiler. ONNX in, one native model.so out.");
  app.require_subcommand(1);
  Options o;
  CLI::App* compile_cmd = app.add_subcommand("compile", "compile an ONNX model to a shared object");
  compile_cmd->add_option("model", o.model, "the ONNX file")->required();
  compile_cmd->add_option("-o,--output", o.output, "the file to write");
  compile_cmd->add_option("--print-after", o.print_after, "print the IR after this pass or phase");
  compile_cmd->add_option("--stop-after", o.stop_after, "stop after this phase");
  compile_cmd->add_option("--cpu", o.cpu, "v3 (AVX2) or v4 (AVX-512)");
  compile_cmd->add_flag("--time-passes", o.time_passes, "print how long each phase took");
  CLI11_PARSE(app, argc, argv);
  try {
    const CompileReport r = compile(o);
    if (o.time_passes) std::fprintf(stderr, "%s", r.timings.c_str());
    return 0;
  } catch (const Stopped&) {
    return 0;
  } catch (const CompileError& e) {
    std::fprintf(stderr, "%s", e.diagnostics.text(o.model).c_str());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tripod: internal error: %s\n", e.what());
    return 1;
  }
}
