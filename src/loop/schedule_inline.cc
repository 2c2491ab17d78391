// inline_producer: a block's value takes the place of every load of its buffer.
#include <algorithm>
#include <map>

#include "loop/schedule_state.h"

namespace tripod::loop {
namespace {

// A producer's body: Lets and checks (outermost first), then one store.
struct Recipe {
  std::vector<Stmt> steps;
  Stmt store;
};

bool read_recipe(const Stmt& s, Recipe& r) {
  if (r.store) return false;
  switch (s->kind) {
    case StmtKind::store: r.store = s; return !s->guard;
    case StmtKind::check: r.steps.push_back(s); return true;
    case StmtKind::let: r.steps.push_back(s); return read_recipe(s->body[0], r);
    case StmtKind::seq:
      return std::all_of(s->body.begin(), s->body.end(), [&](const Stmt& b) { return read_recipe(b, r); });
    default: return false;
  }
}

// Makes every load conditional; where the guard is false its value does not matter.
struct GuardLoads : Rewriter {
  explicit GuardLoads(Index g) : guard(g) {}
  Expr rewrite(const Expr& e) override {
    if (e->op != Op::load) return nullptr;
    const Expr other = e->other ? apply(e->other) : constant(e->dtype, 0);
    return load_guarded(e->buffer, e->indices, e->guard ? sym::logical_and(guard, e->guard) : guard, other);
  }
  Index guard;
};

class Inline : public Rewriter {
 public:
  Inline(sym::Context& c, const Recipe& r, const Tree& producer, const Buffer& b, const std::vector<int>& dims)
      : context_(c), recipe_(r), producer_(producer), buffer_(b), dims_(dims) {}

  Expr rewrite(const Expr& e) override {
    if (e->op != Op::load || e->buffer != buffer_) return nullptr;
    std::vector<const void*> key{e->guard.node()};
    for (Index i : e->indices) key.push_back(i.node());
    auto& value = values_[key];
    if (!value) value = at(e->indices, e->guard);
    if (!e->guard) return value;
    const Expr other = apply(e->other);
    if (value->op == Op::load && value->guard == e->guard)  // a moved value: the guarded load says it all
      return load_guarded(value->buffer, value->indices, value->guard, other);
    return select(from_index(DType::b1, e->guard), value, other);
  }

  // Lets that the values need stand around the statement that uses them.
  Stmt rewrite(const Stmt& s) override {
    if (s->kind != StmtKind::store && s->kind != StmtKind::let && s->kind != StmtKind::branch) return nullptr;
    if (recipe_.steps.empty()) return nullptr;
    start_statement();
    const Expr value = apply(s->value);
    std::vector<Stmt> around = std::move(around_);
    start_statement();
    Ref<StmtNode> n(new StmtNode(*s));
    n->value = value;
    for (Stmt& b : n->body) b = apply(b);
    start_statement();
    Stmt out(n.get());
    while (!around.empty()) {
      const Stmt& step = around.back();
      out = step->kind == StmtKind::let ? let(step->var, step->value, out) : seq({step, out});
      around.pop_back();
    }
    return out;
  }

 private:
  void start_statement() {
    forget();
    values_.clear();
    around_.clear();
  }

  Expr guarded(const Expr& e, Index guard) { return guard ? GuardLoads(guard).apply(e) : e; }

  // The producer's value at a place.
  Expr at(const std::vector<Index>& indices, Index guard) {
    sym::Map map;
    for (const Iter& it : producer_.iters) map[it.var] = context_.constant(0);  // of extent 1 if not an index
    for (size_t d = 0; d < indices.size(); ++d)
      if (dims_[d] >= 0) map[producer_.iters[static_cast<size_t>(dims_[d])].var] = indices[d];
    for (const Stmt& step : recipe_.steps) {
      if (step->kind == StmtKind::let) {
        const Expr value = guarded(substitute(step->value, map), guard);
        const Index v = context_.var(step->var->name, step->var->range);
        map[step->var] = v;
        around_.push_back(let(v, value, seq({})));
      } else {
        Stmt c = substitute(step, map);
        if (guard) c = branch(from_index(DType::b1, guard), c);
        around_.push_back(c);
      }
    }
    return guarded(substitute(recipe_.store->value, map), guard);
  }

  sym::Context& context_;
  const Recipe& recipe_;
  const Tree& producer_;
  const Buffer& buffer_;
  const std::vector<int>& dims_;
  std::map<std::vector<const void*>, Expr> values_;
  std::vector<Stmt> around_;
};

// Everything p reads has the same value where the consumer stands.
Refusal inputs_reach(const ScheduleState& s, Tree& p, const Tree& consumer) {
  const Blocks all = leaves(*s.root);
  for (const Access& a : p.accesses().list) {
    if (a.is_store) continue;
    bool before = true;
    for (Tree* w : all) {
      before = before && w != &p;
      if (!writes(*w, a.buffer.get())) continue;
      if (!before) return "block " + quoted(w->name) + " overwrites " + quoted(a.buffer->name);
      if (const Tree* both = common_loop(*w, p); !is_under(consumer, *both))
        return "block " + quoted(consumer.name) + " is outside of loop " + quoted(both->var->name) + ", where " +
               quoted(a.buffer->name) + " is made";
    }
  }
  return "";
}

Refusal inline_producer(ScheduleState& s, Tree& p) {
  const std::string block = "block " + quoted(p.name);
  const Buffer b = only_written(p);
  if (!b) return block + " writes several buffers";
  if (!s.is_local(b.get())) return block + " writes " + quoted(b->name) + ", which is a parameter";
  for (const Iter& it : p.iters)
    if (it.reduce) return block + " reduces";
  if (p.conditional || reads(p, b.get())) return block + " is not a function of its inputs";
  for (const Tree* w : s.writers(b.get()))
    if (w != &p) return "block " + quoted(w->name) + " writes " + quoted(b->name) + " too";
  Recipe recipe;
  if (!read_recipe(p.body, recipe) || !recipe.store) return block + " is more than one value a point";
  const auto dims = store_iters(p, b.get());
  if (!dims) return block + " does not store to " + quoted(b->name) + " by its iterators";
  const Blocks consumers = s.readers(b.get());
  for (const Tree* c : consumers) {
    if (c->accesses().has_effects && !c->is_block()) return "a statement reads " + quoted(b->name);
    for (const Access& a : c->accesses().list)
      if (a.buffer == b && !a.extent.empty()) return block + " feeds a tile operation";
    if (Refusal r = inputs_reach(s, p, *c); !r.empty()) return r;
  }
  for (Tree* c : consumers) {
    Inline in(s.context, recipe, p, b, *dims);
    const Stmt init = c->init ? in.apply(c->init) : nullptr;
    c->set_body(in.apply(c->body), init);
  }
  std::erase(s.locals, b);
  detach(p);
  return "";
}

}  // namespace

void Schedule::inline_producer(const Block& b) {
  impl_->step({"inline_producer", {b.name}, {}, {}}, [&](TraceStep&) -> Refusal {
    Tree* t = impl_->find(b);
    return t ? loop::inline_producer(*impl_, *t) : "there is no block " + quoted(b.name);
  });
}

}  // namespace tripod::loop
