// The loop nest of one block: see nest.cc for the choices.
#pragma once

#include <vector>

#include "backends/cpu/cpu_target.h"
#include "backends/cpu/rules/loops.h"

namespace tripod::cpu {

class Nest {
 public:
  Nest(sym::Context& c, const CpuTarget& target, const loop::StmtNode& block);
  Stmt build();

 private:
  struct Access {
    Index offset;
    bool is_store;
  };
  void find_accesses();
  void sort_spatial();
  void collapse();
  bool may_vectorise() const;
  int64_t work_of_one() const;
  Stmt point(Index lane);
  Stmt reduction(Index lane);
  Stmt inner(const sym::Map& outer, Index from, Index count);

  sym::Context& c_;
  const CpuTarget& target_;
  const loop::StmtNode& block_;
  std::vector<loop::Iter> spatial_, reduce_;
  Stmt body_, init_;               // with collapsed iterators replaced
  std::vector<Access> accesses_;
  std::vector<Index> guards_;
};

}  // namespace tripod::cpu
