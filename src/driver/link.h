// Links objects into a shared object with lld, in process.
#pragma once

#include <string>
#include <vector>

namespace tripod {

// Writes `output`. Throws InternalError with lld's messages.
void link_shared_object(const std::vector<std::string>& objects, const std::string& output);

}  // namespace tripod
