// Scales and shifts around convolutions and matrix products go into their constant weights and biases: batch norms, and
// what TensorFlow (Sub, Mul, Add) and Paddle (Mul, Add of one number) write behind and in front of them.
//
// Behind: y = (w * x + b) * s + t. In front a scale is always legal (padding stays zero); a shift only where nothing is
// padded. New weights are computed in doubles and rounded once.
#include <algorithm>
#include <cstring>

#include "graph_opt/affine.h"

namespace tripod::graph_opt {

namespace {

// A weight shared by several nodes is not copied for each when it is large.
constexpr int64_t kMaxCopy = 1 << 20;

bool may_change(const Graph& g, ValueId w) {
  return w != kNoValue && g.is_constant(w) && is_float(g.type(w).dtype) && (one_use(g, w) || g.bytes(w).size <= kMaxCopy);
}

// Weights in a view that serves conv, conv_transpose and matmul: element (o, i, k) by output channel, input channel
// and the rest.
class Weights {
 public:
  Weights(const Graph& g, NodeId n) : dims_(*static_shape(g.type(g.node(n).operands[1]))), op_(g.node(n).op) {
    if (op_ != OpKind::matmul) group_ = g.attr<graph::ConvAttr>(n).group;
  }
  // Reads the elements: only when there is something to change.
  void load(const Graph& g, ValueId w) {
    if (g.type(w).dtype != DType::f32) {
      values_ = *g.float_values(w);
      return;
    }
    values_.resize(static_cast<size_t>(g.bytes(w).size) / sizeof(float));
    for (size_t i = 0; i < values_.size(); ++i) {
      float f;
      std::memcpy(&f, g.bytes(w).data + i * sizeof f, sizeof f);
      values_[i] = f;
    }
  }

  int64_t outputs() const { return op_ == OpKind::matmul ? dims_.back() : op_ == OpKind::conv ? dims_[0] : dims_[1] * group_; }
  int64_t inputs() const { return op_ == OpKind::matmul ? dims_[dims_.size() - 2] : op_ == OpKind::conv ? dims_[1] * group_ : dims_[0]; }
  const Ints& dims() const { return dims_; }
  std::vector<double>& values() { return values_; }

  template <class F>  // f(weight, output channel, input channel)
  void each(F&& f) {
    const size_t rank = dims_.size();
    int64_t inner = 1;
    if (op_ != OpKind::matmul)
      for (size_t d = 2; d < rank; ++d) inner *= dims_[d];
    const int64_t a = op_ == OpKind::matmul ? dims_[rank - 2] : dims_[0], b = op_ == OpKind::matmul ? dims_[rank - 1] : dims_[1];
    for (size_t at = 0; at < values_.size();) {
      for (int64_t i = 0; i < a; ++i) {
        for (int64_t j = 0; j < b; ++j) {
          const auto [o, c] = channels(i, j);
          for (int64_t k = 0; k < inner; ++k) f(values_[at++], static_cast<size_t>(o), static_cast<size_t>(c));
        }
      }
    }
  }

 private:
  // Output and input channel of the weight at (i, j) of its first two (matmul: last two) dims.
  std::pair<int64_t, int64_t> channels(int64_t i, int64_t j) const {
    if (op_ == OpKind::matmul) return {j, i};
    if (op_ == OpKind::conv) return {i, i / (dims_[0] / group_) * dims_[1] + j};
    return {i / (dims_[0] / group_) * dims_[1] + j, i};
  }

