// Batch norms with constant parameters that no convolution took: one multiplication and one addition a channel.
#include "graph_opt/affine.h"

namespace tripod::graph_opt {

namespace {

bool decompose(Rewriter& r, NodeId n) {
  if (r.g.node(n).op != OpKind::batch_norm) return false;
  const ValueId x = r.g.node(n).operands[0];
  const Type t = r.g.type(x);
  const auto channels = t.shape[1].constant();
  const auto a = channels ? as_affine(r.g, n, x, 1, *channels) : std::nullopt;
  if (!a || !r.begin({n})) return false;
  // Parameters of few bits would be rounded before they are used.
  const DType wide = compute_type(t.dtype);
  Ints dims(t.shape.size() - 1, 1);
  dims[0] = *channels;
  ValueId y = wide == t.dtype ? x : r.g.add(OpKind::cast, {x}, graph::CastAttr{wide, true});
  y = r.g.add(OpKind::mul, {y, float_constant(r.g, wide, dims, a->scale)});
  y = r.g.add(OpKind::add, {y, float_constant(r.g, wide, dims, a->shift)});
  r.replace(r.result(n), wide == t.dtype ? y : r.g.add(OpKind::cast, {y}, graph::CastAttr{t.dtype, true}));
  return true;
}

}  // namespace

void batch_norm(Rewriter& r) { apply_rules(r, {decompose}); }

}  // namespace tripod::graph_opt
