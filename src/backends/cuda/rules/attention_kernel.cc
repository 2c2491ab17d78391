// The loop over the keys (the plan is in attention.h), and the end of a block.
#include <algorithm>

#include "backends/cuda/fragments.h"
#include "backends/cuda/rules/attention.h"

namespace tripod::cuda {

using loop::LoopKind;
using loop::Op;
using loop::Region;
using loop::Scope;
using loop::SyncKind;
using loop::TileOp;

namespace {

constexpr int64_t kDepth = 16;            // of an instruction

int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
bool whole(Index extent, int64_t tile) { return sym::proved(sym::eq(sym::mod(extent, tile), extent.context().constant(0))); }
Expr number(double v) { return loop::constant(DType::f32, v); }

class AttentionKernel {
 public:
  AttentionKernel(const AttentionProblem& p, const AttentionVariant& v, sym::Context& c)
      : p_(p), s_(v.shape), splits_(v.splits), c_(c), threads_(s_.threads()), split_(c.constant(0)) {
    TRIPOD_CHECK(s_.warps() >= 2, "a loop over one warp would vanish when loops are flattened");
    depth_ = rounded_up(p.form().depth.value(), kDepth), columns_ = rounded_up(p.form().columns.value(), kDepth);
    warp_keys_ = s_.keys / s_.key_warps;
    lanes_ = s_.warp_rows / 8;
    if (is_split()) parts_ = make_parts();
  }

  AttentionKernels build() {
    const Index row_blocks = sym::ceildiv(p_.rows(), s_.rows());
    const Stmt main = grid(c_, p_.batches() * row_blocks * splits_, [&](Index block) {
      const Indices at = unflatten(block, {p_.batches(), row_blocks, splits_});
      batch_index_ = at[0], split_ = at[2];
      // Where later rows see more keys they come first: a short block at the end fills the gaps.
      first_row_ = (p_.form().visible ? row_blocks - 1 - at[1] : at[1]) * s_.rows();
      p_.scores().bind_batch(score_batch_, at[0]), p_.values().bind_batch(value_batch_, at[0]);
      return whole_block();
    });
    if (!is_split()) return {{main}, {}};
    return {{main, combine_splits(p_, parts_, splits_, c_)}, {parts_.sums, parts_.maxima, parts_.totals}};
  }

 private:
  bool is_split() const { return !splits_.is_const(1); }
  AttentionParts make_parts() const {
    const auto buffer = [&](const char* name, Indices shape) { return loop::make_buffer(name, DType::f32, std::move(shape)); };
    const Indices rows = {splits_, p_.batches(), p_.rows()};
    Indices all = rows;
    all.push_back(p_.form().columns);
    return {buffer("part_sums", all), buffer("part_maxima", rows), buffer("part_totals", rows)};
  }
  Stmt each_thread(const std::function<Stmt(Index)>& body) { return threads(c_, threads_, body); }
  Stmt each_warp(const std::function<Stmt(Index)>& body) {
    const Index warps = c_.constant(s_.warps()), w = loop_var(c_, "warp", warps);
    return loop::loop(w, warps, LoopKind::warp, body(w));
  }
  Buffer fragment(const char* what, DType t, Operand o, int64_t rows, int64_t columns) {
    return loop::make_buffer(what, t, {c_.constant(s_.warps()), c_.constant(rows), c_.constant(columns)}, Scope::reg,
                             fragment_layout(c_, o, p_.operands(), s_.warps(), rows, columns));
  }
  Buffer per_row(const char* name) { return per_thread(c_, name, DType::f32, threads_, {c_.constant(lanes_)}); }

