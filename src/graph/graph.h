// The graph IR: what the model computes, on tensors, before any loop exists.
//
// A Module owns the sym::Context and the graphs; graphs[0] is the model, the others are bodies of if, loop and scan.
// Each body belongs to one node and has a higher index than the graph of that node.
// A Graph owns dense arrays of nodes and values; ids are 32-bit indices that stay valid until compact(). Every value
// has exactly one producer (inputs are produced by `input` nodes), and a list of its users that the editing functions
// below keep true. Nodes are in an order where producers come before users, except while a pass is at work;
// Graph::sort() restores it. A missing optional operand is kNoValue.
//
// Types are complete from the start: Graph::add() applies the op's shape rule, so no node exists without the types
// of its results. Small integer tensors whose elements are known as expressions carry them (Value::contents); that
// is how shape arithmetic disappears.
//
// Every node remembers the ONNX nodes it came from (origins), through every rewrite.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/diagnostic.h"
#include "graph/op_table.h"
#include "graph/types.h"

namespace tripod::graph {

using NodeId = int32_t;
using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;

struct Value {
  std::string name;      // unique in its graph; the ONNX name where there was one
  Type type;
  NodeId producer = -1;
  int result = 0;        // which result of the producer
  std::vector<NodeId> users;  // one entry for each operand slot that names this value
  // The elements, row-major, where all are known (constants included) and there are at most kMaxContents.
  std::optional<std::vector<Expr>> contents;
};
inline constexpr int64_t kMaxContents = 1024;

struct Node {
  OpKind op;
  std::vector<ValueId> operands;
  std::vector<ValueId> results;
  Attr attr;
  std::vector<Site> origins;
  bool dead = false;
};

// What a shape rule says when operands do not fit. It is a CompileError; add() and add_node() fill in the site (the
// first of the current origins), infer() leaves it empty. what() is the plain message.
struct ShapeError : CompileError {
  explicit ShapeError(std::string message) : CompileError(Site{}, std::move(message)) {}
  ShapeError(const Site& site, std::string message) : CompileError(site, std::move(message)) {}
  const char* what() const noexcept override { return diagnostics.errors()[0].message.c_str(); }
};

class Module;

class Graph {
 public:
  Graph(Module* module, std::string name) : name_(std::move(name)), module_(module) {}

  // --- building -------------------------------------------------------------------------------------------------
  ValueId add_input(std::string_view name, Type type);
  // Adds a node, its types from the op's shape rule; returns its first result. Throws ShapeError when operands do not
  // fit.
  ValueId add(OpKind op, std::vector<ValueId> operands, Attr attr = NoAttr{});
  // Adds a node whose result types are given (ops with the rule `given`, or several results).
  NodeId add_node(OpKind op, std::vector<ValueId> operands, Attr attr, std::vector<Type> result_types);
  ValueId add_given(OpKind op, std::vector<ValueId> operands, Attr attr, Type result_type);
  ValueId add_constant(DType dtype, const Ints& shape, const void* bytes);       // copies
  ValueId add_constant(Type type, ConstAttr bytes);                             // shares
  ValueId scalar(DType dtype, double value);                                    // rank 0
  ValueId add_ints(const std::vector<int64_t>& values);                         // i64, 1-D
  ValueId add_exprs(const std::vector<Expr>& values, DType dtype = DType::i64); // sym_values, 1-D (const when all are)
  ValueId reshape(ValueId x, Shape shape);                                      // x itself when it has that shape
  void set_outputs(std::vector<ValueId> outputs, std::vector<std::string> names);
  // Nodes added from here on come from these ONNX nodes (the importer sets it for each node, rewrites for each match).
  void set_origins(std::vector<Site> origins) { origins_ = std::move(origins); }
  const std::vector<Site>& origins() const { return origins_; }
  // Renames a value; the name is made unique (".1", ...) when another value has it.
  void set_name(ValueId v, std::string_view wanted);

  // --- looking --------------------------------------------------------------------------------------------------
  const std::string& name() const { return name_; }
  Module& module() const { return *module_; }
  sym::Context& sym() const;
  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<ValueId>& outputs() const { return outputs_; }
  const std::vector<std::string>& output_names() const { return output_names_; }
  int num_nodes() const { return static_cast<int>(nodes_.size()); }   // dead ones included
  int num_values() const { return static_cast<int>(values_.size()); }
  const Node& node(NodeId n) const { return nodes_[n]; }
  Node& node(NodeId n) { return nodes_[n]; }
  const Value& value(ValueId v) const { return values_[v]; }
  Value& value(ValueId v) { return values_[v]; }
  const Type& type(ValueId v) const { return values_[v].type; }
  const Node& producer(ValueId v) const { return nodes_[values_[v].producer]; }
  bool is(ValueId v, OpKind op) const { return v != kNoValue && producer(v).op == op; }
  bool is_constant(ValueId v) const { return is(v, OpKind::constant); }
  bool is_output(ValueId v) const;
  // Live nodes in order. The list is a copy: passes may edit while they walk it.
  std::vector<NodeId> order() const;
  template <class A>
  const A& attr(NodeId n) const { return std::get<A>(nodes_[n].attr); }

