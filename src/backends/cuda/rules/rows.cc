// Reductions over the innermost dims with what surrounds them (softmax, layer norm, row sums): one block of threads a
// row. What the row needs twice is kept in shared memory, numbers of the row in shared memory or registers, so that
// global memory is read and written once.
//
// Applies when all blocks share their leading spatial iterators (the rows), reductions are sums or maxima over exactly
// what is behind them, internal buffers are read in the row that wrote them, and a row fits shared memory.
#include <algorithm>

#include "backends/cuda/rules/rules.h"
#include "rules/inline.h"

namespace tripod::cuda {

using loop::Iter;
using loop::Op;
using loop::Scope;
using loop::StmtKind;
using loop::StmtNode;

namespace {

constexpr int64_t kSharedBytes = 40960;

bool reduces(const StmtNode& b) {
  return std::any_of(b.iters.begin(), b.iters.end(), [](const Iter& i) { return i.reduce; });
}

class Rows {
 public:
  Rows(const loop::Function& f, sym::Context& c) : f_(f), c_(c) {}

  RuleResult run() {
    if (std::string why = match(); !why.empty()) return {loop::not_applicable(why), {}};
    choose_threads();
    loop::Function r = f_;
    r.body = grid(c_, sym::product(c_, rows_), [&](Index row) {
      at_ = unflatten(row, rows_);
      std::vector<Stmt> all;
      for (const Stmt& b : blocks_) reduces(*b) ? reduction(*b, all) : spatial(*b, all);
      Stmt s = loop::seq(all);
      for (auto& [from, to] : local_) s = loop::alloc(to, s);
      return s;
    });
    return {{true, ""}, r};
  }

 private:
  std::string match() {
    Stmt s = f_.body;
    while (s->kind == StmtKind::alloc) internal_.push_back(s->buffer), s = s->body[0];
    blocks_ = s->kind == StmtKind::seq ? s->body : std::vector<Stmt>{s};
    const auto first = std::find_if(blocks_.begin(), blocks_.end(), [](const Stmt& b) { return reduces(*b); });
    if (first == blocks_.end()) return "no block reduces";
    for (const Iter& i : (*first)->iters)
      if (!i.reduce) rows_.push_back(i.extent);
    for (const Stmt& b : blocks_)
      if (std::string why = match_block(*b); !why.empty()) return "block " + b->name + ": " + why;
    int64_t bytes = 0;
    for (const Buffer& b : internal_)
      if (!make_local(b, bytes)) return "a row of " + b->name + " may not fit shared memory";
    return "";
  }

  std::string match_block(const StmtNode& b) {
    if (b.body[0]->kind != StmtKind::store || b.body[0]->guard) return "not a plain store";
    size_t spatial = 0;
    for (const Iter& i : b.iters) spatial += !i.reduce;
    if (spatial < rows_.size()) return "fewer dims than rows";
    for (size_t d = 0; d < rows_.size(); ++d)
      if (b.iters[d].reduce || !(b.iters[d].extent == rows_[d])) return "its rows differ";
    if (reduces(b)) {
      if (spatial != rows_.size()) return "reduces a part of what is behind the rows";
      if (!combiner(b)) return "neither a sum nor a maximum";
      if (!contiguous(b)) return "its innermost reduce iterator is not contiguous";
    }
    bool same_row = true;
    loop::visit(b.body[0]->value, [&](const Expr& e) {
      if (e->op == Op::load && is_internal(e->buffer)) same_row = same_row && in_row(b, e->buffer, e->indices);
    });
    if (is_internal(b.body[0]->buffer)) same_row = same_row && in_row(b, b.body[0]->buffer, b.body[0]->indices);
    return same_row ? "" : "reads another row";
  }
  bool is_internal(const Buffer& b) const { return std::find(internal_.begin(), internal_.end(), b) != internal_.end(); }

  bool in_row(const StmtNode& b, const Buffer& buffer, const Indices& at) const {
    if (at.size() < rows_.size()) return false;
    for (size_t d = 0; d < rows_.size(); ++d)
      if (!(at[d] == b.iters[d].var || (rows_[d].is_const(1) && at[d].is_const(0))) || !(buffer->shape[d] == rows_[d])) return false;
    return true;
  }

  bool contiguous(const StmtNode& b) const {
    bool good = true;
    const Index k = b.iters.back().var;
    loop::visit(b.body[0]->value, [&](const Expr& e) {
      if (e->op != Op::load || is_internal(e->buffer)) return;
      const auto l = sym::linear_in(loop::offset(c_, e->buffer, e->indices), k);
      good = good && l && (l->coefficient.is_const(0) || l->coefficient.is_const(1));
    });
    return good;
  }

  std::optional<loop::TileOp> combiner(const StmtNode& b) const {
    const StmtNode& s = *b.body[0];
    const auto is_acc = [&](const Expr& e) { return e->op == Op::load && e->buffer == s.buffer && e->indices == s.indices; };
    const Expr& v = s.value;
    if ((v->op == Op::fma && is_acc(v->args[2])) || (v->op == Op::add && is_acc(v->args[0]))) return loop::TileOp::reduce_sum;
    if (v->op == Op::max && is_acc(v->args[0])) return loop::TileOp::reduce_max;
    return std::nullopt;
  }