  Stmt whole_block() {
    const DType t = p_.operands();
    q_tile_ = shared_tile(c_, "q_tile", t, p_.scores().a, 1, s_.rows(), depth_);
    k_tile_ = shared_tile(c_, "k_tile", t, p_.scores().b, s_.stages, s_.keys, depth_);
    v_tile_ = shared_tile(c_, "v_tile", t, p_.values().b, s_.stages, columns_, s_.keys);
    sums_ = fragment("sum", DType::f32, Operand::c, s_.warp_rows, columns_);
    most_ = per_row("most"), total_ = per_row("total");
    find_keys();
    Stmt main = main_loop();
    for (const Buffer& b : {q_tile_, k_tile_, v_tile_}) main = loop::alloc(b, main);
    Stmt all = loop::seq({start(), main, finish()});
    for (const Buffer& b : {sums_, most_, total_}) all = loop::alloc(b, all);
    return all;
  }

  // The steps of this block: from first_step_ on, those from first_masked_ on (both counted from 0) with a mask.
  void find_keys() {
    const AttentionProblem::Seen seen = p_.seen(first_row_, first_row_ + (s_.rows() - 1));
    steps_ = sym::ceildiv(seen.some, s_.keys), first_step_ = c_.constant(0);
    if (is_split()) {
      const Index each = sym::ceildiv(steps_, splits_);
      first_step_ = split_ * each;
      steps_ = sym::max(sym::min(each, steps_ - first_step_), 0);
    }
    ragged_ = !whole(p_.form().keys, s_.keys);
    masked_ = ragged_ || p_.form().visible;
    if (masked_) first_masked_ = sym::floordiv(seen.all, s_.keys) - first_step_;
  }

  // --- where a thread's registers are ---

  struct Place {
    Index warp, row, column;  // in the warp's tile
  };
  // Register e (of two neighbours of a row) of half h of instruction tile (i, j).
  Place place(Index th, Index i, Index h, Index j, Index e) const {
    return {sym::floordiv(th, 32), i * 16 + h * 8 + sym::floordiv(sym::mod(th, 32), 4), j * 8 + sym::mod(th, 4) * 2 + e};
  }
  struct Warp {
    Index row, keys;          // its first row of the block, which of the parts of the keys it has
  };
  Warp warp(Index w) const {
    const Indices at = unflatten(w, {c_.constant(s_.row_warps), c_.constant(s_.key_warps)});
    return {at[0] * s_.warp_rows, at[1]};
  }
  Index row_in_block(const Place& at) const { return warp(at.warp).row + at.row; }
  // All registers of a C fragment, row by row; `line` counts the thread's rows.
  Stmt each_row(const std::function<Stmt(Index i, Index h, Index line)>& body) {
    return unrolled(c_, "i", s_.warp_rows / 16, [&](Index i) { return unrolled(c_, "h", 2, [&](Index h) { return body(i, h, i * 2 + h); }); });
  }
  Stmt each_pair(int64_t columns, const std::function<Stmt(Index j, Index e)>& body) {
    return unrolled(c_, "j", columns / 8, [&](Index j) { return unrolled(c_, "e", 2, [&](Index e) { return body(j, e); }); });
  }
  static Expr at(const Buffer& fragment, const Place& p) { return loop::load(fragment, {p.warp, p.row, p.column}); }
  static Stmt set(const Buffer& fragment, const Place& p, const Expr& v) { return loop::store(fragment, {p.warp, p.row, p.column}, v); }

  Stmt start() {
    return each_thread([&](Index th) {
      return each_row([&](Index i, Index h, Index line) {
        return loop::seq({loop::store(most_, {th, line}, number(-rules::kInfinity)), loop::store(total_, {th, line}, number(0)),
                          each_pair(columns_, [&](Index j, Index e) { return set(sums_, place(th, i, h, j, e), number(0)); })});
      });
    });
  }

  // --- the main loop ---

