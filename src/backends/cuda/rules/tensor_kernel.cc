// The kernel of a contraction on tensor cores (the plan is in tensor_cores.h), and the one behind it that sums the
// parts of a split reduction.
#include <algorithm>

#include "backends/cuda/fragments.h"
#include "backends/cuda/rules/tensor_cores.h"

namespace tripod::cuda {

using loop::Expr;
using loop::LoopKind;
using loop::Region;
using loop::Scope;
using loop::SyncKind;

namespace {

constexpr int64_t kGroup = 8;           // blocks that run together cover this many rows of tiles: their operands stay in L2
constexpr int64_t kSumThreads = 256;

// Elements that a thread stores at once: 16 bytes of the widest target where rows are multiples of that.
int64_t store_width(sym::Context& c, const rules::Contraction& k) {
  int64_t bytes = 1;
  for (const auto& e : k.epilogue) bytes = std::max<int64_t>(bytes, info(e.target->dtype).bits / 8);
  int64_t w = 16 / bytes;
  while (w > 1 && !sym::proved(sym::eq(sym::mod(k.column.extent, w), c.constant(0)))) w /= 2;
  return w;
}

// The epilogue's stores at iterators m of the contraction, for a finished sum.
Stmt epilogue(const rules::Contraction& k, const sym::Map& m, const Expr& sum) {
  std::vector<Stmt> stores;
  for (const auto& e : k.epilogue) {
    Indices at;
    for (const Index& x : e.at) at.push_back(sym::substitute(x, m));
    stores.push_back(loop::store(e.target, at, rules::epilogue_value(k, e, m, sum)));
  }
  return loop::seq(stores);
}

class TensorKernel {
 public:
  TensorKernel(const TensorProblem& p, const Choice& choice, sym::Context& c)
      : p_(p), k_(p.contraction()), t_(choice.tile), splits_(choice.splits), c_(c), threads_(t_.threads()) {
    TRIPOD_CHECK(t_.warps() >= 2, "a loop over one warp would vanish when loops are flattened");
    steps_ = sym::ceildiv(p.depth, t_.depth);
    if (splits_ > 1) steps_ = sym::ceildiv(steps_, splits_);
    exact_rows_ = whole(p.rows, t_.rows), exact_columns_ = whole(p.columns, t_.columns);
    exact_depth_ = whole(p.depth, t_.depth * splits_);
    mma_depth_ = mma_shape(p.operands())->k;
    if (splits_ > 1) parts_ = loop::make_buffer(k_.name + "_parts", DType::f32, {c.constant(splits_), p.batches, p.rows, p.columns});
  }

  Stmt build() {
    const Stmt kernel = main_kernel();
    return splits_ > 1 ? loop::alloc(parts_, loop::seq({kernel, sum_kernel()})) : kernel;
  }

 private:
  static bool whole(Index extent, int64_t tile) { return sym::proved(sym::eq(sym::mod(extent, tile), extent.context().constant(0))); }

  Stmt main_kernel() {
    const Index row_blocks = sym::ceildiv(p_.rows, t_.rows), column_blocks = sym::ceildiv(p_.columns, t_.columns);
    return grid(c_, p_.batches * row_blocks * column_blocks * splits_, [&](Index block) {
      const Indices at = unflatten(block, {p_.batches, c_.constant(splits_), row_blocks * column_blocks});
      batch_index_ = at[0], split_ = at[1];
      p_.bind_batch(batch_, at[0]);
      place(at[2], row_blocks, column_blocks);
      return whole_block();
    });
  }

  // Blocks in groups of kGroup rows of tiles, down the rows first.
  void place(Index at, Index row_blocks, Index column_blocks) {
    Index row, column;
    if (sym::proved(sym::le(row_blocks, kGroup))) {
      row = sym::mod(at, row_blocks), column = sym::floordiv(at, row_blocks);
    } else {
      const Index group = column_blocks * kGroup, first = sym::floordiv(at, group) * kGroup, rest = sym::mod(at, group);
      const Index size = whole(row_blocks, kGroup) ? c_.constant(kGroup) : sym::min(row_blocks - first, kGroup);
      row = first + sym::mod(rest, size), column = sym::floordiv(rest, size);
    }
    first_row_ = row * t_.rows, first_column_ = column * t_.columns;
  }

