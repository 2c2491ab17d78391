// Every invariant of graph.h, checked. Messages name the graph and the value or node in its text form.
#include <algorithm>
#include <unordered_set>

#include "graph/infer.h"
#include "graph/symbols.h"

namespace tripod::graph {
namespace {

using Messages = std::vector<std::string>;

// --- one graph ------------------------------------------------------------------------------------------------------

class GraphVerifier {
 public:
  GraphVerifier(const Module& m, int32_t index, Messages& out)
      : m_(m), g_(m.graph(index)), index_(index), out_(out), order_(g_.order()) {}

  // Ids that lead somewhere: broken links would make the other checks crash.
  void links();

  void run() {
    users();
    interface();
    names();
    producers_first();
    for (NodeId n : order_) node(n);
  }

 private:
  void say(std::string message) { out_.push_back("@" + g_.name() + ": " + std::move(message)); }
  std::string at(NodeId n) const { return text(g_, n); }
  bool is_value(ValueId v) const { return v >= 0 && v < g_.num_values(); }

  // Bodies come after the graph that uses them, so that no graph contains itself.
  void bodies_exist(const std::string& who, const SubgraphAttr& s) {
    for (int32_t i : s.graphs) {
      if (i <= 0 || i >= m_.num_graphs()) say(who + " names a graph that does not exist");
      else if (i <= index_) say(who + ": its body @" + m_.graph(i).name() + " must come after this graph");
    }
  }

  void users() {
    std::vector<std::vector<NodeId>> wanted(static_cast<size_t>(g_.num_values()));
    for (NodeId n : order_)
      for (ValueId v : g_.node(n).operands)
        if (v != kNoValue) wanted[static_cast<size_t>(v)].push_back(n);
    for (ValueId v = 0; v < g_.num_values(); ++v) {
      std::vector<NodeId> have = g_.value(v).users, &want = wanted[static_cast<size_t>(v)];
      std::sort(have.begin(), have.end());
      std::sort(want.begin(), want.end());
      if (have != want) say("the user list of %" + g_.value(v).name + " is not true");
    }
  }

  void interface() {
    std::unordered_set<ValueId> inputs;
    for (ValueId v : g_.inputs())
      if (!is_value(v) || g_.value(v).producer < 0 || !g_.is(v, OpKind::input) || !inputs.insert(v).second)
        say("an input is not the result of an input node, or stands twice");
    for (NodeId n : order_)
      if (g_.node(n).op == OpKind::input && !inputs.count(g_.node(n).results[0]))
        say("%" + g_.value(g_.node(n).results[0]).name + " is no input of the graph");
    if (g_.outputs().size() != g_.output_names().size()) say("outputs and output names differ in number");
  }

  void names() {
    std::unordered_set<std::string> seen;
    for (NodeId n : order_)
      for (ValueId r : g_.node(n).results)
        if (g_.value(r).name.empty() || !seen.insert(g_.value(r).name).second)
          say("the name %" + g_.value(r).name + " is empty or not unique");
  }

  void producers_first() {
    std::vector<bool> done(static_cast<size_t>(g_.num_nodes()), false);
    const SymbolDefiners definers(g_);
    for (NodeId n : order_) {
      for (ValueId v : g_.node(n).operands)
        if (v != kNoValue && !done[static_cast<size_t>(g_.value(v).producer)])
          say("%" + g_.value(v).name + " is used before it is produced: " + at(n));
      for (NodeId d : definers.before(n))
        if (!done[static_cast<size_t>(d)]) say("a symbol is used before it is defined: " + at(n));
      done[static_cast<size_t>(n)] = true;
    }
  }

  // --- nodes --------------------------------------------------------------------------------------------------------

  void node(NodeId id) {
    const Node& n = g_.node(id);
    for (ValueId r : n.results) {
      well_formed(r, g_.type(r));
      contents(r);
    }
    const OpInfo& i = info(n.op);
    const int operands = static_cast<int>(n.operands.size());
    if (operands < i.min_operands || (i.max_operands >= 0 && operands > i.max_operands))
      return say("wrong number of operands: " + at(id));
    types(id, n);
    if (const auto* s = std::get_if<SubgraphAttr>(&n.attr)) bodies(id, n, *s);
  }

