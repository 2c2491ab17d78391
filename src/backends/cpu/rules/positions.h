// Transposed convolutions whose windows do not overlap, as sums of products.
#pragma once

#include "rules/inline.h"

namespace tripod::cpu {

using namespace rules;

// Where the first block sums at positions y that its operands know as y / s and y mod s (an input pixel and the place
// in its window), y becomes i * s + r with iterators of their own: i moves the input, r the weights.
loop::Function split_positions(const loop::Function& f, sym::Context& c);

}  // namespace tripod::cpu
