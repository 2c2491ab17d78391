#include "graph_opt/precision.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <unordered_map>

namespace tripod::graph_opt {

using graph::Graph;
using graph::Group;
using graph::Groups;
using graph::kNoValue;
using graph::Node;
using graph::NodeId;
using graph::OpKind;
using graph::ValueId;

namespace {

// What an op asks of the memory of its operands and results. Whatever has no row takes and gives narrow values:
// contractions, elementwise math, moves, pooling, norms and softmax read and write them once and compute in f32.
struct Row {
  OpKind op;
  bool exact_operands, exact_results;
  const char* why;
};
constexpr Row kTable[] = {
    // Results that leave the range of f16 (65504) or lose their meaning in 11 bits.
    {OpKind::exp, false, true, "its range is larger than f16's"},
    {OpKind::pow, false, true, "its range is larger than f16's"},
    {OpKind::sinh, false, true, "its range is larger than f16's"},
    {OpKind::cosh, false, true, "its range is larger than f16's"},
    {OpKind::reciprocal, false, true, "its range is larger than f16's"},
    {OpKind::reduce_sum, false, true, "a sum of many terms is larger than f16's range"},
    {OpKind::reduce_prod, false, true, "a product of many terms is larger than f16's range"},
    {OpKind::log_softmax, false, true, "losses are made of it"},
    {OpKind::cumsum, true, true, "the error of a running sum grows"},
    {OpKind::cumprod, true, true, "the error of a running product grows"},
    {OpKind::iota, true, true, "counts beyond 2048 need more than 11 bits"},
    // Operands where a small change of the value is a large one of the result.
    {OpKind::sin, true, false, "an angle of 1000 has a step of 0.5 in f16"},
    {OpKind::cos, true, false, "an angle of 1000 has a step of 0.5 in f16"},
    {OpKind::tan, true, false, "an angle of 1000 has a step of 0.5 in f16"},
    {OpKind::log, true, false, "small operands are 0 in f16"},
    {OpKind::mod, true, true, "the rest of a division needs all bits of the operand"},
    {OpKind::fmod, true, true, "the rest of a division needs all bits of the operand"},
    // Results that choose: rounding decides between neighbours.
    {OpKind::arg_max, true, true, "rounding makes ties"},
    {OpKind::arg_min, true, true, "rounding makes ties"},
    {OpKind::equal, true, true, "rounding makes ties"},
    {OpKind::less, true, true, "rounding makes ties"},
    {OpKind::less_equal, true, true, "rounding makes ties"},
    {OpKind::ceil, true, false, "rounding moves the steps"},
    {OpKind::floor, true, false, "rounding moves the steps"},
    {OpKind::round, true, false, "rounding moves the steps"},
    {OpKind::quantize, true, true, "rounding moves the steps"},
};

const Row* row_of(OpKind op) {
  const Row* r = std::find_if(std::begin(kTable), std::end(kTable), [&](const Row& x) { return x.op == op; });
  return r == std::end(kTable) ? nullptr : r;
}

// Operands that are coordinates or scales, not data.
bool exact_slot(const Graph& g, const Node& n, size_t slot) {
  if (n.op == OpKind::resize) return slot > 0;
  if (n.op == OpKind::dequantize) return true;
  if (n.op == OpKind::cast) return !is_float(g.type(n.results[0]).dtype);  // becomes an index, a count, a decision
  const Row* r = row_of(n.op);
  return r && r->exact_operands;
}

bool exact_result(const Graph& g, const Node& n) {
  if (n.op == OpKind::cast) return !is_float(g.type(n.operands[0]).dtype) && g.type(n.operands[0]).dtype != DType::u8;
  const Row* r = row_of(n.op);
  return r && r->exact_results;
}

// Weights are stored narrow where memory traffic or the multiplier asks for it. Scales, biases, epsilons and other
// short constants stay exact: reading them costs nothing.
constexpr int64_t kShort = 4096;
bool is_weight(const Graph& g, const Node& n, size_t slot, ValueId v) {
  const int64_t count = graph::element_count(g.sym(), g.type(v).shape).constant().value_or(0);
  if (graph::has(n.op, graph::kContraction)) return slot < 2 && count > 1;
  return count > kShort;
}

class Storage {
 public:
  Storage(Graph& g, Groups& groups, DType narrow) : g_(g), groups_(groups), narrow_(narrow), same_(g.num_values()) {
    std::iota(same_.begin(), same_.end(), 0);
    for (size_t i = 0; i < groups.size(); ++i)
      for (NodeId n : groups[i].nodes) group_of_[n] = i;
  }

  int run() {
    find_counted();
    for (NodeId n : g_.order()) pin_around(g_.node(n));
    for (ValueId v : g_.outputs()) pin(v);
    int count = 0;
    for (const Group& group : groups_) {
      if (group.kind != Group::kernel && group.kind != Group::alias) continue;
      for (ValueId v : group.outputs) count += narrow_value(v);
    }
    for (NodeId n : g_.order())
      if (g_.node(n).op == OpKind::constant) count += narrow_constant(g_.node(n).results[0]);
    return count + convert_factors();
  }

 private:
  bool floating(ValueId v) const { return v != kNoValue && g_.type(v).dtype == DType::f32 && g_.type(v).kind == graph::Type::tensor; }

  // Values that share memory are one.
  ValueId find(ValueId v) {
    while (same_[v] != v) v = same_[v] = same_[same_[v]];
    return v;
  }
  void pin(ValueId v) {
    if (floating(v)) pinned_.insert(v);
  }

