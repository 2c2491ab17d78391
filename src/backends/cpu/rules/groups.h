// Grouped convolutions with few channels a group.
#pragma once

#include "backends/cpu/rules/prepare.h"

namespace tripod::cpu {

// A sum acc[.., o, ..] += X[.., floordiv(o, g) * n + c, ..] * W[o, c, ..] over c < n, whose groups have fewer columns
// than a vector: as many neighbouring groups as fit one vector become one group, c runs over the channels of all of
// them, and W gets zeros where a column meets the channels of another group. More products, but whole vectors of them.
// The parameter W becomes W'[o, (c - first channel of o's group) mod all], so that the zeros lie behind its elements.
// Any other function is returned as it is.
loop::Function join_groups(const loop::Function& f, sym::Context& c);

}  // namespace tripod::cpu
