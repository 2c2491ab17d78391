// Reductions over the innermost dims with what surrounds them: softmax, layer norm, row sums. One pass over rows,
// spread over the threads; inside a row every block is a vector loop, its internal values stay in registers (one
// number a row) or in the thread's scratch memory (one line a row), so that memory is read and written once.
//
// Applies when all blocks share their leading spatial iterators (the rows, by extent and position), reductions reduce
// exactly what is behind them, and internal buffers are read in the row that wrote them.
//
// A reduction keeps one partial result a lane and combines the lanes in order at the end, then takes the remainder:
// the order does not depend on the instruction set or on the number of threads.
#include <algorithm>

#include "backends/cpu/rules/prepare.h"
#include "backends/cpu/rules/rules.h"

namespace tripod::cpu {

using loop::Iter;
using loop::Op;
using loop::Scope;
using loop::StmtKind;
using loop::StmtNode;

namespace {

class Rows {
 public:
  Rows(const loop::Function& f, sym::Context& c, const CpuTarget& t) : f_(f), c_(c), lanes_(t.lanes(DType::f32)) {}

  RuleResult run() {
    std::string why = match();
    if (!why.empty()) return {loop::not_applicable(why), {}};
    Index rows = c_.constant(1);
    for (const Index& e : rows_) rows = rows * e;
    int64_t work = 0;
    for (const Stmt& b : blocks_) work += inner_work(*b);
    loop::Function r = f_;
    r.body = parallel(c_, "row", rows, std::max<int64_t>(1, 8192 / std::max<int64_t>(1, work)), [&](Index row) {
      at_ = unflatten(row, rows_);
      std::vector<Stmt> all;
      for (const Stmt& b : blocks_) all.push_back(build(*b));
      Stmt s = loop::seq(all);
      for (auto& [from, to] : local_) s = loop::alloc(to, s);
      return s;
    });
    return {{true, ""}, r};
  }

 private:
  static bool reduces(const StmtNode& b) {
    return std::any_of(b.iters.begin(), b.iters.end(), [](const Iter& i) { return i.reduce; });
  }

  // Empty when the rule applies.
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
    for (const Buffer& b : internal_) make_local(b);
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
      if (!combiner(b)) return "not a reduction that can be split over lanes";
      // Strided reductions are better with lanes over the rows.
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

  // The leading dims of an internal buffer are the rows (or 1 where kept dims follow); its index there is the row.
  bool in_row(const StmtNode& b, const Buffer& buffer, const Indices& at) {
    if (at.size() < rows_.size()) return false;
    for (size_t d = 0; d < rows_.size(); ++d)
      if (!(at[d] == b.iters[d].var || (rows_[d].is_const(1) && at[d].is_const(0))) || !(buffer->shape[d] == rows_[d])) return false;
    return true;
  }

  bool contiguous(const StmtNode& b) {
    bool good = true;
    const Index k = b.iters.back().var;
    loop::visit(b.body[0]->value, [&](const Expr& e) {
      if (e->op != Op::load || is_internal(e->buffer)) return;
      const auto l = sym::linear_in(loop::offset(c_, e->buffer, e->indices), k);
      good = good && l && (l->coefficient.is_const(0) || l->coefficient.is_const(1));
    });
    return good;
  }

  // How partial results combine: the binary operation of `acc = op(acc, x)`; fma sums.
  std::optional<Op> combiner(const StmtNode& b) {
    const StmtNode& s = *b.body[0];
    const auto is_acc = [&](const Expr& e) { return e->op == Op::load && e->buffer == s.buffer && e->indices == s.indices; };
    const Expr& v = s.value;
    if (v->op == Op::fma && is_acc(v->args[2])) return Op::add;
    const bool associative = v->op == Op::add || v->op == Op::mul || v->op == Op::min || v->op == Op::max || v->op == Op::bit_and || v->op == Op::bit_or;
    if (associative && is_acc(v->args[0])) return v->op;
    return std::nullopt;
  }

  int64_t inner_work(const StmtNode& b) {
    int64_t n = 1;
    for (size_t d = rows_.size(); d < b.iters.size(); ++d) n *= b.iters[d].extent.constant().value_or(256);
    int64_t ops = 1;
    loop::visit(b.body[0]->value, [&](const Expr& e) { ops += loop::is_math(e->op) ? 10 : 1; });
    return n * ops / 4;
  }

