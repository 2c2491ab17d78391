// Reductions that leave few results of many terms, in two kernels without atomics: parts of the terms to partial
// results, then the partial results to results with what follows.
//
//   full     the terms lie together: a block of threads takes a part of a result's terms, by vectors
//   columns  neighbouring results lie together: a block takes a strip of results (`wide` a thread) and a part of the
//            terms; its kLines lines of threads take turns, and are added up in shared memory
//   final    the partial results, by the rules for rows or points
//
// Applies to one block that reduces by an associative operation, with elementwise blocks behind it. A float sum is made
// of chains of kChain terms.
#include <algorithm>

#include "backends/cuda/rules/rules.h"
#include "rules/inline.h"
#include "rules/rows.h"

namespace tripod::cuda {

using loop::Iter;
using loop::Op;
using loop::Scope;
using loop::StmtKind;
using loop::StmtNode;

namespace {

constexpr int64_t kThreads = 256, kLanes = 32, kLines = kThreads / kLanes;
constexpr int64_t kVectorBytes = 16, kGroup = 4;  // vectors under way
constexpr int64_t kBlocks = 1056;                 // that fill a large GPU
constexpr int64_t kFewResults = 264, kManyTerms = 16384, kPart = 4096, kLeastLines = 64;

class Reduce {
 public:
  Reduce(const loop::Function& f, sym::Context& c) : f_(f), c_(c) {}

  RuleResult run() {
    if (std::string why = match(); !why.empty()) return {loop::not_applicable(why), {}};
    return {{true, ""}, two_kernels()};
  }

 private:
  std::string match() {
    Stmt body = f_.body;
    while (body->kind == StmtKind::alloc) temporaries_.push_back(body->buffer), body = body->body[0];
    blocks_ = body->kind == StmtKind::seq ? body->body : std::vector<Stmt>{body};
    const auto reduces = [](const Stmt& b) { return std::any_of(b->iters.begin(), b->iters.end(), [](const Iter& i) { return i.reduce; }); };
    if (!reduces(blocks_[0]) || std::count_if(blocks_.begin(), blocks_.end(), reduces) != 1) return "not one reduction, and first";
    const StmtNode& b = *blocks_[0];
    const StmtNode& s = *b.body[0];
    if (s.kind != StmtKind::store || s.guard || !b.init || info(s.buffer->dtype).bits < 8) return "not a plain store";
    const Expr& v = s.value;
    const auto op = rules::combiner(b);
    if (!op) return "its operation is not associative";
    op_ = *op, acc_ = v->args[v->op == Op::fma ? 2 : 0];
    if (!neutral(b.init->value)) return "it does not start from nothing";
    for (const Iter& i : b.iters) (i.reduce ? reduce_ : spatial_).push_back(i);
    value_ = v;
    for (size_t d = 0; d < s.indices.size(); ++d)
      if (!s.indices[d].is_var() && !s.indices[d].is_const(0)) return "the result is not indexed by iterators";
    bool temporaries = false, nibbles = false;
    loop::visit(v, [&](const Expr& e) {
      if (e->op != Op::load || e == acc_) return;
      temporaries = temporaries || std::find(temporaries_.begin(), temporaries_.end(), e->buffer) != temporaries_.end();
      nibbles = nibbles || info(e->buffer->dtype).bits < 8;
      widest_ = std::max<int64_t>(widest_, info(e->buffer->dtype).bits / 8);
    });
    collapse();
    if (temporaries || nibbles) return "an operand is computed in the kernel, or of less than a byte";
    return classify();
  }
  // Parts may start from init without changing the result.
  bool neutral(const Expr& init) const {
    if (init->op != Op::constant) return false;
    if (op_ == Op::add) return loop::constant_value(init) == 0;
    if (op_ == Op::mul) return loop::constant_value(init) == 1;
    return true;  // min, max, & and | may see it more than once
  }

  // Neighbouring terms dims that every load walks as one become one.
  void collapse() {
    for (size_t d = reduce_.size(); d-- > 1;) {
      const Iter outer = reduce_[d - 1], inner = reduce_[d];
      const Index joint = loop_var(c_, outer.var->name.c_str(), outer.extent * inner.extent);
      const sym::Map m = {{outer.var, sym::floordiv(joint, inner.extent)}, {inner.var, sym::mod(joint, inner.extent)}};
      bool good = true;
      loop::visit(value_, [&](const Expr& e) {
        if (e->guard || e->op == Op::index) good = false;
        if (e->op != Op::load || e == acc_ || !good) return;
        const Index at = loop::offset(c_, e->buffer, e->indices);
        if (!sym::uses(at, outer.var) && !sym::uses(at, inner.var)) return;
        const auto joined = sym::linear_in(sym::substitute(at, m), joint), before = sym::linear_in(at, inner.var);
        good = joined && before && joined->coefficient == before->coefficient;
      });
      if (!good) continue;
      value_ = loop::substitute(value_, m);
      acc_ = value_->args[value_->op == Op::fma ? 2 : 0];
      reduce_.erase(reduce_.begin() + static_cast<long>(d));
      reduce_[d - 1] = {joint, outer.extent * inner.extent, true, {}};
    }
  }

