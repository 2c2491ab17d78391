#include "driver/execute.h"

#include <algorithm>
#include <cstring>

#include "base/float_bits.h"
#include "host/weights.h"
#include "loop/expand_math.h"
#include "loop/interpreter.h"

namespace tripod {

using graph::Graph;
using graph::Group;
using graph::Node;
using graph::NodeId;
using graph::OpKind;
using graph::ValueId;

namespace {

// Moves elements between row-major memory and memory whose dims lie in `order`.
std::vector<std::byte> reorder(const std::byte* data, const std::vector<int64_t>& shape, const std::vector<int>& order,
                               int64_t size, bool to_rows) {
  int64_t count = 1;
  for (int64_t d : shape) count *= d;
  std::vector<std::byte> result(static_cast<size_t>(count * size));
  if (order.empty() || count == 0) {
    if (count) std::memcpy(result.data(), data, result.size());
    return result;
  }
  std::vector<int64_t> stride(shape.size());
  int64_t s = 1;
  for (size_t i = order.size(); i-- > 0;) stride[order[i]] = s, s *= shape[order[i]];
  std::vector<int64_t> at(shape.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    int64_t other = 0;
    for (size_t d = 0; d < at.size(); ++d) other += at[d] * stride[d];
    const int64_t from = to_rows ? other : i, to = to_rows ? i : other;
    std::memcpy(result.data() + to * size, data + from * size, static_cast<size_t>(size));
    for (size_t d = at.size(); d-- > 0 && ++at[d] == shape[d];) at[d] = 0;
  }
  return result;
}

struct Stop {
  std::string why;
};

// One node as a group of its own.
Group single(const Graph& g, NodeId n) {
  const Node& node = g.node(n);
  Group group;
  group.kind = graph::has(node.op, graph::kSource)                                        ? Group::source
               : node.op == OpKind::identity || node.op == OpKind::reshape                ? Group::alias
               : graph::has(node.op, graph::kRuntime)                                     ? Group::runtime
               : graph::has(node.op, graph::kHostControl) || !lower::lowering_of(node.op) ? Group::control
                                                                                          : Group::kernel;
  group.nodes = {n};
  for (ValueId v : node.operands)
    if (v != graph::kNoValue && std::find(group.inputs.begin(), group.inputs.end(), v) == group.inputs.end())
      group.inputs.push_back(v);
  group.outputs = node.results;
  return group;
}

class Executor {
 public:
  explicit Executor(const ExecuteInput& in) : in_(in), main_(in.module->main()) {}

  ExecuteResult run() {
    try {
      bind_inputs();
      run_graph(main_, 0);
      for (ValueId v : main_.outputs()) r_.outputs.push_back(tensor(main_, v));
    } catch (const Stop& s) {
      r_.stopped = s.why;
      r_.outputs.clear();
    }
    for (auto& [key, t] : values_)
      if (key.first == &main_) r_.values[main_.value(key.second).name] = std::move(t);
    return std::move(r_);
  }

 private:
  using Key = std::pair<const Graph*, ValueId>;

  void bind_inputs() {
    const auto& inputs = main_.inputs();
    if (in_.inputs->size() != inputs.size()) throw Stop{"the model has " + std::to_string(inputs.size()) + " inputs"};
    for (size_t i = 0; i < inputs.size(); ++i) set(main_, inputs[i], (*in_.inputs)[i]);
  }

  // Stores a value, and learns the symbols that its shape binds.
  void set(const Graph& g, ValueId v, Tensor t) {
    const graph::Type& type = g.type(v);
    if (type.shape.size() != t.shape.size()) throw Stop{"value " + g.value(v).name + " has another rank than its type"};
    for (size_t d = 0; d < t.shape.size(); ++d)
      if (type.shape[d].is_var()) dims_.emplace(type.shape[d], t.shape[d]);
    if (&g == &main_) r_.order.push_back(g.value(v).name);
    values_[{&g, v}] = std::move(t);
  }

  int64_t number(sym::Expr e) const {
    try {
      return e.is_const() ? e.value() : sym::evaluate(e, dims_);
    } catch (const std::exception&) {
      throw Stop{"the size " + sym::text(e) + " is not known"};
    }
  }
  std::vector<int64_t> shape_of(const graph::Type& t) const {
    std::vector<int64_t> s;
    for (const sym::Expr& e : t.shape) s.push_back(number(e));
    return s;
  }

  Tensor tensor(const Graph& g, ValueId v) {
    if (g.is_constant(v)) {
      const graph::ConstAttr& a = g.bytes(v);
      Tensor t{g.type(v).dtype, shape_of(g.type(v)), {}};
      t.bytes.assign(a.data, a.data + a.size);
      return t;
    }
    const auto it = values_.find({&g, v});
    if (it == values_.end()) throw Stop{"value " + g.value(v).name + " was not computed"};
    return it->second;
  }

