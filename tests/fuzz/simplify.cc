// Random graphs of moves, elementwise ops, reductions, norms and matrix products: simplify keeps what they compute, as
// the reference evaluator of the unit tests sees it, and leaves what the verifier accepts.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "../unit/graphopt_reference.h"
#include "fuzz.h"
#include "graph_opt/simplify.h"

using namespace tripod;
using graph::Graph;
using graph::OpKind;
using graph::ValueId;

namespace {

constexpr OpKind kUnary[] = {OpKind::relu, OpKind::neg, OpKind::abs, OpKind::exp, OpKind::sigmoid, OpKind::tanh,
                             OpKind::sqrt, OpKind::identity};
constexpr OpKind kBinary[] = {OpKind::add, OpKind::sub, OpKind::mul, OpKind::maximum, OpKind::minimum, OpKind::div};
constexpr OpKind kReduce[] = {OpKind::reduce_sum, OpKind::reduce_mean, OpKind::reduce_max};

class Builder {
 public:
  Builder(Graph& g, fuzz::Bytes& bytes) : g_(g), bytes_(bytes) {
    sym::Context& c = g.sym();
    const sym::Expr n = c.var("N", {1, 16});
    g.module().symbols.push_back(n);
    for (int i = 0; i < 2; ++i)
      values_.push_back(g.add_input("x" + std::to_string(i), graph::Type::make(DType::f32, {n, c.constant(4), c.constant(6)})));
    values_.push_back(g.add_input("w", graph::Type::make(DType::f32, {c.constant(6), c.constant(6)})));
  }

  void node() {
    try {
      values_.push_back(any());
    } catch (const CompileError&) {  // operands that do not fit
    }
  }
  ValueId last() const { return values_.back(); }

 private:
  ValueId value() { return values_[values_.size() - 1 - bytes_.pick(std::min<size_t>(values_.size(), 5))]; }
  int axis(ValueId v) { return static_cast<int>(bytes_.pick(static_cast<size_t>(std::max(1, g_.type(v).rank())))); }

  ValueId constant() {
    const float values[] = {0, 1, -1, 0.5f, 2, 3, 1e-5f, 6};
    return g_.scalar(DType::f32, values[bytes_.pick(8)]);
  }

  ValueId transpose() {
    const ValueId v = value();
    graph::PermAttr a;
    for (int d = 0; d < g_.type(v).rank(); ++d) a.perm.insert(a.perm.begin() + static_cast<long>(bytes_.pick(a.perm.size() + 1)), d);
    return g_.add(OpKind::transpose, {v}, a);
  }

  ValueId view() {  // two neighbouring dims become one, or a dim of 1 is added
    const ValueId v = value();
    graph::Shape s = g_.type(v).shape;
    const size_t at = bytes_.pick(s.size() + 1);
    if (at + 1 < s.size()) s[at] = s[at] * s[at + 1], s.erase(s.begin() + static_cast<long>(at) + 1);
    else s.insert(s.begin() + static_cast<long>(at), g_.sym().constant(1));
    return g_.reshape(v, s);
  }

  ValueId slice() {
    const ValueId v = value();
    graph::Type t = g_.type(v);
    const int d = axis(v);
    if (t.rank() == 0 || !t.shape[d].is_const() || t.shape[d].value() < 2) return v;
    graph::SliceAttr a;
    a.starts.assign(t.rank(), g_.sym().constant(0));
    a.steps.assign(t.rank(), 1);
    const int64_t extent = t.shape[d].value(), from = static_cast<int64_t>(bytes_.pick(static_cast<size_t>(extent)));
    const bool back = bytes_.pick(3) == 0;
    a.starts[d] = g_.sym().constant(from);
    a.steps[d] = back ? -1 : 1;
    t.shape[d] = g_.sym().constant(back ? from + 1 : extent - from);
    return g_.add_given(OpKind::slice, {v}, a, t);
  }

  ValueId reduce() {
    const ValueId v = value();
    graph::ReduceAttr a;
    a.axes = {axis(v)};
    a.keep_dims = bytes_.pick(2);
    return g_.type(v).rank() == 0 ? v : g_.add(kReduce[bytes_.pick(std::size(kReduce))], {v}, a);
  }

  ValueId with_axis(OpKind op, std::vector<ValueId> operands) {
    graph::AxisAttr a;
    a.axis = axis(operands[0]);
    return g_.type(operands[0]).rank() == 0 ? operands[0] : g_.add(op, std::move(operands), a);
  }

  ValueId any() {
    switch (bytes_.pick(10)) {
      case 0: return g_.add(kUnary[bytes_.pick(std::size(kUnary))], {value()});
      case 1: case 2: return g_.add(kBinary[bytes_.pick(std::size(kBinary))], {value(), value()});
      case 3: return g_.add(kBinary[bytes_.pick(std::size(kBinary))], {value(), constant()});
      case 4: return transpose();
      case 5: return view();
      case 6: return slice();
      case 7: return reduce();
      case 8: return bytes_.pick(2) ? with_axis(OpKind::softmax, {value()}) : with_axis(OpKind::concat, {value(), value()});
      default: return g_.add(OpKind::matmul, {value(), value()});
    }
  }

  Graph& g_;
  fuzz::Bytes& bytes_;
  std::vector<ValueId> values_;
};

bool close(const graph_opt::Tensor& a, const graph_opt::Tensor& b) {
  if (a.dims != b.dims) return false;
  double range = 1e-3;
  for (double x : a.data) range = std::isfinite(x) ? std::max(range, std::fabs(x)) : range;
  for (size_t i = 0; i < a.data.size(); ++i)  // what is not finite hangs on the last bit before it
    if (std::isfinite(a.data[i]) && std::isfinite(b.data[i]) && std::fabs(a.data[i] - b.data[i]) > 1e-4 * range) return false;
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Bytes bytes(data, std::min<size_t>(size, 200));
  graph::Module m;
  if (m.num_graphs() == 0) m.add_graph("main");
  Builder builder(m.main(), bytes);
  for (int i = 0; i < 40 && !bytes.empty(); ++i) builder.node();
  m.main().set_outputs({builder.last()}, {"y"});
  const std::string before = graph::text(m);
  const auto problems = graph::verify(m);
  fuzz::check(problems.empty(), (problems.empty() ? "" : problems[0]) + "\n" + before);
  const auto after = graph::parse(before);
  graph_opt::simplify(*after, {});
  const auto bad = graph::verify(*after);
  fuzz::check(bad.empty(), (bad.empty() ? "" : bad[0]) + "\n" + before);

  std::string missing;
  const sym::Values a = graph_opt::choose_symbols(m, 1);
  sym::Values b;
  for (size_t i = 0; i < m.symbols.size(); ++i) b[after->symbols[i]] = a.at(m.symbols[i]);
  const auto inputs = graph_opt::random_inputs(m.main(), a, 1);
  const auto want = graph_opt::evaluate(m.main(), inputs, a, missing);
  const auto got = graph_opt::evaluate(after->main(), inputs, b, missing);
  if (want && got) fuzz::check(close((*want)[0], (*got)[0]), before + "\nbecomes\n" + graph::text(*after));
  return 0;
}
