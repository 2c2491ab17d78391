#include "onnx/scope.h"

#include <algorithm>

#include "onnx/known_ops.h"

namespace tripod::importer {
using ::onnx::GraphProto;
using ::onnx::NodeProto;

// --- names --------------------------------------------------------------------------------------------------------

std::optional<ValueId> Scope::find(const std::string& name) {
  if (auto it = names_.find(name); it != names_.end()) return it->second;
  if (!parent) return std::nullopt;
  const auto outer = parent->find(name);
  if (!outer || *outer < 0 || &parent->g == &g) return outer;
  return names_[name] = capture(*outer);
}

// Several names may stand for one outer value; it is captured once.
ValueId Scope::capture(ValueId outer) {
  Graph& from = parent->g;
  if (from.is_constant(outer)) {
    const ValueId v = g.add_constant(from.type(outer), from.bytes(outer));
    g.set_name(v, from.value(outer).name);
    return v;
  }
  if (const auto known = from.value(outer).contents) {
    const Type& t = from.type(outer);
    if (is_int(t.dtype) && t.rank() <= 1) {
      const ValueId v = g.add_exprs(*known, t.dtype);
      return t.rank() == 1 ? v : g.reshape(v, {});
    }
  }
  for (size_t i = 0; i < captures->size(); ++i)
    if ((*captures)[i] == outer) return g.inputs()[g.inputs().size() - captures->size() + i];
  captures->push_back(outer);
  const ValueId v = g.add_input(from.value(outer).name, from.type(outer));
  for (const auto& [key, symbols] : std::map(parent->state().read))
    if (key.first == outer) state().read[{v, key.second}] = symbols;
  if (const auto it = parent->state().ranges.find(outer); it != parent->state().ranges.end())
    state().ranges[v] = it->second;
  return v;
}

bool Scope::define(const std::string& name, ValueId v, const Site& site) {
  if (names_.emplace(name, v).second) return true;
  import.error(site, "the value '" + name + "' is defined twice", "names of values must be unique in a graph");
  return false;
}

Site Scope::site_of(const NodeProto& node, int index) const {
  const std::string domain = domain_of(node.domain());
  const std::string op = node.op_type().empty() ? "?" : domain.empty() ? node.op_type() : domain + "::" + node.op_type();
  if (path.empty() || !node.name().empty()) return {index, op, path + node.name()};
  return {index, op, path.substr(0, path.size() - 1)};
}

// --- nodes --------------------------------------------------------------------------------------------------------

void Scope::import_initializers(const GraphProto& graph) {
  const auto one = [&](const std::string& name, auto&& read) {
    ValueId v = kBadValue;
    const Site site{-1, "", path + "initializer '" + name + "'"};
    try {
      if (name.empty()) throw NodeError{"has no name", ""};
      const TensorData t = read();
      Shape shape;
      for (int64_t d : t.dims) shape.push_back(g.sym().constant(d));
      v = g.add_constant(Type::make(t.dtype, std::move(shape)), t.bytes);
      g.set_name(v, name);
    } catch (const NodeError& e) {
      import.error(site, e.message, e.hint);
    } catch (const CompileError& e) {
      import.error(site, e.diagnostics.errors()[0].message);
    }
    define(name, v, site);
  };
  g.set_origins({});
  for (const auto& t : graph.initializer()) one(t.name(), [&] { return import.tensors.read(t); });
  for (const auto& t : graph.sparse_initializer())
    one(t.values().name(), [&] { return import.tensors.read_sparse(t); });
}

void Scope::import_nodes(const NodeList& nodes) {
  const auto site = [&](int i) { return site_of(nodes[i], i); };
  const auto defined = [&](const std::string& name) { return names_.contains(name); };
  const std::vector<int> order = order_nodes(import, nodes, defined, site);
  // The outputs of nodes on and behind a cycle must not look undefined as well.
  std::vector<bool> reached(nodes.size(), false);
  for (int i : order) reached[i] = true;
  for (int i = 0; i < nodes.size(); ++i)
    if (!reached[i])
      for (const std::string& name : nodes[i].output()) names_.emplace(name, kBadValue);
  for (int i : order) import_node(nodes[i], i);
}

// An element count that overflows would only show much later, and far from its cause.
void Scope::check_size(ValueId v) const {
  const Type& t = g.type(v);
  if (t.kind != Type::tensor || t.dtype == DType::none) return;
  if (t.rank() > kMostDims)
    throw NodeError{"the result " + g.value(v).name + " has " + std::to_string(t.rank()) + " dims, at most " +
                        std::to_string(kMostDims) + " are supported",
                    ""};
  const auto check = [&](const std::vector<Expr>& es) {
    for (Expr e : es)
      if (e->size > kMaxDimSize)
        throw NodeError{"a size in the result " + g.value(v).name + " takes more than " + std::to_string(kMaxDimSize) +
                            " operations to compute",
                        "fix the dims it depends on with --dim or --shape"};
  };
  check(t.shape);
  if (g.value(v).contents) check(*g.value(v).contents);
  const Expr count = graph::element_count(g.sym(), t.shape);
  if (count.is_const() && count.value() > (int64_t{1} << 48))
    throw NodeError{"the result " + g.value(v).name + " : " + graph::text(t) + " is larger than memory can be", ""};
}

// New nodes on small constants become constants. `results` are values of these nodes.
void Scope::evaluate_constants(graph::NodeId first, std::vector<ValueId>& results) {
  constexpr int64_t kMostElements = 64;
  const auto is_small = [&](ValueId v) {
    const Type& t = g.type(v);
    if (t.kind != Type::tensor || t.dtype == DType::string || t.dtype == DType::none) return false;
    const Expr count = graph::element_count(g.sym(), t.shape);
    return count.is_const() && count.value() <= kMostElements;
  };
  const auto is_operand = [&](ValueId v) { return v == kNoValue || (g.is_constant(v) && is_small(v)); };
  for (graph::NodeId n = first, end = g.num_nodes(); n < end; ++n) {
    const graph::Node& node = g.node(n);
    const std::vector<ValueId> from = node.results;
    if (node.operands.empty() || graph::has(node.op, graph::kHostControl) || node.op == OpKind::call) continue;
    if (!std::all_of(node.operands.begin(), node.operands.end(), is_operand) || !std::all_of(from.begin(), from.end(), is_small)) continue;
    const auto values = import.options.evaluator->evaluate(g, n);
    if (!values) continue;
    for (size_t i = 0; i < from.size(); ++i) {
      const ValueId to = g.add_constant(g.type(from[i]), (*values)[i]);
      g.replace_uses(from[i], to);
      std::replace(results.begin(), results.end(), from[i], to);
    }
  }
}

// The one place where errors of nodes become diagnostics.
void Scope::import_node(const NodeProto& node, int index) {
  const Site site = site_of(node, index);
  std::vector<Site> outer_origins = g.origins();
  g.set_origins({site});
  const int values_before = g.num_values(), nodes_before = g.num_nodes();
  std::vector<ValueId> results;
  try {
    results = run(node, site);
    if (import.options.evaluator) evaluate_constants(nodes_before, results);
    for (ValueId v : results)
      if (v >= 0) check_size(v);
  } catch (const Poisoned&) {
    results.clear();
  } catch (const NodeError& e) {
    results.clear();
    import.error(site, e.message, e.hint);
  } catch (const CompileError& e) {  // graph::ShapeError above all
    results.clear();
    for (const Diagnostic& d : e.diagnostics.errors()) import.error(site, d.message, d.hint);
  } catch (const sym::Overflow& e) {
    results.clear();
    import.error(site, "a size does not fit 64 bits: " + std::string(e.what()));
  }
  g.set_origins(std::move(outer_origins));
  results.resize(node.output_size(), kNoValue);
  for (int i = 0; i < node.output_size(); ++i) {
    const std::string& name = node.output(i);
    if (name.empty()) continue;
    const ValueId v = results[i] == kNoValue ? kBadValue : results[i];
    if (v >= values_before) g.set_name(v, name);  // not that of an older value passed on
    define(name, v, site);
  }
}

std::vector<ValueId> Scope::operands(const NodeProto& node) {
  std::vector<ValueId> r;
  bool bad = false;
  for (int i = 0; i < node.input_size(); ++i) {
    const std::string& name = node.input(i);
    if (name.empty()) {
      r.push_back(kNoValue);
      continue;
    }
    const auto v = find(name);
    if (!v)
      throw NodeError{"input " + std::to_string(i) + " '" + name + "' is not defined",
                      "no node, input or initializer has that name"};
    bad |= *v == kBadValue;
    r.push_back(*v);
  }
  if (bad) throw Poisoned{};
  return r;
}

// An attribute that the operator does not have.
static void check_attributes(const NodeProto& node, int opset) {
  const KnownOp* op = known_op(node.op_type());
  if (!op) return;
  const std::vector<std::string_view> names = attribute_names(*op, opset);
  for (const auto& a : node.attribute()) {
    if (std::find(names.begin(), names.end(), a.name()) != names.end()) continue;
    std::string all;
    for (std::string_view n : names) all += (all.empty() ? "" : ", ") + std::string(n);
    throw NodeError{std::string(op->name) + " of opset " + std::to_string(opset) + " has no attribute \"" + a.name() + "\"",
                    names.empty() ? "it has none" : "it has " + all};
  }
}

std::vector<ValueId> Scope::run(const NodeProto& node, const Site& site) {
  std::set<std::string_view> seen;
  for (const auto& a : node.attribute())
    if (!seen.insert(a.name()).second) throw NodeError{"attribute \"" + a.name() + "\" is given twice", ""};

  if (const auto* function = import.find_function(node)) return expand(*function, node, site);

  // Whether the operator is known is said even where its inputs are bad.
  if (node.op_type().empty()) throw NodeError{"has no op_type", "the file is damaged"};
  const std::string domain = domain_of(node.domain());
  const auto opset = opsets.find(domain);
  if (opset == opsets.end())
    throw NodeError{"the model does not import domain \"" + domain + "\"", "add it to opset_import"};
  const Row* row = import.find_row(domain, node.op_type(), opset->second);
  if (!row) {
    std::string hint;
    std::string message = import.why_no_row(domain, node.op_type(), opset->second, hint);
    throw NodeError{std::move(message), std::move(hint)};
  }
  if (domain.empty()) check_attributes(node, opset->second);
  NodeContext context(*this, g, node, *row, opset->second, site, operands(node));
  for (int i = 0; i < row->min_inputs; ++i) context.input(i);
  if (row->max_inputs >= 0 && context.num_inputs() > row->max_inputs)
    context.fail("has " + std::to_string(context.num_inputs()) + " inputs, at most " + std::to_string(row->max_inputs) +
                 " are allowed");
  std::vector<ValueId> results = row->import(context);
  for (int i = 0; i < node.output_size(); ++i)
    if (context.wants_output(i) && (i >= static_cast<int>(results.size()) || results[i] == kNoValue))
      context.fail("output " + std::to_string(i) + " '" + node.output(i) + "' is not supported");
  return results;
}

// --- functions ----------------------------------------------------------------------------------------------------

std::vector<ValueId> Scope::expand(const ::onnx::FunctionProto& f, const NodeProto& node, const Site& site) {
  // A function that calls itself would never end; one that calls others twice each, a few deep, ends too late.
  if (import.function_depth > 32) throw NodeError{"functions call each other more than 32 deep", ""};
  import.expanded_nodes += f.node_size();
  if (import.expanded_nodes > 200'000) throw NodeError{"functions expand to more than 200000 nodes", ""};

  const std::vector<ValueId> given = operands(node);
  if (static_cast<int>(given.size()) > f.input_size())
    throw NodeError{
        "has " + std::to_string(given.size()) + " inputs, the function takes " + std::to_string(f.input_size()), ""};
  if (node.output_size() > f.output_size())
    throw NodeError{
        "has " + std::to_string(node.output_size()) + " outputs, the function makes " + std::to_string(f.output_size()),
        ""};
  std::map<std::string, const ::onnx::AttributeProto*> attributes;
  for (const auto& a : f.attribute_proto()) attributes[a.name()] = &a;
  for (const auto& a : node.attribute()) attributes[a.name()] = &a;

  Opsets own;
  for (const auto& o : f.opset_import()) own[domain_of(o.domain())] = static_cast<int>(o.version());
  if (own.empty()) own = opsets;
  if (auto it = own.find(""); it != own.end() && (it->second < kMinOpset || it->second > kMaxOpset))
    throw NodeError{"the function imports opset " + std::to_string(it->second) + ", supported are " +
                        std::to_string(kMinOpset) + " to " + std::to_string(kMaxOpset),
                    ""};

  const std::string name = site.name.empty() ? path + node.op_type() : site.name;
  Scope inner(import, g, graph_index, nullptr, name + "/", own);
  for (int i = 0; i < f.input_size(); ++i)
    inner.names_[f.input(i)] = i < static_cast<int>(given.size()) ? given[i] : kNoValue;
  // The copies live on: constants share the bytes of their attributes.
  NodeList nodes;
  for (const NodeProto& n : f.node()) {
    import.source->expanded.push_back(with_attributes(n, attributes));
    nodes.AddAllocated(&import.source->expanded.back());
  }
  ++import.function_depth;
  const auto leave = [&] {
    --import.function_depth;
    while (!nodes.empty()) nodes.UnsafeArenaReleaseLast();
  };
  try {
    inner.import_nodes(nodes);
  } catch (...) {
    leave();
    throw;
  }
  leave();

  std::vector<ValueId> results;
  for (int i = 0; i < node.output_size(); ++i) {
    const auto v = inner.find(f.output(i));
    if (!v) throw NodeError{"the function does not define its output '" + f.output(i) + "'", ""};
    if (*v == kBadValue) throw Poisoned{};
    results.push_back(*v);
  }
  return results;
}

// --- sub-graphs ---------------------------------------------------------------------------------------------------

std::vector<ValueId> Scope::outputs(const GraphProto& body, const std::string& where) {
  std::vector<ValueId> r;
  bool bad = false;
  for (const auto& o : body.output()) {
    const auto v = find(o.name());
    if (!v) throw NodeError{"output '" + o.name() + "' of " + where + " is not defined", ""};
    bad |= *v < 0;
    r.push_back(*v);
  }
  if (bad) throw Poisoned{};
  return r;
}

std::vector<ValueId> Scope::import_inline(const GraphProto& body, const std::vector<ValueId>& inputs,
                                          const std::string& name) {
  Scope inner(import, g, graph_index, this, name + "/", opsets);
  for (int i = 0; i < body.input_size(); ++i) inner.names_[body.input(i).name()] = inputs.at(i);
  inner.import_initializers(body);
  inner.import_nodes(body.node());
  return inner.outputs(body, name);
}

std::vector<ValueId> Scope::import_graph(const GraphProto& body, int32_t index, const std::vector<Type>& inputs,
                                         const std::string& name, std::vector<ValueId>& captured, bool counts) {
  Graph& inner_graph = import.module->graph(index);
  Scope inner(import, inner_graph, index, this, name + "/", opsets);
  inner.captures = &captured;
  import.states[index] = {};
  for (int i = 0; i < body.input_size(); ++i) {
    const std::string& input = body.input(i).name();
    inner.names_[input] = inner_graph.add_input(input, inputs.at(i));
    if (counts && i == 0) inner.state().ranges[inner.names_[input]] = NodeContext::kDimRange;
  }
  for (size_t i = static_cast<size_t>(body.input_size()); i < inputs.size(); ++i) inner_graph.add_input("collected", inputs[i]);
  // Captures of a sibling graph come first and in the same order.
  std::vector<ValueId> before;
  std::swap(before, captured);
  for (ValueId v : before) {
    captured.push_back(v);
    inner_graph.add_input(g.value(v).name, g.type(v));
  }
  inner.import_initializers(body);
  inner.import_nodes(body.node());
  return inner.outputs(body, name);
}

}  // namespace tripod::importer