  Stmt whole_block() {
    const DType t = p_.operands();
    a_tile_ = shared_tile(c_, k_.name + "_a", t, p_.a, t_.stages, t_.rows, t_.depth);
    b_tile_ = shared_tile(c_, k_.name + "_b", t, p_.b, t_.stages, t_.columns, t_.depth);
    sums_ = fragment("sum", DType::f32, Operand::c, t_.warp_rows, t_.warp_columns);
    const Stmt main = loop::alloc(a_tile_, loop::alloc(b_tile_, main_loop()));
    return loop::alloc(sums_, loop::seq({zero(), main, finish()}));
  }
  Buffer fragment(const char* what, DType t, Operand o, int64_t rows, int64_t columns) {
    return loop::make_buffer(k_.name + "_" + what, t, {c_.constant(t_.warps()), c_.constant(rows), c_.constant(columns)}, Scope::reg,
                             fragment_layout(c_, o, p_.operands(), t_.warps(), rows, columns));
  }
  Stmt each_thread(const std::function<Stmt(Index)>& body) { return threads(c_, threads_, body); }

  // --- the main loop ---
  //
  // Each step is done in parts of one instruction's depth. While the instructions of one part run, the fragments of the
  // next are loaded, those of the next step's first part during the last: the wait for that step's copies and the
  // barrier stand in front of the last part. The barrier also says that everybody has read the step before, so that its
  // stage can be filled again.

  Stmt main_loop() {
    const int ahead = t_.stages - 1;
    parts_of_step_ = t_.depth / t_.slices / mma_depth_;
    a_ = fragment("fa", p_.operands(), Operand::a, 2 * t_.warp_rows, mma_depth_);
    b_ = fragment("fb", p_.operands(), Operand::b, mma_depth_, 2 * t_.warp_columns);
    std::vector<Stmt> all;
    for (int s = 0; s < ahead; ++s) all.push_back(fill_ahead(c_.constant(s), c_.constant(s)));
    const bool early = parts_of_step_ > 1;  // a step has a last part beside its first
    if (early) {
      add_arrival(all);
      all.push_back(where(sym::lt(c_.constant(0), steps_), [&] { return each_warp([&](Index w) { return load_part(w, c_.constant(0), 0); }); }));
    }
    all.push_back(serial(c_, "step", steps_, [&](Index step) {
      const Index stage = sym::mod(step, t_.stages), later = step + ahead;
      const Stmt fill = fill_ahead(later, sym::mod(later, t_.stages));
      std::vector<Stmt> one;
      if (!early) {
        add_arrival(one);
        one.push_back(fill);
        one.push_back(each_warp([&](Index w) { return loop::seq({load_part(w, stage, 0), multiply_part(w, 0)}); }));
        return loop::seq(one);
      }
      one.push_back(each_warp([&](Index w) { return load_part(w, stage, 1); }));
      one.push_back(fill);
      one.push_back(each_warp([&](Index w) {
        std::vector<Stmt> parts{multiply_part(w, 0)};
        for (int64_t part = 1; part + 1 < parts_of_step_; ++part) {
          parts.push_back(load_part(w, stage, part + 1));
          parts.push_back(multiply_part(w, part));
        }
        return loop::seq(parts);
      }));
      add_arrival(one);
      one.push_back(each_warp([&](Index w) {
        const Stmt next = where(sym::lt(step + 1, steps_), [&] { return load_part(w, sym::mod(step + 1, t_.stages), 0); });
        return loop::seq({next, multiply_part(w, parts_of_step_ - 1)});
      }));
      return loop::seq(one);
    }));
    all.push_back(each_thread([&](Index) { return loop::sync(SyncKind::wait); }));
    all.push_back(loop::sync(SyncKind::barrier));  // the tiles' memory is free
    return loop::alloc(a_, loop::alloc(b_, loop::seq(all)));
  }

  // The oldest stage that is under way is there, for everybody.
  void add_arrival(std::vector<Stmt>& all) {
    all.push_back(each_thread([&](Index) { return loop::sync(SyncKind::wait, -1, t_.stages - 2); }));
    all.push_back(loop::sync(SyncKind::barrier));
  }

  Stmt fill_ahead(Index step, Index stage) {
    return each_thread([&](Index th) {
      return loop::seq({where(sym::lt(step, steps_), [&] { return fill(step, stage, th); }), loop::sync(SyncKind::commit)});
    });
  }
  Stmt fill(Index step, Index stage, Index thread) {
    const Index first_k = (split_ * steps_ + step) * t_.depth;
    return loop::seq({fill_tile(c_, p_, p_.a, {a_tile_, stage, first_row_, first_k, t_.rows, t_.depth, threads_, exact_rows_, exact_depth_}, batch_, thread),
                      fill_tile(c_, p_, p_.b, {b_tile_, stage, first_column_, first_k, t_.columns, t_.depth, threads_, exact_columns_, exact_depth_}, batch_, thread)});
  }

