// Looking for a composite in what an exporter made of it.
//
// A Match walks from the last node of a composite towards its operands and notes every node that it steps over. In the
// end the composite may only replace them if nobody else reads what lies in between: closed().
//
//   Match m(g);
//   const auto add = m.step(v, OpKind::add);            // v is the result of an add
//   const ValueId e = add ? m.beside_number(*add, 1) : kNoValue;   // ... of something and the number 1
#pragma once

#include "graph_opt/pass.h"

namespace tripod::graph_opt {

class Match {
 public:
  explicit Match(const Graph& graph) : g(graph) {}

  const Graph& g;
  std::vector<NodeId> nodes;  // the last node of the composite first

  // The node that makes v, noted, when it is of kind k.
  std::optional<NodeId> step(ValueId v, OpKind k);
  // As step(), for ops with one operand: that operand; else kNoValue.
  ValueId through(ValueId v, OpKind k);
  // The operand of the binary op n that is not x; kNoValue when x is none of them. For ops that commute in both orders,
  // else x must be the first.
  ValueId beside(NodeId n, ValueId x) const;
  // The operand of n beside a constant of about this number.
  ValueId beside_number(NodeId n, double number) const;

  // Nobody else reads what the nodes (but the first) make.
  bool closed() const;
  // Notes the nodes of another match.
  void add(const std::vector<NodeId>& others) { nodes.insert(nodes.end(), others.begin(), others.end()); }
};

// v as coefficient * factors[0] * factors[1] ...: through products, quotients by numbers, negations and cubes, as far
// as nobody else reads what lies in between.
struct Product {
  double coefficient = 1;
  std::vector<ValueId> factors;
  std::vector<NodeId> nodes;

  // Takes x out of the factors.
  bool take(ValueId x);
  bool is_only(ValueId x) const { return factors.size() == 1 && factors[0] == x; }
};
Product product_of(const Graph& g, ValueId v);

// v as scale * x + shift with numbers; x itself as 1 * x + 0.
struct Linear {
  double scale = 1, shift = 0;
  std::vector<NodeId> nodes;
};
std::optional<Linear> linear_in(const Graph& g, ValueId v, ValueId x);

}  // namespace tripod::graph_opt
