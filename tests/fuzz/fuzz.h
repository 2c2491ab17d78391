// What the fuzz targets share. A target is a file with LLVMFuzzerTestOneInput; with clang it is linked with libFuzzer,
// with g++ with driver.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace tripod::fuzz {

inline void check(bool good, const std::string& what) {
  if (good) return;
  std::fprintf(stderr, "fuzz: does not hold: %s\n", what.c_str());
  std::abort();
}

// Decisions drawn from the bytes; zeros when they are used up.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  uint8_t next() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  size_t pick(size_t n) { return n < 2 ? 0 : next() % n; }

 private:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace tripod::fuzz
