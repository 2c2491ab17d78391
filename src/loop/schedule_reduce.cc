// Primitives on reductions: decompose_reduction, rfactor.
#include <algorithm>

#include "loop/schedule_state.h"

namespace tripod::loop {
namespace {

bool contains(const std::vector<Tree*>& ls, const Tree* l) { return std::find(ls.begin(), ls.end(), l) != ls.end(); }

bool spatial_uses(const Tree& block, Index loop_var) {
  return std::any_of(block.iters.begin(), block.iters.end(),
                     [&](const Iter& it) { return !it.reduce && binds_with(it, loop_var); });
}

// The loops from `top` inwards around a block, told apart by the iterators that use them.
struct Inside {
  std::vector<Tree*> spatial, reduce;
};

Refusal sort_loops(const Tree& block, Tree& top, Inside& out) {
  const std::vector<Tree*> all = reduce_loops(block);
  for (Tree* m : path(block)) {
    const bool reduces = contains(all, m);
    if (m != &top && !is_under(*m, top)) {
      if (reduces && !m->one_iteration())
        return "block " + quoted(block.name) + " reduces over loop " + quoted(m->var->name) + " outside of loop " +
               quoted(top.var->name);
      continue;
    }
    if (reduces && spatial_uses(block, m->var))
      return "loop " + quoted(m->var->name) + " is both spatial and reduces in block " + quoted(block.name);
    (reduces || !spatial_uses(block, m->var) ? out.reduce : out.spatial).push_back(m);
  }
  for (const Tree* m : out.spatial)
    for (const Tree* r : out.reduce)
      if (sym::uses(m->extent, r->var))
        return "the extent of loop " + quoted(m->var->name) + " depends on loop " + quoted(r->var->name);
  return "";
}

// The conditions of a block without those that only limit its reduction.
Refusal spatial_predicates(const Tree& block, const Inside& in, std::vector<Index>& out) {
  for (Index p : block.predicates) {
    bool reduces = false, other = false;
    for (const Tree* m : path(block)) {
      if (!sym::uses(p, m->var)) continue;
      (contains(in.reduce, m) ? reduces : other) = true;
    }
    if (reduces && other) return "condition " + sym::text(p) + " is about a reduction and not only";
    if (!reduces) out.push_back(p);
  }
  return "";
}

Refusal untouched_by_others(Tree& top, const Tree& block, const BufferNode* b) {
  for (const Tree* t : leaves(top))
    if (t != &block && (reads(*t, b) || writes(*t, b)))
      return "block " + quoted(t->name) + " touches " + quoted(b->name) + " under loop " + quoted(top.var->name);
  return "";
}

// A copy of loops, with fresh variables that `rename` maps to.
std::vector<std::unique_ptr<Tree>> copy_loops(ScheduleState& s, const std::vector<Tree*>& ls, sym::Map& rename) {
  std::vector<std::unique_ptr<Tree>> out;
  for (const Tree* l : ls) {
    out.push_back(s.new_loop(l->var->name, sym::substitute(l->extent, rename), l->loop_kind));
    out.back()->grain = l->grain;
    rename[l->var] = out.back()->var;
  }
  return out;
}

std::unique_ptr<Tree> around(std::vector<std::unique_ptr<Tree>> loops, std::unique_ptr<Tree> block) {
  while (!loops.empty()) {
    insert(*loops.back(), 0, std::move(block));
    block = std::move(loops.back());
    loops.pop_back();
  }
  return block;
}

std::vector<Index> renamed(const std::vector<Index>& es, const sym::Map& rename) {
  std::vector<Index> out;
  for (Index e : es) out.push_back(sym::substitute(e, rename));
  return out;
}

std::unique_ptr<Tree> new_block(ScheduleState& s, const std::string& name) {
  auto t = std::make_unique<Tree>();
  t->kind = Tree::Kind::block;
  t->name = s.fresh_name(name);
  return t;
}

// The spatial iterators of a block again, with variables of their own.
std::vector<Iter> copy_spatial(ScheduleState& s, const Tree& block, const sym::Map& rename, sym::Map& iters) {
  std::vector<Iter> out;
  for (const Iter& it : block.iters) {
    if (it.reduce) continue;
    const Index v = s.context.var(it.var->name, it.var->range);
    iters[it.var] = v;
    out.push_back({v, it.extent, false, sym::substitute(it.binding, rename)});
  }
  return out;
}

// What the init reads is there in front of l.
Refusal init_inputs_ready(const Tree& b, Tree& l) {
  Refusal why;
  if (!b.init) return why;
  visit(b.init, [](const Stmt&) {}, [&](const Expr& e) {
    if (e->op != Op::load) return;
    for (const Tree* t : leaves(l))
      if (writes(*t, e->buffer.get()))
        why = "block " + quoted(t->name) + " makes " + quoted(e->buffer->name) + ", which the init reads, inside of loop " +
              quoted(l.var->name);
  });
  return why;
}

Refusal decompose(ScheduleState& s, Tree& b, Tree& l, Block& out) {
  if (!b.init) return "block " + quoted(b.name) + " has no init";
  if (!is_under(b, l)) return "block " + quoted(b.name) + " is not under loop " + quoted(l.var->name);
  Inside in;
  if (Refusal r = sort_loops(b, l, in); !r.empty()) return r;
  std::vector<Index> predicates;
  if (Refusal r = spatial_predicates(b, in, predicates); !r.empty()) return r;
  if (Refusal r = init_inputs_ready(b, l); !r.empty()) return r;
  for (const Access& a : b.accesses().list)
    if (a.is_store)
      if (Refusal r = untouched_by_others(l, b, a.buffer.get()); !r.empty()) return r;

  sym::Map rename, iters;
  std::vector<std::unique_ptr<Tree>> loops = copy_loops(s, in.spatial, rename);
  std::unique_ptr<Tree> init = new_block(s, b.name + "_init");
  init->iters = copy_spatial(s, b, rename, iters);
  for (const Iter& it : b.iters)
    if (it.reduce) iters[it.var] = s.context.constant(0);
  init->predicates = renamed(predicates, rename);
  init->conditional = b.conditional;
  init->set_body(substitute(b.init, iters), nullptr);
  out.name = init->name;
  b.set_body(b.body, nullptr);
  insert(*l.parent, position(l), around(std::move(loops), std::move(init)));
  return "";
}

// --- rfactor ------------------------------------------------------------------------------------------------------

struct ReplaceLoads : Rewriter {
  ReplaceLoads(const Buffer& from, const Expr& to) : from(from), to(to) {}
  Expr rewrite(const Expr& e) override { return e->op == Op::load && e->buffer == from ? to : nullptr; }
  const Buffer& from;
  const Expr& to;
};

class RFactor {
 public:
  RFactor(ScheduleState& s, Tree& b, Tree& l) : s_(s), b_(b), l_(l) {}

