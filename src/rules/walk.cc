#include "rules/walk.h"

#include <algorithm>

namespace tripod::rules {

using loop::Iter;
using loop::Op;
using loop::StmtKind;

BlockWalk::BlockWalk(sym::Context& c, const loop::StmtNode& block) : c_(c), body_(block.body[0]), init_(block.init) {
  // Iterators of one step are left out: nothing runs along them, so they have no place in the order of memory.
  sym::Map single;
  for (const Iter& i : block.iters) {
    if (!i.reduce && i.extent.is_const(1))
      single[i.var] = c.constant(0);
    else
      (i.reduce ? reduce_ : spatial_).push_back(i);
  }
  body_ = loop::substitute(body_, single);
  if (init_) init_ = loop::substitute(init_, single);
  find_accesses();
}

void BlockWalk::find_accesses() {
  accesses_.clear(), guards_.clear();
  for (const Stmt& s : {body_, init_}) {
    if (!s) continue;
    loop::visit(s, [&](const Stmt& t) {
      if (t->kind == StmtKind::store) accesses_.push_back({loop::offset(c_, t->buffer, t->indices), true});
      if (t->guard) guards_.push_back(t->guard);
      if (t->kind == StmtKind::check) guards_.push_back(t->var);
    }, [&](const Expr& e) {
      if (e->op == Op::load) accesses_.push_back({loop::offset(c_, e->buffer, e->indices), false});
      if (e->guard) guards_.push_back(e->guard);
      if (e->op == Op::index) guards_.push_back(e->value);
    });
  }
}

// Outermost first in the memory of the (first) store: by decreasing step.
void BlockWalk::sort_spatial() {
  auto store = std::find_if(accesses_.begin(), accesses_.end(), [](const Access& a) { return a.is_store; });
  if (store == accesses_.end()) return;
  // A symbolic step is larger than a constant one; of two symbolic ones the one that divides the other is smaller.
  const auto step = [&](const Iter& i) -> Index {
    const auto l = sym::linear_in(store->offset, i.var);
    return l ? l->coefficient : c_.constant(INT64_MAX / 4);
  };
  std::stable_sort(spatial_.begin(), spatial_.end(), [&](const Iter& x, const Iter& y) {
    const Index a = step(x), b = step(y);
    if (a.is_const() && b.is_const()) return a.value() > b.value();
    if (a.is_const() != b.is_const()) return b.is_const();
    return !(a == b) && sym::proved(sym::le(b, a));
  });
}

// Two neighbours become one where every access stays linear in the joint index.
void BlockWalk::collapse() {
  for (size_t d = spatial_.size(); d-- > 1;) {
    const Iter outer = spatial_[d - 1], inner = spatial_[d];
    const Index extent = outer.extent * inner.extent;
    const Index joint = loop_var(c_, outer.var->name.c_str(), extent);
    const sym::Map m = {{outer.var, sym::floordiv(joint, inner.extent)}, {inner.var, sym::mod(joint, inner.extent)}};
    const auto good = [&](const Access& a) {
      if (!sym::uses(a.offset, outer.var) && !sym::uses(a.offset, inner.var)) return true;
      const Index at = sym::substitute(a.offset, m);
      const auto joined = sym::linear_in(at, joint), before = sym::linear_in(a.offset, inner.var);
      return joined && before && joined->coefficient == before->coefficient;
    };
    const auto free = [&](Index g) { return !sym::uses(g, outer.var) && !sym::uses(g, inner.var); };
    if (!std::all_of(accesses_.begin(), accesses_.end(), good) || !std::all_of(guards_.begin(), guards_.end(), free)) continue;
    body_ = loop::substitute(body_, m);
    if (init_) init_ = loop::substitute(init_, m);
    spatial_.erase(spatial_.begin() + d);
    spatial_[d - 1] = {joint, extent, false, {}};
    find_accesses();
  }
}

namespace {
// Loads and stores of a buffer go to a register tile instead.
struct Accumulators : loop::Rewriter {
  using loop::Rewriter::rewrite;
  Expr rewrite(const Expr& e) override {
    if (e->op == Op::load)
      for (auto& [from, to] : tiles)
        if (e->buffer == from) return loop::load(to, {lane});
    return nullptr;
  }
  Stmt rewrite(const Stmt& s) override {
    if (s->kind == StmtKind::store)
      for (auto& [from, to] : tiles)
        if (s->buffer == from) return loop::store(to, {lane}, apply(s->value));
    return nullptr;
  }
  std::vector<std::pair<Buffer, Buffer>> tiles;
  Index lane;
};
}  // namespace

// Is the update one float's `acc = acc + x` or `fma(a, b, acc)`? Then a long sum is made of several chains.
bool BlockWalk::is_float_sum() const {
  if (body_->kind != StmtKind::store || !is_float(body_->buffer->dtype) || body_->guard) return false;
  const Expr& v = body_->value;
  const Expr acc = v->op == Op::fma ? v->args[2] : v->op == Op::add ? v->args[0] : Expr();
  return acc && acc->op == Op::load && acc->buffer == body_->buffer && acc->indices == body_->indices;
}

// The reduce loops from r on around `update`, which adds to `total` through its accumulator `acc`. A float sum over
// more than kChain terms is cut: chains start from zero, and their ends are added up, since the error of a chain grows
// with its length.
Stmt BlockWalk::reduce_loops(const Stmt& update, const std::vector<std::pair<Buffer, Buffer>>& tiles, Index lane) {
  const auto around = [&](Stmt s, size_t r, Index from, Index extent) {
    const Index v = loop_var(c_, reduce_[r].var->name.c_str(), extent);
    return loop::loop(v, extent, loop::LoopKind::serial, loop::substitute(s, {{reduce_[r].var, from + v}}));
  };
  Stmt s = update;
  int64_t inside = 1;
  bool cut = !is_float_sum() || tiles.size() != 1;
  for (size_t r = reduce_.size(); r-- > 0;) {
    const Index extent = reduce_[r].extent, zero = c_.constant(0);
    const auto known = extent.constant();
    if (cut || (known && inside * *known <= kChain * 3 / 2)) {
      inside *= known.value_or(1);
      s = around(s, r, zero, extent);
      continue;
    }
    cut = true;
    const Buffer& total = tiles[0].second;
    const Buffer chain = loop::make_buffer(total->name + "_chain", total->dtype, total->shape, loop::Scope::reg);
    Accumulators to_chain;
    to_chain.lane = lane, to_chain.tiles = {{total, chain}};
    const int64_t step = std::max<int64_t>(1, kChain / inside);
    const Index part = loop_var(c_, "part", sym::ceildiv(extent, step));
    const Index count = sym::mod(extent, step).is_const(0) ? c_.constant(step) : sym::min(c_.constant(step), extent - part * step);
    const Stmt one = loop::alloc(chain, loop::seq({
        loop::store(chain, {lane}, loop::constant(total->dtype, 0)), around(to_chain.apply(s), r, part * step, count),
        loop::store(total, {lane}, loop::load(total, {lane}) + loop::load(chain, {lane}))}));
    s = loop::loop(part, sym::ceildiv(extent, step), loop::LoopKind::serial, one);
  }
  return s;
}

// init; reduce loops around the update; then the finished values are stored.
Stmt BlockWalk::reduction(Index lane, const std::function<int64_t(DType)>& lanes) {
  Accumulators to_registers;
  to_registers.lane = lane ? lane : c_.constant(0);
  std::vector<Stmt> stores;
  loop::visit(body_, [&](const Stmt& s) {
    if (s->kind != StmtKind::store) return;
    const Buffer tile = loop::make_buffer(s->buffer->name + "_acc", s->buffer->dtype, {c_.constant(lane ? lanes(s->buffer->dtype) : 1)}, loop::Scope::reg);
    to_registers.tiles.push_back({s->buffer, tile});
    stores.push_back(loop::store(s->buffer, s->indices, loop::load(tile, {to_registers.lane})));
  });
  const Stmt update = reduce_loops(to_registers.apply(body_), to_registers.tiles, to_registers.lane);
  std::vector<Stmt> all;
  if (init_) all.push_back(to_registers.apply(init_));
  all.push_back(update);
  all.insert(all.end(), stores.begin(), stores.end());
  Stmt s = loop::seq(all);
  for (auto& [from, tile] : to_registers.tiles) s = loop::alloc(tile, s);
  return s;
}

Stmt BlockWalk::point(Index lane, const std::function<int64_t(DType)>& lanes) {
  return reduce_.empty() ? body_ : reduction(lane, lanes);
}

}  // namespace tripod::rules
