// Where the statements of a function stand in its text: what debug information points at.
#pragma once

#include <string>
#include <unordered_map>

#include "loop/ir.h"

namespace tripod::loop {

// The line, from 1, on which each statement starts.
using LineTable = std::unordered_map<const StmtNode*, int>;

std::string text(const Function& f, LineTable& lines);

}  // namespace tripod::loop