  // Floats that are made of integers and constants only: positions, masks, counts, and what is computed of them. They
  // are small next to the data, and angles and large negative numbers among them need all of f32.
  void find_counted() {
    for (NodeId id : g_.order()) {
      const Node& n = g_.node(id);
      if (n.results.size() != 1 || !floating(n.results[0])) continue;
      const DType from = n.operands.empty() || n.operands[0] == kNoValue ? DType::none : g_.type(n.operands[0]).dtype;
      bool all = true, any = n.op == OpKind::iota;
      if (n.op == OpKind::cast)
        any = from == DType::i64 || from == DType::i32 || from == DType::b1;
      else if (graph::has(n.op, graph::kElementwise) || graph::has(n.op, graph::kContraction) || graph::has(n.op, graph::kMove))
        for (ValueId v : n.operands)
          if (floating(v)) all = all && (counted_.count(v) || g_.is_constant(v)), any = any || counted_.count(v);
      const bool of_integers = n.op == OpKind::cast && g_.is(n.operands[0], OpKind::matmul_integer);
      if (!all || !any || of_integers || (n.op == OpKind::cast && g_.is(n.operands[0], OpKind::conv_integer))) continue;
      counted_.insert(n.results[0]);
      pin(n.results[0]);
      for (ValueId v : n.operands) pin(v);
    }
  }

  void pin_around(const Node& n) {
    const Group::Kind kind = groups_[group_of_.at(id_of(n))].kind;
    if (kind == Group::alias) {
      if (g_.is_constant(n.operands[0])) pin(n.results[0]);
      same_[find(n.results[0])] = find(n.operands[0]);
      return;
    }
    const bool outside = kind != Group::kernel;
    for (size_t i = 0; i < n.operands.size(); ++i)
      if (outside || (n.operands[i] != kNoValue && exact_slot(g_, n, i))) pin(n.operands[i]);
    for (ValueId v : n.results)
      if ((outside && n.op != OpKind::constant) || (kind == Group::kernel && exact_result(g_, n))) pin(v);
  }
  NodeId id_of(const Node& n) const { return g_.value(n.results.empty() ? kNoValue : n.results[0]).producer; }

  bool is_pinned(ValueId v) {
    if (!spread_) {
      for (ValueId p : pinned_) roots_.insert(find(p));
      spread_ = true;
    }
    return roots_.count(find(v)) > 0;
  }

  bool narrow_value(ValueId v) {
    if (!floating(v) || is_pinned(v)) return false;
    g_.value(v).type.storage = narrow_;
    return true;
  }

  bool narrow_constant(ValueId v) {
    if (!floating(v) || is_pinned(v)) return false;
    bool wanted = false;
    for (NodeId u : g_.value(v).users) {
      const Node& n = g_.node(u);
      for (size_t i = 0; i < n.operands.size(); ++i) wanted = wanted || (n.operands[i] == v && is_weight(g_, n, i, v));
    }
    if (wanted) g_.value(v).type.storage = narrow_;
    return wanted;
  }

  // Factors of a contraction that must stay exact elsewhere (the model's inputs) get a narrow copy: the multiplier
  // wants both in one type. Those that count are left alone, and their products are f32.
  int convert_factors() {
    int count = 0;
    std::unordered_map<ValueId, ValueId> copies;
    Groups result;
    for (Group group : groups_) {
      for (NodeId n : group.nodes) {
        const bool attention = g_.node(n).op == OpKind::attention;  // q, k and v
        if (!graph::has(g_.node(n).op, graph::kContraction) && !attention) continue;
        for (int slot = 0; slot < (attention ? 3 : 2); ++slot) {
          const ValueId v = g_.node(n).operands[slot];
          if (!floating(v) || g_.type(v).storage == narrow_ || g_.is_constant(v) || counted_.count(v)) continue;
          if (std::find(group.inputs.begin(), group.inputs.end(), v) == group.inputs.end()) continue;
          if (!copies.count(v)) result.push_back(copy_of(v, n, copies)), ++count;
          g_.set_operand(n, slot, copies.at(v));
          replace_input(group, v, copies.at(v));
        }
      }
      result.push_back(std::move(group));
    }
    groups_ = std::move(result);
    if (count) g_.sort();
    return count;
  }
  Group copy_of(ValueId v, NodeId user, std::unordered_map<ValueId, ValueId>& copies) {
    graph::Type type = g_.type(v);
    type.storage = narrow_;
    g_.set_origins(g_.node(user).origins);
    const ValueId c = copies[v] = g_.add_given(OpKind::copy, {v}, graph::NoAttr{}, type);
    return {Group::kernel, {g_.value(c).producer}, {v}, {c}};
  }
  // The group may read v for something else, too.
  void replace_input(Group& group, ValueId v, ValueId copy) {
    const bool still = std::any_of(group.nodes.begin(), group.nodes.end(), [&](NodeId n) {
      const auto& o = g_.node(n).operands;
      return std::find(o.begin(), o.end(), v) != o.end();
    });
    if (std::find(group.inputs.begin(), group.inputs.end(), copy) != group.inputs.end())
      std::erase(group.inputs, v);
    else if (still)
      group.inputs.push_back(copy);
    else
      std::replace(group.inputs.begin(), group.inputs.end(), v, copy);
  }

  Graph& g_;
  Groups& groups_;
  DType narrow_;
  std::vector<ValueId> same_;  // union-find over aliases
  std::unordered_map<NodeId, size_t> group_of_;
  std::set<ValueId> pinned_, counted_, roots_;
  bool spread_ = false;
};

}  // namespace

int assign_storage(Graph& g, Groups& groups, DType narrow) {
  return narrow == DType::f16 || narrow == DType::bf16 ? Storage(g, groups, narrow).run() : 0;
}

std::string why_exact(OpKind op) {
  const Row* r = row_of(op);
  return r ? r->why : "";
}

}  // namespace tripod::graph_opt
