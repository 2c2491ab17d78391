// Depthwise convolution: a sum of products whose operands both move with the channel. Channels in vectors, a tile of
// neighbouring pixels in registers, so that a weight vector is loaded once for all of them.
//
//   line   parallel over the rows of the result (everything but the pixel and the channel)
//   c, x   blocks of NR channels, tiles of pixels
//   r, s   taps; whole taps rows outside the image are skipped, and only tiles at the border test their pixels
//
// The weights are packed at compile time as [channel/NR, r, s, channel%NR].
#include <algorithm>

#include "rules/contraction.h"
#include "backends/cpu/rules/prepare.h"
#include "backends/cpu/rules/rules.h"

namespace tripod::cpu {

using loop::Iter;
using loop::Op;
using loop::Scope;

namespace {

void split_conjunction(Index e, std::vector<Index>& out) {
  if (e->op == sym::Op::logical_and) {
    split_conjunction(e.arg(0), out);
    split_conjunction(e.arg(1), out);
  } else if (!e.is_const(1)) {
    out.push_back(e);
  }
}

class Depthwise {
 public:
  Depthwise(const loop::Function& f, Contraction k, sym::Context& c, const CpuTarget& t)
      : f_(f), k_(std::move(k)), c_(c), nr_(t.tile_columns()), pixels_(t.vector_registers >= 32 ? 8 : 4) {}

  RuleResult run() {
    if (std::string why = prepare(); !why.empty()) return {loop::not_applicable(why), {}};
    loop::Function r = f_;
    std::replace(r.params.begin(), r.params.end(), weights_->buffer, packed_);
    Indices outer;
    for (const Iter& i : lines_) outer.push_back(i.extent);
    const Index width = pixel_.extent, blocks = sym::ceildiv(k_.column.extent, nr_);
    r.body = parallel(c_, "line", sym::product(c_, outer), 1, [&](Index line) {
      sym::Map m;
      const Indices at = unflatten(line, outer);
      for (size_t d = 0; d < at.size(); ++d) m[lines_[d].var] = at[d];
      return serial(c_, "c", blocks, [&](Index block) {
        return serial(c_, "x", sym::ceildiv(width, pixels_), [&](Index x) { return tile(m, block, x * pixels_); });
      });
    });
    return {{true, ""}, r};
  }

 private:
  // Finds the pixel iterator, packs the weights, sorts the guard's conditions. Says why it does not fit.
  std::string prepare() {
    input_ = load_of(k_.a), weights_ = load_of(k_.b);
    if (!input_ || !weights_ || !(k_.a == input_) || !(k_.b == weights_)) return "operands are not plain loads";
    if (weights_->buffer->scope != Scope::constant) std::swap(input_, weights_);
    if (weights_->buffer->scope != Scope::constant || weights_->guard || !weights_->buffer->layout.is_row_major()) return "no constant weights";
    const Index at = loop::offset(c_, k_.epilogue[0].target, k_.epilogue[0].at);
    std::vector<Iter> rest = k_.rows;
    for (const Iter& i : k_.batch) rest.push_back(i);
    for (const Iter& i : rest) {
      const auto l = sym::linear_in(at, i.var);
      const bool next = l && l->coefficient == k_.column.extent && !pixel_.var;
      (next ? (void)(pixel_ = i) : lines_.push_back(i));
    }
    if (!pixel_.var) return "no pixel iterator next to the channels";
    const auto moves = sym::linear_in(loop::offset(c_, input_->buffer, input_->indices), k_.column.var);
    if (!moves || !moves->coefficient.is_const(1)) return "the input's channels are not contiguous";
    for (const Iter& i : k_.reduce)
      if (!i.extent.is_const()) return "the kernel's size is not known";
    std::vector<Index> all;
    if (input_->guard) split_conjunction(input_->guard, all);
    for (const Index& g : all) (sym::uses(g, pixel_.var) ? pixel_guards_ : line_guards_).push_back(g);
    return pack();
  }
  static Expr load_of(const Expr& e) { return e->op == Op::load ? e : Expr(); }

  std::string pack() {
    const Buffer& w = weights_->buffer;
    int column = -1;
    for (int d = 0; d < w->rank(); ++d)
      if (weights_->indices[d] == k_.column.var) column = d;
    if (column < 0 || !w->shape[column].is_const()) return "the weights are not indexed by the channel";
    Indices shape = w->shape;
    shape[column] = sym::ceildiv(shape[column], nr_) * nr_;
    loop::Layout layout;
    for (int d = 0; d < w->rank(); ++d) layout.args.push_back(loop_var(c_, "p", shape[d]));
    layout.map.push_back(sym::floordiv(layout.args[column], nr_));
    layout.extents.push_back(sym::floordiv(shape[column], nr_));
    for (int d = 0; d < w->rank(); ++d)
      if (d != column) layout.map.push_back(layout.args[d]), layout.extents.push_back(shape[d]);
    layout.map.push_back(sym::mod(layout.args[column], nr_));
    layout.extents.push_back(c_.constant(nr_));
    packed_ = loop::make_buffer(w->name, w->dtype, shape, Scope::constant, layout);
    return "";
  }

