// Texts with numbers: each different one gets the next number, 0 first. What the compiler names by number in code and
// by text for people: sites of error messages, kernels.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace tripod {

class Numbering {
 public:
  int32_t number(const std::string& text) {
    const auto [at, is_new] = numbers_.try_emplace(text, static_cast<int32_t>(texts_.size()));
    if (is_new) texts_.push_back(text);
    return at->second;
  }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::unordered_map<std::string, int32_t> numbers_;
  std::vector<std::string> texts_;
};

}  // namespace tripod
