// Which tile a contraction takes: the one with the least estimated time on a large GPU (132 multiprocessors), by rates
// that were measured there.
#include <algorithm>

#include "backends/cuda/rules/tensor_cores.h"

namespace tripod::cuda {

namespace {

// Operations a nanosecond (thousands) of one multiprocessor: with one block of the tile on it, and with as many as fit.
struct Rate {
  TileShape tile;
  double alone, full;
  int64_t resident;
};
constexpr Rate kRates[] = {
    {{128, 128, 32, 4, 64, 64, 1}, 2.3, 3.07, 2}, {{128, 128, 64, 3, 64, 64, 1}, 2.8, 2.9, 2}, {{128, 64, 64, 3, 64, 32, 1}, 1.9, 2.6, 3},
    {{64, 128, 64, 3, 32, 64, 1}, 1.9, 2.4, 3},   {{64, 64, 64, 4, 32, 32, 1}, 1.15, 2.1, 3},  {{64, 64, 128, 3, 32, 32, 2}, 1.3, 2.0, 2},
    {{32, 64, 128, 4, 32, 32, 2}, 0.95, 1.5, 3},  {{16, 64, 128, 4, 16, 64, 4}, 0.85, 1.2, 3}, {{16, 32, 128, 6, 16, 32, 4}, 0.72, 0.8, 3},
    {{16, 32, 256, 4, 16, 32, 8}, 0.78, 0.8, 2},
};
constexpr int64_t kMultiprocessors = 132, kSplits[] = {1, 2, 4, 8};
constexpr double kMemory = 3.9e6, kCache = 6.5e6, kParts = 3.0e6;           // bytes a microsecond
constexpr double kStart = 1.6, kMoreBlocks = 0.2, kSecondKernel = 1.3;      // microseconds
constexpr double kTf32 = 0.5;                                               // of the rates, which are for 16 bits
constexpr int64_t kRows = 512, kColumns = 512, kDepth = 512, kBatches = 4;  // where they are not known

int64_t blocks(int64_t extent, int64_t tile) { return (extent + tile - 1) / tile; }

double microseconds(const Problem& p, const Rate& r, int64_t splits) {
  const TileShape& t = r.tile;
  const double rows = static_cast<double>(p.rows.value_or(kRows)), columns = static_cast<double>(p.columns.value_or(kColumns));
  const double depth = static_cast<double>(p.depth.value_or(kDepth)), batches = static_cast<double>(p.batches.value_or(kBatches)), size = static_cast<double>(p.bytes);
  const int64_t steps = blocks(blocks(p.depth.value_or(kDepth), t.depth), splits);
  const int64_t grid = p.batches.value_or(kBatches) * blocks(p.rows.value_or(kRows), t.rows) * blocks(p.columns.value_or(kColumns), t.columns) * splits;
  const int64_t each = blocks(grid, kMultiprocessors);
  const double work = 2e-6 * static_cast<double>(t.rows * t.columns * t.depth * steps);
  const double rate = std::min(r.full, r.alone * static_cast<double>(std::min(each, r.resident))) * (p.bytes == 4 ? kTf32 : 1);
  const double compute = static_cast<double>(each) * work / rate;
  const double memory = p.memory > 0 ? p.memory / kMemory : batches * size * (rows * depth + depth * columns + rows * columns) / kMemory;
  const double cache = static_cast<double>(grid * steps * t.depth * (t.rows + t.columns)) * size / kCache;
  const double parts = splits > 1 ? kSecondKernel + 4 * batches * rows * columns * static_cast<double>(2 * splits) / kParts : 0;
  const double start = kStart + static_cast<double>(t.rows * t.columns) * 1e-4 + kMoreBlocks * static_cast<double>(std::min<int64_t>(each, 4) - 1);
  return std::max({compute, memory, cache}) + start + parts;
}

}  // namespace

std::string text(const TileShape& t, int64_t splits) {
  const auto n = [](int64_t v) { return std::to_string(v); };
  return n(t.rows) + "x" + n(t.columns) + "x" + n(t.depth) + " by " + n(t.warps()) + " warps of " + n(t.warp_rows) + "x" + n(t.warp_columns) +
         (t.slices > 1 ? " in " + n(t.slices) + " slices" : "") + ", " + n(t.stages) + " stages" + (splits > 1 ? ", split " + n(splits) : "");
}

namespace {

struct Candidate {
  const Rate* rate = nullptr;
  int64_t splits = 1;
  double microseconds(const Problem& p) const { return cuda::microseconds(p, *rate, splits); }
  bool suits(const Problem& p) const {
    const int64_t steps = blocks(p.depth.value_or(kDepth), rate->tile.depth);
    return splits == 1 || (steps >= 2 * splits && p.depth && p.rows && p.batches);
  }
  Choice choice(const Problem& p) const {
    Choice c{rate->tile, splits};
    if (p.bytes == 4) c.tile.depth /= 2, c.tile.slices = std::min(c.tile.slices, c.tile.depth / 8);
    return c;
  }
};

Candidate fastest(const Problem& p) {
  Candidate best;
  for (const Rate& r : kRates)
    for (int64_t splits : kSplits) {
      const Candidate now{&r, splits};
      if (now.suits(p) && (!best.rate || now.microseconds(p) < best.microseconds(p))) best = now;
    }
  return best;
}

// Fewer kernels are worth this much of a class's time.
constexpr double kNearlyAsFast = 1.02;
constexpr int64_t kMostRows[] = {16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768}, kManyRows = 65536;

}  // namespace

Choice choose_tile(const Problem& p, const TensorCoreOptions& o) {
  return o.tile ? Choice{*o.tile, std::max<int64_t>(o.splits, 1)} : fastest(p).choice(p);
}

std::vector<RowClass> choose_tiles_by_rows(const std::function<Problem(int64_t rows)>& problem) {
  const Problem many = problem(kManyRows);
  Candidate now = fastest(many);
  std::vector<RowClass> classes{{std::nullopt, now.choice(many)}};
  for (size_t i = std::size(kMostRows); i-- > 0;) {
    const Problem p = problem(kMostRows[i]);
    const Candidate best = fastest(p);
    if (now.suits(p) && now.microseconds(p) <= kNearlyAsFast * best.microseconds(p)) continue;
    now = best;
    classes.insert(classes.begin(), {kMostRows[i], now.choice(p)});
  }
  return classes;
}

}  // namespace tripod::cuda
