// The function that a schedule stands for.
//
// A local buffer is allocated in the innermost loop around everything that touches it (alloc_site). There only the
// box that one iteration touches is alive, so the buffer shrinks to it and its indices count from the box's corner.
#include <algorithm>
#include <map>

#include "loop/schedule_state.h"

namespace tripod::loop {
namespace {

struct Placed {
  Buffer original, final;
  std::vector<Index> corner;
  Tree* site;
};

class Rebase : public Rewriter {
 public:
  Rebase(const std::unordered_map<const BufferNode*, const Placed*>& placed, const Tree& leaf)
      : placed_(placed), bindings_(bindings(leaf)) {}

  Expr rewrite(const Expr& e) override {
    if (e->op != Op::load) return nullptr;
    const Placed* p = find(e->buffer);
    if (!p) return nullptr;
    return load_guarded(p->final, moved(*p, e->indices), e->guard, e->other ? apply(e->other) : nullptr);
  }
  Stmt rewrite(const Stmt& s) override {
    if (s->kind == StmtKind::store) {
      const Placed* p = find(s->buffer);
      return p ? store(p->final, moved(*p, s->indices), apply(s->value), s->guard) : nullptr;
    }
    if (s->kind != StmtKind::tile) return nullptr;
    Ref<StmtNode> n(new StmtNode(*s));
    for (Region& r : n->regions)
      if (const Placed* p = find(r.buffer)) r.offset = moved(*p, r.offset), r.buffer = p->final;
    return Stmt(n.get());
  }

 private:
  const Placed* find(const Buffer& b) const {
    const auto it = placed_.find(b.get());
    return it == placed_.end() ? nullptr : it->second;
  }
  // In terms of the loops around the block, where the corner cancels.
  std::vector<Index> moved(const Placed& p, std::vector<Index> indices) const {
    for (size_t d = 0; d < indices.size(); ++d)
      if (!p.corner[d].is_const(0)) indices[d] = sym::substitute(indices[d], bindings_) - p.corner[d];
    return indices;
  }

  const std::unordered_map<const BufferNode*, const Placed*>& placed_;
  sym::Map bindings_;
};

class Build {
 public:
  explicit Build(ScheduleState& s) : s_(s) {}

  void run() {
    placed_.reserve(s_.locals.size() + s_.source.params.size());
    for (const Buffer& b : s_.locals) place_local(b);
    for (Buffer& b : params_ = s_.source.params) b = with_storage(b, b->shape);
    for (size_t i = 0; i < params_.size(); ++i)
      if (const Buffer& was = s_.source.params[i]; was != params_[i])
        add({was, params_[i], std::vector<Index>(was->shape.size(), s_.context.constant(0)), nullptr});
    for (const Placed& p : placed_) {
      s_.built_buffers[p.original.get()] = p.final;
      by_buffer_[p.original.get()] = &p;
    }
    Function f = s_.source;
    f.params = params_;
    f.body = body_of(*s_.root);
    s_.built = std::move(f);
  }

 private:
  Buffer with_storage(const Buffer& b, const std::vector<Index>& shape) const {
    const auto it = s_.storage.find(b.get());
    if (it == s_.storage.end() && shape == b->shape) return b;
    const bool changed = it != s_.storage.end();
    return make_buffer(b->name, b->dtype, shape, changed ? it->second.scope : b->scope,
                       changed ? it->second.layout : b->layout);
  }

  void place_local(const Buffer& b) {
    Placed p{b, nullptr, {}, alloc_site(s_, b.get())};
    std::vector<Index> shape;
    for (size_t d = 0; d < b->shape.size(); ++d) shape.push_back(b->shape[d]);
    p.corner.assign(shape.size(), s_.context.constant(0));
    if (p.site->var) {
      const std::vector<Side> sides = touched(s_, *p.site, b, Touch::any);
      for (size_t d = 0; d < shape.size(); ++d)
        if (!sides[d].whole && !s_.uses_loops(sides[d].extent)) shape[d] = sides[d].extent, p.corner[d] = sides[d].lo;
    }
    p.final = with_storage(b, shape);
    add(std::move(p));
  }

  void add(Placed p) {
    if (p.site) at_[p.site].push_back(p.final);
    placed_.push_back(std::move(p));
  }

  Stmt body_of(const Tree& t) {
    std::vector<Stmt> parts;
    for (const auto& c : t.children) parts.push_back(stmt_of(*c));
    Stmt s = seq(std::move(parts));
    const auto here = at_.find(&t);
    if (here != at_.end())
      for (size_t i = here->second.size(); i-- > 0;) s = alloc(here->second[i], s);
    return s;
  }

  Stmt stmt_of(const Tree& t) {
    if (t.is_loop()) {
      // Loops of one iteration around a parallel loop, which has to be outermost, are left out.
      if (t.extent.is_const(1) && has_parallel(t)) return substitute(body_of(t), {{t.var, s_.context.constant(0)}});
      return loop(t.var, t.extent, t.loop_kind, body_of(t), t.grain);
    }
    Rebase rebase(by_buffer_, t);
    if (!t.is_block()) return rebase.apply(t.body);
    Ref<StmtNode> n(new StmtNode(*t.block_stmt()));
    if (n->init) n->init = rebase.apply(n->init);
    n->body = {rebase.apply(t.body)};
    return Stmt(n.get());
  }

  static bool has_parallel(const Tree& t) {
    return std::any_of(t.children.begin(), t.children.end(), [](const auto& c) {
      return c->is_loop() && (c->loop_kind == LoopKind::parallel || has_parallel(*c));
    });
  }

  ScheduleState& s_;
  std::vector<Placed> placed_;  // reserved: addresses stay
  std::vector<Buffer> params_;
  std::unordered_map<const BufferNode*, const Placed*> by_buffer_;
  std::map<const Tree*, std::vector<Buffer>> at_;
};

}  // namespace

const Function& build(ScheduleState& s) {
  if (!s.built) {
    s.built_buffers.clear();
    Build(s).run();
  }
  return *s.built;
}

}  // namespace tripod::loop