  void make_local(const Buffer& b) {
    Indices shape(b->shape.begin() + static_cast<long>(rows_.size()), b->shape.end());
    const bool number = std::all_of(shape.begin(), shape.end(), [](Index e) { return e.is_const(1); });
    if (shape.empty()) shape = {c_.constant(1)};
    local_.push_back({b, loop::make_buffer(b->name, b->dtype, shape, number ? Scope::reg : Scope::local)});
  }

  // A statement or expression of block b for the row at hand: row iterators bound, internal buffers local.
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

  sym::Map row_map(const StmtNode& b) const {
    sym::Map m;
    for (size_t d = 0; d < rows_.size(); ++d) m[b.iters[d].var] = at_[d];
    return m;
  }

  // Loops over the iterators behind the rows but the last, then `line` for the last.
  Stmt nest(const StmtNode& b, size_t d, const sym::Map& m, const std::function<Stmt(const sym::Map&)>& line) {
    if (d + 1 >= b.iters.size()) return line(m);
    return serial(c_, "j", b.iters[d].extent, [&](Index j) {
      sym::Map inner = m;
      inner[b.iters[d].var] = j;
      return nest(b, d + 1, inner, line);
    });
  }

  Stmt build(const StmtNode& b) {
    const sym::Map m = row_map(b);
    if (b.iters.size() == rows_.size()) return Bind(*this, m).apply(b.body[0]);
    if (reduces(b)) return reduction(b, m);
    return nest(b, rows_.size(), m, [&](const sym::Map& outer) {
      return vectors(c_, "i", b.iters.back().extent, lanes_, [&](Index i) {
        sym::Map inner = outer;
        inner[b.iters.back().var] = i;
        return Bind(*this, inner).apply(b.body[0]);
      });
    });
  }

  Stmt reduction(const StmtNode& b, const sym::Map& m) {
    const StmtNode& s = *b.body[0];
    const DType t = s.buffer->dtype;
    const Buffer partial = loop::make_buffer(b.name + "_lanes", t, {c_.constant(lanes_)}, Scope::reg);
    const Buffer total = loop::make_buffer(b.name + "_total", t, {c_.constant(1)}, Scope::reg);
    const Index zero = c_.constant(0);
    const Expr identity = b.init->value;
    // The update with its accumulator elsewhere.
    const auto update = [&](const Buffer& acc, Index at, const sym::Map& inner) {
      const Expr old = loop::load(acc, {at});
      const Expr moved = replace_load(s.value, s.value->op == Op::fma ? s.value->args[2] : s.value->args[0], old);
      return loop::store(acc, {at}, Bind(*this, inner).apply(moved));
    };
    const Index k = b.iters.back().var, n = b.iters.back().extent;
    const Index whole = sym::floordiv(n, lanes_), rest = sym::mod(n, lanes_);
    const auto along = [&](const Buffer& acc, bool lanes) {
      return nest(b, rows_.size(), m, [&](const sym::Map& outer) {
        const auto step = [&](Index i, Index at) {
          sym::Map inner = outer;
          inner[k] = i;
          return update(acc, at, inner);
        };
        if (!lanes) return serial(c_, "k", rest, [&](Index r) { return step(whole * lanes_ + r, zero); });
        return serial(c_, "k", whole, [&](Index g) { return vector(c_, "lane", lanes_, [&](Index j) { return step(g * lanes_ + j, j); }); });
      });
    };
    std::vector<Stmt> all = {loop::store(total, {zero}, identity)};
    if (!whole.is_const(0)) {
      all.push_back(vector(c_, "lane", lanes_, [&](Index j) { return loop::store(partial, {j}, identity); }));
      all.push_back(along(partial, true));
      all.push_back(unrolled(c_, "lane", lanes_, [&](Index j) {
        return loop::store(total, {zero}, loop::make(*combiner(b), {loop::load(total, {zero}), loop::load(partial, {j})}));
      }));
    }
    if (!rest.is_const(0)) all.push_back(along(total, false));
    all.push_back(Bind(*this, m).apply(loop::store(s.buffer, s.indices, loop::load(total, {zero}))));
    return loop::alloc(partial, loop::alloc(total, loop::seq(all)));
  }

  const loop::Function& f_;
  sym::Context& c_;
  const int64_t lanes_;
  Indices rows_, at_;
  std::vector<Stmt> blocks_;
  std::vector<Buffer> internal_;
  std::vector<std::pair<Buffer, Buffer>> local_;
};

}  // namespace

RuleResult rows(const loop::Function& f, sym::Context& c, const CpuTarget& target) {
  const loop::Function inlined = inline_elementwise(f, c);
  return Rows(inlined, c, target).run();
}

}  // namespace tripod::cpu
