// Primitives that move a block under a loop of another one: compute_at, reverse_compute_at.
#include <algorithm>

#include "loop/schedule_state.h"

namespace tripod::loop {
namespace {

std::string block_text(const Tree& b) { return b.is_block() ? "block " + quoted(b.name) : "a statement"; }

// The leaf's place in program order.
size_t order_of(const ScheduleState& s, const Tree& leaf) {
  const Blocks all = leaves(*s.root);
  return static_cast<size_t>(std::find(all.begin(), all.end(), &leaf) - all.begin());
}

// The loops of block b inside `common` are about to be replaced: it must be alone in them.
Refusal alone_inside(Tree& common, Tree& b) {
  if (b.parent == &common) return "";
  for (const Tree* other : leaves(*child_towards(common, b)))
    if (other != &b) return block_text(*other) + " shares loops with block " + quoted(b.name);
  return "";
}

Refusal fixed_layout(const ScheduleState& s, const Buffer& b) {
  const auto it = s.storage.find(b.get());
  const bool fixed = !(it == s.storage.end() ? b->layout : it->second.layout).is_row_major();
  return fixed ? "buffer " + quoted(b->name) + " has a layout already" : "";
}

// --- compute_at ---------------------------------------------------------------------------------------------------

// Can block p be computed piecewise, just before it is read? `dims` tells which iterator is which dim of its buffer.
Refusal piecewise(const ScheduleState& s, const Tree& p, const Buffer& b, std::vector<int>& dims) {
  const std::string block = "block " + quoted(p.name);
  if (!b) return block + " writes several buffers";
  if (!s.is_local(b.get())) return block + " writes " + quoted(b->name) + ", which is a parameter";
  if (p.conditional) return block + " has a condition of its own";
  if (Refusal r = fixed_layout(s, b); !r.empty()) return r;
  for (const Tree* w : s.writers(b.get()))
    if (w != &p) return block_text(*w) + " writes " + quoted(b->name) + " too";
  const auto iters = store_iters(p, b.get());
  if (!iters) return block + " does not store to " + quoted(b->name) + " by its iterators";
  dims = *iters;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] < 0) continue;
    const Iter& it = p.iters[static_cast<size_t>(dims[d])];
    if (it.extent != b->shape[d] && !sym::proved(sym::eq(it.extent, b->shape[d])))
      return block + " does not write all of " + quoted(b->name);
  }
  return "";
}

// What a block reads is written before `from` in program order only, so that it may run later.
Refusal inputs_stay(const ScheduleState& s, const Tree& p) {
  const size_t at = order_of(s, p);
  for (const Access& a : p.accesses().list) {
    if (a.is_store || writes(p, a.buffer.get())) continue;
    for (const Tree* w : s.writers(a.buffer.get()))
      if (order_of(s, *w) > at) return block_text(*w) + " overwrites " + quoted(a.buffer->name);
  }
  return "";
}

// What p reads is there as a whole, so that it may compute a little more than before at the borders of its new region.
Refusal inputs_whole(const ScheduleState& s, const Tree& p, const Buffer& b) {
  for (const Access& a : p.accesses().list)
    if (!a.is_store && a.buffer != b && alloc_site(s, a.buffer.get())->var)
      return "only a part of " + quoted(a.buffer->name) + " is computed for block " + quoted(p.name) + " already";
  return "";
}

// An init that is still part of its block may move in front of the block's reduce loops: what it reads, too.
Refusal not_for_an_init(const Tree& reader, const Tree& l, const BufferNode* b) {
  bool used = false;
  if (reader.init)
    visit(reader.init, [](const Stmt&) {}, [&](const Expr& e) {
      used = used || (e->op == Op::load && e->buffer.get() == b);
    });
  if (!used) return "";
  for (const Tree* r : reduce_loops(reader))
    if ((r == &l || is_under(l, *r)) && !r->one_iteration())
      return "the init of block " + quoted(reader.name) + " reads " + quoted(b->name) + ": decompose it first";
  return "";
}

