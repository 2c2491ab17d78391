// Transposes are pushed towards the outputs, through elementwise ops, reductions, concat, pad and slice, until they meet
// their inverse (moves.cc cancels the two) or something that is not indifferent to the order of dims. This takes the
// Transpose-Conv-Transpose of TensorFlow's NHWC exports away, and brings what stands behind a convolution next to it.
//
// f(T(x), c) becomes T(f(x, T^-1(c))). c must be a constant, or moving it must cost nothing (its dims but one are 1).
// A transpose with several readers is only pushed when all of them take it: else it would be there twice.
#include <algorithm>

#include "graph_opt/pass.h"

namespace tripod::graph_opt {

namespace {

using Perm = std::vector<int>;

Perm inverse(const Perm& p) {
  Perm q(p.size());
  for (size_t i = 0; i < p.size(); ++i) q[static_cast<size_t>(p[i])] = static_cast<int>(i);
  return q;
}

const Perm* perm_of(const Graph& g, ValueId v) {
  return v != kNoValue && g.is(v, OpKind::transpose) ? &std::get<graph::PermAttr>(g.producer(v).attr).perm : nullptr;
}

// The shape with leading dims of 1, so that it has this rank.
Shape of_rank(const Graph& g, ValueId v, size_t rank) {
  Shape s = g.type(v).shape;
  s.insert(s.begin(), rank - std::min(rank, s.size()), g.sym().constant(1));
  return s;
}

// Permuting a tensor of this shape moves nothing in memory.
bool is_view(const Shape& s, const Perm& p) {
  int last = -1;
  for (int d : p) {
    if (s[static_cast<size_t>(d)].is_const(1)) continue;
    if (d < last) return false;
    last = d;
  }
  return true;
}

bool all_ones(const Shape& s) {
  return std::all_of(s.begin(), s.end(), [](Expr d) { return d.is_const(1); });
}

// --- which readers take a transpose -----------------------------------------------------------------------------------

// Operand v of an op that combines elements of equal position can be had in the order before p.
bool movable(const Graph& g, ValueId v, const Perm& p) {
  if (v == kNoValue) return true;
  if (const Perm* own = perm_of(g, v)) return *own == p;
  if (g.type(v).shape.size() > p.size()) return false;
  return g.is_constant(v) || is_view(of_rank(g, v, p.size()), inverse(p));
}

bool takes_all(const Graph& g, const Node& n, const Perm& p) {
  return std::all_of(n.operands.begin(), n.operands.end(), [&](ValueId v) { return movable(g, v, p); });
}

// Does node n take a transpose by p of one of its operands?
bool takes(const Graph& g, NodeId id, const Perm& p) {
  const Node& n = g.node(id);
  if (n.results.size() != 1) return false;
  switch (n.op) {
    case OpKind::pad:
    case OpKind::slice: return perm_of(g, n.operands[0]) != nullptr;
    case OpKind::clip: return true;
    case OpKind::concat:
      return std::all_of(n.operands.begin(), n.operands.end(), [&](ValueId v) {
        const Perm* own = perm_of(g, v);
        return own ? *own == p : g.is_constant(v);
      });
    case OpKind::arg_max:
    case OpKind::arg_min: return false;
    default: break;
  }
  if (graph::has(n.op, graph::kReduction)) return true;
  return graph::has(n.op, graph::kElementwise) && g.type(n.results[0]).shape.size() == p.size() && takes_all(g, n, p);
}

// All readers of the transpose v take it, or are transposes themselves.
bool all_take(const Graph& g, ValueId v, const Perm& p) {
  if (g.is_output(v)) return false;
  const auto& users = g.value(v).users;
  return std::all_of(users.begin(), users.end(), [&](NodeId u) { return g.node(u).op == OpKind::transpose || takes(g, u, p); });
}

// --- pushing ----------------------------------------------------------------------------------------------------------

// The operand in the order before p.
ValueId moved_back(Graph& g, ValueId v, const Perm& p) {
  if (v == kNoValue) return v;
  if (perm_of(g, v)) return g.producer(v).operands[0];
  if (all_ones(g.type(v).shape)) return v;
  const Perm back = inverse(p);
  const ValueId full = g.reshape(v, of_rank(g, v, p.size()));
  return g.add(OpKind::transpose, {full}, graph::PermAttr{back});
}

template <class T>
std::vector<T> permuted(const std::vector<T>& v, const Perm& p) {  // result[p[i]] = v[i]
  std::vector<T> r(v.size());
  for (size_t i = 0; i < v.size(); ++i) r[static_cast<size_t>(p[i])] = v[i];
  return r;
}

// n with operands before p. Its result is what n's was, before `after`.
ValueId rebuilt(Graph& g, NodeId id, const Perm& p, Perm& after) {
  const Node& n = g.node(id);
  after = p;
  const ValueId x = n.operands[0];
  switch (n.op) {
    case OpKind::clip: return g.add(OpKind::clip, {moved_back(g, x, p), n.operands[1], n.operands[2]});
    case OpKind::pad: {
      auto a = std::get<graph::PadAttr>(n.attr);
      a.begin = permuted(a.begin, p);
      a.end = permuted(a.end, p);
      std::vector<ValueId> operands = n.operands;
      operands[0] = moved_back(g, x, p);
      return g.add(OpKind::pad, operands, a);
    }
    case OpKind::slice: {
      auto a = std::get<graph::SliceAttr>(n.attr);
      a.starts = permuted(a.starts, p);
      a.steps = permuted(a.steps, p);
      const Type t = Type::make(g.type(x).dtype, permuted(g.type(n.results[0]).shape, p));
      return g.add_given(OpKind::slice, {moved_back(g, x, p)}, a, t);
    }
    default: break;
  }
  std::vector<ValueId> operands;
  for (ValueId v : n.operands) operands.push_back(moved_back(g, v, p));
  if (n.op == OpKind::concat) {
    auto a = std::get<graph::AxisAttr>(n.attr);
    a.axis = p[static_cast<size_t>(a.axis)];
    return g.add(OpKind::concat, operands, a);
  }
  if (!graph::has(n.op, graph::kReduction)) return g.add(n.op, operands, n.attr);

  auto a = std::get<graph::ReduceAttr>(n.attr);
  const std::vector<int> axes = a.axes;
  for (int& axis : a.axes) axis = p[static_cast<size_t>(axis)];
  std::sort(a.axes.begin(), a.axes.end());
  if (!a.keep_dims) {  // the dims that are left, in their order
    after.clear();
    for (size_t d = 0; d < p.size(); ++d) {
      if (std::find(axes.begin(), axes.end(), static_cast<int>(d)) != axes.end()) continue;
      const auto gone = std::count_if(a.axes.begin(), a.axes.end(), [&](int axis) { return axis < p[d]; });
      after.push_back(p[d] - static_cast<int>(gone));
    }
  }
  return g.add(n.op, operands, a);
}

bool push(Rewriter& r, NodeId n) {
  const Node& node = r.g.node(n);
  // The first operand of moves and clips, any of the others.
  const Perm* found = nullptr;
  std::vector<NodeId> matched{n};
  for (ValueId v : node.operands) {
    const Perm* p = perm_of(r.g, v);
    if (p && !found) found = p;
    if (p) matched.push_back(producer_of(r.g, v));
  }
  if (!found || !takes(r.g, n, *found)) return false;
  const Perm p = *found;
  for (ValueId v : node.operands)
    if (perm_of(r.g, v) && !all_take(r.g, v, p)) return false;
  std::reverse(matched.begin(), matched.end());
  if (!r.begin(matched)) return false;
  Perm after;
  const ValueId y = rebuilt(r.g, n, p, after);
  r.replace(r.result(n), r.g.add(OpKind::transpose, {y}, graph::PermAttr{after}));
  return true;
}

}  // namespace

void transposes(Rewriter& r) { apply_rules(r, {push}); }

}  // namespace tripod::graph_opt
