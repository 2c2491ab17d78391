// From scheduled form with blocks to plain loops: iterators are replaced by their bindings, predicates become guards
// (hoisted to the outermost loop they do not depend on), reductions that were not decomposed get their init in front
// of the outermost reduce loop, vector loops with a tail predicate become a full-width body and a scalar remainder,
// loops of extent 1 vanish, loops of extent 0 too. A function in compute form gets plain serial loops.
#pragma once

#include "loop/ir.h"

namespace tripod::loop {

Function flatten(const Function& f);

}  // namespace tripod::loop