Refusal compute_at(ScheduleState& s, Tree& p, Tree& l) {
  if (is_under(p, l)) return "block " + quoted(p.name) + " is inside loop " + quoted(l.var->name) + " already";
  if (Refusal r = not_in_lanes(l); !r.empty()) return r;
  const Buffer b = only_written(p);
  std::vector<int> dims;
  if (Refusal r = piecewise(s, p, b, dims); !r.empty()) return r;
  Blocks readers;
  for (Tree* r : s.readers(b.get())) {
    if (r == &p) continue;
    if (!is_under(*r, l))
      return block_text(*r) + " reads " + quoted(b->name) + " outside of loop " + quoted(l.var->name);
    if (Refusal why = not_for_an_init(*r, l, b.get()); !why.empty()) return why;
    readers.push_back(r);
  }
  if (readers.empty()) return "nothing reads " + quoted(b->name);
  if (Refusal r = inputs_stay(s, p); !r.empty()) return r;
  if (Refusal r = inputs_whole(s, p, b); !r.empty()) return r;
  Tree& common = *common_loop(p, l);
  if (Refusal r = alone_inside(common, p); !r.empty()) return r;

  const std::vector<Side> region = touched(s, l, b, Touch::read);
  std::vector<Side> sides;
  for (const Iter& it : p.iters) sides.push_back(whole_side(it.extent));
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d] >= 0 && !region[d].whole) sides[static_cast<size_t>(dims[d])] = region[d];
  std::unique_ptr<Tree> moved = nest(s, detach(p), sides, common_predicates(readers, l));
  insert(l, position(*child_towards(l, *readers[0])), std::move(moved));
  return "";
}

// --- reverse_compute_at -------------------------------------------------------------------------------------------

class ReverseComputeAt {
 public:
  ReverseComputeAt(ScheduleState& s, Tree& consumer, Tree& l) : s_(s), c_(consumer), l_(l) {}

  Refusal run() {
    if (is_under(c_, l_)) return "block " + quoted(c_.name) + " is inside loop " + quoted(l_.var->name) + " already";
    if (Refusal r = not_in_lanes(l_); !r.empty()) return r;
    common_ = common_loop(c_, l_);
    if (Refusal r = alone_inside(*common_, c_); !r.empty()) return r;
    if (c_.conditional) return "block " + quoted(c_.name) + " has a condition of its own";
    if (order_of(s_, c_) < order_of(s_, *leaves(l_).back())) return "loop " + quoted(l_.var->name) + " comes later";
    for (const Iter& it : c_.iters) sides_.push_back(whole_side(it.extent));
    std::vector<Buffer> seen;
    for (const Access& a : c_.accesses().list) {
      if (a.is_store || writes(c_, a.buffer.get())) continue;
      if (std::find(seen.begin(), seen.end(), a.buffer) != seen.end()) continue;
      seen.push_back(a.buffer);
      if (Refusal r = input(a.buffer); !r.empty()) return r;
    }
    if (!last_writer_)
      return "nothing under loop " + quoted(l_.var->name) + " writes what block " + quoted(c_.name) + " reads";
    if (Refusal r = output_free(); !r.empty()) return r;
    const size_t at = position(*child_towards(l_, *last_writer_)) + 1;
    std::unique_ptr<Tree> moved = nest(s_, detach(c_), sides_, common_predicates(writers_, l_));
    insert(l_, at, std::move(moved));
    return "";
  }

 private:
  // The consumer's part of what one iteration of l has finished of b.
  Refusal input(const Buffer& b) {
    const std::string name = quoted(b->name);
    bool inside = false;
    const Blocks all = s_.writers(b.get());
    Tree* top = child_towards(*common_, l_);
    const size_t end = order_of(s_, *leaves(*top).back());
    for (Tree* w : all) {
      inside = inside || is_under(*w, l_);
      if (order_of(s_, *w) > end) return block_text(*w) + " writes " + name + " only later";
      if (is_under(*w, *top) && !is_under(*w, l_))
        return block_text(*w) + " writes " + name + " outside of loop " + quoted(l_.var->name);
    }
    if (alloc_site(s_, b.get())->var) return "only a part of " + name + " is computed at a time already";
    if (!inside) return "";
    for (Tree* w : all) {
      if (!is_under(*w, l_)) return block_text(*w) + " writes " + name + " outside of loop " + quoted(l_.var->name);
      for (const Tree* r : reduce_loops(*w))
        if (r == &l_ || is_under(l_, *r))
          if (is_under(*r, *common_) && !r->one_iteration())
            return "block " + quoted(w->name) + " still reduces over loop " + quoted(r->var->name);
      writers_.push_back(w);
      if (!last_writer_ || order_of(s_, *w) > order_of(s_, *last_writer_)) last_writer_ = w;
    }
    return limit(b);
  }

