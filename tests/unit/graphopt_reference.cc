#include "graphopt_reference.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace tripod::graph_opt {

using namespace graph;

namespace {

int64_t count(const Ints& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

Ints unravel(int64_t i, const Ints& dims) {
  Ints index(dims.size());
  for (size_t d = dims.size(); d-- > 0;) index[d] = i % dims[d], i /= dims[d];
  return index;
}

int64_t ravel(const Ints& index, const Ints& dims) {
  int64_t i = 0;
  for (size_t d = 0; d < dims.size(); ++d) i = i * dims[d] + index[d];
  return i;
}

// The element that stands at `index` of a result that t is stretched to.
double stretched(const Tensor& t, const Ints& index) {
  Ints own(t.dims.size());
  for (size_t d = 0; d < own.size(); ++d)
    own[d] = t.dims[d] == 1 ? 0 : index[index.size() - own.size() + d];
  return t.data[static_cast<size_t>(ravel(own, t.dims))];
}

using Unary = double (*)(double);
using Binary = double (*)(double, double);

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double clamp01(double x) { return std::min(std::max(x, 0.0), 1.0); }

const std::map<OpKind, Unary> kUnary = {
    {OpKind::identity, [](double x) { return x; }}, {OpKind::neg, [](double x) { return -x; }},
    {OpKind::abs, [](double x) { return std::fabs(x); }}, {OpKind::ceil, [](double x) { return std::ceil(x); }},
    {OpKind::floor, [](double x) { return std::floor(x); }}, {OpKind::round, [](double x) { return std::nearbyint(x); }},
    {OpKind::sqrt, [](double x) { return std::sqrt(x); }}, {OpKind::reciprocal, [](double x) { return 1 / x; }},
    {OpKind::exp, [](double x) { return std::exp(x); }}, {OpKind::log, [](double x) { return std::log(x); }},
    {OpKind::sin, [](double x) { return std::sin(x); }}, {OpKind::cos, [](double x) { return std::cos(x); }},
    {OpKind::tanh, [](double x) { return std::tanh(x); }}, {OpKind::erf, [](double x) { return std::erf(x); }},
    {OpKind::sigmoid, sigmoid}, {OpKind::relu, [](double x) { return x > 0 ? x : 0 * x; }},
    {OpKind::softplus, [](double x) { return std::log1p(std::exp(x)); }},
    {OpKind::mish, [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }},
    {OpKind::gelu, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
    {OpKind::gelu_tanh,
     [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }},
    {OpKind::hard_swish, [](double x) { return x * clamp01(x / 6 + 0.5); }},
    {OpKind::logical_not, [](double x) { return double(x == 0); }},
    {OpKind::is_nan, [](double x) { return double(std::isnan(x)); }},
};

const std::map<OpKind, Binary> kBinary = {
    {OpKind::add, [](double a, double b) { return a + b; }}, {OpKind::sub, [](double a, double b) { return a - b; }},
    {OpKind::mul, [](double a, double b) { return a * b; }}, {OpKind::div, [](double a, double b) { return a / b; }},
    {OpKind::pow, [](double a, double b) { return std::pow(a, b); }},
    {OpKind::minimum, [](double a, double b) { return std::min(a, b); }},
    {OpKind::maximum, [](double a, double b) { return std::max(a, b); }},
    {OpKind::equal, [](double a, double b) { return double(a == b); }},
    {OpKind::less, [](double a, double b) { return double(a < b); }},
    {OpKind::less_equal, [](double a, double b) { return double(a <= b); }},
    {OpKind::logical_and, [](double a, double b) { return double(a != 0 && b != 0); }},
    {OpKind::logical_or, [](double a, double b) { return double(a != 0 || b != 0); }},
};

class Evaluation {
 public:
  Evaluation(const Graph& g, const sym::Values& symbols) : g_(g), symbols_(symbols) {}

  bool run(const std::vector<Tensor>& inputs, std::string& missing) {
    for (size_t i = 0; i < inputs.size(); ++i) values_[g_.inputs()[i]] = inputs[i];
    for (NodeId n : g_.order()) {
      const Node& node = g_.node(n);
      if (node.op == OpKind::input) continue;
      node_ = &node;
      Tensor t;
      t.dims = dims(g_.type(node.results[0]).shape);
      t.data.resize(static_cast<size_t>(count(t.dims)));
      if (!compute(t)) {
        missing = std::string(info(node.op).text);
        return false;
      }
      values_[node.results[0]] = std::move(t);
    }
    return true;
  }
  const Tensor& value(ValueId v) const { return values_.at(v); }

 private:
  int64_t number(Expr e) const { return sym::evaluate(e, symbols_); }
  Ints dims(const Shape& s) const {
    Ints d;
    for (Expr e : s) d.push_back(number(e));
    return d;
  }
  const Tensor& in(size_t i) const { return values_.at(node_->operands[i]); }
  bool has(size_t i) const { return i < node_->operands.size() && node_->operands[i] != kNoValue; }
  template <class A>
  const A& attr() const { return std::get<A>(node_->attr); }

  // Every element of the result from its index.
  bool each(Tensor& t, const std::function<double(const Ints&)>& f) const {
    for (int64_t i = 0; i < t.size(); ++i) t.data[static_cast<size_t>(i)] = f(unravel(i, t.dims));
    return true;
  }

  bool compute(Tensor& t);
  bool activation(Tensor& t);
  bool move(Tensor& t);
  bool source(Tensor& t);
  bool reduce(Tensor& t);
  bool softmax(Tensor& t);
  bool norm(Tensor& t);
  bool matmul(Tensor& t);
  bool conv(Tensor& t);
  bool conv_transpose(Tensor& t);
  bool average_pool(Tensor& t);
  bool attention(Tensor& t);
  bool rotary(Tensor& t);

  const Graph& g_;
  const sym::Values& symbols_;
  const Node* node_ = nullptr;
  Values values_;
};

bool Evaluation::compute(Tensor& t) {
  const OpKind op = node_->op;
  if (auto u = kUnary.find(op); u != kUnary.end()) return each(t, [&](const Ints& i) { return u->second(stretched(in(0), i)); });
  if (auto b = kBinary.find(op); b != kBinary.end())
    return each(t, [&](const Ints& i) { return b->second(stretched(in(0), i), stretched(in(1), i)); });
  switch (op) {
    case OpKind::where:
      return each(t, [&](const Ints& i) { return stretched(in(0), i) != 0 ? stretched(in(1), i) : stretched(in(2), i); });
    case OpKind::clip:
      return each(t, [&](const Ints& i) {
        double x = stretched(in(0), i);
        if (has(1)) x = std::max(x, in(1).data[0]);
        return has(2) ? std::min(x, in(2).data[0]) : x;
      });
    case OpKind::cast: {
      const DType to = attr<CastAttr>().to;
      return each(t, [&](const Ints& i) {
        const double x = stretched(in(0), i);
        return to == DType::b1 ? double(x != 0) : is_int(to) ? std::trunc(x) : to == DType::f32 ? double(float(x)) : x;
      });
    }
    case OpKind::dequantize:
      return each(t, [&](const Ints& i) { return (stretched(in(0), i) - (has(2) ? stretched(in(2), i) : 0)) * stretched(in(1), i); });
    case OpKind::constant:
    case OpKind::sym_values:
    case OpKind::iota: return source(t);
    case OpKind::softmax: return softmax(t);
    case OpKind::layer_norm:
    case OpKind::rms_norm:
    case OpKind::group_norm:
    case OpKind::batch_norm: return norm(t);
    case OpKind::matmul: return matmul(t);
    case OpKind::conv: return conv(t);
    case OpKind::conv_transpose: return conv_transpose(t);
    case OpKind::average_pool: return average_pool(t);
    case OpKind::attention: return attention(t);
    case OpKind::rotary: return rotary(t);
    default: break;
  }
  if (graph::has(op, kReduction)) return reduce(t);
  if (graph::has(op, kMove)) return move(t);
  return activation(t);
}

bool Evaluation::activation(Tensor& t) {
  if (node_->op != OpKind::silu && node_->op != OpKind::hard_sigmoid && node_->op != OpKind::leaky_relu) return false;
  const auto& s = attr<ScalarAttr>();
  return each(t, [&](const Ints& i) {
    const double x = stretched(in(0), i);
    if (node_->op == OpKind::silu) return x * sigmoid(s.a * x);
    return node_->op == OpKind::hard_sigmoid ? clamp01(s.a * x + s.b) : x < 0 ? s.a * x : x;
  });
}

bool Evaluation::source(Tensor& t) {
  if (node_->op == OpKind::iota) return each(t, [&](const Ints& i) { return in(0).data[0] + double(i[0]) * in(1).data[0]; });
  if (node_->op == OpKind::constant) {
    const auto v = g_.float_values(node_->results[0]);
    if (v) t.data = *v;
    return v.has_value();
  }
  for (size_t i = 0; i < t.data.size(); ++i) t.data[i] = double(number(attr<ExprsAttr>().values[i]));
  return true;
}

bool Evaluation::move(Tensor& t) {
  const Tensor& x = in(0);
  switch (node_->op) {
    case OpKind::reshape: t.data = x.data; return true;
    case OpKind::broadcast: return each(t, [&](const Ints& i) { return stretched(x, i); });
    case OpKind::transpose:
      return each(t, [&](const Ints& i) {
        Ints from(i.size());
        for (size_t d = 0; d < i.size(); ++d) from[static_cast<size_t>(attr<PermAttr>().perm[d])] = i[d];
        return x.data[static_cast<size_t>(ravel(from, x.dims))];
      });
    case OpKind::slice:
      return each(t, [&](Ints i) {
        for (size_t d = 0; d < i.size(); ++d) i[d] = number(attr<SliceAttr>().starts[d]) + i[d] * attr<SliceAttr>().steps[d];
        return x.data[static_cast<size_t>(ravel(i, x.dims))];
      });
    case OpKind::tile:
      return each(t, [&](Ints i) {
        for (size_t d = 0; d < i.size(); ++d) i[d] %= x.dims[d];
        return x.data[static_cast<size_t>(ravel(i, x.dims))];
      });
    case OpKind::pad: {
      if (attr<PadAttr>().mode != PadAttr::constant) return false;
      return each(t, [&](Ints i) {
        for (size_t d = 0; d < i.size(); ++d) {
          i[d] -= number(attr<PadAttr>().begin[d]);
          if (i[d] < 0 || i[d] >= x.dims[d]) return has(1) ? in(1).data[0] : 0.0;
        }
        return x.data[static_cast<size_t>(ravel(i, x.dims))];
      });
    }
    case OpKind::concat:
      return each(t, [&](Ints i) {
        int64_t& at = i[static_cast<size_t>(attr<AxisAttr>().axis)];
        size_t part = 0;
        for (; at >= in(part).dims[static_cast<size_t>(attr<AxisAttr>().axis)]; ++part)
          at -= in(part).dims[static_cast<size_t>(attr<AxisAttr>().axis)];
        return in(part).data[static_cast<size_t>(ravel(i, in(part).dims))];
      });
    case OpKind::gather:
      return each(t, [&](const Ints& i) {
        const auto axis = attr<AxisAttr>().axis;
        const auto rank = static_cast<std::ptrdiff_t>(in(1).dims.size());
        const Ints at(i.begin() + axis, i.begin() + axis + rank);
        Ints from(i.begin(), i.begin() + axis);
        auto k = static_cast<int64_t>(in(1).data[static_cast<size_t>(ravel(at, in(1).dims))]);
        from.push_back(k < 0 ? k + x.dims[static_cast<size_t>(axis)] : k);
        from.insert(from.end(), i.begin() + axis + rank, i.end());
        return x.data[static_cast<size_t>(ravel(from, x.dims))];
      });
    default: return false;
  }
}

bool Evaluation::reduce(Tensor& t) {
  const auto& a = attr<ReduceAttr>();
  const OpKind op = node_->op;
  if (op == OpKind::arg_max || op == OpKind::arg_min) return false;
  const double first = op == OpKind::reduce_prod ? 1 : op == OpKind::reduce_max ? -INFINITY : op == OpKind::reduce_min ? INFINITY : 0;
  std::fill(t.data.begin(), t.data.end(), first);
  const double n = double(in(0).size()) / double(std::max<int64_t>(t.size(), 1));
  for (int64_t i = 0; i < in(0).size(); ++i) {
    const Ints index = unravel(i, in(0).dims);
    Ints to;
    for (size_t d = 0; d < index.size(); ++d) {
      const bool gone = std::find(a.axes.begin(), a.axes.end(), int(d)) != a.axes.end();
      if (!gone || a.keep_dims) to.push_back(gone ? 0 : index[d]);
    }
    double& r = t.data[static_cast<size_t>(ravel(to, t.dims))];
    const double x = in(0).data[static_cast<size_t>(i)];
    if (op == OpKind::reduce_sum) r += x;
    if (op == OpKind::reduce_mean) r += x / n;
    if (op == OpKind::reduce_prod) r *= x;
    if (op == OpKind::reduce_max) r = std::max(r, x);
    if (op == OpKind::reduce_min) r = std::min(r, x);
  }
  return true;
}

bool Evaluation::softmax(Tensor& t) {
  const size_t axis = static_cast<size_t>(attr<AxisAttr>().axis);
  return each(t, [&](const Ints& i) {
    double most = -INFINITY, sum = 0;
    Ints j = i;
    const auto at = [&](int64_t k) { return j[axis] = k, in(0).data[static_cast<size_t>(ravel(j, t.dims))]; };
    for (int64_t k = 0; k < t.dims[axis]; ++k) most = std::max(most, at(k));
    for (int64_t k = 0; k < t.dims[axis]; ++k) sum += std::exp(at(k) - most);
    return std::exp(at(i[axis]) - most) / sum;
  });
}

bool Evaluation::norm(Tensor& t) {
  const auto& s = attr<ScalarAttr>();
  const Tensor& x = in(0);
  if (node_->op == OpKind::batch_norm) {
    return each(t, [&](const Ints& i) {
      const size_t c = static_cast<size_t>(i[1]);
      const double d = std::sqrt(in(4).data[c] + s.a);
      return (x.data[static_cast<size_t>(ravel(i, t.dims))] - in(3).data[c]) / d * in(1).data[c] + in(2).data[c];
    });
  }
  // Rows of `inner` elements that lie together.
  const bool groups = node_->op == OpKind::group_norm;
  int64_t rows = groups ? t.dims[0] * s.axis : count(Ints(t.dims.begin(), t.dims.begin() + s.axis));
  const int64_t inner = t.size() / rows;
  for (int64_t r = 0; r < rows; ++r) {
    const double* p = x.data.data() + r * inner;
    double mean = 0, var = 0;
    for (int64_t i = 0; i < inner; ++i) mean += node_->op == OpKind::rms_norm ? 0 : p[i] / double(inner);
    for (int64_t i = 0; i < inner; ++i) var += (p[i] - mean) * (p[i] - mean) / double(inner);
    for (int64_t i = 0; i < inner; ++i) t.data[static_cast<size_t>(r * inner + i)] = (p[i] - mean) / std::sqrt(var + s.a);
  }
  for (int64_t i = 0; i < t.size(); ++i) {
    const Ints index = unravel(i, t.dims);
    const Ints at = groups ? Ints{index[1]} : index;
    double& y = t.data[static_cast<size_t>(i)];
    if (has(1)) y *= stretched(in(1), at);
    if (has(2)) y += stretched(in(2), at);
  }
  return true;
}

bool Evaluation::matmul(Tensor& t) {
  const Tensor &a = in(0), &b = in(1);
  if (a.dims.size() < 2 || b.dims.size() < 2) return false;
  const int64_t inner = a.dims.back();
  return each(t, [&](const Ints& i) {
    Ints p = i, q = i;
    double sum = 0;
    for (int64_t k = 0; k < inner; ++k) {
      p.back() = k;
      q[q.size() - 2] = k;
      sum += stretched(a, p) * stretched(b, q);
    }
    return sum;
  });
}

bool Evaluation::conv(Tensor& t) {
  const auto& a = attr<ConvAttr>();
  const Tensor &x = in(0), &w = in(1);
  const int64_t per_group = w.dims[1], outs = t.dims[1] / a.group;
  const size_t spatial = x.dims.size() - 2;
  const Ints kernel(w.dims.begin() + 2, w.dims.end());
  return each(t, [&](const Ints& i) {
    double sum = has(2) ? in(2).data[static_cast<size_t>(i[1])] : 0;
    for (int64_t c = 0; c < per_group; ++c) {
      for (int64_t k = 0; k < count(kernel); ++k) {
        const Ints tap = unravel(k, kernel);
        Ints from{i[0], i[1] / outs * per_group + c}, weight{i[1], c};
        bool inside = true;
        for (size_t d = 0; d < spatial; ++d) {
          from.push_back(i[d + 2] * a.strides[d] + tap[d] * a.dilations[d] - a.pads_begin[d]);
          weight.push_back(tap[d]);
          inside = inside && from.back() >= 0 && from.back() < x.dims[d + 2];
        }
        if (inside) sum += x.data[static_cast<size_t>(ravel(from, x.dims))] * w.data[static_cast<size_t>(ravel(weight, w.dims))];
      }
    }
    return sum;
  });
}

bool Evaluation::conv_transpose(Tensor& t) {
  const auto& a = attr<ConvAttr>();
  const Tensor &x = in(0), &w = in(1);
  each(t, [&](const Ints& i) { return has(2) ? in(2).data[static_cast<size_t>(i[1])] : 0; });
  const int64_t outs = w.dims[1], per_group = x.dims[1] / a.group;
  const Ints kernel(w.dims.begin() + 2, w.dims.end());
  for (int64_t e = 0; e < x.size(); ++e) {
    const Ints i = unravel(e, x.dims);
    for (int64_t m = 0; m < outs; ++m) {
      for (int64_t k = 0; k < count(kernel); ++k) {
        const Ints tap = unravel(k, kernel);
        Ints to{i[0], i[1] / per_group * outs + m}, weight{i[1], m};
        bool inside = true;
        for (size_t d = 0; d < kernel.size(); ++d) {
          to.push_back(i[d + 2] * a.strides[d] + tap[d] * a.dilations[d] - a.pads_begin[d]);
          weight.push_back(tap[d]);
          inside = inside && to.back() >= 0 && to.back() < t.dims[d + 2];
        }
        if (inside)
          t.data[static_cast<size_t>(ravel(to, t.dims))] +=
              x.data[static_cast<size_t>(e)] * w.data[static_cast<size_t>(ravel(weight, w.dims))];
      }
    }
  }
  return true;
}

bool Evaluation::average_pool(Tensor& t) {
  const auto& a = attr<PoolAttr>();
  if (a.ceil_mode) return false;
  return each(t, [&](const Ints& i) {
    double sum = 0, taps = 0;
    for (int64_t k = 0; k < count(a.kernel); ++k) {
      const Ints tap = unravel(k, a.kernel);
      Ints from = i;
      bool inside = true;
      for (size_t d = 0; d < a.kernel.size(); ++d) {
        from[d + 2] = i[d + 2] * a.strides[d] + tap[d] * a.dilations[d] - a.pads_begin[d];
        inside = inside && from[d + 2] >= 0 && from[d + 2] < in(0).dims[d + 2];
      }
      taps += inside || a.count_include_pad;
      if (inside) sum += in(0).data[static_cast<size_t>(ravel(from, in(0).dims))];
    }
    return sum / taps;
  });
}

// A query that sees no key gives zeros.
bool Evaluation::attention(Tensor& t) {
  const auto& a = attr<AttentionAttr>();
  const Tensor &q = in(0), &k = in(1), &v = in(2);
  const int64_t s = q.dims[2], keys = k.dims[2], size = q.dims[3], share = q.dims[1] / k.dims[1];
  const double scale = a.scale == 0 ? 1 / std::sqrt(double(size)) : a.scale;
  return each(t, [&](const Ints& i) {
    std::vector<double> score(static_cast<size_t>(keys));
    for (int64_t j = 0; j < keys; ++j) {
      double& e = score[static_cast<size_t>(j)];
      for (int64_t d = 0; d < size; ++d)
        e += stretched(q, {i[0], i[1], i[2], d}) * k.data[static_cast<size_t>(ravel({i[0], i[1] / share, j, d}, k.dims))];
      e *= scale;
      if (a.softcap > 0) e = std::tanh(e / a.softcap) * a.softcap;
      if (a.causal && j > i[2] + keys - s) e = -INFINITY;
      if (!has(3)) continue;
      const double m = stretched(in(3), {i[0], i[1], i[2], j});
      if (g_.type(node_->operands[3]).dtype == DType::b1) e = m != 0 ? e : -INFINITY;
      else e += m;
    }
    const double most = *std::max_element(score.begin(), score.end());
    double sum = 0, y = 0;
    for (int64_t j = 0; j < keys; ++j) {
      const double p = most == -INFINITY ? 0 : std::exp(score[static_cast<size_t>(j)] - most);
      sum += p;
      y += p * v.data[static_cast<size_t>(ravel({i[0], i[1] / share, j, i[3]}, v.dims))];
    }
    return sum == 0 ? 0 : y / sum;
  });
}

bool Evaluation::rotary(Tensor& t) {
  const int64_t half = t.dims.back() / 2;
  const bool interleaved = attr<AxisAttr>().flag_a;
  return each(t, [&](Ints i) {
    const int64_t d = i.back(), k = interleaved ? d / 2 : d % half;
    const bool second = interleaved ? d % 2 == 1 : d >= half;
    i.back() = k;
    const double c = stretched(in(1), i), s = stretched(in(2), i);
    i.back() = d;
    const double x = in(0).data[static_cast<size_t>(ravel(i, t.dims))];
    i.back() = interleaved ? (second ? d - 1 : d + 1) : (second ? d - half : d + half);
    const double other = in(0).data[static_cast<size_t>(ravel(i, t.dims))];
    return x * c + (second ? other : -other) * s;
  });
}

}  // namespace

sym::Values choose_symbols(const Module& m, int seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  sym::Values best;
  for (int attempt = 0; attempt < 200; ++attempt) {
    sym::Values values;
    for (Expr s : m.symbols) {
      const int64_t lo = s->range.lo == sym::Range::kMin ? 1 : std::max<int64_t>(s->range.lo, 1);
      values[s] = std::min(s->range.hi, (lo + int64_t(random() % 5) + s->divisor - 1) / s->divisor * s->divisor);
    }
    best = values;
    bool good = true;
    for (const auto& r : m.requirements) good = good && sym::evaluate(r.condition, values) != 0;
    if (good) break;
  }
  return best;
}

std::vector<Tensor> random_inputs(const Graph& g, const sym::Values& symbols, int seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::uniform_real_distribution<double> real(-2, 2);
  std::vector<Tensor> inputs;
  for (ValueId v : g.inputs()) {
    Tensor t;
    for (Expr d : g.type(v).shape) t.dims.push_back(sym::evaluate(d, symbols));
    const DType type = g.type(v).dtype;
    for (int64_t i = 0; i < count(t.dims); ++i)
      t.data.push_back(is_float(type) ? real(random) : double(random() % (type == DType::b1 ? 2 : 4)));
    inputs.push_back(std::move(t));
  }
  return inputs;
}

std::optional<std::vector<Tensor>> evaluate(const Graph& g, const std::vector<Tensor>& inputs,
                                            const sym::Values& symbols, std::string& missing) {
  Evaluation e(g, symbols);
  if (!e.run(inputs, missing)) return std::nullopt;
  std::vector<Tensor> outputs;
  for (ValueId v : g.outputs()) outputs.push_back(e.value(v));
  return outputs;
}

}  // namespace tripod::graph_opt
