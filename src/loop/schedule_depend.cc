// What makes iterations of a loop depend on each other, and what kind of computation a block is.
#include <algorithm>
#include <limits>

#include "loop/schedule_state.h"

namespace tripod::loop {

// --- where buffers live -------------------------------------------------------------------------------------------

Tree* alloc_site(const ScheduleState& s, const BufferNode* b) {
  if (!s.is_local(b)) return s.root.get();
  Tree* site = nullptr;
  int users = 0;
  for (Tree* t : leaves(*s.root)) {
    if (!reads(*t, b) && !writes(*t, b)) continue;
    ++users;
    site = site ? common_loop(*site, *t) : t->parent;
  }
  if (users < 2) return s.root.get();
  // Shared memory belongs to all threads of a block.
  const auto it = s.storage.find(b);
  if ((it == s.storage.end() ? b->scope : it->second.scope) == Scope::shared)
    for (Tree* t = site; t->var; t = t->parent)
      if (t->loop_kind >= LoopKind::block_x) site = t->parent;
  return site;
}

// --- kinds of computation -----------------------------------------------------------------------------------------

const StmtNode* single_store(const Tree& block) {
  const StmtNode* s = block.body.get();
  return s->kind == StmtKind::store && !s->guard ? s : nullptr;
}

Buffer only_written(const Tree& block) {
  Buffer b;
  for (const Access& a : block.accesses().list) {
    if (!a.is_store || a.buffer == b) continue;
    if (b) return nullptr;
    b = a.buffer;
  }
  return b;
}

std::optional<std::vector<int>> store_iters(const Tree& block, const BufferNode* b) {
  std::optional<std::vector<int>> found;
  for (const Access& a : block.accesses().list) {
    if (!a.is_store || a.buffer.get() != b) continue;
    if (!a.extent.empty()) return std::nullopt;
    std::vector<int> dims;
    for (Index i : a.indices) {
      const auto it = std::find_if(block.iters.begin(), block.iters.end(),
                                   [&](const Iter& x) { return x.var == i && !x.reduce; });
      const int at = it == block.iters.end() ? -1 : static_cast<int>(it - block.iters.begin());
      if (at < 0 ? !i.is_const(0) : std::find(dims.begin(), dims.end(), at) != dims.end()) return std::nullopt;
      dims.push_back(at);
    }
    if (found && *found != dims) return std::nullopt;
    found = std::move(dims);
  }
  if (!found) return found;
  for (size_t d = 0; d < found->size(); ++d)
    if ((*found)[d] < 0 && !b->shape[d].is_const(1)) return std::nullopt;
  for (size_t i = 0; i < block.iters.size(); ++i)
    if (const Iter& it = block.iters[i]; !it.reduce && !it.extent.is_const(1) &&
                                         std::find(found->begin(), found->end(), static_cast<int>(i)) == found->end())
      return std::nullopt;
  return found;
}

std::optional<Reduction> reduction_of(const Tree& block) {
  const StmtNode* st = single_store(block);
  if (!st) return std::nullopt;
  const auto is_self = [&](const Expr& e) {
    return e->op == Op::load && e->buffer == st->buffer && !e->guard && e->indices == st->indices;
  };
  const Expr& v = st->value;
  Reduction r{v->op, nullptr, st->buffer, st->indices};
  switch (v->op) {
    case Op::fma:
      if (!is_self(v->args[2])) return std::nullopt;
      r.op = Op::add;
      r.operand = make(Op::mul, {v->args[0], v->args[1]});
      break;
    case Op::add:
    case Op::mul:
    case Op::min:
    case Op::max:
    case Op::bit_and:
    case Op::bit_or:
    case Op::bit_xor:
      if (is_self(v->args[0])) r.operand = v->args[1];
      else if (is_self(v->args[1])) r.operand = v->args[0];
      break;
    default: break;
  }
  if (!r.operand) return std::nullopt;
  bool again = false;  // the operand must not look at the buffer
  visit(r.operand, [&](const Expr& e) { again = again || (e->op == Op::load && e->buffer == st->buffer); });
  return again ? std::nullopt : std::optional(r);
}

Expr neutral(Op op, DType t) {
  const bool f = is_float(t);
  const int bits = info(t).bits;
  const auto least = [&] { return is_signed(t) ? constant_int(t, std::numeric_limits<int64_t>::min() >> (64 - bits))
                                               : constant_int(t, 0); };
  const auto most = [&] {
    return is_signed(t) ? constant_int(t, std::numeric_limits<int64_t>::max() >> (64 - bits)) : constant_int(t, -1);
  };
  if (t == DType::b1 && op != Op::bit_and && op != Op::bit_or && op != Op::bit_xor) return nullptr;
  switch (op) {
    case Op::add: return f ? constant(t, -0.0) : constant_int(t, 0);
    case Op::mul: return f ? constant(t, 1) : constant_int(t, 1);
    case Op::min: return f ? constant(t, std::numeric_limits<double>::infinity()) : most();
    case Op::max: return f ? constant(t, -std::numeric_limits<double>::infinity()) : least();
    case Op::bit_and: return constant_int(t, t == DType::b1 ? 1 : -1);
    case Op::bit_or:
    case Op::bit_xor: return constant_int(t, 0);
    default: return nullptr;
  }
}

// --- apart --------------------------------------------------------------------------------------------------------

namespace {


Index linearise(const std::vector<Index>& indices, const std::vector<Index>& shape, const std::vector<int>& order) {
  Index off = indices[0].context().constant(0);
  for (int d : order) off = off * shape[static_cast<size_t>(d)] + indices[static_cast<size_t>(d)];
  return off;
}

class Apart {
 public:
  Apart(Tree& m, const BufferNode* b, Touch which) : m_(m), buffer_(b) { collect(which); }

