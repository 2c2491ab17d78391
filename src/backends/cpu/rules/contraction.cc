// GEMM and convolution: register tiles of rows x columns over packed column panels.
//
//   pad      (only for a guarded operand that is not gathered)  A with its padding written out, channels innermost
//   pack     (only where B is not a constant)  panels Bp[batch, column/NR, k, column%NR], zero-filled
//   task     parallel over batch x row blocks x panel blocks; in each, panels outside, row tiles inside, so that a
//            panel stays in cache while the row tiles pass over it. A long k is cut into blocks, outermost, whose part
//            of a panel fits L1; sums wait in the thread's scratch memory between blocks. A's rows of a block are
//            gathered in scratch memory first where windows reach over an edge.
//   tile     acc[MR, panels * NR] in registers; k innermost; MR broadcasts of A times a row of B; then the epilogue
//
// A constant B is packed at compile time: the parameter takes the panel layout. Groups of a convolution are batches (see
// positions.h and groups.h); where their columns fill no whole panels B is packed at run time. Rows beyond the end repeat
// the last one (their results are dropped), columns beyond the end are zero in the panels. Every sum runs over k in one
// fixed order, in chains of about kChain products, whatever the tile and the number of threads.
#include <algorithm>

#include "rules/contraction.h"
#include "backends/cpu/rules/groups.h"
#include "backends/cpu/rules/operands.h"
#include "backends/cpu/rules/positions.h"
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
      : f_(f), k_(std::move(k)), c_(c), target_(t), nr_(panel_width()) {}

  RuleResult run() {
    sort_reduce();
    gathers_ = may_gather();
    if (!gathers_) unguard_a();
    if (!pack_constant_b()) pack_dynamic_b();
    gathers_ ? join_reduce() : merge_reduce(k_, c_);
    for (const Iter& i : k_.batch)
      if (!rules::uses(k_.a, i.var)) windows_.push_back(i);
    std::erase_if(k_.batch, [&](const Iter& i) { return !rules::uses(k_.a, i.var); });
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
  // 16 columns. Few columns are one panel of 8, 24 or 40 where that leaves out much padding; the columns of a group are
  // whole panels where they can be. The same for every instruction set: they share the packed weights.
  int64_t panel_width() const {
    const int64_t n = k_.column.extent.constant().value_or(kPanel), eights = (n + 7) / 8;
    const Expr load = only_load(k_.b);
    const int column = load ? column_dim(load) : -1;
    if (column >= 0 && !(load->indices[column] == k_.column.var))
      for (const int64_t width : {kPanel, int64_t{24}, int64_t{40}})
        if (n % width == 0) return width;
    return n > 0 && eights <= 5 && eights % 2 == 1 ? eights * 8 : kPanel;
  }
  // The dim of B that the column runs along, alone or as the place in its group.
  int column_dim(const Expr& load) const {
    for (int d = 0; d < load->buffer->rank(); ++d) {
      const auto step = sym::uses(load->indices[d], k_.column.var) ? sym::linear_in(load->indices[d], k_.column.var) : std::nullopt;
      if (!step || !step->coefficient.is_const(1)) continue;
      if (step->rest.is_const(0) || sym::mod(step->rest, k_.column.extent).is_const(0)) return d;
    }
    return -1;
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

  // Are the rows of A gathered, block by block? Where a guard is no plain padding (the gaps of a transposed convolution)
  // or its padding is wide (dilations), channels lie side by side, and there are columns enough for the copy to cost
  // little. Elsewhere the padded copy was as fast or faster.
  bool may_gather() const {
    const Expr load = only_load(k_.a);
    if (!load || !is_guarded(load) || k_.reduce.empty() || k_.column.extent.constant().value_or(kPanel) < kPanel) return false;
    bool dilated = false;
    for (const Iter& i : k_.reduce) {
      if (!i.extent.is_const()) return false;
      for (const Index& at : load->indices) {
        const auto step = sym::linear_in(at, i.var);
        dilated = dilated || (step && step->coefficient.constant().value_or(1) > 1);
      }
    }
    if (!dilated && is_padding(k_, load, c_)) return false;
    const Iter& last = k_.reduce.back();
    const auto step = sym::linear_in(loop::offset(c_, load->buffer, load->indices), last.var);
    return last.extent.value() >= kPanel && step && step->coefficient.is_const(1) && !sym::uses(load->guard, last.var);
  }

  // The rows will be dense, so that all reduce iterators are one.
  void join_reduce() {
    taps_ = k_.reduce;
    Index depth = extent(taps_);
    const Index joint = loop_var(c_, "k", depth);
    sym::Map m;
    bind(m, taps_, unflatten(joint, extents(taps_)));
    k_.b = loop::substitute(k_.b, m);
    k_.reduce = {{joint, depth, true, {}}};
  }

  // The parameter takes the layout [batch dims, column/NR, reduce dims, column%NR], its column dim rounded up to NR.
  bool pack_constant_b() {
    const Expr load = only_load(k_.b);
    if (!load || load->buffer->scope != Scope::constant || load->guard) return false;
    const Buffer& w = load->buffer;
    const int column = column_dim(load);
    if (column < 0 || !w->shape[column].is_const()) return false;
    const bool in_group = !(load->indices[column] == k_.column.var);
    if (in_group && !sym::mod(k_.column.extent, nr_).is_const(0)) return false;  // a panel would reach into the next group
    Indices shape = w->shape;
    shape[column] = sym::ceildiv(shape[column], nr_) * nr_;
    loop::Layout layout;
    for (int d = 0; d < w->rank(); ++d) layout.args.push_back(loop_var(c_, "p", shape[d]));
    // Joint groups have a layout already, with one dim for each of w's.
    const Indices at = loop::physical_index(w, load->indices), from = loop::physical_index(w, layout.args);
    std::vector<int> outer, inner;
    for (int d = 0; d < w->rank(); ++d) {
      if (d == column) continue;
      const bool reduces = std::any_of(k_.reduce.begin(), k_.reduce.end(), [&](const Iter& i) { return sym::uses(at[d], i.var); });
      (reduces ? inner : outer).push_back(d);
    }
    const auto place = [&](int d) {  // position of the reduce iterator that indexes dim d
      for (size_t r = 0; r < k_.reduce.size(); ++r)
        if (sym::uses(at[d], k_.reduce[r].var)) return r;
      return k_.reduce.size();
    };
    std::stable_sort(inner.begin(), inner.end(), [&](int x, int y) { return place(x) < place(y); });
    const auto add = [&](Index map, Index size) { layout.map.push_back(map), layout.extents.push_back(size); };
    for (int d : outer) add(from[d], shape[d]);
    add(sym::floordiv(from[column], nr_), sym::floordiv(shape[column], nr_));
    for (int d : inner) add(from[d], shape[d]);
    add(sym::mod(from[column], nr_), c_.constant(nr_));
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

  // Row tiles a task: as many as keep their part of A in half of L2, in parts of equal size. Columns a task: enough
  // tasks for several threads, each with work that is worth a thread. Both depend on the sizes of the run.
  void choose_blocks() {
    rows_ = extent(k_.rows), batch_ = extent(k_.batch);
    choose_tile();
    tiles_ = sym::ceildiv(rows_, mr_);
    column_tiles_ = sym::ceildiv(panels_, panels_a_tile_);
    columns_ = column_tiles_ * extent(windows_);
    choose_reduce_blocks();
    // What a row of A takes in cache: the windows of neighbouring pixels overlap, only channels count.
    const int64_t in_cache = k_block_ > 0 ? k_block_ : k_.reduce.empty() ? 1 : std::max<int64_t>(1, k_.reduce.back().extent.constant().value_or(512));
    // With blocks of k, half of that goes to the sums that wait.
    const int64_t part_of_l2 = target_.l2_bytes / (k_block_ > 0 ? 4 : 2);
    const int64_t most_tiles = std::clamp<int64_t>(part_of_l2 / (in_cache * mr_ * 4), 1, 48);
    const Index one = c_.constant(1), row_blocks = sym::max(sym::ceildiv(tiles_, most_tiles), one);
    tiles_a_task_ = sym::max(sym::ceildiv(tiles_, row_blocks), one);
    const int64_t tile_columns = panels_a_tile_ * nr_;
    int64_t products = mr_ * tile_columns;
    for (const Iter& i : k_.reduce) products *= std::max<int64_t>(1, i.extent.constant().value_or(256));
    const Index wanted = sym::ceildiv(c_.constant(kTasks), sym::max(batch_ * row_blocks, one));
    const Index even = sym::ceildiv(columns_, wanted), least = sym::ceildiv(c_.constant(std::max<int64_t>(1, kProductsOfATask / products)), tiles_a_task_);
    columns_a_task_ = sym::max(even, sym::min(least, columns_));
    if (blocked()) columns_a_task_ = sym::min(columns_a_task_, sym::floordiv(c_.constant(std::max<int64_t>(most_tiles, part_of_l2 / (mr_ * tile_columns * 4))), tiles_a_task_));
    columns_a_task_ = sym::max(columns_a_task_, one);
  }

  // Blocks of k: of the innermost iterator, as long as that part of a tile's panels fits L1, and one step of the others.
  void choose_reduce_blocks() {
    const int64_t longest = target_.l1_bytes * 3 / 4 / (panels_a_tile_ * nr_ * 4);
    if (gathers_) return choose_gathered_blocks(longest);
    int64_t depth = 1;
    for (const Iter& i : k_.reduce) depth *= i.extent.constant().value_or(0);
    if (k_.reduce.empty() || depth <= longest * 3 / 2) return;
    const int64_t last = k_.reduce.back().extent.value();
    if (last < longest / 4) return;
    k_block_ = std::min(last, longest);
    if (last > longest && last <= longest * 3 / 2) k_block_ = last;
    for (int64_t b = longest / 16 * 16; last % k_block_ != 0 && b >= longest * 2 / 3; b -= 16)
      if (last % b == 0) k_block_ = b;
    k_blocks_ = (last + k_block_ - 1) / k_block_ * (depth / last);
  }
  bool blocked() const { return k_blocks_ > 1; }

  // Whole taps, or equal parts of one.
  void choose_gathered_blocks(int64_t longest) {
    const int64_t channels = taps_.back().extent.value(), depth = k_.reduce[0].extent.value(), most = longest * 3 / 2;
    const int64_t whole = channels > most ? channels : depth, unit = channels > most ? 1 : channels;
    k_block_ = unit;
    for (int64_t b = unit; b <= most; b += unit)
      if (whole % b == 0) k_block_ = b;
    if (k_block_ < kPanel) k_block_ = channels;  // no part is of a good length
    k_blocks_ = depth / k_block_;
  }

  // A tile is some rows by one panel or several, as many as registers hold.
  void choose_tile() {
    panels_ = sym::ceildiv(k_.column.extent, nr_);
    const int64_t panels = panels_.constant().value_or(INT64_MAX);
    if (nr_ == kPanel && target_.vector_bytes == 64) panels_a_tile_ = std::clamp<int64_t>(panels, 1, 2);
    int64_t registers_a_row = 0;
    for (const Part& p : parts(panels_a_tile_)) registers_a_row += (p.lanes * info(k_.dtype).bits / 8 + target_.vector_bytes - 1) / target_.vector_bytes;
    mr_ = std::clamp<int64_t>(target_.accumulators() / registers_a_row, 1, 12);
    if (auto m = rows_.constant()) mr_ = std::min<int64_t>(mr_, std::max<int64_t>(*m, 1));
  }

  // The vectors of a tile's row, which is `panels` panels wide.
  struct Part {
    int64_t from, lanes;
  };
  std::vector<Part> parts(int64_t panels) const {
    std::vector<Part> r;
    for (int64_t p = 0; p < panels; ++p)
      for (int64_t at = 0; at < nr_; at += r.back().lanes) r.push_back({p * nr_ + at, std::min<int64_t>(nr_ - at, kPanel)});
    return r;
  }

  Stmt tasks() {
    const Index row_blocks = sym::ceildiv(tiles_, tiles_a_task_), column_blocks = sym::ceildiv(columns_, columns_a_task_);
    return parallel(c_, "task", batch_ * row_blocks * column_blocks, 1, [&](Index t) {
      const Index column_block = sym::mod(t, column_blocks), rest = sym::floordiv(t, column_blocks);
      const Index row_block = sym::mod(rest, row_blocks);
      Task task;
      bind(task.base, k_.batch, unflatten(sym::floordiv(rest, row_blocks), extents(k_.batch)));
      task.first_tile = row_block * tiles_a_task_, task.first_column = column_block * columns_a_task_;
      task.tiles = sym::min(tiles_a_task_, tiles_ - task.first_tile), task.columns = sym::min(columns_a_task_, columns_ - task.first_column);
      if (gathers_) task.rows = loop::make_buffer("rows", k_.a->dtype, {tiles_a_task_ * mr_, c_.constant(k_block_ + kPanel)}, Scope::local);
      const auto gathered = [&](const Task& now) { return gathers_ ? loop::seq({gather_rows(now), tiles_of(now)}) : tiles_of(now); };
      const auto with_rows = [&](const Stmt& s) { return gathers_ ? loop::alloc(task.rows, s) : s; };
      if (!blocked()) {
        task.block = task.k_from = c_.constant(0);
        return with_rows(gathered(task));
      }
      const Index width = c_.constant(panels_a_tile_ * nr_);
      task.waiting = loop::make_buffer("waiting", k_.dtype, {columns_a_task_, tiles_a_task_, c_.constant(mr_), width}, Scope::local);
      return loop::alloc(task.waiting, with_rows(serial(c_, "block", c_.constant(k_blocks_), [&](Index b) {
        place_block(task, b);
        return gathered(task);
      })));
    });
  }

  // What one task works on: row tiles and columns (column tiles of every window), and of those a block of k.
  struct Task {
    sym::Map base;                             // iterators that are the same for all of it
    Index first_tile, tiles, first_column, columns;
    Buffer waiting;                            // with blocks: the sums of tiles[column, tile, row, column]
    Buffer rows;                               // gathered: A[row, k]
    Index block, k_from, k_count;              // the block's number, and its part of the innermost reduce iterator
  };
  // A tile in it. `column` and `tile` count from the task's first.
  struct Place {
    Index column, tile;
    Index first_panel;                         // in the tensor
    Index from;                                // the first of these columns among those of the whole tile
    int64_t panels;
  };

  void place_block(Task& t, Index block) const {
    const int64_t last = k_.reduce.back().extent.value(), parts = (last + k_block_ - 1) / k_block_;
    Indices outer = extents(k_.reduce);
    outer.pop_back();
    t.block = block;
    const Indices at = unflatten(sym::floordiv(block, parts), outer);
    for (size_t d = 0; d < at.size(); ++d) t.base[k_.reduce[d].var] = at[d];
    t.k_from = sym::mod(block, parts) * k_block_;
    t.k_count = last % k_block_ == 0 ? c_.constant(k_block_) : sym::min(c_.constant(k_block_), last - t.k_from);
  }

  // A's rows of a block, tap by tap: channels are copied, or filled where the window is over the edge. What is computed
  // on the way is computed once.
  Stmt gather_rows(const Task& t) {
    const Expr load = only_load(k_.a);
    const int64_t channels = taps_.back().extent.value(), run = std::min(channels, k_block_);
    Indices outer = extents(taps_);
    outer.pop_back();
    return serial(c_, "row", t.tiles * mr_, [&](Index i) {
      return serial(c_, "tap", c_.constant(k_block_ / run), [&](Index tap) {
        sym::Map m = t.base;
        bind(m, k_.rows, unflatten(sym::min(t.first_tile * mr_ + i, rows_ - 1), extents(k_.rows)));
        const Indices at = unflatten(sym::floordiv(t.k_from + tap * run, channels), outer);
        for (size_t d = 0; d < at.size(); ++d) m[taps_[d].var] = at[d];
        const Index first = sym::mod(t.k_from, channels);
        const auto copy = [&](const Expr& element) {
          return vectors(c_, "c", c_.constant(run), kPanel, [&](Index k) {
            m[taps_.back().var] = run == channels ? k : first + k;
            return loop::store(t.rows, {i, tap * run + k}, loop::substitute(replace_load(k_.a, load, element), m));
          });
        };
        return loop::branch(loop::from_index(DType::b1, sym::substitute(load->guard, m)), copy(loop::load(load->buffer, load->indices)), copy(load->other));
      });
    });
  }

  // Panels outside, row tiles inside.
  Stmt tiles_of(const Task& task) {
    return serial(c_, "columns", task.columns, [&](Index p) {
      const Index at = task.first_column + p, column_tile = windows_.empty() ? at : sym::mod(at, column_tiles_);
      Task t = task;
      bind(t.base, windows_, unflatten(windows_.empty() ? at : sym::floordiv(at, column_tiles_), extents(windows_)));
      const auto down = [&](Index panel, int64_t panels) {
        return serial(c_, "tile", t.tiles, [&](Index i) { return tile(t, {p, i, column_tile * panels_a_tile_ + panel, panel * nr_, panels}); });
      };
      if (sym::mod(panels_, panels_a_tile_).is_const(0)) return down(c_.constant(0), panels_a_tile_);
      const Index left = panels_ - column_tile * panels_a_tile_;
      return loop::branch(loop::from_index(DType::b1, sym::le(c_.constant(panels_a_tile_), left)), down(c_.constant(0), panels_a_tile_),
                          serial(c_, "panel", left, [&](Index q) { return down(q, 1); }));
    });
  }

  using Element = std::function<Expr(Index, Index)>;      // of a tile
  using AtK = std::function<Stmt(const sym::Map&)>;

  // A long sum is made of chains of about kChain products, which are added up: the error of one chain grows with its
  // length. A chain runs over `step` iterations of one reduce iterator and over all iterators inside that one.
  struct Chains {
    size_t at = SIZE_MAX;  // the iterator that is cut; SIZE_MAX: the sum is one chain
    int64_t step = 1;
  };
  Chains chains() const {
    const size_t last = k_.reduce.size() - 1;
    if (!is_float(k_.dtype) || k_.dtype == DType::f64) return blocked() ? Chains{last, k_block_} : Chains{};
    int64_t inside = 1;
    for (size_t d = k_.reduce.size(); d-- > 0;) {
      const auto extent = k_.reduce[d].extent.constant();
      if (!blocked() && extent && inside * *extent <= kChain * 3 / 2) {
        inside *= *extent;
        continue;
      }
      const int64_t step = std::max<int64_t>(1, kChain / inside), whole = blocked() ? k_block_ : extent.value_or(step);
      const int64_t parts = (whole + step - 1) / step;  // of nearly equal length
      return {d, (whole + parts - 1) / parts};
    }
    return {};
  }

  Stmt tile(const Task& t, const Place& at) {
    const Index row_tile = t.first_tile + at.tile, first_column = at.first_panel * nr_, width = c_.constant(at.panels * nr_);
    const Buffer acc = loop::make_buffer("acc", k_.dtype, {c_.constant(mr_), width}, Scope::reg);
    const auto each = [&](const std::function<Stmt(Index, Index)>& f) {
      return unrolled(c_, "i", mr_, [&](Index i) {
        return across(at.panels, [&](Index j) { return f(i, j); });
      });
    };
    const Stmt clear = each([&](Index i, Index j) { return loop::store(acc, {i, j}, loop::constant(k_.dtype, 0)); });
    const Element sum = [&](Index i, Index j) { return loop::load(acc, {i, j}); };
    const AtK multiply = [&](const sym::Map& at_k) {
      return each([&](Index i, Index j) {
        sym::Map m = at_k;
        m[k_.column.var] = first_column + j;
        const Index row = row_tile * mr_ + i;
        const bool whole = sym::mod(rows_, mr_).is_const(0);
        bind(m, k_.rows, unflatten(whole ? row : sym::min(row, rows_ - 1), extents(k_.rows)));
        const Expr a = gathers_ ? loop::load(t.rows, {at.tile * mr_ + i, m.at(k_.reduce[0].var) - t.k_from}) : loop::substitute(k_.a, m);
        const Expr b = loop::substitute(k_.b, m), old = sum(i, j);
        return loop::store(acc, {i, j}, is_float(k_.dtype) ? loop::fma(a, b, old) : old + a * b);
      });
    };
    const Chains cut = chains();
    if (cut.at == SIZE_MAX) return loop::alloc(acc, loop::seq({clear, reduce_loops(0, t.base, multiply), finish(sum, true, t, at)}));

    const Buffer total = blocked() ? t.waiting : loop::make_buffer("total", k_.dtype, {c_.constant(mr_), width}, Scope::local);
    const auto in_total = [&](Index i, Index j) { return blocked() ? Indices{at.column, at.tile, i, at.from + j} : Indices{i, j}; };
    const Element total_sum = [&](Index i, Index j) { return loop::load(total, in_total(i, j)); };
    const Stmt set = each([&](Index i, Index j) { return loop::store(total, in_total(i, j), sum(i, j)); });
    const Stmt add = each([&](Index i, Index j) { return loop::store(total, in_total(i, j), total_sum(i, j) + sum(i, j)); });
    const bool may_be_empty = std::any_of(k_.reduce.begin(), k_.reduce.end(), [&](const Iter& i) { return !sym::proved(sym::le(c_.constant(1), i.extent)); });
    const Index first = may_be_empty ? c_.constant(0) : blocked() ? sym::eq(t.block, 0) : c_.constant(1);
    const auto one_chain = [&](const Stmt& products, Index is_first) {
      const Stmt keep = may_be_empty ? add : loop::branch(loop::from_index(DType::b1, is_first), set, add);
      return loop::alloc(acc, loop::seq({clear, products, keep}));
    };
    Stmt chained = chain_loops(blocked() ? cut.at : 0, t, cut, first, one_chain, multiply);
    if (may_be_empty) chained = loop::seq({each([&](Index i, Index j) { return loop::store(total, in_total(i, j), loop::constant(k_.dtype, 0)); }), chained});
    const Stmt done = finish(total_sum, false, t, at);
    if (!blocked()) return loop::alloc(total, loop::seq({chained, done}));
    return loop::seq({chained, loop::branch(loop::from_index(DType::b1, sym::eq(t.block, k_blocks_ - 1)), done)});
  }

  // The loops outside the chains and over the parts of the iterator that is cut; one_chain gets the loops of a chain and
  // whether it is a sum's first.
  Stmt chain_loops(size_t d, const Task& t, const Chains& cut, Index first,
                   const std::function<Stmt(const Stmt&, Index)>& one_chain, const AtK& body) {
    const Index extent = k_.reduce[d].extent;
    if (d < cut.at)
      return serial(c_, "k", extent, [&](Index v) {
        Task inner = t;
        inner.base[k_.reduce[d].var] = v;
        return chain_loops(d + 1, inner, cut, sym::logical_and(first, sym::eq(v, 0)), one_chain, body);
      });
    const Index from = blocked() ? t.k_from : c_.constant(0), count = blocked() ? t.k_count : extent;
    return serial(c_, "chain", sym::ceildiv(count, cut.step), [&](Index part) {
      const Index start = part * cut.step;
      const Index steps = sym::mod(count, cut.step).is_const(0) ? c_.constant(cut.step) : sym::min(c_.constant(cut.step), count - start);
      const auto step = [&](Index k) {
        sym::Map m = t.base;
        m[k_.reduce[d].var] = from + start + k;
        return reduce_loops(d + 1, m, body);
      };
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

  // The vectors of a tile's row, side by side.
  Stmt across(int64_t panels, const std::function<Stmt(Index)>& f) {
    std::vector<Stmt> all;
    for (const Part& p : parts(panels)) all.push_back(vector(c_, "j", p.lanes, [&](Index j) { return f(j + p.from); }));
    return loop::seq(all);
  }

  // What follows the sums, row by row. Sums in registers need a line of code for each.
  Stmt finish(const Element& sum, bool in_registers, const Task& t, const Place& at) {
    const auto rows = [&](bool whole_panels) {
      const auto each_row = [&](const std::function<Stmt(Index)>& f) { return in_registers ? unrolled(c_, "i", mr_, f) : serial(c_, "i", c_.constant(mr_), f); };
      return each_row([&](Index i) {
        const Index row = (t.first_tile + at.tile) * mr_ + i;
        return where(sym::lt(row, rows_), [&] {
          return across(at.panels, [&](Index j) {
            sym::Map m = t.base;
            bind(m, k_.rows, unflatten(row, extents(k_.rows)));
            const Index column = at.first_panel * nr_ + j;
            m[k_.column.var] = column;
            std::vector<Stmt> stores;
            for (const Contraction::Epilogue& e : k_.epilogue) {
              Indices to;
              for (const Index& x : e.at) to.push_back(sym::substitute(x, m));
              Expr v = epilogue_value(k_, e, m, sum(i, j));
              const Index inside = sym::lt(column, k_.column.extent);
              if (!whole_panels) v = guard_loads(v, inside);
              stores.push_back(loop::store(e.target, to, v, whole_panels ? Index() : inside));
            }
            return loop::seq(stores);
          });
        });
      });
    };
    if (sym::mod(k_.column.extent, nr_).is_const(0)) return rows(true);
    const Index fits = sym::le((at.first_panel + at.panels) * nr_, k_.column.extent);
    return loop::branch(loop::from_index(DType::b1, fits), rows(true), rows(false));
  }

  const loop::Function& f_;
  Contraction k_;
  sym::Context& c_;
  const CpuTarget& target_;
  const int64_t nr_;
  static constexpr int64_t kPanel = 16;          // columns
  static constexpr int64_t kTasks = 16;          // of a kernel, where there is work enough
  static constexpr int64_t kProductsOfATask = 256 * 1024;
  int64_t mr_ = 1, panels_a_tile_ = 1, k_block_ = 0, k_blocks_ = 1;
  bool gathers_ = false;
  std::vector<Iter> taps_;                       // the reduce iterators of gathered rows; the last one are channels
  Index rows_, batch_, tiles_, panels_, column_tiles_, columns_, tiles_a_task_, columns_a_task_;
  std::vector<Iter> windows_;                    // iterators that move only B, besides the column
  PaddedCopy padded_;
  std::vector<Buffer> workspace_;
  std::vector<Stmt> stages_;
  std::vector<std::pair<Buffer, Buffer>> replaced_;
};

}  // namespace

RuleResult contraction(const loop::Function& f, sym::Context& c, const CpuTarget& target) {
  std::string why;
  const loop::Function inlined = split_positions(join_groups(inline_elementwise(f, c), c), c);
  auto k = match_contraction(inlined, c, &why);
  if (!k) return {loop::not_applicable(why), {}};
  return Tiler(inlined, std::move(*k), c, target).run();
}

}  // namespace tripod::cpu
