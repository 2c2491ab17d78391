// Contractions (matrix products, convolutions as implicit products) by multiply-add on tiles in shared memory.
//
//   block    kRows x kColumns results of one batch, 256 threads, 8 x 8 (or 4 x 4) of them in each thread's registers
//   step     kDepth of the reduction: both operands' tiles are read into shared memory, zero where they end
//   end      the epilogue on every result, straight from registers
//
// Every sum runs over the reduction in order, whatever the tile.
#include <algorithm>

#include "rules/contraction.h"
#include "backends/cuda/rules/rules.h"
#include "rules/inline.h"

namespace tripod::cuda {

using loop::Iter;
using loop::Op;
using loop::Scope;

namespace {

constexpr int64_t kThreads = 256, kDepth = 16;

class Tiles {
 public:
  // `each` rows by as many columns in every thread.
  Tiles(const loop::Function& f, const rules::Contraction& k, sym::Context& c, int64_t each) : f_(f), k_(k), c_(c), each_(each), tile_(16 * each) {
    for (const Iter& i : k_.reduce) reduce_extents_.push_back(i.extent);
    for (const Iter& i : k_.rows) row_extents_.push_back(i.extent);
    for (const Iter& i : k_.batch) batch_extents_.push_back(i.extent);
    rows_ = sym::product(c, row_extents_), depth_ = sym::product(c, reduce_extents_), columns_ = k_.column.extent;
  }

  Index results() const { return rows_ * columns_; }  // of one batch

  loop::Function run() {
    const Index row_blocks = sym::ceildiv(rows_, tile_), column_blocks = sym::ceildiv(columns_, tile_);
    const Index batches = sym::product(c_, batch_extents_);
    loop::Function r = f_;
    r.body = grid(c_, batches * row_blocks * column_blocks, [&](Index block) {
      const Indices at = unflatten(block, {batches, row_blocks, column_blocks});
      const Indices batch = unflatten(at[0], batch_extents_);
      for (size_t d = 0; d < k_.batch.size(); ++d) fixed_[k_.batch[d].var] = batch[d];
      first_row_ = at[1] * tile_, first_column_ = at[2] * tile_;
      return whole();
    });
    return r;
  }

 private:
  Stmt whole() {
    const DType t = k_.dtype;
    const Index e = c_.constant(each_);
    a_tile_ = loop::make_buffer(k_.name + "_a", k_.a->dtype, {c_.constant(kDepth), c_.constant(tile_ + 4)}, Scope::shared);
    b_tile_ = loop::make_buffer(k_.name + "_b", k_.b->dtype, {c_.constant(kDepth), c_.constant(tile_ + 4)}, Scope::shared);
    sums_ = per_thread(c_, k_.name + "_sum", t, kThreads, {e, e});
    const Stmt steps = serial(c_, "step", sym::ceildiv(depth_, kDepth), [&](Index step) {
      return loop::seq({threads(c_, kThreads, [&](Index th) { return loop::seq({fill(a_tile_, true, step, th), fill(b_tile_, false, step, th)}); }),
                        loop::sync(loop::SyncKind::barrier), threads(c_, kThreads, [&](Index th) { return multiply(th); }),
                        loop::sync(loop::SyncKind::barrier)});
    });
    Stmt s = loop::seq({threads(c_, kThreads, [&](Index th) {
                          return each([&](Index i, Index j) { return loop::store(sums_, {th, i, j}, loop::constant_bits(t, 0)); });
                        }),
                        steps, threads(c_, kThreads, [&](Index th) { return finish(th); })});
    for (const Buffer& b : {sums_, a_tile_, b_tile_}) s = loop::alloc(b, s);
    return s;
  }

  Stmt each(const std::function<Stmt(Index, Index)>& body) {
    return unrolled(c_, "i", each_, [&](Index i) { return unrolled(c_, "j", each_, [&](Index j) { return body(i, j); }); });
  }