  // The elements that different iterations touch.
  bool elements() {
    if (boxes()) return true;
    if (buffer_->shape.empty()) return false;
    for (const std::vector<int>& order : orders())
      if (monotone(box([&](const One& a) { return linearise(a.indices, buffer_->shape, order); }))) return true;
    return false;
  }

  // Even the boxes around them.
  bool boxes() {
    if (accesses_.empty()) return true;
    for (size_t d = 0; d < buffer_->shape.size(); ++d) {
      dims_.push_back(box([&](const One& a) { return a.indices[d]; }));
      if (monotone(dims_.back())) return true;
    }
    return tiles_tell();
  }

 private:
  struct One {
    std::vector<Index> indices;  // over loop variables
    const Tree* leaf;
    const Intervals* ranges;
  };

  void collect(Touch which) {
    for (Tree* leaf : leaves(m_)) {
      const sym::Map bound = bindings(*leaf);
      const Intervals* ranges = nullptr;
      for (const Access& a : leaf->accesses().list) {
        if (a.buffer.get() != buffer_ || (which == Touch::write && !a.is_store)) continue;
        if (!ranges) ranges = ranges_.emplace_back(std::make_unique<Intervals>(ranges_below(m_, *leaf))).get();
        One one{{}, leaf, ranges};
        for (Index i : a.indices) one.indices.push_back(sym::substitute(i, bound));
        accesses_.push_back(one);
        if (a.extent.empty()) continue;
        for (size_t d = 0; d < one.indices.size(); ++d)
          one.indices[d] = one.indices[d] + sym::substitute(a.extent[d], bound) - 1;
        accesses_.push_back(one);
      }
    }
  }

  template <class F>
  Interval box(F index_of) const {
    Interval all;
    for (size_t k = 0; k < accesses_.size(); ++k) {
      const Interval i = interval(index_of(accesses_[k]), *accesses_[k].ranges);
      if (!i) return {};
      all = k == 0 ? i : Interval{sym::min(all.lo, i.lo), sym::max(all.hi, i.hi)};
    }
    return all;
  }

  // Each iteration's interval lies behind (or before) the one of the iteration before.
  bool monotone(const Interval& i) const {
    if (!i || !(sym::uses(i.lo, m_.var) || sym::uses(i.hi, m_.var))) return false;
    const sym::Map next{{m_.var, m_.var + 1}};
    return sym::proved(sym::lt(i.hi, sym::substitute(i.lo, next))) ||
           sym::proved(sym::lt(sym::substitute(i.hi, next), i.lo));
  }

  // Dims [c * digit + rest, + at most |c|) with a digit of the loop variable: different digits mean different places.
  // Do the digits together tell which iteration it is? digit = floordiv(m, n), mod(m, n), ... of a fused loop.
  bool tiles_tell() const {
    std::vector<Index> digits;
    for (const Interval& i : dims_) {
      if (!i) continue;
      const Index size = i.hi - i.lo + 1;
      int64_t constant = 0;
      std::optional<sym::Term> only;
      bool several = sym::uses(size, m_.var);
      for (const sym::Term& t : sym::terms(i.lo, constant)) {
        if (!sym::uses(t.factor, m_.var)) continue;
        several = several || only;
        only = t;
      }
      if (several || !only) continue;
      Index digit = only->factor, scale = digit.context().constant(std::abs(only->coefficient));
      while (digit->op == sym::Op::mul && sym::uses(digit.arg(0), m_.var) != sym::uses(digit.arg(1), m_.var)) {
        const int fixed = sym::uses(digit.arg(0), m_.var) ? 1 : 0;
        scale = scale * digit.arg(fixed);
        digit = digit.arg(1 - fixed);
      }
      if (sym::proved(sym::le(size, scale))) digits.push_back(digit);
    }
    return digits.size() <= 5 && recovers(digits, {});
  }

  // Is there an order of the digits in which they are the loop variable in mixed radix?
  bool recovers(std::vector<Index> rest, Index so_far) const {
    if (so_far == m_.var) return true;
    for (size_t k = 0; k < rest.size(); ++k) {
      const Index d = rest[k];
      if (so_far && d->op != sym::Op::mod) continue;
      std::vector<Index> others = rest;
      others.erase(others.begin() + static_cast<ptrdiff_t>(k));
      if (recovers(others, so_far ? so_far * d.arg(1) + d : d)) return true;
    }
    return false;
  }