  Stmt main_loop() {
    const int ahead = s_.stages - 1;
    scores_ = fragment("score", DType::f32, Operand::c, s_.warp_rows, warp_keys_);
    weights_ = fragment("weight", p_.operands(), Operand::a, s_.warp_rows, warp_keys_);
    a_ = fragment("fa", p_.operands(), Operand::a, s_.keep_queries ? s_.warp_rows : 2 * s_.warp_rows, s_.keep_queries ? depth_ : kDepth);
    b_ = fragment("fb", p_.operands(), Operand::b, kDepth, 2 * std::min(s_.columns, std::max(warp_keys_, columns_)));
    std::vector<Stmt> all{each_thread([&](Index th) { return fill_queries(th); })};
    for (int s = 0; s < ahead; ++s) all.push_back(fill_ahead(c_.constant(s), c_.constant(s)));
    if (s_.keep_queries) {
      add_arrival(all);
      all.push_back(each_warp([&](Index w) {
        const Region to{a_, {w, c_.constant(0), c_.constant(0)}, {c_.constant(1), c_.constant(s_.warp_rows), c_.constant(depth_)}};
        return loop::tile(TileOp::copy, {to, {q_tile_, {c_.constant(0), warp(w).row, c_.constant(0)}, to.extent}});
      }));
    }
    all.push_back(serial(c_, "step", steps_, [&](Index step) {
      const Index stage = sym::mod(step, s_.stages), later = step + ahead;
      std::vector<Stmt> one;
      add_arrival(one);
      one.push_back(fill_ahead(later, sym::mod(later, s_.stages)));
      one.push_back(each_thread([&](Index th) { return clear_scores(th); }));
      one.push_back(each_warp([&](Index w) { return multiply(score_parts(w, stage)); }));
      one.push_back(softmax(step));
      one.push_back(each_warp([&](Index w) { return multiply(value_parts(w, stage)); }));
      return loop::seq(one);
    }));
    all.push_back(each_thread([&](Index) { return loop::sync(SyncKind::wait); }));
    all.push_back(loop::sync(SyncKind::barrier));  // the tiles' memory is free
    Stmt r = loop::seq(all);
    for (const Buffer& b : {scores_, weights_, a_, b_}) r = loop::alloc(b, r);
    return r;
  }

  // The oldest step that is under way is there, for everybody; and everybody has read the one before.
  void add_arrival(std::vector<Stmt>& all) {
    all.push_back(each_thread([&](Index) { return loop::sync(SyncKind::wait, -1, s_.stages - 2); }));
    all.push_back(loop::sync(SyncKind::barrier));
  }

  Stmt fill_queries(Index th) {
    const bool exact_rows = whole(p_.rows(), s_.rows()), exact_depth = p_.form().depth.is_const(depth_);
    return fill_tile(c_, p_.scores(), p_.scores().a, {q_tile_, c_.constant(0), first_row_, c_.constant(0), s_.rows(), depth_, threads_, exact_rows, exact_depth}, score_batch_, th);
  }
  Stmt fill_ahead(Index step, Index stage) {
    return each_thread([&](Index th) {
      return loop::seq({where(sym::lt(step, steps_), [&] { return fill(step, stage, th); }), loop::sync(SyncKind::commit)});
    });
  }
  Stmt fill(Index step, Index stage, Index th) {
    const Index first_key = (first_step_ + step) * s_.keys, zero = c_.constant(0);
    const bool exact_depth = p_.form().depth.is_const(depth_), exact_columns = p_.form().columns.is_const(columns_);
    return loop::seq({fill_tile(c_, p_.scores(), p_.scores().b, {k_tile_, stage, first_key, zero, s_.keys, depth_, threads_, !ragged_, exact_depth}, score_batch_, th),
                      fill_tile(c_, p_.values(), p_.values().b, {v_tile_, stage, zero, first_key, columns_, s_.keys, threads_, exact_columns, !ragged_}, value_batch_, th)});
  }

