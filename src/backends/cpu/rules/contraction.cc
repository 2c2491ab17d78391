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
// order, whatever the tile and the number of threads.
#include <algorithm>

#include "rules/contraction.h"
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
      : f_(f), k_(std::move(k)), c_(c), target_(t), nr_(t.tile_columns()) {}

  RuleResult run() {
    order_reduce();
    unguard_a();
    if (!pack_constant_b()) pack_dynamic_b();
    merge_reduce();
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

  // The load of a parameter in an operand, where it is the only one.
  static Expr only_load(const Expr& e) {
    Expr found;
    bool several = false;
    loop::visit(e, [&](const Expr& x) {
      if (x->op != Op::load || x->indices.empty()) return;
      several = several || (found && !(found == x));
      found = x;
    });
    return several ? Expr() : found;
  }

  // The reduce iterator along which A is contiguous goes innermost; adjacent ones that A walks as one are fused.
  void order_reduce() {
    const Expr load = only_load(k_.a);
    if (!load) return;
    const Buffer seen = guarded(load) && is_padding(load) ? padded_buffer(load) : load->buffer;
    const Index at = loop::offset(c_, seen, load->indices);
    std::stable_sort(k_.reduce.begin(), k_.reduce.end(), [&](const Iter& x, const Iter& y) { return step(at, x) > step(at, y); });
  }
  static int64_t step(Index at, const Iter& i) {
    const auto linear = sym::linear_in(at, i.var);
    if (!linear) return INT64_MAX;
    return linear->coefficient.constant().value_or(INT64_MAX - 1);
  }
  // Neighbouring reduce iterators become one where both operands walk them as one (kernel columns and channels of a
  // first layer): fewer, longer loops.
  void merge_reduce() {
    for (size_t d = k_.reduce.size(); d-- > 1;) {
      const Iter outer = k_.reduce[d - 1], inner = k_.reduce[d];
      const Index joint = loop_var(c_, "k", outer.extent * inner.extent);
      const sym::Map m = {{outer.var, sym::floordiv(joint, inner.extent)}, {inner.var, sym::mod(joint, inner.extent)}};
      const auto walks = [&](const Expr& e) {
        if (e->op != Op::load || e->guard) return false;
        const Index at = loop::offset(c_, e->buffer, e->indices);
        const auto joined = sym::linear_in(sym::substitute(at, m), joint), before = sym::linear_in(at, inner.var);
        return joined && before && joined->coefficient == before->coefficient;
      };
      if (!walks(k_.a) || !walks(k_.b)) continue;
      k_.a = loop::substitute(k_.a, m), k_.b = loop::substitute(k_.b, m);
      k_.reduce.erase(k_.reduce.begin() + static_cast<long>(d));
      k_.reduce[d - 1] = {joint, outer.extent * inner.extent, true, {}};
    }
  }

  bool guarded(const Expr& load) const { return load->guard && !sym::proved(load->guard); }

  // The guard only says that the index is inside the buffer, and the index grows with every iterator: then the load
  // reads a padded copy. (A transposed convolution's guard also asks for divisibility.)
  bool is_padding(const Expr& load) const {
    std::vector<const Iter*> all = {&k_.column};
    for (const auto* is : {&k_.batch, &k_.rows, &k_.reduce})
      for (const Iter& i : *is) all.push_back(&i);
    std::vector<Index> bounds;
    for (size_t d = 0; d < load->indices.size(); ++d) {
      const Index at = load->indices[d];
      for (const Iter* i : all) {
        const auto l = sym::linear_in(at, i->var);
        if (!l || !l->coefficient.is_const() || l->coefficient.value() < 0) return false;
      }
      bounds.push_back(sym::le(c_.constant(0), at));
      bounds.push_back(sym::lt(at, load->buffer->shape[d]));
    }
    return only_conjunction_of(load->guard, bounds);
  }
  static bool only_conjunction_of(Index e, const std::vector<Index>& parts) {
    if (e->op == sym::Op::logical_and) return only_conjunction_of(e.arg(0), parts) && only_conjunction_of(e.arg(1), parts);
    return std::find(parts.begin(), parts.end(), e) != parts.end();
  }

  // A's padding written out: dims in the order rows outermost, the reduce dim that is not windowed innermost.
  Buffer padded_buffer(const Expr& load) {
    const Buffer& x = load->buffer;
    if (padded_) return padded_;
    Indices shape;
    std::vector<int> order;
    int channel = -1;
    for (int d = 0; d < x->rank(); ++d) {
      sym::Map low, high;
      for (const auto* is : {&k_.batch, &k_.rows, &k_.reduce})
        for (const Iter& i : *is) low[i.var] = c_.constant(0), high[i.var] = i.extent - 1;
      low[k_.column.var] = c_.constant(0), high[k_.column.var] = k_.column.extent - 1;
      pad_low_.push_back(sym::substitute(load->indices[d], low));
      shape.push_back(sym::substitute(load->indices[d], high) - pad_low_.back() + 1);
      const bool windowed = std::any_of(k_.rows.begin(), k_.rows.end(), [&](const Iter& i) { return sym::uses(load->indices[d], i.var); });
      if (!windowed) channel = d;
      if (windowed) order.push_back(d);
    }
    for (int d = 0; d < x->rank(); ++d)
      if (std::find(order.begin(), order.end(), d) == order.end() && d != channel) order.insert(order.begin(), d);
    if (channel >= 0) order.push_back(channel);
    padded_order_ = order;
    padded_ = loop::make_buffer(x->name + "_padded", x->dtype, shape, Scope::global, loop::permuted(c_, shape, order));
    return padded_;
  }

  void unguard_a() {
    const Expr load = only_load(k_.a);
    if (!load || !guarded(load) || !is_padding(load)) return;
    const Buffer xp = padded_buffer(load);
    stages_.push_back(pad_stage(c_, load, xp, padded_order_, pad_low_, target_));
    workspace_.push_back(xp);
    Indices at;
    for (size_t d = 0; d < load->indices.size(); ++d) at.push_back(load->indices[d] - pad_low_[d]);
    k_.a = replace_load(k_.a, load, loop::load(xp, at));
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
    mr_ = target_.tile_rows();
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

  Stmt tile(Index batch, Index panel, Index row_tile, const Block& block) {
    const Buffer acc = loop::make_buffer("acc", k_.dtype, {c_.constant(mr_), c_.constant(nr_)}, Scope::reg);
    sym::Map base;
    bind(base, k_.batch, unflatten(batch, extents(k_.batch)));
    const auto each = [&](const std::function<Stmt(Index, Index)>& f) {
      return unrolled(c_, "i", mr_, [&](Index i) { return vector(c_, "j", nr_, [&](Index j) { return f(i, j); }); });
    };
    const Stmt clear = each([&](Index i, Index j) { return loop::store(acc, {i, j}, loop::constant(k_.dtype, 0)); });
    const Stmt sum = reduce_loops(0, base, block, [&](const sym::Map& at) {
      return each([&](Index i, Index j) {
        sym::Map m = at;
        m[k_.column.var] = panel * nr_ + j;
        const Index row = row_tile * mr_ + i;
        const bool whole = sym::mod(rows_, mr_).is_const(0);
        bind(m, k_.rows, unflatten(whole ? row : sym::min(row, rows_ - 1), extents(k_.rows)));
        const Expr a = loop::substitute(k_.a, m), b = loop::substitute(k_.b, m), old = loop::load(acc, {i, j});
        return loop::store(acc, {i, j}, is_float(k_.dtype) ? loop::fma(a, b, old) : old + a * b);
      });
    });
    const Stmt done = finish(acc, base, panel, row_tile);
    if (!block.waiting) return loop::alloc(acc, loop::seq({clear, sum, done}));
    const Buffer& w = block.waiting;
    const Stmt fetch = each([&](Index i, Index j) { return loop::store(acc, {i, j}, loop::load(w, {block.panel, block.tile, i, j})); });
    const Stmt keep = each([&](Index i, Index j) { return loop::store(w, {block.panel, block.tile, i, j}, loop::load(acc, {i, j})); });
    const auto is = [&](int64_t n) { return loop::from_index(DType::b1, sym::eq(block.number, n)); };
    return loop::alloc(acc, loop::seq({loop::branch(is(0), clear, fetch), sum, loop::branch(is(k_blocks_ - 1), done, keep)}));
  }

  // The reduce loops, the innermost unrolled by four.
  Stmt reduce_loops(size_t d, const sym::Map& m, const Block& block, const std::function<Stmt(const sym::Map&)>& body) {
    if (d == k_.reduce.size()) return body(m);
    const auto step = [&](Index v) {
      sym::Map inner = m;
      inner[k_.reduce[d].var] = v;
      return reduce_loops(d + 1, inner, block, body);
    };
    if (block.waiting) {  // there is one iterator only
      const Index first = block.number * k_block_;
      const Index count = k_block_ * k_blocks_ == k_.reduce[d].extent.value() ? c_.constant(k_block_) : sym::min(c_.constant(k_block_), k_.reduce[d].extent - first);
      return unrolled_by(c_, "k", count, 4, [&](Index k) { return step(first + k); });
    }
    if (d + 1 == k_.reduce.size()) return unrolled_by(c_, "k", k_.reduce[d].extent, 4, step);
    return serial(c_, "k", k_.reduce[d].extent, step);
  }

  Stmt finish(const Buffer& acc, const sym::Map& base, Index panel, Index row_tile) {
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
              Expr v = epilogue_value(k_, e, m, loop::load(acc, {i, j}));
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
  Buffer padded_;
  std::vector<int> padded_order_;
  Indices pad_low_;
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