  // Row-major, and in the order of the iterators of each block that has the iterators themselves as indices.
  std::vector<std::vector<int>> orders() const {
    std::vector<int> rows(buffer_->shape.size());
    for (size_t d = 0; d < rows.size(); ++d) rows[d] = static_cast<int>(d);
    std::vector<std::vector<int>> out{rows};
    for (const One& a : accesses_) {
      const auto iters = store_iters(*a.leaf, buffer_);
      if (!iters) continue;
      std::vector<int> order = rows;
      std::stable_sort(order.begin(), order.end(), [&](int x, int y) {
        return (*iters)[static_cast<size_t>(x)] < (*iters)[static_cast<size_t>(y)];
      });
      if (std::find(out.begin(), out.end(), order) == out.end()) out.push_back(order);
    }
    return out;
  }

  Tree& m_;
  const BufferNode* buffer_;
  std::vector<std::unique_ptr<Intervals>> ranges_;
  std::vector<One> accesses_;
  std::vector<Interval> dims_;
};

// Iterators whose value follows from the indices, one index after the other: a*i + (known).
std::vector<Index> determined(const std::vector<Index>& indices, const std::vector<Iter>& iters) {
  std::vector<Index> known, unknown;
  for (const Iter& it : iters)
    (it.extent.is_const(1) ? known : unknown).push_back(it.var);
  for (bool changed = true; changed;) {
    changed = false;
    for (Index e : indices) {
      std::vector<Index> open;
      for (Index v : sym::variables(e))
        if (std::find(known.begin(), known.end(), v) == known.end() &&
            std::find(unknown.begin(), unknown.end(), v) != unknown.end())
          open.push_back(v);
      if (open.size() != 1) continue;
      const auto l = sym::linear_in(e, open[0]);
      if (!l || !l->coefficient.is_const() || l->coefficient.is_const(0)) continue;
      known.push_back(open[0]);
      changed = true;
    }
  }
  return known;
}

// One block that touches the buffer in one place a point: do different iterations of m mean different places?
// They do when iterators that m determines follow from the place (see schedule_state.h: loops determine iterators).
bool places_differ(const Tree& leaf, const Tree& m, const BufferNode* b) {
  const std::vector<Index>* place = nullptr;
  for (const Access& a : leaf.accesses().list) {
    if (a.buffer.get() != b) continue;
    if (!a.extent.empty() || (place && *place != a.indices)) return false;
    place = &a.indices;
  }
  if (!place) return false;
  std::vector<Iter> variables = leaf.iters;
  for (const auto& [var, extent] : leaf.accesses().own_loops) variables.push_back({var, extent, false, var});
  visit(leaf.body, [&](const Stmt& s) {
    if (s->kind == StmtKind::let) variables.push_back({s->var, s->var, false, s->var});
  });
  const std::vector<Index> known = determined(*place, variables);
  bool used = false;
  for (const Iter& it : leaf.iters) {
    if (!binds_with(it, m.var)) continue;
    if (it.reduce || std::find(known.begin(), known.end(), it.var) == known.end()) return false;
    used = true;
  }
  return used;
}

}  // namespace

bool boxes_apart(Tree& m, const BufferNode* b) { return m.one_iteration() || Apart(m, b, Touch::write).boxes(); }

std::vector<Carried> carried(const ScheduleState& s, Tree& loop) {
  std::vector<Carried> out;
  if (loop.one_iteration()) return out;
  const Blocks under = leaves(loop);
  std::vector<Buffer> written;
  for (Tree* t : under)
    for (const Access& a : t->accesses().list)
      if (a.is_store && std::find(written.begin(), written.end(), a.buffer) == written.end())
        written.push_back(a.buffer);
  for (const Buffer& b : written) {
    Tree* site = alloc_site(s, b.get());
    if (site == &loop || is_under(*site, loop)) continue;  // each iteration has its own
    Blocks users;
    for (Tree* t : under)
      if (reads(*t, b.get()) || writes(*t, b.get())) users.push_back(t);
    bool reduces = false;
    for (Tree* t : users)
      if (writes(*t, b.get()))
        for (const Iter& it : t->iters)
          if (it.reduce && binds_with(it, loop.var)) {
            out.push_back({true, t->name, b});
            reduces = true;
            break;
          }
    if (users.size() == 1 && (reduces || places_differ(*users[0], loop, b.get()))) continue;
    if (!Apart(loop, b.get(), Touch::any).elements()) out.push_back({false, users[0]->name, b});
  }
  return out;
}

std::string Carried::text(const Tree& loop) const {
  const std::string what = reduction ? " carries the reduction of block " : " carries a dependence of block ";
  return "loop " + quoted(loop.var->name) + what + quoted(block) + " over buffer " + quoted(buffer->name);
}

}  // namespace tripod::loop
