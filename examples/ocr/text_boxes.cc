#include "text_boxes.h"

#include <algorithm>
#include <cmath>

namespace ocr {

namespace {

// Bounding boxes of the connected pixels (8 neighbours) above the threshold.
std::vector<Box> components(const float* map, int height, int width, float threshold) {
  std::vector<Box> boxes;
  std::vector<char> seen(size_t(height) * width, 0);
  std::vector<int> open;
  for (int start = 0; start < height * width; ++start) {
    if (seen[start] || !(map[start] > threshold)) continue;
    Box box{width, height, 0, 0};
    seen[start] = 1;
    open.assign(1, start);
    while (!open.empty()) {
      int y = open.back() / width, x = open.back() % width;
      open.pop_back();
      box = {std::min(box.left, x), std::min(box.top, y), std::max(box.right, x + 1), std::max(box.bottom, y + 1)};
      for (int v = std::max(y - 1, 0); v <= std::min(y + 1, height - 1); ++v)
        for (int h = std::max(x - 1, 0); h <= std::min(x + 1, width - 1); ++h) {
          int next = v * width + h;
          if (seen[next] || !(map[next] > threshold)) continue;
          seen[next] = 1;
          open.push_back(next);
        }
    }
    boxes.push_back(box);
  }
  return boxes;
}

float mean_inside(const float* map, int width, const Box& box) {
  double sum = 0;
  for (int y = box.top; y < box.bottom; ++y)
    for (int x = box.left; x < box.right; ++x) sum += double(map[size_t(y) * width + x]);
  return float(sum / (double(box.width()) * box.height()));
}

// Top to bottom; boxes whose centre lies within the height of the first of a line are on that line, left to right.
void sort_for_reading(std::vector<Box>& boxes) {
  std::sort(boxes.begin(), boxes.end(), [](const Box& a, const Box& b) { return a.top < b.top; });
  for (auto line = boxes.begin(); line != boxes.end();) {
    int bottom = line->bottom;
    auto end = std::find_if(line, boxes.end(), [&](const Box& b) { return (b.top + b.bottom) / 2 >= bottom; });
    std::sort(line, end, [](const Box& a, const Box& b) { return a.left < b.left; });
    line = end;
  }
}

}  // namespace

std::vector<Box> find_text(const float* map, int map_height, int map_width, int picture_height, int picture_width,
                           const DetectionOptions& options) {
  float down = float(picture_height) / float(map_height), right = float(picture_width) / float(map_width);
  std::vector<Box> boxes;
  for (const Box& found : components(map, map_height, map_width, options.threshold)) {
    if (std::min(found.width(), found.height()) < options.smallest_side) continue;
    if (mean_inside(map, map_width, found) < options.box_score) continue;
    float w = float(found.width()), h = float(found.height());
    float grow = w * h * options.unclip_ratio / (2 * (w + h));
    boxes.push_back({std::max(int(std::floor((float(found.left) - grow) * right)), 0),
                     std::max(int(std::floor((float(found.top) - grow) * down)), 0),
                     std::min(int(std::ceil((float(found.right) + grow) * right)), picture_width),
                     std::min(int(std::ceil((float(found.bottom) + grow) * down)), picture_height)});
  }
  sort_for_reading(boxes);
  return boxes;
}

}  // namespace ocr