  // One element of an operand at (line, k): the iterators bound, 0 where either is beyond its end.
  Expr element(bool a, Index line, Index k) {
    sym::Map m = fixed_;
    bind_line(m, a, line);
    const Indices at = unflatten(k, reduce_extents_);
    for (size_t d = 0; d < at.size(); ++d) m[k_.reduce[d].var] = at[d];
    const Index inside = sym::logical_and(sym::lt(line, a ? rows_ : columns_), sym::lt(k, depth_));
    return rules::guard_loads(loop::substitute(a ? k_.a : k_.b, m), inside);
  }
  void bind_line(sym::Map& m, bool a, Index line) const {
    if (!a) {
      m[k_.column.var] = line;
      return;
    }
    const Indices at = unflatten(line, row_extents_);
    for (size_t d = 0; d < at.size(); ++d) m[k_.rows[d].var] = at[d];
  }

  // Neighbouring threads read along the memory of the operand: along k where that is contiguous, else along the line.
  Stmt fill(const Buffer& tile, bool a, Index step, Index thread) {
    const bool along_k = contiguous_in_k(a ? k_.a : k_.b);
    return unrolled(c_, "q", tile_ * kDepth / kThreads, [&](Index q) {
      const Index flat = q * kThreads + thread;
      const Index k = along_k ? sym::mod(flat, kDepth) : sym::floordiv(flat, tile_);
      const Index line = along_k ? sym::floordiv(flat, kDepth) : sym::mod(flat, tile_);
      return loop::store(tile, {k, line}, element(a, (a ? first_row_ : first_column_) + line, step * kDepth + k));
    });
  }
  bool contiguous_in_k(const Expr& e) const {
    if (k_.reduce.empty()) return false;
    bool yes = false;
    loop::visit(e, [&](const Expr& x) {
      if (x->op != Op::load) return;
      const auto l = sym::linear_in(loop::offset(c_, x->buffer, x->indices), k_.reduce.back().var);
      yes = yes || (l && l->coefficient.is_const(1));
    });
    return yes;
  }

  Stmt multiply(Index th) {
    const Index row = sym::floordiv(th, 16) * each_, column = sym::mod(th, 16) * each_;
    return serial(c_, "k", c_.constant(kDepth), [&](Index k) {
      return each([&](Index i, Index j) {
        const Expr a = loop::load(a_tile_, {k, row + i}), b = loop::load(b_tile_, {k, column + j}), old = loop::load(sums_, {th, i, j});
        const Expr sum = is_float(k_.dtype) ? loop::fma(a, b, old) : old + a * b;
        return loop::store(sums_, {th, i, j}, sum);
      });
    });
  }

  Stmt finish(Index th) {
    return each([&](Index i, Index j) {
      const Index row = first_row_ + sym::floordiv(th, 16) * each_ + i, column = first_column_ + sym::mod(th, 16) * each_ + j;
      sym::Map m = fixed_;
      bind_line(m, true, row);
      bind_line(m, false, column);
      std::vector<Stmt> stores;
      for (const auto& e : k_.epilogue) {
        Indices at;
        for (const Index& x : e.at) at.push_back(sym::substitute(x, m));
        stores.push_back(loop::store(e.target, at, rules::epilogue_value(k_, e, m, loop::load(sums_, {th, i, j}))));
      }
      return where(sym::logical_and(sym::lt(row, rows_), sym::lt(column, columns_)), [&] { return loop::seq(stores); });
    });
  }

  const loop::Function& f_;
  rules::Contraction k_;
  sym::Context& c_;
  Indices row_extents_, batch_extents_, reduce_extents_;
  Index rows_, columns_, depth_, first_row_, first_column_;
  sym::Map fixed_;
  Buffer a_tile_, b_tile_, sums_;
  const int64_t each_, tile_;
};

}  // namespace

RuleResult contraction(const loop::Function& f, sym::Context& c) {
  const loop::Function inlined = rules::inline_elementwise(f, c);
  std::string why;
  auto k = rules::match_contraction(inlined, c, &why, rules::Column::of_group);
  if (!k) return {loop::not_applicable(why), {}};
  if (info(k->a->dtype).bits < 8 || info(k->b->dtype).bits < 8) return {loop::not_applicable("operands of less than a byte"), {}};
  // Small results: small tiles, more blocks.
  Tiles large(inlined, *k, c, 8), small(inlined, *k, c, 4);
  const Index is_small = sym::lt(large.results(), 512 * 512);
  if (is_small.is_const()) return {{true, ""}, is_small.value() ? small.run() : large.run()};
  return {{true, ""}, large.run(), {{is_small, small.run()}}};
}

}  // namespace tripod::cuda
