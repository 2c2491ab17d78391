// GEMM and convolution: register tiles of rows x columns over packed column panels.
//
//   pad      (only for a guarded operand)  A with its padding written out, channels innermost
//   pack     (only where B is not a constant)  panels Bp[batch, column/NR, k, column%NR], zero-filled
//   task     parallel over batch x row blocks x panel blocks; in each, panels outside, row tiles inside, so that a
//            panel stays in cache while the row tiles pass over it. A long k is cut into blocks, outermost, whose part
//            of a panel fits L1; sums wait in the thread's scratch memory between blocks.
//   tile     acc[MR, NR] in registers; k innermost; MR broadcasts of A times NR lanes of B; then the epilogue
//
// A constant B is packed at compile time: the parameter takes the panel layout. Rows beyond the end repeat the last
// one (their results are dropped), columns beyond the end are zero in the panels. Every sum runs over k in one fixed
// order, in chains of about kChain products, whatever the tile and the number of threads.
#include <algorithm>

#include "rules/contraction.h"
#include "backends/cpu/rules/operands.h"
#include "backends/cpu/rules/prepare.h"
#include "backends/cpu/rules/rules.h"

namespace tripod::cpu {

using loop::Iter;
using loop::Op;
using loop::Scope;

namespace {

class Tiler {
 public:
  Tiler(const loop::Function& f, Contraction k, sym::Context& c, const CpuTarget& t)
      : f_(f), k_(std::move(k)), c_(c), target_(t), nr_(panel_width(t)) {}

  RuleResult run() {
    sort_reduce();
    unguard_a();
    if (!pack_constant_b()) pack_dynamic_b();
    merge_reduce(k_, c_);
    choose_blocks();
    stages_.push_back(tasks());
    Stmt body = loop::seq(stages_);
    for (const Buffer& b : workspace_) body = loop::alloc(b, body);
    loop::Function r = f_;
    r.body = body;
    for (auto& [from, to] : replaced_) std::replace(r.params.begin(), r.params.end(), from, to);
    return {{true, ""}, r};
  }

 private:
  // Half a panel's width where that leaves out much padding (8, 24, 40 output channels); then twice the rows.
  int64_t panel_width(const CpuTarget& t) const {
    const int64_t full = t.tile_columns(), n = k_.column.extent.constant().value_or(full);
    return n <= full * 5 / 2 && (n + full / 2 - 1) / (full / 2) % 2 == 1 ? full / 2 : full;
  }
  Index extent(const std::vector<Iter>& is) {
    Index n = c_.constant(1);
    for (const Iter& i : is) n = n * i.extent;
    return n;
  }
  static Indices extents(const std::vector<Iter>& is) {
    Indices r;
    for (const Iter& i : is) r.push_back(i.extent);
    return r;
  }
  static void bind(sym::Map& m, const std::vector<Iter>& is, const Indices& values) {
    for (size_t d = 0; d < is.size(); ++d) m[is[d].var] = values[d];
  }

  void sort_reduce() {
    const Expr load = only_load(k_.a);
    if (!load) return;
    order_reduce(k_, is_guarded(load) && is_padding(k_, load, c_) ? padded(load).buffer : load->buffer, load->indices, c_);
  }

  // A's padding written out.
  const PaddedCopy& padded(const Expr& load) {
    if (!padded_.buffer) padded_ = padded_copy(k_, load, k_.rows, c_);
    return padded_;
  }

  void unguard_a() {
    const Expr load = only_load(k_.a);
    if (!load || !is_guarded(load) || !is_padding(k_, load, c_)) return;
    const PaddedCopy& p = padded(load);
    stages_.push_back(pad_stage(c_, load, p.buffer, p.order, p.low, target_));
    workspace_.push_back(p.buffer);
    Indices at;
    for (size_t d = 0; d < load->indices.size(); ++d) at.push_back(load->indices[d] - p.low[d]);
    k_.a = replace_load(k_.a, load, loop::load(p.buffer, at));
  }

