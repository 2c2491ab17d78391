// Moves whose innermost dim changes (transposes of any permutation, with what is computed on the way): tiles through
// shared memory, so that both sides run along their memory.
//
//   tile    kRows neighbours along the operand's memory times kColumns along the result's, fewer where a dim is short
//   in      threads along the operand, `wide` elements (4 bytes) at once where rows are whole pairs
//   out     threads along the result
// A line of the tile in shared memory is one element longer than needed: a column touches all banks.
//
// Applies to one elementwise store of which one load, unconditional, runs along another dim than the store.
#include <algorithm>

#include "backends/cuda/rules/rules.h"
#include "rules/inline.h"
#include "rules/walk.h"

namespace tripod::cuda {

using loop::Iter;
using loop::Op;
using loop::StmtKind;

namespace {

constexpr int64_t kThreads = 256, kTile = 64, kElements = kTile * kTile;

class Transpose : rules::BlockWalk {
 public:
  Transpose(sym::Context& c, const loop::StmtNode& block) : BlockWalk(c, block), name_(block.name) {}

  std::string match() {
    if (!reduce_.empty() || init_ || body_->kind != StmtKind::store || body_->guard) return "not one plain store";
    if (spatial_.size() < 2) return "one dim";
    if (info(body_->buffer->dtype).bits < 8) return "elements of less than a byte";
    sort_spatial();
    collapse();
    if (spatial_.size() < 2) return "one dim";
    column_ = spatial_.back();
    if (!steps_by_one(loop::offset(c_, body_->buffer, body_->indices), column_.var)) return "the result does not run along a dim";
    std::string why;
    loop::visit(body_->value, [&](const Expr& e) {
      if (e->op != Op::load || !rules::uses(e, column_.var)) return;
      const Index at = loop::offset(c_, e->buffer, e->indices);
      if (steps_by_one(at, column_.var)) return;
      const auto along = std::find_if(spatial_.begin(), spatial_.end(), [&](const Iter& i) { return !(i.var == column_.var) && steps_by_one(at, i.var); });
      if (e->guard || along == spatial_.end() || info(e->buffer->dtype).bits < 8) why = "a load runs along no dim of the result";
      else if (from_ && !same_place(e, from_)) why = "two loads run along other dims";
      else from_ = e, row_ = *along;
    });
    if (why.empty() && !from_) why = "everything runs along the result";
    if (why.empty() && (column_.extent.is_const(1) || row_.extent.is_const(1))) why = "a dim of 1";
    return why;
  }

  Stmt build() {
    for (const Iter& i : spatial_)
      if (!(i.var == row_.var) && !(i.var == column_.var)) others_.push_back(i);
    columns_ = std::min(kTile, short_dim(column_.extent));
    rows_ = std::min(kElements / columns_, short_dim(row_.extent));
    if (rows_ < kTile) columns_ = std::min(kElements / rows_, short_dim(column_.extent));
    mark();
    Indices extents;
    for (const Iter& i : others_) extents.push_back(i.extent);
    extents.push_back(sym::ceildiv(row_.extent, rows_));
    extents.push_back(sym::ceildiv(column_.extent, columns_));
    const int64_t wide = 4 / (info(from_->buffer->dtype).bits / 8);
    const Index even = wide > 1 ? pairs(wide) : c_.constant(0);
    return grid(c_, sym::product(c_, extents), [&](Index block) {
      const Indices at = unflatten(block, extents);
      for (size_t d = 0; d < others_.size(); ++d) fixed_[others_[d].var] = at[d];
      first_row_ = at[at.size() - 2] * rows_, first_column_ = at.back() * columns_;
      if (sym::prove(even) == sym::Truth::no) return tile(1);
      if (sym::proved(even)) return tile(wide);
      return loop::branch(loop::from_index(DType::b1, even), tile(wide), tile(1));
    });
  }

 private:
  static bool steps_by_one(Index offset, Index var) {
    const auto l = sym::linear_in(offset, var);
    return l && l->coefficient.is_const(1);
  }
  // The next power of two from 4 on; much where it is open.
  static int64_t short_dim(Index extent) {
    int64_t n = 4;
    while (n < kElements && n < extent.constant().value_or(kTile)) n *= 2;
    return n;
  }