  void run_graph(const Graph& g, int32_t number_of_graph) {
    if (in_.form == Form::nodes) {
      for (NodeId n : g.order()) run_group(g, single(g, n));
      return;
    }
    for (const Group& group : (*in_.groups)[number_of_graph]) run_group(g, group);
  }

  void run_group(const Graph& g, const Group& group) {
    const Node& n = g.node(group.nodes[0]);
    switch (group.kind) {
      case Group::source:
        return run_source(g, n);
      case Group::alias: {
        Tensor t = tensor(g, n.operands[0]);
        t.shape = shape_of(g.type(n.results[0]));
        return set(g, n.results[0], std::move(t));
      }
      case Group::kernel:
        return run_kernel(g, group);
      case Group::control:
        if (n.op == OpKind::if_) return run_if(g, n);
        if (n.op == OpKind::read_dim) return run_read_dim(g, n);
        [[fallthrough]];
      case Group::runtime:
        return take(g, group, std::string(graph::info(n.op).text) + " is not interpreted");
    }
  }

  void run_source(const Graph& g, const Node& n) {
    if (n.op == OpKind::input || n.op == OpKind::constant) return;
    const auto* exprs = std::get_if<graph::ExprsAttr>(&n.attr);
    if (n.op != OpKind::sym_values || !exprs) return run_kernel(g, single(g, g.value(n.results[0]).producer));
    Tensor t{g.type(n.results[0]).dtype, shape_of(g.type(n.results[0])), {}};
    t.bytes.resize(static_cast<size_t>(byte_size(t.dtype, t.count())));
    for (size_t i = 0; i < exprs->values.size(); ++i) store_bits(t, static_cast<int64_t>(i), number(exprs->values[i]));
    set(g, n.results[0], std::move(t));
  }

  static void store_bits(Tensor& t, int64_t i, int64_t value) {
    if (is_float(t.dtype)) return store_double(t.dtype, t.bytes.data(), i, static_cast<double>(value));
    const int64_t size = byte_size(t.dtype, 1);
    std::memcpy(t.bytes.data() + i * size, &value, static_cast<size_t>(size));  // little-endian
  }

  void run_read_dim(const Graph& g, const Node& n) {
    const Tensor t = tensor(g, n.operands[0]);
    int64_t value = 0;
    std::memcpy(&value, t.bytes.data(), std::min<size_t>(t.bytes.size(), 8));
    dims_[std::get<graph::ExprsAttr>(n.attr).values[0]] = t.dtype == DType::i32 ? static_cast<int32_t>(value) : value;
    set(g, n.results[0], t);
  }

  void run_if(const Graph& g, const Node& n) {
    const Tensor condition = tensor(g, n.operands[0]);
    const auto& graphs = std::get<graph::SubgraphAttr>(n.attr).graphs;
    const int32_t which = graphs[condition.bytes.at(0) != std::byte{0} ? 0 : 1];
    const Graph& body = in_.module->graph(which);
    for (size_t i = 0; i < body.inputs().size(); ++i) set(body, body.inputs()[i], tensor(g, n.operands[i + 1]));
    run_graph(body, which);
    for (size_t i = 0; i < n.results.size(); ++i) set(g, n.results[i], tensor(body, body.outputs()[i]));
  }

  // The results of a group from the reference.
  void take(const Graph& g, const Group& group, const std::string& why) {
    for (ValueId v : group.outputs) {
      const std::string& name = g.value(v).name;
      const auto it = in_.given ? in_.given->find(name) : NamedTensors::const_iterator{};
      if (&g != &main_ || !in_.given || it == in_.given->end())
        throw Stop{"value " + name + ": " + why + ", and the reference does not have it"};
      r_.taken.push_back(name);
      set(g, v, it->second);
    }
  }

  const KernelEntry* entry(const Graph& g, const Group& group) const {
    for (const KernelEntry& e : *in_.kernels)
      if (e.graph == &g && e.group->nodes[0] == group.nodes[0]) return &e;
    return nullptr;
  }

