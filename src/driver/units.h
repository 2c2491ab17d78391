// The LLVM modules of a file: one for each instruction set, in the order of the targets. The first one holds the program.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/cpu_target.h"
#include "codegen/llvm_unit.h"

namespace tripod {

class Units {
 public:
  Units(const std::string& name, const std::vector<cpu::CpuTarget>& targets) {
    for (const cpu::CpuTarget& t : targets) units_.push_back(std::make_unique<codegen::LlvmUnit>(name, t.llvm()));
  }
  codegen::LlvmUnit& operator[](size_t i) { return *units_[i]; }
  size_t size() const { return units_.size(); }
  std::string ir_text() const {
    std::string s;
    for (const auto& u : units_) s += u->ir_text();
    return s;
  }
  // Each module has an LLVM context of its own, so they are worked on side by side.
  void each(const std::function<void(size_t)>& work) {
    std::vector<std::future<void>> done;
    for (size_t i = 1; i < size(); ++i) done.push_back(std::async(std::launch::async, work, i));
    work(0);
    for (auto& d : done) d.get();
  }

 private:
  std::vector<std::unique_ptr<codegen::LlvmUnit>> units_;
};

}  // namespace tripod
