// What several rules do to a function before they schedule it.
#pragma once

#include <vector>

#include "backends/cpu/cpu_target.h"
#include "rules/inline.h"

namespace tripod::cpu {

using namespace rules;

// Copies the region of a guarded load's buffer that the loop nest reads into xp, writing `other` where the guard is
// false. xp[at - low] = x[at]; `order` is xp's dim order in memory, outermost first.
Stmt pad_stage(sym::Context& c, const Expr& load, const Buffer& xp, const std::vector<int>& order, const Indices& low,
               const CpuTarget& target);

}  // namespace tripod::cpu
