#include "graph_opt/layout.h"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace tripod::graph_opt {

using graph::DimOrder;
using graph::Graph;
using graph::Group;
using graph::Groups;
using graph::kNoValue;
using graph::NodeId;
using graph::OpKind;
using graph::ValueId;

namespace {

DimOrder channels_last(int rank) {
  DimOrder o = {0};
  for (int d = 2; d < rank; ++d) o.push_back(d);
  o.push_back(1);
  return o;
}

bool is_windowed(OpKind op) {
  return op == OpKind::conv || op == OpKind::conv_transpose || op == OpKind::max_pool || op == OpKind::average_pool ||
         op == OpKind::conv_integer;
}
bool is_convolution(OpKind op) { return op == OpKind::conv || op == OpKind::conv_transpose || op == OpKind::conv_integer; }

class Layouts {
 public:
  Layouts(Graph& g, Groups& groups, const LayoutPreferences& wanted) : g_(g), groups_(groups), wanted_(wanted) {
    for (size_t i = 0; i < groups.size(); ++i)
      for (NodeId n : groups[i].nodes) group_of_[n] = i;
  }

  int run() {
    int copies = 0;
    Groups result;
    for (size_t i = 0; i < groups_.size(); ++i) {
      Group& group = groups_[i];
      std::vector<Group> after;
      if (is_lone_transpose(group) && make_alias(group)) {
        result.push_back(group);
        continue;
      }
      if (group.kind == Group::kernel) copies += copy_operands(group, result);
      if (group.kind == Group::kernel)
        for (ValueId v : std::vector<ValueId>(group.outputs)) {
          if (!wants_channels_last(group, v)) continue;
          if (strict_users(v).empty() && !g_.is_output(v)) {
            g_.value(v).type.order = channels_last(g_.type(v).rank());
          } else if (makes_by_convolution(group)) {
            after.push_back(add_copy(v));
            ++copies;
          }
        }
      result.push_back(group);
      result.insert(result.end(), after.begin(), after.end());
    }
    groups_ = std::move(result);
    if (wanted_.weights_channels_last)
      for (NodeId n : g_.order())
        if (is_convolution(g_.node(n).op)) order_weights(g_.node(n));
    g_.sort();
    return copies;
  }

 private:
  bool is_lone_transpose(const Group& group) const {
    return group.kind == Group::kernel && group.nodes.size() == 1 && g_.node(group.nodes[0]).op == OpKind::transpose;
  }

  // A transpose moves nothing where its result may lie as its operand does: row-major results (a channels-last value
  // that the model wants as [N, spatial, C]), channels-last ones, and any order for operands of matrix products and of
  // attention, which are packed or read row by row anyway.
  bool make_alias(Group& group) {
    const graph::Node& n = g_.node(group.nodes[0]);
    const ValueId x = n.operands[0], y = n.results[0];
    if (g_.is_constant(x) || g_.type(x).storage != g_.type(y).storage) return false;
    const std::vector<int>& perm = std::get<graph::PermAttr>(n.attr).perm;
    if (written_transposed(x, perm)) {
      g_.value(x).type.order = perm;
      group.kind = Group::alias;
      return true;
    }
    const int rank = static_cast<int>(perm.size());
    DimOrder from = g_.type(x).order, order(perm.size()), identity(perm.size());
    for (int d = 0; d < rank; ++d) identity[d] = d;
    if (from.empty()) from = identity;
    for (int k = 0; k < rank; ++k)
      order[k] = static_cast<int>(std::find(perm.begin(), perm.end(), from[k]) - perm.begin());
    const bool plain = order == identity;
    const bool windows = rank >= 3 && rank <= 5 && order == channels_last(rank) && strict_users(y).empty() && !rows_use(y);
    if (!plain && (g_.is_output(y) || (!windows && !only_matmuls_use(y)))) return false;
    g_.value(y).type.order = plain ? DimOrder{} : order;
    group.kind = Group::alias;
    return true;
  }

