// Reads the text in a picture with two compiled models, PP-OCR detection and recognition.
//
//   ocr det.so rec.so characters.txt picture.ppm [--boxes out.ppm] [--threads N] [--repeat N] [--save DIR]
//
// characters.txt holds the characters that rec.so knows, one a line, in the order of its classes.
// --boxes writes the picture with the boxes drawn. --save writes each model's inputs and outputs as raw floats, each
// beside a .shape file, so that another runtime can be fed the same. --repeat runs everything N more times for timing.
//
// Build: g++ -O2 -std=c++20 -Iinclude examples/ocr/*.cc -o ocr      (needs libc and libstdc++ only)
//
// Prints one line for each piece of text as "text LEFT TOP RIGHT BOTTOM SCORE TEXT" in reading order, then
// "time model=det|rec threads=N runs_ms=A,B,... first_ms=F start_ms=S": the runs after the first (rec: all lines of the
// picture), from dlopen to the first result (rec: of the first line), and how much longer that took than the median of
// later runs on the same input; and "memory peak_mb=P before_mb=B": the process, and before a model was opened.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "compiled_model.h"
#include "picture.h"
#include "text_boxes.h"

namespace ocr {
namespace {

struct Arguments {
  std::string det, rec, characters, picture, boxes, save;
  int threads = 1, repeat = 0;
};

struct Text {
  std::string text;
  float score = 0;  // mean probability of its characters
};

double now_ms() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

// The most memory this process has had, from the kernel. (getrusage would also count the process that started it.)
double peak_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0) return std::atof(line.c_str() + 6) / 1024;
  return 0;
}

// Class 0 of the recogniser is the blank, the last one the space; the file holds what lies between.
std::vector<std::string> read_characters(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error(path + ": cannot be read");
  std::vector<std::string> classes = {""};
  for (std::string line; std::getline(in, line);) classes.push_back(line);
  classes.push_back(" ");
  return classes;
}

// Greedy CTC: the best class of each step; repeats are one character, blanks separate.
Text decode(const Floats& probabilities, const std::vector<std::string>& classes) {
  size_t steps = size_t(probabilities.shape.at(1)), count = size_t(probabilities.shape.at(2));
  if (count != classes.size())
    throw std::runtime_error("the recogniser has " + std::to_string(count) + " classes, the list of characters " +
                             std::to_string(classes.size()));
  Text result;
  size_t before = 0, taken = 0;
  for (size_t step = 0; step < steps; ++step) {
    const float* row = probabilities.data + step * count;
    size_t best = size_t(std::max_element(row, row + count) - row);
    if (best != 0 && best != before) {
      result.text += classes[best];
      result.score += row[best];
      ++taken;
    }
    before = best;
  }
  if (taken) result.score /= float(taken);
  return result;
}

void save_floats(const std::string& path, const float* data, const std::vector<int64_t>& shape) {
  std::ofstream raw(path + ".f32", std::ios::binary), text(path + ".shape");
  size_t count = 1;
  for (int64_t extent : shape) {
    text << extent << "\n";
    count *= size_t(extent);
  }
  raw.write(reinterpret_cast<const char*>(data), std::streamsize(count * sizeof(float)));
  if (!raw.flush() || !text.flush()) throw std::runtime_error(path + ": cannot be written");
}

