// Steps for runtime operators: which C function, its views and attributes (runtime/ops.h).
#include "host/plan.h"

namespace tripod::host {

using graph::AxisAttr;
using graph::ExprsAttr;
using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::OpKind;
using graph::ValueId;

static int64_t reduction_code(const std::string& name) {
  const char* const names[] = {"none", "add", "mul", "min", "max"};  // tp_reduction
  for (int64_t i = 0; i < 5; ++i)
    if (name == names[i]) return i;
  internal_error(__FILE__, __LINE__, "no scatter reduction " + name);
}

void Planner::plan_runtime(const Graph& g, const Node& n, Steps& steps) {
  switch (n.op) {
    case OpKind::nonzero:
    case OpKind::non_max_suppression:
    case OpKind::unique:
    case OpKind::compress: return plan_counted(g, n, steps);
    default: break;
  }
  std::vector<View> views;
  for (ValueId v : n.operands) views.push_back(view(g, v));
  for (ValueId v : n.results) views.push_back({make_result(g, v, steps), g.type(v).dtype, g.type(v).shape});
  Step& s = add(steps, Step::call);
  s.views = views;
  s.reads = static_cast<int32_t>(n.operands.size());
  s.site = site(n);
  for (size_t i = 0; i < n.results.size(); ++i) note_result(s, static_cast<int32_t>(n.operands.size() + i), g, n.results[i]);
  switch (n.op) {
    case OpKind::topk: {
      const AxisAttr& a = std::get<AxisAttr>(n.attr);
      s.symbol = "tp_op_topk", s.attributes = {a.axis, a.flag_a, a.flag_b, s.site};
      break;
    }
    case OpKind::scatter_elements: {
      const AxisAttr& a = std::get<AxisAttr>(n.attr);
      s.symbol = "tp_op_scatter_elements", s.attributes = {a.axis, reduction_code(a.text), s.site};
      break;
    }
    case OpKind::scatter_nd:
      s.symbol = "tp_op_scatter_nd", s.attributes = {reduction_code(std::get<AxisAttr>(n.attr).text), s.site};
      break;
    case OpKind::call: {
      const auto& a = std::get<graph::CallAttr>(n.attr);
      s.symbol = a.function, s.attributes = a.ints;
      break;
    }
    default: internal_error(__FILE__, __LINE__, "no runtime operator for " + std::string(graph::info(n.op).text));
  }
  s.work = add_work(operator_work(n, s.symbol, views));
  for (const View& v : views) touch(v.place);
}

// Operators of data-dependent extent: a call that counts and sets the symbol, a new segment, a call that fills.
void Planner::plan_counted(const Graph& g, const Node& n, Steps& steps) {
  const ExprsAttr& a = std::get<ExprsAttr>(n.attr);
  const int count = symbol(a.values[0]);
  sym::Context& c = g.sym();
  const ValueId x = n.operands[0];
  const int32_t where = site(n);
  const auto attribute = [&](size_t i) { return a.values[i].value(); };
  const auto work = [&](const char* name, std::vector<Index> shape) {
    const Index bytes = sym::product(c, shape) * 8;
    return View{arena(g.value(n.results[0]).name + "_" + name, bytes), DType::i64, std::move(shape)};
  };
  std::vector<View> in, scratch;
  for (ValueId v : n.operands) in.push_back(view(g, v));
  std::string function;
  std::vector<View> count_views = in, fill_views;
  std::vector<int64_t> count_attrs, fill_attrs;
  switch (n.op) {
    case OpKind::nonzero:
      function = "tp_op_nonzero", count_attrs = {count, where}, fill_views = in;
      break;
    case OpKind::compress: {
      const int64_t axis = attribute(1);
      function = "tp_op_compress", fill_views = in, fill_attrs = {axis}, count_attrs = {axis, count, where};
      break;
    }
    case OpKind::unique: {
      const int64_t axis = attribute(1);
      const Index total = axis < 0 ? graph::element_count(c, g.type(x).shape) : g.type(x).shape[axis];
      scratch = {work("first", {total}), work("inverse", {total}), work("counts", {total})};
      count_views.insert(count_views.end(), scratch.begin(), scratch.end());
      function = "tp_op_unique", count_attrs = {axis, attribute(2), count, where}, fill_attrs = {axis};
      fill_views = {in[0], scratch[0], scratch[1], scratch[2]};
      break;
    }
    default: {  // non_max_suppression
      while (count_views.size() < 5) count_views.push_back(absent());
      const graph::Shape &boxes = g.type(x).shape, &scores = g.type(n.operands[1]).shape;
      Index most = boxes[1];
      if (n.operands.size() > 2 && n.operands[2] != kNoValue)
        if (auto k = g.int_values(n.operands[2]); k && k->size() == 1) most = sym::min(most, std::max<int64_t>((*k)[0], 0));
      scratch = {work("boxes", {boxes[0] * scores[1] * most, c.constant(3)})};
      count_views.push_back(scratch[0]);
      function = "tp_op_nms", count_attrs = {attribute(1), count, where}, fill_views = {scratch[0]};
    }
  }
  Step& first = add(steps, Step::call);
  first.symbol = function + "_count", first.views = count_views, first.reads = static_cast<int32_t>(in.size()), first.attributes = count_attrs, first.site = where;
  const int32_t described = first.work = add_work(operator_work(n, function, count_views));
  p_.symbols[count].defined = true;
  for (const View& v : count_views) touch(v.place);
  enter_segment(steps);
  const auto reads = static_cast<int32_t>(fill_views.size());
  std::vector<std::pair<int32_t, ValueId>> results;
  for (ValueId v : n.results) {
    const bool wanted = !g.value(v).users.empty() || g.is_output(v) || v == n.results[0];
    if (wanted) results.push_back({static_cast<int32_t>(fill_views.size()), v});
    fill_views.push_back(wanted ? View{make_result(g, v, steps), g.type(v).dtype, g.type(v).shape} : absent());
  }
  Step& second = add(steps, Step::call);
  second.symbol = function, second.views = fill_views, second.reads = reads, second.attributes = fill_attrs, second.site = where;
  second.work = described;
  for (const auto& [buffer, v] : results) note_result(second, buffer, g, v);
  for (const View& v : fill_views) touch(v.place);
}

}  // namespace tripod::host
