// Putting what is computed in place of loads of it.
#pragma once

#include "rules/loops.h"

namespace tripod::rules {

// Inlines every spatial block whose buffer is internal into its consumers, where that repeats no costly work: blocks
// remain that reduce, that write parameters, or that a reduction's consumer reads many times.
loop::Function inline_elementwise(const loop::Function& f, sym::Context& c);

// e reads other elements, or is another number, as var moves.
bool uses(const Expr& e, Index var);

// The load in an operand, where it is the only one.
Expr only_load(const Expr& e);

// e with one node replaced by another.
Expr replace_load(const Expr& e, const Expr& from, const Expr& to);

// e with every load of a buffer replaced by `to`, and iterators elsewhere by `iters`: the indices of those loads have
// iterators too, so both happen at once.
Expr replace_loads(const Expr& e, const Buffer& from, const Expr& to, const sym::Map& iters);

// Every load of e gets the guard too (its value is 0 where it is false): for lanes beyond the end of a row.
Expr guard_loads(const Expr& e, Index guard);

}  // namespace tripod::rules
