// Reductions over the innermost dims with what surrounds them, where what is behind the rows differs from block to
// block or is read elsewhere than where it was written: one block of threads a row, internal values of the row in shared
// memory. (rows.cc has the plain case, which is all of softmax and the normalisations.)
//
// Applies when all blocks share their leading spatial iterators (the rows), reductions are sums or maxima over exactly
// what is behind them, internal buffers are read in the row that wrote them, and a row fits shared memory.
#include <algorithm>

#include "backends/cuda/rules/rules.h"
#include "rules/inline.h"
#include "rules/rows.h"

namespace tripod::cuda {

using loop::Iter;
using loop::Op;
using loop::Scope;
using loop::StmtKind;
using loop::StmtNode;

namespace {

constexpr int64_t kSharedBytes = 40960;

class SharedRows : rules::RowBlocks {
 public:
  SharedRows(const loop::Function& f, sym::Context& c) : RowBlocks(f, c) {}

  RuleResult run() {
    if (std::string why = fits(); !why.empty()) return {loop::not_applicable(why), {}};
    choose_threads();
    loop::Function r = f_;
    r.body = grid(c_, sym::product(c_, rows_), [&](Index row) {
      at_ = unflatten(row, rows_);
      std::vector<Stmt> all;
      for (const Stmt& b : blocks_) reduces(*b) ? reduction(*b, all) : spatial(*b, all);
      Stmt s = loop::seq(all);
      for (auto& [from, to] : local_) s = loop::alloc(to, s);
      return s;
    });
    return {{true, ""}, r};
  }

 private:
  std::string fits() {
    std::string why = match(refuse_combiner);
    int64_t bytes = 0;
    for (const Buffer& b : internal_) {
      if (!why.empty()) break;
      if (!make_local(b, bytes)) why = "a row of " + b->name + " may not fit shared memory";
    }
    return why;
  }

  // The part of an internal buffer that belongs to one row, in shared memory.
  bool make_local(const Buffer& b, int64_t& bytes) {
    const Indices shape = row_shape(b);
    const Index count = sym::product(c_, shape);
    if (!count.is_const()) return false;
    bytes += count.value() * std::max(1, info(b->dtype).bits / 8);
    local_.push_back({b, loop::make_buffer(b->name, b->dtype, shape, Scope::shared)});
    return bytes <= kSharedBytes;
  }

  // A quarter of a row at most, so that a thread has something to do; between a warp and 1024.
  void choose_threads() {
    int64_t longest = 1;
    for (const Stmt& b : blocks_) longest = std::max(longest, inner_count(*b, 2048));
    for (threads_ = 32; threads_ < 1024 && threads_ * 4 < longest; threads_ *= 2) {
    }
  }

  // The iterators behind the rows at flat position i of their space.
  sym::Map bound(const StmtNode& b, Index i) const {
    sym::Map m = row_map(b);
    Indices extents;
    for (size_t d = rows_.size(); d < b.iters.size(); ++d) extents.push_back(b.iters[d].extent);
    const Indices at = unflatten(i, extents);
    for (size_t d = 0; d < at.size(); ++d) m[b.iters[rows_.size() + d].var] = at[d];
    return m;
  }
  Index inner_extent(const StmtNode& b) const {
    Index n = c_.constant(1);
    for (size_t d = rows_.size(); d < b.iters.size(); ++d) n = n * b.iters[d].extent;
    return n;
  }

  void spatial(const StmtNode& b, std::vector<Stmt>& all) {
    all.push_back(threads(c_, threads_, [&](Index t) {
      return strided(c_, "i", inner_extent(b), t, threads_, [&](Index i) { return bind(b.body[0], bound(b, i)); });
    }));
    if (is_internal(b.body[0]->buffer)) all.push_back(loop::sync(loop::SyncKind::barrier));
  }

  // Each thread its own part, then all parts together into shared memory; the row's number is stored by one thread.
  void reduction(const StmtNode& b, std::vector<Stmt>& all) {
    const StmtNode& s = *b.body[0];
    const DType t = s.buffer->dtype;
    const Buffer part = per_thread(c_, b.name + "_part", t, threads_, {});
    const Index zero = c_.constant(0), one = c_.constant(1);
    const bool internal = is_internal(s.buffer);
    const Buffer total = internal ? std::find_if(local_.begin(), local_.end(), [&](auto& l) { return l.first == s.buffer; })->second
                                  : loop::make_buffer(b.name + "_total", t, {one}, Scope::shared);
    std::vector<Stmt> mine = {threads(c_, threads_, [&](Index th) {
      const Expr moved = with_accumulator(b, loop::load(part, {th}));
      return loop::seq({loop::store(part, {th}, b.init->value),
                        strided(c_, "k", inner_extent(b), th, threads_, [&](Index k) {
                          return loop::store(part, {th}, bind(moved, bound(b, k)));
                        })});
    })};
    const size_t rank = total->shape.size();  // dims of 1
    const Indices zeros(rank, zero), ones(rank, one);
    mine.push_back(loop::tile(*row_tile(*combiner(b)), {{total, zeros, ones}, {part, {zero}, {c_.constant(threads_)}}}));
    mine.push_back(loop::sync(loop::SyncKind::barrier));
    if (!internal) {
      const sym::Map m = bound(b, zero);
      mine.push_back(threads(c_, threads_, [&](Index th) {
        return loop::branch(loop::from_index(DType::b1, sym::eq(th, zero)),
                            bind(loop::store(s.buffer, s.indices, loop::load(total, zeros)), m));
      }));
    }
    Stmt together = loop::alloc(part, loop::seq(mine));
    all.push_back(internal ? together : loop::alloc(total, together));
  }

  int64_t threads_ = 256;
};

}  // namespace

RuleResult rows_shared(const loop::Function& f, sym::Context& c) {
  const loop::Function inlined = rules::inline_elementwise(f, c);
  return SharedRows(inlined, c).run();
}

}  // namespace tripod::cuda
