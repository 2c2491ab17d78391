// Dependencies between the nodes of one ONNX graph, and the protobuf rewriting that functions need.
#include <algorithm>
#include <functional>
#include <queue>

#include "onnx/scope.h"

namespace tripod::importer {
using ::onnx::AttributeProto;
using ::onnx::GraphProto;
using ::onnx::NodeProto;

std::string domain_of(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

void free_names(const GraphProto& graph, std::set<std::string>& names) {
  std::set<std::string> used, made;
  for (const auto& i : graph.input()) made.insert(i.name());
  for (const auto& t : graph.initializer()) made.insert(t.name());
  for (const auto& t : graph.sparse_initializer()) made.insert(t.values().name());
  for (const NodeProto& n : graph.node()) {
    used.insert(n.input().begin(), n.input().end());
    made.insert(n.output().begin(), n.output().end());
    for (const AttributeProto& a : n.attribute()) {
      if (a.has_g()) free_names(a.g(), used);
      for (const GraphProto& g : a.graphs()) free_names(g, used);
    }
  }
  for (const auto& o : graph.output()) used.insert(o.name());
  for (const std::string& name : used)
    if (!name.empty() && !made.contains(name)) names.insert(name);
}

namespace {

// Names that node n needs: its inputs and what its sub-graphs use from outside.
std::vector<std::string> needs(const NodeProto& n) {
  std::set<std::string> inner;
  for (const AttributeProto& a : n.attribute()) {
    if (a.has_g()) free_names(a.g(), inner);
    for (const GraphProto& g : a.graphs()) free_names(g, inner);
  }
  std::vector<std::string> names(n.input().begin(), n.input().end());
  names.insert(names.end(), inner.begin(), inner.end());
  return names;
}

// One cycle among the nodes that are left, as a list of nodes: follow producers from `start` until one repeats.
std::vector<int> cycle_from(int start, const std::vector<std::vector<int>>& producers, const std::vector<bool>& done) {
  std::vector<int> path;
  for (int n = start;;) {
    if (auto it = std::find(path.begin(), path.end(), n); it != path.end()) return {it, path.end()};
    path.push_back(n);
    const auto next = std::find_if(producers[n].begin(), producers[n].end(), [&](int p) { return !done[p]; });
    if (next == producers[n].end()) return {};
    n = *next;
  }
}

}  // namespace

std::vector<int> order_nodes(Import& import, const NodeList& nodes,
                             const std::function<bool(const std::string&)>& defined,
                             const std::function<Site(int)>& site_of) {
  const int count = nodes.size();
  std::unordered_map<std::string, int> producer;
  for (int i = 0; i < count; ++i)
    for (const std::string& name : nodes[i].output())
      if (!name.empty()) producer.emplace(name, i);  // a second producer is reported when it is imported

  std::vector<std::vector<int>> users(count), producers(count);
  std::vector<int> waiting(count, 0);
  for (int i = 0; i < count; ++i)
    for (const std::string& name : needs(nodes[i]))
      if (auto it = producer.find(name); it != producer.end() && !defined(name)) {
        users[it->second].push_back(i);
        producers[i].push_back(it->second);
        ++waiting[i];
      }

  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int i = 0; i < count; ++i)
    if (waiting[i] == 0) ready.push(i);
  std::vector<int> order;
  std::vector<bool> done(count, false);
  while (!ready.empty()) {
    const int n = ready.top();
    ready.pop();
    order.push_back(n);
    done[n] = true;
    for (int u : users[n])
      if (--waiting[u] == 0) ready.push(u);
  }

  // What is left lies on a cycle or behind one. Each cycle is reported once, at its first node.
  std::vector<bool> reported(count, false);
  for (int i = 0; i < count; ++i) {
    if (done[i] || reported[i]) continue;
    std::vector<int> cycle = cycle_from(i, producers, done);
    if (!cycle.empty() && std::none_of(cycle.begin(), cycle.end(), [&](int n) { return reported[n]; })) {
      std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());
      // Followed from user to producer, so the data flows the other way round.
      std::string text = site_of(cycle[0]).text();
      constexpr size_t kShown = 8;
      for (size_t k = cycle.size(); k-- > 1;) {
        if (cycle.size() > kShown + 1 && k == cycle.size() - kShown) {
          text += " -> (" + std::to_string(k) + " more)";
          break;
        }
        text += " -> " + site_of(cycle[k]).text();
      }
      text += " -> " + site_of(cycle[0]).text();
      import.error(site_of(cycle[0]), "needs its own result: " + text, "ONNX graphs must not have cycles");
    }
    reported[i] = true;
    for (int n : cycle) reported[n] = true;
  }
  return order;
}

NodeProto with_attributes(const NodeProto& node, const std::map<std::string, const AttributeProto*>& given) {
  NodeProto result = node;
  result.clear_attribute();
  for (const AttributeProto& a : node.attribute()) {
    AttributeProto copy = a;
    if (!a.ref_attr_name().empty()) {
      const auto it = given.find(a.ref_attr_name());
      if (it == given.end()) continue;  // not given and without a default: as if it were not there
      copy = *it->second;
      copy.set_name(a.name());
    }
    if (copy.has_g())
      for (NodeProto& inner : *copy.mutable_g()->mutable_node()) inner = with_attributes(inner, given);
    for (GraphProto& g : *copy.mutable_graphs())
      for (NodeProto& inner : *g.mutable_node()) inner = with_attributes(inner, given);
    *result.add_attribute() = std::move(copy);
  }
  return result;
}

}  // namespace tripod::importer
