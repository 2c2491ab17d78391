// The tree of loops and blocks, and the state around it.
#include <algorithm>
#include <set>
#include <tuple>

#include "loop/schedule_state.h"

namespace tripod::loop {

// --- what a body touches ------------------------------------------------------------------------------------------

namespace {

class CollectAccesses {
 public:
  void run(const Stmt& s) {
    if (!s) return;
    visit(s, [this](const Stmt& t) { stmt(t); }, [this](const Expr& e) { expr(e); });
  }
  Accesses result;

 private:
  void stmt(const Stmt& t) {
    switch (t->kind) {
      case StmtKind::seq: break;
      case StmtKind::let: break;
      case StmtKind::store: add(t->buffer, t->indices, {}, true); break;
      case StmtKind::loop:
        result.own_loops.emplace_back(t->var, t->extent);
        result.only_stores = false;
        break;
      case StmtKind::tile:
        for (size_t i = 0; i < t->regions.size(); ++i) {
          const Region& r = t->regions[i];
          if (i == 0) add(r.buffer, r.offset, r.extent, true);
          add(r.buffer, r.offset, r.extent, false);
        }
        [[fallthrough]];
      case StmtKind::check:
      case StmtKind::sync: result.has_effects = true; [[fallthrough]];
      default: result.only_stores = false;
    }
  }
  void expr(const Expr& e) {
    if (e->op == Op::load) add(e->buffer, e->indices, {}, false);
  }
  void add(const Buffer& b, const std::vector<Index>& indices, const std::vector<Index>& extent, bool is_store) {
    std::vector<const sym::Node*> key;
    for (Index i : indices) key.push_back(i.node());
    for (Index i : extent) key.push_back(i.node());
    if (seen_.emplace(b.get(), is_store, std::move(key)).second) result.list.push_back({b, indices, extent, is_store});
  }
  std::set<std::tuple<const BufferNode*, bool, std::vector<const sym::Node*>>> seen_;
};

}  // namespace

const Accesses& Tree::accesses() const {
  if (!accesses_) {
    CollectAccesses c;
    c.run(init);
    c.run(body);
    accesses_ = std::make_shared<const Accesses>(std::move(c.result));
  }
  return *accesses_;
}

void Tree::set_body(Stmt new_body, Stmt new_init) {
  body = std::move(new_body);
  init = std::move(new_init);
  accesses_ = nullptr;
}

Stmt Tree::block_stmt() const {
  Ref<StmtNode> n(new StmtNode(*loop::block(name, iters, body, init)));
  for (Index p : predicates) n->predicate = n->predicate ? sym::logical_and(n->predicate, p) : p;
  return Stmt(n.get());
}

std::unique_ptr<Tree> Tree::clone() const {
  auto t = std::make_unique<Tree>();
  t->kind = kind;
  t->var = var, t->extent = extent, t->loop_kind = loop_kind, t->grain = grain;
  t->name = name, t->iters = iters, t->predicates = predicates, t->body = body, t->init = init;
  t->conditional = conditional;
  t->accesses_ = accesses_;
  for (const auto& c : children) insert(*t, t->children.size(), c->clone());
  return t;
}

// --- walking ------------------------------------------------------------------------------------------------------

namespace {
void add_leaves(Tree& t, Blocks& out) {
  if (!t.is_loop()) out.push_back(&t);
  for (const auto& c : t.children) add_leaves(*c, out);
}
}  // namespace

Blocks leaves(Tree& t) {
  Blocks out;
  add_leaves(t, out);
  return out;
}

std::vector<Tree*> path(const Tree& t) {
  std::vector<Tree*> up;
  for (Tree* p = t.parent; p && p->var; p = p->parent) up.push_back(p);
  std::reverse(up.begin(), up.end());
  return up;
}

std::vector<Tree*> loops_between(const Tree& scope, const Tree& t) {
  std::vector<Tree*> up;
  for (Tree* p = t.parent; p && p != &scope; p = p->parent) up.push_back(p);
  std::reverse(up.begin(), up.end());
  return up;
}

bool is_under(const Tree& t, const Tree& ancestor) {
  for (const Tree* p = t.parent; p; p = p->parent)
    if (p == &ancestor) return true;
  return false;
}

Tree* common_loop(Tree& a, Tree& b) {
  for (Tree* p = a.is_loop() ? &a : a.parent; p; p = p->parent)
    if (p == &b || is_under(b, *p)) return p;
  return nullptr;
}

Tree* child_towards(Tree& ancestor, Tree& t) {
  Tree* p = &t;
  while (p->parent != &ancestor) p = p->parent;
  return p;
}

size_t position(const Tree& child) {
  const auto& all = child.parent->children;
  return static_cast<size_t>(
      std::find_if(all.begin(), all.end(), [&](const auto& c) { return c.get() == &child; }) - all.begin());
}

std::unique_ptr<Tree> detach(Tree& t) {
  Tree* parent = t.parent;
  const size_t at = position(t);
  std::unique_ptr<Tree> out = std::move(parent->children[at]);
  parent->children.erase(parent->children.begin() + static_cast<ptrdiff_t>(at));
  out->parent = nullptr;
  if (parent->children.empty() && parent->parent) detach(*parent);
  return out;
}

Tree* insert(Tree& parent, size_t at, std::unique_ptr<Tree> t) {
  t->parent = &parent;
  Tree* raw = t.get();
  parent.children.insert(parent.children.begin() + static_cast<ptrdiff_t>(at), std::move(t));
  return raw;
}

bool writes(const Tree& leaf, const BufferNode* b) {
  const auto& list = leaf.accesses().list;
  return std::any_of(list.begin(), list.end(), [&](const Access& a) { return a.is_store && a.buffer.get() == b; });
}

bool reads(const Tree& leaf, const BufferNode* b) {
  const auto& list = leaf.accesses().list;
  return std::any_of(list.begin(), list.end(), [&](const Access& a) { return !a.is_store && a.buffer.get() == b; });
}

bool binds_with(const Iter& it, Index loop_var) { return sym::uses(it.binding, loop_var); }

void substitute_loop(Tree& t, const sym::Map& vars) {
  if (t.is_loop() && t.extent) t.extent = sym::substitute(t.extent, vars);
  for (Iter& it : t.iters) it.binding = sym::substitute(it.binding, vars);
  std::vector<Index> kept;
  for (Index p : t.predicates)
    if (p = sym::substitute(p, vars); !p.is_const(1)) kept.push_back(p);
  t.predicates = std::move(kept);
  for (const auto& c : t.children) substitute_loop(*c, vars);
}

std::vector<Tree*> reduce_loops(const Tree& block) {
  std::vector<Tree*> found;
  for (Tree* l : path(block))
    for (const Iter& it : block.iters)
      if (it.reduce && binds_with(it, l->var)) {
        found.push_back(l);
        break;
      }
  return found;
}

Refusal not_in_lanes(const Tree& loop) {
  for (const Tree* t = &loop; t; t = t->parent)
    if (t->var && t->loop_kind == LoopKind::vector) return "loop " + quoted(t->var->name) + " is a vector";
  return "";
}

// --- state --------------------------------------------------------------------------------------------------------

Tree* ScheduleState::find(const Loop& l) const {
  const auto it = loop_of.find(l.var.node());
  return it == loop_of.end() ? nullptr : it->second;
}

Tree* ScheduleState::find(const Block& b) const {
  const auto it = block_of.find(b.name);
  return it == block_of.end() ? nullptr : it->second;
}

bool ScheduleState::is_param(const BufferNode* b) const {
  return std::any_of(source.params.begin(), source.params.end(), [&](const Buffer& p) { return p.get() == b; });
}

bool ScheduleState::is_local(const BufferNode* b) const {
  return std::any_of(locals.begin(), locals.end(), [&](const Buffer& p) { return p.get() == b; });
}

Buffer ScheduleState::find_buffer(const Buffer& b) const {
  if (!b) return nullptr;
  if (is_param(b.get()) || is_local(b.get())) return b;
  return find_buffer(b->name);
}

Buffer ScheduleState::find_buffer(const std::string& name) const {
  for (const auto* list : {&source.params, &locals})
    for (const Buffer& b : *list)
      if (b->name == name) return b;
  return nullptr;
}

Scope ScheduleState::scope_of(const Buffer& b) const {
  const auto it = storage.find(b.get());
  return it == storage.end() ? b->scope : it->second.scope;
}

Blocks ScheduleState::writers(const BufferNode* b) const {
  Blocks out;
  for (Tree* t : leaves(*root))
    if (writes(*t, b)) out.push_back(t);
  return out;
}

Blocks ScheduleState::readers(const BufferNode* b) const {
  Blocks out;
  for (Tree* t : leaves(*root))
    if (reads(*t, b)) out.push_back(t);
  return out;
}

std::string ScheduleState::fresh_name(std::string base) {
  if (base.empty()) base = "x";
  std::string name = base;
  for (int n = 2; !names.insert(name).second; ++n) name = base + "_" + std::to_string(n);
  return name;
}

Index ScheduleState::fresh_loop_var(const std::string& base, Index extent) {
  const int64_t most = sym::bounds(extent).hi;
  const sym::Range r{0, most == sym::Range::kMax ? most : std::max<int64_t>(most - 1, 0)};
  const Index v = context.var(fresh_name(base), r);
  if (!extent.is_const()) context.assume_below(v, extent);
  return v;
}

std::unique_ptr<Tree> ScheduleState::new_loop(const std::string& base, Index extent, LoopKind kind) {
  auto t = std::make_unique<Tree>();
  t->var = fresh_loop_var(base, extent);
  t->extent = extent;
  t->loop_kind = kind;
  return t;
}

Buffer ScheduleState::new_local(const std::string& base, DType type, std::vector<Index> shape, Scope scope) {
  locals.push_back(make_buffer(fresh_name(base), type, std::move(shape), scope));
  return locals.back();
}

bool ScheduleState::uses_loops(Index e) const {
  const std::vector<Index> vs = sym::variables(e);
  return std::any_of(vs.begin(), vs.end(), [&](Index v) { return loop_of.count(v.node()) > 0; });
}

void ScheduleState::rebuild_maps() {
  loop_of.clear();
  block_of.clear();
  const auto walk = [&](const auto& self, Tree& t) -> void {
    if (t.is_loop() && t.var) loop_of[t.var.node()] = &t;
    if (t.is_block()) block_of[t.name] = &t;
    for (const auto& c : t.children) self(self, *c);
  };
  walk(walk, *root);
}

ScheduleState::Saved ScheduleState::save() const { return {root->clone(), locals, storage}; }

void ScheduleState::restore(Saved saved, std::string why) {
  root = std::move(saved.root);
  locals = std::move(saved.locals);
  storage = std::move(saved.storage);
  reason = std::move(why);
  rebuild_maps();
}

std::string quoted(const std::string& name) { return "'" + name + "'"; }
std::string name_of(const Loop& l) { return l ? l.var->name : "?"; }

// --- from compute form --------------------------------------------------------------------------------------------

namespace {

class Plant {
 public:
  explicit Plant(ScheduleState& s) : s_(s) {}

