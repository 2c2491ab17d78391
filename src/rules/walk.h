// A block with its iterators in the order in which a loop nest should walk them.
#pragma once

#include <vector>

#include "rules/loops.h"

namespace tripod::rules {

class BlockWalk {
 public:
  BlockWalk(sym::Context& c, const loop::StmtNode& block);

  // Outermost first in the memory of the (first) store.
  void sort_spatial();
  // Neighbours that every access walks as one become one: fewer loops, and no divisions where a flat index is split.
  void collapse();

 protected:
  struct Access {
    Index offset;
    bool is_store;
  };
  void find_accesses();

  // One result, or the results of all lanes of the vector loop around (`lane` its variable, `lanes` how many for a
  // buffer of this type): the body, or init, reduce loops around the update in registers, and the store.
  Stmt point(Index lane, const std::function<int64_t(DType)>& lanes);
  bool is_float_sum() const;
  Stmt reduce_loops(const Stmt& update, const std::vector<std::pair<Buffer, Buffer>>& tiles, Index lane);
  Stmt reduction(Index lane, const std::function<int64_t(DType)>& lanes);

  sym::Context& c_;
  std::vector<loop::Iter> spatial_, reduce_;
  Stmt body_, init_;               // with collapsed iterators replaced
  std::vector<Access> accesses_;
  std::vector<Index> guards_;
};

}  // namespace tripod::rules
