// NonMaxSuppression as in ONNX: for each batch and class, boxes by falling score (equal ones by index), each kept
// unless it overlaps a kept one by more than the threshold.
#include <algorithm>

#include "runtime/op_util.h"
#include "runtime/ops.h"

namespace tripod::rt {
namespace {

struct Box {
  float x0, y0, x1, y1, area;
};

struct Nms {
  const float* boxes;
  const float* scores;
  int64_t batches, classes, count;
  int64_t max_boxes;
  float iou, score;
  bool has_score, centers;
  int64_t* out;
  int64_t capacity, found;
  Box* corners;      // of one batch
  uint64_t* ranked;  // of one class
  int64_t* kept;
};

// The corners may be given in any order; y comes first.
Box to_corners(const float* b, bool centers) {
  Box r = {};
  if (centers) {
    float w = b[2] / 2, h = b[3] / 2;
    r = {b[0] - w, b[1] - h, b[0] + w, b[1] + h, 0};
  } else {
    r = {std::min(b[1], b[3]), std::min(b[0], b[2]), std::max(b[1], b[3]), std::max(b[0], b[2]), 0};
  }
  r.area = (r.x1 - r.x0) * (r.y1 - r.y0);
  return r;
}

bool overlap(const Box& a, const Box& b, float threshold) {
  float x0 = std::max(a.x0, b.x0), x1 = std::min(a.x1, b.x1);
  float y0 = std::max(a.y0, b.y0), y1 = std::min(a.y1, b.y1);
  if (x1 <= x0 || y1 <= y0) return false;
  float both = (x1 - x0) * (y1 - y0), either = a.area + b.area - both;
  if (both <= 0 || a.area <= 0 || b.area <= 0 || either <= 0) return false;
  return both / either > threshold;
}

// False when `out` is full.
bool one_class(Nms& n, int64_t batch, int64_t cls) {
  const float* scores = n.scores + (batch * n.classes + cls) * n.count;
  int64_t candidates = 0, kept = 0;
  for (int64_t i = 0; i < n.count; ++i)
    if (n.has_score ? scores[i] > n.score : scores[i] == scores[i])
      n.ranked[candidates++] = uint64_t{~sort_key(scores[i])} << 32 | static_cast<uint64_t>(i);
  std::sort(n.ranked, n.ranked + candidates);
  for (int64_t c = 0; c < candidates && kept < n.max_boxes; ++c) {
    auto i = static_cast<int64_t>(n.ranked[c] & UINT32_MAX);
    bool suppressed = false;
    for (int64_t k = 0; k < kept && !suppressed; ++k)
      suppressed = overlap(n.corners[n.kept[k]], n.corners[i], n.iou);
    if (suppressed) continue;
    if (n.found == n.capacity) return false;
    int64_t* row = n.out + 3 * n.found++;
    row[0] = batch;
    row[1] = cls;
    row[2] = i;
    n.kept[kept++] = i;
  }
  return true;
}

bool all_classes(Nms& n) {
  for (int64_t b = 0; b < n.batches; ++b) {
    for (int64_t i = 0; i < n.count; ++i) n.corners[i] = to_corners(n.boxes + (b * n.count + i) * 4, n.centers);
    for (int64_t c = 0; c < n.classes; ++c)
      if (!one_class(n, b, c)) return false;
  }
  return true;
}

template <typename T>
T scalar_or(const tp_view& v, T otherwise) {
  return v.data && count(v) > 0 ? *static_cast<const T*>(v.data) : otherwise;
}

}  // namespace
}  // namespace tripod::rt

using namespace tripod::rt;

int32_t tp_op_nms_count(tp_run* run, const tp_view* views, const int64_t* attrs) {
  const tp_view& scores = views[1];
  auto symbol = static_cast<int32_t>(attrs[1]), site = static_cast<int32_t>(attrs[2]);
  Nms n = {};
  n.boxes = static_cast<const float*>(views[0].data);
  n.scores = static_cast<const float*>(scores.data);
  n.batches = scores.shape[0];
  n.classes = scores.shape[1];
  n.count = scores.shape[2];
  n.max_boxes = scalar_or<int64_t>(views[2], 0);
  n.iou = scalar_or<float>(views[3], 0);
  n.has_score = views[4].data && count(views[4]) > 0;
  n.score = scalar_or<float>(views[4], 0);
  n.centers = attrs[0] != 0;
  n.out = static_cast<int64_t*>(views[5].data);
  n.capacity = views[5].shape[0];
  if (!(n.iou >= 0 && n.iou <= 1))
    return tp_fail(run, TRIPOD_INVALID_ARGUMENT, site, "iou_threshold is not in [0, 1]", 0, 0);
  if (n.count > UINT32_MAX) return tp_fail(run, TRIPOD_UNSUPPORTED, site, "too many boxes", n.count, UINT32_MAX);
  int64_t each = static_cast<int64_t>(sizeof(Box) + sizeof(uint64_t) + sizeof(int64_t));
  char* memory = operator_memory(*run, n.count * each);
  if (!memory) return run->status;
  n.ranked = reinterpret_cast<uint64_t*>(memory);
  n.kept = reinterpret_cast<int64_t*>(n.ranked + n.count);
  n.corners = reinterpret_cast<Box*>(n.kept + n.count);
  if (n.max_boxes > 0 && !all_classes(n))
    return tp_fail(run, TRIPOD_RUNTIME_ERROR, site, "more boxes than there is memory for", n.capacity + 1, n.capacity);
  return tp_set_dim(run, symbol, n.found, site);
}

int32_t tp_op_nms(tp_run*, const tp_view* views, const int64_t*) {
  tp_copy(views[1].data, views[0].data, views[1].shape[0] * 3 * 8);
  return TRIPOD_OK;
}
