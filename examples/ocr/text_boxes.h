// From the detector's map of text probability to boxes in reading order (DB post-processing).
#pragma once

#include <vector>

#include "picture.h"

namespace ocr {

struct DetectionOptions {
  float threshold = 0.3f;     // a pixel above it is text
  float box_score = 0.5f;     // a box whose mean probability is below it is dropped
  float unclip_ratio = 1.6f;  // the detector marks shrunk text: a box grows by area * ratio / perimeter
  int smallest_side = 3;      // in pixels of the map
};

// `map` is map_height x map_width probabilities of a picture of the given size; the boxes are in its pixels.
std::vector<Box> find_text(const float* map, int map_height, int map_width, int picture_height, int picture_width,
                           const DetectionOptions& options = {});

}  // namespace ocr