  Refusal run(Block& out) {
    if (Refusal r = check(); !r.empty()) return r;
    std::unique_ptr<Tree> part = partial();
    std::unique_ptr<Tree> init = partial_init();
    const std::string name = part->name;
    // The new block takes b's place; b goes behind the reduction, its init in front.
    Tree& parent = *b_.parent;
    const size_t at = position(b_);
    std::unique_ptr<Tree> whole = std::move(parent.children[at]);
    part->parent = &parent;
    parent.children[at] = std::move(part);
    insert(*top_->parent, position(*top_) + 1, rest(std::move(whole)));
    insert(*top_->parent, position(*top_), std::move(init));
    out.name = name;
    return "";
  }

 private:
  Refusal check() {
    const std::string block = "block " + quoted(b_.name), loop = "loop " + quoted(l_.var->name);
    if (!is_under(b_, l_)) return block + " is not under " + loop;
    reduction_ = reduction_of(b_);
    if (!reduction_) return block + " is not a sum, product, minimum or maximum into one element";
    neutral_ = neutral(reduction_->op, reduction_->buffer->dtype);
    if (!neutral_) return "the reduction of " + block + " has no neutral element";
    const std::vector<Tree*> all = reduce_loops(b_);
    if (!contains(all, &l_)) return block + " does not reduce over " + loop;
    if (l_.loop_kind != LoopKind::serial) return loop + " is not serial any more";
    top_ = all[0];
    if (Refusal r = sort_loops(b_, *top_, in_); !r.empty()) return r;
    if (Refusal r = not_in_lanes(*top_->parent); !r.empty()) return r;
    for (const Tree* m : in_.reduce)
      if (s_.uses_loops(m->extent)) return "the extent of loop " + quoted(m->var->name) + " depends on a loop";
    if (Refusal r = spatial_predicates(b_, in_, predicates_); !r.empty()) return r;
    if (Refusal r = init_inputs_ready(b_, *top_); !r.empty()) return r;
    return untouched_by_others(*top_, b_, reduction_->buffer.get());
  }

