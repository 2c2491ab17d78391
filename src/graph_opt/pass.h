// What the passes of `simplify` share.
//
// A pass walks the nodes of one graph, and where it finds something better it calls begin(), adds the new nodes and
// calls replace(). Everything else (the limit on rewrites, origins, names, nodes that died) happens in there:
//
//   for (NodeId n : r.order()) {
//     if (!is_double_negation(r.g, n) || !r.begin({n})) continue;
//     r.replace(r.result(n), x);
//   }
//
// A pass leaves a legal graph behind, but nodes need not be in order while it runs. Nodes that it adds are not visited
// in the same run: simplify starts its list of passes again after every change.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph_opt/simplify.h"

namespace tripod::graph_opt {

using graph::Attr;
using graph::Expr;
using graph::Graph;
using graph::Ints;
using graph::kNoValue;
using graph::Node;
using graph::NodeId;
using graph::OpKind;
using graph::Shape;
using graph::Type;
using graph::ValueId;

// Rewrites left over the whole of simplify().
struct Budget {
  int64_t limit = -1;  // -1: any number
  int64_t used = 0;
  std::string_view pass;               // at work
  // Of the last rewrite, where there is a limit: its pass, and the ops that it matched with their ONNX nodes.
  std::string_view last_pass;
  std::vector<std::string> matched;
};

class Rewriter {
 public:
  Rewriter(Graph& graph, Budget& budget, graph::Evaluator* evaluator, bool small_weights)
      : g(graph), evaluator(evaluator), small_weights(small_weights), budget_(budget) {}

  Graph& g;
  graph::Evaluator* const evaluator;  // may be null
  const bool small_weights;           // of SimplifyOptions

  // Live nodes in order, as they were before the pass; skip those that died since.
  std::vector<NodeId> order() const { return g.order(); }
  bool dead(NodeId n) const { return g.node(n).dead; }
  ValueId result(NodeId n) const { return g.node(n).results[0]; }

  // May one more rewrite be made? Called when a match is complete, before the first edit. Nodes that are added from
  // here on come from all of `matched`.
  bool begin(const std::vector<NodeId>& matched);
  // `to` takes the place of `from`, and its name if it was made since begin(); what nobody needs any more dies. Where
  // the dims are equal but written differently, a reshape keeps the type that users were built for.
  void replace(ValueId from, ValueId to);
  // The node reads `to` at `slot`; what it read before may die.
  void set_operand(NodeId n, int slot, ValueId to);
  // Erases the node if nothing uses it and it can go, then what only it used.
  void erase_unused(NodeId n);
  bool changed() const { return changed_; }

 private:
  Budget& budget_;
  NodeId first_new_ = 0;
  bool changed_ = false;
};

using PassFunction = void (*)(Rewriter&);

// Tries the rules on every node, each until it applies. A rule returns whether it edited the graph.
using Rule = bool (*)(Rewriter&, NodeId);
void apply_rules(Rewriter& r, std::initializer_list<Rule> rules);

// --- looking ------------------------------------------------------------------------------------------------------

// Nobody but one operand slot reads v.
bool one_use(const Graph& g, ValueId v);
// Operand i, or kNoValue when there are not so many.
ValueId operand(const Graph& g, NodeId n, size_t i);
NodeId producer_of(const Graph& g, ValueId v);
bool same_shape(const Graph& g, ValueId a, ValueId b);
// Every dim is a constant.
std::optional<Ints> static_shape(const Type& t);
std::optional<int64_t> static_size(const Type& t);
// The one number in a float or integer constant.
bool is_number(const Graph& g, ValueId v, double number);
// As above up to f32 rounding: exporters write 1.4142135 and 1.41421354.
bool is_about(const Graph& g, ValueId v, double number);
bool about(double a, double b);
// For a binary op with a constant operand of one number: the number and the other operand, in either order when the
// op commutes, else (x op number).
struct WithNumber {
  ValueId x;
  double number;
};
std::optional<WithNumber> with_number(const Graph& g, NodeId n);

// A new constant of a float type from numbers, each rounded once.
ValueId float_constant(Graph& g, DType t, const Ints& dims, const std::vector<double>& values);
// The bytes of a constant, to be filled in.
graph::ConstAttr own_bytes(std::vector<std::byte> bytes);

// --- the passes, one a file -----------------------------------------------------------------------------------------

void known_values(Rewriter& r);
void captures(Rewriter& r);
void algebra(Rewriter& r);
void moves(Rewriter& r);
void fold(Rewriter& r);
void cse(Rewriter& r);
void softmaxes(Rewriter& r);
void activations(Rewriter& r);
void norms(Rewriter& r);
void attentions(Rewriter& r);
void rotaries(Rewriter& r);
void transposes(Rewriter& r);
void pads(Rewriter& r);
void fold_scale(Rewriter& r);
void batch_norm(Rewriter& r);
void disjoint_windows(Rewriter& r);

}  // namespace tripod::graph_opt
