#include <algorithm>

#include "rules/contraction.h"
#include "rules/inline.h"

namespace tripod::rules {

using loop::Iter;
using loop::Op;
using loop::StmtKind;

static bool is_load_of(const Expr& e, const Buffer& b, const Indices& at) {
  return e->op == Op::load && e->buffer == b && e->indices == at && !e->guard;
}

// acc[to] = fma(a, b, acc[to]), or acc[to] + a * b for integers.
static bool match_sum(const loop::StmtNode& s, Contraction& k) {
  if (s.kind != StmtKind::store || s.guard) return false;
  k.acc = s.buffer, k.to = s.indices, k.dtype = s.buffer->dtype;
  const Expr& v = s.value;
  if (v->op == Op::fma && is_load_of(v->args[2], k.acc, k.to)) {
    k.a = v->args[0], k.b = v->args[1];
    return true;
  }
  if (v->op == Op::add && v->args[1]->op == Op::mul && is_load_of(v->args[0], k.acc, k.to)) {
    k.a = v->args[1]->args[0], k.b = v->args[1]->args[1];
    return true;
  }
  return false;
}

static bool reads_only_params(const loop::Function& f, const Expr& e) {
  bool good = true;
  loop::visit(e, [&](const Expr& x) {
    if (x->op == Op::load) good = good && std::find(f.params.begin(), f.params.end(), x->buffer) != f.params.end();
  });
  return good;
}

static std::vector<Stmt> top_blocks(const loop::Function& f) {
  std::vector<Stmt> r;
  loop::visit(f.body, [&](const Stmt& s) {
    if (s->kind == StmtKind::block) r.push_back(s);
  });
  return r;
}

// How many places an index of the sum walks over, each once: an iterator, or i * s + r with r in [0, s). Empty: neither.
static Index walked(Index at, const std::vector<Iter>& spatial) {
  for (const Iter& r : spatial) {
    if (r.var == at) return r.extent;
    const auto linear = sym::uses(at, r.var) ? sym::linear_in(at, r.var) : std::nullopt;
    if (!linear || !linear->coefficient.is_const(1)) continue;
    for (const Iter& i : spatial)
      if (linear->rest == i.var * r.extent) return i.extent * r.extent;
  }
  return {};
}

// An elementwise block behind the contraction: one store, whose iterators are the accumulator's dims in order, over the
// whole of each. `spatial` are the sum's own.
static bool match_epilogue(const Stmt& b, const Contraction& k, const std::vector<Iter>& spatial, Contraction::Epilogue& e) {
  if (b->iters.size() != k.to.size() || b->init || b->body[0]->kind != StmtKind::store || b->body[0]->guard) return false;
  Indices own;
  sym::Map to_contraction;
  for (size_t d = 0; d < b->iters.size(); ++d) {
    const Index extent = walked(k.to[d], spatial);
    if (b->iters[d].reduce || !extent || !sym::proved(sym::eq(extent, b->iters[d].extent))) return false;
    own.push_back(b->iters[d].var);
    to_contraction[b->iters[d].var] = k.to[d];
  }
  bool good = true;
  loop::visit(b->body[0]->value, [&](const Expr& x) {
    if (x->op != Op::load || !(x->buffer == k.acc)) return;
    good = good && !x->guard;
    // A dim of extent 1 is indexed by its iterator or by 0.
    for (size_t d = 0; d < own.size(); ++d)
      good = good && (x->indices[d] == own[d] || (b->iters[d].extent.is_const(1) && x->indices[d].is_const(0)));
  });
  if (!good) return false;
  e.target = b->body[0]->buffer;
  for (const Index& i : b->body[0]->indices) e.at.push_back(sym::substitute(i, to_contraction));
  e.value = loop::substitute(b->body[0]->value, to_contraction);
  return true;
}

// The n of floordiv(v, n) in an expression's indices, 0 where there is none or several differ.
static int64_t divisor_of(const Expr& e, Index v) {
  int64_t found = 0;
  bool one = true;
  const std::function<void(Index)> look = [&](Index i) {
    if (i->op == sym::Op::floordiv && i.arg(0) == v && i.arg(1).is_const()) {
      one = one && (found == 0 || found == i.arg(1).value());
      found = i.arg(1).value();
    }
    for (int n = 0; n < 3 && i->args[n]; ++n) look(i.arg(n));
  };
  loop::visit(e, [&](const Expr& x) {
    for (const Index& i : x->indices) look(i);
  });
  return one ? found : 0;
}

// See Column::of_group; `spatial` then has the group, and `column` is the place in it.
static bool split_groups(Contraction& k, std::vector<Iter>& spatial, Iter& column, sym::Context& c) {
  for (const Expr& operand : {k.a, k.b}) {
    const int64_t size = divisor_of(operand, column.var);
    if (size < kLeastGroup || !column.extent.is_const() || column.extent.value() % size != 0) continue;
    const Index groups = c.constant(column.extent.value() / size), group = loop_var(c, "group", groups), place = loop_var(c, "place", c.constant(size));
    const sym::Map m = {{column.var, group * size + place}};
    if (uses(loop::substitute(operand, m), place)) continue;
    k.a = loop::substitute(k.a, m), k.b = loop::substitute(k.b, m);
    for (Index& i : k.to) i = sym::substitute(i, m);
    for (Contraction::Epilogue& e : k.epilogue) {
      for (Index& i : e.at) i = sym::substitute(i, m);
      e.value = loop::substitute(e.value, m);
    }
    for (Iter& i : spatial)
      if (i.var == column.var) i = {group, groups, false, {}};
    column = {place, c.constant(size), false, {}};
    return true;
  }
  return false;
}

// Sorts the spatial iterators into column, batch and rows; the column's operand becomes b.
static bool classify(Contraction& k, std::vector<Iter> spatial, Column moves, sym::Context& c, std::string* why) {
  const Index at = loop::offset(c, k.epilogue[0].target, k.epilogue[0].at);
  k.column = {};
  for (const Iter& i : spatial) {
    const auto linear = sym::linear_in(at, i.var);
    if (linear && linear->coefficient.is_const(1) && !i.extent.is_const(1)) k.column = i;
  }
  if (!k.column.var) return *why = "no iterator runs along the memory of the result", false;
  const auto moved = [&](const Expr& e) { return uses(e, k.column.var); };
  if (moves == Column::of_group && moved(k.a) && moved(k.b)) split_groups(k, spatial, k.column, c);
  const bool both = moved(k.a) && moved(k.b);
  if (both != (moves == Column::both)) return *why = both ? "both operands move with the column" : "one operand does not move with the channel", false;
  if (!both && moved(k.a)) std::swap(k.a, k.b);
  for (const Iter& i : spatial) {
    if (i.var == k.column.var) continue;
    (uses(k.b, i.var) ? k.batch : k.rows).push_back(i);
  }
  return true;
}

// Reduce iterators of one step become 0.
static void drop_single(Contraction& k, sym::Context& c) {
  sym::Map m;
  for (const Iter& i : k.reduce)
    if (i.extent.is_const(1)) m[i.var] = c.constant(0);
  k.a = loop::substitute(k.a, m), k.b = loop::substitute(k.b, m);
  std::erase_if(k.reduce, [&](const Iter& i) { return m.count(i.var) > 0; });
}

std::optional<Contraction> match_contraction(const loop::Function& f, sym::Context& c, std::string* why, Column column) {
  const std::vector<Stmt> blocks = top_blocks(f);
  Contraction k;
  const auto reduces = [](const Stmt& b) { return std::any_of(b->iters.begin(), b->iters.end(), [](const Iter& i) { return i.reduce; }); };
  if (blocks.empty() || !reduces(blocks[0])) return *why = "the first block does not reduce", std::nullopt;
  if (!match_sum(*blocks[0]->body[0], k)) return *why = "the block is not a sum of products", std::nullopt;
  if (!reads_only_params(f, k.a) || !reads_only_params(f, k.b)) return *why = "an operand is computed in the kernel", std::nullopt;
  k.name = blocks[0]->name;
  std::vector<Iter> spatial;
  for (const Iter& i : blocks[0]->iters) (i.reduce ? k.reduce : spatial).push_back(i);
  for (const Index& i : k.to)
    if (!walked(i, spatial)) return *why = "the result is not indexed by iterators", std::nullopt;
  for (size_t b = 1; b < blocks.size(); ++b) {
    Contraction::Epilogue e;
    if (reduces(blocks[b]) || !match_epilogue(blocks[b], k, spatial, e)) return *why = "block " + blocks[b]->name + " is not elementwise behind it", std::nullopt;
    for (const Contraction::Epilogue& o : k.epilogue) {
      bool reads = false;
      loop::visit(e.value, [&](const Expr& x) { reads = reads || (x->op == Op::load && x->buffer == o.target); });
      if (reads) return *why = "the epilogue has two stages", std::nullopt;
    }
    k.epilogue.push_back(std::move(e));
  }
  const bool acc_is_param = std::find(f.params.begin(), f.params.end(), k.acc) != f.params.end();
  if (acc_is_param) k.epilogue.push_back({k.acc, k.to, loop::load(k.acc, k.to)});
  if (k.epilogue.empty()) return *why = "the result is not used", std::nullopt;
  drop_single(k, c);
  if (!classify(k, spatial, column, c, why)) return std::nullopt;
  return k;
}

Expr epilogue_value(const Contraction& k, const Contraction::Epilogue& e, const sym::Map& iters, const Expr& sum) {
  return replace_loads(e.value, k.acc, sum, iters);
}

}  // namespace tripod::rules