  std::string classify() {
    for (const Iter& i : spatial_) results_ = results_ ? results_ * i.extent : i.extent;
    if (!results_) results_ = c_.constant(1);
    for (const Iter& i : reduce_) terms_ = terms_ ? terms_ * i.extent : i.extent;
    const auto steps = [&](Index var) {  // does any load run along var
      bool any = false, all = true;
      loop::visit(value_, [&](const Expr& e) {
        if (e->op != Op::load || e == acc_) return;
        const auto l = sym::linear_in(loop::offset(c_, e->buffer, e->indices), var);
        any = any || (l && l->coefficient.is_const(1));
        all = all && l && (l->coefficient.is_const(1) || l->coefficient.is_const(0));
      });
      return any && all;
    };
    if (steps(reduce_.back().var)) {
      if (!results_.is_const() || results_.value() > kFewResults) return "enough results for a block each";
      if (terms_.constant().value_or(kManyTerms) < kManyTerms) return "few terms";
      return "";
    }
    if (spatial_.empty() || !steps(spatial_.back().var)) return "the operand runs neither along the terms nor along the results";
    columns_ = true;
    if (terms_.constant().value_or(kLeastLines) < kLeastLines) return "few terms";
    return "";
  }

  // --- two kernels ---

  loop::Function two_kernels() {
    const DType t = acc_->dtype;
    const Index blocks = columns_ ? strips() : results_;
    const Index least = columns_ ? sym::ceildiv(terms_, kLeastLines) : sym::ceildiv(terms_, kPart);
    parts_ = sym::max(sym::min(least, sym::floordiv(c_.constant(kBlocks), sym::max(blocks, 1)) + 1), 1);
    Indices shape;
    for (const Iter& i : spatial_) shape.push_back(i.extent);
    shape.insert(columns_ ? shape.begin() : shape.end(), parts_);
    partial_ = loop::make_buffer(blocks_[0]->name + "_parts", t, shape);
    loop::Function final = f_;
    final.params.insert(final.params.end() - f_.num_outputs, partial_);
    final.body = loop::seq(final_blocks());
    for (size_t i = temporaries_.size(); i-- > 0;) final.body = loop::alloc(temporaries_[i], final.body);
    RuleResult second = rows(final, c_, {});
    if (!second.outcome.applied) second = points(final, c_);
    loop::Function r = f_;
    Stmt body = second.function.body;
    std::vector<Buffer> around;
    while (body->kind == StmtKind::alloc && body->buffer->scope == Scope::global) around.push_back(body->buffer), body = body->body[0];
    r.body = loop::seq({columns_ ? columns_part() : full_part(), body});
    around.push_back(partial_);
    for (const Buffer& b : around) r.body = loop::alloc(b, r.body);
    return r;
  }

  // The reduction of the partial results, and the blocks behind it.
  std::vector<Stmt> final_blocks() {
    const StmtNode& b = *blocks_[0];
    std::vector<Iter> iters = spatial_;
    Indices at;
    for (const Iter& i : spatial_) at.push_back(i.var);
    const Index part = loop_var(c_, "part", parts_);
    at.insert(columns_ ? at.begin() : at.end(), part);
    iters.push_back({part, parts_, true, {}});
    const StmtNode& s = *b.body[0];
    std::vector<Stmt> all = {loop::block(b.name, iters, loop::store(s.buffer, s.indices, loop::make(op_, {loop::load(s.buffer, s.indices), loop::load(partial_, at)})), b.init)};
    all.insert(all.end(), blocks_.begin() + 1, blocks_.end());
    return all;
  }

  // The value with the accumulator elsewhere, at a result and a term.
  Expr moved(const Expr& accumulator, const Indices& result, Index term) const {
    sym::Map m;
    for (size_t d = 0; d < result.size(); ++d) m[spatial_[d].var] = result[d];
    Indices extents;
    for (const Iter& i : reduce_) extents.push_back(i.extent);
    const Indices at = unflatten(term, extents);
    for (size_t d = 0; d < at.size(); ++d) m[reduce_[d].var] = at[d];
    // The accumulator's own indices have iterators too: it is replaced first, by something without.
    return loop::substitute(rules::replace_load(value_, acc_, accumulator), m);
  }
  Expr nothing() const { return blocks_[0]->init->value; }

