#include "loop/interpreter_memory.h"

#include "loop/scalar.h"

namespace tripod::loop {

Cells::Cells(DType t, int64_t count, std::vector<std::byte>* bytes) : dtype_(t), count_(count) {
  // Fresh memory holds a pattern that no test expects.
  if (!bytes) own_.assign(static_cast<size_t>(byte_size(t, count)), std::byte{0xA5});
  bytes_ = bytes ? bytes : &own_;
  written_.assign(static_cast<size_t>(count), false);
}

std::string Cells::conflict(const Access& before, const Place& now) {
  if (!before.exists) return "";
  const Place& then = before.where;
  if (now.region != 0 && then.region == now.region) {
    if (before.other_blocks || then.block != now.block) return "two parallel iterations";
    if (then.epoch == now.epoch && (before.other_threads || then.thread != now.thread))
      return "two threads with no barrier between";
  }
  if (now.lanes != 0 && then.lanes == now.lanes && (before.other_lanes || then.lane != now.lane))
    return "two lanes of a vector";
  return "";
}

std::string Cells::read(int64_t at, const Place& here, bool check_races, uint64_t& bits) {
  bits = read_element(dtype_, bytes_->data(), at);
  if (!written_[static_cast<size_t>(at)]) return "read of memory that was never written";
  if (!check_races || (here.region == 0 && here.lanes == 0)) return "";
  Touch& t = touched(at);
  Access& r = t.read;
  const Place& last = r.where;
  const bool same_region = r.exists && last.region == here.region;
  const bool same_epoch = same_region && last.block == here.block && last.epoch == here.epoch;
  const bool same_lanes = r.exists && last.lanes == here.lanes;
  r.other_blocks = same_region && (r.other_blocks || last.block != here.block);
  r.other_threads = same_epoch && (r.other_threads || last.thread != here.thread);
  r.other_lanes = same_lanes && (r.other_lanes || last.lane != here.lane);
  r.where = here;
  r.exists = true;
  return conflict(t.write, here);
}

std::string Cells::write(int64_t at, const Place& here, bool check_races, uint64_t bits) {
  write_element(dtype_, bytes_->data(), at, bits);
  written_[static_cast<size_t>(at)] = true;
  if (!check_races || (here.region == 0 && here.lanes == 0)) return "";
  Touch& t = touched(at);
  std::string problem = conflict(t.write, here);
  if (problem.empty()) problem = conflict(t.read, here);
  t.write = {here, true, false, false, false};
  return problem;
}

}  // namespace tripod::loop