  // The parameter takes the layout [batch dims, column/NR, reduce dims, column%NR], its column dim rounded up to NR.
  bool pack_constant_b() {
    const Expr load = only_load(k_.b);
    if (!load || load->buffer->scope != Scope::constant || load->guard || !load->buffer->layout.is_row_major()) return false;
    const Buffer& w = load->buffer;
    int column = -1;
    for (int d = 0; d < w->rank(); ++d)
      if (load->indices[d] == k_.column.var) column = d;
    if (column < 0 || !w->shape[column].is_const()) return false;
    std::vector<int> outer, inner;
    for (int d = 0; d < w->rank(); ++d) {
      if (d == column) continue;
      const bool reduces = std::any_of(k_.reduce.begin(), k_.reduce.end(), [&](const Iter& i) { return sym::uses(load->indices[d], i.var); });
      (reduces ? inner : outer).push_back(d);
    }
    const auto place = [&](int d) {  // position of the reduce iterator that indexes dim d
      for (size_t r = 0; r < k_.reduce.size(); ++r)
        if (sym::uses(load->indices[d], k_.reduce[r].var)) return r;
      return k_.reduce.size();
    };
    std::stable_sort(inner.begin(), inner.end(), [&](int x, int y) { return place(x) < place(y); });
    Indices shape = w->shape;
    shape[column] = sym::ceildiv(shape[column], nr_) * nr_;
    loop::Layout layout;
    for (int d = 0; d < w->rank(); ++d) layout.args.push_back(loop_var(c_, "p", shape[d]));
    const auto add = [&](Index map, Index size) { layout.map.push_back(map), layout.extents.push_back(size); };
    for (int d : outer) add(layout.args[d], shape[d]);
    add(sym::floordiv(layout.args[column], nr_), sym::floordiv(shape[column], nr_));
    for (int d : inner) add(layout.args[d], shape[d]);
    add(sym::mod(layout.args[column], nr_), c_.constant(nr_));
    const Buffer packed = loop::make_buffer(w->name, w->dtype, shape, Scope::constant, layout);
    for (const Contraction::Epilogue& e : k_.epilogue)  // one parameter, one layout
      if (reads(e.value, w)) return false;
    if (reads(k_.a, w)) return false;
    replaced_.push_back({w, packed});
    k_.b = replace_load(k_.b, load, loop::load(packed, load->indices));
    return true;
  }
  static bool reads(const Expr& e, const Buffer& b) {
    bool found = false;
    loop::visit(e, [&](const Expr& x) { found = found || (x->op == Op::load && x->buffer == b); });
    return found;
  }

  void pack_dynamic_b() {
    const Index panels = sym::ceildiv(k_.column.extent, nr_), depth = extent(k_.reduce), batch = extent(k_.batch);
    const Buffer bp = loop::make_buffer(k_.name + "_packed", k_.b->dtype, {batch, panels, depth, c_.constant(nr_)}, Scope::global);
    stages_.push_back(parallel(c_, "panel", batch * panels, 1, [&](Index p) {
      return serial(c_, "k", depth, [&](Index kk) {
        const auto column = [&](bool whole) {
          return vector(c_, "j", nr_, [&](Index j) {
            sym::Map m;
            bind(m, k_.batch, unflatten(sym::floordiv(p, panels), extents(k_.batch)));
            bind(m, k_.reduce, unflatten(kk, extents(k_.reduce)));
            const Index col = sym::mod(p, panels) * nr_ + j;
            m[k_.column.var] = col;
            Expr v = loop::substitute(k_.b, m);
            if (!whole) v = guard_loads(v, sym::lt(col, k_.column.extent));
            return loop::store(bp, {sym::floordiv(p, panels), sym::mod(p, panels), kk, j}, v);
          });
        };
        const Index fits = sym::le(sym::mod(p, panels) * nr_ + nr_, k_.column.extent);
        if (sym::mod(k_.column.extent, nr_).is_const(0)) return column(true);
        return loop::branch(loop::from_index(DType::b1, fits), column(true), column(false));
      });
    }));
    workspace_.push_back(bp);
    Index kk = c_.constant(0), b = c_.constant(0);
    for (const Iter& i : k_.reduce) kk = kk * i.extent + i.var;
    for (const Iter& i : k_.batch) b = b * i.extent + i.var;
    k_.b = loop::load(bp, {b, sym::floordiv(k_.column.var, nr_), kk, sym::mod(k_.column.var, nr_)});
  }

