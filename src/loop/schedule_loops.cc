// Primitives on loops: split, fuse, reorder, and what kind a loop is.
#include <algorithm>

#include "loop/schedule_state.h"

namespace tripod::loop {
namespace {

Refusal need_serial(const Tree& l) {
  return l.loop_kind == LoopKind::serial ? "" : "loop " + quoted(l.var->name) + " is not serial any more";
}

std::string lookup_failure(const Loop& l) { return "there is no loop " + quoted(name_of(l)); }

bool has_parallel(const Tree& t) {
  return std::any_of(t.children.begin(), t.children.end(), [](const auto& c) {
    return c->is_loop() && (c->loop_kind == LoopKind::parallel || has_parallel(*c));
  });
}

Refusal split(ScheduleState& s, Tree& l, Index factor, Loop& outer, Loop& inner) {
  if (Refusal r = need_serial(l); !r.empty()) return r;
  if (s.uses_loops(factor)) return "the factor depends on a loop";
  if (!sym::proved(sym::ge(factor, 1))) return "the factor " + sym::text(factor) + " may be less than 1";
  if (!factor.is_const(1) && has_parallel(l)) return "a parallel loop is inside";
  const Index extent = l.extent;
  const std::string base = l.var->name;
  const Index o = s.fresh_loop_var(base + "_o", sym::ceildiv(extent, factor));
  const Index i = s.fresh_loop_var(base + "_i", factor);
  const Index value = o * factor + i;
  const sym::Map replace{{l.var, value}};
  for (const auto& c : l.children) substitute_loop(*c, replace);
  if (!sym::proved(sym::eq(sym::mod(extent, factor), 0)))
    for (Tree* b : leaves(l)) b->predicates.push_back(sym::lt(value, extent));
  // l becomes the outer loop; the inner one takes its children.
  auto in = std::make_unique<Tree>();
  in->var = i;
  in->extent = factor;
  in->children = std::move(l.children);
  l.children.clear();
  for (const auto& c : in->children) c->parent = in.get();
  l.var = o;
  l.extent = sym::ceildiv(extent, factor);
  insert(l, 0, std::move(in));
  outer.var = o;
  inner.var = i;
  return "";
}

std::string joined(const std::vector<Tree*>& ls) {
  std::string name = ls[0]->var->name;
  for (size_t k = 1; k < ls.size(); ++k) name += "_" + ls[k]->var->name;
  return name.size() <= 24 ? name : ls[0]->var->name + "_to_" + ls.back()->var->name;
}

// f = ((i * J) + j) * K + k; so i = f div (J*K), j = f div K mod J, k = f mod K.
Refusal fuse(ScheduleState& s, const std::vector<Tree*>& ls, Loop& out) {
  for (size_t k = 0; k < ls.size(); ++k) {
    if (Refusal r = need_serial(*ls[k]); !r.empty()) return r;
    if (k == 0) continue;
    const std::string names = quoted(ls[k - 1]->var->name) + " and " + quoted(ls[k]->var->name);
    if (ls[k]->parent != ls[k - 1] || ls[k - 1]->children.size() != 1)
      return "loops " + names + " are not nested perfectly";
    for (size_t j = 0; j < k; ++j)
      if (sym::uses(ls[k]->extent, ls[j]->var))
        return "the extent of loop " + quoted(ls[k]->var->name) + " depends on loop " + quoted(ls[j]->var->name);
  }
  if (ls.size() == 1) {
    out.var = ls[0]->var;
    return "";
  }
  std::vector<Index> below(ls.size(), s.context.constant(1));  // product of the extents inside
  for (size_t k = ls.size() - 1; k-- > 0;) below[k] = below[k + 1] * ls[k + 1]->extent;
  const Index extent = below[0] * ls[0]->extent;
  const Index f = s.fresh_loop_var(joined(ls), extent);
  sym::Map replace;
  for (size_t k = 0; k < ls.size(); ++k) {
    Index v = sym::floordiv(f, below[k]);
    if (k > 0) v = sym::mod(v, ls[k]->extent);
    replace[ls[k]->var] = v;
  }
  Tree& first = *ls[0];
  std::vector<std::unique_ptr<Tree>> inside = std::move(ls.back()->children);
  first.children = std::move(inside);
  for (const auto& c : first.children) {
    c->parent = &first;
    substitute_loop(*c, replace);
  }
  first.var = f;
  first.extent = extent;
  out.var = f;
  return "";
}

// The loops from the outermost of ls to the innermost one; empty when they are not one perfect nest.
std::vector<Tree*> perfect_nest(const std::vector<Tree*>& ls) {
  const auto depth = [](Tree* t) { return path(*t).size(); };
  Tree* top = *std::min_element(ls.begin(), ls.end(), [&](Tree* a, Tree* b) { return depth(a) < depth(b); });
  size_t missing = ls.size();
  std::vector<Tree*> nest;
  for (Tree* t = top;; t = t->children[0].get()) {
    nest.push_back(t);
    if (std::find(ls.begin(), ls.end(), t) != ls.end()) --missing;
    if (missing == 0) return nest;
    if (t->children.size() != 1 || !t->children[0]->is_loop()) return {};
  }
}

bool used_by(const Tree& block, const Tree& l, bool reduce) {
  return std::any_of(block.iters.begin(), block.iters.end(),
                     [&](const Iter& it) { return it.reduce == reduce && binds_with(it, l.var); });
}

// The order of a reduction that is not a plain sum (or the like) has to stay. And where the init is still part of the
// block, it has to come first: it does whatever the order, but for loops that both spatial and reduce iterators use.
Refusal reductions_stay(const Tree& b, const std::vector<Tree*>& before, const std::vector<Tree*>& after) {
  const bool any_order = reduction_of(b).has_value();
  if (any_order && !b.init) return "";
  const auto bound = [&](const std::vector<Tree*>& ls) {
    std::vector<const Tree*> out;
    for (const Tree* l : ls)
      if (used_by(b, *l, true) && (!any_order || used_by(b, *l, false))) out.push_back(l);
    return out;
  };
  if (bound(before) == bound(after)) return "";
  return any_order ? "block " + quoted(b.name) + " would not start with its init"
                   : "the order of the reduction of block " + quoted(b.name) + " matters";
}

// May the loops of `before` stand in the order `after`?
Refusal reorder_legal(const ScheduleState& s, const std::vector<Tree*>& before, const std::vector<Tree*>& after) {
  for (size_t k = 0; k < after.size(); ++k)
    for (size_t j = k + 1; j < after.size(); ++j)
      if (sym::uses(after[k]->extent, after[j]->var))
        return "the extent of loop " + quoted(after[k]->var->name) + " depends on loop " + quoted(after[j]->var->name);
  std::vector<const Tree*> moved;
  for (size_t k = 0; k < before.size(); ++k)
    if (before[k] != after[k]) moved.push_back(before[k]);
  for (Tree* b : leaves(*before[0]))
    if (b->is_block())
      if (Refusal r = reductions_stay(*b, before, after); !r.empty()) return r;
  for (Tree* l : before) {
    if (std::find(moved.begin(), moved.end(), l) == moved.end()) continue;
    for (const Carried& c : carried(s, *l))
      if (!c.reduction) return c.text(*l);
  }
  return "";
}

Refusal reorder(const ScheduleState& s, const std::vector<Tree*>& ls) {
  for (size_t k = 0; k < ls.size(); ++k)
    if (std::find(ls.begin(), ls.begin() + static_cast<ptrdiff_t>(k), ls[k]) != ls.begin() + static_cast<ptrdiff_t>(k))
      return "loop " + quoted(ls[k]->var->name) + " is named twice";
  const std::vector<Tree*> before = perfect_nest(ls);
  if (before.empty()) return "the loops are not in one perfect nest";
  std::vector<Tree*> after = before;
  for (size_t k = 0, next = 0; k < before.size(); ++k)
    if (std::find(ls.begin(), ls.end(), before[k]) != ls.end()) after[k] = ls[next++];
  if (after == before) return "";
  if (Refusal r = reorder_legal(s, before, after); !r.empty()) return r;
  struct Head {
    Index var, extent;
    LoopKind kind;
    int64_t grain;
  };
  std::vector<Head> heads;
  for (const Tree* t : after) heads.push_back({t->var, t->extent, t->loop_kind, t->grain});
  for (size_t k = 0; k < before.size(); ++k) {
    before[k]->var = heads[k].var;
    before[k]->extent = heads[k].extent;
    before[k]->loop_kind = heads[k].kind;
    before[k]->grain = heads[k].grain;
  }
  std::vector<Tree*> all = path(*before.back());
  all.push_back(before.back());
  bool inside = false;
  for (const Tree* t : all) {
    if (inside && t->loop_kind == LoopKind::parallel)
      return "parallel loop " + quoted(t->var->name) + " would not be outermost any more";
    inside = inside || !t->one_iteration();
  }
  return "";
}

// Iterations at the same time, or as lanes: none may depend on another.
Refusal independent(const ScheduleState& s, Tree& l) {
  for (const Carried& c : carried(s, l)) return c.text(l);
  return "";
}

Refusal make_parallel(const ScheduleState& s, Tree& l, int64_t grain) {
  if (Refusal r = need_serial(l); !r.empty()) return r;
  for (const Tree* t : path(l))
    if (!t->one_iteration()) return "loop " + quoted(l.var->name) + " is inside loop " + quoted(t->var->name);
  if (Refusal r = independent(s, l); !r.empty()) return r;
  l.loop_kind = LoopKind::parallel;
  l.grain = grain;
  return "";
}

Refusal need_constant(const Tree& l) {
  if (l.extent.is_const()) return "";
  return "loop " + quoted(l.var->name) + " has extent " + sym::text(l.extent) + ", which is not a constant";
}

Refusal extent_inside_depends(const Tree& t, const Tree& l) {
  for (const auto& c : t.children) {
    if (c->is_loop() && sym::uses(c->extent, l.var))
      return "the extent of loop " + quoted(c->var->name) + " inside differs between lanes";
    if (Refusal r = extent_inside_depends(*c, l); !r.empty()) return r;
  }
  return "";
}

Refusal make_vector(const ScheduleState& s, Tree& l) {
  if (Refusal r = need_serial(l); !r.empty()) return r;
  if (Refusal r = need_constant(l); !r.empty()) return r;
  if (Refusal r = extent_inside_depends(l, l); !r.empty()) return r;
  if (Refusal r = not_in_lanes(l); !r.empty()) return r;
  for (const Buffer& b : s.locals)
    if (Tree* site = alloc_site(s, b.get()); site == &l || is_under(*site, l))
      return "every lane would have a buffer " + quoted(b->name) + " of its own";
  if (Refusal r = independent(s, l); !r.empty()) return r;
  l.loop_kind = LoopKind::vector;
  return "";
}

Refusal make_unrolled(Tree& l) {
  if (Refusal r = need_serial(l); !r.empty()) return r;
  if (Refusal r = need_constant(l); !r.empty()) return r;
  l.loop_kind = LoopKind::unrolled;
  return "";
}

constexpr std::pair<LoopKind, std::string_view> kAxes[] = {
    {LoopKind::grid_x, "grid_x"},   {LoopKind::grid_y, "grid_y"},   {LoopKind::grid_z, "grid_z"},
    {LoopKind::cluster_x, "cluster_x"}, {LoopKind::block_x, "block_x"}, {LoopKind::block_y, "block_y"},
    {LoopKind::block_z, "block_z"}, {LoopKind::warp, "warp"},
};

// Threads may share what stands in shared memory: barriers are the rule's business, races the interpreter's.
Refusal bind_axis(const ScheduleState& s, Tree& l, LoopKind axis) {
  if (Refusal r = need_serial(l); !r.empty()) return r;
  if (axis < LoopKind::grid_x) return "not an axis of a GPU";
  for (const Carried& c : carried(s, l))
    if (axis < LoopKind::block_x || s.scope_of(c.buffer) != Scope::shared) return c.text(l);
  l.loop_kind = axis;
  return "";
}

}  // namespace

std::pair<Loop, Loop> Schedule::split(Loop l, Index factor) {
  std::pair<Loop, Loop> out;
  TraceStep step{"split", {name_of(l)}, {factor ? stable_text(factor) : "?"}, {}};
  const bool ok = impl_->step(std::move(step), [&](TraceStep& record) -> Refusal {
    Tree* t = impl_->find(l);
    if (!factor) return "no factor is given";
    if (!t) return lookup_failure(l);
    Refusal r = loop::split(*impl_, *t, factor, out.first, out.second);
    if (r.empty()) record.results = {name_of(out.first), name_of(out.second)};
    return r;
  });
  return ok ? out : std::pair<Loop, Loop>{};
}

std::pair<Loop, Loop> Schedule::split(Loop l, int64_t factor) { return split(l, impl_->context.constant(factor)); }

namespace {
std::vector<std::string> names_of(const std::vector<Loop>& ls) {
  std::vector<std::string> names;
  for (const Loop& l : ls) names.push_back(name_of(l));
  return names;
}

Refusal find_all(const ScheduleState& s, const std::vector<Loop>& ls, std::vector<Tree*>& out) {
  if (ls.empty()) return "no loops are given";
  for (const Loop& l : ls) {
    out.push_back(s.find(l));
    if (!out.back()) return lookup_failure(l);
  }
  return "";
}
}  // namespace

Loop Schedule::fuse(const std::vector<Loop>& ls) {
  Loop out;
  const bool ok = impl_->step({"fuse", names_of(ls), {}, {}}, [&](TraceStep& record) -> Refusal {
    std::vector<Tree*> trees;
    if (Refusal r = find_all(*impl_, ls, trees); !r.empty()) return r;
    Refusal r = loop::fuse(*impl_, trees, out);
    if (r.empty()) record.results = {name_of(out)};
    return r;
  });
  return ok ? out : Loop{};
}

void Schedule::reorder(const std::vector<Loop>& ls) {
  impl_->step({"reorder", names_of(ls), {}, {}}, [&](TraceStep&) -> Refusal {
    std::vector<Tree*> trees;
    if (Refusal r = find_all(*impl_, ls, trees); !r.empty()) return r;
    return loop::reorder(*impl_, trees);
  });
}

void Schedule::parallel(Loop l, int64_t grain) {
  impl_->step({"parallel", {name_of(l)}, {std::to_string(grain)}, {}}, [&](TraceStep&) -> Refusal {
    Tree* t = impl_->find(l);
    return t ? make_parallel(*impl_, *t, grain) : lookup_failure(l);
  });
}

void Schedule::vectorise(Loop l) {
  impl_->step({"vectorise", {name_of(l)}, {}, {}}, [&](TraceStep&) -> Refusal {
    Tree* t = impl_->find(l);
    return t ? make_vector(*impl_, *t) : lookup_failure(l);
  });
}

void Schedule::unroll(Loop l) {
  impl_->step({"unroll", {name_of(l)}, {}, {}}, [&](TraceStep&) -> Refusal {
    Tree* t = impl_->find(l);
    return t ? make_unrolled(*t) : lookup_failure(l);
  });
}

void Schedule::bind(Loop l, LoopKind axis) {
  const auto* row = std::find_if(std::begin(kAxes), std::end(kAxes), [&](const auto& a) { return a.first == axis; });
  const std::string name(row == std::end(kAxes) ? "?" : row->second);
  impl_->step({"bind", {name_of(l)}, {name}, {}}, [&](TraceStep&) -> Refusal {
    Tree* t = impl_->find(l);
    return t ? bind_axis(*impl_, *t, axis) : lookup_failure(l);
  });
}

}  // namespace tripod::loop
