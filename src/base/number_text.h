// Numbers as text.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>

namespace tripod {

// The shortest digits that read back as the same number.
template <class T>
std::string shortest(T v) {
  char buffer[64];
  const auto r = std::to_chars(buffer, buffer + sizeof buffer, v);
  return std::string(buffer, r.ptr);
}

inline std::string hex(uint64_t v) {
  char buffer[20];
  const auto r = std::to_chars(buffer, buffer + sizeof buffer, v, 16);
  return "0x" + std::string(buffer, r.ptr);
}

}  // namespace tripod
