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
#include "rules/rows.h"

namespace tripod::cpu {

using loop::Iter;
using loop::Op;
using loop::Scope;
using loop::StmtKind;
using loop::StmtNode;

namespace {

class Rows : rules::RowBlocks {
 public:
  Rows(const loop::Function& f, sym::Context& c, const CpuTarget& t) : RowBlocks(f, c), lanes_(t.lanes(DType::f32)) {}

  RuleResult run() {
    const std::string why = match([](std::optional<Op> o) { return o ? "" : "not a reduction that can be split over lanes"; });
    if (!why.empty()) return {loop::not_applicable(why), {}};
    for (const Buffer& b : internal_) make_local(b);
    const Index rows = sym::product(c_, rows_);
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
  int64_t inner_work(const StmtNode& b) {
    int64_t ops = 1;
    loop::visit(b.body[0]->value, [&](const Expr& e) { ops += loop::is_math(e->op) ? 10 : 1; });
    return inner_count(b, 256) * ops / 4;
  }

  void make_local(const Buffer& b) {
    const Indices shape = row_shape(b);
    const bool number = std::all_of(shape.begin(), shape.end(), [](Index e) { return e.is_const(1); });
    local_.push_back({b, loop::make_buffer(b->name, b->dtype, shape, number ? Scope::reg : Scope::local)});
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
    if (b.iters.size() == rows_.size()) return bind(b.body[0], m);
    if (reduces(b)) return reduction(b, m);
    return nest(b, rows_.size(), m, [&](const sym::Map& outer) {
      return vectors(c_, "i", b.iters.back().extent, lanes_, [&](Index i) {
        sym::Map inner = outer;
        inner[b.iters.back().var] = i;
        return bind(b.body[0], inner);
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
      return loop::store(acc, {at}, bind(with_accumulator(b, loop::load(acc, {at})), inner));
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
    all.push_back(bind(loop::store(s.buffer, s.indices, loop::load(total, {zero})), m));
    return loop::alloc(partial, loop::alloc(total, loop::seq(all)));
  }

  const int64_t lanes_;
};

}  // namespace

RuleResult rows(const loop::Function& f, sym::Context& c, const CpuTarget& target) {
  const loop::Function inlined = inline_elementwise(f, c);
  return Rows(inlined, c, target).run();
}

}  // namespace tripod::cpu
