// Operands of tensor-core contractions: where their memory runs, and how it gets into shared memory.
#include <algorithm>

#include "backends/cuda/cuda_c.h"
#include "backends/cuda/rules/tensor_cores.h"
#include "rules/inline.h"

namespace tripod::cuda {

using loop::Expr;
using loop::Iter;
using loop::Op;

namespace {

Indices extents(const std::vector<Iter>& is) {
  Indices r;
  for (const Iter& i : is) r.push_back(i.extent);
  return r;
}

Expr without_cast(const Expr& e, DType to) {
  return e->op == Op::cast && e->args[0]->dtype == to ? e->args[0] : e;
}

bool is_zero(const Expr& e) { return e->op == Op::constant && e->bits == 0; }

}  // namespace

TensorProblem::TensorProblem(sym::Context& c, rules::Contraction k, DType operands) : c_(c), k_(std::move(k)), dtype_(operands) {
  if (k_.a) k_.a = without_cast(k_.a, operands);
  k_.b = without_cast(k_.b, operands);
  order_reduction();
  row_extents_ = extents(k_.rows), batch_extents_ = extents(k_.batch), reduce_extents_ = extents(k_.reduce);
  rows = sym::product(c, row_extents_), batches = sym::product(c, batch_extents_), depth = sym::product(c, reduce_extents_);
  columns = k_.column.extent;
  if (k_.a) a = operand(true, k_.a);
  b = operand(false, k_.b);
}

bool TensorProblem::unit_stride(const Expr& value, Index var) const {
  bool yes = false;
  loop::visit(value, [&](const Expr& x) {
    if (x->op != Op::load) return;
    const auto l = sym::linear_in(loop::offset(c_, x->buffer, x->indices), var);
    yes = yes || (l && l->coefficient.is_const(1));
  });
  return yes;
}

// The iterator along which a (or else b) lies in memory becomes the innermost one: NHWC's channels.
void TensorProblem::order_reduction() {
  for (const Expr& e : {k_.a, k_.b})
    for (size_t d = 0; d < k_.reduce.size(); ++d)
      if (e && unit_stride(e, k_.reduce[d].var)) {
        std::rotate(k_.reduce.begin() + static_cast<std::ptrdiff_t>(d), k_.reduce.begin() + static_cast<std::ptrdiff_t>(d) + 1, k_.reduce.end());
        return;
      }
}

void TensorProblem::bind_batch(sym::Map& m, Index batch) const {
  const Indices at = unflatten(batch, batch_extents_);
  for (size_t d = 0; d < at.size(); ++d) m[k_.batch[d].var] = at[d];
}
void TensorProblem::bind_line(sym::Map& m, bool is_a, Index line) const {
  if (!is_a) {
    m[k_.column.var] = line;
    return;
  }
  const Indices at = unflatten(line, row_extents_);
  for (size_t d = 0; d < at.size(); ++d) m[k_.rows[d].var] = at[d];
}
void TensorProblem::bind_k(sym::Map& m, Index k) const {
  const Indices at = unflatten(k, reduce_extents_);
  for (size_t d = 0; d < at.size(); ++d) m[k_.reduce[d].var] = at[d];
}

namespace {

// A load whose position moves by one with `v`, along one dim: the region that v walks over.
struct Run {
  loop::Region region;
  Index guard;
};
std::optional<Run> run_of(sym::Context& c, const Expr& load, Index v, int64_t chunk) {
  const loop::ExprNode& e = *load;
  if (e.guard && (sym::uses(e.guard, v) || !is_zero(e.other))) return std::nullopt;
  Run r{{e.buffer, {}, {}}, e.guard};
  int moving = 0;
  for (Index i : e.indices) {
    const bool moves = sym::uses(i, v);
    moving += moves;
    r.region.offset.push_back(sym::substitute(i, {{v, c.constant(0)}}));
    r.region.extent.push_back(c.constant(moves ? chunk : 1));
    const auto l = sym::linear_in(i, v);
    if (moves && !(l && l->coefficient.is_const(1))) return std::nullopt;
  }
  const auto l = sym::linear_in(loop::offset(c, e.buffer, e.indices), v);
  if (moving != 1 || !l || !l->coefficient.is_const(1) || !is_multiple(c, e.buffer, r.region.offset, chunk)) return std::nullopt;
  return r;
}

// Every load stays where it is or moves by one with v, and no guard depends on it: lanes of one vector.
bool is_vector(sym::Context& c, const Expr& value, Index v) {
  bool good = true, moves = false;
  loop::visit(value, [&](const Expr& x) {
    if (x->op != Op::load) return;
    const auto l = sym::linear_in(loop::offset(c, x->buffer, x->indices), v);
    good = good && l && (l->coefficient.is_const(0) || l->coefficient.is_const(1)) && !(x->guard && sym::uses(x->guard, v));
    moves = moves || (l && l->coefficient.is_const(1));
  });
  return good && moves;
}

}  // namespace

// Do `chunk` elements along k (or the lines) from a multiple of `chunk` on lie side by side, aligned where they are
// copied without the thread's help?
bool TensorProblem::find_run(TensorOperand& o, bool along_k, int64_t chunk, bool asynchronous) const {
  const Index moving = along_k ? depth : o.extent;
  if ((asynchronous && o.value->op != Op::load) || !sym::proved(sym::eq(sym::mod(moving, chunk), c_.constant(0)))) return false;
  const Index q = c_.var("q", {0, sym::Range::kMax}), other = c_.var("o", {0, sym::Range::kMax}), v = c_.var("v", {0, chunk - 1});
  sym::Map m;
  bind_line(m, o.is_a, along_k ? other : q * chunk + v);
  bind_k(m, along_k ? q * chunk + v : other);
  const Expr at = loop::substitute(o.value, m);
  if (asynchronous ? !run_of(c_, at, v, chunk) : !is_vector(c_, at, v)) return false;
  o.along_k = along_k, o.chunk = chunk, o.asynchronous = asynchronous;
  return true;
}

TensorOperand TensorProblem::operand(bool is_a, const Expr& value) {
  TensorOperand o{value, is_a, is_a ? rows : columns};
  const int64_t size = info(dtype_).bits / 8;
  for (bool asynchronous : {true, false})
    for (int64_t bytes : {16, 8, 4})
      for (bool along_k : {true, false})
        if (find_run(o, along_k, bytes / size, asynchronous)) return o;
  o.along_k = !k_.reduce.empty() && unit_stride(value, k_.reduce.back().var);
  return o;
}

namespace {

// `chunk` elements by cp.async, zeros where they are outside.
Stmt copy(sym::Context& c, const Expr& load, Index v, int64_t chunk, const Buffer& tile, const Indices& to, size_t dim, Index inside) {
  const auto run = run_of(c, load, v, chunk);
  TRIPOD_CHECK(run.has_value(), "the run of an operand was found before");
  loop::Region target{tile, to, Indices(to.size(), c.constant(1))};
  target.extent[dim] = c.constant(chunk);
  Ref<loop::StmtNode> n(new loop::StmtNode(*loop::tile(loop::TileOp::copy, {target, run->region}, 0)));
  const Index guard = run->guard ? sym::logical_and(inside, run->guard) : inside;
  if (!sym::proved(guard)) n->guard = guard;
  return Stmt(n.get());
}

// The same through registers.
Stmt compute(sym::Context& c, const std::function<Expr(Index)>& value_at, int64_t chunk, const Buffer& tile, const Indices& to, size_t dim, Index inside) {
  const auto element = [&](bool is_inside) {
    const auto store = [&](Index v) {
      Indices at = to;
      at[dim] = at[dim] + v;
      return loop::store(tile, at, is_inside ? value_at(v) : loop::constant_bits(tile->dtype, 0));
    };
    return chunk == 1 ? store(c.constant(0)) : vector(c, "v", chunk, store);
  };
  if (sym::proved(inside)) return element(true);
  const Expr first = value_at(c.constant(0));
  if (chunk == 1 && first->op == Op::load && (!first->other || is_zero(first->other))) return loop::store(tile, to, rules::guard_loads(first, inside));
  return loop::branch(loop::from_index(DType::b1, inside), element(true), element(false));
}

}  // namespace

// Chunks of 16 bytes of a row are exchanged, by a pattern that differs between the 8 rows that ldmatrix reads at once.
Buffer shared_tile(sym::Context& c, const std::string& name, DType t, const TensorOperand& o, int64_t stages, int64_t lines, int64_t depth) {
  const int64_t chunk = 128 / info(t).bits, across = o.along_k ? lines : depth, length = o.along_k ? depth : lines;
  const int64_t chunks = length / chunk, distinct = std::min<int64_t>(8, chunks & -chunks), repeat = 8 / distinct;
  Indices shape = {c.constant(stages), c.constant(o.is_a ? lines : depth), c.constant(o.is_a ? depth : lines)};
  loop::Layout l;
  l.args = {c.var("s", {0, stages - 1}), c.var("i", {0, shape[1].value() - 1}), c.var("j", {0, shape[2].value() - 1})};
  const Index row = o.is_a == o.along_k ? l.args[1] : l.args[2], column = o.is_a == o.along_k ? l.args[2] : l.args[1];
  const Index pattern = sym::mod(sym::floordiv(row, repeat), distinct);
  l.map = {l.args[0], row, sym::bit_xor(sym::floordiv(column, chunk), pattern) * chunk + sym::mod(column, chunk)};
  l.extents = {c.constant(stages), c.constant(across), c.constant(length)};
  return loop::make_buffer(name, t, shape, loop::Scope::shared, l);
}

Stmt fill_tile(sym::Context& c, const TensorProblem& p, const TensorOperand& o, const Fill& f, const sym::Map& batch, Index thread) {
  const int64_t w = o.chunk, across = o.along_k ? f.lines : f.depth, chunks = (o.along_k ? f.depth : f.lines) / w, total = across * chunks;
  const Index v = c.var("v", {0, w - 1});
  const auto one = [&](Index flat) {
    const Index outer = sym::floordiv(flat, chunks), inner = sym::mod(flat, chunks) * w;
    const Index line = o.along_k ? outer : inner, k = o.along_k ? inner : outer;
    const auto value_at = [&](Index further) {
      sym::Map m = batch;
      p.bind_line(m, o.is_a, f.first_line + line + (o.along_k ? c.constant(0) : further));
      p.bind_k(m, f.first_k + k + (o.along_k ? further : c.constant(0)));
      return loop::substitute(o.value, m);
    };
    const size_t dim = o.is_a == o.along_k ? 2 : 1;  // of the tile, along which the chunk lies
    const Indices to = o.is_a ? Indices{f.stage, line, k} : Indices{f.stage, k, line};
    Index inside = c.constant(1);
    if (!f.exact_k) inside = sym::lt(f.first_k + k, p.depth);
    if (!f.exact_lines) inside = sym::logical_and(inside, sym::lt(f.first_line + line, o.extent));
    return o.asynchronous ? copy(c, value_at(v), v, w, f.tile, to, dim, inside) : compute(c, value_at, w, f.tile, to, dim, inside);
  };
  if (!o.asynchronous && total % f.threads == 0) return unrolled(c, "q", total / f.threads, [&](Index q) { return one(thread + q * f.threads); });
  // One statement a copy, no loop: what does not change from step to step stands in front of the loop over the steps.
  std::vector<Stmt> all;
  for (int64_t q = 0; q * f.threads < total; ++q) {
    const Index flat = thread + q * f.threads;
    all.push_back((q + 1) * f.threads > total ? where(sym::lt(flat, total), [&] { return one(flat); }) : one(flat));
  }
  return loop::seq(all);
}

}  // namespace tripod::cuda