  // Row tiles a task: as many as keep their part of A in half of L2, and panels: enough tasks for several threads.
  void choose_blocks() {
    rows_ = extent(k_.rows), batch_ = extent(k_.batch);
    mr_ = target_.tile_rows() * target_.tile_columns() / nr_;
    if (auto m = rows_.constant()) mr_ = std::min<int64_t>(mr_, std::max<int64_t>(*m, 1));
    tiles_ = sym::ceildiv(rows_, mr_);
    panels_ = sym::ceildiv(k_.column.extent, nr_);
    // What a row of A takes in cache: the windows of neighbouring pixels overlap, only channels count.
    const int64_t depth = k_.reduce.empty() ? 1 : k_.reduce.back().extent.constant().value_or(512);
    if (k_.reduce.size() == 1 && depth > kLongestBlock * 3 / 2) {
      // The longest block that divides k, if there is one.
      k_block_ = kLongestBlock;
      for (int64_t b = kLongestBlock; depth % k_block_ != 0 && b >= kLongestBlock * 2 / 3; b -= 4)
        if (depth % b == 0) k_block_ = b;
      k_blocks_ = (depth + k_block_ - 1) / k_block_;
    }
    const int64_t in_cache = k_blocks_ > 1 ? k_block_ : depth;
    tiles_a_task_ = std::clamp<int64_t>(target_.l2_bytes / 2 / std::max<int64_t>(1, in_cache * mr_ * 4), 1, 48);
    if (auto n = tiles_.constant()) tiles_a_task_ = std::min(tiles_a_task_, std::max<int64_t>(*n, 1));
    const int64_t panels = std::max<int64_t>(1, panels_.constant().value_or(8));  // there may be no columns
    const int64_t row_blocks = sym::ceildiv(tiles_, tiles_a_task_).constant().value_or(4);
    const int64_t parts = std::clamp<int64_t>((8 + row_blocks - 1) / std::max<int64_t>(row_blocks, 1), 1, panels);
    panels_a_task_ = (panels + parts - 1) / parts;
  }

  Stmt tasks() {
    const Index row_blocks = sym::ceildiv(tiles_, tiles_a_task_), column_blocks = sym::ceildiv(panels_, panels_a_task_);
    return parallel(c_, "task", batch_ * row_blocks * column_blocks, 1, [&](Index t) {
      const Index column_block = sym::mod(t, column_blocks), rest = sym::floordiv(t, column_blocks);
      const Index row_block = sym::mod(rest, row_blocks), batch = sym::floordiv(rest, row_blocks);
      const Index first_panel = column_block * panels_a_task_, first_tile = row_block * tiles_a_task_;
      const auto tiles = [&](const Buffer& waiting, Index block) {
        return serial(c_, "panel", sym::min(c_.constant(panels_a_task_), panels_ - first_panel), [&](Index p) {
          return serial(c_, "tile", sym::min(c_.constant(tiles_a_task_), tiles_ - first_tile), [&](Index i) {
            return tile(batch, first_panel + p, first_tile + i, {waiting, p, i, block});
          });
        });
      };
      if (k_blocks_ == 1) return tiles(nullptr, {});
      const Buffer waiting = loop::make_buffer("waiting", k_.dtype, {c_.constant(panels_a_task_), c_.constant(tiles_a_task_), c_.constant(mr_), c_.constant(nr_)}, Scope::local);
      return loop::alloc(waiting, serial(c_, "block", c_.constant(k_blocks_), [&](Index b) { return tiles(waiting, b); }));
    });
  }

  // Where the sums of a tile wait between blocks of k; no buffer: there is one block only.
  struct Block {
    Buffer waiting;
    Index panel, tile, number;
  };
  using Element = std::function<Expr(Index, Index)>;  // of a tile
  using AtK = std::function<Stmt(const sym::Map&)>;

  // A long sum is made of chains of about kChain products, which are added up: the error of one chain grows with its
  // length. A chain runs over `step` iterations of one reduce iterator and over all iterators inside that one.
  struct Chains {
    size_t at = SIZE_MAX;  // the iterator that is cut; SIZE_MAX: the sum is one chain
    int64_t step = 1;
  };
  Chains chains() const {
    if (!is_float(k_.dtype) || k_.dtype == DType::f64) return {};
    int64_t inside = 1;
    for (size_t d = k_.reduce.size(); d-- > 0;) {
      const auto extent = k_.reduce[d].extent.constant();
      if (extent && inside * *extent <= kChain * 3 / 2) {
        inside *= *extent;
        continue;
      }
      const int64_t step = std::max<int64_t>(1, kChain / inside), whole = k_blocks_ > 1 ? k_block_ : extent.value_or(step);
      const int64_t parts = (whole + step - 1) / step;  // of nearly equal length
      return {d, (whole + parts - 1) / parts};
    }
    return {};
  }

