// Attention (opset 23 on) and RotaryEmbedding.
#include <cmath>
#include <limits>

#include "onnx/pieces.h"

namespace tripod::importer {

namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// The operands as the core op wants them: [B, H, S, D].
struct Heads {
  ValueId q, k, v;
  bool joined = false;  // they came as [B, S, H * D]
  Expr past;            // length of the cache in front of this call's keys; 0 without
};

ValueId split_heads(const NodeContext& c, ValueId x, int64_t heads) {
  if (heads < 1) c.fail("the number of heads must be positive");
  const Expr hidden = c.dim(x, 2);
  if (hidden.is_const() && hidden.value() % heads != 0) {
    c.fail(std::to_string(hidden.value()) + " cannot be split into " + std::to_string(heads) + " heads");
  }
  const ValueId split = c.reshape(x, {c.dim(x, 0), c.dim(x, 1), c.expr(heads), sym::floordiv(hidden, heads)});
  return c.transpose(split, {0, 2, 1, 3});
}

Heads read_heads(const NodeContext& c) {
  Heads h{c.input(0), c.input(1), c.input(2), c.rank(c.input(0)) == 3, c.expr(0)};
  for (int i = 0; i < 3; ++i) c.need_rank(i, h.joined ? 3 : 4);
  if (h.joined) {
    const int64_t q_heads = c.attr_int("q_num_heads"), kv_heads = c.attr_int("kv_num_heads");
    h.q = split_heads(c, h.q, q_heads);
    h.k = split_heads(c, h.k, kv_heads);
    h.v = split_heads(c, h.v, kv_heads);
  }
  if (c.has_input(4) != c.has_input(5)) c.fail("past_key and past_value must be given together");
  if (c.has_input(4)) {
    if (c.has_input(6)) c.fail("nonpad_kv_seqlen cannot be combined with past_key and past_value");
    c.need_rank(4, 4);
    c.need_rank(5, 4);
    h.past = c.dim(c.input(4), 2);
    h.k = c.concat({c.input(4), h.k}, 2);
    h.v = c.concat({c.input(5), h.v}, 2);
  }
  return h;
}

// --- masks ---------------------------------------------------------------------------------------------------------

// 0, 1, .. n-1 as [n, 1] or [1, n].
ValueId positions(const NodeContext& c, Expr n, int at) {
  const ValueId one_row = c.g.add_given(OpKind::iota, {c.int_scalar(DType::i64, 0), c.int_scalar(DType::i64, 1)},
                                        graph::NoAttr{}, Type::make(DType::i64, {n}));
  return c.unsqueeze(one_row, at);
}

ValueId both(const NodeContext& c, ValueId a, ValueId b) {
  return a == kNoValue ? b : c.add(OpKind::logical_and, {a, b});
}

struct Mask {
  ValueId allowed = kNoValue;  // b1, broadcasts to [B, H, S, T]
  ValueId bias = kNoValue;     // added to the scores
};

// Which keys a query sees by position: causal, the windows of opset 25, and what is not padding of the cache.
ValueId by_position(const NodeContext& c, const Heads& h, bool causal) {
  int64_t left = c.attr_int("left_window_size", -1), right = c.attr_int("right_window_size", -1);
  if (left < -1 || right < -1) c.fail("left_window_size and right_window_size must be -1 or more");
  constexpr int64_t kNoBound = int64_t{1} << 48;  // no sequence is that long
  if (left >= kNoBound) left = -1;
  if (right >= kNoBound) right = -1;
  const Expr s = c.dim(h.q, 2), t = c.dim(h.k, 2);
  const ValueId key = positions(c, t, 0);
  ValueId allowed = kNoValue, valid = kNoValue;
  if (c.has_input(6)) {
    c.need_rank(6, 1);
    valid = c.reshape(c.cast(c.input(6), DType::i64), {c.dim(h.q, 0), c.expr(1), c.expr(1), c.expr(1)});
    allowed = c.add(OpKind::less, {key, valid});
  }
  if (!causal && left < 0 && right < 0) return allowed;
  // The position of the query among the keys.
  const ValueId offset = valid == kNoValue ? c.reshape(c.g.add_exprs({h.past}), {})
                                           : c.add(OpKind::sub, {valid, c.reshape(c.g.add_exprs({s}), {})});
  const ValueId query = c.add(OpKind::add, {positions(c, s, 1), offset});
  if (causal) allowed = both(c, allowed, c.add(OpKind::less_equal, {key, query}));
  const auto moved = [&](ValueId x, int64_t by) { return c.add(OpKind::add, {x, c.int_scalar(DType::i64, by)}); };
  if (left >= 0) allowed = both(c, allowed, c.add(OpKind::less_equal, {query, moved(key, left)}));
  if (right >= 0) allowed = both(c, allowed, c.add(OpKind::less_equal, {key, moved(query, right)}));
  return allowed;
}

// attn_mask; a last dim shorter than the keys means that the rest of them is hidden.
ValueId stated_mask(const NodeContext& c, const Heads& h) {
  ValueId m = c.input(3);
  c.need_min_rank(3, 1);
  if (c.rank(m) > 4) c.fail("attn_mask has more than 4 dims: " + c.text(m));
  const bool flags = c.dtype(m) == DType::b1;
  if (!flags && !is_float(c.dtype(m))) c.fail("attn_mask must be bool or float: " + c.text(m));
  if (!flags) m = c.cast(m, c.dtype(h.q));
  const Expr t = c.dim(h.k, 2), have = c.dim(m, c.rank(m) - 1);
  if (have == t) return m;
  graph::PadAttr pad;
  pad.begin.assign(c.rank(m), c.expr(0));
  pad.end = pad.begin;
  pad.end.back() = t - have;
  return c.add(OpKind::pad, {m, flags ? c.int_scalar(DType::b1, 0) : c.scalar_of(m, kMinusInfinity)}, pad);
}

Mask read_mask(const NodeContext& c, const Heads& h, bool causal) {
  Mask m;
  m.allowed = by_position(c, h, causal);
  if (!c.has_input(3)) return m;
  const ValueId stated = stated_mask(c, h);
  if (c.dtype(stated) == DType::b1) {
    m.allowed = both(c, m.allowed, stated);
  } else {
    m.bias = stated;
  }
  return m;
}

// The mask as one operand: flags, or what is added to the scores.
ValueId as_operand(const NodeContext& c, const Mask& m, DType t, bool additive) {
  if (m.allowed == kNoValue) return m.bias;
  if (m.bias == kNoValue && !additive) return m.allowed;
  const ValueId base = m.bias == kNoValue ? c.scalar(t, 0) : m.bias;
  return c.add(OpKind::where, {m.allowed, base, c.scalar(t, kMinusInfinity)});
}

// --- the scores as an output ---------------------------------------------------------------------------------------

// K with one head for each head of Q.
ValueId repeated(const NodeContext& c, ValueId k, Expr q_heads) {
  const Expr heads = c.dim(k, 1);
  if (heads == q_heads) return k;
  const Expr each = sym::floordiv(q_heads, heads), b = c.dim(k, 0), t = c.dim(k, 2), d = c.dim(k, 3);
  return c.reshape(c.broadcast(c.unsqueeze(k, 2), {b, heads, each, t, d}), {b, q_heads, t, d});
}

// qk_matmul_output: 0 the products, 1 after the soft cap, 2 with the mask, 3 the probabilities.
ValueId scores(const NodeContext& c, const Heads& h, const graph::AttentionAttr& a, ValueId bias, int64_t mode) {
  const DType t = c.dtype(h.q), wide = compute_type(t);
  const ValueId q = c.cast(h.q, wide), k = c.cast(repeated(c, h.k, c.dim(h.q, 1)), wide);
  ValueId y = c.add(OpKind::matmul, {q, c.transpose(k, {0, 1, 3, 2})});
  if (a.scale != 0) {
    y = c.add(OpKind::mul, {y, c.scalar(wide, a.scale)});
  } else {
    const ValueId size = c.cast(c.reshape(c.g.add_exprs({c.dim(h.q, 3)}), {}), wide);
    y = c.add(OpKind::div, {y, c.add(OpKind::sqrt, {size})});
  }
  if (mode >= 1 && a.softcap > 0) {
    const ValueId cap = c.scalar(wide, a.softcap);
    y = c.add(OpKind::mul, {c.add(OpKind::tanh, {c.add(OpKind::div, {y, cap})}), cap});
  }
  if (bias != kNoValue) bias = c.cast(bias, wide);
  if (mode >= 2 && bias != kNoValue) y = c.add(OpKind::add, {y, bias});
  if (mode == 3) {
    graph::AxisAttr axis;
    axis.axis = 3;
    y = c.add(OpKind::softmax, {y}, axis);
    if (bias != kNoValue) {  // a query that sees nothing: zeros, not NaN
      const ValueId best = c.add(OpKind::reduce_max, {bias}, reduce_attr({c.rank(bias) - 1}, true));
      const ValueId hidden = c.add(OpKind::is_inf, {best}, graph::ScalarAttr{1, 0, 0, 0});
      y = c.add(OpKind::where, {hidden, c.scalar(wide, 0), y});
    }
  }
  return c.cast(y, t);
}

std::vector<ValueId> attention(NodeContext& c) {
  for (int i : {0, 1, 2}) c.need_float(i);
  c.need_same_dtype(0, 1);
  const Heads h = read_heads(c);
  graph::AttentionAttr a;
  if (c.has("scale")) {
    a.scale = c.attr_float("scale");
    if (a.scale == 0) c.fail("attribute scale is 0");
  }
  a.softcap = c.attr_float("softcap", 0);
  const int64_t mode = c.attr_int("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3) c.fail("attribute qk_matmul_output_mode must be 0 to 3");
  const bool shows_mask = c.wants_output(3) && mode >= 2;

  // The core op's causal mask ends at the last key. Where ONNX's does not (no cache and S != T), or where the mask has
  // to be seen, it is written out.
  const bool causal = c.attr_bool("is_causal", false);
  const Expr s = c.dim(h.q, 2), t = c.dim(h.k, 2);
  a.causal = causal && !shows_mask && !c.has_input(6) && sym::proved(sym::eq(t - s, h.past));
  const Mask m = read_mask(c, h, causal && !a.causal);

  std::vector<ValueId> operands{h.q, h.k, c.cast(h.v, c.dtype(h.q))};
  const ValueId mask = as_operand(c, m, c.dtype(h.q), shows_mask);
  if (mask != kNoValue) operands.push_back(mask);
  ValueId y = c.add(OpKind::attention, operands, a);
  if (h.joined) {
    const Expr width = c.dim(y, 1) * c.dim(y, 3);
    y = c.transpose(y, {0, 2, 1, 3});
    y = c.reshape(y, {c.dim(y, 0), c.dim(y, 1), width});
  }
  const ValueId shown = c.wants_output(3) ? scores(c, h, a, shows_mask ? mask : kNoValue, mode) : kNoValue;
  return {y, h.k, h.v, shown};
}

// --- rotary --------------------------------------------------------------------------------------------------------

std::vector<ValueId> rotary(NodeContext& c) {
  ValueId x = c.input(0), cos = c.input(1), sin = c.input(2);
  c.need_float(0);
  const Shape shape = c.shape(x);
  const bool joined = c.rank(x) == 3;
  if (!joined) c.need_rank(0, 4);
  if (joined) {  // [B, S, H, D]: heads stay behind the sequence, cos and sin are stretched over them
    const int64_t heads = c.attr_int("num_heads");
    if (heads < 1) c.fail("attribute num_heads must be positive");
    x = c.reshape(x, {shape[0], shape[1], c.expr(heads), sym::floordiv(shape[2], heads)});
  }
  const Expr batch = shape[0], steps = shape[joined ? 1 : 2], size = c.dim(x, 3);
  const int64_t part = c.attr_int("rotary_embedding_dim", 0);
  if (part < 0 || part % 2 != 0) c.fail("attribute rotary_embedding_dim must be even and not negative");
  const Expr turned = part == 0 ? size : c.expr(part), half = sym::floordiv(turned, 2);
  if (c.has_input(3)) {
    c.need_rank(3, 2);
    graph::AxisAttr rows;
    cos = c.add(OpKind::gather, {cos, c.input(3)}, rows);
    sin = c.add(OpKind::gather, {sin, c.input(3)}, rows);
  }
  for (ValueId* v : {&cos, &sin}) {
    if (c.rank(*v) != 3) c.fail("cos_cache and sin_cache must have 3 dims, or 2 with position_ids: " + c.text(*v));
    require_dim(c, *v, 0, batch, "one cache a batch item");
    require_dim(c, *v, 1, steps, "one row of the cache a position");
    require_dim(c, *v, 2, half, "half of the rotated dims");
    *v = c.unsqueeze(*v, joined ? 2 : 1);
  }
  graph::AxisAttr a;
  a.flag_a = c.attr_bool("interleaved", false);
  const ValueId in = part == 0 ? x : c.slice(x, 3, c.expr(0), turned);
  ValueId y = c.add(OpKind::rotary, {in, cos, sin}, a);
  if (part != 0 && !(turned == size)) y = c.concat({y, c.slice(x, 3, turned, size - turned)}, 3);
  return {joined ? c.reshape(y, shape) : y};
}

constexpr Row kRows[] = {
    {"Attention", 23, kMaxOpset, 3, 7, attention},
    {"RotaryEmbedding", 23, kMaxOpset, 3, 4, rotary},
};

}  // namespace

std::span<const Row> attention_rows() { return kRows; }

}  // namespace tripod::importer
