// Copies of buffers (cache_read, cache_write), and where and how buffers are stored.
#include <algorithm>

#include "loop/schedule_state.h"

namespace tripod::loop {
namespace {

constexpr std::pair<Scope, std::string_view> kScopes[] = {{Scope::global, "global"},
                                                          {Scope::constant, "constant"},
                                                          {Scope::shared, "shared"},
                                                          {Scope::local, "local"},
                                                          {Scope::reg, "reg"}};
std::string name_of(Scope s) { return std::string(kScopes[static_cast<size_t>(s)].second); }

bool scratch(Scope s) { return s == Scope::shared || s == Scope::local || s == Scope::reg; }

// Another buffer in place of one, at the same indices.
struct Redirect : Rewriter {
  Redirect(const Buffer& from, const Buffer& to, bool stores) : from(from), to(to), stores(stores) {}
  Buffer rewrite_buffer(const Buffer& b) override { return b == from ? to : b; }
  Stmt rewrite(const Stmt& s) override {
    if (stores || s->kind != StmtKind::store || s->buffer != from) return nullptr;
    return store(from, s->indices, apply(s->value), s->guard);
  }
  const Buffer &from, &to;
  bool stores;
};

// `to[i..] = from[i..]` over the shape of the buffers.
std::unique_ptr<Tree> copy_block(ScheduleState& s, const std::string& name, const Buffer& from, const Buffer& to) {
  auto t = std::make_unique<Tree>();
  t->kind = Tree::Kind::block;
  t->name = s.fresh_name(name);
  std::vector<Index> place;
  for (size_t d = 0; d < from->shape.size(); ++d) {
    const Index v = s.context.var("d" + std::to_string(d), {0, sym::Range::kMax});
    s.context.assume_below(v, from->shape[d]);
    t->iters.push_back({v, from->shape[d], false, v});
    place.push_back(v);
  }
  t->set_body(store(to, place, load(from, place)), nullptr);
  return t;
}

// The innermost loop (or root) around b and the other leaves.
Tree* site_of(Tree& b, const Blocks& others) {
  Tree* site = b.parent;
  for (Tree* t : others)
    if (t != &b) site = common_loop(*site, *t);
  return site;
}

Refusal cache_read(ScheduleState& s, Tree& b, const Buffer& buffer, Scope scope, Layout layout, Block& out) {
  if (!scratch(scope)) return "a copy cannot be in scope " + name_of(scope);
  if (!reads(b, buffer.get())) return "block " + quoted(b.name) + " does not read " + quoted(buffer->name);
  if (writes(b, buffer.get())) return "block " + quoted(b.name) + " writes " + quoted(buffer->name) + " too";
  const Blocks makers = s.writers(buffer.get());
  Tree& site = makers.empty() ? *s.root : *site_of(b, makers);
  if (site.var) return "only a part of " + quoted(buffer->name) + " is computed at a time";
  Tree& before = *child_towards(site, b);
  for (const Tree* w : makers)
    if (w == &before || is_under(*w, before))
      return "block " + quoted(w->name) + " makes " + quoted(buffer->name) + " in the same loop " +
             quoted(before.var->name);
  const Buffer copy = s.new_local(buffer->name + "_cache", buffer->dtype, buffer->shape, scope);
  if (!layout.is_row_major()) s.storage[copy.get()] = {scope, std::move(layout)};
  std::vector<Side> sides;
  for (Index e : buffer->shape) sides.push_back(whole_side(e));
  std::unique_ptr<Tree> block = copy_block(s, buffer->name + "_cache_read", buffer, copy);
  out.name = block->name;
  Redirect redirect(buffer, copy, false);
  const Stmt init = b.init ? redirect.apply(b.init) : nullptr;
  b.set_body(redirect.apply(b.body), init);
  insert(site, position(before), nest(s, std::move(block), sides));
  return "";
}

Refusal cache_write(ScheduleState& s, Tree& b, Scope scope, Block& out) {
  if (!scratch(scope)) return "a copy cannot be in scope " + name_of(scope);
  const Buffer buffer = only_written(b);
  if (!buffer) return "block " + quoted(b.name) + " writes several buffers";
  const auto dims = store_iters(b, buffer.get());
  if (!dims) return "block " + quoted(b.name) + " does not store to " + quoted(buffer->name) + " by its iterators";
  if (b.conditional) return "block " + quoted(b.name) + " has a condition of its own";
  Blocks others = s.readers(buffer.get());
  for (Tree* w : s.writers(buffer.get())) {
    if (w != &b && reads(b, buffer.get()))
      return "block " + quoted(w->name) + " writes " + quoted(buffer->name) + " too";
    others.push_back(w);
  }
  Tree& site = s.is_local(buffer.get()) ? *site_of(b, others) : *s.root;
  if (Refusal r = not_in_lanes(site); !r.empty()) return r;
  Tree& after = *child_towards(site, b);
  for (const Tree* r : others)
    if (r != &b && is_under(*r, after))
      return "block " + quoted(r->name) + " uses " + quoted(buffer->name) + " in the same loop " +
             quoted(after.var->name);
  std::vector<Side> sides(dims->size());
  const std::vector<Side> part = site.var ? touched(s, site, buffer, Touch::write) : std::vector<Side>{};
  for (size_t d = 0; d < dims->size(); ++d) {
    const int i = (*dims)[d];
    sides[d] = site.var ? part[d] : whole_side(i < 0 ? buffer->shape[d] : b.iters[static_cast<size_t>(i)].extent);
  }
  const Buffer copy = s.new_local(buffer->name + "_" + name_of(scope), buffer->dtype, buffer->shape, scope);
  std::unique_ptr<Tree> block = copy_block(s, buffer->name + "_cache_write", copy, buffer);
  // A block that writes a part of the buffer has that part copied.
  for (size_t d = 0; d < dims->size(); ++d)
    if ((*dims)[d] >= 0) block->iters[d].extent = b.iters[static_cast<size_t>((*dims)[d])].extent;
  out.name = block->name;
  Redirect redirect(buffer, copy, true);
  const Stmt init = b.init ? redirect.apply(b.init) : nullptr;
  b.set_body(redirect.apply(b.body), init);
  insert(site, position(after) + 1, nest(s, std::move(block), sides, common_predicates({&b}, site)));
  return "";
}

Refusal set_scope(ScheduleState& s, const Buffer& b, Scope scope) {
  if (!s.is_local(b.get())) return "buffer " + quoted(b->name) + " is a parameter";
  if (!scratch(scope)) return "buffer " + quoted(b->name) + " cannot be in scope " + name_of(scope);
  if (scope == Scope::reg) {
    build(s);
    for (Index e : s.built_buffers.at(b.get())->shape)
      if (!e.is_const())
        return "buffer " + quoted(b->name) + " has the extent " + sym::text(e) + ", which is not a constant";
  }
  const auto it = s.storage.find(b.get());
  s.storage[b.get()] = {scope, it == s.storage.end() ? b->layout : it->second.layout};
  return "";
}

Refusal set_layout(ScheduleState& s, const Buffer& b, Layout layout) {
  if (!layout.is_row_major() && layout.args.size() != b->shape.size())
    return "a layout of " + std::to_string(layout.args.size()) + " dims for buffer " + quoted(b->name);
  s.storage[b.get()] = {s.scope_of(b), std::move(layout)};
  return "";
}

std::string list_text(const std::vector<Index>& es) {
  std::string out = "[";
  for (size_t i = 0; i < es.size(); ++i) out += (i > 0 ? ", " : "") + stable_text(es[i]);
  return out + "]";
}

// What Replay::layout() in trace_replay.cc reads.
std::string layout_text(const Layout& l) {
  if (l.is_row_major()) return "row_major";
  return list_text(l.args) + " -> " + list_text(l.map) + " in " + list_text(l.extents) + " threads " +
         std::to_string(l.thread_dims);
}

std::string buffer_name(const Buffer& b) { return b ? b->name : "?"; }

}  // namespace

Block Schedule::cache_read(const Block& b, const Buffer& buffer, Scope scope, Layout layout) {
  Block out;
  TraceStep record{"cache_read", {b.name, buffer_name(buffer)}, {name_of(scope), layout_text(layout)}, {}};
  const bool ok = impl_->step(std::move(record), [&](TraceStep& r) -> Refusal {
    Tree* t = impl_->find(b);
    const Buffer mine = impl_->find_buffer(buffer);
    if (!t || !mine) return "there is no " + (t ? "buffer " + quoted(buffer_name(buffer)) : "block " + quoted(b.name));
    const Refusal why = loop::cache_read(*impl_, *t, mine, scope, std::move(layout), out);
    r.results = {out.name};
    return why;
  });
  return ok ? out : Block{};
}

Block Schedule::cache_write(const Block& b, Scope scope) {
  Block out;
  const bool ok = impl_->step({"cache_write", {b.name}, {name_of(scope)}, {}}, [&](TraceStep& r) -> Refusal {
    Tree* t = impl_->find(b);
    if (!t) return "there is no block " + quoted(b.name);
    const Refusal why = loop::cache_write(*impl_, *t, scope, out);
    r.results = {out.name};
    return why;
  });
  return ok ? out : Block{};
}

void Schedule::set_scope(const Buffer& buffer, Scope scope) {
  impl_->step({"set_scope", {buffer_name(buffer)}, {name_of(scope)}, {}}, [&](TraceStep&) -> Refusal {
    const Buffer mine = impl_->find_buffer(buffer);
    return mine ? loop::set_scope(*impl_, mine, scope) : "there is no buffer " + quoted(buffer_name(buffer));
  });
}

void Schedule::set_layout(const Buffer& buffer, Layout layout) {
  impl_->step({"set_layout", {buffer_name(buffer)}, {layout_text(layout)}, {}}, [&](TraceStep&) -> Refusal {
    const Buffer mine = impl_->find_buffer(buffer);
    if (!mine) return "there is no buffer " + quoted(buffer_name(buffer));
    return loop::set_layout(*impl_, mine, std::move(layout));
  });
}

void Schedule::set_name(const Block& b, std::string name) {
  impl_->step({"set_name", {b.name}, {name}, {}}, [&](TraceStep&) -> Refusal {
    Tree* t = impl_->find(b);
    if (!t) return "there is no block " + quoted(b.name);
    if (name.empty() || !impl_->names.insert(name).second) return "the name " + quoted(name) + " is taken";
    t->name = std::move(name);
    return "";
  });
}

}  // namespace tripod::loop
