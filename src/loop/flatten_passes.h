// The steps of loop/flatten.cc, for its files only.
#pragma once

#include "loop/ir.h"

namespace tripod::loop {

// 1. Blocks without loops (compute form) get a serial loop for each iterator.
Stmt add_loops(const Stmt& s);
// 2. The init of a reduction moves in front of the outermost loop that its reduce iterators use, as a block of its
//    own; where that is not possible the block's body tests whether every reduce iterator is 0.
Stmt hoist_inits(const Stmt& s);
// 3. Blocks vanish and their predicates become guards, loop limits and versions (loop/flatten.cc).
// 4. Loops of extent 1 and 0, empty statements and guards that always hold vanish.
Stmt tidy(const Stmt& s);

// The conjuncts of a condition.
void split_conjunction(Index condition, std::vector<Index>& out);

}  // namespace tripod::loop