  // Both dims, and every step of the others, are multiples of `wide`.
  Index pairs(int64_t wide) const {
    Index all = c_.constant(1);
    const auto ask = [&](Index size) {
      const Index holds = sym::eq(sym::mod(size, wide), c_.constant(0));
      if (!sym::proved(holds)) all = sym::logical_and(all, holds);
    };
    ask(row_.extent), ask(column_.extent);
    for (const Index& at : {loop::offset(c_, body_->buffer, body_->indices), loop::offset(c_, from_->buffer, from_->indices)})
      for (const Iter& i : spatial_)
        if (const auto l = sym::linear_in(at, i.var); l && !l->coefficient.is_const(1)) ask(l->coefficient);
    return all;
  }

  sym::Map at(Index row, Index column) const {
    sym::Map m = fixed_;
    m[row_.var] = row, m[column_.var] = column;
    return m;
  }

  Stmt tile(int64_t wide) {
    const Buffer tile = loop::make_buffer(name_ + "_tile", from_->buffer->dtype, {c_.constant(columns_), c_.constant(rows_ + 1)}, loop::Scope::shared);
    const Stmt in = lines(columns_, rows_, wide, [&](Index line, Index first, int64_t w) {
      return where(sym::logical_and(sym::lt(first_column_ + line, column_.extent), sym::lt(first_row_ + first, row_.extent)), [&] {
        return lanes(w, [&](Index lane) {
          return loop::store(tile, {line, first + lane}, loop::substitute(from_, at(first_row_ + first + lane, first_column_ + line)));
        });
      });
    });
    const Stmt out = lines(rows_, columns_, wide, [&](Index line, Index first, int64_t w) {
      return where(sym::logical_and(sym::lt(first_row_ + line, row_.extent), sym::lt(first_column_ + first, column_.extent)), [&] {
        return lanes(w, [&](Index lane) {
          const Stmt s = loop::substitute(marked_, at(first_row_ + line, first_column_ + first + lane));
          return replaced(s, [&](const Expr& e) { return e->buffer == moved_; }, loop::load(tile, {first + lane, line}));
        });
      });
    });
    return loop::alloc(tile, loop::seq({in, loop::sync(loop::SyncKind::barrier), out}));
  }

  struct Replace : loop::Rewriter {
    using loop::Rewriter::rewrite;
    Expr rewrite(const Expr& e) override { return e->op == Op::load && is(e) ? value : nullptr; }
    std::function<bool(const Expr&)> is;
    Expr value;
  };
  static Stmt replaced(const Stmt& s, std::function<bool(const Expr&)> is, const Expr& value) {
    Replace r;
    r.is = std::move(is), r.value = value;
    return r.apply(s);
  }
  // What is moved gets a name of its own, so that it is found when the iterators have been replaced.
  void mark() {
    moved_ = loop::make_buffer(name_ + "_moved", from_->dtype, {c_.constant(1)});
    marked_ = replaced(body_, [&](const Expr& e) { return same_place(e, from_); }, loop::load(moved_, {c_.constant(0)}));
  }
  static bool same_place(const Expr& a, const Expr& b) { return a->buffer == b->buffer && a->indices == b->indices; }

  Stmt lanes(int64_t wide, const std::function<Stmt(Index)>& body) {
    return wide == 1 ? body(c_.constant(0)) : vector(c_, "lane", wide, body);
  }
  // Every vector of `count` lines of `length` elements, by all threads of the block.
  Stmt lines(int64_t count, int64_t length, int64_t wide, const std::function<Stmt(Index, Index, int64_t)>& body) {
    const int64_t per_line = length / wide, all = count * per_line;
    return threads(c_, kThreads, [&](Index t) {
      return unrolled(c_, "q", (all + kThreads - 1) / kThreads, [&](Index q) {
        const Index flat = q * kThreads + t;
        return where(sym::lt(flat, all), [&] { return body(sym::floordiv(flat, per_line), sym::mod(flat, per_line) * wide, wide); });
      });
    });
  }

  std::string name_;
  Iter row_, column_;        // along the operand's memory, along the result's
  Expr from_;
  Buffer moved_;
  Stmt marked_;
  std::vector<Iter> others_;
  int64_t rows_ = kTile, columns_ = kTile;
  sym::Map fixed_;
  Index first_row_, first_column_;
};

}  // namespace

RuleResult transpose(const loop::Function& f, sym::Context& c) {
  loop::Function r = rules::inline_elementwise(f, c);
  if (r.body->kind != StmtKind::block) return {loop::not_applicable("more than one block"), {}};
  Transpose t(c, *r.body);
  if (std::string why = t.match(); !why.empty()) return {loop::not_applicable(why), {}};
  r.body = t.build();
  return {{true, ""}, r};
}

}  // namespace tripod::cuda