  void run_kernel(const Graph& g, const Group& group) {
    lower::Lowered own;
    const lower::Lowered* lowered = &own;
    loop::Function f;
    Numbering sites;
    try {
      const KernelEntry* e = in_.form == Form::nodes ? nullptr : entry(g, group);
      if (e)
        lowered = &e->lowered;
      else
        own = lower::lower_group(g, group, sites);
      f = in_.form == Form::scheduled && e ? e->kernel.function : loop::expand_math(lowered->function);
    } catch (const std::exception& e) {
      return take(g, group, e.what());
    }
    const int64_t work = work_of(lowered->function);
    const bool wanted = std::any_of(group.outputs.begin(), group.outputs.end(),
                                    [&](ValueId v) { return in_.always.count(g.value(v).name) > 0; });
    if (!wanted && r_.work + work > in_.most_work)
      return take(g, group, "it would take " + std::to_string(work) + " iterations to interpret");
    for (ValueId v : lowered->params)
      if (info(g.type(v).dtype).bits < 8) return take(g, group, "elements under a byte are not interpreted");
    r_.work += work;
    sym::Values dims = dims_;
    // Kernels that do the same may share a function, whose dims then have names of another kernel.
    if (const KernelEntry* e = in_.form == Form::scheduled ? entry(g, group) : nullptr)
      for (size_t i = 0; i < f.dims.size(); ++i) dims[f.dims[i]] = number(e->kernel.dims[i]);
    interpret(g, group, *lowered, f, dims);
  }

  void interpret(const Graph& g, const Group& group, const lower::Lowered& lowered, const loop::Function& f,
                 const sym::Values& dims) {
    std::vector<loop::Memory> memory;
    for (size_t i = 0; i < lowered.params.size(); ++i)
      memory.push_back({bytes_of(g, group, lowered.params[i], f.params[i])});
    loop::InterpretOptions options;
    options.check_races = in_.form == Form::scheduled;
    const loop::InterpretResult result = loop::interpret(f, dims, memory, options);
    for (const std::string& v : result.violations) r_.violations.push_back(f.name + ": " + v);
    for (size_t i = 0; i < lowered.params.size(); ++i) {
      const ValueId v = lowered.params[i];
      if (std::find(group.outputs.begin(), group.outputs.end(), v) == group.outputs.end()) continue;
      const graph::Type& t = g.type(v);
      Tensor out{t.stored(), shape_of(t), {}};
      out.bytes = to_row_major(memory[i].bytes.data(), out.shape, t.order, byte_size(t.stored(), 1));
      set(g, v, converted(out, t.dtype));
    }
  }

  // The memory of a parameter: packed as its buffer says when it is a constant, in its order of dims otherwise.
  std::vector<std::byte> bytes_of(const Graph& g, const Group& group, ValueId v, const loop::Buffer& b) {
    const graph::Type& t = g.type(v);
    if (std::find(group.outputs.begin(), group.outputs.end(), v) != group.outputs.end()) {
      int64_t n = byte_size(t.stored(), 1);
      for (int64_t d : shape_of(t)) n *= d;
      return std::vector<std::byte>(static_cast<size_t>(n));
    }
    if (!g.is_constant(v)) {
      const Tensor x = converted(tensor(g, v), t.stored());
      return from_row_major(x.bytes.data(), x.shape, t.order, byte_size(t.stored(), 1));
    }
    host::Weights weights;
    const int64_t at = weights.place(g.bytes(v), t, b);
    std::vector<std::byte> bytes(static_cast<size_t>(byte_size(b->dtype, number(loop::storage_size(g.sym(), b)))));
    for (const host::Weights::Piece& p : weights.pieces())
      if (p.offset == at) std::memcpy(bytes.data(), p.data, std::min(bytes.size(), static_cast<size_t>(p.size)));
    return bytes;
  }

  int64_t work_of(const loop::Function& f) const {
    double total = 0;
    loop::visit(f.body, [&](const loop::Stmt& s) {
      if (s->kind != loop::StmtKind::block) return;
      double n = 1;
      for (const loop::Iter& i : s->iters) n *= static_cast<double>(std::max<int64_t>(number(i.extent), 0));
      total += n;
    });
    return total > 1e15 ? int64_t{1'000'000'000'000'000} : static_cast<int64_t>(total);
  }

  const ExecuteInput& in_;
  const Graph& main_;
  ExecuteResult r_;
  sym::Values dims_;
  std::map<Key, Tensor> values_;
};

}  // namespace

std::vector<std::byte> to_row_major(const std::byte* data, const std::vector<int64_t>& shape,
                                    const std::vector<int>& order, int64_t element_bytes) {
  return reorder(data, shape, order, element_bytes, true);
}
std::vector<std::byte> from_row_major(const std::byte* data, const std::vector<int64_t>& shape,
                                      const std::vector<int>& order, int64_t element_bytes) {
  return reorder(data, shape, order, element_bytes, false);
}

ExecuteResult execute(const ExecuteInput& in) { return Executor(in).run(); }

}  // namespace tripod
