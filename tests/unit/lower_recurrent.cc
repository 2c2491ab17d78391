// lstm, gru, rnn against the formulas of the ONNX specification in f64.
#include <algorithm>

#include "lower_testing.h"

namespace tripod::lower {
namespace {

constexpr int64_t kSteps = 4, kBatch = 3, kInput = 2;

double activate(const std::string& f, double a, double b, double x) {
  if (f == "tanh") return std::tanh(x);
  if (f == "sigmoid") return 1 / (1 + std::exp(-x));
  if (f == "relu") return std::max(0.0, x);
  if (f == "affine") return a * x + b;
  if (f == "leakyrelu") return x < 0 ? a * x : x;
  if (f == "thresholdedrelu") return x > a ? x : 0;
  if (f == "scaledtanh") return a * std::tanh(b * x);
  if (f == "hardsigmoid") return std::min(1.0, std::max(0.0, a * x + b));
  if (f == "elu") return x < 0 ? a * (std::exp(x) - 1) : x;
  if (f == "softsign") return x / (1 + std::abs(x));
  return std::log1p(std::exp(x));  // softplus
}

struct Net {
  std::string op = "lstm", direction = "forward";
  std::vector<std::string> activations;
  std::vector<double> alpha = {}, beta = {};
  double clip = 0;
  bool input_forget = false, linear_before_reset = false;
  bool bias = false, lens = false, state = false, peephole = false;
  bool only_last = false;  // nobody looks at Y
  int64_t hidden = 3;

