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

// Sorts the spatial iterators into column, batch and rows; the column's operand becomes b.
static bool classify(Contraction& k, const std::vector<Iter>& spatial, bool both, sym::Context& c, std::string* why) {
  const Index at = loop::offset(c, k.epilogue[0].target, k.epilogue[0].at);
  const Iter* column = nullptr;
  for (const Iter& i : spatial) {
    const auto linear = sym::linear_in(at, i.var);
    if (linear && linear->coefficient.is_const(1) && !i.extent.is_const(1)) column = &i;
  }
  if (!column) return *why = "no iterator runs along the memory of the result", false;
  const bool in_a = uses(k.a, column->var), in_b = uses(k.b, column->var);
  if (both != (in_a && in_b)) return *why = both ? "one operand does not move with the channel" : "both operands move with the column", false;
  if (!both && in_a) std::swap(k.a, k.b);
  k.column = *column;
  for (const Iter& i : spatial) {
    if (i.var == column->var) continue;
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

std::optional<Contraction> match_contraction(const loop::Function& f, sym::Context& c, std::string* why, bool both) {
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
  if (!classify(k, spatial, both, c, why)) return std::nullopt;
  return k;
}

Expr epilogue_value(const Contraction& k, const Contraction::Epilogue& e, const sym::Map& iters, const Expr& sum) {
  return replace_loads(e.value, k.acc, sum, iters);
}

}  // namespace tripod::rules
