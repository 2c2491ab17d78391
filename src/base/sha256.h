// SHA-256 (FIPS 180-4): the identity of constants, files and options.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tripod {

class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;

  void update(const void* data, size_t size);
  void update(std::string_view s) { update(s.data(), s.size()); }
  Digest digest() const;     // of all so far; update() may go on
  std::string hex() const;   // 64 lower-case digits

 private:
  void block(const uint8_t* p);
  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> pending_ = {};
  uint64_t size_ = 0;
};

std::string sha256(const void* data, size_t size);

}  // namespace tripod