  Stmt tile(const sym::Map& line, Index block, Index x0) {
    // The pixel conditions hold for the whole tile when they hold at its corners (they are linear).
    Index interior = sym::le(x0 + pixels_, pixel_.extent);
    for (const Index& g : pixel_guards_)
      for (int corner = 0; corner < 4; ++corner) {
        sym::Map m = line;
        m[pixel_.var] = corner & 1 ? x0 + pixels_ - 1 : x0;
        for (const Iter& i : k_.reduce) m[i.var] = corner & 2 ? i.extent - 1 : c_.constant(0);
        interior = sym::logical_and(interior, sym::substitute(g, m));
      }
    const auto whole_channels = [&](bool inside) {
      const Index fits = sym::le(block * nr_ + nr_, k_.column.extent);
      if (sym::mod(k_.column.extent, nr_).is_const(0)) return body(line, block, x0, inside, true);
      return loop::branch(loop::from_index(DType::b1, fits), body(line, block, x0, inside, true), body(line, block, x0, inside, false));
    };
    if (sym::proved(interior)) return whole_channels(true);
    return loop::branch(loop::from_index(DType::b1, interior), whole_channels(true), whole_channels(false));
  }

  Stmt body(const sym::Map& line, Index block, Index x0, bool interior, bool whole_channels) {
    const Buffer acc = loop::make_buffer("acc", k_.dtype, {c_.constant(pixels_), c_.constant(nr_)}, Scope::reg);
    const auto lanes = [&](const std::function<Stmt(Index)>& f) { return vector(c_, "j", nr_, f); };
    const auto pixels = [&](const std::function<Stmt(Index)>& f) { return unrolled(c_, "i", pixels_, f); };
    const auto channel = [&](Index j) { return block * nr_ + j; };
    const auto lane_guard = [&](Index j) { return whole_channels ? c_.constant(1) : sym::lt(channel(j), k_.column.extent); };
    const Stmt clear = pixels([&](Index i) { return lanes([&](Index j) { return loop::store(acc, {i, j}, loop::constant(k_.dtype, 0)); }); });
    const Stmt sum = taps(0, line, interior, [&](const sym::Map& at) {
      return pixels([&](Index i) {
        return lanes([&](Index j) {
          sym::Map m = at;
          m[k_.column.var] = channel(j);
          m[pixel_.var] = interior ? x0 + i : sym::min(x0 + i, pixel_.extent - 1);
          Index g = lane_guard(j);
          if (!interior)
            for (const Index& p : pixel_guards_) g = sym::logical_and(g, sym::substitute(p, m));
          const auto at_of = [&](const Expr& load) {
            Indices r;
            for (const Index& e : load->indices) r.push_back(sym::substitute(e, m));
            return r;
          };
          const Expr zero = loop::constant(input_->dtype, 0);
          const Expr x = loop::load_guarded(input_->buffer, at_of(input_), g, input_->other ? input_->other : zero);
          const Expr w = loop::load(packed_, at_of(weights_)), old = loop::load(acc, {i, j});
          return loop::store(acc, {i, j}, is_float(k_.dtype) ? loop::fma(x, w, old) : old + x * w);
        });
      });
    });
    const Stmt finish = pixels([&](Index i) {
      return where(interior ? c_.constant(1) : sym::lt(x0 + i, pixel_.extent), [&] {
        return lanes([&](Index j) {
          sym::Map m = line;
          m[k_.column.var] = channel(j), m[pixel_.var] = x0 + i;
          std::vector<Stmt> stores;
          for (const Contraction::Epilogue& e : k_.epilogue) {
            Indices at;
            for (const Index& x : e.at) at.push_back(sym::substitute(x, m));
            Expr v = epilogue_value(k_, e, m, loop::load(acc, {i, j}));
            if (!whole_channels) v = guard_loads(v, lane_guard(j));
            stores.push_back(loop::store(e.target, at, v, whole_channels ? Index() : lane_guard(j)));
          }
          return loop::seq(stores);
        });
      });
    });
    return loop::alloc(acc, loop::seq({clear, sum, finish}));
  }

  // The tap loops, the innermost unrolled; conditions on lines are tested as soon as their taps are known.
  Stmt taps(size_t d, const sym::Map& m, bool interior, const std::function<Stmt(const sym::Map&)>& f) {
    Index guard = c_.constant(1);
    for (const Index& g : line_guards_) {
      const bool last_known = d > 0 && sym::uses(g, k_.reduce[d - 1].var);
      const bool later = std::any_of(k_.reduce.begin() + static_cast<long>(d), k_.reduce.end(), [&](const Iter& i) { return sym::uses(g, i.var); });
      if (!later && (last_known || d == 0)) guard = sym::logical_and(guard, sym::substitute(g, m));
    }
    return where(guard, [&] {
      if (d == k_.reduce.size()) return f(m);
      const auto step = [&](Index v) {
        sym::Map inner = m;
        inner[k_.reduce[d].var] = v;
        return taps(d + 1, inner, interior, f);
      };
      const Index n = k_.reduce[d].extent;
      if (n.is_const(1)) return step(c_.constant(0));
      return d + 1 == k_.reduce.size() && interior && n.value() <= 8 ? unrolled(c_, "s", n.value(), step) : serial(c_, "r", n, step);
    });
  }

  const loop::Function& f_;
  Contraction k_;
  sym::Context& c_;
  const int64_t nr_, pixels_;
  Expr input_, weights_;
  Buffer packed_;
  Iter pixel_;
  std::vector<Iter> lines_;
  std::vector<Index> pixel_guards_, line_guards_;
};

}  // namespace

RuleResult depthwise(const loop::Function& f, sym::Context& c, const CpuTarget& target) {
  std::string why;
  const loop::Function inlined = inline_elementwise(f, c);
  auto k = match_contraction(inlined, c, &why, rules::Column::both);
  if (!k) return {loop::not_applicable(why), {}};
  return Depthwise(inlined, std::move(*k), c, target).run();
}

}  // namespace tripod::cpu
