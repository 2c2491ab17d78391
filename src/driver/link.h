// Links objects into a shared object with lld, in process.
#pragma once

#include <string>
#include <vector>

namespace tripod {

// Throws CompileError with lld's messages. `output` is written under a temporary name and renamed.
void link_shared_object(const std::vector<std::string>& objects, const std::string& output);

}  // namespace tripod