  Stmt each_warp(const std::function<Stmt(Index)>& body) {
    const Index warps = c_.constant(t_.warps()), w = loop_var(c_, "warp", warps);
    return loop::loop(w, warps, LoopKind::warp, body(w));
  }
  // Fragments are double: even parts and odd ones.
  Region part_of_a(Index w, int64_t part) const {
    return {a_, {w, c_.constant(part % 2 * t_.warp_rows), c_.constant(0)}, {c_.constant(1), c_.constant(t_.warp_rows), c_.constant(mma_depth_)}};
  }
  Region part_of_b(Index w, int64_t part) const {
    return {b_, {w, c_.constant(0), c_.constant(part % 2 * t_.warp_columns)}, {c_.constant(1), c_.constant(mma_depth_), c_.constant(t_.warp_columns)}};
  }
  Stmt load_part(Index w, Index stage, int64_t part) const {
    const Warp at = warp(w);
    const Index k = at.slice * (t_.depth / t_.slices) + part * mma_depth_;
    const Region a = part_of_a(w, part), b = part_of_b(w, part);
    return loop::seq({loop::tile(loop::TileOp::copy, {a, {a_tile_, {stage, at.row, k}, a.extent}}),
                      loop::tile(loop::TileOp::copy, {b, {b_tile_, {stage, k, at.column}, b.extent}})});
  }
  Stmt multiply_part(Index w, int64_t part) const {
    const Index zero = c_.constant(0);
    const Region sums{sums_, {w, zero, zero}, {c_.constant(1), c_.constant(t_.warp_rows), c_.constant(t_.warp_columns)}};
    return loop::tile(loop::TileOp::mma, {sums, part_of_a(w, part), part_of_b(w, part)});
  }

  struct Warp {
    Index row, column, slice;  // where its tile of the block's results begins
  };
  Warp warp(Index w) const {
    const Indices at = unflatten(w, {c_.constant(t_.slices), c_.constant(t_.rows / t_.warp_rows), c_.constant(t_.columns / t_.warp_columns)});
    return {at[1] * t_.warp_rows, at[2] * t_.warp_columns, at[0]};
  }

  // --- fragments ---

  // Thread th's registers e (two neighbours of a row) of the fragments' instruction tile (i, j), half h.
  struct Pair {
    Index warp, row, column;  // in the warp's tile
  };
  Pair pair(Index th, Index i, Index h, Index j, Index e) const {
    return {sym::floordiv(th, 32), i * 16 + h * 8 + sym::floordiv(sym::mod(th, 32), 4), j * 8 + sym::mod(th, 4) * 2 + e};
  }

  Stmt zero() {
    return each_thread([&](Index th) {
      return unrolled(c_, "i", t_.warp_rows / 16, [&](Index i) {
        return unrolled(c_, "h", 2, [&](Index h) {
          return unrolled(c_, "j", t_.warp_columns / 8, [&](Index j) {
            return unrolled(c_, "e", 2, [&](Index e) {
              const Pair at = pair(th, i, h, j, e);
              return loop::store(sums_, {at.warp, at.row, at.column}, loop::constant(DType::f32, 0));
            });
          });
        });
      });
    });
  }

  // --- the end: 16 rows of every warp at a time ---

  Stmt finish() {
    const int64_t warp_lines = t_.rows / t_.warp_rows;
    lines_ = loop::make_buffer(k_.name + "_lines", DType::f32, {c_.constant(t_.slices), c_.constant(warp_lines * 16), c_.constant(t_.columns + 8)}, Scope::shared);
    std::vector<Stmt> all;
    for (int64_t i = 0; i < t_.warp_rows / 16; ++i) {
      if (i > 0) all.push_back(loop::sync(SyncKind::barrier));
      all.push_back(each_thread([&](Index th) { return put_lines(th, i); }));
      all.push_back(loop::sync(SyncKind::barrier));
      all.push_back(each_thread([&](Index th) { return store_lines(th, i, warp_lines * 16); }));
    }
    return loop::alloc(lines_, loop::seq(all));
  }