  // partial[s.., v] = op(partial[s.., v], operand), where v is the loop l.
  std::unique_ptr<Tree> partial() {
    std::unique_ptr<Tree> t = new_block(s_, b_.name + "_rf");
    sym::Map iters, inside;  // of the body; loops as iterators
    t->iters = copy_spatial(s_, b_, {}, iters);
    std::vector<Index> shape, place;
    for (const Iter& it : t->iters) shape.push_back(it.extent), place.push_back(it.var);
    const Index v = iterator(*t, l_, false);
    inside[l_.var] = v;
    shape.push_back(l_.extent);
    place.push_back(v);
    for (const Tree* m : in_.reduce)
      if (m != &l_) inside[m->var] = iterator(*t, *m, true);
    for (const Iter& it : b_.iters)
      if (it.reduce) iters[it.var] = sym::substitute(it.binding, inside);
    buffer_ = s_.new_local(reduction_->buffer->name + "_rf", reduction_->buffer->dtype, shape, Scope::local);
    const Expr value = substitute(single_store(b_)->value, iters);
    const Expr self = load(buffer_, place);
    t->set_body(store(buffer_, place, ReplaceLoads(reduction_->buffer, self).apply(value)), nullptr);
    t->predicates = b_.predicates;
    t->conditional = b_.conditional;
    return t;
  }

  Index iterator(Tree& block, const Tree& l, bool reduce) const {
    const Index v = s_.context.var("v" + l.var->name, l.var->range);
    block.iters.push_back({v, l.extent, reduce, l.var});
    return v;
  }

  // Every element gets the neutral value, also those that a condition on the reduction keeps the update away from.
  std::unique_ptr<Tree> partial_init() {
    sym::Map rename, iters;
    std::vector<Tree*> ls = in_.spatial;
    ls.push_back(&l_);
    std::vector<std::unique_ptr<Tree>> loops = copy_loops(s_, ls, rename);
    std::unique_ptr<Tree> t = new_block(s_, b_.name + "_rf_init");
    t->iters = copy_spatial(s_, b_, rename, iters);
    iterator(*t, *loops.back(), false);
    std::vector<Index> place;
    for (const Iter& it : t->iters) place.push_back(it.var);
    t->set_body(store(buffer_, place, neutral_), nullptr);
    t->predicates = renamed(predicates_, rename);
    return around(std::move(loops), std::move(t));
  }

  // b reduces over what is left: buffer[s] = op(buffer[s], partial[s.., v]).
  std::unique_ptr<Tree> rest(std::unique_ptr<Tree> b) {
    sym::Map rename;
    std::vector<Tree*> ls = in_.spatial;
    ls.push_back(&l_);
    std::vector<std::unique_ptr<Tree>> loops = copy_loops(s_, ls, rename);
    std::erase_if(b->iters, [](const Iter& it) { return it.reduce; });
    std::vector<Index> place;
    for (Iter& it : b->iters) {
      it.binding = sym::substitute(it.binding, rename);
      place.push_back(it.var);
    }
    place.push_back(iterator(*b, *loops.back(), true));
    const Expr self = load(reduction_->buffer, reduction_->indices);
    const Expr value = make(reduction_->op, {self, load(buffer_, place)});
    b->predicates = renamed(predicates_, rename);
    b->set_body(store(reduction_->buffer, reduction_->indices, value), b->init);
    return around(std::move(loops), std::move(b));
  }

  ScheduleState& s_;
  Tree &b_, &l_;
  Tree* top_ = nullptr;  // the outermost reduce loop
  std::optional<Reduction> reduction_;
  Expr neutral_;
  Inside in_;
  std::vector<Index> predicates_;
  Buffer buffer_;
};

}  // namespace

Block Schedule::decompose_reduction(const Block& b, Loop l) {
  Block out;
  const bool ok = impl_->step({"decompose_reduction", {b.name, name_of(l)}, {}, {}}, [&](TraceStep& record) -> Refusal {
    Tree *t = impl_->find(b), *at = impl_->find(l);
    if (!t) return "there is no block " + quoted(b.name);
    if (!at) return "there is no loop " + quoted(name_of(l));
    Refusal r = decompose(*impl_, *t, *at, out);
    record.results = {out.name};
    return r;
  });
  return ok ? out : Block{};
}

Block Schedule::rfactor(const Block& b, Loop l) {
  Block out;
  const bool ok = impl_->step({"rfactor", {b.name, name_of(l)}, {}, {}}, [&](TraceStep& record) -> Refusal {
    Tree *t = impl_->find(b), *at = impl_->find(l);
    if (!t) return "there is no block " + quoted(b.name);
    if (!at) return "there is no loop " + quoted(name_of(l));
    Refusal r = RFactor(*impl_, *t, *at).run(out);
    record.results = {out.name};
    return r;
  });
  return ok ? out : Block{};
}

}  // namespace tripod::loop
