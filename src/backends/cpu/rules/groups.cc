#include "backends/cpu/rules/groups.h"

#include <algorithm>

namespace tripod::cpu {

using loop::Iter;
using loop::Op;
using loop::Scope;
using loop::StmtKind;

namespace {

constexpr int64_t kColumns = 8;  // of the least panel

class Joiner {
 public:
  Joiner(const Stmt& block, sym::Context& c) : c_(c), block_(block) {}

  // Finds the weights, the channel iterator and the groups.
  bool match() {
    if (block_->init == nullptr || block_->body.empty() || block_->body[0]->kind != StmtKind::store) return false;
    loop::visit(block_->body[0]->value, [&](const Expr& x) {
      if (x->op != Op::load) return;
      if (x->buffer->scope == Scope::constant && !x->guard && x->buffer->layout.is_row_major() && find_weights(x)) w_ = x;
    });
    if (!w_) return false;
    int images = 0;
    loop::visit(block_->body[0]->value, [&](const Expr& x) {
      if (x->op != Op::load || x == w_ || x->buffer == block_->body[0]->buffer) return;
      ++images, x_ = x;
    });
    return images == 1 && find_groups();
  }

  Stmt joined() const {
    const Index k = loop_var(c_, "c", c_.constant(joint_ * depth_));
    std::vector<Iter> iters = block_->iters;
    for (Iter& i : iters)
      if (i.var == channel_.var) i = {k, c_.constant(joint_ * depth_), true, {}};
    Indices at_x = x_->indices, at_w = w_->indices;
    at_x[x_channel_] = sym::floordiv(column_.var, size_ * joint_) * (joint_ * depth_) + k;
    at_w[w_channel_] = sym::mod(k - first_channel(column_.var), joint_ * depth_);
    const Expr image = x_->guard ? loop::load_guarded(x_->buffer, at_x, x_->guard, x_->other) : loop::load(x_->buffer, at_x);
    const auto replaced = [&](const Expr& e) { return replace_load(replace_load(e, x_, image), w_, loop::load(weights_, at_w)); };
    const Stmt& s = block_->body[0];
    return loop::block(block_->name, iters, loop::store(s->buffer, s->indices, replaced(s->value)), block_->init);
  }

  const Buffer& before() const { return w_->buffer; }
  const Buffer& after() const { return weights_; }

 private:
  bool find_weights(const Expr& load) {
    int column = -1, channel = -1;
    for (int d = 0; d < load->buffer->rank(); ++d)
      for (const Iter& i : block_->iters) {
        if (!(load->indices[d] == i.var) || !i.extent.is_const()) continue;
        if (!i.reduce) column = d, column_ = i;
        if (i.reduce && channel < 0) channel = d, channel_ = i;
      }
    w_column_ = column, w_channel_ = channel;
    return column >= 0 && channel >= 0;
  }

  // Is X's channel floordiv(column, size) * depth + channel, for groups of fewer than kColumns columns?
  bool find_groups() {
    depth_ = channel_.extent.value();
    if (x_->guard && (sym::uses(x_->guard, column_.var) || sym::uses(x_->guard, channel_.var))) return false;
    for (size_ = 2; size_ < kColumns; ++size_)
      for (size_t d = 0; d < x_->indices.size(); ++d)
        if (x_->indices[d] == sym::floordiv(column_.var, size_) * depth_ + channel_.var) return x_channel_ = d, choose_joint();
    return false;
  }

  bool choose_joint() {
    const int64_t columns = column_.extent.value();
    if (columns % size_ != 0) return false;
    for (joint_ = kColumns / size_; joint_ > 1 && columns / size_ % joint_ != 0;) --joint_;
    if (joint_ < 2) return false;
    const Buffer& w = w_->buffer;
    Indices shape = w->shape;
    shape[w_channel_] = c_.constant(joint_ * depth_);
    loop::Layout layout;
    for (const Index& n : shape) layout.args.push_back(loop_var(c_, "p", n));
    layout.map = layout.args, layout.extents = shape;
    layout.map[w_channel_] = sym::mod(layout.args[w_channel_] + first_channel(layout.args[w_column_]), joint_ * depth_);
    weights_ = loop::make_buffer(w->name, w->dtype, shape, Scope::constant, layout);
    return true;
  }

  // Of the group of a column, among the joint ones.
  Index first_channel(Index column) const { return sym::floordiv(sym::mod(column, size_ * joint_), size_) * depth_; }

  sym::Context& c_;
  Stmt block_;
  Expr w_, x_;
  Iter column_, channel_;
  int64_t size_ = 0, depth_ = 0, joint_ = 1;
  size_t w_column_ = 0, w_channel_ = 0, x_channel_ = 0;
  Buffer weights_;
};

struct FirstBlock : loop::Rewriter {
  explicit FirstBlock(sym::Context& context) : c(context) {}

  Stmt rewrite(const Stmt& s) override {
    if (s->kind != StmtKind::block || done) return Rewriter::rewrite(s);
    done = true;
    Joiner j(s, c);
    if (!j.match()) return s;
    before = j.before(), after = j.after();
    return j.joined();
  }

  sym::Context& c;
  bool done = false;
  Buffer before, after;
};

bool reads_twice(const loop::Function& f, const Buffer& b) {
  int loads = 0;
  loop::visit(f.body, [](const Stmt&) {}, [&](const Expr& x) { loads += x->op == Op::load && x->buffer == b; });
  return loads > 1;
}

}  // namespace

loop::Function join_groups(const loop::Function& f, sym::Context& c) {
  FirstBlock first(c);
  loop::Function r = f;
  r.body = first.apply(f.body);
  if (!first.after || reads_twice(f, first.before)) return f;
  std::replace(r.params.begin(), r.params.end(), first.before, first.after);
  return r;
}

}  // namespace tripod::cpu