  void well_formed(ValueId v, const Type& t) {
    const std::string who = "the type of %" + g_.value(v).name;
    if ((t.kind == Type::sequence || t.kind == Type::optional) && !t.element) say(who + " has no element type");
    if (t.element) well_formed(v, *t.element);
    if (t.kind != Type::tensor) return;
    if (t.dtype == DType::none) say(who + " has no dtype");
    for (Expr d : t.shape)
      if (!d || &d.context() != &m_context()) return say(who + " has a dim that is missing or of another module");
    std::vector<int> dims = t.order;
    std::sort(dims.begin(), dims.end());
    for (size_t d = 0; d < dims.size(); ++d)
      if (dims.size() != t.shape.size() || dims[d] != static_cast<int>(d))
        return say(who + " has an order that is no permutation of its dims");
    if (t.storage != DType::none && (t.dtype != DType::f32 || (t.storage != DType::f16 && t.storage != DType::bf16)))
      say(who + " has a storage type other than f16 or bf16 of f32");
    if (t.quant && (t.quant->axis < -1 || t.quant->axis >= t.rank())) say(who + " is quantised along no dim of it");
    if (t.sharding && t.sharding->mesh_axis_of_dim.size() != t.shape.size()) say(who + " has a sharding of other rank");
  }

  sym::Context& m_context() const { return g_.sym(); }

  void contents(ValueId v) {
    const auto& c = g_.value(v).contents;
    if (!c) return;
    const Type& t = g_.type(v);
    Expr count = element_count(g_.sym(), t.shape);
    if (!(is_int(t.dtype) || t.dtype == DType::b1) || !count.is_const(static_cast<int64_t>(c->size())) ||
        static_cast<int64_t>(c->size()) > kMaxContents)
      say("the contents of %" + g_.value(v).name + " do not fit its type " + text(t));
  }

  static bool states_condition(Expr stated, Expr wanted) {
    if (stated == wanted) return true;
    if (stated->op != sym::Op::logical_or) return false;
    return states_condition(stated.arg(0), wanted) || states_condition(stated.arg(1), wanted);
  }

  void types(NodeId id, const Node& n) {
    std::vector<Type> types;
    for (ValueId r : n.results) types.push_back(g_.type(r));
    Requirements required;
    try {
      check_types(g_, n.op, n.operands, n.attr, types, required);
    } catch (const ShapeError& e) {
      return say(std::string(e.what()) + ": " + at(id));
    } catch (const sym::Overflow& e) {
      return say(std::string(e.what()) + ": " + at(id));
    }
    for (const auto& r : required) {
      // Inside a branch of an if it is stated as `not taken or condition`.
      auto states = [&](const Module::Requirement& o) { return states_condition(o.condition, r.condition); };
      if (!std::any_of(m_.requirements.begin(), m_.requirements.end(), states))
        say("no requirement states " + sym::text(r.condition) + ", which is needed by: " + at(id));
    }
  }

  // --- bodies -------------------------------------------------------------------------------------------------------

  void bodies(NodeId id, const Node& n, const SubgraphAttr& a) {
    const bool is_if = n.op == OpKind::if_, is_loop = n.op == OpKind::loop;
    if (a.graphs.size() != (is_if ? 2u : 1u)) return say("wrong number of bodies: " + at(id));
    const size_t operands = n.operands.size(), results = n.results.size();
    const auto carried = static_cast<size_t>(a.num_carried), scanned = static_cast<size_t>(a.num_scan_inputs);
    if (a.num_carried < 0 || a.num_scan_inputs < 0) return say("a count is negative: " + at(id));
    if (is_loop && (operands < 2 + carried || results < carried)) return say("too few carried values: " + at(id));
    if (n.op == OpKind::scan && (operands < carried + scanned || results < carried))
      return say("too few carried or scanned values: " + at(id));
    for (int32_t i : a.graphs) {
      const Graph& body = m_.graph(i);
      const size_t want_inputs = is_if ? operands - 1 : operands, want_outputs = is_loop ? results + 1 : results;
      if (body.inputs().size() != want_inputs || body.outputs().size() != want_outputs)
        return say("@" + body.name() + " has " + std::to_string(body.inputs().size()) + " inputs and " +
                   std::to_string(body.outputs().size()) + " outputs, " + std::to_string(want_inputs) + " and " +
                   std::to_string(want_outputs) + " are wanted: " + at(id));
      body_types(id, n, body, is_if ? 1 : is_loop ? 2 : 0, is_loop ? 1 : 0, is_loop ? carried : results);
    }
  }

  // Operands from `first_operand` on agree in dtype with the body's inputs, results with its outputs. Ranks of scanned
  // values differ by one: `ranked` results are compared in rank too.
  void body_types(NodeId id, const Node& n, const Graph& body, size_t first_operand, size_t first_output,
                  size_t ranked) {
    const size_t shift = n.op == OpKind::if_ ? 1 : 0;
    for (size_t i = first_operand; i < n.operands.size(); ++i) {
      if (n.operands[i] == kNoValue) continue;
      const Type &a = g_.type(n.operands[i]), &b = body.type(body.inputs()[i - shift]);
      if (a.kind != b.kind || a.dtype != b.dtype)
        say("operand " + std::to_string(i + 1) + " is " + text(a) + ", the body takes " + text(b) + ": " + at(id));
    }
    for (size_t i = 0; i < n.results.size(); ++i) {
      const Type &a = g_.type(n.results[i]), &b = body.type(body.outputs()[i + first_output]);
      const bool ranks = n.op == OpKind::scan || i >= ranked || a.rank() == b.rank();
      if (a.kind != b.kind || a.dtype != b.dtype || !ranks)
        say("result " + std::to_string(i + 1) + " is " + text(a) + ", the body gives " + text(b) + ": " + at(id));
    }
  }

