// Words of the text form that the printer and the parser share, in the order of their enums.
#pragma once

#include <string_view>

namespace tripod::loop::syntax {

inline constexpr std::string_view kScopes[] = {"global", "constant", "shared", "local", "reg"};
inline constexpr std::string_view kLoops[] = {"serial", "parallel",  "vector",  "unrolled", "grid_x",  "grid_y",
                                              "grid_z", "cluster_x", "block_x", "block_y",  "block_z", "warp"};
inline constexpr std::string_view kTiles[] = {"copy", "mma", "reduce_sum", "reduce_max", "elementwise"};
inline constexpr std::string_view kSyncs[] = {"barrier", "commit", "wait", "arrive", "expect"};

}  // namespace tripod::loop::syntax
