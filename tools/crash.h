// What a fault of the compiler leaves behind. After a crash or an internal error the same command runs once more, in a
// child process, with --repro: it ends the same way, and what it has written until then is the bundle.
#pragma once

#include <string>
#include <vector>

namespace tripod::tools {

// The arguments of this process, without its name.
std::vector<std::string> command_arguments();

// Signals that mean a crash make a bundle, say where it is, and end the process with exit code 1. Only for the commands
// that take --repro, and not where it is among the arguments already.
void install_crash_handler(int argc, char** argv);

// The same after an internal error; does nothing where install_crash_handler did nothing.
void leave_bundle();

}  // namespace tripod::tools
