#include <algorithm>

#include "driver/loaded_model.h"
#include "runtime/offsets.h"

namespace tripod {

namespace {
struct Segment {
  std::vector<tp_buffer> buffers;
  std::vector<int64_t> sizes;
};
}  // namespace

static int64_t planned(const Segment& s) {
  const size_t n = s.buffers.size();
  std::vector<int32_t> order(n), placed(n);
  std::vector<int64_t> offsets(n);
  return rt::plan_offsets({static_cast<int32_t>(n), s.buffers.data(), s.sizes.data(), order.data(), placed.data(), offsets.data()});
}

std::optional<ArenaSize> arena_size(const nlohmann::json& manifest, const std::vector<int64_t>& dims) {
  const SizeReader reader(manifest, dims.data());
  std::map<int64_t, Segment> segments;
  std::map<int64_t, int64_t> changes;  // by step: bytes that begin to live there, less those that have ended
  for (const auto& b : manifest.value("memory", nlohmann::json::array())) {
    const auto bytes = reader.read(b["bytes"]);
    if (!bytes || *bytes < 0 || *bytes > INT64_MAX / 4096) return std::nullopt;
    const int64_t size = (*bytes + rt::kOffsetUnit - 1) / rt::kOffsetUnit * rt::kOffsetUnit;
    const tp_buffer live{b["first"].get<int32_t>(), b["last"].get<int32_t>()};
    Segment& s = segments[b["segment"].get<int64_t>()];
    s.buffers.push_back(live), s.sizes.push_back(size);
    changes[live.first] += size, changes[live.last + 1] -= size;
  }
  ArenaSize all;
  for (const auto& [number, s] : segments) all.bytes += planned(s);
  int64_t live = 0;
  for (const auto& [step, change] : changes) all.lower_bound = std::max(all.lower_bound, live += change);
  return all;
}

}  // namespace tripod
