// LSTM, GRU and RNN. What does not depend on the state, the products of all inputs with W, is a contraction over all
// steps at once. The rest is one block over (direction, batch) with the steps as a serial loop inside: the state and
// the gates live in local buffers. Loops over hidden units go in vectors; for that W is transposed first, and R copied
// into the order in which a step reads it.
//
// Clipping bounds what goes into the gates' activations, not what goes into the last one of LSTM (as ONNX Runtime).
#include "graph/op_table.h"
#include "lower/ops.h"
#include "lower/parts.h"

namespace tripod::lower {

using graph::OpKind;
using graph::RnnAttr;
using graph::ValueId;
using loop::LoopKind;
using loop::Stmt;

namespace {

constexpr int64_t kLanes = 16;  // a divisor of what targets like, or a multiple of it

Expr apply_activation(const std::string& name, double alpha, double beta, const Expr& x) {
  const auto num = [&](double v) { return loop::constant(x->dtype, v); };
  if (name == "affine") return loop::fma(x, num(alpha), num(beta));
  if (name == "scaledtanh") return num(alpha) * unary(loop::Op::tanh, num(beta) * x);
  static constexpr std::pair<std::string_view, OpKind> kNames[] = {
      {"relu", OpKind::relu},           {"tanh", OpKind::tanh},
      {"sigmoid", OpKind::sigmoid},     {"leakyrelu", OpKind::leaky_relu},
      {"elu", OpKind::elu},             {"thresholdedrelu", OpKind::thresholded_relu},
      {"softsign", OpKind::softsign},   {"hardsigmoid", OpKind::hard_sigmoid},
      {"softplus", OpKind::softplus},
  };
  for (const auto& [text, op] : kNames) {
    if (text != name) continue;
    graph::Node n{op, {}, {}, graph::ScalarAttr{alpha, beta, 0, 0}, {}, false};
    return formula(n, {x}, x->dtype);
  }
  internal_error(__FILE__, __LINE__, "no activation " + name);
}

// What the three ops share: the iterators, the state h, the buffer `pre` of what goes into the gates, and the loop.
class Recurrent {
 public:
  Recurrent(Lowering& lowering, const graph::Node& node, int64_t num_gates, int num_activations)
      : l(lowering), n(node), a(std::get<RnnAttr>(node.attr)), t(compute_type(l.type(n.operands[0]).dtype)),
        hidden(a.hidden), gates(num_gates), activations_(num_activations) {
    const graph::Shape& x = l.type(n.operands[0]).shape;
    const size_t ways = a.direction == RnnAttr::bidirectional ? 2 : 1;
    TRIPOD_CHECK(a.activations.size() == ways * static_cast<size_t>(num_activations), "one activation a gate function");
    steps_ = x[0];
    ways_ = l.type(n.operands[1]).shape[0];
    arrange_weights();
    input_products(x);
    is_ = {l.iters({ways_}, "d")[0], l.iters({x[1]}, "b")[0]};
    d = is_[0].var;
    b = is_[1].var;
    h = local("h", hidden);
    pre = local("gates", gates * hidden);
  }

  Index index(int64_t v) const { return l.sym().constant(v); }

  // A buffer that exists inside the block.
  Buffer local(const char* name, int64_t size) {
    locals_.push_back(loop::make_buffer(l.block_name() + "_" + name, t, {index(size)}, loop::Scope::local));
    return locals_.back();
  }

  // f(j) for every hidden unit, whole vectors first; f may also ask which of how many lanes it is in.
  Stmt each(const std::function<Stmt(Index)>& f) {
    return each_lane([&](Index j, Index, int64_t) { return f(j); });
  }
  Stmt each_lane(const std::function<Stmt(Index j, Index lane, int64_t lanes)>& f) {
    const int64_t whole = hidden / kLanes, rest = hidden % kLanes;
    const auto loop_over = [&](const char* name, int64_t extent, LoopKind kind, const std::function<Stmt(Index)>& body) {
      const Index v = l.iters({index(extent)}, name)[0].var;
      return loop::loop(v, index(extent), kind, body(v));
    };
    std::vector<Stmt> parts;
    if (whole > 0)
      parts.push_back(loop_over("v", whole, LoopKind::serial, [&](Index v) {
        return loop_over("lane", kLanes, LoopKind::vector, [&](Index lane) { return f(v * kLanes + lane, lane, kLanes); });
      }));
    if (rest > 0)
      parts.push_back(loop_over("j", rest, LoopKind::serial,
                                [&](Index j) { return f(j + whole * kLanes, index(0), 1); }));
    return loop::seq(parts);
  }

