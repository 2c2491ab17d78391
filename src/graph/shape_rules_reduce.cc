// reduce, arg_reduce.
#include "graph/shape_rules.h"

namespace tripod::graph::rules {
namespace {

Shape reduced(const Rule& r) {
  r.tensor(0);
  const auto& a = r.as<ReduceAttr>();
  std::vector<bool> gone(static_cast<size_t>(r.rank(0)), false);
  int last = -1;
  for (int axis : a.axes) {
    r.check_axis(axis, r.rank(0));
    if (axis <= last) throw ShapeError("the axes of a reduction must be sorted and distinct");
    gone[static_cast<size_t>(last = axis)] = true;
  }
  Shape s;
  for (int i = 0; i < r.rank(0); ++i) {
    if (!gone[static_cast<size_t>(i)])
      s.push_back(r.dim(0, i));
    else if (a.keep_dims)
      s.push_back(r.constant(1));
  }
  return s;
}

}  // namespace

Types reduce(Rule& r) { return {Type::make(r.dtype(0), reduced(r))}; }

Types arg_reduce(Rule& r) {
  Shape s = reduced(r);
  if (r.as<ReduceAttr>().axes.size() != 1) throw ShapeError(std::string(info(r.op).text) + " wants exactly one axis");
  return {Type::make(DType::i64, std::move(s))};
}

}  // namespace tripod::graph::rules
