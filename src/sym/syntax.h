// The text of an expression as a tree, before anything is simplified: what the parser makes, and what the patterns
// of the rule table are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sym/expr.h"

namespace tripod::sym {

struct Syntax {
  Op op = Op::constant;
  int64_t value = 0;         // constant; in a pattern, of a variable the number of its binding
  std::string name;          // variable; with args one of the functions "gcd" and "at_most" of the rule table
  std::vector<Syntax> args;  // a - b is a + b*(-1)
};

// Parses the longest expression that starts at `position`, which moves behind it.
Syntax parse_syntax(std::string_view text, size_t& position);

}  // namespace tripod::sym
