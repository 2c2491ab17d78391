// Symbolic contents inside src/graph (contents*.cc).
#pragma once

#include <optional>
#include <vector>

#include "graph/graph.h"

namespace tripod::graph {

using Elements = std::vector<Expr>;

std::optional<int64_t> static_count(const Type& t);  // nothing when a dim is symbolic
Ints static_dims(const Type& t);                     // of a static shape
bool carries_contents(const Type& t);
const Elements* contents_of(const Graph& g, const Node& n, size_t operand);

// Moves: reshape, transpose, broadcast, concat, slice, gather, tile, pad, ...
std::optional<Elements> move_contents(const Graph& g, const Node& n, const Type& t);
// scatter_elements, scatter_nd with constant indices (`shape[0] = n` as exporters write it).
std::optional<Elements> scatter_contents(const Graph& g, const Node& n);
// cast(float -> int) of float arithmetic on dims: see contents_float.cc.
std::optional<Elements> float_round_trip(const Graph& g, const Node& n, const Type& t);

}  // namespace tripod::graph