  // Constants, read as numbers: nothing when v is not a constant (or sym_values of constants).
  std::optional<std::vector<double>> float_values(ValueId v) const;
  std::optional<std::vector<int64_t>> int_values(ValueId v) const;
  std::optional<double> scalar_value(ValueId v) const;  // of a constant all of whose elements are equal
  const ConstAttr& bytes(ValueId v) const;

  // --- editing --------------------------------------------------------------------------------------------------
  // Outputs too; types must agree. Node `except` keeps its operands (`to` computed from `from` in front of the rest).
  void replace_uses(ValueId from, ValueId to, NodeId except = -1);
  void set_operand(NodeId n, int slot, ValueId v);
  void erase(NodeId n);                          // results must be unused
  // Returns how many nodes went. Nodes that define a data symbol stay as long as anything live mentions the symbol.
  int remove_dead();
  void sort();                                   // producers before users, otherwise stable
  void compact();                                // sort, drop dead nodes and values; ids change

 private:
  std::string unique_name(std::string_view wanted);
  ValueId new_value(NodeId producer, int result, Type type);
  NodeId append(OpKind op, std::vector<ValueId> operands, Attr attr, std::vector<Type> result_types);
  std::string name_;
  Module* module_;
  // Deques: references to nodes, values and their types stay valid while nodes are added.
  std::deque<Node> nodes_;
  std::deque<Value> values_;
  std::vector<NodeId> order_;  // sort() permutes this, not the nodes: ids stay
  std::vector<ValueId> inputs_, outputs_;
  std::vector<std::string> output_names_;
  std::vector<Site> origins_;
  std::unordered_map<std::string, int> names_;  // taken names, and the next suffix to try after each
};

class Module {
 public:
  Module();
  Module(const Module&) = delete;
  sym::Context& sym() { return *sym_; }
  Graph& main() { return *graphs_[0]; }
  const Graph& main() const { return *graphs_[0]; }
  Graph& graph(int32_t i) { return *graphs_[i]; }
  const Graph& graph(int32_t i) const { return *graphs_[i]; }
  int32_t num_graphs() const { return static_cast<int32_t>(graphs_.size()); }
  int32_t add_graph(std::string name);
  // Drops the graphs that main does not lead to; the indices of the others change.
  void remove_unreachable();

  std::string name;                                       // of the model
  std::vector<std::pair<std::string, std::string>> metadata;
  // Symbols that inputs bind, in order of first occurrence, by their ONNX dim_param name (or a made-up one).
  std::vector<Expr> symbols;
  // Conditions on symbols that shape rules could not prove (two dims that must be equal, ...): checked at entry, or
  // where their data symbols become known; a violation is an error that names the node.
  struct Requirement {
    Expr condition;
    std::string what;      // "dims 1 of a and b must be equal"
    std::vector<Site> origins;
    std::vector<Expr> sizes;  // that `what` speaks of: an error shows their values
  };
  std::vector<Requirement> requirements;
  // Symbols that only the run can know: defined by read_dim or by a runtime operator.
  std::vector<Expr> data_symbols;

 private:
  std::unique_ptr<sym::Context> sym_;
  std::vector<std::unique_ptr<Graph>> graphs_;
};

// Result types of op on these operands; throws ShapeError. One rule a row of the table (graph/shape_rules_*.cc).
std::vector<Type> infer(Graph& g, OpKind op, const std::vector<ValueId>& operands, const Attr& attr);
// The contents of a result, where the operands' contents determine it (graph/contents.cc).
std::optional<std::vector<Expr>> infer_contents(const Graph& g, const Node& n, int result);

// numpy broadcasting of two shapes. Dims that are provably different (and not 1) throw ShapeError; a pair that cannot
// be proved equal is taken as equal and goes to Module::requirements (a symbolic dim is never taken to be 1).
Shape broadcast_shapes(Graph& g, const Shape& a, const Shape& b);
Expr element_count(sym::Context& c, const Shape& s);
// Everything equal, quantisation and element types by content.
bool same_type(const Type& a, const Type& b);
// Adds a requirement unless it is proved or already there. Throws ShapeError(what) when it is provably false.
void require(Graph& g, Expr condition, std::string what);

// --- text (docs/design.md section 4): exact round trip ------------------------------------------------------------
std::string text(const Module& m);
std::string text(const Graph& g);
std::string text(const Graph& g, NodeId n);
std::string text(const Type& t);
// Throws CompileError with line and column. Constants in text form are printed in full up to 64 elements and by hash
// above; a hash is looked up in `constants`.
std::unique_ptr<Module> parse(std::string_view text,
                              const std::function<ConstAttr(std::string_view sha256)>& constants = nullptr);

// Everything the header's opening comment says, checked; one message for each violation. Run after every phase in
// tests and debug builds.
std::vector<std::string> verify(const Module& m);

// Evaluates a node on constant operands; implemented by the cpu back end (so that folding computes the same bits as
// the compiled model) and handed to simplify by the driver.
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  // Nothing when the op cannot be evaluated at compile time.
  virtual std::optional<std::vector<ConstAttr>> evaluate(const Graph& g, NodeId n) = 0;
};

}  // namespace tripod::graph
