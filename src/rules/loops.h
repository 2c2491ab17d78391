// Small builders that the rules share.
#pragma once

#include <functional>
#include <vector>

#include "loop/ir.h"

namespace tripod::rules {

using loop::Buffer;
using loop::Expr;
using loop::Index;
using loop::Stmt;
using Indices = std::vector<Index>;

// Terms of a float sum that are added one after the other: a longer sum is made of such chains, since the error of one
// chain grows with its length.
constexpr int64_t kChain = 64;

// A loop variable in [0, extent), known to sym.
Index loop_var(sym::Context& c, const char* name, Index extent);

Stmt serial(sym::Context& c, const char* name, Index extent, const std::function<Stmt(Index)>& body);
Stmt parallel(sym::Context& c, const char* name, Index extent, int64_t grain, const std::function<Stmt(Index)>& body);
Stmt unrolled(sym::Context& c, const char* name, int64_t extent, const std::function<Stmt(Index)>& body);
Stmt vector(sym::Context& c, const char* name, int64_t lanes, const std::function<Stmt(Index)>& body);

// All of [0, extent): whole vectors, then the rest one by one. body gets the index.
Stmt vectors(sym::Context& c, const char* name, Index extent, int64_t lanes, const std::function<Stmt(Index)>& body);
// All of [0, extent): groups of `factor` unrolled, then the rest.
Stmt unrolled_by(sym::Context& c, const char* name, Index extent, int64_t factor, const std::function<Stmt(Index)>& body);

// body where the condition holds; nothing is tested where it provably does.
Stmt where(Index condition, const std::function<Stmt()>& body);

// The index vector of position `flat` in a row-major space of these extents.
Indices unflatten(Index flat, const Indices& extents);

}  // namespace tripod::rules