  // Element j of gate g: of the products with the inputs, and of ONNX's biases (first those of W, then those of R).
  Expr input(Index time, int64_t g, Index j) { return loop::load(products_, {d, time, b, j + g * hidden}); }
  Expr bias(int64_t g, Index j, bool recurrent) {
    if (!given(n, 3)) return loop::constant(t, 0);
    return loop::cast(l.load(n.operands[3], {d, j + (g + (recurrent ? gates : 0)) * hidden}), t);
  }
  Expr all_biases(int64_t g, Index j) {
    return given(n, 3) ? bias(g, j, false) + bias(g, j, true) : loop::constant(t, 0);
  }

  // pre[g, j] = start(g, j) + sum over k of state[k] * R[g, j, k] for gates [first, end), which share the loop over k:
  // several sums at a time hide the latency of each.
  Stmt project(int64_t first, int64_t end, const Buffer& state, const std::function<Expr(int64_t, Index)>& start) {
    return each_lane([&](Index j, Index lane, int64_t lanes) {
      const Index k = l.iters({index(hidden)}, "k")[0].var;
      std::vector<Buffer> sums;
      std::vector<Stmt> before, during, after;
      for (int64_t g = first; g < end; ++g) {
        const Buffer sum = loop::make_buffer(l.block_name() + "_sum" + std::to_string(g), t, {index(lanes)}, loop::Scope::reg);
        const Expr weight = loop::load(weights_, {d, sym::floordiv(j, kLanes), k, index(g), sym::mod(j, kLanes)});
        before.push_back(loop::store(sum, {lane}, start(g, j)));
        during.push_back(loop::store(sum, {lane}, loop::fma(loop::load(state, {k}), weight, loop::load(sum, {lane}))));
        after.push_back(loop::store(pre, {j + g * hidden}, loop::load(sum, {lane})));
        sums.push_back(sum);
      }
      before.push_back(loop::loop(k, index(hidden), LoopKind::serial, loop::seq(during)));
      before.insert(before.end(), after.begin(), after.end());
      Stmt s = loop::seq(before);
      for (const Buffer& sum : sums) s = loop::alloc(sum, s);
      return s;
    });
  }
  // The common case: inputs and biases included.
  Stmt project(int64_t first, int64_t end, const Buffer& state, Index time) {
    return project(first, end, state, [&](int64_t g, Index j) { return input(time, g, j) + all_biases(g, j); });
  }

  // Activation i of this direction.
  Expr activate(int i, Expr x) {
    const auto of = [&](int way) {
      const size_t at = static_cast<size_t>(way * activations_ + i);
      const auto number = [&](const std::vector<double>& v) { return at < v.size() ? v[at] : 0; };
      return std::tuple(a.activations[at], number(a.alpha), number(a.beta));
    };
    const auto apply = [&](const auto& f) { return apply_activation(std::get<0>(f), std::get<1>(f), std::get<2>(f), x); };
    if (a.direction != RnnAttr::bidirectional || of(0) == of(1)) return apply(of(0));
    return loop::select(holds(sym::eq(d, 0)), apply(of(0)), apply(of(1)));
  }
  Expr gate(int i, Expr x) {
    if (a.clip > 0) x = loop::max(loop::constant(t, -a.clip), loop::min(loop::constant(t, a.clip), x));
    return activate(i, x);
  }

  // h[j] = v, and the result at this step.
  Stmt set_h(Index time, Index j, Expr v) {
    Stmt s = loop::store(h, {j}, std::move(v));
    if (!wanted(l, n.results[0])) return s;
    return loop::seq({s, l.store(n.results[0], {time, d, b, j}, loop::load(h, {j}))});
  }

