// Elementwise ops with a constant operand that varies along one axis only, as y = x * scale[i] + shift[i]: what batch
// norms are, and what exporters write instead of them. Computed in doubles, so that a chain of them is rounded once.
#pragma once

#include "graph_opt/pass.h"

namespace tripod::graph_opt {

struct Affine {
  std::vector<double> scale, shift;  // one for each index of the axis

  static Affine identity(int64_t n) { return {std::vector<double>(static_cast<size_t>(n), 1), std::vector<double>(static_cast<size_t>(n), 0)}; }
  bool scales() const;
  bool shifts() const;
  bool finite() const;
  // This one, then `next`.
  Affine then(const Affine& next) const;
};

// Node n as a function of its operand x along an axis of `extent` indices; nothing when it is not affine, changes the
// shape, or its constants vary along other axes.
std::optional<Affine> as_affine(const Graph& g, NodeId n, ValueId x, int axis, int64_t extent);

// What the nodes behind v make of it, as far as each is the only reader of the one before.
struct AffineChain {
  Affine affine;
  std::vector<NodeId> nodes;
  ValueId end;  // the last result; v itself without nodes
};
AffineChain chain_behind(const Graph& g, ValueId v, int axis, int64_t extent);
// The same for what lies in front of v, of which v is the result: only nodes that nobody else reads.
AffineChain chain_before(const Graph& g, ValueId v, int axis, int64_t extent);  // end: where it starts

}  // namespace tripod::graph_opt
