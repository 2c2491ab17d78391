// What the rules for sums of products do to their operands: padding written out, reduce iterators put in the order of
// memory and merged.
#pragma once

#include <vector>

#include "rules/contraction.h"

namespace tripod::cpu {

using namespace rules;

// May the guard of a load be false?
bool is_guarded(const Expr& load);

// The guard only says that the index is inside the buffer, and the index grows with every iterator of k: then the load
// may read a padded copy. (A transposed convolution's guard also asks for divisibility.)
bool is_padding(const Contraction& k, const Expr& load, sym::Context& c);

// A copy of a buffer with its padding, copy[at - low] = buffer[at]: dims that move with the result outermost, the
// others (channels) innermost. `order`: its dims in memory, outermost first.
struct PaddedCopy {
  Buffer buffer;
  std::vector<int> order;
  Indices low;
};
PaddedCopy padded_copy(const Contraction& k, const Expr& load, const std::vector<loop::Iter>& moving, sym::Context& c);

// The reduce iterator along which memory is contiguous goes innermost.
void order_reduce(Contraction& k, const Buffer& memory, const Indices& at, sym::Context& c);

// Neighbouring reduce iterators become one where both operands walk them as one (kernel columns and channels of a
// first layer): fewer, longer loops.
void merge_reduce(Contraction& k, sym::Context& c);

}  // namespace tripod::cpu
