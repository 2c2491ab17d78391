// Short reductions whose results lie together where the operands do: depthwise convolutions and pooling with the
// channels innermost, sums over a few rows.
//
//   flat     the results in the order of their memory, `wide` neighbours (16 bytes) a thread
//   thread   reads a vector of each operand a term, adds in registers, and stores what the block behind makes of it:
//            neither the sum nor what surrounds it goes through memory
//
// The terms are added in their order, as many as one chain holds.
#include <algorithm>

#include "backends/cuda/rules/rules.h"
#include "rules/inline.h"

namespace tripod::cuda {

using loop::Iter;
using loop::Op;
using loop::StmtKind;
using loop::StmtNode;

namespace {

constexpr int64_t kThreads = 256, kVectorBytes = 16, kUnrolled = 9;

class Windows {
 public:
  Windows(const loop::Function& f, sym::Context& c) : f_(f), c_(c) {}

  RuleResult run() {
    std::string why = match_sum();
    if (why.empty()) why = match_behind();
    if (why.empty()) why = match_memory();
    if (!why.empty()) return {loop::not_applicable(why), {}};
    loop::Function r = f_;
    r.body = kernel();
    return {{true, ""}, r};
  }

 private:
  std::string match_sum() {
    Stmt body = f_.body;
    while (body->kind == StmtKind::alloc) temporaries_.push_back(body->buffer), body = body->body[0];
    blocks_ = body->kind == StmtKind::seq ? body->body : std::vector<Stmt>{body};
    if (blocks_.size() > 2 || blocks_.size() != temporaries_.size() + 1) return "not one sum and what follows it";
    const StmtNode& b = *blocks_[0];
    int64_t terms = 1;
    for (const Iter& i : b.iters) {
      (i.reduce ? reduce_ : spatial_).push_back(i);
      if (i.reduce) terms *= std::min<int64_t>(i.extent.constant().value_or(kChain + 1), kChain + 1);
    }
    if (reduce_.empty() || terms > kChain) return "no reduction of a few terms";
    sum_ = b.body[0];
    if (sum_->kind != StmtKind::store || sum_->guard || !b.init || b.init->kind != StmtKind::store) return "not a plain store";
    for (const Index& i : sum_->indices)
      if (!i.is_var()) return "the result is not indexed by iterators";
    bool own = false, other = false;
    loop::visit(sum_->value, [&](const Expr& e) {
      if (e->op == Op::load && e->buffer == sum_->buffer) (e->indices == sum_->indices ? own : other) = true;
    });
    return own && !other ? "" : "its result is not accumulated";
  }

  // The block behind, over the iterators of the first.
  std::string match_behind() {
    store_ = sum_;
    if (blocks_.size() == 1) return "";
    const StmtNode& b = *blocks_[1];
    store_ = b.body[0];
    const bool plain = store_->kind == StmtKind::store && !store_->guard && !b.init && b.iters.size() == spatial_.size();
    if (!plain) return "not a plain block behind";
    bool own = true;
    sym::Map to_first;
    loop::visit(store_->value, [&](const Expr& e) {
      if (e->op != Op::load || e->buffer != sum_->buffer) return;
      for (size_t d = 0; d < e->indices.size(); ++d) {
        const auto [at, is_new] = to_first.try_emplace(e->indices[d], sum_->indices[d]);
        own = own && e->indices[d].is_var() && at->second == sum_->indices[d];
      }
    });
    // All of the sum, and no more: a slice of it has smaller extents.
    for (const Iter& i : b.iters) {
      const auto first = to_first.find(i.var);
      own = own && !i.reduce && first != to_first.end() && std::any_of(spatial_.begin(), spatial_.end(), [&](const Iter& s) {
        return s.var == first->second && s.extent == i.extent;
      });
    }
    if (!own) return "the block behind does not read all of the sum, each element at its own position";
    store_ = loop::substitute(store_, to_first);
    return "";
  }

  std::string match_memory() {
    if (spatial_.empty() || info(store_->buffer->dtype).bits < 8) return "no vectors of results";
    for (const Iter& i : spatial_) {
      const auto l = sym::linear_in(loop::offset(c_, store_->buffer, store_->indices), i.var);
      if (!l) return "the result is not laid out by strides";
      if (l->coefficient.is_const(1)) lane_ = i;
    }
    if (!lane_.var) return "no iterator runs along the memory of the result";
    int64_t bytes = info(store_->buffer->dtype).bits / 8;
    bool along = false, good = true;
    const auto look = [&](const Expr& e) {
      if (e->op == Op::index) good = good && !sym::uses(e->value, lane_.var);
      if (e->op != Op::load || e->buffer == sum_->buffer) return;
      bytes = std::max<int64_t>(bytes, info(e->buffer->dtype).bits / 8);
      good = good && info(e->buffer->dtype).bits >= 8 && !(e->guard && sym::uses(e->guard, lane_.var));
      const auto l = sym::linear_in(loop::offset(c_, e->buffer, e->indices), lane_.var);
      good = good && l && (l->coefficient.is_const(1) || l->coefficient.is_const(0));
      along = along || (l && l->coefficient.is_const(1));
    };
    loop::visit(sum_->value, look);
    if (!good || !along) return "the operands do not run along the results";
    if (store_ != sum_) loop::visit(store_->value, look);
    wide_ = kVectorBytes / bytes;
    const bool whole = wide_ > 1 && lane_.extent.is_const() && lane_.extent.value() % wide_ == 0;
    return good && whole ? "" : "its lines are not whole vectors";
  }