  void run(const Stmt& stmt) {
    switch (stmt->kind) {
      case StmtKind::seq:
        for (const Stmt& b : stmt->body) run(b);
        break;
      case StmtKind::alloc:
        s_.locals.push_back(stmt->buffer);
        s_.names.insert(stmt->buffer->name);
        run(stmt->body[0]);
        break;
      case StmtKind::block: block(*stmt); break;
      default: {
        auto t = std::make_unique<Tree>();
        t->kind = Tree::Kind::other;
        t->body = stmt;
        insert(*s_.root, s_.root->children.size(), std::move(t));
      }
    }
  }

 private:
  void block(const StmtNode& b) {
    TRIPOD_CHECK(s_.names.insert(b.name).second, "two blocks are called " + b.name);
    auto t = std::make_unique<Tree>();
    t->kind = Tree::Kind::block;
    t->name = b.name;
    t->iters = b.iters;
    t->set_body(b.body[0], b.init);
    std::vector<Side> sides;
    for (const Iter& it : b.iters) {
      TRIPOD_CHECK(!it.binding, "block " + b.name + " is scheduled already");
      sides.push_back(whole_side(it.extent));
    }
    Tree& block = *t;
    insert(*s_.root, s_.root->children.size(), nest(s_, std::move(t), sides));
    if (b.predicate) {
      block.conditional = true;
      block.predicates.push_back(sym::substitute(b.predicate, bindings(block)));
    }
  }

  ScheduleState& s_;
};

}  // namespace

Schedule::Schedule(sym::Context& context, Function compute_form) : impl_(std::make_unique<Impl>(context)) {
  Impl& s = *impl_;
  s.root = std::make_unique<Tree>();
  const Stmt body = std::move(compute_form.body);
  compute_form.body = nullptr;
  s.source = std::move(compute_form);
  for (const Buffer& b : s.source.params) s.names.insert(b->name);
  for (Index d : s.source.dims) s.names.insert(d->name);
  if (body) Plant(s).run(body);
  s.rebuild_maps();
}

Schedule::~Schedule() = default;

}  // namespace tripod::loop
