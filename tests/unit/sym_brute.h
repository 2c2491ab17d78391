// The value of an expression as written, straight from its syntax tree: what the simplifier is judged by.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>

#include "sym/expr.h"
#include "sym/syntax.h"

namespace tripod::sym {

using Names = std::map<std::string, int64_t>;

// Nothing where a divisor is zero. Written again here, not shared with the library.
inline std::optional<int64_t> brute(const Syntax& s, const Names& names) {
  if (s.op == Op::constant) return s.value;
  if (s.op == Op::variable && s.args.empty()) return names.at(s.name);
  auto arg = [&](size_t i) { return brute(s.args[i], names); };
  if (s.op == Op::select) {
    auto c = arg(0);
    return c ? arg(*c != 0 ? 1 : 2) : std::nullopt;
  }
  auto a = arg(0), b = s.args.size() > 1 ? arg(1) : a;
  if (!a || !b) return std::nullopt;
  auto floordiv = [](int64_t x, int64_t y) {
    int64_t q = x / y;
    while (y > 0 ? q * y > x : q * y < x) --q;
    return q;
  };
  switch (s.op) {
    case Op::variable: return s.name == "gcd" ? std::gcd(*a, *b) : *a <= *b;
    case Op::add: return *a + *b;
    case Op::mul: return *a * *b;
    case Op::floordiv: return *b == 0 ? std::nullopt : std::optional(floordiv(*a, *b));
    case Op::mod: return *b == 0 ? std::nullopt : std::optional(*a - floordiv(*a, *b) * *b);
    case Op::min: return std::min(*a, *b);
    case Op::max: return std::max(*a, *b);
    case Op::lt: return *a < *b;
    case Op::le: return *a <= *b;
    case Op::eq: return *a == *b;
    case Op::ne: return *a != *b;
    case Op::logical_and: return *a != 0 && *b != 0;
    case Op::logical_or: return *a != 0 || *b != 0;
    case Op::logical_not: return *a == 0;
    case Op::bit_xor: return *a ^ *b;
    default: return std::nullopt;
  }
}

inline Syntax syntax_of(std::string_view text) {
  size_t position = 0;
  return parse_syntax(text, position);
}

}  // namespace tripod::sym
