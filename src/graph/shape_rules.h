// One function for each name in the op table's column of shape rules.
#pragma once

#include "graph/infer.h"

namespace tripod::graph::rules {

using Types = std::vector<Type>;

Types same(Rule& r);
Types cast(Rule& r);
Types predicate(Rule& r);
Types broadcast(Rule& r);
Types pow(Rule& r);
Types compare(Rule& r);
Types where(Rule& r);
Types clip(Rule& r);
Types reduce(Rule& r);
Types arg_reduce(Rule& r);
Types matmul(Rule& r);
Types conv(Rule& r);
Types conv_transpose(Rule& r);
Types matmul_integer(Rule& r);
Types conv_integer(Rule& r);
Types transpose(Rule& r);
Types concat(Rule& r);
Types pad(Rule& r);
Types gather(Rule& r);
Types gather_elements(Rule& r);
Types gather_nd(Rule& r);
Types pool(Rule& r);
Types attention(Rule& r);
Types rnn(Rule& r);
Types given(Rule& r);

}  // namespace tripod::graph::rules
