// From scheduled form with blocks to plain loops, of seq, loop, store, let, branch, alloc, check, tile and sync:
//   - iterators are replaced by their bindings; a function in compute form gets plain serial loops;
//   - reductions that were not decomposed get their init in front of the outermost reduce loop (an empty sum has one);
//   - predicates become limits of serial and parallel loops, or guards right inside the outermost loop they depend on;
//   - vector and unrolled loops that a predicate cuts short get two versions, full and cut, told apart as far out as
//     possible: by splitting the loop around them (full iterations first), or by a branch in it. The cut version is a
//     scalar loop up to the limit; where registers are involved, whose indices have to be constant, it is the vector
//     loop with guarded loads and stores, or the unrolled loop with a branch inside;
//   - loops of extent 1 or 0, guards that always hold and what earlier branches say already, vanish.
#pragma once

#include "loop/ir.h"

namespace tripod::loop {

Function flatten(const Function& f);

}  // namespace tripod::loop