  Stmt tile(Index batch, Index panel, Index row_tile, const Block& block) {
    const Buffer acc = loop::make_buffer("acc", k_.dtype, {c_.constant(mr_), c_.constant(nr_)}, Scope::reg);
    sym::Map base;
    bind(base, k_.batch, unflatten(batch, extents(k_.batch)));
    const auto each = [&](const std::function<Stmt(Index, Index)>& f) {
      return unrolled(c_, "i", mr_, [&](Index i) { return vector(c_, "j", nr_, [&](Index j) { return f(i, j); }); });
    };
    const Stmt clear = each([&](Index i, Index j) { return loop::store(acc, {i, j}, loop::constant(k_.dtype, 0)); });
    const Element sum = [&](Index i, Index j) { return loop::load(acc, {i, j}); };
    const AtK multiply = [&](const sym::Map& at) {
      return each([&](Index i, Index j) {
        sym::Map m = at;
        m[k_.column.var] = panel * nr_ + j;
        const Index row = row_tile * mr_ + i;
        const bool whole = sym::mod(rows_, mr_).is_const(0);
        bind(m, k_.rows, unflatten(whole ? row : sym::min(row, rows_ - 1), extents(k_.rows)));
        const Expr a = loop::substitute(k_.a, m), b = loop::substitute(k_.b, m), old = sum(i, j);
        return loop::store(acc, {i, j}, is_float(k_.dtype) ? loop::fma(a, b, old) : old + a * b);
      });
    };
    Chains cut = chains();
    if (cut.at == SIZE_MAX && block.waiting) cut = {0, k_block_};
    if (cut.at == SIZE_MAX) return loop::alloc(acc, loop::seq({clear, reduce_loops(0, base, multiply), finish(sum, base, panel, row_tile)}));

    const Buffer total = block.waiting ? block.waiting : loop::make_buffer("total", k_.dtype, {c_.constant(mr_), c_.constant(nr_)}, Scope::local);
    const auto at = [&](Index i, Index j) { return block.waiting ? Indices{block.panel, block.tile, i, j} : Indices{i, j}; };
    const Element total_sum = [&](Index i, Index j) { return loop::load(total, at(i, j)); };
    const Stmt set = each([&](Index i, Index j) { return loop::store(total, at(i, j), sum(i, j)); });
    const Stmt add = each([&](Index i, Index j) { return loop::store(total, at(i, j), total_sum(i, j) + sum(i, j)); });
    const bool may_be_empty = std::any_of(k_.reduce.begin(), k_.reduce.end(), [&](const Iter& i) { return !sym::proved(sym::le(c_.constant(1), i.extent)); });
    const Index first = may_be_empty ? c_.constant(0) : block.waiting ? sym::eq(block.number, 0) : c_.constant(1);
    Stmt chained = chain_loops(0, base, block, cut, first, [&](const Stmt& products, Index is_first) {
      const Stmt keep = may_be_empty ? add : loop::branch(loop::from_index(DType::b1, is_first), set, add);
      return loop::alloc(acc, loop::seq({clear, products, keep}));
    }, multiply);
    if (may_be_empty) chained = loop::seq({each([&](Index i, Index j) { return loop::store(total, at(i, j), loop::constant(k_.dtype, 0)); }), chained});
    const Stmt done = finish(total_sum, base, panel, row_tile);
    if (!block.waiting) return loop::alloc(total, loop::seq({chained, done}));
    return loop::seq({chained, loop::branch(loop::from_index(DType::b1, sym::eq(block.number, k_blocks_ - 1)), done)});
  }

