#include "picture.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <stdexcept>

namespace ocr {

namespace {

// A number of a PPM header, after spaces and comments.
int read_number(std::istream& in) {
  while (in >> std::ws && in.peek() == '#') in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  int value = -1;
  in >> value;
  return value;
}

// Where output pixel i of n falls in a row of `extent` pixels: between `low` and `high`, `part` of the way.
struct Sample {
  int low, high;
  float part;
};

Sample sample(int i, int n, int extent) {
  float at = std::clamp((float(i) + 0.5f) * float(extent) / float(n) - 0.5f, 0.0f, float(extent - 1));
  int low = int(at);
  return {low, std::min(low + 1, extent - 1), at - float(low)};
}

}  // namespace

Picture read_ppm(const std::string& path) {
  constexpr int kMostPixels = 1 << 14;
  std::ifstream in(path, std::ios::binary);
  char magic[2] = {};
  in.read(magic, 2);
  if (!in || magic[0] != 'P' || magic[1] != '6') throw std::runtime_error(path + ": not a binary PPM file");
  Picture picture;
  picture.width = read_number(in);
  picture.height = read_number(in);
  if (read_number(in) != 255 || picture.width < 1 || picture.height < 1 || picture.width > kMostPixels ||
      picture.height > kMostPixels)
    throw std::runtime_error(path + ": wants 255 levels and sides of 1 to 16384 pixels");
  in.get();
  picture.pixels.resize(size_t(picture.width) * picture.height * 3);
  in.read(reinterpret_cast<char*>(picture.pixels.data()), std::streamsize(picture.pixels.size()));
  if (!in) throw std::runtime_error(path + ": ends before its last pixel");
  return picture;
}

void write_ppm(const std::string& path, const Picture& picture) {
  std::ofstream out(path, std::ios::binary);
  out << "P6\n" << picture.width << " " << picture.height << "\n255\n";
  out.write(reinterpret_cast<const char*>(picture.pixels.data()), std::streamsize(picture.pixels.size()));
  if (!out.flush()) throw std::runtime_error(path + ": cannot be written");
}

std::vector<float> scaled_planes(const Picture& picture, const Box& box, int width, int height) {
  std::vector<float> planes(size_t(3) * height * width);
  for (int y = 0; y < height; ++y) {
    Sample v = sample(y, height, box.height());
    for (int x = 0; x < width; ++x) {
      Sample h = sample(x, width, box.width());
      for (int plane = 0; plane < 3; ++plane) {
        auto pixel = [&](int row, int column) {
          return float(picture.at(box.top + row, box.left + column, 2 - plane));
        };
        float upper = pixel(v.low, h.low) + (pixel(v.low, h.high) - pixel(v.low, h.low)) * h.part;
        float lower = pixel(v.high, h.low) + (pixel(v.high, h.high) - pixel(v.high, h.low)) * h.part;
        float value = std::round(upper + (lower - upper) * v.part);
        planes[(size_t(plane) * height + y) * width + x] = (value / 255.0f - 0.5f) / 0.5f;
      }
    }
  }
  return planes;
}

void draw_box(Picture& picture, const Box& box, int thickness) {
  constexpr uint8_t kColour[3] = {220, 40, 40};
  for (int y = box.top - thickness; y < box.bottom + thickness; ++y)
    for (int x = box.left - thickness; x < box.right + thickness; ++x) {
      bool inside = y >= box.top && y < box.bottom && x >= box.left && x < box.right;
      if (inside || y < 0 || x < 0 || y >= picture.height || x >= picture.width) continue;
      std::copy(kColour, kColour + 3, &picture.pixels[(size_t(y) * picture.width + x) * 3]);
    }
}

}  // namespace ocr
