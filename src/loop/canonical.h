// When two functions do the same: equal canonical text. The names of the function, of its blocks, buffers and
// bound variables do not count, nor do its origins; dims (they are arguments), ranges of variables, scopes, layouts and the
// sites of checks do. A model of twelve equal layers is then compiled as one layer.
#pragma once

#include <map>
#include <string>
#include <tuple>

#include "loop/ir.h"

namespace tripod::loop {

class Canonical {
 public:
  explicit Canonical(sym::Context& c) : c_(c) {}
  // Comparable with the other texts of this object only.
  std::string text(const Function& f);

  // The n-th bound variable of a function, with the range and divisor of `like`: the same one every time.
  Index variable(size_t n, Index like);

 private:
  sym::Context& c_;
  std::map<std::tuple<size_t, int64_t, int64_t, int64_t>, Index> variables_;
};

}  // namespace tripod::loop