  // A product in parts of one instruction's depth and s_.columns columns: while the instructions of one part run,
  // the fragments of the next are loaded.
  struct Part {
    Region sums, a, b;
    std::vector<Stmt> loads;
  };
  Stmt multiply(const std::vector<Part>& parts) {
    std::vector<Stmt> all = parts[0].loads;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i + 1 < parts.size()) all.insert(all.end(), parts[i + 1].loads.begin(), parts[i + 1].loads.end());
      all.push_back(loop::tile(TileOp::mma, {parts[i].sums, parts[i].a, parts[i].b}));
    }
    return loop::seq(all);
  }
  Region region(const Buffer& b, Index w, int64_t row, int64_t column, int64_t rows, int64_t columns) const {
    return {b, {w, c_.constant(row), c_.constant(column)}, {c_.constant(1), c_.constant(rows), c_.constant(columns)}};
  }
  Region part_of_b(Index w, size_t part, int64_t columns) const {
    return region(b_, w, 0, static_cast<int64_t>(part % 2) * (b_->shape[2].value() / 2), kDepth, columns);
  }

  std::vector<Part> score_parts(Index w, Index stage) const {
    std::vector<Part> parts;
    for (int64_t k = 0; k < depth_; k += kDepth)
      for (int64_t from = 0; from < warp_keys_; from += s_.columns) {
        const int64_t columns = std::min(s_.columns, warp_keys_ - from), at_k = k / kDepth;
        const Region a = s_.keep_queries ? region(a_, w, 0, k, s_.warp_rows, kDepth) : region(a_, w, at_k % 2 * s_.warp_rows, 0, s_.warp_rows, kDepth);
        Part part{region(scores_, w, 0, from, s_.warp_rows, columns), a, part_of_b(w, parts.size(), columns), {}};
        if (from == 0 && !s_.keep_queries) part.loads.push_back(loop::tile(TileOp::copy, {a, {q_tile_, {c_.constant(0), warp(w).row, c_.constant(k)}, a.extent}}));
        part.loads.push_back(loop::tile(TileOp::copy, {part.b, {k_tile_, {stage, c_.constant(k), warp(w).keys * warp_keys_ + from}, part.b.extent}}));
        parts.push_back(std::move(part));
      }
    return parts;
  }
  std::vector<Part> value_parts(Index w, Index stage) const {
    std::vector<Part> parts;
    for (int64_t k = 0; k < warp_keys_; k += kDepth)
      for (int64_t from = 0; from < columns_; from += s_.columns) {
        const int64_t columns = std::min(s_.columns, columns_ - from);
        Part part{region(sums_, w, 0, from, s_.warp_rows, columns), region(weights_, w, 0, k, s_.warp_rows, kDepth), part_of_b(w, parts.size(), columns), {}};
        part.loads.push_back(loop::tile(TileOp::copy, {part.b, {v_tile_, {stage, warp(w).keys * warp_keys_ + k, c_.constant(from)}, part.b.extent}}));
        parts.push_back(std::move(part));
      }
    return parts;
  }

  Stmt clear_scores(Index th) {
    return each_row([&](Index i, Index h, Index) {
      return each_pair(warp_keys_, [&](Index j, Index e) { return set(scores_, place(th, i, h, j, e), number(0)); });
    });
  }

  // --- scores become weights ---

  Stmt softmax(Index step) {
    const Buffer greatest = per_row("greatest"), shrink = per_row("shrink"), shift = per_row("shift");
    std::vector<Stmt> all;
    if (!p_.plain()) all.push_back(each_thread([&](Index th) { return logits(th, step); }));
    if (masked_) all.push_back(where(sym::le(first_masked_, step), [&] { return each_thread([&](Index th) { return mask(th, step); }); }));
    all.push_back(each_thread([&](Index th) {
      return each_row([&](Index i, Index h, Index line) {
        const auto take = [&](Index j, Index e) {
          return loop::store(greatest, {th, line}, loop::max(loop::load(greatest, {th, line}), at(scores_, place(th, i, h, j, e))));
        };
        return loop::seq({loop::store(greatest, {th, line}, loop::load(most_, {th, line})), each_pair(warp_keys_, take)});
      });
    }));
    const Region lines{greatest, {c_.constant(0), c_.constant(0)}, {c_.constant(threads_), c_.constant(lanes_)}};
    all.push_back(loop::tile(TileOp::reduce_max, {lines, lines}, -1, 4));
    all.push_back(each_thread([&](Index th) { return each_row([&](Index i, Index h, Index line) { return weigh_row(th, i, h, line, greatest, shrink, shift); }); }));
    Stmt r = loop::seq(all);
    for (const Buffer& b : {greatest, shrink, shift}) r = loop::alloc(b, r);
    return r;
  }