  Ints dims_;
  OpKind op_;
  int64_t group_ = 1;
  std::vector<double> values_;
};

bool is_conv(OpKind op) { return op == OpKind::conv || op == OpKind::conv_transpose; }

// A contraction with constant weights (and bias): what can be folded into.
bool candidate(const Graph& g, NodeId n) {
  const Node& node = g.node(n);
  if (is_conv(node.op)) {
    const ValueId bias = operand(g, n, 2);
    return may_change(g, node.operands[1]) && (bias == kNoValue || g.is_constant(bias));
  }
  return node.op == OpKind::matmul && may_change(g, node.operands[1]) && g.type(node.operands[1]).rank() >= 2 &&
         g.type(node.operands[0]).rank() >= 2;
}

// The contraction with other operands; `shift` (of the result) becomes its bias, or an add behind a matmul.
ValueId rebuilt(Rewriter& r, NodeId n, ValueId x, ValueId w, const std::vector<double>& shift) {
  const Node& node = r.g.node(n);
  const DType t = r.g.type(w).dtype;
  const bool any = std::any_of(shift.begin(), shift.end(), [](double s) { return s != 0; });
  const Ints dims{static_cast<int64_t>(shift.size())};
  if (is_conv(node.op)) {
    std::vector<ValueId> operands{x, w};
    if (any || operand(r.g, n, 2) != kNoValue) operands.push_back(float_constant(r.g, t, dims, shift));
    return r.g.add(node.op, operands, node.attr);
  }
  const ValueId y = r.g.add(OpKind::matmul, {x, w});
  return any ? r.g.add(OpKind::add, {y, float_constant(r.g, t, dims, shift)}) : y;
}

std::vector<double> bias_of(const Graph& g, NodeId n, int64_t channels) {
  const ValueId b = is_conv(g.node(n).op) ? operand(g, n, 2) : kNoValue;
  return b == kNoValue ? std::vector<double>(static_cast<size_t>(channels), 0) : *g.float_values(b);
}

// The axis of output channels in the result, of input channels in the operand.
int channel_axis(const Graph& g, NodeId n, ValueId v) {
  return is_conv(g.node(n).op) ? 1 : g.type(v).rank() - 1;
}

bool fold_behind(Rewriter& r, NodeId n) {
  if (!candidate(r.g, n)) return false;
  const ValueId y = r.result(n);
  Weights weights(r.g, n);
  const AffineChain chain = chain_behind(r.g, y, channel_axis(r.g, n, y), weights.outputs());
  // One add behind a matmul is how its bias is written.
  const bool is_bias = !is_conv(r.g.node(n).op) && chain.nodes.size() == 1 && !chain.affine.scales();
  if (chain.nodes.empty() || is_bias) return false;
  std::vector<NodeId> matched{n};
  matched.insert(matched.end(), chain.nodes.begin(), chain.nodes.end());
  if (!r.begin(matched)) return false;

  std::vector<double> shift = bias_of(r.g, n, weights.outputs());
  for (size_t o = 0; o < shift.size(); ++o) shift[o] = shift[o] * chain.affine.scale[o] + chain.affine.shift[o];
  ValueId w = r.g.node(n).operands[1];
  if (chain.affine.scales()) {
    weights.load(r.g, w);
    weights.each([&](double& v, size_t o, size_t) { v *= chain.affine.scale[o]; });
    w = float_constant(r.g, r.g.type(w).dtype, weights.dims(), weights.values());
  }
  r.replace(chain.end, rebuilt(r, n, r.g.node(n).operands[0], w, shift));
  return true;
}

bool is_unpadded(const Graph& g, NodeId n) {
  if (!is_conv(g.node(n).op)) return true;
  // A transposed convolution crops, and its border sees fewer taps: a shift is not the same everywhere.
  if (g.node(n).op == OpKind::conv_transpose) return false;
  const auto& a = g.attr<graph::ConvAttr>(n);
  const auto zero = [](int64_t p) { return p == 0; };
  return std::all_of(a.pads_begin.begin(), a.pads_begin.end(), zero) && std::all_of(a.pads_end.begin(), a.pads_end.end(), zero);
}

bool fold_before(Rewriter& r, NodeId n) {
  if (!candidate(r.g, n)) return false;
  const ValueId x = r.g.node(n).operands[0];
  Weights weights(r.g, n);
  // A product of several matrices would need a shift for each.
  if (r.g.node(n).op == OpKind::matmul && weights.dims().size() > 2) return false;
  const AffineChain chain = chain_before(r.g, x, channel_axis(r.g, n, x), weights.inputs());
  if (chain.nodes.empty() || (chain.affine.shifts() && !is_unpadded(r.g, n))) return false;
  std::vector<NodeId> matched{n};
  matched.insert(matched.end(), chain.nodes.rbegin(), chain.nodes.rend());
  if (!r.begin(matched)) return false;

  std::vector<double> shift = bias_of(r.g, n, weights.outputs());
  weights.load(r.g, r.g.node(n).operands[1]);
  weights.each([&](double& v, size_t o, size_t c) {
    shift[o] += v * chain.affine.shift[c];
    v *= chain.affine.scale[c];
  });
  const ValueId w = float_constant(r.g, r.g.type(r.g.node(n).operands[1]).dtype, weights.dims(), weights.values());
  r.replace(r.result(n), rebuilt(r, n, chain.end, w, shift));
  return true;
}

}  // namespace

void fold_scale(Rewriter& r) { apply_rules(r, {fold_behind, fold_before}); }

}  // namespace tripod::graph_opt
