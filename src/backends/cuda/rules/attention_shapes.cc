// Which shape attention takes: the largest tile of rows that gives most multiprocessors of a large GPU a block; where
// queries are few, the keys are split over warps and blocks.
#include <algorithm>

#include "backends/cuda/rules/attention.h"

namespace tripod::cuda {

namespace {

constexpr int64_t kMultiprocessors = 132, kResident = 3;  // blocks that one of them has at a time
constexpr int64_t kFewRows = 16;                          // of one instruction
constexpr int64_t kPacked = 64;                           // rows of a group of heads that are worth a tile

// Warps along rows and keys, rows of a warp, keys of a step, stages, queries in registers.
constexpr AttentionShape kLarge = {4, 1, 32, 64, 2, false}, kMedium = {4, 1, 16, 64, 2, false}, kSmall = {2, 2, 16, 64, 2, true}, kFew = {1, 4, 16, 64, 2, true};
constexpr AttentionShape kShortHeads = {4, 1, 16, 128, 2, true};                                 // of at most 64 numbers
constexpr AttentionShape kWide = {4, 1, 16, 32, 2, false}, kWideFew = {1, 2, 16, 32, 2, false};  // of more than 128

int64_t blocks(const std::optional<int64_t>& batches, int64_t rows, const AttentionShape& s) {
  return batches.value_or(8) * ((rows + s.rows() - 1) / s.rows());
}

AttentionShape shape_of(const rules::AttentionForm& f, const std::optional<int64_t>& batches, const std::optional<int64_t>& rows) {
  const bool few = rows && *rows <= kFewRows;
  const int64_t size = std::max(f.depth.value(), f.columns.value());
  if (size > 128) return few ? kWideFew : kWide;
  if (few) return kFew;
  const AttentionShape& medium = size <= 64 ? kShortHeads : kMedium;
  if (!rows) return medium;
  const auto enough = [&](const AttentionShape& s) { return blocks(batches, *rows, s) >= kMultiprocessors * 2 / 3; };
  return size > 64 && enough(kLarge) ? kLarge : enough(medium) ? medium : kSmall;
}

}  // namespace

std::string text(const AttentionShape& s) {
  const auto n = [](int64_t v) { return std::to_string(v); };
  return n(s.rows()) + " rows by " + n(s.row_warps) + "x" + n(s.key_warps) + " warps, " + n(s.keys) + " keys, " + n(s.stages) + " stages" +
         (s.keep_queries ? ", queries in registers" : "");
}

std::vector<AttentionVariant> choose_attention(const rules::AttentionForm& f, sym::Context& c) {
  const int64_t group = heads_of_a_group(f).value_or(1);
  const auto variant = [&](bool packed, std::optional<int64_t> rows, Index when) {
    const Index batches = f.batch * (packed ? sym::floordiv(f.heads, group) : f.heads);
    AttentionVariant v{shape_of(f, batches.constant(), rows), packed, c.constant(1), when};
    if (v.shape.row_warps == 1) {  // few rows: each split two steps or more
      const Index wanted = sym::ceildiv(c.constant(kMultiprocessors * kResident), sym::max(batches, 1));
      v.splits = sym::max(sym::min(wanted, sym::floordiv(sym::ceildiv(f.keys, v.shape.keys), 2)), 1);
    }
    return v;
  };
  if (const auto queries = f.queries.constant()) {
    const bool packed = group > 1 && *queries * group <= kPacked;
    return {variant(packed, *queries * (packed ? group : 1), {})};
  }
  const Index few = sym::le(f.queries * group, kFewRows);
  return {variant(group > 1, kFewRows, few), variant(false, std::nullopt, {})};
}

}  // namespace tripod::cuda
