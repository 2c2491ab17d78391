// Runs a loop function slowly and obviously: the judge of every schedule, rule and back end.
//
// Works on compute form (blocks in order, their iterators as loops) and scheduled form. Every access is checked
// against the logical shape and the storage of its buffer; parallel and GPU-bound loops are checked for races (two
// iterations that touch one address, one of them writing, with no barrier between). Math operations must have been
// expanded (loop/expand_math.h), so that its bits are those of the compiled code.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "loop/ir.h"

namespace tripod::loop {

// Memory of a parameter: row-major or in its layout, `storage_size` elements of its dtype.
struct Memory {
  std::vector<std::byte> bytes;
};

struct InterpretOptions {
  bool check_races = true;
  int64_t max_steps = int64_t{1} << 40;
};

struct InterpretResult {
  std::vector<std::string> violations;  // bounds, races, reads of memory never written; empty: good
  struct CheckFailure {
    int32_t site;
    int64_t got, limit;
  };
  std::vector<CheckFailure> failed_checks;
  std::map<std::string, int64_t> executions;  // of each block: coverage
};

// `params[i]` belongs to f.params[i] and must have its size; outputs are written in place.
InterpretResult interpret(const Function& f, const sym::Values& dims, std::vector<Memory>& params,
                          const InterpretOptions& options = {});

}  // namespace tripod::loop