  // `count` steps; a float sum goes through chains of kChain. `step` gets the accumulator's place and the step.
  Stmt chains(const Buffer& sums, Index thread, int64_t wide, Index count, const std::function<Stmt(const Buffer&, Index)>& step) {
    const auto fill = [&](const Buffer& b, const std::function<Expr(Index)>& value) {
      return unrolled(c_, "lane", wide, [&](Index lane) { return loop::store(b, {thread, lane}, value(lane)); });
    };
    const Stmt start = fill(sums, [&](Index) { return nothing(); });
    if (!is_float(acc_->dtype) || op_ != Op::add || sym::bounds(count).hi <= kChain)
      return loop::seq({start, unrolled_by(c_, "i", count, kGroup, [&](Index i) { return step(sums, i); })});
    const Buffer chain = per_thread(c_, sums->name + "_chain", acc_->dtype, kThreads, {c_.constant(wide)});
    return loop::seq({start, serial(c_, "chain", sym::ceildiv(count, kChain), [&](Index n) {
      const Index steps = sym::min(count - n * kChain, kChain);
      return loop::alloc(chain, loop::seq({fill(chain, [&](Index) { return nothing(); }),
                                           unrolled_by(c_, "i", steps, kGroup, [&](Index i) { return step(chain, n * kChain + i); }),
                                           fill(sums, [&](Index lane) { return loop::load(sums, {thread, lane}) + loop::load(chain, {thread, lane}); })}));
    })});
  }
  Stmt lanes(int64_t wide, const std::function<Stmt(Index)>& body) {
    return wide == 1 ? body(c_.constant(0)) : vector(c_, "lane", wide, body);
  }

  int64_t widest_vector() const { return std::clamp<int64_t>(kVectorBytes / widest_, 1, kLines); }
  // Wide vectors where the lines of memory are whole ones (asked at run time where that is open).
  Stmt by_width(Index line, const std::function<Stmt(int64_t)>& body) {
    const int64_t wide = widest_vector();
    const Index whole = sym::eq(sym::mod(line, wide), c_.constant(0));
    if (wide == 1 || sym::prove(whole) == sym::Truth::no) return body(1);
    if (sym::proved(whole)) return body(wide);
    return loop::branch(loop::from_index(DType::b1, whole), body(wide), body(1));
  }

  // --- terms that lie together ---

  Stmt full_part() {
    return grid(c_, results_ * parts_, [&](Index block) {
      const Index part = sym::mod(block, parts_), result = sym::floordiv(block, parts_);
      Indices extents;
      for (const Iter& i : spatial_) extents.push_back(i.extent);
      const Indices at = extents.empty() ? Indices{} : unflatten(result, extents);
      return by_width(reduce_.back().extent, [&](int64_t wide) { return full_block(part, at, wide); });
    });
  }
  Stmt full_block(Index part, const Indices& result, int64_t wide) {
    const DType t = acc_->dtype;
    const Index step = c_.constant(kThreads * wide), zero = c_.constant(0);
    const Index each = sym::ceildiv(terms_, parts_ * step) * step;  // terms of a part, whole turns of the threads
    const Index first = part * each, mine = sym::max(sym::min(terms_ - first, each), 0);
    const Buffer sums = per_thread(c_, blocks_[0]->name + "_sums", t, kThreads, {c_.constant(wide)});
    const Buffer all = loop::make_buffer(blocks_[0]->name + "_all", t, {c_.constant(kThreads)}, Scope::shared);
    const auto at_thread = [&](Index th) {
      // Vectors th, th + kThreads, ... of the part.
      const Index count = sym::floordiv(sym::max(mine - th * wide + (step - 1), 0), step);
      std::vector<Stmt> s = {chains(sums, th, wide, count, [&](const Buffer& acc, Index i) {
        return lanes(wide, [&](Index lane) {
          return loop::store(acc, {th, lane}, moved(loop::load(acc, {th, lane}), result, first + i * step + th * wide + lane));
        });
      })};
      for (int64_t lane = 1; lane < wide; ++lane)
        s.push_back(loop::store(sums, {th, zero}, loop::make(op_, {loop::load(sums, {th, zero}), loop::load(sums, {th, c_.constant(lane)})})));
      s.push_back(loop::store(all, {th}, loop::load(sums, {th, zero})));
      return loop::seq(s);
    };
    std::vector<Stmt> s = {threads(c_, kThreads, at_thread), loop::sync(loop::SyncKind::barrier)};
    for (int64_t half = kThreads / 2; half > 0; half /= 2) {
      s.push_back(threads(c_, kThreads, [&](Index th) {
        return where(sym::lt(th, half), [&] { return loop::store(all, {th}, loop::make(op_, {loop::load(all, {th}), loop::load(all, {th + half})})); });
      }));
      s.push_back(loop::sync(loop::SyncKind::barrier));
    }
    Indices to = result;
    to.push_back(part);
    s.push_back(threads(c_, kThreads, [&](Index th) {
      return where(sym::eq(th, 0), [&] { return loop::store(partial_, to, loop::load(all, {zero})); });
    }));
    return loop::alloc(sums, loop::alloc(all, loop::seq(s)));
  }

