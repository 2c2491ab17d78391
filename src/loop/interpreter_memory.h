// Memory of the interpreter: elements that know who touched them last.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "loop/interpreter.h"

namespace tripod::loop {

// Where execution stands. Two accesses are concurrent when they are of the same region (one run of an outermost
// parallel or grid loop) and of different blocks (its iterations), or of different threads of a block with no
// barrier between (the epoch counts barriers); or of different lanes of one run of a vector loop.
struct Place {
  int64_t region = 0, block = 0, epoch = 0, thread = 0;
  int64_t lanes = 0, lane = 0;  // which run of a vector loop (0: none), which lane
};

// Elements of one instance of a buffer.
class Cells {
 public:
  // Memory of the caller when `bytes` is given.
  Cells(DType t, int64_t count, std::vector<std::byte>* bytes);
  Cells(const Cells&) = delete;
  int64_t count() const { return count_; }

  // An empty answer is good news; else what is wrong with this access.
  std::string read(int64_t at, const Place& here, bool check_races, uint64_t& bits);
  std::string write(int64_t at, const Place& here, bool check_races, uint64_t bits);
  void mark_written() { written_.assign(written_.size(), true); }

 private:
  struct Access {
    Place where;
    bool exists = false, other_blocks = false, other_threads = false, other_lanes = false;
  };
  struct Touch {
    Access read, write;
  };
  static std::string conflict(const Access& before, const Place& now);

  DType dtype_;
  int64_t count_;
  std::vector<std::byte> own_;
  std::vector<std::byte>* bytes_;
  std::vector<bool> written_;
  // Two 4-bit elements share a byte, and with it a race.
  Touch& touched(int64_t at) { return touched_[info(dtype_).bits == 4 ? at / 2 : at]; }
  std::unordered_map<int64_t, Touch> touched_;
};

}  // namespace tripod::loop
