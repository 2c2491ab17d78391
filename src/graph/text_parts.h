// Words of the text form that printer and parser share.
#pragma once

#include <string>
#include <string_view>

namespace tripod::graph {

std::string quoted(std::string_view s);               // 'it\'s'
bool plain_name_char(char c);                         // may stand in a name without quotes
std::string name_text(char sigil, std::string_view name);  // %conv1/y, %'odd name'
std::string number_text(double v);                    // shortest that reads back

}  // namespace tripod::graph