  Stmt put_lines(Index th, int64_t i) {
    return unrolled(c_, "h", 2, [&](Index h) {
      return unrolled(c_, "j", t_.warp_columns / 8, [&](Index j) {
        return vector(c_, "e", 2, [&](Index e) {
          const Pair at = pair(th, c_.constant(i), h, j, e);
          const Warp w = warp(at.warp);
          const Index line = sym::floordiv(w.row, t_.warp_rows) * 16 + h * 8 + sym::floordiv(sym::mod(th, 32), 4);
          return loop::store(lines_, {w.slice, line, w.column + at.column}, loop::load(sums_, {at.warp, at.row, at.column}));
        });
      });
    });
  }

  Stmt store_lines(Index th, int64_t i, int64_t lines) {
    const int64_t w = splits_ > 1 ? part_width() : store_width(c_, k_), across = t_.columns / w, total = lines * across;
    const auto one = [&](Index flat) {
      const Index line = sym::floordiv(flat, across), column = sym::mod(flat, across) * w;
      const Index row = first_row_ + sym::floordiv(line, 16) * t_.warp_rows + i * 16 + sym::mod(line, 16);
      const auto store = [&] {
        return vector_of(w, [&](Index v) {
          Expr sum = loop::load(lines_, {c_.constant(0), line, column + v});
          for (int64_t s = 1; s < t_.slices; ++s) sum = sum + loop::load(lines_, {c_.constant(s), line, column + v});
          return result(row, first_column_ + column + v, sum);
        });
      };
      Index inside = c_.constant(1);
      if (!exact_rows_) inside = sym::lt(row, p_.rows);
      if (!exact_columns_) inside = sym::logical_and(inside, sym::lt(first_column_ + column, p_.columns));
      return where(inside, store);
    };
    if (total < threads_) return where(sym::lt(th, total), [&] { return one(th); });
    return unrolled(c_, "q", total / threads_, [&](Index q) { return one(th + q * threads_); });
  }
  Stmt vector_of(int64_t w, const std::function<Stmt(Index)>& body) { return w == 1 ? body(c_.constant(0)) : vector(c_, "v", w, body); }
  int64_t part_width() const { return sym::proved(sym::eq(sym::mod(p_.columns, 4), c_.constant(0))) ? 4 : 1; }

  Stmt result(Index row, Index column, const Expr& sum) {
    if (splits_ > 1) return loop::store(parts_, {split_, batch_index_, row, column}, sum);
    sym::Map m = batch_;
    p_.bind_line(m, true, row);
    p_.bind_line(m, false, column);
    return epilogue(k_, m, sum);
  }

  // --- split reductions: the sum of the parts, in order ---

  Stmt sum_kernel() {
    const int64_t w = store_width(c_, k_);
    const Index across = sym::floordiv(p_.columns, w), total = p_.batches * p_.rows * across;
    return grid(c_, sym::ceildiv(total, kSumThreads), [&](Index block) {
      return threads(c_, kSumThreads, [&](Index th) {
        const Index flat = block * kSumThreads + th;
        return where(sym::lt(flat, total), [&] {
          const Indices at = unflatten(flat, {p_.batches, p_.rows, across});
          return vector_of(w, [&](Index v) {
            const Index column = at[2] * w + v;
            Expr sum = loop::load(parts_, {c_.constant(0), at[0], at[1], column});
            for (int64_t s = 1; s < splits_; ++s) sum = sum + loop::load(parts_, {c_.constant(s), at[0], at[1], column});
            sym::Map m;
            p_.bind_batch(m, at[0]);
            p_.bind_line(m, true, at[1]);
            p_.bind_line(m, false, column);
            return epilogue(k_, m, sum);
          });
        });
      });
    });
  }

  const TensorProblem& p_;
  const rules::Contraction& k_;
  const TileShape t_;
  const int64_t splits_;
  sym::Context& c_;
  const int64_t threads_;
  int64_t mma_depth_ = 16, parts_of_step_ = 1;
  bool exact_rows_ = false, exact_columns_ = false, exact_depth_ = false;
  Index steps_, batch_index_, split_, first_row_, first_column_;
  sym::Map batch_;
  Buffer a_tile_, b_tile_, a_, b_, sums_, lines_, parts_;
};

}  // namespace

loop::Function tensor_kernel(const loop::Function& f, const TensorProblem& p, const Choice& choice, sym::Context& c) {
  loop::Function r = f;
  r.body = TensorKernel(p, choice, c).build();
  return r;
}

}  // namespace tripod::cuda