  // Rows of a matrix product may be written wherever they belong (heads side by side behind attention), since the
  // innermost dim stays.
  bool written_transposed(ValueId x, const std::vector<int>& perm) const {
    if (perm.back() != static_cast<int>(perm.size()) - 1 || g_.is_output(x)) return false;
    if (!g_.type(x).order.empty() || g_.value(x).users.size() != 1) return false;
    const auto made = group_of_.find(g_.value(x).producer);
    return made != group_of_.end() && groups_[made->second].kind == Group::kernel && works_on_rows(groups_[made->second]);
  }

  bool only_matmuls_use(ValueId v) const {
    const auto& users = g_.value(v).users;
    return !users.empty() && std::all_of(users.begin(), users.end(), [&](NodeId u) {
      const graph::Node& n = g_.node(u);
      const auto mask = n.operands.begin() + std::min<size_t>(n.operands.size(), 3);
      return n.op == OpKind::matmul || (n.op == OpKind::attention && std::find(mask, n.operands.end(), v) == n.operands.end());
    });
  }

  // Matrix products and ops over the innermost dim want that dim contiguous, in what they read and write.
  bool works_on_rows(const Group& group) const {
    return std::any_of(group.nodes.begin(), group.nodes.end(), [&](NodeId n) {
      const graph::Node& node = g_.node(n);
      switch (node.op) {
        case OpKind::matmul:
        case OpKind::matmul_integer:
        case OpKind::attention: return true;
        case OpKind::softmax:
        case OpKind::log_softmax: return std::get<graph::AxisAttr>(node.attr).axis == g_.type(node.results[0]).rank() - 1;
        case OpKind::layer_norm:
        case OpKind::rms_norm: return std::get<graph::ScalarAttr>(node.attr).axis == g_.type(node.results[0]).rank() - 1;
        default: return false;
      }
    });
  }
  bool rows_use(ValueId v) const {
    const auto& users = g_.value(v).users;
    return std::any_of(users.begin(), users.end(), [&](NodeId u) { return works_on_rows(groups_[group_of_.at(u)]); });
  }

  // As their image: a copy that is made anyway is made in the order they read best.
  bool only_windows_use(ValueId v) const {
    const auto& users = g_.value(v).users;
    return !users.empty() && std::all_of(users.begin(), users.end(), [&](NodeId u) { return is_windowed(g_.node(u).op) && g_.node(u).operands[0] == v; });
  }

  bool makes_by_convolution(const Group& group) const {
    return std::any_of(group.nodes.begin(), group.nodes.end(), [&](NodeId n) { return is_convolution(g_.node(n).op); });
  }

  // The same weights may serve two convolutions; those want the same order then, or the first one's is as good.
  void order_weights(const graph::Node& n) {
    const ValueId w = n.operands[1];
    const int rank = g_.type(w).rank();
    if (!g_.is_constant(w) || !g_.type(w).order.empty()) return;
    const graph::ConvAttr& a = std::get<graph::ConvAttr>(n.attr);
    DimOrder order;
    const bool transposed = n.op == OpKind::conv_transpose;  // [in, out / group, spatial]
    const bool each_alone = !transposed && a.group > 1 && g_.type(w).shape[1].is_const(1);
    if (!each_alone) order.push_back(transposed ? 1 : 0);
    for (int d = 2; d < rank; ++d) order.push_back(d);
    if (each_alone) order.push_back(1);
    order.push_back(transposed || each_alone ? 0 : 1);
    g_.value(w).type.order = order;
  }

  // Does the windowed op want its image copied to channels-last?
  bool wants_copy(const graph::Node& n, const graph::Type& image) const {
    const int64_t channels = image.shape[1].constant().value_or(0);
    if (wanted_.copy_operands_from > 0 && channels >= wanted_.copy_operands_from) return true;
    if (wanted_.copy_depthwise_from == 0 || channels < wanted_.copy_depthwise_from || n.op != OpKind::conv) return false;
    return std::get<graph::ConvAttr>(n.attr).group == channels && g_.type(n.operands[1]).shape[1].is_const(1);
  }

