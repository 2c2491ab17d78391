// Building: nodes, values, constants, names.
#include "graph/graph.h"

#include <cstring>

#include "base/float_bits.h"
#include "graph/infer.h"

namespace tripod::graph {

// --- Module ---------------------------------------------------------------------------------------------------------

Module::Module() : sym_(std::make_unique<sym::Context>()) { add_graph("main"); }

int32_t Module::add_graph(std::string wanted) {
  auto taken = [&](const std::string& n) {
    for (const auto& g : graphs_)
      if (g->name() == n) return true;
    return false;
  };
  std::string n = wanted.empty() ? "body" : std::move(wanted);
  const std::string base = n;
  for (int i = 1; taken(n); ++i) n = base + "." + std::to_string(i);
  graphs_.push_back(std::make_unique<Graph>(this, std::move(n)));
  return num_graphs() - 1;
}

void Module::remove_unreachable() {
  std::vector<bool> seen(graphs_.size(), false);
  std::vector<int32_t> work = {0};
  while (!work.empty()) {
    const int32_t i = work.back();
    work.pop_back();
    if (seen[i]) continue;
    seen[i] = true;
    for (NodeId n : graphs_[i]->order())
      if (const auto* s = std::get_if<SubgraphAttr>(&graphs_[i]->node(n).attr))
        work.insert(work.end(), s->graphs.begin(), s->graphs.end());
  }
  std::vector<int32_t> moved(graphs_.size(), -1);
  std::vector<std::unique_ptr<Graph>> kept;
  for (size_t i = 0; i < graphs_.size(); ++i) {
    if (!seen[i]) continue;
    moved[i] = static_cast<int32_t>(kept.size());
    kept.push_back(std::move(graphs_[i]));
  }
  graphs_ = std::move(kept);
  for (const auto& g : graphs_)
    for (NodeId n = 0; n < g->num_nodes(); ++n)
      if (auto* s = std::get_if<SubgraphAttr>(&g->node(n).attr)) {
        if (g->node(n).dead) s->graphs.clear();
        for (int32_t& b : s->graphs) b = moved[b];
      }
}

// --- nodes and values -----------------------------------------------------------------------------------------------

sym::Context& Graph::sym() const { return module_->sym(); }

std::string Graph::unique_name(std::string_view wanted) {
  std::string name(wanted);
  auto [it, fresh] = names_.try_emplace(name, 1);
  if (fresh) return name;
  // Copies of one name take the next free suffix; the counter keeps this from being quadratic.
  int& next = it->second;
  for (;;) {
    std::string candidate = name + "." + std::to_string(next++);
    if (names_.try_emplace(candidate, 1).second) return candidate;
  }
}

void Graph::set_name(ValueId v, std::string_view wanted) {
  Value& value = values_[v];
  if (value.name == wanted) return;
  names_.erase(value.name);
  value.name = unique_name(wanted);
}

ValueId Graph::new_value(NodeId producer, int result, Type type) {
  const auto id = static_cast<ValueId>(values_.size());
  Value v;
  v.name = unique_name("v" + std::to_string(id));
  v.type = std::move(type);
  v.producer = producer;
  v.result = result;
  values_.push_back(std::move(v));
  return id;
}

namespace {

// No tensor may need more bytes than an int64 counts, nor an empty one if its empty dims were 1: its strides are numbers
// too. Symbolic sizes are checked when the run knows them.
void check_size(sym::Context& c, const Type& t) {
  if (t.kind != Type::tensor) return;
  for (Expr d : t.shape)
    if (sym::prove(sym::ge(d, 0)) == sym::Truth::no) throw ShapeError("a dim is negative in " + text(t));
  Shape filled = t.shape;
  for (Expr& d : filled)
    if (d.is_const(0)) d = c.constant(1);
  try {
    element_count(c, filled) * int64_t{info(t.dtype).bits};
  } catch (const sym::Overflow&) {
    throw ShapeError(text(t) + " is too large: its size in bytes does not fit 64 bits");
  }
}

void check_arity(OpKind op, size_t operands) {
  const OpInfo& i = info(op);
  const int n = static_cast<int>(operands);
  if (n >= i.min_operands && (i.max_operands < 0 || n <= i.max_operands)) return;
  throw ShapeError(std::string(i.text) + " takes " + std::to_string(i.min_operands) +
                   (i.max_operands < 0                 ? " or more"
                    : i.max_operands == i.min_operands ? ""
                                                       : " to " + std::to_string(i.max_operands)) +
                   " operands, got " + std::to_string(n));
}

// Every way of adding a node goes through here, so that every error of a shape rule names its node.
template <class F>
auto with_site(const std::vector<Site>& origins, F&& f) {
  try {
    return f();
  } catch (const ShapeError& e) {
    if (origins.empty() || e.diagnostics.errors()[0].site.index >= 0) throw;
    throw ShapeError(origins[0], e.what());
  } catch (const sym::Overflow& e) {
    throw ShapeError(origins.empty() ? Site{} : origins[0], std::string("a size does not fit 64 bits: ") + e.what());
  }
}

}  // namespace

NodeId Graph::append(OpKind op, std::vector<ValueId> operands, Attr attr, std::vector<Type> types) {
  for (const Type& t : types) check_size(sym(), t);
  const auto id = static_cast<NodeId>(nodes_.size());
  Node n;
  n.op = op;
  n.operands = std::move(operands);
  n.attr = std::move(attr);
  n.origins = origins_;
  for (size_t i = 0; i < types.size(); ++i) n.results.push_back(new_value(id, static_cast<int>(i), std::move(types[i])));
  for (ValueId v : n.operands)
    if (v != kNoValue) values_[v].users.push_back(id);
  nodes_.push_back(std::move(n));
  order_.push_back(id);
  for (size_t i = 0; i < nodes_[id].results.size(); ++i)
    values_[nodes_[id].results[i]].contents = infer_contents(*this, nodes_[id], static_cast<int>(i));
  return id;
}

ValueId Graph::add_input(std::string_view name, Type type) {
  const NodeId n =
      with_site(origins_, [&] { return append(OpKind::input, {}, NoAttr{}, {std::move(type)}); });
  const ValueId v = nodes_[n].results[0];
  inputs_.push_back(v);
  if (!name.empty()) set_name(v, name);
  return v;
}

ValueId Graph::add(OpKind op, std::vector<ValueId> operands, Attr attr) {
  const NodeId n = with_site(origins_, [&] {
    check_arity(op, operands.size());
    std::vector<Type> types = infer(*this, op, operands, attr);
    return append(op, std::move(operands), std::move(attr), std::move(types));
  });
  return nodes_[n].results[0];
}

NodeId Graph::add_node(OpKind op, std::vector<ValueId> operands, Attr attr, std::vector<Type> types) {
  return with_site(origins_, [&] {
    check_arity(op, operands.size());
    std::vector<Module::Requirement> required;
    check_types(*this, op, operands, attr, types, required);
    merge_requirements(*module_, required, origins_);
    return append(op, std::move(operands), std::move(attr), std::move(types));
  });
}

ValueId Graph::add_given(OpKind op, std::vector<ValueId> operands, Attr attr, Type type) {
  return nodes_[add_node(op, std::move(operands), std::move(attr), {std::move(type)})].results[0];
}

void Graph::set_outputs(std::vector<ValueId> outputs, std::vector<std::string> names) {
  TRIPOD_CHECK(outputs.size() == names.size(), "an output needs a name");
  outputs_ = std::move(outputs);
  output_names_ = std::move(names);
}

// --- constants ------------------------------------------------------------------------------------------------------

namespace {

ConstAttr own(std::vector<std::byte> bytes) {
  auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  ConstAttr a;
  a.data = owner->data();
  a.size = static_cast<int64_t>(owner->size());
  a.owner = std::move(owner);
  return a;
}

Shape const_shape(sym::Context& c, const Ints& dims) {
  Shape s;
  for (int64_t d : dims) s.push_back(c.constant(d));
  return s;
}

}  // namespace

ValueId Graph::add_constant(Type type, ConstAttr bytes) {
  return add_given(OpKind::constant, {}, std::move(bytes), std::move(type));
}

ValueId Graph::add_constant(DType dtype, const Ints& shape, const void* bytes) {
  Type type = Type::make(dtype, const_shape(sym(), shape));
  const int64_t count = element_count(sym(), type.shape).value();
  std::vector<std::byte> copy(static_cast<size_t>(byte_size(dtype, count)));
  if (!copy.empty()) std::memcpy(copy.data(), bytes, copy.size());
  return add_constant(std::move(type), own(std::move(copy)));
}

ValueId Graph::scalar(DType dtype, double value) {
  std::vector<std::byte> bytes(static_cast<size_t>(byte_size(dtype, 1)));
  store_double(dtype, bytes.data(), 0, value);
  return add_constant(Type::make(dtype, {}), own(std::move(bytes)));
}

ValueId Graph::add_ints(const std::vector<int64_t>& values) {
  return add_constant(DType::i64, {static_cast<int64_t>(values.size())}, values.data());
}

ValueId Graph::add_exprs(const std::vector<Expr>& values, DType dtype) {
  Type type = Type::make(dtype, const_shape(sym(), {static_cast<int64_t>(values.size())}));
  std::vector<std::byte> bytes(static_cast<size_t>(byte_size(dtype, static_cast<int64_t>(values.size()))));
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i].is_const()) return add_given(OpKind::sym_values, {}, ExprsAttr{values}, std::move(type));
    store_int(dtype, bytes.data(), static_cast<int64_t>(i), values[i].value());
  }
  return add_constant(std::move(type), own(std::move(bytes)));
}

ValueId Graph::reshape(ValueId x, Shape shape) {
  if (type(x).shape == shape) return x;
  Type t = Type::make(type(x).dtype, std::move(shape));
  t.space = type(x).space;
  return add_given(OpKind::reshape, {x}, NoAttr{}, std::move(t));
}

}  // namespace tripod::graph