  const Module& m_;
  const Graph& g_;
  const int32_t index_;
  Messages& out_;
  const std::vector<NodeId> order_;
};

void GraphVerifier::links() {
  for (NodeId n : order_) {
    const Node& node = g_.node(n);
    const std::string who = "node " + std::to_string(n) + " (" + std::string(info(node.op).text) + ")";
    for (ValueId v : node.operands)
      if (v != kNoValue && (!is_value(v) || g_.value(v).producer < 0 || g_.node(g_.value(v).producer).dead))
        say(who + " uses a value that nothing produces");
    for (size_t i = 0; i < node.results.size(); ++i) {
      const ValueId r = node.results[i];
      if (!is_value(r) || g_.value(r).producer != n || g_.value(r).result != static_cast<int>(i))
        say(who + ": result " + std::to_string(i) + " does not name it as its producer");
    }
    if (static_cast<int>(node.attr.index()) != info(node.op).attr_index) say(who + " has the wrong attribute struct");
    else if (const auto* s = std::get_if<SubgraphAttr>(&node.attr)) bodies_exist(who, *s);
  }
  for (ValueId v : g_.outputs())
    if (!is_value(v) || g_.value(v).producer < 0) say("an output is a value that nothing produces");
}

// --- the module -----------------------------------------------------------------------------------------------------

// The graphs that main leads to; a body whose node went may linger. Each belongs to one node.
std::vector<int32_t> reachable(const Module& m, Messages& out) {
  std::vector<bool> seen(static_cast<size_t>(m.num_graphs()), false);
  std::vector<int32_t> found = {0};
  for (size_t k = 0; k < found.size(); ++k) {
    const Graph& g = m.graph(found[k]);
    for (NodeId n : g.order())
      if (const auto* s = std::get_if<SubgraphAttr>(&g.node(n).attr))
        for (int32_t b : s->graphs) {
          if (seen[static_cast<size_t>(b)]) {
            out.push_back("@" + m.graph(b).name() + " is the body of two nodes");
          } else {
            seen[static_cast<size_t>(b)] = true;
            found.push_back(b);
          }
        }
  }
  return found;
}

void verify_symbols(const Module& m, const std::vector<int32_t>& graphs, Messages& out) {
  std::unordered_set<Expr, sym::Hash> known(m.symbols.begin(), m.symbols.end()), defined;
  known.insert(m.data_symbols.begin(), m.data_symbols.end());
  SymbolCollector all(m, false);
  for (int32_t i : graphs) {
    const Graph& g = m.graph(i);
    for (NodeId n : g.order()) all.node(g, g.node(n));
    // The extents that a loop's carried values have in the iteration under way.
    for (NodeId n : g.order())
      if (const auto* s = std::get_if<SubgraphAttr>(&g.node(n).attr); s && g.node(n).op != OpKind::if_)
        for (ValueId v : m.graph(s->graphs[0]).inputs())
          for (Expr e : m.graph(s->graphs[0]).type(v).shape)
            if (e.is_var()) defined.insert(e);
    const SymbolDefiners definers(g);
    for (Expr s : m.data_symbols)
      if (definers.find(s) >= 0) defined.insert(s);
  }
  for (const auto& r : m.requirements) all.expr(r.condition);
  for (Expr v : all.take_new()) {
    if (!known.count(v))
      out.push_back("symbol " + sym::text(v) + " is used but is neither an input's nor a data symbol");
    else if (!defined.count(v) && std::find(m.data_symbols.begin(), m.data_symbols.end(), v) != m.data_symbols.end())
      out.push_back("data symbol " + sym::text(v) + " is used but no node defines it");
  }
}

}  // namespace

std::vector<std::string> verify(const Module& m) {
  Messages out;
  for (int32_t i = 0; i < m.num_graphs(); ++i) GraphVerifier(m, i, out).links();
  if (!out.empty()) return out;  // what follows takes the links to be sound
  const std::vector<int32_t> graphs = reachable(m, out);
  for (int32_t i : graphs) GraphVerifier(m, i, out).run();
  verify_symbols(m, graphs, out);
  return out;
}

}  // namespace tripod::graph