  Refusal limit(const Buffer& b) {
    const std::vector<Side> region = touched(s_, l_, b, Touch::write);
    // The parts of different iterations must not overlap: each point of the consumer runs once.
    for (Tree* m = &l_; m != common_; m = m->parent)
      if (!boxes_apart(*m, b.get()))
        return "iterations of loop " + quoted(m->var->name) + " do not write separate parts of " + quoted(b->name);
    std::vector<int> limits;  // iterators that b limits
    for (size_t d = 0; d < region.size(); ++d) {
      if (region[d].whole) continue;
      int by = -1;
      for (const Access& a : c_.accesses().list) {
        if (a.is_store || a.buffer != b) continue;
        if (Refusal r = limit_dim(b, a, d, region[d], by); !r.empty()) return r;
      }
      if (std::find(limits.begin(), limits.end(), by) != limits.end()) return different_parts(b);
      limits.push_back(by);
    }
    return combine(b, std::move(limits));
  }

  // Dim d of b, of which only `side` is finished, has to be one spatial iterator wherever the consumer reads b.
  Refusal limit_dim(const Buffer& b, const Access& a, size_t d, const Side& side, int& by) {
    const auto it = std::find_if(c_.iters.begin(), c_.iters.end(),
                                 [&](const Iter& x) { return x.var == a.indices[d]; });
    if (it == c_.iters.end() || !a.extent.empty())
      return "block " + quoted(c_.name) + " reads " + quoted(b->name) + " at " + sym::text(a.indices[d]) +
             ", which is not an iterator";
    if (it->reduce) return "block " + quoted(c_.name) + " reduces over a part of " + quoted(b->name);
    const int i = static_cast<int>(it - c_.iters.begin());
    if (by >= 0 && by != i) return different_parts(b);
    by = i;
    Side& mine = sides_[static_cast<size_t>(i)];
    if (limited(i) && !(mine.lo == side.lo && mine.extent == side.extent)) return different_parts(b);
    if (!limited(i)) mine = side;
    return "";
  }

  // One buffer has to limit all iterators that any of them limits: else there are points of the consumer whose inputs
  // come from different iterations.
  Refusal combine(const Buffer& b, std::vector<int> limits) {
    std::vector<int>& more = limits.size() > limits_.size() ? limits : limits_;
    const std::vector<int>& less = limits.size() > limits_.size() ? limits_ : limits;
    for (int i : less)
      if (std::find(more.begin(), more.end(), i) == more.end()) return different_parts(b);
    limits_ = std::move(more);
    return "";
  }
  bool limited(int i) const { return std::find(limits_.begin(), limits_.end(), i) != limits_.end(); }

  Refusal different_parts(const Buffer& b) const {
    return "block " + quoted(c_.name) + " needs parts of " + quoted(b->name) + " from different iterations";
  }

  // Between its new and its old place nobody else touches what the consumer writes.
  Refusal output_free() const {
    const size_t from = order_of(s_, *last_writer_), to = order_of(s_, c_);
    const Blocks all = leaves(*s_.root);
    for (const Access& a : c_.accesses().list) {
      if (!a.is_store) continue;
      for (size_t k = 0; k < to; ++k)
        if ((k > from || is_under(*all[k], l_)) && (reads(*all[k], a.buffer.get()) || writes(*all[k], a.buffer.get())))
          return block_text(*all[k]) + " touches " + quoted(a.buffer->name) + " before";
    }
    return "";
  }

  ScheduleState& s_;
  Tree &c_, &l_;
  Tree* common_ = nullptr;
  Tree* last_writer_ = nullptr;
  Blocks writers_;  // under l, of what the consumer reads
  std::vector<Side> sides_;
  std::vector<int> limits_;  // iterators of the consumer that run over a part only
};

}  // namespace

void Schedule::compute_at(const Block& producer, Loop l) {
  impl_->step({"compute_at", {producer.name, name_of(l)}, {}, {}}, [&](TraceStep&) -> Refusal {
    Tree *p = impl_->find(producer), *at = impl_->find(l);
    if (!p) return "there is no block " + quoted(producer.name);
    if (!at) return "there is no loop " + quoted(name_of(l));
    return loop::compute_at(*impl_, *p, *at);
  });
}

void Schedule::reverse_compute_at(const Block& consumer, Loop l) {
  impl_->step({"reverse_compute_at", {consumer.name, name_of(l)}, {}, {}}, [&](TraceStep&) -> Refusal {
    Tree *c = impl_->find(consumer), *at = impl_->find(l);
    if (!c) return "there is no block " + quoted(consumer.name);
    if (!at) return "there is no loop " + quoted(name_of(l));
    return ReverseComputeAt(*impl_, *c, *at).run();
  });
}

}  // namespace tripod::loop
