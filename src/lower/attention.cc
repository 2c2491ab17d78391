// Attention as the blocks it is made of (scores, mask, softmax, weighted sum), all over the rows (batch, head, query)
// in this order, and rotary position embedding.
#include <cmath>

#include "lower/ops.h"
#include "lower/parts.h"

namespace tripod::lower {

using graph::AttentionAttr;
using graph::ValueId;

namespace {

// scores -> what softmax sees: scaled, capped, masked.
Expr logit(Lowering& l, const graph::Node& n, Expr v, const Indices& at) {
  const AttentionAttr& a = std::get<AttentionAttr>(n.attr);
  const graph::Shape &q = l.type(n.operands[0]).shape, &k = l.type(n.operands[1]).shape;
  const DType t = v->dtype;
  if (a.scale != 0)
    v = v * loop::constant(t, a.scale);
  else if (q[3].is_const())
    v = v * loop::constant(t, 1 / std::sqrt(static_cast<double>(q[3].value())));
  else
    v = v / unary(loop::Op::sqrt, loop::from_index(t, q[3]));
  if (a.softcap > 0) {
    const Expr cap = loop::constant(t, a.softcap);
    v = unary(loop::Op::tanh, v / cap) * cap;
  }
  const Expr hidden = loop::constant(t, -kInfinity);
  if (given(n, 3)) {
    const Expr mask = l.load_broadcast(n.operands[3], at);
    v = mask->dtype == DType::b1 ? loop::select(mask, v, hidden) : v + loop::cast(mask, t);
  }
  // The last query is that of the last key.
  if (a.causal) v = loop::select(holds(sym::le(at[3], at[2] + k[2] - q[2])), v, hidden);
  return v;
}

}  // namespace

// A query that sees no key at all gives zeros, not NaN: its maximum counts as 0, and so does the division by its sum.
void lower_attention(Lowering& l, const graph::Node& n) {
  const ValueId q = n.operands[0], k = n.operands[1], v = n.operands[2], y = n.results[0];
  const graph::Shape &sq = l.type(q).shape, &sk = l.type(k).shape;
  const DType t = compute_type(l.type(y).dtype);
  const std::string name = l.block_name();
  const Index heads_each = sq[1] == sk[1] ? l.sym().constant(1) : sym::floordiv(sq[1], sk[1]);
  const auto kv_head = [&](Index h) { return sym::floordiv(h, heads_each); };
  const Indices row_shape = {sq[0], sq[1], sq[2]}, score_shape = {sq[0], sq[1], sq[2], sk[2]};
  const auto row_of = [](const Indices& at) { return Indices(at.begin(), at.begin() + 3); };

  const Buffer score = l.temporary("score", t, score_shape), logits = l.temporary("logit", t, score_shape);
  std::vector<Iter> is = l.iters(score_shape);
  Indices at = Lowering::vars(is);
  is.push_back(l.reduce(sq[3], "d"));
  const Index d = is.back().var;
  sum_of_products_block(l, name + "_score", is, score, at, l.load(q, {at[0], at[1], at[2], d}),
                        l.load(k, {at[0], kv_head(at[1]), at[3], d}));
  l.map(logits, name + "_logit", [&](const Indices& i) { return logit(l, n, loop::load(score, i), i); });

  const Buffer max = l.temporary("max", t, row_shape), e = l.temporary("exp", t, score_shape),
               sum = l.temporary("sum", t, row_shape);
  is = l.iters(row_shape);
  is.push_back(l.reduce(sk[2], "t"));
  at = Lowering::vars(is);
  max_block(l, name + "_max", is, max, row_of(at), loop::load(logits, at));
  l.map(e, name + "_exp", [&](const Indices& i) {
    const Expr m = loop::load(max, row_of(i));
    const Expr shift = loop::select(loop::eq(m, loop::constant(t, -kInfinity)), loop::constant(t, 0), m);
    return unary(loop::Op::exp, loop::load(logits, i) - shift);
  });
  is = l.iters(row_shape);
  is.push_back(l.reduce(sk[2], "t"));
  at = Lowering::vars(is);
  sum_block(l, name + "_sum", is, sum, row_of(at), loop::load(e, at));

  const Buffer weighted = l.temporary("weighted", t, l.type(y).shape);
  is = l.iters(l.type(y).shape);
  at = Lowering::vars(is);
  is.push_back(l.reduce(sk[2], "t"));
  const Index key = is.back().var;
  sum_of_products_block(l, name + "_weighted", is, weighted, at, loop::load(e, {at[0], at[1], at[2], key}),
                        l.load(v, {at[0], kv_head(at[1]), key, at[3]}));
  l.map(y, name, [&](const Indices& i) {
    const Expr s = loop::load(sum, row_of(i));
    const Expr nothing = loop::eq(s, loop::constant(t, 0));
    return loop::load(weighted, i) / loop::select(nothing, loop::constant(t, 1), s);
  });
}

// Pairs (x0, x1) become (x0 cos - x1 sin, x0 sin + x1 cos): neighbours when interleaved, else the two halves of a row.
// One block for each half of the result, so that no element asks which one it is.
void lower_rotary(Lowering& l, const graph::Node& n) {
  const bool interleaved = std::get<graph::AxisAttr>(n.attr).flag_a;
  const ValueId x = n.operands[0], y = n.results[0];
  const DType t = compute_type(l.type(x).dtype);
  graph::Shape half = l.type(x).shape;
  half.back() = sym::floordiv(half.back(), 2);
  for (int second = 0; second < 2; ++second) {
    const std::vector<Iter> is = l.iters(half);
    const Indices at = Lowering::vars(is);
    const auto member = [&](int which) {
      Indices i = at;
      i.back() = interleaved ? at.back() * 2 + which : at.back() + half.back() * which;
      return i;
    };
    const Expr cos = loop::cast(l.load_broadcast(n.operands[1], at), t);
    const Expr sin = loop::cast(l.load_broadcast(n.operands[2], at), t);
    const Expr x0 = l.load(x, member(0)), x1 = l.load(x, member(1));
    const Expr turned = second ? loop::fma(x0, sin, x1 * cos) : loop::fma(x0, cos, -(x1 * sin));
    l.block(l.block_name(), is, l.store(y, member(second), turned));
  }
}

}  // namespace tripod::lower
