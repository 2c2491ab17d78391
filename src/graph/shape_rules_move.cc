// transpose, concat, pad, gather, gather_elements, gather_nd.
#include "graph/shape_rules.h"

namespace tripod::graph::rules {

Types transpose(Rule& r) {
  r.tensor(0);
  const auto& perm = r.as<PermAttr>().perm;
  std::vector<bool> seen(perm.size(), false);
  bool ok = perm.size() == r.shape(0).size();
  for (int p : perm) {
    ok = ok && p >= 0 && p < r.rank(0) && !seen[static_cast<size_t>(p)];
    if (ok) seen[static_cast<size_t>(p)] = true;
  }
  if (!ok) throw ShapeError("perm is not a permutation of the " + std::to_string(r.rank(0)) + " dims of operand 1");
  Shape s;
  for (int p : perm) s.push_back(r.dim(0, p));
  return {Type::make(r.dtype(0), std::move(s))};
}

Types concat(Rule& r) {
  r.tensor(0);
  const int axis = r.as<AxisAttr>().axis;
  r.check_axis(axis, r.rank(0));
  Shape s = r.shape(0);
  for (int i = 1; i < r.count(); ++i) {
    r.tensor(i, r.rank(0));
    r.same_dtype(0, i);
    for (int d = 0; d < r.rank(0); ++d) {
      Expr& out = s[static_cast<size_t>(d)];
      if (d == axis)
        out = out + r.dim(i, d);
      else
        out = r.same(out, r.dim(i, d), "operands 1 " + shape_text(r.shape(0)) + " and " + std::to_string(i + 1) + " " +
                                           shape_text(r.shape(i)) + " differ in dim " + std::to_string(d) +
                                           ", which is not the axis");
    }
  }
  return {Type::make(r.dtype(0), std::move(s))};
}

Types pad(Rule& r) {
  r.tensor(0);
  const auto& a = r.as<PadAttr>();
  if (a.begin.size() != r.shape(0).size() || a.end.size() != r.shape(0).size())
    throw ShapeError("pads of " + std::to_string(a.begin.size()) + " and " + std::to_string(a.end.size()) +
                     " dims for an operand of rank " + std::to_string(r.rank(0)));
  if (r.has(1)) {
    r.same_dtype(0, 1);
    if (!element_count(r.g.sym(), r.shape(1)).is_const(1))
      throw ShapeError("the fill value must be a scalar, it is " + text(r.type(1)));
  }
  Shape s;
  for (int d = 0; d < r.rank(0); ++d) {
    const size_t k = static_cast<size_t>(d);
    const Expr n = r.dim(0, d);
    const std::string where = " in dim " + std::to_string(d);
    const bool none = a.begin[k].is_const(0) && a.end[k].is_const(0);
    if (!none) {
      r.require(sym::ge(a.begin[k], 0), "the pad " + sym::text(a.begin[k]) + " is negative" + where);
      r.require(sym::ge(a.end[k], 0), "the pad " + sym::text(a.end[k]) + " is negative" + where);
    }
    // The other modes read elements of x: there must be one (reflect: one beside the edge).
    if (a.mode != PadAttr::constant && !none)
      r.require(sym::ge(n, 1), "an empty dim cannot be padded with its own elements" + where);
    s.push_back(n + a.begin[k] + a.end[k]);
  }
  return {Type::make(r.dtype(0), std::move(s))};
}

namespace {

void check_indices(const Rule& r) {
  r.tensor(1);
  if (!is_int(r.dtype(1))) throw ShapeError("the indices (operand 2) must be integers, they are " + text(r.type(1)));
}

}  // namespace

Types gather(Rule& r) {
  r.tensor(0);
  check_indices(r);
  const int axis = r.as<AxisAttr>().axis;
  r.check_axis(axis, r.rank(0));
  // Indices known now are checked now.
  const auto extent = r.dim(0, axis).constant();
  if (auto index = r.g.int_values(r.operands[1]); index && extent)
    for (int64_t i : *index)
      if (i < -*extent || i >= *extent)
        throw ShapeError("index " + std::to_string(i) + " is out of bounds for dim " + std::to_string(axis) + " of " +
                         shape_text(r.shape(0)));
  const Shape& x = r.shape(0);
  Shape s(x.begin(), x.begin() + axis);
  s.insert(s.end(), r.shape(1).begin(), r.shape(1).end());
  s.insert(s.end(), x.begin() + axis + 1, x.end());
  return {Type::make(r.dtype(0), std::move(s))};
}

Types gather_elements(Rule& r) {
  r.tensor(0);
  check_indices(r);
  r.check_axis(r.as<AxisAttr>().axis, r.rank(0));
  if (r.rank(1) != r.rank(0))
    throw ShapeError("data " + shape_text(r.shape(0)) + " and indices " + shape_text(r.shape(1)) +
                     " must have one rank");
  return {Type::make(r.dtype(0), r.shape(1))};
}

Types gather_nd(Rule& r) {
  r.tensor(0);
  check_indices(r);
  const int64_t batch = r.as<AxisAttr>().value;
  if (r.rank(1) < 1 || batch < 0 || batch >= r.rank(1) || batch >= r.rank(0))
    throw ShapeError(std::to_string(batch) + " batch dims do not fit data " + shape_text(r.shape(0)) +
                     " and indices " + shape_text(r.shape(1)));
  const auto depth = r.shape(1).back().constant();
  if (!depth || *depth < 1 || batch + *depth > r.rank(0))
    throw ShapeError("the last dim of the indices " + shape_text(r.shape(1)) + " must be a constant from 1 to " +
                     std::to_string(r.rank(0) - batch));
  Shape s;
  for (int i = 0; i < batch; ++i)
    s.push_back(r.same(r.dim(0, i), r.dim(1, i), "batch dim " + std::to_string(i) + " differs: data " +
                                                     shape_text(r.shape(0)) + ", indices " + shape_text(r.shape(1))));
  s.insert(s.end(), r.shape(1).begin() + batch, r.shape(1).end() - 1);
  s.insert(s.end(), r.shape(0).begin() + batch + *depth, r.shape(0).end());
  return {Type::make(r.dtype(0), std::move(s))};
}

}  // namespace tripod::graph::rules