  // The part of an internal buffer that belongs to one row, in shared memory.
  bool make_local(const Buffer& b, int64_t& bytes) {
    Indices shape(b->shape.begin() + static_cast<long>(rows_.size()), b->shape.end());
    if (shape.empty()) shape = {c_.constant(1)};
    const Index count = sym::product(c_, shape);
    if (!count.is_const()) return false;
    bytes += count.value() * std::max(1, info(b->dtype).bits / 8);
    local_.push_back({b, loop::make_buffer(b->name, b->dtype, shape, Scope::shared)});
    return bytes <= kSharedBytes;
  }

  // A quarter of a row at most, so that a thread has something to do; between a warp and 1024.
  void choose_threads() {
    int64_t longest = 1;
    for (const Stmt& b : blocks_) {
      int64_t n = 1;
      for (size_t d = rows_.size(); d < b->iters.size(); ++d) n *= b->iters[d].extent.constant().value_or(2048);
      longest = std::max(longest, n);
    }
    for (threads_ = 32; threads_ < 1024 && threads_ * 4 < longest; threads_ *= 2) {
    }
  }

  struct Bind : loop::Rewriter {
    Bind(const Rows& r, const sym::Map& m) : rows(r), map(m) {}
    using loop::Rewriter::rewrite;
    Expr rewrite(const Expr& e) override {
      if (e->op == Op::load)
        for (auto& [from, to] : rows.local_)
          if (e->buffer == from) return loop::load(to, rows.tail(e->indices, map));
      return nullptr;
    }
    Stmt rewrite(const Stmt& s) override {
      if (s->kind == StmtKind::store)
        for (auto& [from, to] : rows.local_)
          if (s->buffer == from) return loop::store(to, rows.tail(s->indices, map), apply(s->value));
      return nullptr;
    }
    Index rewrite_index(Index i) override { return sym::substitute(i, map); }
    const Rows& rows;
    const sym::Map& map;
  };
  Indices tail(const Indices& at, const sym::Map& m) const {
    Indices r;
    for (size_t d = rows_.size(); d < at.size(); ++d) r.push_back(sym::substitute(at[d], m));
    if (r.empty()) r.push_back(c_.constant(0));
    return r;
  }

  // The iterators behind the rows at flat position i of their space.
  sym::Map bound(const StmtNode& b, Index i) const {
    sym::Map m;
    Indices extents;
    for (size_t d = 0; d < rows_.size(); ++d) m[b.iters[d].var] = at_[d];
    for (size_t d = rows_.size(); d < b.iters.size(); ++d) extents.push_back(b.iters[d].extent);
    const Indices at = unflatten(i, extents);
    for (size_t d = 0; d < at.size(); ++d) m[b.iters[rows_.size() + d].var] = at[d];
    return m;
  }
  Index inner_extent(const StmtNode& b) const {
    Index n = c_.constant(1);
    for (size_t d = rows_.size(); d < b.iters.size(); ++d) n = n * b.iters[d].extent;
    return n;
  }

  void spatial(const StmtNode& b, std::vector<Stmt>& all) {
    all.push_back(threads(c_, threads_, [&](Index t) {
      return strided(c_, "i", inner_extent(b), t, threads_, [&](Index i) { return Bind(*this, bound(b, i)).apply(b.body[0]); });
    }));
    if (is_internal(b.body[0]->buffer)) all.push_back(loop::sync(loop::SyncKind::barrier));
  }

  // Each thread its own part, then all parts together into shared memory; the row's number is stored by one thread.
  void reduction(const StmtNode& b, std::vector<Stmt>& all) {
    const StmtNode& s = *b.body[0];
    const DType t = s.buffer->dtype;
    const Buffer part = per_thread(c_, b.name + "_part", t, threads_, {});
    const Index zero = c_.constant(0), one = c_.constant(1);
    const bool internal = is_internal(s.buffer);
    const Buffer total = internal ? std::find_if(local_.begin(), local_.end(), [&](auto& l) { return l.first == s.buffer; })->second
                                  : loop::make_buffer(b.name + "_total", t, {one}, Scope::shared);
    std::vector<Stmt> mine = {threads(c_, threads_, [&](Index th) {
      const Expr old = loop::load(part, {th});
      const Expr moved = rules::replace_load(s.value, s.value->op == Op::fma ? s.value->args[2] : s.value->args[0], old);
      return loop::seq({loop::store(part, {th}, b.init->value),
                        strided(c_, "k", inner_extent(b), th, threads_, [&](Index k) {
                          return loop::store(part, {th}, Bind(*this, bound(b, k)).apply(moved));
                        })});
    })};
    mine.push_back(loop::tile(*combiner(b), {{total, {zero}, {one}}, {part, {zero}, {c_.constant(threads_)}}}));
    mine.push_back(loop::sync(loop::SyncKind::barrier));
    if (!internal) {
      const sym::Map m = bound(b, zero);
      mine.push_back(threads(c_, threads_, [&](Index th) {
        return loop::branch(loop::from_index(DType::b1, sym::eq(th, zero)),
                            Bind(*this, m).apply(loop::store(s.buffer, s.indices, loop::load(total, {zero}))));
      }));
    }
    Stmt together = loop::alloc(part, loop::seq(mine));
    all.push_back(internal ? together : loop::alloc(total, together));
  }

  const loop::Function& f_;
  sym::Context& c_;
  int64_t threads_ = 256;
  Indices rows_, at_;
  std::vector<Stmt> blocks_;
  std::vector<Buffer> internal_;
  std::vector<std::pair<Buffer, Buffer>> local_;
};

}  // namespace

RuleResult rows(const loop::Function& f, sym::Context& c) {
  const loop::Function inlined = rules::inline_elementwise(f, c);
  return Rows(inlined, c).run();
}

}  // namespace tripod::cuda
