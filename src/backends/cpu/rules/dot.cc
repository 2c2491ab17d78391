// Sums of products with one vector for all results: a convolution with one output channel, a matrix times a vector.
// There are no columns to fill a panel with, so the vector runs along the sum.
//
//   pad      (only for a guarded operand) the operand with its padding written out
//   task     parallel over lines of results x blocks of tiles
//   tile     kResults neighbours, a vector of partial sums each: a vector of the shared operand is loaded once for all
//   fold     the lanes of a partial sum are added in halves, then the epilogue
//
// Constant shared operands are laid out in the order of the sum. The lanes are the same on every instruction set.
#include <algorithm>

#include "backends/cpu/rules/operands.h"
#include "backends/cpu/rules/prepare.h"
#include "backends/cpu/rules/rules.h"

namespace tripod::cpu {

using loop::Iter;
using loop::Op;
using loop::Scope;

namespace {

class Dot {
 public:
  Dot(const loop::Function& f, Contraction k, sym::Context& c, const CpuTarget& t) : f_(f), k_(std::move(k)), c_(c), target_(t) {}

  RuleResult run() {
    if (std::string why = prepare(); !why.empty()) return {loop::not_applicable(why), {}};
    stages_.push_back(tasks());
    Stmt body = loop::seq(stages_);
    if (padded_) body = loop::alloc(padded_, body);
    loop::Function r = f_;
    r.body = body;
    if (weights_) std::replace(r.params.begin(), r.params.end(), given_, weights_);
    return {{true, ""}, r};
  }

 private:
  // Operand a is the shared one, b moves with the results. Says why the rule does not fit.
  std::string prepare() {
    for (const Iter& i : k_.rows) lines_.push_back(i);
    for (const Iter& i : k_.batch) lines_.push_back(i);
    drop_single_lines();
    for (const Iter& i : lines_)
      if (rules::uses(k_.a, i.var)) return "no operand is the same for all results";
    if (!(k_.dtype == DType::f32)) return "not a sum in f32";
    if (!only_load(k_.a) || !(only_load(k_.a) == k_.a) || !only_load(k_.b) || !(only_load(k_.b) == k_.b)) return "operands are not plain loads";
    if (k_.b->buffer->scope == Scope::constant) return "the operand that moves is a constant";
    if (k_.a->guard && is_guarded(k_.a)) return "the shared operand is guarded";
    if (is_guarded(k_.b) && !is_padding(k_, k_.b, c_)) return "the guard is not padding";
    std::vector<Iter> moving = lines_;
    moving.push_back(k_.column);
    PaddedCopy copy;
    if (is_guarded(k_.b)) copy = padded_copy(k_, k_.b, moving, c_);
    order_reduce(k_, copy.buffer ? copy.buffer : k_.b->buffer, k_.b->indices, c_);
    if (copy.buffer) {
      stages_.push_back(pad_stage(c_, k_.b, copy.buffer, copy.order, copy.low, target_));
      padded_ = copy.buffer;
      Indices at;
      for (size_t d = 0; d < k_.b->indices.size(); ++d) at.push_back(k_.b->indices[d] - copy.low[d]);
      k_.b = loop::load(padded_, at);
    }
    lay_out_weights();
    merge_reduce(k_, c_);
    if (k_.reduce.empty()) return "nothing is summed";
    const Iter& last = k_.reduce.back();
    if (last.extent.is_const() && last.extent.value() < kLanes) return "the contiguous part of the sum is short";
    return along(k_.a) && along(k_.b) ? "" : "the sum is not contiguous in both operands";
  }

  bool along(const Expr& load) const {
    const auto l = sym::linear_in(loop::offset(c_, load->buffer, load->indices), k_.reduce.back().var);
    return l && l->coefficient.is_const(1);
  }
  void drop_single_lines() {
    for (const Iter& i : lines_)
      if (i.extent.is_const(1)) single_[i.var] = c_.constant(0);
    k_.a = loop::substitute(k_.a, single_), k_.b = loop::substitute(k_.b, single_);
    std::erase_if(lines_, [&](const Iter& i) { return single_.count(i.var) > 0; });
  }

  // A constant's dims in the order of the reduce iterators.
  void lay_out_weights() {
    const Buffer& w = k_.a->buffer;
    if (w->scope != Scope::constant || !w->layout.is_row_major()) return;
    for (const Contraction::Epilogue& e : k_.epilogue) {
      bool read = false;
      loop::visit(e.value, [&](const Expr& x) { read = read || (x->op == Op::load && x->buffer == w); });
      if (read) return;  // one parameter, one layout
    }
    std::vector<int> order(w->rank());
    for (int d = 0; d < w->rank(); ++d) order[d] = d;
    const auto place = [&](int d) {
      for (size_t r = 0; r < k_.reduce.size(); ++r)
        if (sym::uses(k_.a->indices[d], k_.reduce[r].var)) return static_cast<int>(r);
      return -1;
    };
    std::stable_sort(order.begin(), order.end(), [&](int x, int y) { return place(x) < place(y); });
    given_ = w;
    weights_ = loop::make_buffer(w->name, w->dtype, w->shape, Scope::constant, loop::permuted(c_, w->shape, order));
    k_.a = loop::load(weights_, k_.a->indices);
  }