  // The loops outside the chains and over the parts of the iterator that is cut; one_chain gets the loops of a chain and
  // whether it is a sum's first.
  Stmt chain_loops(size_t d, const sym::Map& m, const Block& block, const Chains& cut, Index first,
                   const std::function<Stmt(const Stmt&, Index)>& one_chain, const AtK& body) {
    const auto with = [&](const sym::Map& from, Index v) {
      sym::Map r = from;
      r[k_.reduce[d].var] = v;
      return r;
    };
    const Index extent = k_.reduce[d].extent;
    if (d < cut.at)
      return serial(c_, "k", extent, [&](Index v) {
        return chain_loops(d + 1, with(m, v), block, cut, sym::logical_and(first, sym::eq(v, 0)), one_chain, body);
      });
    const Index from = block.waiting ? block.number * k_block_ : c_.constant(0);
    const bool whole = !block.waiting || k_block_ * k_blocks_ == extent.value();
    const Index count = !block.waiting ? extent : whole ? c_.constant(k_block_) : sym::min(c_.constant(k_block_), extent - from);
    return serial(c_, "chain", sym::ceildiv(count, cut.step), [&](Index part) {
      const Index start = part * cut.step;
      const Index steps = sym::mod(count, cut.step).is_const(0) ? c_.constant(cut.step) : sym::min(c_.constant(cut.step), count - start);
      const auto step = [&](Index k) { return reduce_loops(d + 1, with(m, from + start + k), body); };
      const bool innermost = d + 1 == k_.reduce.size();
      return one_chain(innermost ? unrolled_by(c_, "k", steps, 4, step) : serial(c_, "k", steps, step), sym::logical_and(first, sym::eq(part, 0)));
    });
  }

  // The reduce loops from d on, the innermost unrolled by four.
  Stmt reduce_loops(size_t d, const sym::Map& m, const AtK& body) {
    if (d == k_.reduce.size()) return body(m);
    const auto step = [&](Index v) {
      sym::Map inner = m;
      inner[k_.reduce[d].var] = v;
      return reduce_loops(d + 1, inner, body);
    };
    if (d + 1 == k_.reduce.size()) return unrolled_by(c_, "k", k_.reduce[d].extent, 4, step);
    return serial(c_, "k", k_.reduce[d].extent, step);
  }

  Stmt finish(const Element& sum, const sym::Map& base, Index panel, Index row_tile) {
    const auto rows = [&](bool whole_panel) {
      return unrolled(c_, "i", mr_, [&](Index i) {
        const Index row = row_tile * mr_ + i;
        return where(sym::lt(row, rows_), [&] {
          return vector(c_, "j", nr_, [&](Index j) {
            sym::Map m = base;
            bind(m, k_.rows, unflatten(row, extents(k_.rows)));
            const Index column = panel * nr_ + j;
            m[k_.column.var] = column;
            std::vector<Stmt> stores;
            for (const Contraction::Epilogue& e : k_.epilogue) {
              Indices at;
              for (const Index& x : e.at) at.push_back(sym::substitute(x, m));
              Expr v = epilogue_value(k_, e, m, sum(i, j));
              const Index inside = sym::lt(column, k_.column.extent);
              if (!whole_panel) v = guard_loads(v, inside);
              stores.push_back(loop::store(e.target, at, v, whole_panel ? Index() : inside));
            }
            return loop::seq(stores);
          });
        });
      });
    };
    if (sym::mod(k_.column.extent, nr_).is_const(0)) return rows(true);
    const Index fits = sym::le(panel * nr_ + nr_, k_.column.extent);
    return loop::branch(loop::from_index(DType::b1, fits), rows(true), rows(false));
  }

  const loop::Function& f_;
  Contraction k_;
  sym::Context& c_;
  const CpuTarget& target_;
  const int64_t nr_;
  static constexpr int64_t kLongestBlock = 384;  // of k: 24 KB of a panel
  int64_t mr_ = 1, tiles_a_task_ = 1, panels_a_task_ = 1, k_block_ = 0, k_blocks_ = 1;
  Index rows_, batch_, tiles_, panels_;
  PaddedCopy padded_;
  std::vector<Buffer> workspace_;
  std::vector<Stmt> stages_;
  std::vector<std::pair<Buffer, Buffer>> replaced_;
};

}  // namespace

RuleResult contraction(const loop::Function& f, sym::Context& c, const CpuTarget& target) {
  std::string why;
  const loop::Function inlined = inline_elementwise(f, c);
  auto k = match_contraction(inlined, c, &why);
  if (!k) return {loop::not_applicable(why), {}};
  return Tiler(inlined, std::move(*k), c, target).run();
}

}  // namespace tripod::cpu
