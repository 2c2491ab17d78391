// The subcommands of `tripod`, one a file. Each adds itself to the application and is run by its callback; the exit
// code comes back through `code`.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string>

#include "driver/options.h"

namespace tripod::tools {

void add_compile(CLI::App& app, int& code);
void add_explain(CLI::App& app, int& code);
void add_run(CLI::App& app, int& code);
void add_bench(CLI::App& app, int& code);
void add_inspect(CLI::App& app, int& code);
void add_opt(CLI::App& app, int& code);
void add_verify(CLI::App& app, int& code);

// Runs `work`, turning exceptions into messages on stderr and exit codes: 0 good, 1 failure, 2 the user's model,
// options or text are at fault.
int guarded(const std::string& file, const std::function<void()>& work);

// --repro=DIR.
void add_repro_option(CLI::App& command, std::string& folder);
// Options that every command takes which compiles a model.
void add_compile_options(CLI::App& command, Options& o);

}  // namespace tripod::tools
