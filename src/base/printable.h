// Text that comes from a model, as it may be shown on a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tripod {

// Control characters as \x1b, and at most `most` bytes of it.
std::string printable(std::string_view text, size_t most = 200);

}  // namespace tripod
