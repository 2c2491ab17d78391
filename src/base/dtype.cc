#include "base/dtype.h"

namespace tripod {
namespace {
constexpr DTypeInfo kInfo[] = {
    {"f32", 32, true, false, true},         {"f64", 64, true, false, true},
    {"f16", 16, true, false, true},         {"bf16", 16, true, false, true},
    {"i8", 8, false, true, true},           {"i16", 16, false, true, true},
    {"i32", 32, false, true, true},         {"i64", 64, false, true, true},
    {"u8", 8, false, true, false},          {"u16", 16, false, true, false},
    {"u32", 32, false, true, false},        {"u64", 64, false, true, false},
    {"b1", 8, false, false, false},
    {"i4", 4, false, true, true},           {"u4", 4, false, true, false},
    {"f8e4m3fn", 8, true, false, true},     {"f8e4m3fnuz", 8, true, false, true},
    {"f8e5m2", 8, true, false, true},       {"f8e5m2fnuz", 8, true, false, true},
    {"string", 64, false, false, false},    {"none", 0, false, false, false},
};
static_assert(sizeof(kInfo) / sizeof(kInfo[0]) == static_cast<size_t>(DType::none) + 1);
}  // namespace

const DTypeInfo& info(DType t) { return kInfo[static_cast<size_t>(t)]; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (size_t i = 0; i < static_cast<size_t>(DType::none); ++i)
    if (kInfo[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}

}  // namespace tripod
