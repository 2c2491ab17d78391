// A picture of 8-bit RGB pixels: reading and writing PPM, scaling, drawing boxes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ocr {

// Pixels [left, right) x [top, bottom).
struct Box {
  int left = 0, top = 0, right = 0, bottom = 0;
  int width() const { return right - left; }
  int height() const { return bottom - top; }
};

struct Picture {
  int width = 0, height = 0;
  std::vector<uint8_t> pixels;  // height x width x RGB

  uint8_t at(int y, int x, int channel) const { return pixels[(size_t(y) * width + x) * 3 + channel]; }
};

// Binary PPM (P6, 255 levels). Both throw std::runtime_error with the path.
Picture read_ppm(const std::string& path);
void write_ppm(const std::string& path, const Picture& picture);

// The part of `picture` inside `box`, scaled to width x height (bilinear, pixel centres at one half), as floats
// (value / 255 - 0.5) / 0.5 in planes of blue, green, red: the order in which PP-OCR was trained.
std::vector<float> scaled_planes(const Picture& picture, const Box& box, int width, int height);

// Draws the outline of `box`, `thickness` pixels wide, outwards.
void draw_box(Picture& picture, const Box& box, int thickness);

}  // namespace ocr