  // exp(s - m) = 2^(s * unit - m * unit).
  Stmt weigh_row(Index th, Index i, Index h, Index line, const Buffer& greatest, const Buffer& shrink, const Buffer& shift) {
    const Indices own = {th, line};
    const Expr m = loop::load(greatest, own), unit = number(p_.unit());
    std::vector<Stmt> all;
    all.push_back(loop::store(shift, own, (p_.may_be_blind() ? shift_of(m) : m) * number(-p_.unit())));
    all.push_back(loop::store(shrink, own, weight(loop::fma(loop::load(most_, own), unit, loop::load(shift, own)))));
    all.push_back(loop::store(most_, own, m));
    all.push_back(loop::store(total_, own, loop::load(total_, own) * loop::load(shrink, own)));
    all.push_back(each_pair(columns_, [&](Index j, Index e) {
      const Place p = place(th, i, h, j, e);
      return set(sums_, p, at(sums_, p) * loop::load(shrink, own));
    }));
    all.push_back(each_pair(warp_keys_, [&](Index j, Index e) {
      const Place p = place(th, i, h, j, e);
      return loop::seq({set(scores_, p, weight(loop::fma(at(scores_, p), unit, loop::load(shift, own)))),
                        loop::store(total_, own, loop::load(total_, own) + at(scores_, p)),
                        set(weights_, p, loop::cast(at(scores_, p), p_.operands()))});
    }));
    return loop::seq(all);
  }

  Index key_at(const Place& p, Index step) const { return (first_step_ + step) * s_.keys + warp(p.warp).keys * warp_keys_ + p.column; }
  Index row_at(const Place& p) const { return first_row_ + row_in_block(p); }

  Stmt logits(Index th, Index step) {
    return each_row([&](Index i, Index h, Index) {
      return unrolled(c_, "j", warp_keys_ / 8, [&](Index j) {
        return vector(c_, "e", 2, [&](Index e) {
          const Place p = place(th, i, h, j, e);
          return set(scores_, p, p_.logit(at(scores_, p), batch_index_, row_at(p), key_at(p, step)));
        });
      });
    });
  }
  // Keys that are beyond the end, and those that the form hides (which logits() has done where it ran).
  Stmt mask(Index th, Index step) {
    return each_row([&](Index i, Index h, Index) {
      return each_pair(warp_keys_, [&](Index j, Index e) {
        const Place p = place(th, i, h, j, e);
        const Index key = key_at(p, step);
        Index seen = ragged_ ? sym::lt(key, p_.form().keys) : c_.constant(1);
        if (p_.form().visible && p_.plain()) {
          sym::Map m = p_.place(batch_index_, row_at(p));
          m[p_.form().key] = key;
          seen = sym::logical_and(seen, sym::substitute(p_.form().visible, m));
        }
        return set(scores_, p, loop::select(loop::from_index(DType::b1, seen), at(scores_, p), number(-rules::kInfinity)));
      });
    });
  }

  // --- the end of a block ---