  // In front of a group with a windowed op: its operand, channels-last. Returns how many copies were added.
  int copy_operands(Group& group, Groups& result) {
    int count = 0;
    for (NodeId n : group.nodes) {
      if (!is_windowed(g_.node(n).op)) continue;
      const ValueId x = g_.node(n).operands[0];
      const graph::Type& t = g_.type(x);
      const bool outside = std::find(group.inputs.begin(), group.inputs.end(), x) != group.inputs.end();
      if (!outside || g_.is_constant(x) || t.rank() < 3 || t.rank() > 5 || !t.order.empty()) continue;
      if (!wants_copy(g_.node(n), t)) continue;
      ValueId& copy = copies_.try_emplace(x, kNoValue).first->second;
      if (copy == kNoValue) {
        graph::Type type = t;
        type.order = channels_last(t.rank());
        g_.set_origins(g_.node(n).origins);
        copy = g_.add_given(OpKind::copy, {x}, graph::NoAttr{}, type);
        group_of_[g_.value(copy).producer] = group_of_.at(n);
        result.push_back({Group::kernel, {g_.value(copy).producer}, {x}, {copy}});
        ++count;
      }
      g_.set_operand(n, 0, copy);
      const bool still = std::any_of(group.nodes.begin(), group.nodes.end(), [&](NodeId m) {
        const auto& operands = g_.node(m).operands;
        return std::find(operands.begin(), operands.end(), x) != operands.end();
      });
      still ? group.inputs.push_back(copy) : std::replace(group.inputs.begin(), group.inputs.end(), x, copy);
    }
    return count;
  }

  // A windowed op in the group, or an input of this rank that lies channels-last.
  bool wants_channels_last(const Group& group, ValueId v) const {
    const int rank = g_.type(v).rank();
    if (rank < 3 || rank > 5) return false;
    if (g_.producer(v).op == OpKind::copy && group.nodes.size() == 1) return only_windows_use(v);
    const bool windowed = std::any_of(group.nodes.begin(), group.nodes.end(), [&](NodeId n) { return is_windowed(g_.node(n).op); });
    if (works_on_rows(group)) return windowed;
    return windowed || std::any_of(group.inputs.begin(), group.inputs.end(), [&](ValueId i) {
      return g_.type(i).rank() == rank && g_.type(i).order == channels_last(rank);
    });
  }

  // Users that need row-major memory: everything but kernels.
  std::set<NodeId> strict_users(ValueId v) const {
    std::set<NodeId> r;
    for (NodeId u : g_.value(v).users)
      if (groups_[group_of_.at(u)].kind != Group::kernel) r.insert(u);
    return r;
  }

  // v becomes channels-last; who needs it row-major gets a copy.
  Group add_copy(ValueId v) {
    graph::Type plain = g_.type(v);
    const std::set<NodeId> strict = strict_users(v);
    g_.set_origins(g_.producer(v).origins);
    const ValueId copy = g_.add_given(OpKind::copy, {v}, graph::NoAttr{}, plain);
    g_.value(v).type.order = channels_last(plain.rank());
    for (NodeId u : strict) {
      for (size_t s = 0; s < g_.node(u).operands.size(); ++s)
        if (g_.node(u).operands[s] == v) g_.set_operand(u, static_cast<int>(s), copy);
      auto& inputs = groups_[group_of_.at(u)].inputs;
      std::replace(inputs.begin(), inputs.end(), v, copy);
    }
    std::vector<ValueId> outputs = g_.outputs();
    std::replace(outputs.begin(), outputs.end(), v, copy);
    g_.set_outputs(outputs, g_.output_names());
    const NodeId n = g_.value(copy).producer;
    group_of_[n] = group_of_.at(g_.value(v).producer);
    return {Group::kernel, {n}, {v}, {copy}};
  }

  Graph& g_;
  Groups& groups_;
  const LayoutPreferences& wanted_;
  std::unordered_map<NodeId, size_t> group_of_;
  std::unordered_map<ValueId, ValueId> copies_;  // channels-last, of operands
};

}  // namespace

int assign_layouts(Graph& g, Groups& groups, const LayoutPreferences& wanted) { return Layouts(g, groups, wanted).run(); }

}  // namespace tripod::graph_opt
