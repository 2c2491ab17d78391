#include "graph/op_table.h"

#include <type_traits>
#include <variant>

#include "graph/types.h"

namespace tripod::graph {
namespace {

// The position of struct A in the Attr variant.
template <class A, size_t I = 0>
constexpr int attr_index() {
  if constexpr (std::is_same_v<A, std::variant_alternative_t<I, Attr>>)
    return static_cast<int>(I);
  else
    return attr_index<A, I + 1>();
}

constexpr OpInfo kInfo[] = {
#define OP(kind, text, least, most, results, attr, rule, properties) \
  {text, least, most, results, properties, attr_index<attr>()},
    TRIPOD_OPS(OP)
#undef OP
};
static_assert(std::size(kInfo) == kNumOps);

constexpr std::string_view kRule[] = {
#define OP(kind, text, least, most, results, attr, rule, properties) #rule,
    TRIPOD_OPS(OP)
#undef OP
};

}  // namespace

const OpInfo& info(OpKind k) { return kInfo[static_cast<size_t>(k)]; }

std::optional<OpKind> parse_op(std::string_view text) {
  for (int i = 0; i < kNumOps; ++i)
    if (kInfo[i].text == text) return static_cast<OpKind>(i);
  return std::nullopt;
}

bool type_is_given(OpKind k) { return kRule[static_cast<size_t>(k)] == "given"; }

}  // namespace tripod::graph
