#include "rules/rows.h"

#include <algorithm>

#include "rules/inline.h"

namespace tripod::rules {

using loop::Iter;
using loop::Op;
using loop::StmtKind;
using loop::StmtNode;

std::string RowBlocks::match(const std::function<std::string(std::optional<Op>)>& refuse) {
  Stmt s = f_.body;
  while (s->kind == StmtKind::alloc) internal_.push_back(s->buffer), s = s->body[0];
  blocks_ = s->kind == StmtKind::seq ? s->body : std::vector<Stmt>{s};
  const auto first = std::find_if(blocks_.begin(), blocks_.end(), [](const Stmt& b) { return reduces(*b); });
  if (first == blocks_.end()) return "no block reduces";
  for (const Iter& i : (*first)->iters)
    if (!i.reduce) rows_.push_back(i.extent);
  for (const Stmt& b : blocks_)
    if (std::string why = match_block(*b, refuse); !why.empty()) return "block " + b->name + ": " + why;
  return "";
}

std::string RowBlocks::match_block(const StmtNode& b, const std::function<std::string(std::optional<Op>)>& refuse) const {
  if (b.body[0]->kind != StmtKind::store || b.body[0]->guard) return "not a plain store";
  size_t spatial = 0;
  for (const Iter& i : b.iters) spatial += !i.reduce;
  if (spatial < rows_.size()) return "fewer dims than rows";
  for (size_t d = 0; d < rows_.size(); ++d)
    if (b.iters[d].reduce || !(b.iters[d].extent == rows_[d])) return "its rows differ";
  if (reduces(b)) {
    if (spatial != rows_.size()) return "reduces a part of what is behind the rows";
    if (std::string why = refuse(combiner(b)); !why.empty()) return why;
    // Strided reductions are better with lanes or threads over the rows.
    if (!contiguous(b)) return "its innermost reduce iterator is not contiguous";
  }
  bool same_row = true;
  loop::visit(b.body[0]->value, [&](const Expr& e) {
    if (e->op == Op::load && is_internal(e->buffer)) same_row = same_row && in_row(b, e->buffer, e->indices);
  });
  if (is_internal(b.body[0]->buffer)) same_row = same_row && in_row(b, b.body[0]->buffer, b.body[0]->indices);
  return same_row ? "" : "reads another row";
}

bool RowBlocks::reduces(const StmtNode& b) {
  return std::any_of(b.iters.begin(), b.iters.end(), [](const Iter& i) { return i.reduce; });
}

bool RowBlocks::is_internal(const Buffer& b) const {
  return std::find(internal_.begin(), internal_.end(), b) != internal_.end();
}

// The leading dims of an internal buffer are the rows (or 1 where kept dims follow); its index there is the row.
bool RowBlocks::in_row(const StmtNode& b, const Buffer& buffer, const Indices& at) const {
  if (at.size() < rows_.size()) return false;
  for (size_t d = 0; d < rows_.size(); ++d)
    if (!(at[d] == b.iters[d].var || (rows_[d].is_const(1) && at[d].is_const(0))) || !(buffer->shape[d] == rows_[d])) return false;
  return true;
}

bool RowBlocks::contiguous(const StmtNode& b) const {
  bool good = true;
  const Index k = b.iters.back().var;
  loop::visit(b.body[0]->value, [&](const Expr& e) {
    if (e->op != Op::load || is_internal(e->buffer)) return;
    const auto l = sym::linear_in(loop::offset(c_, e->buffer, e->indices), k);
    good = good && l && (l->coefficient.is_const(0) || l->coefficient.is_const(1));
  });
  return good;
}

std::optional<Op> combiner(const StmtNode& b) {
  const StmtNode& s = *b.body[0];
  const auto is_acc = [&](const Expr& e) { return e->op == Op::load && e->buffer == s.buffer && e->indices == s.indices; };
  const Expr& v = s.value;
  if (v->op == Op::fma && is_acc(v->args[2])) return Op::add;
  const bool associative = v->op == Op::add || v->op == Op::mul || v->op == Op::min || v->op == Op::max || v->op == Op::bit_and || v->op == Op::bit_or;
  if (associative && is_acc(v->args[0])) return v->op;
  return std::nullopt;
}

Expr RowBlocks::with_accumulator(const StmtNode& b, const Expr& old) {
  const Expr& v = b.body[0]->value;
  return replace_load(v, v->op == Op::fma ? v->args[2] : v->args[0], old);
}

int64_t RowBlocks::inner_count(const StmtNode& b, int64_t open) const {
  int64_t n = 1;
  for (size_t d = rows_.size(); d < b.iters.size(); ++d) n *= b.iters[d].extent.constant().value_or(open);
  return n;
}

Indices RowBlocks::row_shape(const Buffer& b) const {
  Indices shape(b->shape.begin() + static_cast<long>(rows_.size()), b->shape.end());
  if (shape.empty()) shape = {c_.constant(1)};
  return shape;
}

sym::Map RowBlocks::row_map(const StmtNode& b) const {
  sym::Map m;
  for (size_t d = 0; d < rows_.size(); ++d) m[b.iters[d].var] = at_[d];
  return m;
}

Indices RowBlocks::tail(const Indices& at, const sym::Map& m) const {
  Indices r;
  for (size_t d = rows_.size(); d < at.size(); ++d) r.push_back(sym::substitute(at[d], m));
  if (r.empty()) r.push_back(c_.constant(0));
  return r;
}

struct RowBlocks::Binder : loop::Rewriter {
  Binder(const RowBlocks& r, const sym::Map& m) : rows(r), map(m) {}
  using loop::Rewriter::rewrite;
  Expr rewrite(const Expr& e) override {
    if (e->op == Op::load)
      for (auto& [from, to] : rows.local_)
        if (e->buffer == from) return loop::load(to, rows.tail(e->indices, map));
    return nullptr;
  }
  Stmt rewrite(const Stmt& s) override {
    if (s->kind == StmtKind::store)
      for (auto& [from, to] : rows.local_)
        if (s->buffer == from) return loop::store(to, rows.tail(s->indices, map), apply(s->value));
    return nullptr;
  }
  Index rewrite_index(Index i) override { return sym::substitute(i, map); }
  const RowBlocks& rows;
  const sym::Map& map;
};

Stmt RowBlocks::bind(const Stmt& s, const sym::Map& m) const { return Binder(*this, m).apply(s); }
Expr RowBlocks::bind(const Expr& e, const sym::Map& m) const { return Binder(*this, m).apply(e); }

}  // namespace tripod::rules
