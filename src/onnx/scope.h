// The state of one import, and the names visible at one place of the model.
//
// Import: everything there is one of per model. Scope: one per ONNX graph or function body being imported. A scope
// writes into a graph::Graph; several scopes may share one (the branch of an If whose condition is known and the body
// of a function are expanded in place). A name that is not found in a scope is looked for in its parent; when that
// belongs to another Graph, the value becomes a capture: an input of the inner graph, and later an operand of the
// control-flow node. Constants and known shape contents are made anew in the inner graph instead.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "onnx/import.h"
#include "onnx/op_importer.h"
#include "onnx/tensors.h"

namespace tripod::importer {

using NodeList = google::protobuf::RepeatedPtrField<::onnx::NodeProto>;
using Opsets = std::map<std::string, int>;  // by domain; "ai.onnx" is ""

inline constexpr ValueId kBadValue = -2;  // made by a node that could not be imported

inline constexpr uint32_t kMaxDimSize = 4096;  // operations in the expression of one dim

// A node that only uses bad values: nothing more is said about it.
struct Poisoned {};
// An If needs a decision (ImportOptions::decisions): ends the import.
struct NeedsDecision {};

// The protobufs, alive as long as a constant shares their bytes. Expanded functions add nodes of their own.
struct Source {
  ::onnx::ModelProto model;
  std::deque<::onnx::NodeProto> expanded;
};

// What belongs to a graph::Graph while it is imported.
struct GraphState {
  std::map<ValueId, sym::Range> ranges;  // of values that are not known but bounded: a loop's iteration number
  int read_depth = 0;  // how deep NodeContext::dims is in its recursion
  std::map<std::pair<ValueId, int64_t>, std::vector<Expr>> read;  // (value, range.lo) -> NodeContext::dims
};

class Scope;

class Import {
 public:
  Import(std::shared_ptr<Source> source, std::string folder, const ImportOptions& options, Diagnostics& diagnostics);
  ImportResult run();

  const ::onnx::ModelProto& model() const { return source->model; }
  void error(const Site& site, std::string message, std::string hint = "");
  // The row that imports op at that opset; nothing when there is none.
  const Row* find_row(const std::string& domain, const std::string& op, int opset) const;
  const ::onnx::FunctionProto* find_function(const ::onnx::NodeProto& node) const;
  std::string why_no_row(const std::string& domain, const std::string& op, int opset, std::string& hint) const;
  // A new graph of the module for a body in graph `parent`; its index is higher. abandon_graphs() takes back all but
  // the first `keep` that were made: their ids are used again.
  int32_t add_graph(const std::string& name, int32_t parent);
  void abandon_graphs(size_t keep);
  // A tensor as a constant of g. Throws NodeError.
  ValueId constant(Graph& g, const ::onnx::TensorProto& t);
  // The type that the model declares. Throws NodeError when it is not one we know.
  Type declared_type(const ::onnx::TypeProto& t, const std::string& value_name);

  std::shared_ptr<Source> source;
  const ImportOptions& options;
  Diagnostics& diagnostics;
  std::unique_ptr<graph::Module> module;
  TensorReader tensors;
  std::map<std::string, Expr> dim_params;
  std::unordered_map<int32_t, GraphState> states;  // by index of the graph
  std::vector<int32_t> made_graphs, free_graphs;
  std::vector<std::string> decided;          // conditions, see ImportResult::decisions
  std::vector<std::pair<Expr, bool>> facts;  // conditions that a decision made true or false
  int function_depth = 0;
  int64_t expanded_nodes = 0;

 private:
  void check_model();
  void bind_options();
  void read_inputs(Scope& scope);
  void check_default(const ::onnx::ValueInfoProto& input, ValueId v, const Site& site);
  void check_declared(const ::onnx::ValueInfoProto& value, ValueId v, const Site& site);
  Expr symbol_for(const std::string& dim_param);
  std::map<std::pair<std::string, std::string>, std::vector<const Row*>> rows_;
  std::map<std::tuple<std::string, std::string, std::string>, const ::onnx::FunctionProto*> functions_;
  std::map<std::string, int64_t> pinned_;  // dim_params that --shape makes constant
  friend class Scope;
};

class Scope {
 public:
  Scope(Import& import, Graph& g, int32_t graph_index, Scope* parent, std::string path, const Opsets& opsets)
      : import(import), g(g), graph_index(graph_index), parent(parent), path(std::move(path)), opsets(opsets) {}

  // The value a name stands for, kBadValue included; nothing when the name is not defined.
  std::optional<ValueId> find(const std::string& name);
  // False (and an error) when the name is defined in this scope already.
  bool define(const std::string& name, ValueId v, const Site& site);

  void import_initializers(const ::onnx::GraphProto& graph);
  void import_nodes(const NodeList& nodes);
  void import_node(const ::onnx::NodeProto& node, int index);
  GraphState& state() { return import.states[graph_index]; }

  // For control flow. Imports `body` in place, in a scope below this one, with its inputs bound to the values given;
  // returns its outputs. Throws Poisoned when one is bad.
  std::vector<ValueId> import_inline(const ::onnx::GraphProto& body, const std::vector<ValueId>& inputs,
                                     const std::string& path);
  // Imports `body` into graph `index`, a new one, whose inputs get the types given. The outputs are returned, not
  // set; `captures` gets (and at first holds) the outer values that become operands, in the order of the inputs.
  // With `counts`, the first input is the number of an iteration. Types beyond the body's inputs become inputs of the
  // graph that the body does not see.
  std::vector<ValueId> import_graph(const ::onnx::GraphProto& body, int32_t index, const std::vector<Type>& inputs,
                                    const std::string& path, std::vector<ValueId>& captures, bool counts = false);

  Import& import;
  Graph& g;
  const int32_t graph_index;
  Scope* const parent;     // null: the main graph, or a function's body
  const std::string path;  // in front of node names in messages: "if_3/then_branch/"
  const Opsets& opsets;
  std::vector<ValueId>* captures = nullptr;  // set where this scope starts a Graph of its own

 private:
  ValueId capture(ValueId outer);
  std::vector<ValueId> run(const ::onnx::NodeProto& node, const Site& site);
  std::vector<ValueId> expand(const ::onnx::FunctionProto& f, const ::onnx::NodeProto& node, const Site& site);
  std::vector<ValueId> operands(const ::onnx::NodeProto& node);
  std::vector<ValueId> outputs(const ::onnx::GraphProto& body, const std::string& path);
  void check_size(ValueId v) const;
  void evaluate_constants(graph::NodeId first, std::vector<ValueId>& results);
  Site site_of(const ::onnx::NodeProto& node, int index) const;
  std::unordered_map<std::string, ValueId> names_;
};

// The order in which nodes can be imported: stable, producers first. Cycles and names that nothing defines are
// reported; the nodes concerned are left out. `defined` says whether a name is known before any node runs.
std::vector<int> order_nodes(Import& import, const NodeList& nodes,
                             const std::function<bool(const std::string&)>& defined,
                             const std::function<Site(int)>& site_of);
// Names that a graph uses and does not define: what a node with this sub-graph depends on.
void free_names(const ::onnx::GraphProto& graph, std::set<std::string>& names);
// A function's node with the attributes it refers to (ref_attr_name) filled in from the call.
::onnx::NodeProto with_attributes(const ::onnx::NodeProto& node,
                                  const std::map<std::string, const ::onnx::AttributeProto*>& given);

std::string domain_of(const std::string& domain);  // "ai.onnx" becomes ""

}  // namespace tripod::importer