  int64_t gates() const { return op == "lstm" ? 4 : op == "gru" ? 3 : 1; }
  int64_t ways() const { return direction == "bidirectional" ? 2 : 1; }
};

struct Operands {
  Tensor x, w, r, b, lens, h, c, p;
};

Operands operands(const Net& n) {
  const int64_t d = n.ways(), g = n.gates();
  return {made_up({kSteps, kBatch, kInput}, 1),     made_up({d, g * n.hidden, kInput}, 2, -1, 1),
          made_up({d, g * n.hidden, n.hidden}, 3, -1, 1), made_up({d, 2 * g * n.hidden}, 4, -0.5, 0.5),
          Tensor({kBatch}, {2, 4, 1}),                made_up({d, kBatch, n.hidden}, 5),
          made_up({d, kBatch, n.hidden}, 6),           made_up({d, 3 * n.hidden}, 7, -0.5, 0.5)};
}

std::vector<Tensor> reference(const Net& n, const Operands& o) {
  const int64_t functions = n.op == "lstm" ? 3 : n.op == "gru" ? 2 : 1;
  Tensor y({kSteps, n.ways(), kBatch, n.hidden}), last({n.ways(), kBatch, n.hidden}), cells = last;
  each({n.ways(), kBatch}, [&](const auto& at) {
    const int64_t d = at[0], b = at[1], length = n.lens ? static_cast<int64_t>(o.lens[{b}]) : kSteps;
    const auto act = [&](int64_t i, double x) {
      const size_t k = static_cast<size_t>(d * functions + i);
      return activate(n.activations[k], k < n.alpha.size() ? n.alpha[k] : 0, k < n.beta.size() ? n.beta[k] : 0, x);
    };
    const auto clip = [&](double x) { return n.clip > 0 ? std::clamp(x, -n.clip, n.clip) : x; };
    std::vector<double> h(n.hidden), c(n.hidden);
    for (int64_t j = 0; n.state && j < n.hidden; ++j) {
      h[static_cast<size_t>(j)] = o.h[{d, b, j}];
      c[static_cast<size_t>(j)] = o.c[{d, b, j}];
    }
    for (int64_t i = 0; i < length; ++i) {
      const bool backward = n.direction == "reverse" || d == 1;
      const int64_t t = backward ? length - 1 - i : i;
      const auto wx = [&](int64_t g, int64_t j) {
        double s = n.bias ? o.b[{d, g * n.hidden + j}] : 0;
        for (int64_t k = 0; k < kInput; ++k) s += o.x[{t, b, k}] * o.w[{d, g * n.hidden + j, k}];
        return s;
      };
      const auto rh = [&](int64_t g, int64_t j, const std::vector<double>& state) {
        double s = n.bias ? o.b[{d, (n.gates() + g) * n.hidden + j}] : 0;
        for (int64_t k = 0; k < n.hidden; ++k) s += state[static_cast<size_t>(k)] * o.r[{d, g * n.hidden + j, k}];
        return s;
      };
      const auto peep = [&](int64_t which, int64_t j, double cell) {
        return n.peephole ? o.p[{d, which * n.hidden + j}] * cell : 0;
      };
      std::vector<double> next(n.hidden), reset(n.hidden);
      for (int64_t j = 0; j < n.hidden; ++j) {
        const size_t u = static_cast<size_t>(j);
        if (n.op == "rnn") next[u] = act(0, clip(wx(0, j) + rh(0, j, h)));
        if (n.op == "gru") reset[u] = act(0, clip(wx(1, j) + rh(1, j, h))) * h[u];
        if (n.op != "lstm") continue;
        const double in = act(0, clip(wx(0, j) + rh(0, j, h) + peep(0, j, c[u])));
        const double forget = n.input_forget ? 1 - in : act(0, clip(wx(2, j) + rh(2, j, h) + peep(2, j, c[u])));
        c[u] = forget * c[u] + in * act(1, clip(wx(3, j) + rh(3, j, h)));
        next[u] = act(0, clip(wx(1, j) + rh(1, j, h) + peep(1, j, c[u]))) * act(2, c[u]);
      }
      for (int64_t j = 0; n.op == "gru" && j < n.hidden; ++j) {
        const size_t u = static_cast<size_t>(j);
        const double z = act(0, clip(wx(0, j) + rh(0, j, h)));
        const double r = act(0, clip(wx(1, j) + rh(1, j, h)));
        const double v = act(1, clip(wx(2, j) + (n.linear_before_reset ? r * rh(2, j, h) : rh(2, j, reset))));
        next[u] = (1 - z) * v + z * h[u];
      }
      h = next;
      for (int64_t j = 0; j < n.hidden; ++j) y[{t, d, b, j}] = h[static_cast<size_t>(j)];
    }
    for (int64_t j = 0; j < n.hidden; ++j) {
      last[{d, b, j}] = h[static_cast<size_t>(j)];
      cells[{d, b, j}] = c[static_cast<size_t>(j)];
    }
  });
  std::vector<Tensor> results;
  if (!n.only_last) results.push_back(y);
  results.push_back(last);
  if (n.op == "lstm") results.push_back(cells);
  return results;
}

void check_net(const Net& n, const std::string& type = "f32", double tolerance = 3e-6) {
  const Operands o = operands(n);
  const auto num = [](int64_t v) { return std::to_string(v); };
  const std::string d = num(n.ways()), gh = num(n.gates() * n.hidden);
  Model m;
  std::vector<Tensor> args = {o.x, o.w, o.r};
  m.inputs = "%x: " + type + "[T, B, 2], %w: " + type + "[" + d + ", " + gh + ", 2], %r: " + type + "[" + d + ", " + gh +
             ", " + num(n.hidden) + "]";
  m.dims = {{"T", kSteps}, {"B", kBatch}};
  std::string list = "%x, %w, %r";
  const auto operand = [&](bool there, const std::string& name, const std::string& text, const Tensor& value) {
    list += there ? ", " + name : ", none";
    if (!there) return;
    m.inputs += ", " + name + ": " + text;
    args.push_back(value);
  };
  operand(n.bias, "%b", type + "[" + d + ", " + num(2 * n.gates() * n.hidden) + "]", o.b);
  operand(n.lens, "%n", "i32[B]", o.lens);
  operand(n.state, "%h", type + "[" + d + ", B, " + num(n.hidden) + "]", o.h);
  if (n.op == "lstm") {
    operand(n.state, "%c", type + "[" + d + ", B, " + num(n.hidden) + "]", o.c);
    operand(n.peephole, "%p", type + "[" + d + ", " + num(3 * n.hidden) + "]", o.p);
  }
  const auto join = [](const auto& v, const auto& text) {
    std::string s = "[";
    for (size_t i = 0; i < v.size(); ++i) s += (i ? ", " : "") + text(v[i]);
    return s + "]";
  };
  const auto numbers = [&](const std::vector<double>& v) { return join(v, [](double x) { return std::to_string(x); }); };
  std::string attr = "{direction: " + n.direction + ", hidden: " + num(n.hidden) + ", activations: " +
                     join(n.activations, [](const std::string& s) { return "'" + s + "'"; });
  if (!n.alpha.empty()) attr += ", alpha: " + numbers(n.alpha) + ", beta: " + numbers(n.beta);
  if (n.clip > 0) attr += ", clip: " + std::to_string(n.clip);
  if (n.input_forget) attr += ", input_forget: true";
  if (n.linear_before_reset) attr += ", linear_before_reset: true";
  const std::string results = n.op == "lstm" ? "%y, %last, %cells" : "%y, %last";
  m.body = results + " = " + n.op + "(" + list + ") " + attr + "}";
  m.results = n.only_last ? results.substr(4) : results;
  check(m, args, reference(n, o), tolerance);
}

const std::vector<std::string> kLstm = {"sigmoid", "tanh", "tanh"}, kGru = {"sigmoid", "tanh"}, kRnn = {"tanh"};
std::vector<std::string> twice(std::vector<std::string> v) {
  const std::vector<std::string> once = v;
  v.insert(v.end(), once.begin(), once.end());
  return v;
}

TEST(Recurrent, Lstm) {
  for (const char* direction : {"forward", "reverse", "bidirectional"}) {
    Net n{"lstm", direction, std::string(direction) == "bidirectional" ? twice(kLstm) : kLstm};
    check_net(n);
    n.bias = n.state = n.peephole = n.lens = true;
    check_net(n);
    check_net(n, "f64", 1e-13);
    check_net(n, "f16", 5e-3);
    n.only_last = true;
    check_net(n);
  }
}

TEST(Recurrent, LstmVariants) {
  Net n{"lstm", "forward", kLstm};
  n.bias = n.peephole = n.input_forget = true;
  check_net(n);
  n.clip = 0.3;
  check_net(n);
}

TEST(Recurrent, Gru) {
  for (const char* direction : {"forward", "reverse", "bidirectional"})
    for (bool before : {false, true}) {
      Net n{"gru", direction, std::string(direction) == "bidirectional" ? twice(kGru) : kGru};
      n.linear_before_reset = before;
      check_net(n);
      n.bias = n.state = n.lens = true;
      check_net(n);
      n.clip = 0.4;
      check_net(n);
    }
}

TEST(Recurrent, Rnn) {
  for (const char* direction : {"forward", "reverse", "bidirectional"}) {
    Net n{"rnn", direction, std::string(direction) == "bidirectional" ? twice(kRnn) : kRnn};
    check_net(n);
    n.bias = n.state = n.lens = true;
    check_net(n);
  }
}

TEST(Recurrent, VectorsOfHiddenUnits) {
  for (const char* op : {"lstm", "gru", "rnn"}) {
    Net n{op, "reverse", std::string(op) == "lstm" ? kLstm : std::string(op) == "gru" ? kGru : kRnn};
    n.bias = n.state = n.peephole = n.lens = true;
    n.hidden = 18;
    check_net(n);
  }
}

TEST(Recurrent, Activations) {
  const struct {
    const char* name;
    double alpha, beta;
  } kFunctions[] = {{"relu", 0, 0},        {"affine", 0.5, 0.25},     {"leakyrelu", 0.1, 0},
                    {"elu", 0.5, 0},       {"thresholdedrelu", 0.3, 0}, {"scaledtanh", 0.5, 1.5},
                    {"hardsigmoid", 0.25, 0.5}, {"softsign", 0, 0},   {"softplus", 0, 0}};
  for (const auto& f : kFunctions) check_net({"rnn", "forward", {f.name}, {f.alpha}, {f.beta}});
  // Each direction its own.
  Net n{"gru", "bidirectional", {"sigmoid", "affine", "hardsigmoid", "leakyrelu"}, {0, 0.5, 0.25, 0.1}, {0, 0.25, 0.5, 0}};
  check_net(n);
}

TEST(Recurrent, LengthsBeyondTheSequenceAreReported) {
  const Outcome r = run({"%x: f32[2, 2, 1], %w: f32[1, 1, 1], %r: f32[1, 1, 1], %n: i32[2]",
                         "%y, %h = rnn(%x, %w, %r, none, %n) {direction: forward, hidden: 1, activations: ['tanh']}"},
                        {made_up({2, 2, 1}), made_up({1, 1, 1}), made_up({1, 1, 1}), Tensor({2}, {3, 2})});
  ASSERT_EQ(r.failed_checks.size(), 1u);
  EXPECT_EQ(r.failed_checks[0].got, 3);
}

}  // namespace
}  // namespace tripod::lower
