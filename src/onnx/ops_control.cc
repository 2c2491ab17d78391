// If, Loop and Scan.
//
// Their bodies become graphs of the module; what a body uses from outside becomes operands (Scope::capture). Dims of
// results that the importer cannot express outside of the body are fresh data symbols, which the node defines.
#include <algorithm>
#include <functional>

#include "onnx/op_importer.h"
#include "onnx/scope.h"

namespace tripod::importer {
namespace {
using graph::SubgraphAttr;
using sym::Truth;

// The state of the module that an abandoned import of a body has to put back.
struct Mark {
  explicit Mark(Import& i)
      : import(i),
        symbols(i.module->data_symbols.size()),
        wanted(i.module->requirements.size()),
        decided(i.decided.size()),
        facts(i.facts.size()),
        graphs(i.made_graphs.size()) {}
  void roll_back() const {
    import.decided.resize(decided);
    import.facts.resize(facts);
    import.abandon_graphs(graphs);
    import.module->data_symbols.resize(symbols);
    import.module->requirements.resize(wanted);
  }
  // Does e mention a data symbol made since?
  bool is_inner(Expr e) const {
    const auto& all = import.module->data_symbols;
    for (Expr v : sym::variables(e))
      if (std::find(all.begin() + static_cast<int64_t>(symbols), all.end(), v) != all.end()) return true;
    return false;
  }
  Import& import;
  size_t symbols, wanted, decided, facts, graphs;
};

std::vector<std::string> names_of(const ::onnx::GraphProto& body) {
  std::vector<std::string> r;
  for (const auto& o : body.output()) r.push_back(o.name());
  return r;
}

ValueId condition(NodeContext& c, ValueId v) {
  if (c.dtype(v) != DType::b1) c.fail("the condition must be bool, it is " + c.text(v));
  return c.reshape(v, {});
}

bool depends_on_data(const NodeContext& c, Expr e) {
  const auto& data = c.g.module().data_symbols;
  for (Expr v : sym::variables(e))
    if (std::find(data.begin(), data.end(), v) != data.end()) return true;
  return false;
}

// --- if -----------------------------------------------------------------------------------------------------------

struct Branch {
  int32_t graph;
  std::vector<ValueId> outputs;
  size_t first_requirement, last_requirement;
};

Branch import_branch(NodeContext& c, const char* name, std::vector<ValueId>& captures) {
  Import& import = c.scope.import;
  const ::onnx::GraphProto& body = c.attr_graph(name);
  if (body.input_size() != 0) c.fail("the " + std::string(name) + " must not have inputs");
  Branch b;
  b.graph = import.add_graph(body.name().empty() ? name : body.name(), c.scope.graph_index);
  b.first_requirement = c.g.module().requirements.size();
  const std::string path = (c.site.name.empty() ? "If " + std::to_string(c.site.index) : c.site.name) + "/" + name;
  b.outputs = c.scope.import_graph(body, b.graph, {}, path, captures);
  b.last_requirement = c.g.module().requirements.size();
  c.g.module().graph(b.graph).set_outputs(b.outputs, names_of(body));
  return b;
}

std::vector<ValueId> inline_branch(NodeContext& c, bool taken) {
  const char* name = taken ? "then_branch" : "else_branch";
  const ::onnx::GraphProto& body = c.attr_graph(name);
  if (body.output_size() < c.num_outputs())
    c.fail("the " + std::string(name) + " has " + std::to_string(body.output_size()) + " outputs, the node has " +
           std::to_string(c.num_outputs()));
  if (body.input_size() != 0) c.fail("the " + std::string(name) + " must not have inputs");
  return c.scope.import_inline(body, {},
                               (c.site.name.empty() ? "If " + std::to_string(c.site.index) : c.site.name) + "/" + name);
}

// What a branch requires holds only where it is taken.
void make_conditional(NodeContext& c, const Branch& b, Expr not_taken) {
  auto& all = c.g.module().requirements;
  for (size_t i = b.first_requirement; i < b.last_requirement; ++i)
    all[i].condition = sym::logical_or(not_taken, all[i].condition);
}

Expr joined_dim(NodeContext& c, const Mark& mark, Expr known, Expr a, Expr b, const std::string& name) {
  if (a == b) return a;
  if (known && !mark.is_inner(a) && !mark.is_inner(b)) return sym::select(known, a, b);
  const sym::Range ra = sym::bounds(a), rb = sym::bounds(b);
  return c.new_data_symbol(
      name, {std::max<int64_t>(0, std::min(ra.lo, rb.lo)), std::min(c.kDimRange.hi, std::max(ra.hi, rb.hi))});
}

// The ranks differ: the program is specialised for the outcome, see ImportOptions::decisions.
std::vector<ValueId> specialised(NodeContext& c, Expr known, int rank_then, int rank_else) {
  Import& import = c.scope.import;
  const std::string ranks =
      "the branches give " + std::to_string(rank_then) + " and " + std::to_string(rank_else) + " dims, ";
  if (!known || depends_on_data(c, known))
    c.fail(ranks + "and which is taken depends on data: ranks must be known at compile time");
  const size_t k = import.decided.size();
  import.decided.push_back(sym::text(known));
  if (k >= import.options.decisions.size()) {
    if (import.options.specialise) throw NeedsDecision{};
    c.fail(ranks + "and the condition " + sym::text(known) + " is not decided",
           "fix the dims in it with --dim or --shape");
  }
  const bool taken = import.options.decisions[k];
  import.facts.emplace_back(known, taken);
  graph::require(c.g, taken ? known : sym::logical_not(known),
                 "this program is for the " + std::string(taken ? "then" : "else") + " branch");
  return inline_branch(c, taken);
}

std::vector<ValueId> if_(NodeContext& c) {
  Import& import = c.scope.import;
  const ValueId cond = condition(c, c.input(0));
  Expr known;
  if (const auto e = c.exprs(cond)) {
    known = sym::ne((*e)[0], c.expr(0));
    const Truth t = sym::prove(known);
    if (t != Truth::unknown) return inline_branch(c, t == Truth::yes);
    for (const auto& [fact, holds] : import.facts)
      if (fact == known) return inline_branch(c, holds);
  }

  const Mark mark(import);
  std::vector<ValueId> captures;
  std::optional<Branch> branches[2];
  bool poisoned = false;
  for (int i = 0; i < 2; ++i) {
    try {
      branches[i] = import_branch(c, i == 0 ? "then_branch" : "else_branch", captures);
    } catch (const Poisoned&) {
      poisoned = true;  // after the errors of both branches were said
    }
  }
  if (poisoned) throw Poisoned{};
  const Branch &then_ = *branches[0], &else_ = *branches[1];
  Graph &tg = c.g.module().graph(then_.graph), &eg = c.g.module().graph(else_.graph);
  if (then_.outputs.size() != else_.outputs.size())
    c.fail("the branches have " + std::to_string(then_.outputs.size()) + " and " +
           std::to_string(else_.outputs.size()) + " outputs");
  for (size_t i = 0; i < then_.outputs.size(); ++i) {
    const Type a = tg.type(then_.outputs[i]), b = eg.type(else_.outputs[i]);
    if (a.dtype != b.dtype)
      c.fail("the branches give " + graph::text(a) + " and " + graph::text(b) + " for output " + std::to_string(i));
    if (a.rank() != b.rank()) {
      mark.roll_back();
      return specialised(c, known, a.rank(), b.rank());
    }
  }
  std::vector<Type> types;
  for (size_t i = 0; i < then_.outputs.size(); ++i) {
    const Type a = tg.type(then_.outputs[i]), b = eg.type(else_.outputs[i]);
    Shape s;
    for (int d = 0; d < a.rank(); ++d) {
      const std::string name = i < static_cast<size_t>(c.num_outputs()) ? c.node.output(static_cast<int>(i)) : "unused";
      s.push_back(joined_dim(c, mark, known, a.shape[d], b.shape[d], name));
    }
    types.push_back(Type::make(a.dtype, std::move(s)));
  }
  if (then_.first_requirement != else_.last_requirement) {
    const Expr taken = known ? known : sym::ne(c.dims_scalar(cond, {0, 1}), c.expr(0));
    make_conditional(c, then_, sym::logical_not(taken));
    make_conditional(c, else_, taken);
  }
  // Captures that only the else branch has are inputs of the then branch as well.
  for (size_t i = tg.inputs().size(); i < captures.size(); ++i)
    tg.add_input(c.g.value(captures[i]).name, c.g.type(captures[i]));

  std::vector<ValueId> operands{cond};
  operands.insert(operands.end(), captures.begin(), captures.end());
  SubgraphAttr a;
  a.graphs = {then_.graph, else_.graph};
  return c.g.node(c.g.add_node(OpKind::if_, std::move(operands), std::move(a), std::move(types))).results;
}

// --- loop and scan ------------------------------------------------------------------------------------------------

struct Body {
  int32_t graph = -1;
  std::vector<ValueId> outputs, captures;
  std::vector<Type> carried;  // types of the carried inputs that hold in every iteration, collected ones last
};

// Does the body state this constant dim for its input?
bool declared(const ::onnx::ValueInfoProto& input, int axis, Expr dim) {
  const auto& shape = input.type().tensor_type().shape();
  return dim.is_const() && axis < shape.dim_size() && shape.dim(axis).has_dim_value() &&
         dim.is_const(shape.dim(axis).dim_value());
}

// Scanned results of which nobody knows beforehand how many there will be: each becomes a carried value that starts
// empty and to which every iteration appends. `types` are those of the scanned results; what comes back are those of the
// carried values, or nothing where a result's own extents are only known inside of the body.
std::vector<Type> collected_types(NodeContext& c, const Mark& mark, const std::vector<Type>& types, std::vector<Expr>& made) {
  std::vector<Type> r;
  for (const Type& t : types)
    for (Expr d : t.shape)
      if (mark.is_inner(d)) return {};
  for (Type t : types) {
    made.push_back(c.new_data_symbol("collected"));
    t.shape.insert(t.shape.begin(), made.back());
    r.push_back(Type::make(t.dtype, std::move(t.shape)));
  }
  return r;
}

// What `sofar` becomes by a slice that an iteration makes.
ValueId append(Graph& g, ValueId sofar, ValueId slice) {
  Shape one = g.type(slice).shape;
  one.insert(one.begin(), g.sym().constant(1));
  return g.add(OpKind::concat, {sofar, g.reshape(slice, std::move(one))}, graph::AxisAttr{.axis = 0, .text = {}});
}

// Imports a body whose inputs are `before`, the carried values and `after`, and whose outputs are `skip` others, the
// carried values again, then the scanned ones. A carried dim that an iteration changes becomes a symbol of the body,
// and the body is imported again. With `counted` false for its condition, the scanned ones become carried ones.
Body import_body(NodeContext& c, const ::onnx::GraphProto& body, const std::vector<Type>& before,
                 std::vector<Type> carried, const std::vector<Type>& after, int skip, const Mark& mark,
                 const std::function<bool(const Graph&, const Body&)>& counted = {}) {
  Import& import = c.scope.import;
  const int n = static_cast<int>(carried.size());
  const int want = static_cast<int>(before.size() + carried.size() + after.size());
  if (body.input_size() != want)
    c.fail("the body has " + std::to_string(body.input_size()) + " inputs, " + std::to_string(want) + " are needed");
  if (body.output_size() < skip + n)
    c.fail("the body has " + std::to_string(body.output_size()) + " outputs, at least " + std::to_string(skip + n) +
           " are needed");
  if (body.output_size() - skip != c.num_outputs())
    c.fail("the body makes " + std::to_string(body.output_size() - skip) + " results, the node has " +
           std::to_string(c.num_outputs()));
  const std::string path =
      (c.site.name.empty() ? c.site.op + " " + std::to_string(c.site.index) : c.site.name) + "/body";
  std::vector<Expr> made;  // symbols of the body's inputs
  std::vector<Type> collected;
  for (;;) {
    mark.roll_back();
    for (Expr e : made) c.g.module().data_symbols.push_back(e);
    Body r;
    r.graph = import.add_graph(body.name().empty() ? "body" : body.name(), c.scope.graph_index);
    r.carried = carried;
    std::vector<Type> inputs = before;
    inputs.insert(inputs.end(), carried.begin(), carried.end());
    inputs.insert(inputs.end(), after.begin(), after.end());
    inputs.insert(inputs.end(), collected.begin(), collected.end());
    r.outputs = c.scope.import_graph(body, r.graph, inputs, path, r.captures, /*counts=*/!before.empty());
    Graph& g = c.g.module().graph(r.graph);

    bool stable = true;
    for (int i = 0; i < n; ++i) {
      const Type t = g.type(r.outputs[skip + i]);
      if (t.dtype != carried[i].dtype || t.rank() != carried[i].rank())
        c.fail("carried value " + std::to_string(i) + " is " + graph::text(carried[i]) + " before an iteration and " +
               graph::text(t) + " after it: type and rank must stay");
      for (int d = 0; d < t.rank(); ++d) {
        Expr& dim = carried[i].shape[d];
        if (dim == t.shape[d] || std::find(made.begin(), made.end(), dim) != made.end()) continue;
        if (declared(body.input(static_cast<int>(before.size()) + i), d, dim) &&
            sym::prove(sym::eq(dim, t.shape[d])) != Truth::no)
          continue;  // the model says that it stays: the reshape below requires it
        const std::string& name = body.input(static_cast<int>(before.size()) + i).name();
        dim = c.new_data_symbol(name.empty() ? "carried" : name);
        made.push_back(dim);
        stable = false;
      }
    }
    if (stable) {
      g.set_origins({c.site});
      sym::Map stated;  // extents that the body computes, and what the model says that they are
      for (int i = 0; i < n; ++i) {
        Shape as_declared = g.type(r.outputs[skip + i]).shape;
        for (size_t d = 0; d < as_declared.size(); ++d) {
          if (!carried[i].shape[d].is_const()) continue;
          if (!as_declared[d].is_const()) stated.emplace(as_declared[d], carried[i].shape[d]);
          as_declared[d] = carried[i].shape[d];
        }
        r.outputs[skip + i] = g.reshape(r.outputs[skip + i], std::move(as_declared));
      }
      for (size_t i = static_cast<size_t>(skip + n); i < r.outputs.size(); ++i) {
        Shape scanned = g.type(r.outputs[i]).shape;
        for (Expr& d : scanned)
          if (const auto known = stated.find(d); known != stated.end()) d = known->second;
        r.outputs[i] = g.reshape(r.outputs[i], std::move(scanned));
      }
      if (collected.empty() && counted && !counted(g, r)) {
        std::vector<Type> scanned;
        for (size_t i = static_cast<size_t>(skip + n); i < r.outputs.size(); ++i) scanned.push_back(g.type(r.outputs[i]));
        collected = collected_types(c, mark, scanned, made);
        if (!collected.empty()) continue;
      }
      for (size_t i = 0; i < collected.size(); ++i) {
        ValueId& out = r.outputs[static_cast<size_t>(skip + n) + i];
        out = append(g, g.inputs()[static_cast<size_t>(want) + i], out);
      }
      r.carried.insert(r.carried.end(), collected.begin(), collected.end());
      g.set_outputs(r.outputs, names_of(body));
      return r;
    }
  }
}

// Dims of a result of the body as the graph around it sees them.
Type outer_type(NodeContext& c, const Mark& mark, Type t, const std::string& name) {
  for (Expr& d : t.shape)
    if (mark.is_inner(d)) d = c.new_data_symbol(name, {0, std::min(sym::bounds(d).hi, c.kDimRange.hi)});
  return Type::make(t.dtype, std::move(t.shape));
}

bool always_true(const Graph& g, ValueId v, ValueId condition_in) {
  while (g.is(v, OpKind::identity) || g.is(v, OpKind::reshape)) v = g.producer(v).operands[0];
  if (v == condition_in) return true;
  const auto& known = g.value(v).contents;
  if (known) return known->size() == 1 && (*known)[0].is_const() && !(*known)[0].is_const(0);
  const auto number = g.int_values(v);
  return number && number->size() == 1 && (*number)[0] != 0;
}

std::vector<ValueId> loop(NodeContext& c) {
  const ::onnx::GraphProto& body = c.attr_graph("body");
  std::vector<ValueId> operands{kNoValue, kNoValue};
  if (c.has_input(0)) operands[0] = c.cast(c.reshape(c.input(0), {}), DType::i64);
  if (c.has_input(1)) operands[1] = condition(c, c.input(1));
  std::vector<Type> carried;
  for (int i = 2; i < c.node.input_size(); ++i) {
    operands.push_back(c.input(i));
    carried.push_back(Type::make(c.dtype(c.input(i)), c.shape(c.input(i))));
  }
  const bool starts = operands[1] == kNoValue || always_true(c.g, operands[1], kNoValue);
  const Mark mark(c.scope.import);
  // Read before the body: the count is known outside of it.
  const Expr trips = operands[0] != kNoValue && starts && body.output_size() > 1 + static_cast<int>(carried.size())
                         ? c.dims_scalar(operands[0])
                         : Expr();
  const Mark inner(c.scope.import);
  const auto counted = [&](const Graph& g, const Body& b) { return trips && always_true(g, b.outputs[0], g.inputs()[1]); };
  Body b = import_body(c, body, {Type::make(DType::i64, {}), Type::make(DType::b1, {})}, carried, {}, 1, inner, counted);
  const Graph& g = c.g.module().graph(b.graph);
  const Type proceed = g.type(b.outputs[0]);
  if (proceed.dtype != DType::b1)
    c.fail("the body's first output must be the condition, it is " + graph::text(proceed));

  std::vector<Type> types;
  for (size_t i = 0; i < b.carried.size(); ++i)
    types.push_back(outer_type(c, inner, b.carried[i], c.node.output(static_cast<int>(i))));
  for (size_t i = carried.size(); i < b.carried.size(); ++i) {
    Shape none = b.carried[i].shape;
    none[0] = c.expr(0);
    operands.push_back(c.broadcast(c.cast(c.int_scalar(DType::i64, 0), b.carried[i].dtype), std::move(none)));
  }
  if (b.outputs.size() > 1 + b.carried.size()) {
    const Expr n = counted(g, b) ? sym::max(trips, 0) : c.new_data_symbol("iterations");
    for (size_t i = 1 + carried.size(); i < b.outputs.size(); ++i) {
      Type t = outer_type(c, inner, g.type(b.outputs[i]), c.node.output(static_cast<int>(i) - 1));
      t.shape.insert(t.shape.begin(), n);
      types.push_back(std::move(t));
    }
  }
  SubgraphAttr a;
  a.graphs = {b.graph};
  a.num_carried = static_cast<int64_t>(b.carried.size());
  operands.insert(operands.end(), b.captures.begin(), b.captures.end());
  return c.g.node(c.g.add_node(OpKind::loop, std::move(operands), std::move(a), std::move(types))).results;
}

std::vector<bool> directions(NodeContext& c, const char* name, int count) {
  const Ints given = c.attr_ints(name, Ints(static_cast<size_t>(count), 0));
  if (static_cast<int>(given.size()) != count)
    c.fail("attribute \"" + std::string(name) + "\" must have " + std::to_string(count) + " elements");
  std::vector<bool> r;
  for (int64_t d : given) {
    if (d != 0 && d != 1) c.fail("attribute \"" + std::string(name) + "\" must hold 0 or 1");
    r.push_back(d == 1);
  }
  return r;
}

std::vector<ValueId> scan(NodeContext& c) {  // as of opset 9
  const ::onnx::GraphProto& body = c.attr_graph("body");
  const int64_t scanned = c.attr_int("num_scan_inputs");
  const int inputs = c.num_inputs();
  if (scanned < 1 || scanned > inputs) c.fail("num_scan_inputs is " + std::to_string(scanned));
  const int m = static_cast<int>(scanned), n = inputs - m;
  SubgraphAttr a;
  a.num_carried = n;
  a.num_scan_inputs = m;
  a.scan_input_reverse = directions(c, "scan_input_directions", m);

  std::vector<ValueId> operands;
  std::vector<Type> carried, slices;
  const Ints axes = c.attr_ints("scan_input_axes", Ints(static_cast<size_t>(m), 0));
  if (static_cast<int>(axes.size()) != m) c.fail("scan_input_axes must have " + std::to_string(m) + " elements");
  Expr length;
  for (int i = 0; i < inputs; ++i) {
    Type t = Type::make(c.dtype(c.input(i)), c.shape(c.input(i)));
    operands.push_back(c.input(i));
    if (i < n) {
      carried.push_back(std::move(t));
      continue;
    }
    const int axis = c.axis(axes[i - n], t.rank(), "scan_input_axes");
    a.scan_input_axes.push_back(axis);
    if (!length) length = t.shape[axis];
    graph::require(c.g, sym::eq(length, t.shape[axis]), "all scanned inputs must have one length");
    t.shape.erase(t.shape.begin() + axis);
    slices.push_back(std::move(t));
  }
  const Mark mark(c.scope.import);
  Body b = import_body(c, body, {}, carried, slices, 0, mark);
  const Graph& g = c.g.module().graph(b.graph);

  const int results = static_cast<int>(b.outputs.size()) - n;
  a.scan_output_reverse = directions(c, "scan_output_directions", results);
  const Ints out_axes = c.attr_ints("scan_output_axes", Ints(static_cast<size_t>(results), 0));
  if (static_cast<int>(out_axes.size()) != results)
    c.fail("scan_output_axes must have " + std::to_string(results) + " elements");
  std::vector<Type> types;
  for (int i = 0; i < n; ++i) types.push_back(outer_type(c, mark, b.carried[i], c.node.output(i)));
  for (int i = 0; i < results; ++i) {
    Type t = outer_type(c, mark, g.type(b.outputs[n + i]), c.node.output(n + i));
    const int axis = c.axis(out_axes[i], t.rank() + 1, "scan_output_axes");
    a.scan_output_axes.push_back(axis);
    t.shape.insert(t.shape.begin() + axis, length);
    types.push_back(std::move(t));
  }
  a.graphs = {b.graph};
  operands.insert(operands.end(), b.captures.begin(), b.captures.end());
  return c.g.node(c.g.add_node(OpKind::scan, std::move(operands), std::move(a), std::move(types))).results;
}

// Opset 8 scans each element of a batch (axis 0 of everything) on its own: a scan of today over the batch, around one
// over the sequence. Its first input, the lengths, is optional.
std::vector<ValueId> batched_scan(NodeContext& c) {
  if (c.has_input(0))
    c.fail("sequence_lens is not supported", "leave it out where all sequences are as long as the axis, or export with opset 9 or later");
  Import& import = c.scope.import;
  ::onnx::NodeProto& one = import.source->expanded.emplace_back(c.node);
  one.mutable_input()->DeleteSubrange(0, 1);
  for (auto& a : *one.mutable_attribute())
    if (a.name() == "directions") a.set_name("scan_input_directions");
  const std::vector<ValueId> operands(c.inputs().begin() + 1, c.inputs().end());
  std::vector<Type> slices;
  Expr batch;
  for (ValueId v : operands) {
    Type t = Type::make(c.dtype(v), c.shape(v));
    if (t.rank() == 0) c.fail("an input has no batch axis: " + c.text(v));
    if (!batch) batch = t.shape[0];
    graph::require(c.g, sym::eq(batch, t.shape[0]), "all inputs must have one batch size");
    t.shape.erase(t.shape.begin());
    slices.push_back(std::move(t));
  }

  const Mark mark(import);
  const int32_t index = import.add_graph("batch", c.scope.graph_index);
  Graph& g = c.g.module().graph(index);
  Scope inner(import, g, index, &c.scope, c.scope.path, c.scope.opsets);
  std::vector<ValueId> captures, inputs;
  inner.captures = &captures;
  import.states[index] = {};
  for (const Type& t : slices) inputs.push_back(g.add_input("element", t));
  g.set_origins({c.site});
  NodeContext element(inner, g, one, c.row, c.opset, c.site, inputs);
  const std::vector<ValueId> outputs = scan(element);
  std::vector<std::string> names;
  std::vector<Type> types;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& name = c.node.output(static_cast<int>(i));
    Type t = outer_type(c, mark, g.type(outputs[i]), name);
    t.shape.insert(t.shape.begin(), batch);
    types.push_back(std::move(t));
    names.push_back(name);
  }
  g.set_outputs(outputs, names);
  SubgraphAttr a;
  a.graphs = {index};
  a.num_scan_inputs = static_cast<int64_t>(operands.size());
  a.scan_input_axes.assign(operands.size(), 0);
  a.scan_input_reverse.assign(operands.size(), false);
  a.scan_output_axes.assign(outputs.size(), 0);
  a.scan_output_reverse.assign(outputs.size(), false);
  std::vector<ValueId> all = operands;
  all.insert(all.end(), captures.begin(), captures.end());
  return c.g.node(c.g.add_node(OpKind::scan, std::move(all), std::move(a), std::move(types))).results;
}

const Row kRows[] = {
    {"If", 6, kMaxOpset, 1, 1, if_, OpKind::if_},
    {"Loop", 6, kMaxOpset, 0, -1, loop, OpKind::loop},
    {"Scan", 8, 8, 0, -1, batched_scan, OpKind::scan},
    {"Scan", 9, kMaxOpset, 1, -1, scan, OpKind::scan},
};

}  // namespace

std::span<const Row> control_rows() { return kRows; }

}  // namespace tripod::importer