  Stmt tasks() {
    int64_t products = kResults;
    for (const Iter& i : k_.reduce) products *= i.extent.constant().value_or(256);
    const Index tiles = sym::ceildiv(k_.column.extent, kResults);
    int64_t tiles_a_task = std::clamp<int64_t>(kProductsOfATask / products, 1, 64);
    if (auto n = tiles.constant()) tiles_a_task = std::min(tiles_a_task, std::max<int64_t>(*n, 1));
    Indices outer;
    for (const Iter& i : lines_) outer.push_back(i.extent);
    const Index blocks = sym::ceildiv(tiles, tiles_a_task);
    const int64_t grain = std::max<int64_t>(1, kProductsOfATask / (products * tiles_a_task));
    return parallel(c_, "task", sym::product(c_, outer) * blocks, grain, [&](Index t) {
      sym::Map m;
      const Indices at = unflatten(sym::floordiv(t, blocks), outer);
      for (size_t d = 0; d < at.size(); ++d) m[lines_[d].var] = at[d];
      const Index first = sym::mod(t, blocks) * tiles_a_task;
      return serial(c_, "tile", sym::min(c_.constant(tiles_a_task), tiles - first), [&](Index i) { return tile(m, (first + i) * kResults); });
    });
  }

  Stmt tile(const sym::Map& line, Index x0) {
    const Buffer acc = loop::make_buffer("acc", k_.dtype, {c_.constant(kResults), c_.constant(kLanes)}, Scope::reg);
    const Buffer sums = loop::make_buffer("sums", k_.dtype, {c_.constant(kResults)}, Scope::reg);
    const auto results = [&](const std::function<Stmt(Index)>& f) { return unrolled(c_, "i", kResults, f); };
    const bool whole = sym::mod(k_.column.extent, kResults).is_const(0);
    const Stmt clear = results([&](Index i) { return vector(c_, "j", kLanes, [&](Index j) { return loop::store(acc, {i, j}, loop::constant(k_.dtype, 0)); }); });
    const Stmt sum = products(0, line, [&](const sym::Map& at, Index first, Index rest) {
      return results([&](Index i) {
        return vector(c_, "j", kLanes, [&](Index j) {
          sym::Map m = at;
          m[k_.reduce.back().var] = first + j;
          m[k_.column.var] = whole ? x0 + i : sym::min(x0 + i, k_.column.extent - 1);
          Expr a = loop::substitute(k_.a, m), b = loop::substitute(k_.b, m);
          if (rest) a = guard_loads(a, sym::lt(j, rest)), b = guard_loads(b, sym::lt(j, rest));
          return loop::store(acc, {i, j}, loop::fma(b, a, loop::load(acc, {i, j})));
        });
      });
    });
    std::vector<Stmt> all = {clear, sum};
    for (int64_t half = kLanes / 2; half > 1; half /= 2)
      all.push_back(results([&](Index i) {
        return vector(c_, "j", half, [&](Index j) { return loop::store(acc, {i, j}, loop::load(acc, {i, j}) + loop::load(acc, {i, j + half})); });
      }));
    const Index zero = c_.constant(0), one = c_.constant(1);
    all.push_back(results([&](Index i) { return loop::store(sums, {i}, loop::load(acc, {i, zero}) + loop::load(acc, {i, one})); }));
    if (whole) {
      all.push_back(finish(line, x0, sums, true));
    } else {
      const Index fits = sym::le(x0 + kResults, k_.column.extent);
      all.push_back(loop::branch(loop::from_index(DType::b1, fits), finish(line, x0, sums, true), finish(line, x0, sums, false)));
    }
    return loop::alloc(acc, loop::alloc(sums, loop::seq(all)));
  }

  // The reduce loops; of the innermost iterator whole vectors, then what is left (`rest` lanes; none: whole).
  Stmt products(size_t d, const sym::Map& m, const std::function<Stmt(const sym::Map&, Index, Index)>& f) {
    const Index n = k_.reduce[d].extent;
    if (d + 1 < k_.reduce.size())
      return serial(c_, "k", n, [&](Index v) {
        sym::Map inner = m;
        inner[k_.reduce[d].var] = v;
        return products(d + 1, inner, f);
      });
    const Index vectors = sym::floordiv(n, kLanes), rest = sym::mod(n, kLanes);
    std::vector<Stmt> all;
    if (!vectors.is_const(0)) all.push_back(serial(c_, "v", vectors, [&](Index v) { return f(m, v * kLanes, {}); }));
    if (!rest.is_const(0)) all.push_back(f(m, vectors * kLanes, rest));
    return loop::seq(all);
  }

  Stmt finish(const sym::Map& line, Index x0, const Buffer& sums, bool whole) {
    return vector(c_, "i", kResults, [&](Index i) {
      sym::Map m = line;
      for (const auto& [var, value] : single_) m[var] = value;
      m[k_.column.var] = x0 + i;
      const Index inside = sym::lt(x0 + i, k_.column.extent);
      std::vector<Stmt> stores;
      for (const Contraction::Epilogue& e : k_.epilogue) {
        Indices at;
        for (const Index& x : e.at) at.push_back(sym::substitute(x, m));
        Expr v = epilogue_value(k_, e, m, loop::load(sums, {i}));
        if (!whole) v = guard_loads(v, inside);
        stores.push_back(loop::store(e.target, at, v, whole ? Index() : inside));
      }
      return loop::seq(stores);
    });
  }

  const loop::Function& f_;
  Contraction k_;
  sym::Context& c_;
  const CpuTarget& target_;
  static constexpr int64_t kLanes = 8, kResults = 8;
  static constexpr int64_t kProductsOfATask = 64 * 1024;
  std::vector<Iter> lines_;
  sym::Map single_;
  Buffer padded_, given_, weights_;
  std::vector<Stmt> stages_;
};

}  // namespace

RuleResult dot(const loop::Function& f, sym::Context& c, const CpuTarget& target) {
  std::string why;
  const loop::Function inlined = inline_elementwise(f, c);
  auto k = match_contraction(inlined, c, &why);
  if (!k) return {loop::not_applicable(why), {}};
  return Dot(inlined, std::move(*k), c, target).run();
}

}  // namespace tripod::cpu
