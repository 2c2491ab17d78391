// What several rules do to a function before they schedule it.
#pragma once

#include <vector>

#include "backends/cpu/cpu_target.h"
#include "backends/cpu/rules/loops.h"

namespace tripod::cpu {

// Inlines every spatial block whose buffer is internal into its consumers, where that repeats no costly work: blocks
// remain that reduce, that write parameters, or that a reduction's consumer reads many times.
loop::Function inline_elementwise(const loop::Function& f, sym::Context& c);

// Copies the region of a guarded load's buffer that the loop nest reads into xp, writing `other` where the guard is
// false. xp[at - low] = x[at]; `order` is xp's dim order in memory, outermost first.
Stmt pad_stage(sym::Context& c, const Expr& load, const Buffer& xp, const std::vector<int>& order, const Indices& low,
               const CpuTarget& target);

// e with one node replaced by another.
Expr replace_load(const Expr& e, const Expr& from, const Expr& to);

// Every load of e gets the guard too (its value is 0 where it is false): for lanes beyond the end of a row.
Expr guard_loads(const Expr& e, Index guard);

}  // namespace tripod::cpu
