#include "backends/cpu/rules/operands.h"

#include <algorithm>

namespace tripod::cpu {

using loop::Iter;
using loop::Op;
using loop::Scope;

bool is_guarded(const Expr& load) { return load->guard && !sym::proved(load->guard); }

static bool only_conjunction_of(Index e, const std::vector<Index>& parts) {
  if (e->op == sym::Op::logical_and) return only_conjunction_of(e.arg(0), parts) && only_conjunction_of(e.arg(1), parts);
  return std::find(parts.begin(), parts.end(), e) != parts.end();
}

static std::vector<Iter> all_iters(const Contraction& k) {
  std::vector<Iter> all = {k.column};
  for (const auto* is : {&k.batch, &k.rows, &k.reduce}) all.insert(all.end(), is->begin(), is->end());
  return all;
}

bool is_padding(const Contraction& k, const Expr& load, sym::Context& c) {
  std::vector<Index> bounds;
  for (size_t d = 0; d < load->indices.size(); ++d) {
    const Index at = load->indices[d];
    for (const Iter& i : all_iters(k)) {
      const auto l = sym::linear_in(at, i.var);
      if (!l || !l->coefficient.is_const() || l->coefficient.value() < 0) return false;
    }
    bounds.push_back(sym::le(c.constant(0), at));
    bounds.push_back(sym::lt(at, load->buffer->shape[d]));
  }
  return only_conjunction_of(load->guard, bounds);
}

PaddedCopy padded_copy(const Contraction& k, const Expr& load, const std::vector<Iter>& moving, sym::Context& c) {
  const Buffer& x = load->buffer;
  PaddedCopy r;
  sym::Map low, high;
  for (const Iter& i : all_iters(k)) low[i.var] = c.constant(0), high[i.var] = i.extent - 1;
  Indices shape;
  int channel = -1;
  for (int d = 0; d < x->rank(); ++d) {
    r.low.push_back(sym::substitute(load->indices[d], low));
    shape.push_back(sym::substitute(load->indices[d], high) - r.low.back() + 1);
    const bool windowed = std::any_of(moving.begin(), moving.end(), [&](const Iter& i) { return sym::uses(load->indices[d], i.var); });
    if (!windowed) channel = d;
    if (windowed) r.order.push_back(d);
  }
  for (int d = 0; d < x->rank(); ++d)
    if (std::find(r.order.begin(), r.order.end(), d) == r.order.end() && d != channel) r.order.insert(r.order.begin(), d);
  if (channel >= 0) r.order.push_back(channel);
  r.buffer = loop::make_buffer(x->name + "_padded", x->dtype, shape, Scope::global, loop::permuted(c, shape, r.order));
  return r;
}

void order_reduce(Contraction& k, const Buffer& memory, const Indices& indices, sym::Context& c) {
  const Index at = loop::offset(c, memory, indices);
  const auto step = [&](const Iter& i) {
    const auto linear = sym::linear_in(at, i.var);
    return linear ? linear->coefficient.constant().value_or(INT64_MAX - 1) : INT64_MAX;
  };
  std::stable_sort(k.reduce.begin(), k.reduce.end(), [&](const Iter& x, const Iter& y) { return step(x) > step(y); });
}

void merge_reduce(Contraction& k, sym::Context& c) {
  for (size_t d = k.reduce.size(); d-- > 1;) {
    const Iter outer = k.reduce[d - 1], inner = k.reduce[d];
    const Index joint = loop_var(c, "k", outer.extent * inner.extent);
    const sym::Map m = {{outer.var, sym::floordiv(joint, inner.extent)}, {inner.var, sym::mod(joint, inner.extent)}};
    const auto walks = [&](const Expr& e) {
      if (e->op != Op::load || e->guard) return false;
      const Index at = loop::offset(c, e->buffer, e->indices);
      const auto joined = sym::linear_in(sym::substitute(at, m), joint), before = sym::linear_in(at, inner.var);
      return joined && before && joined->coefficient == before->coefficient;
    };
    if (!walks(k.a) || !walks(k.b)) continue;
    k.a = loop::substitute(k.a, m), k.b = loop::substitute(k.b, m);
    k.reduce.erase(k.reduce.begin() + static_cast<long>(d));
    k.reduce[d - 1] = {joint, outer.extent * inner.extent, true, {}};
  }
}

}  // namespace tripod::cpu