  // A state that starts as an operand (zeros when it is missing) and ends as a result.
  void state(const Buffer& s, size_t operand, size_t result) { states_.push_back({s, operand, result}); }

  // Appends the block; step(time) is the statement of one step.
  void finish(const std::function<Stmt(Index)>& step) {
    Stmt body = given(n, 4) ? steps_by_length(step) : all_steps(step);
    std::vector<Stmt> parts;
    for (const State& s : states_)
      parts.push_back(each([&](Index j) {
        return loop::store(s.buffer, {j}, given(n, s.operand) ? loop::cast(l.load(n.operands[s.operand], {d, b, j}), t)
                                                              : loop::constant(t, 0));
      }));
    parts.push_back(body);
    for (const State& s : states_)
      if (wanted(l, n.results[s.result]))
        parts.push_back(each([&](Index j) {
          return l.store(n.results[s.result], {d, b, j}, loop::load(s.buffer, {j}));
        }));
    body = loop::seq(parts);
    for (const Buffer& buffer : locals_) body = loop::alloc(buffer, body);
    l.block(l.block_name(), is_, body);
  }

  Lowering& l;
  const graph::Node& n;
  const RnnAttr& a;
  const DType t;
  const int64_t hidden, gates;
  Index d, b;
  Buffer h, pre;

 private:
  struct State {
    Buffer buffer;
    size_t operand, result;
  };

  // products[d, t, b, g] = sum over i of X[t, b, i] * W[d, g, i]
  void input_products(const graph::Shape& x) {
    const Index g = index(gates * hidden);
    const Buffer w = l.temporary("input_weights", t, {ways_, x[2], g});
    copy_weights(n.operands[1], w, [](const Indices& at) { return Indices{at[0], at[2], at[1]}; });
    products_ = l.temporary("inputs", t, {ways_, steps_, x[1], g});
    std::vector<Iter> is = l.iters(products_->shape);
    const Indices at = Lowering::vars(is);
    is.push_back(l.reduce(x[2]));
    const Index i = is.back().var;
    sum_of_products_block(l, l.block_name() + "_inputs", is, products_, at, l.load(n.operands[0], {at[1], at[2], i}),
                          loop::load(w, {at[0], i, at[3]}));
  }

  // weights[d, v, k, g, lane] = R[d, (g, v * kLanes + lane), k]: what a vector of units reads lies together.
  void arrange_weights() {
    const Index vectors = index((hidden + kLanes - 1) / kLanes);
    weights_ = l.temporary("recurrent_weights", t, {ways_, vectors, index(hidden), index(gates), index(kLanes)});
    copy_weights(n.operands[2], weights_, [this](const Indices& at) {
      const Index unit = sym::mod(at[1], hidden);
      return Indices{at[0], sym::floordiv(unit, kLanes), at[2], sym::floordiv(at[1], hidden), sym::mod(unit, kLanes)};
    });
  }

  // The block's iterators are in the order of what it reads, so that it is no definition that could take the place of
  // its loads: those are in loops that read all of it again and again.
  void copy_weights(ValueId from, const Buffer& to, const std::function<Indices(const Indices&)>& place) {
    const std::vector<Iter> is = l.iters(l.type(from).shape);
    const Indices at = Lowering::vars(is);
    l.block(to->name, is, l.store(to, place(at), l.load(from, at)));
  }

  // Which step of the sequence is done as number `i` of `length`.
  Index time(Index i, Index length) const {
    if (a.direction == RnnAttr::forward) return i;
    if (a.direction == RnnAttr::reverse) return length - 1 - i;
    return sym::select(sym::eq(d, 0), i, length - 1 - i);
  }

  Stmt all_steps(const std::function<Stmt(Index)>& step) {
    const Index i = l.iters({steps_}, "step")[0].var;
    return loop::loop(i, steps_, LoopKind::serial, step(time(i, steps_)));
  }

