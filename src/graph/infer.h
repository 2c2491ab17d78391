// Type inference inside src/graph: the rules see the graph read-only and hand back what they could not prove.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace tripod::graph {

using Requirements = std::vector<Module::Requirement>;

// What a shape rule sees. Operands are counted from 1 in messages, as users count the inputs of an ONNX node.
class Rule {
 public:
  Rule(const Graph& g, OpKind op, const std::vector<ValueId>& operands, const Attr& attr, Requirements& required)
      : g(g), op(op), operands(operands), attr(attr), required_(required) {}

  const Graph& g;
  const OpKind op;
  const std::vector<ValueId>& operands;
  const Attr& attr;

  int count() const { return static_cast<int>(operands.size()); }
  bool has(int i) const { return i < count() && operands[static_cast<size_t>(i)] != kNoValue; }
  const Type& type(int i) const { return g.type(operands[static_cast<size_t>(i)]); }
  const Shape& shape(int i) const { return type(i).shape; }
  Expr dim(int i, int axis) const { return type(i).shape[static_cast<size_t>(axis)]; }
  DType dtype(int i) const { return type(i).dtype; }
  int rank(int i) const { return type(i).rank(); }
  template <class A>
  const A& as() const { return std::get<A>(attr); }
  Expr constant(int64_t v) const { return g.sym().constant(v); }

  // Must hold: an error with `what` when provably false, a requirement when unknown. `sizes`: what `what` speaks of.
  void require(Expr condition, std::string what, std::vector<Expr> sizes = {});
  // a and b are one dim; returns the one that says more (a constant, else a).
  Expr same(Expr a, Expr b, std::string what);
  // Operand i must be an existing tensor of a rank (-1: any).
  void tensor(int i, int rank = -1) const;
  // Operands i and j must have one element type.
  void same_dtype(int i, int j) const;
  void check_axis(int64_t axis, int rank) const;  // 0 <= axis < rank
  // Operand i, where there is one, is a vector of `length` (a bias, a scale of channels).
  void vector_of(int i, Expr length, std::string_view name);
  Shape broadcast(const Shape& a, const Shape& b, std::string_view names);
  // Operand i broadcasts to `shape` without widening it.
  void broadcasts_to(int i, const Shape& shape, std::string_view name);

 private:
  Requirements& required_;
};

// The rules' entry without side effects on the module.
std::vector<Type> infer_types(const Graph& g, OpKind op, const std::vector<ValueId>& operands, const Attr& attr,
                              Requirements& required);
// Checks given result types: against the rule's (dtypes equal, dims not provably different), or what can be said of
// a `given` op.
void check_types(const Graph& g, OpKind op, const std::vector<ValueId>& operands, const Attr& attr,
                 const std::vector<Type>& types, Requirements& required);
// The checks of the ops with the rule `given`.
void check_given(Rule& r, const std::vector<Type>& types);

// Appends those whose condition is new. Origins are filled in where they are empty.
void merge_requirements(Module& m, const Requirements& required, const std::vector<Site>& origins);

// For messages.
std::string shape_text(const Shape& s);
std::string operand_text(int i);  // "operand 2"

}  // namespace tripod::graph