  // Results meet in shared memory: rows are stored 16 bytes at once.
  Stmt finish() {
    const bool one = s_.key_warps == 1 && !is_split();
    const DType t = one ? p_.form().result->dtype : DType::f32;
    lines_ = loop::make_buffer("lines", t, {c_.constant(s_.key_warps), c_.constant(s_.rows()), c_.constant(columns_ + 8)}, Scope::shared);
    const Buffer sum = per_row("row_total");
    const auto lines = [&](const Buffer& b) { return Region{b, {c_.constant(0), c_.constant(0)}, {c_.constant(threads_), c_.constant(lanes_)}}; };
    std::vector<Stmt> all{loop::tile(TileOp::reduce_sum, {lines(sum), lines(total_)}, -1, 4)};
    if (one) {
      all.push_back(each_thread([&](Index th) { return put(th, [&](Index line) { return inverse(loop::load(sum, {th, line})); }); }));
      all.push_back(loop::sync(SyncKind::barrier));
      all.push_back(each_thread([&](Index th) {
        return each_run(th, width(p_.form().result->dtype), [&](Index row, Index column) {
          return p_.store(batch_index_, first_row_ + row, column, loop::load(lines_, {c_.constant(0), row, column}));
        });
      }));
      return loop::alloc(sum, loop::alloc(lines_, loop::seq(all)));
    }
    const auto per_line = [&](const char* name) { return loop::make_buffer(name, DType::f32, {c_.constant(s_.key_warps), c_.constant(s_.rows())}, Scope::shared); };
    const Buffer maxima = per_line("maxima"), totals = per_line("totals");
    all.push_back(each_thread([&](Index th) {
      return loop::seq({put(th, nullptr), where(sym::eq(sym::mod(th, 4), 0), [&] {
                          return each_row([&](Index i, Index h, Index line) {
                            const Place p = place(th, i, h, c_.constant(0), c_.constant(0));
                            const Indices to = {warp(p.warp).keys, row_in_block(p)};
                            return loop::seq({loop::store(maxima, to, loop::load(most_, {th, line})), loop::store(totals, to, loop::load(sum, {th, line}))});
                          });
                        })});
    }));
    all.push_back(loop::sync(SyncKind::barrier));
    all.push_back(each_thread([&](Index th) { return combine(th, maxima, totals); }));
    Stmt r = loop::seq(all);
    for (const Buffer& b : {sum, lines_, maxima, totals}) r = loop::alloc(b, r);
    return r;
  }

  static Expr inverse(const Expr& total) { return number(1) / loop::select(loop::eq(total, number(0)), number(1), total); }

  Stmt put(Index th, const std::function<Expr(Index line)>& factor) {
    const Buffer by = per_row("factor");
    const Stmt stores = each_row([&](Index i, Index h, Index line) {
      const Stmt pairs = unrolled(c_, "j", columns_ / 8, [&](Index j) {
        return vector(c_, "e", 2, [&](Index e) {
          const Place p = place(th, i, h, j, e);
          const Expr v = factor ? at(sums_, p) * loop::load(by, {th, line}) : at(sums_, p);
          return loop::store(lines_, {warp(p.warp).keys, row_in_block(p), p.column}, loop::cast(v, lines_->dtype));
        });
      });
      return factor ? loop::seq({loop::store(by, {th, line}, factor(line)), pairs}) : pairs;
    });
    return factor ? loop::alloc(by, stores) : stores;
  }

  // Elements of a row of results that a thread stores at once.
  int64_t width(DType t) const {
    int64_t w = 128 / info(t).bits;
    while (w > 1 && p_.form().columns.value() % w != 0) w /= 2;
    return w;
  }
  // Thread th's share of the block's results, in runs of w.
  Stmt each_run(Index th, int64_t w, const std::function<Stmt(Index row, Index column)>& body) {
    const int64_t across = p_.form().columns.value() / w, total = s_.rows() * across;
    std::vector<Stmt> all;
    const auto one = [&](Index flat) {
      const Index row = sym::floordiv(flat, across), column = sym::mod(flat, across) * w;
      const auto run = [&] { return w == 1 ? body(row, column) : vector(c_, "v", w, [&](Index v) { return body(row, column + v); }); };
      return whole(p_.rows(), s_.rows()) ? run() : where(sym::lt(first_row_ + row, p_.rows()), run);
    };
    if (total % threads_ == 0) return unrolled(c_, "q", total / threads_, [&](Index q) { return one(th + q * threads_); });
    return serial(c_, "q", c_.constant((total + threads_ - 1) / threads_), [&](Index q) {
      const Index flat = th + q * threads_;
      return where(sym::lt(flat, total), [&] { return one(flat); });
    });
  }

