// Recognising blocks that work row by row: reductions over the innermost dims with what surrounds them. The rules of the
// back ends decide where the values of a row live and how its loops run.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rules/loops.h"

namespace tripod::rules {

// How partial results of a reduction combine: the binary operation of `acc = op(acc, x)`; fma sums.
std::optional<loop::Op> combiner(const loop::StmtNode& block);

class RowBlocks {
 protected:
  RowBlocks(const loop::Function& f, sym::Context& c) : f_(f), c_(c) {}

  // Empty when all blocks share their leading spatial iterators (the rows, by extent and position), reductions reduce
  // exactly what is behind them, and internal buffers are read in the row that wrote them; otherwise what does not fit.
  // `refuse` says why the rule cannot do a reduction that combines so (combiner), or "".
  std::string match(const std::function<std::string(std::optional<loop::Op>)>& refuse);

  static bool reduces(const loop::StmtNode& b);
  // The value of a reduction with its accumulator elsewhere.
  static Expr with_accumulator(const loop::StmtNode& b, const Expr& old);
  bool is_internal(const Buffer& b) const;
  // Iterations of b behind the rows, with `open` for each extent that is not known.
  int64_t inner_count(const loop::StmtNode& b, int64_t open) const;
  // The dims of an internal buffer behind the rows; one of extent 1 when there are none.
  Indices row_shape(const Buffer& b) const;
  // The row iterators of b at the row at hand (at_).
  sym::Map row_map(const loop::StmtNode& b) const;
  // For the row at hand: iterators replaced, internal buffers by their part of local_.
  Stmt bind(const Stmt& s, const sym::Map& m) const;
  Expr bind(const Expr& e, const sym::Map& m) const;

  const loop::Function& f_;
  sym::Context& c_;
  Indices rows_, at_;
  std::vector<Stmt> blocks_;
  std::vector<Buffer> internal_;
  std::vector<std::pair<Buffer, Buffer>> local_;  // an internal buffer, and what holds one row of it

 private:
  struct Binder;
  std::string match_block(const loop::StmtNode& b, const std::function<std::string(std::optional<loop::Op>)>& refuse) const;
  bool in_row(const loop::StmtNode& b, const Buffer& buffer, const Indices& at) const;
  bool contiguous(const loop::StmtNode& b) const;
  Indices tail(const Indices& at, const sym::Map& m) const;
};

}  // namespace tripod::rules
