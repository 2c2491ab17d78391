// Algebra on ops that move elements: what moves nothing goes, two moves of a kind become one, and what is only another
// view becomes a reshape (which costs nothing).
#include <algorithm>

#include "graph_opt/pass.h"

namespace tripod::graph_opt {

namespace {

OpKind op(const Rewriter& r, NodeId n) { return r.g.node(n).op; }
ValueId input(const Rewriter& r, NodeId n) { return r.g.node(n).operands[0]; }
const Shape& shape(const Rewriter& r, ValueId v) { return r.g.type(v).shape; }

bool becomes(Rewriter& r, NodeId n, ValueId x) {
  if (!r.begin({n})) return false;
  r.replace(r.result(n), x);
  return true;
}

// The producer of n's first operand, when it is of kind k.
std::optional<NodeId> inner(const Rewriter& r, NodeId n, OpKind k) {
  const NodeId p = producer_of(r.g, input(r, n));
  return op(r, p) == k ? std::optional(p) : std::nullopt;
}

// Moves whose result has the shape of the operand and which then are the operand.
bool same_shape_move(Rewriter& r, NodeId n) {
  const OpKind k = op(r, n);
  if (k != OpKind::reshape && k != OpKind::broadcast && k != OpKind::tile) return false;
  return same_shape(r.g, r.result(n), input(r, n)) && becomes(r, n, input(r, n));
}

// --- reshape --------------------------------------------------------------------------------------------------------

bool equal_counts(Rewriter& r, ValueId a, ValueId b) {
  try {
    return sym::proved(sym::eq(graph::element_count(r.g.sym(), shape(r, a)), graph::element_count(r.g.sym(), shape(r, b))));
  } catch (const sym::Overflow&) {
    return false;
  }
}

bool reshape_of_reshape(Rewriter& r, NodeId n) {
  const auto p = op(r, n) == OpKind::reshape ? inner(r, n, OpKind::reshape) : std::nullopt;
  if (!p || !equal_counts(r, r.result(n), input(r, *p)) || !r.begin({n, *p})) return false;
  r.replace(r.result(n), r.g.reshape(input(r, *p), shape(r, r.result(n))));
  return true;
}

// --- transpose ------------------------------------------------------------------------------------------------------

// The dims that are not 1 stay in their order: nothing moves in memory.
bool moves_only_ones(const Shape& from, const std::vector<int>& perm) {
  int last = -1;
  for (int p : perm) {
    if (from[static_cast<size_t>(p)].is_const(1)) continue;
    if (p < last) return false;
    last = p;
  }
  return true;
}

bool transpose_as_view(Rewriter& r, NodeId n) {
  if (op(r, n) != OpKind::transpose) return false;
  const auto& perm = r.g.attr<graph::PermAttr>(n).perm;
  if (!moves_only_ones(shape(r, input(r, n)), perm)) return false;
  if (std::is_sorted(perm.begin(), perm.end())) return becomes(r, n, input(r, n));
  if (!r.begin({n})) return false;
  r.replace(r.result(n), r.g.reshape(input(r, n), shape(r, r.result(n))));
  return true;
}

bool transpose_of_transpose(Rewriter& r, NodeId n) {
  const auto p = op(r, n) == OpKind::transpose ? inner(r, n, OpKind::transpose) : std::nullopt;
  if (!p || !r.begin({n, *p})) return false;
  const auto &outer = r.g.attr<graph::PermAttr>(n).perm, &before = r.g.attr<graph::PermAttr>(*p).perm;
  graph::PermAttr both;
  for (int i : outer) both.perm.push_back(before[static_cast<size_t>(i)]);
  r.replace(r.result(n), r.g.add(OpKind::transpose, {input(r, *p)}, both));
  return true;
}

// How a reshape merges neighbouring dims: of each dim of the result how many dims of the operand it is. Nothing when it
// splits any.
std::optional<std::vector<int>> merged_dims(const Shape& from, const Shape& to) {
  std::vector<int> counts;
  size_t at = 0;
  for (Expr want : to) {
    if (at >= from.size()) return std::nullopt;
    Expr have = from[at++];
    int count = 1;
    for (; have != want && at < from.size(); ++count) have = have * from[at++];
    if (have != want) return std::nullopt;
    counts.push_back(count);
  }
  return at == from.size() ? std::optional(counts) : std::nullopt;
}

// reshape(transpose(reshape(x))) that merges dims, moves them and takes them apart again (a batched transpose as some
// exporters write it): one transpose.
bool transpose_of_merged(Rewriter& r, NodeId n) {
  const auto t = op(r, n) == OpKind::reshape ? inner(r, n, OpKind::transpose) : std::nullopt;
  const auto p = t ? inner(r, *t, OpKind::reshape) : std::nullopt;
  if (!p) return false;
  const Shape from = shape(r, input(r, *p));
  std::optional<std::vector<int>> counts;
  try {
    counts = merged_dims(from, shape(r, r.result(*p)));
  } catch (const sym::Overflow&) {
  }
  if (!counts) return false;
  std::vector<int> first{0};
  for (int c : *counts) first.push_back(first.back() + c);
  graph::PermAttr perm;
  Shape to;
  for (int d : r.g.attr<graph::PermAttr>(*t).perm) {
    for (int i = first[static_cast<size_t>(d)]; i < first[static_cast<size_t>(d) + 1]; ++i) {
      perm.perm.push_back(i);
      to.push_back(from[static_cast<size_t>(i)]);
    }
  }
  if (to != shape(r, r.result(n)) || !r.begin({n, *t, *p})) return false;
  r.replace(r.result(n), r.g.add(OpKind::transpose, {input(r, *p)}, perm));
  return true;
}

// --- broadcast, tile ------------------------------------------------------------------------------------------------

bool broadcast_of_broadcast(Rewriter& r, NodeId n) {
  const auto p = op(r, n) == OpKind::broadcast ? inner(r, n, OpKind::broadcast) : std::nullopt;
  if (!p || !r.begin({n, *p})) return false;
  r.replace(r.result(n), r.g.add_given(OpKind::broadcast, {input(r, *p)}, graph::NoAttr{}, r.g.type(r.result(n))));
  return true;
}

bool tile_of_ones(Rewriter& r, NodeId n) {
  if (op(r, n) != OpKind::tile) return false;
  const Shape &from = shape(r, input(r, n)), &to = shape(r, r.result(n));
  for (size_t d = 0; d < from.size(); ++d)
    if (!from[d].is_const(1) && from[d] != to[d]) return false;
  if (!r.begin({n})) return false;
  r.replace(r.result(n), r.g.add_given(OpKind::broadcast, {input(r, n)}, graph::NoAttr{}, r.g.type(r.result(n))));
  return true;
}

// --- slice, pad, concat ---------------------------------------------------------------------------------------------

bool whole_slice(Rewriter& r, NodeId n) {
  if (op(r, n) != OpKind::slice || !same_shape(r.g, r.result(n), input(r, n))) return false;
  const auto& a = r.g.attr<graph::SliceAttr>(n);
  for (size_t d = 0; d < a.steps.size(); ++d)
    if (!a.starts[d].is_const(0) || a.steps[d] != 1) return false;
  return becomes(r, n, input(r, n));
}

bool slice_of_slice(Rewriter& r, NodeId n) {
  const auto p = op(r, n) == OpKind::slice ? inner(r, n, OpKind::slice) : std::nullopt;
  if (!p || !r.begin({n, *p})) return false;
  const auto &outer = r.g.attr<graph::SliceAttr>(n), &before = r.g.attr<graph::SliceAttr>(*p);
  graph::SliceAttr both;
  for (size_t d = 0; d < outer.steps.size(); ++d) {
    both.starts.push_back(before.starts[d] + outer.starts[d] * before.steps[d]);
    both.steps.push_back(before.steps[d] * outer.steps[d]);
  }
  r.replace(r.result(n), r.g.add_given(OpKind::slice, {input(r, *p)}, both, r.g.type(r.result(n))));
  return true;
}

bool empty_pad(Rewriter& r, NodeId n) {
  if (op(r, n) != OpKind::pad) return false;
  const auto& a = r.g.attr<graph::PadAttr>(n);
  const auto zero = [](Expr e) { return e.is_const(0); };
  return std::all_of(a.begin.begin(), a.begin.end(), zero) && std::all_of(a.end.begin(), a.end.end(), zero) &&
         becomes(r, n, input(r, n));
}

bool concat_of_concat(Rewriter& r, NodeId n) {
  if (op(r, n) != OpKind::concat) return false;
  if (r.g.node(n).operands.size() == 1) return becomes(r, n, input(r, n));
  const auto& a = r.g.attr<graph::AxisAttr>(n);
  std::vector<ValueId> flat;
  std::vector<NodeId> matched{n};
  for (ValueId v : r.g.node(n).operands) {
    const NodeId p = producer_of(r.g, v);
    if (op(r, p) == OpKind::concat && r.g.attr<graph::AxisAttr>(p) == a && one_use(r.g, v)) {
      flat.insert(flat.end(), r.g.node(p).operands.begin(), r.g.node(p).operands.end());
      matched.push_back(p);
    } else if (shape(r, v)[static_cast<size_t>(a.axis)].is_const(0)) {
      matched.push_back(p);  // adds nothing
    } else {
      flat.push_back(v);
    }
  }
  if (matched.size() == 1 || flat.empty() || flat.size() > graph::kWidestConcat || !r.begin(matched)) return false;
  r.replace(r.result(n), r.g.add(OpKind::concat, flat, a));
  return true;
}

// A slice along the axis of a concat that lies inside one of the parts.
bool slice_of_concat(Rewriter& r, NodeId n) {
  const auto p = op(r, n) == OpKind::slice ? inner(r, n, OpKind::concat) : std::nullopt;
  if (!p) return false;
  const size_t axis = static_cast<size_t>(r.g.attr<graph::AxisAttr>(*p).axis);
  graph::SliceAttr a = r.g.attr<graph::SliceAttr>(n);
  if (a.steps[axis] != 1) return false;
  const Expr start = a.starts[axis], end = start + shape(r, r.result(n))[axis];
  Expr from = r.g.sym().constant(0);
  for (ValueId part : r.g.node(*p).operands) {
    const Expr to = from + shape(r, part)[axis];
    if (sym::proved(sym::le(from, start)) && sym::proved(sym::le(end, to))) {
      if (!r.begin({n, *p})) return false;
      a.starts[axis] = start - from;
      r.replace(r.result(n), r.g.add_given(OpKind::slice, {part}, a, r.g.type(r.result(n))));
      return true;
    }
    from = to;
  }
  return false;
}

// --- gather ---------------------------------------------------------------------------------------------------------

// Evenly spaced constant indices: a slice. Only where the dim is known, for a slice checks no bounds.
bool gather_as_slice(Rewriter& r, NodeId n) {
  if (op(r, n) != OpKind::gather) return false;
  const ValueId x = input(r, n), indices = r.g.node(n).operands[1];
  const size_t axis = static_cast<size_t>(r.g.attr<graph::AxisAttr>(n).axis);
  const auto dim = shape(r, x)[axis].constant();
  auto at = r.g.int_values(indices);
  if (!dim || !at || at->empty() || r.g.type(indices).rank() > 1) return false;
  for (int64_t& i : *at) i += i < 0 ? *dim : 0;
  const int64_t step = at->size() > 1 ? (*at)[1] - (*at)[0] : 1;
  for (size_t i = 1; i < at->size(); ++i)
    if ((*at)[i] - (*at)[i - 1] != step) return false;
  if (step == 0 || !r.begin({n})) return false;
  graph::SliceAttr a;
  a.starts.assign(shape(r, x).size(), r.g.sym().constant(0));
  a.steps.assign(shape(r, x).size(), 1);
  a.starts[axis] = r.g.sym().constant((*at)[0]);
  a.steps[axis] = step;
  Type t = Type::make(r.g.type(x).dtype, shape(r, x));
  t.shape[axis] = r.g.sym().constant(static_cast<int64_t>(at->size()));
  const ValueId y = r.g.add_given(OpKind::slice, {x}, a, t);
  r.replace(r.result(n), r.g.reshape(y, shape(r, r.result(n))));
  return true;
}

// --- reductions -----------------------------------------------------------------------------------------------------

// Over no dims, or over dims of 1: a view. (arg_max over one element is 0, which is not the operand.)
bool reduce_of_ones(Rewriter& r, NodeId n) {
  const OpKind k = op(r, n);
  if (!graph::has(k, graph::kReduction) || k == OpKind::arg_max || k == OpKind::arg_min) return false;
  for (int axis : r.g.attr<graph::ReduceAttr>(n).axes)
    if (!shape(r, input(r, n))[static_cast<size_t>(axis)].is_const(1)) return false;
  if (!r.begin({n})) return false;
  r.replace(r.result(n), r.g.reshape(input(r, n), shape(r, r.result(n))));
  return true;
}

}  // namespace

void moves(Rewriter& r) {
  apply_rules(r, {same_shape_move, reshape_of_reshape, transpose_as_view, transpose_of_transpose,
                  transpose_of_merged,
                  broadcast_of_broadcast, tile_of_ones, whole_slice, slice_of_slice, empty_pad, concat_of_concat,
                  slice_of_concat, gather_as_slice, reduce_of_ones});
}

}  // namespace tripod::graph_opt
