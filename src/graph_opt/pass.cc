#include "graph_opt/pass.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float_bits.h"

namespace tripod::graph_opt {

// --- rewriting ------------------------------------------------------------------------------------------------------

namespace {

bool same_site(const Site& a, const Site& b) { return a.index == b.index && a.op == b.op && a.name == b.name; }

std::vector<Site> merged_origins(const Graph& g, const std::vector<NodeId>& nodes) {
  std::vector<Site> all;
  for (NodeId n : nodes)
    for (const Site& s : g.node(n).origins)
      if (std::none_of(all.begin(), all.end(), [&](const Site& o) { return same_site(o, s); })) all.push_back(s);
  return all;
}

// Inputs are the graph's interface; the host's and the runtime's ops may define symbols that only types mention.
// remove_dead() knows about those.
bool may_erase(OpKind op) {
  return op != OpKind::input && !graph::has(op, graph::kHostControl) && !graph::has(op, graph::kRuntime);
}

}  // namespace

bool Rewriter::begin(const std::vector<NodeId>& matched) {
  if (budget_.limit >= 0 && budget_.used >= budget_.limit) return false;
  ++budget_.used;
  changed_ = true;
  first_new_ = g.num_nodes();
  g.set_origins(merged_origins(g, matched));
  if (budget_.limit < 0) return true;   // nobody asks
  budget_.matched.clear();
  for (NodeId n : matched) {
    std::string text(graph::info(g.node(n).op).text);
    for (const Site& s : g.node(n).origins) text += (&s == &g.node(n).origins[0] ? " of " : ", ") + s.text();
    budget_.matched.push_back(std::move(text));
  }
  budget_.last_pass = budget_.pass;
  return true;
}

void Rewriter::replace(ValueId from, ValueId to) {
  // Nobody uses a result whose node is gone: it went with the node's first result.
  if (from == to || g.value(from).producer < 0) return;
  if (!same_shape(g, from, to)) to = g.reshape(to, g.type(from).shape);
  const bool fresh = g.value(to).producer >= first_new_;
  const NodeId old = g.value(from).producer;
  // A new node may read what it replaces.
  const bool reads = std::find(g.value(from).users.begin(), g.value(from).users.end(), g.value(to).producer) !=
                     g.value(from).users.end();
  g.replace_uses(from, to, reads ? g.value(to).producer : -1);
  const std::string name = g.value(from).name;
  erase_unused(old);
  if (fresh && g.node(old).dead) g.set_name(to, name);
}

void Rewriter::set_operand(NodeId n, int slot, ValueId to) {
  const ValueId old = g.node(n).operands[static_cast<size_t>(slot)];
  g.set_operand(n, slot, to);
  if (old != kNoValue) erase_unused(g.value(old).producer);
}

void Rewriter::erase_unused(NodeId root) {
  std::vector<NodeId> work{root};
  while (!work.empty()) {
    const NodeId n = work.back();
    work.pop_back();
    const Node& node = g.node(n);
    const auto unused = [&](ValueId v) { return g.value(v).users.empty() && !g.is_output(v); };
    if (node.dead || !may_erase(node.op) || !std::all_of(node.results.begin(), node.results.end(), unused)) continue;
    const std::vector<ValueId> operands = node.operands;
    g.erase(n);
    for (ValueId v : operands)
      if (v != kNoValue) work.push_back(g.value(v).producer);
  }
}

void apply_rules(Rewriter& r, std::initializer_list<Rule> rules) {
  for (NodeId n : r.order())
    for (Rule rule : rules)
      if (r.dead(n) || rule(r, n)) break;
}

// --- looking --------------------------------------------------------------------------------------------------------

bool one_use(const Graph& g, ValueId v) { return g.value(v).users.size() == 1 && !g.is_output(v); }

ValueId operand(const Graph& g, NodeId n, size_t i) {
  const auto& o = g.node(n).operands;
  return i < o.size() ? o[i] : kNoValue;
}

NodeId producer_of(const Graph& g, ValueId v) { return v == kNoValue ? -1 : g.value(v).producer; }

bool same_shape(const Graph& g, ValueId a, ValueId b) { return g.type(a).shape == g.type(b).shape; }

std::optional<Ints> static_shape(const Type& t) {
  Ints dims;
  for (Expr d : t.shape) {
    if (!d.is_const()) return std::nullopt;
    dims.push_back(d.value());
  }
  return dims;
}

std::optional<int64_t> static_size(const Type& t) {
  int64_t n = 1;
  for (Expr d : t.shape) {
    if (!d.is_const()) return std::nullopt;
    n *= d.value();  // fits: the graph checked the size in bytes
  }
  return n;
}

bool is_number(const Graph& g, ValueId v, double number) {
  const auto s = g.scalar_value(v);
  return s && *s == number;
}

bool about(double a, double b) { return std::fabs(a - b) <= 2e-6 * std::fabs(b); }

bool is_about(const Graph& g, ValueId v, double number) {
  const auto s = g.scalar_value(v);
  return s && about(*s, number);
}

std::optional<WithNumber> with_number(const Graph& g, NodeId n) {
  const Node& node = g.node(n);
  if (node.operands.size() != 2) return std::nullopt;
  if (const auto b = g.scalar_value(node.operands[1])) return WithNumber{node.operands[0], *b};
  if (!graph::has(node.op, graph::kCommutative)) return std::nullopt;
  if (const auto a = g.scalar_value(node.operands[0])) return WithNumber{node.operands[1], *a};
  return std::nullopt;
}

// --- constants ------------------------------------------------------------------------------------------------------

graph::ConstAttr own_bytes(std::vector<std::byte> bytes) {
  auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  graph::ConstAttr a;
  a.data = owner->data();
  a.size = static_cast<int64_t>(owner->size());
  a.owner = std::move(owner);
  return a;
}

ValueId float_constant(Graph& g, DType t, const Ints& dims, const std::vector<double>& values) {
  std::vector<std::byte> bytes(static_cast<size_t>(byte_size(t, static_cast<int64_t>(values.size()))));
  for (size_t i = 0; i < values.size(); ++i) {
    const float f = static_cast<float>(values[i]);
    if (t == DType::f32) std::memcpy(bytes.data() + i * sizeof f, &f, sizeof f);  // weights: millions of them
    else store_double(t, bytes.data(), static_cast<int64_t>(i), values[i]);
  }
  Shape shape;
  for (int64_t d : dims) shape.push_back(g.sym().constant(d));
  return g.add_constant(Type::make(t, std::move(shape)), own_bytes(std::move(bytes)));
}

}  // namespace tripod::graph_opt