  // --- results that lie together ---

  Index strips() const {
    Index n = sym::ceildiv(spatial_.back().extent, kLanes * widest_vector());
    for (size_t d = 0; d + 1 < spatial_.size(); ++d) n = n * spatial_[d].extent;
    return n;
  }
  Stmt columns_part() {
    const Index length = spatial_.back().extent;
    const auto strips_of = [&](int64_t wide) {
      Indices e;
      for (size_t d = 0; d + 1 < spatial_.size(); ++d) e.push_back(spatial_[d].extent);
      e.push_back(sym::ceildiv(length, kLanes * wide));
      e.push_back(parts_);
      return e;
    };
    const int64_t wide = widest_vector();
    const Index whole = sym::eq(sym::mod(length, wide), c_.constant(0));
    const auto blocks = [&](int64_t w) { return sym::product(c_, strips_of(w)); };
    const Index count = sym::proved(whole) ? blocks(wide) : sym::prove(whole) == sym::Truth::no ? blocks(1) : sym::select(whole, blocks(wide), blocks(1));
    return grid(c_, count, [&](Index block) {
      return by_width(length, [&](int64_t w) {
        Indices at = unflatten(block, strips_of(w));
        const Index part = at.back();
        at.pop_back();
        return columns_block(part, at, w);
      });
    });
  }
  Stmt columns_block(Index part, Indices outer, int64_t wide) {
    const DType t = acc_->dtype;
    const Index length = spatial_.back().extent, strip = outer.back() * (kLanes * wide);
    outer.pop_back();
    const Index each = sym::ceildiv(terms_, parts_), first = part * each, mine = sym::max(sym::min(terms_ - first, each), 0);
    const Buffer sums = per_thread(c_, blocks_[0]->name + "_sums", t, kThreads, {c_.constant(wide)});
    const Buffer all = loop::make_buffer(blocks_[0]->name + "_all", t, {c_.constant(kLines), c_.constant(kLanes * wide)}, Scope::shared);
    const auto result = [&](Index column) {
      Indices at = outer;
      at.push_back(column);
      return at;
    };
    const auto at_thread = [&](Index th) {
      const Index line = sym::floordiv(th, kLanes), column = strip + sym::mod(th, kLanes) * wide;
      const Index count = sym::floordiv(sym::max(mine - line + (kLines - 1), 0), kLines);
      const Stmt add = chains(sums, th, wide, count, [&](const Buffer& acc, Index i) {
        return lanes(wide, [&](Index lane) {
          return loop::store(acc, {th, lane}, moved(loop::load(acc, {th, lane}), result(column + lane), first + i * kLines + line));
        });
      });
      const Stmt share = lanes(wide, [&](Index lane) { return loop::store(all, {line, sym::mod(th, kLanes) * wide + lane}, loop::load(sums, {th, lane})); });
      return where(sym::lt(column, length), [&] { return loop::seq({add, share}); });
    };
    const Stmt store = threads(c_, kThreads, [&](Index th) {
      const Index column = strip + th;
      Indices to = result(column);
      to.insert(to.begin(), part);
      Expr v = loop::load(all, {c_.constant(0), th});
      for (int64_t line = 1; line < kLines; ++line) v = loop::make(op_, {v, loop::load(all, {c_.constant(line), th})});
      return where(sym::logical_and(sym::lt(th, kLanes * wide), sym::lt(column, length)), [&] { return loop::store(partial_, to, v); });
    });
    return loop::alloc(sums, loop::alloc(all, loop::seq({threads(c_, kThreads, at_thread), loop::sync(loop::SyncKind::barrier), store})));
  }

  const loop::Function& f_;
  sym::Context& c_;
  std::vector<Buffer> temporaries_;
  std::vector<Stmt> blocks_;
  std::vector<Iter> spatial_, reduce_;
  Op op_ = Op::add;
  Expr acc_, value_;              // the load of the accumulator; what is stored, over reduce_ as collapsed
  Index results_, terms_, parts_;
  int64_t widest_ = 1;
  bool columns_ = false;
  Buffer partial_;
};

}  // namespace

RuleResult reduce(const loop::Function& f, sym::Context& c) {
  const loop::Function inlined = rules::inline_elementwise(f, c);
  return Reduce(inlined, c).run();
}

}  // namespace tripod::cuda