  // The spatial iterators, outermost in the memory of the result first.
  std::vector<Iter> in_memory_order() const {
    const loop::Layout& l = store_->buffer->layout;
    std::vector<Iter> order;
    for (const Iter& i : spatial_)
      if (!(i.var == lane_.var)) order.push_back(i);
    if (!l.is_row_major()) {
      // Where a dim comes in the physical index: by the strides would ask for their sizes.
      const auto place = [&](const Iter& i) {
        size_t at = 0;
        for (size_t d = 0; d < store_->indices.size(); ++d)
          if (sym::uses(store_->indices[d], i.var))
            for (size_t p = 0; p < l.map.size(); ++p)
              if (sym::uses(l.map[p], l.args[d])) at = p;
        return at;
      };
      std::stable_sort(order.begin(), order.end(), [&](const Iter& a, const Iter& b) { return place(a) < place(b); });
    }
    order.push_back(lane_);
    return order;
  }

  Stmt kernel() {
    const std::vector<Iter> order = in_memory_order();
    Indices extents;
    for (const Iter& i : order) extents.push_back(i.extent);
    extents.back() = c_.constant(lane_.extent.value() / wide_);
    const Index total = sym::product(c_, extents);
    const Buffer sums = per_thread(c_, sum_->buffer->name + "_sums", sum_->buffer->dtype, kThreads, {c_.constant(wide_)});
    return grid(c_, sym::ceildiv(total, kThreads), [&](Index block) {
      return loop::alloc(sums, threads(c_, kThreads, [&](Index th) {
        const Index flat = block * kThreads + th;
        return where(sym::lt(flat, total), [&] {
          const Indices at = unflatten(flat, extents);
          sym::Map m;
          for (size_t d = 0; d + 1 < order.size(); ++d) m[order[d].var] = at[d];
          return thread(sums, th, m, at.back() * wide_);
        });
      }));
    });
  }

  Stmt thread(const Buffer& sums, Index th, const sym::Map& at, Index first) {
    const auto lanes = [&](const std::function<Stmt(Index, const sym::Map&)>& body) {
      return vector(c_, "lane", wide_, [&](Index lane) {
        sym::Map m = at;
        m[lane_.var] = first + lane;
        return body(lane, m);
      });
    };
    const auto with_held = [&](const Expr& e, Index lane, const sym::Map& m) {
      return rules::replace_loads(e, sum_->buffer, loop::load(sums, {th, lane}), m);
    };
    const Stmt start = lanes([&](Index lane, const sym::Map& m) {
      return loop::store(sums, {th, lane}, loop::substitute(blocks_[0]->init->value, m));
    });
    const Stmt add = lanes([&](Index lane, const sym::Map& m) {
      return loop::store(sums, {th, lane}, with_held(sum_->value, lane, m));
    });
    const Stmt finish = lanes([&](Index lane, const sym::Map& m) {
      Indices to;
      for (const Index& i : store_->indices) to.push_back(sym::substitute(i, m));
      const Expr value = store_ == sum_ ? loop::load(sums, {th, lane}) : with_held(store_->value, lane, m);
      return loop::store(store_->buffer, to, value);
    });
    return loop::seq({start, terms(add, 0), finish});
  }
  Stmt terms(const Stmt& add, size_t d) {
    if (d == reduce_.size()) return add;
    const Iter& i = reduce_[d];
    const auto body = [&](Index v) { return loop::substitute(terms(add, d + 1), {{i.var, v}}); };
    const char* name = i.var->name.c_str();
    return i.extent.value() <= kUnrolled ? unrolled(c_, name, i.extent.value(), body) : serial(c_, name, i.extent, body);
  }

  const loop::Function& f_;
  sym::Context& c_;
  std::vector<Buffer> temporaries_;
  std::vector<Stmt> blocks_;
  std::vector<Iter> spatial_, reduce_;
  Stmt sum_, store_;    // the accumulation; what is stored at last, over the same iterators
  Iter lane_;           // runs along the memory of the result
  int64_t wide_ = 1;
};

}  // namespace

RuleResult windows(const loop::Function& f, sym::Context& c) {
  const loop::Function inlined = rules::inline_elementwise(f, c);
  return Windows(inlined, c).run();
}

}  // namespace tripod::cuda