  // What the warps of a row found, in order: the result, or the part of this split.
  Stmt combine(Index th, const Buffer& maxima, const Buffer& totals) {
    const Buffer m = loop::make_buffer("row_most", DType::f32, {c_.constant(1)}, Scope::reg), shift = loop::make_buffer("row_shift", DType::f32, {c_.constant(1)}, Scope::reg);
    const Index zero = c_.constant(0);
    const auto of_row = [&](Index row, const std::function<Stmt(const std::function<Expr(int64_t)>&, const Expr&)>& body) {
      Expr most = loop::load(maxima, {zero, row});
      for (int64_t k = 1; k < s_.key_warps; ++k) most = loop::max(most, loop::load(maxima, {c_.constant(k), row}));
      const auto factor = [&](int64_t k) { return weight(loop::fma(loop::load(maxima, {c_.constant(k), row}), number(p_.unit()), loop::load(shift, {zero}))); };
      Expr sum = loop::load(totals, {zero, row}) * factor(0);
      for (int64_t k = 1; k < s_.key_warps; ++k) sum = loop::fma(loop::load(totals, {c_.constant(k), row}), factor(k), sum);
      return loop::seq({loop::store(m, {zero}, most), loop::store(shift, {zero}, shift_of(loop::load(m, {zero})) * number(-p_.unit())), body(factor, sum)});
    };
    const auto value = [&](const std::function<Expr(int64_t)>& factor, Index row, Index column) {
      Expr v = loop::load(lines_, {zero, row, column}) * factor(0);
      for (int64_t k = 1; k < s_.key_warps; ++k) v = loop::fma(loop::load(lines_, {c_.constant(k), row, column}), factor(k), v);
      return v;
    };
    const Stmt results = each_run(th, 1, [&](Index row, Index column) {
      return of_row(row, [&](const auto& factor, const Expr& sum) {
        const Expr v = value(factor, row, column);
        if (!is_split()) return p_.store(batch_index_, first_row_ + row, column, v * inverse(sum));
        const Indices to = {split_, batch_index_, first_row_ + row};
        Indices element = to;
        element.push_back(column);
        return loop::seq({loop::store(parts_.sums, element, v), where(sym::eq(column, 0), [&] {
                            return loop::seq({loop::store(parts_.maxima, to, loop::load(m, {zero})), loop::store(parts_.totals, to, sum)});
                          })});
      });
    });
    return loop::alloc(m, loop::alloc(shift, results));
  }

  const AttentionProblem& p_;
  const AttentionShape s_;
  const Index splits_;
  sym::Context& c_;
  const int64_t threads_;
  int64_t depth_, columns_, warp_keys_, lanes_;  // padded; keys of a warp in a step; rows that a thread has parts of
  bool ragged_ = false, masked_ = false;
  Index batch_index_, split_, first_row_, steps_, first_step_, first_masked_;
  sym::Map score_batch_, value_batch_;
  Buffer q_tile_, k_tile_, v_tile_, sums_, most_, total_, scores_, weights_, a_, b_, lines_;
  AttentionParts parts_;
};

}  // namespace

AttentionKernels attention_kernels(const AttentionProblem& p, const AttentionVariant& v, sym::Context& c) {
  return AttentionKernel(p, v, c).build();
}

}  // namespace tripod::cuda
