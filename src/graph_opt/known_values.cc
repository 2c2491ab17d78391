// Values all of whose elements are known as expressions become constants, or `sym_values` where dims are in them: the
// end of the shape arithmetic that exporters write.
#include "base/float_bits.h"
#include "graph_opt/pass.h"

namespace tripod::graph_opt {

namespace {

// The host program computes sym_values one by one: more than these are better left to a kernel.
constexpr size_t kMaxSymbolic = 64;

bool is_source(OpKind op) {
  return graph::has(op, graph::kSource) || op == OpKind::read_dim || op == OpKind::copy;
}

bool all_constant(const std::vector<Expr>& elements) {
  for (Expr e : elements)
    if (!e.is_const()) return false;
  return true;
}

ValueId as_constant(Graph& g, const Type& t, const std::vector<Expr>& elements) {
  std::vector<std::byte> bytes(static_cast<size_t>(byte_size(t.dtype, static_cast<int64_t>(elements.size()))));
  for (size_t i = 0; i < elements.size(); ++i)
    store_int(t.dtype, bytes.data(), static_cast<int64_t>(i), elements[i].value());
  return g.add_constant(t, own_bytes(std::move(bytes)));
}

}  // namespace

void known_values(Rewriter& r) {
  for (NodeId n : r.order()) {
    if (r.dead(n)) continue;
    // Symbolic ones too end in a constant when all of them happen to be.
    const bool symbolic = r.g.node(n).op == OpKind::sym_values;
    if (is_source(r.g.node(n).op) && !symbolic) continue;
    const ValueId v = r.result(n);
    const auto& known = r.g.value(v).contents;
    if (!known || (r.g.value(v).users.empty() && !r.g.is_output(v))) continue;
    const bool constant = all_constant(*known);
    if (!constant && (symbolic || known->size() > kMaxSymbolic)) continue;
    if (!r.begin({n})) return;
    const Type t = r.g.type(v);
    r.replace(v, constant ? as_constant(r.g, t, *known)
                          : r.g.add_given(OpKind::sym_values, {}, graph::ExprsAttr{*known}, t));
  }
}

}  // namespace tripod::graph_opt
