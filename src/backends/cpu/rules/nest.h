// The loop nest of one block: see nest.cc for the choices.
#pragma once

#include "backends/cpu/cpu_target.h"
#include "rules/walk.h"

namespace tripod::cpu {

using namespace rules;

class Nest : rules::BlockWalk {
 public:
  Nest(sym::Context& c, const CpuTarget& target, const loop::StmtNode& block);
  Stmt build();

 private:
  bool may_vectorise() const;
  int64_t work_of_one() const;
  Stmt inner(const sym::Map& outer, Index from, Index count);

  const CpuTarget& target_;
};

}  // namespace tripod::cpu