  // A sequence shorter than the batch's: the results of the steps behind its end are zeros.
  Stmt steps_by_length(const std::function<Stmt(Index)>& step) {
    const Expr raw = loop::cast(l.load(n.operands[4], {b}), DType::i64);
    return l.with_index(raw, steps_ + 1, false, [&](Index length) {
      const Index i = l.iters({steps_}, "step")[0].var;
      Stmt zeros;
      if (wanted(l, n.results[0]))
        zeros = each([&](Index j) { return l.store(n.results[0], {i, d, b, j}, loop::constant(t, 0)); });
      return loop::loop(i, steps_, LoopKind::serial,
                        loop::branch(holds(sym::lt(i, length)), step(time(i, length)), zeros));
    });
  }

  const int activations_;
  Index steps_, ways_;
  Buffer products_, weights_;
  std::vector<Iter> is_;
  std::vector<Buffer> locals_;
  std::vector<State> states_;
};

}  // namespace

// Gates in the order i, o, f, c. Peepholes let i and f see the old cell and o the new one.
void lower_lstm(Lowering& l, const graph::Node& n) {
  Recurrent r(l, n, 4, 3);
  const Buffer c = r.local("c", r.hidden);
  r.state(r.h, 5, 1);
  r.state(c, 6, 2);
  const auto peep = [&](int64_t which, Index j) {  // P is in the order i, o, f
    if (!given(n, 7)) return loop::constant(r.t, 0);
    return loop::cast(l.load(n.operands[7], {r.d, j + which * r.hidden}), r.t) * loop::load(c, {j});
  };
  r.finish([&](Index time) {
    std::vector<Stmt> s = {r.project(0, 4, r.h, time)};
    s.push_back(r.each([&](Index j) {
      const auto pre = [&](int64_t g) { return loop::load(r.pre, {j + g * r.hidden}); };
      const auto seen = [&](int64_t g, int64_t which) { return given(n, 7) ? pre(g) + peep(which, j) : pre(g); };
      const Expr i = r.gate(0, seen(0, 0));
      const Expr f = r.a.input_forget ? loop::constant(r.t, 1) - i : r.gate(0, seen(2, 2));
      const Stmt cell = loop::store(c, {j}, loop::fma(f, loop::load(c, {j}), i * r.gate(1, pre(3))));
      const Expr o = r.gate(0, seen(1, 1));  // evaluated behind the store: sees the new cell
      return loop::seq({cell, r.set_h(time, j, o * r.activate(2, loop::load(c, {j})))});
    }));
    return loop::seq(s);
  });
}

// Gates in the order z, r, h.
void lower_gru(Lowering& l, const graph::Node& n) {
  Recurrent r(l, n, 3, 2);
  r.state(r.h, 5, 1);
  const bool before = r.a.linear_before_reset;
  const Buffer reset = before ? Buffer() : r.local("reset", r.hidden);
  r.finish([&](Index time) {
    const auto pre = [&](int64_t g, Index j) { return loop::load(r.pre, {j + g * r.hidden}); };
    std::vector<Stmt> s = {r.project(0, 2, r.h, time)};
    if (before) {
      s.push_back(r.project(2, 3, r.h, [&](int64_t, Index j) { return r.bias(2, j, true); }));
    } else {
      s.push_back(r.each([&](Index j) {
        return loop::store(reset, {j}, r.gate(0, pre(1, j)) * loop::load(r.h, {j}));
      }));
      s.push_back(r.project(2, 3, reset, time));
    }
    s.push_back(r.each([&](Index j) {
      const Expr z = r.gate(0, pre(0, j));
      Expr in = pre(2, j);
      if (before) in = loop::fma(r.gate(0, pre(1, j)), in, r.input(time, 2, j) + r.bias(2, j, false));
      return r.set_h(time, j, loop::fma(z, loop::load(r.h, {j}), (loop::constant(r.t, 1) - z) * r.gate(1, in)));
    }));
    return loop::seq(s);
  });
}

void lower_rnn(Lowering& l, const graph::Node& n) {
  Recurrent r(l, n, 1, 1);
  r.state(r.h, 5, 1);
  r.finish([&](Index time) {
    return loop::seq({r.project(0, 1, r.h, time), r.each([&](Index j) {
                        return r.set_h(time, j, r.gate(0, loop::load(r.pre, {j})));
                      })});
  });
}

}  // namespace tripod::lower
