// Evaluation of nodes on constants without a back end: moves, and plain arithmetic, which IEEE 754 and two's
// complement define to the bit (so the compiled model would compute the same). Functions of one bit more or less (exp,
// pow, ...) are left to the Evaluator.
#pragma once

#include "graph_opt/pass.h"

namespace tripod::graph_opt {

// Nothing when the op is not one of these, or not on these types. Operands are constants, the result's shape is static.
std::optional<graph::ConstAttr> fold_move(const Graph& g, const Node& n);
std::optional<graph::ConstAttr> fold_arithmetic(const Graph& g, const Node& n);
std::optional<graph::ConstAttr> fold_plain(const Graph& g, const Node& n);  // either

// Elements of `data` (each of `size` bytes) at base + sum of index[d] * strides[d], for all indices of `dims` in
// row-major order. Strides count elements and may be 0 (stretched) or negative.
std::vector<std::byte> strided_copy(const std::byte* data, size_t size, int64_t base, const Ints& strides,
                                    const Ints& dims);
// Row-major strides of a shape.
Ints strides_of(const Ints& dims);
// Strides that read a tensor of shape `from` as if it had the shape `to` (numpy rules).
Ints stretched_strides(const Ints& from, const Ints& to);
int64_t product(const Ints& dims);

}  // namespace tripod::graph_opt