int nearest_multiple(int value, int of) { return std::max((value + of / 2) / of * of, of); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print_time(const char* model, int threads, const std::vector<double>& runs, double first, double same_again) {
  std::printf("time model=%s threads=%d runs_ms=", model, threads);
  for (size_t i = 0; i < runs.size(); ++i) std::printf("%s%.3f", i ? "," : "", runs[i]);
  std::printf(" first_ms=%.2f start_ms=%.2f\n", first, first - same_again);
}

void read_picture(const Arguments& a) {
  constexpr int kLineHeight = 48;
  Picture picture = read_ppm(a.picture);
  std::vector<std::string> classes = read_characters(a.characters);
  double before_mb = peak_mb();

  // Detection, at the picture's size rounded to multiples of 32.
  int width = nearest_multiple(picture.width, 32), height = nearest_multiple(picture.height, 32);
  std::vector<int64_t> det_shape = {1, 3, height, width};
  std::vector<float> det_input = scaled_planes(picture, {0, 0, picture.width, picture.height}, width, height);
  double start = now_ms();
  CompiledModel det(a.det, a.threads);
  Floats map = det.run(det_input, det_shape);
  double det_first = now_ms() - start;
  if (map.shape.size() != 4) throw std::runtime_error(a.det + ": wants one output of rank 4");
  std::vector<Box> boxes =
      find_text(map.data, int(map.shape[2]), int(map.shape[3]), picture.height, picture.width);
  if (!a.save.empty()) {
    save_floats(a.save + "/det_input", det_input.data(), det_shape);
    save_floats(a.save + "/det_output", map.data, map.shape);
  }

  // Recognition, one line at a time at its own width.
  std::vector<std::vector<float>> lines;
  std::vector<std::vector<int64_t>> line_shapes;
  for (const Box& box : boxes) {
    int line_width = std::max(int(std::lround(double(box.width()) * kLineHeight / box.height())), 8);
    lines.push_back(scaled_planes(picture, box, line_width, kLineHeight));
    line_shapes.push_back({1, 3, kLineHeight, line_width});
  }
  start = now_ms();
  CompiledModel rec(a.rec, a.threads);
  double rec_first = 0;
  for (size_t i = 0; i < boxes.size(); ++i) {
    Floats probabilities = rec.run(lines[i], line_shapes[i]);
    if (i == 0) rec_first = now_ms() - start;
    Text read = decode(probabilities, classes);
    std::printf("text %d %d %d %d %.3f %s\n", boxes[i].left, boxes[i].top, boxes[i].right, boxes[i].bottom,
                double(read.score), read.text.c_str());
    if (!a.save.empty()) {
      std::string name = a.save + "/rec_" + std::to_string(i);
      save_floats(name + "_input", lines[i].data(), line_shapes[i]);
      save_floats(name + "_output", probabilities.data, probabilities.shape);
    }
  }
  if (!a.boxes.empty()) {
    for (const Box& box : boxes) draw_box(picture, box, 3);
    write_ppm(a.boxes, picture);
  }

  std::vector<double> det_runs, rec_runs, first_line_runs;
  for (int i = 0; i < a.repeat && !lines.empty(); ++i) {
    start = now_ms();
    det.run(det_input, det_shape);
    det_runs.push_back(now_ms() - start);
    start = now_ms();
    for (size_t line = 0; line < lines.size(); ++line) {
      rec.run(lines[line], line_shapes[line]);
      if (line == 0) first_line_runs.push_back(now_ms() - start);
    }
    rec_runs.push_back(now_ms() - start);
  }
  if (!det_runs.empty()) {
    print_time("det", a.threads, det_runs, det_first, median(det_runs));
    print_time("rec", a.threads, rec_runs, rec_first, median(first_line_runs));
  }
  std::printf("memory peak_mb=%.1f before_mb=%.1f\n", peak_mb(), before_mb);
}

bool parse(int argc, char** argv, Arguments& a) {
  std::string* positional[] = {&a.det, &a.rec, &a.characters, &a.picture};
  size_t given = 0;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word.rfind("--", 0) != 0) {
      if (given == 4) return false;
      *positional[given++] = word;
    } else {
      if (i + 1 == argc) return false;
      const char* value = argv[++i];
      if (word == "--boxes") a.boxes = value;
      else if (word == "--save") a.save = value;
      else if (word == "--threads") a.threads = std::atoi(value);
      else if (word == "--repeat") a.repeat = std::atoi(value);
      else return false;
    }
  }
  return given == 4;
}

}  // namespace
}  // namespace ocr

int main(int argc, char** argv) {
  ocr::Arguments arguments;
  if (!ocr::parse(argc, argv, arguments)) {
    std::fprintf(stderr, "usage: ocr det.so rec.so characters.txt picture.ppm"
                         " [--boxes out.ppm] [--threads N] [--repeat N] [--save DIR]\n");
    return 2;
  }
  try {
    ocr::read_picture(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ocr: %s\n", error.what());
    return 1;
  }
  return 0;
}
