// The model around the nodes: versions, inputs, dims, outputs.
#include "onnx/import.h"

#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>

#include "onnx/known_ops.h"
#include "onnx/scope.h"

namespace tripod::importer {
using ::onnx::GraphProto;
using ::onnx::TypeProto;

namespace {
constexpr int kMinIr = 3, kMaxIr = 14;
constexpr int64_t kMaxDim = (int64_t{1} << 31) - 1;

std::string declared_text(const TypeProto& t) {
  const auto& tensor = t.tensor_type();
  const auto dtype = dtype_of(tensor.elem_type());
  std::string s;
  for (const auto& d : tensor.shape().dim())
    s += (s.empty() ? "" : ", ") +
         (d.has_dim_value() ? std::to_string(d.dim_value()) : d.dim_param().empty() ? "?" : d.dim_param());
  return (dtype ? std::string(name(*dtype)) : "") + "[" + s + "]";
}

Site about(std::string what) { return {-1, "", std::move(what)}; }

std::string joined(const std::vector<std::string>& words) {
  std::string s;
  for (const std::string& w : words) s += (s.empty() ? "" : ", ") + w;
  return s.empty() ? "none" : s;
}

// A dim_param may be any text ("floor(H/2)"); a symbol is an identifier.
std::string symbol_name(const std::string& dim_param) {
  std::string s;
  for (char c : dim_param) s += std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' ? c : '_';
  if (s.empty() || !(std::isalpha(static_cast<unsigned char>(s[0])) || s[0] == '_')) s.insert(0, "d_");
  return s;
}
}  // namespace

Import::Import(std::shared_ptr<Source> src, std::string folder, const ImportOptions& opts, Diagnostics& diags)
    : source(std::move(src)),
      options(opts),
      diagnostics(diags),
      module(std::make_unique<graph::Module>()),
      tensors(std::move(folder), source) {
  for (std::span<const Row> family : families())
    for (const Row& row : family) rows_[{std::string(row.domain), std::string(row.op)}].push_back(&row);
  for (const auto& f : model().functions())
    functions_.emplace(std::tuple(domain_of(f.domain()), f.name(), f.overload()), &f);
}

void Import::error(const Site& site, std::string message, std::string hint) {
  diagnostics.error(site, std::move(message), std::move(hint));
}

const Row* Import::find_row(const std::string& domain, const std::string& op, int opset) const {
  const auto it = rows_.find({domain, op});
  if (it == rows_.end()) return nullptr;
  for (const Row* row : it->second)
    if (row->since <= opset && opset <= row->until) return row;
  return nullptr;
}

const ::onnx::FunctionProto* Import::find_function(const ::onnx::NodeProto& node) const {
  const auto it = functions_.find({domain_of(node.domain()), node.op_type(), node.overload()});
  return it == functions_.end() ? nullptr : it->second;
}

std::string Import::why_no_row(const std::string& domain, const std::string& op, int opset, std::string& hint) const {
  if (domain.starts_with("ai.onnx.")) {
    hint = "docs/status.md lists the operators";
    return "operator \"" + op + "\" of domain \"" + domain + "\" is not supported";
  }
  const char* const own = "docs/status.md lists the operators; one of your own has to be a function in the model file";
  if (!domain.empty()) {
    hint = own;
    return "domain \"" + domain + "\" has no operator \"" + op + "\"";
  }
  const std::string version = "opset " + std::to_string(opset);
  const KnownOp* known = known_op(op);
  if (!known) {
    hint = own;
    return "ONNX has no operator \"" + op + "\"";
  }
  if (known->since > opset) {
    hint = "raise the version in opset_import";
    return "operator \"" + op + "\" exists from opset " + std::to_string(known->since) + " on, the model says " +
           std::to_string(opset);
  }
  if (known->until && known->until <= opset) {
    hint = "the exporter should write its successor";
    return "operator \"" + op + "\" does not exist any more in " + version;
  }
  hint = "docs/status.md lists the operators";
  return "operator \"" + op + "\" of " + version + " is not supported yet";
}

int32_t Import::add_graph(const std::string& name, int32_t parent) {
  const auto free = std::find_if(free_graphs.begin(), free_graphs.end(), [&](int32_t i) { return i > parent; });
  int32_t index;
  if (free == free_graphs.end()) {
    index = module->add_graph(name);
  } else {
    index = *free;
    free_graphs.erase(free);
    std::set<std::string> names;
    for (int32_t i = 0; i < module->num_graphs(); ++i) names.insert(module->graph(i).name());
    std::string unique = name;
    for (int k = 1; names.contains(unique); ++k) unique = name + "." + std::to_string(k);
    module->graph(index) = Graph(module.get(), unique);
  }
  made_graphs.push_back(index);
  return index;
}

// Graphs cannot be removed while others are under way: those left over at the end are empty and belong to no node.
void Import::abandon_graphs(size_t keep) {
  for (; made_graphs.size() > keep; made_graphs.pop_back()) {
    const int32_t i = made_graphs.back();
    module->graph(i) = Graph(module.get(), "unused." + std::to_string(i));
    free_graphs.insert(std::lower_bound(free_graphs.begin(), free_graphs.end(), i), i);
  }
}

ValueId Import::constant(Graph& g, const ::onnx::TensorProto& t) {
  const TensorData data = tensors.read(t);
  Shape shape;
  for (int64_t d : data.dims) shape.push_back(g.sym().constant(d));
  return g.add_constant(Type::make(data.dtype, std::move(shape)), data.bytes);
}

// --- dims ---------------------------------------------------------------------------------------------------------

Expr Import::symbol_for(const std::string& dim_param) {
  if (auto it = dim_params.find(dim_param); it != dim_params.end()) return it->second;
  sym::Context& c = module->sym();
  sym::Range range{0, kMaxDim};
  if (auto it = options.dims.find(dim_param); it != options.dims.end()) range = it->second;
  if (auto it = pinned_.find(dim_param); it != pinned_.end()) range = {it->second, it->second};
  Expr e = range.lo == range.hi ? c.constant(range.lo) : c.var(symbol_name(dim_param), range);
  if (!e.is_const()) module->symbols.push_back(e);
  return dim_params[dim_param] = e;
}

Type Import::declared_type(const TypeProto& t, const std::string& value) {
  switch (t.value_case()) {
    case TypeProto::kTensorType:
      break;
    case TypeProto::kSequenceType:
      throw NodeError{"a sequence is not supported yet", ""};
    case TypeProto::kOptionalType:
      throw NodeError{"an optional is not supported yet", ""};
    case TypeProto::kMapType:
      throw NodeError{"a map is not supported", ""};
    case TypeProto::kSparseTensorType:
      throw NodeError{"a sparse tensor is not supported", ""};
    case TypeProto::kOpaqueType:
      throw NodeError{"an opaque type is not supported", ""};
    case TypeProto::VALUE_NOT_SET:
      throw NodeError{"has no type", ""};
  }
  const auto& tensor = t.tensor_type();
  const auto dtype = dtype_of(tensor.elem_type());
  if (!dtype) throw NodeError{"the element type " + onnx_type_name(tensor.elem_type()) + " is not supported", ""};
  if (*dtype == DType::string) throw NodeError{"a tensor of strings is not supported yet", ""};
  const auto given = options.shapes.find(value);
  const bool has_given = given != options.shapes.end();
  if (!tensor.has_shape() && !has_given)
    throw NodeError{"has no shape, its number of dims must be known", "give it with --shape " + value + "=1,3,224,224"};
  const int rank = tensor.has_shape() ? tensor.shape().dim_size() : static_cast<int>(given->second.size());
  if (rank > kMostDims)
    throw NodeError{"has " + std::to_string(rank) + " dims, at most " + std::to_string(kMostDims) + " are supported",
                    ""};
  if (has_given && static_cast<int>(given->second.size()) != rank)
    throw NodeError{"has " + std::to_string(rank) + " dims, --shape gives " + std::to_string(given->second.size()), ""};

  Shape shape;
  for (int i = 0; i < rank; ++i) {
    const int64_t wanted = has_given ? given->second[i] : -1;
    const std::string unnamed = value + "_d" + std::to_string(i);
    if (!tensor.has_shape()) {
      shape.push_back(wanted >= 0 ? module->sym().constant(wanted) : symbol_for(unnamed));
      continue;
    }
    const auto& d = tensor.shape().dim(i);
    if (d.has_dim_value() && d.dim_value() >= 0) {
      if (wanted >= 0 && wanted != d.dim_value())
        throw NodeError{"dim " + std::to_string(i) + " is " + std::to_string(d.dim_value()) + ", --shape gives " +
                            std::to_string(wanted),
                        ""};
      shape.push_back(module->sym().constant(d.dim_value()));
    } else if (d.has_dim_value() && d.dim_value() != -1) {
      throw NodeError{
          "dim " + std::to_string(i) + " is " + std::to_string(d.dim_value()) + ", dims must not be negative", ""};
    } else if (d.has_dim_param() && !d.dim_param().empty() && d.dim_param() != "?") {  // Paddle writes "?" for unknown
      shape.push_back(symbol_for(d.dim_param()));
    } else {
      shape.push_back(wanted >= 0 ? module->sym().constant(wanted) : symbol_for(unnamed));
    }
  }
  try {
    graph::element_count(module->sym(), shape);
  } catch (const sym::Overflow&) {
    throw NodeError{"has more elements than memory can hold", ""};
  }
  return Type::make(*dtype, std::move(shape));
}

// --- the model ----------------------------------------------------------------------------------------------------

void Import::check_model() {
  const int64_t ir = model().ir_version();
  if (ir < kMinIr || ir > kMaxIr)
    error({},
          "IR version " + std::to_string(ir) + " is not supported, those from " + std::to_string(kMinIr) + " to " +
              std::to_string(kMaxIr) + " are",
          "re-export the model or convert it with onnx.version_converter");
  bool has_default = false;
  for (const auto& o : model().opset_import()) {
    if (!domain_of(o.domain()).empty()) continue;
    if (has_default) error({}, "the model imports the ONNX opset twice");
    has_default = true;
    if (o.version() < kMinOpset || o.version() > kMaxOpset)
      error({},
            "opset " + std::to_string(o.version()) + " is not supported, those from " + std::to_string(kMinOpset) +
                " to " + std::to_string(kMaxOpset) + " are",
            "convert the model with onnx.version_converter");
  }
  const bool needs = std::any_of(model().graph().node().begin(), model().graph().node().end(),
                                 [](const auto& n) { return domain_of(n.domain()).empty(); });
  if (!has_default && needs) error({}, "the model does not import the ONNX opset", "add \"\" to opset_import");
  std::set<std::tuple<std::string, std::string, std::string>> names;
  for (const auto& f : model().functions())
    if (!names.emplace(domain_of(f.domain()), f.name(), f.overload()).second)
      error(about("function '" + f.name() + "'"), "is defined twice");
}

// --shape makes the dim_params of an input constants of the whole model. Names in the options that the model does
// not have are errors: a silent typo would compile something else than what was asked for.
void Import::bind_options() {
  std::set<std::string> initializers;
  for (const auto& t : model().graph().initializer()) initializers.insert(t.name());
  std::vector<std::string> inputs, params;
  for (const auto& i : model().graph().input()) {
    if (initializers.contains(i.name())) continue;
    inputs.push_back(i.name());
    const auto& dims = i.type().tensor_type().shape().dim();
    const auto given = options.shapes.find(i.name());
    for (int k = 0; k < dims.size(); ++k) {
      const std::string& param = dims[k].dim_param();
      const std::string name = !param.empty() ? param : i.name() + "_d" + std::to_string(k);
      if ((!param.empty() || !dims[k].has_dim_value() || dims[k].dim_value() == -1) &&
          std::find(params.begin(), params.end(), name) == params.end())
        params.push_back(name);
      if (given == options.shapes.end() || k >= static_cast<int>(given->second.size()) || given->second[k] < 0 ||
          param.empty())
        continue;
      const auto [it, fresh] = pinned_.emplace(param, given->second[k]);
      if (!fresh && it->second != given->second[k])
        error(about("--shape"), "dim '" + param + "' would be " + std::to_string(it->second) + " and " +
                                    std::to_string(given->second[k]));
    }
  }
  for (const auto& [name, shape] : options.shapes)
    if (std::find(inputs.begin(), inputs.end(), name) == inputs.end())
      error(about("--shape"), "the model has no input '" + name + "'", "it has: " + joined(inputs));
  for (const auto& [name, range] : options.dims) {
    if (std::find(params.begin(), params.end(), name) == params.end())
      error(about("--dim"), "the model has no dim '" + name + "'", "it has: " + joined(params));
    if (range.lo < 0 || range.lo > range.hi || range.hi > kMaxDim)
      error(about("--dim"), "the range of '" + name + "' must be within 0.." + std::to_string(kMaxDim));
    if (auto it = pinned_.find(name); it != pinned_.end() && (it->second < range.lo || it->second > range.hi))
      error(about("--dim"),
            "dim '" + name + "' is " + std::to_string(it->second) + " by --shape, outside of its range");
  }
}

// The initializer v of an input must be of the type that the input declares.
void Import::check_default(const ::onnx::ValueInfoProto& input, ValueId v, const Site& site) {
  if (v < 0 || !input.type().has_tensor_type()) return;
  const auto& declared = input.type().tensor_type();
  const Type& have = module->main().type(v);
  const auto dtype = dtype_of(declared.elem_type());
  bool same = !dtype || *dtype == have.dtype;
  if (declared.has_shape()) {
    same = same && declared.shape().dim_size() == have.rank();
    for (int d = 0; same && d < have.rank(); ++d) {
      const auto& dim = declared.shape().dim(d);
      same = !dim.has_dim_value() || dim.dim_value() < 0 || have.shape[d].is_const(dim.dim_value());
    }
  }
  if (!same) error(site, "does not have the type of the initializer of that name, " + graph::text(have));
}

// Does a declared shape contradict the computed one, whatever the free dims are? A dim_param of an input that means
// another dim here does not count: exporters give outputs such names carelessly, and ONNX Runtime takes them. Nor does a
// shape without dims, which some exporters write where they know none.
static bool contradicts(const TypeProto& declared, const Type& computed) {
  if (!declared.has_tensor_type() || declared.tensor_type().shape().dim().empty()) return false;
  const auto& shape = declared.tensor_type().shape();
  if (shape.dim_size() != computed.rank()) return true;
  for (int d = 0; d < computed.rank(); ++d) {
    const auto& dim = shape.dim(d);
    if (dim.has_dim_value() && dim.dim_value() >= 0 &&
        sym::prove(sym::eq(computed.shape[d], dim.dim_value())) == sym::Truth::no)
      return true;
  }
  return false;
}

void Import::check_declared(const ::onnx::ValueInfoProto& value, ValueId v, const Site& site) {
  const Type& computed = module->main().type(v);
  if (contradicts(value.type(), computed))
    error(site, "is declared as " + declared_text(value.type()) + ", the nodes compute " + graph::text(computed),
          "fix the declaration, or remove its shape");
}

void Import::read_inputs(Scope& scope) {
  std::set<std::string> initializers;
  for (const auto& t : model().graph().initializer()) initializers.insert(t.name());
  for (const auto& t : model().graph().sparse_initializer()) initializers.insert(t.values().name());
  for (const auto& i : model().graph().input()) {
    const Site site = about("input '" + i.name() + "'");
    if (initializers.contains(i.name())) {  // a default that nobody can override here: a constant
      check_default(i, scope.find(i.name()).value_or(kBadValue), site);
      continue;
    }
    ValueId v = kBadValue;
    try {
      if (i.name().empty()) throw NodeError{"has no name", ""};
      v = module->main().add_input(i.name(), declared_type(i.type(), i.name()));
    } catch (const NodeError& e) {
      error(site, e.message, e.hint);
    } catch (const CompileError& e) {
      error(site, e.diagnostics.errors()[0].message);
    }
    scope.define(i.name(), v, site);
  }
}

ImportResult Import::run() {
  ImportResult result;
  if (!model().has_graph()) {
    error({}, "the model has no graph", "is this an ONNX file? An empty one reads as a model without a graph");
    return result;
  }
  check_model();
  bind_options();
  if (!diagnostics.ok()) return result;

  if (module->num_graphs() == 0) module->add_graph("main");
  module->name = model().graph().name();
  for (const auto& p : model().metadata_props()) module->metadata.emplace_back(p.key(), p.value());
  Opsets opsets;
  for (const auto& o : model().opset_import()) {
    const int64_t version = std::clamp<int64_t>(o.version(), 0, std::numeric_limits<int>::max());
    opsets[domain_of(o.domain())] = static_cast<int>(version);
  }
  const GraphProto& graph = model().graph();
  Scope scope(*this, module->main(), 0, nullptr, "", opsets);
  std::vector<ValueId> outputs;
  std::vector<std::string> names;
  try {
    scope.import_initializers(graph);
    read_inputs(scope);
    scope.import_nodes(graph.node());
  } catch (const NeedsDecision&) {
    result.needs_decision = diagnostics.ok();
    result.decisions = decided;
    return result;
  }
  if (graph.output().empty()) error({}, "the graph has no outputs");
  for (const auto& o : graph.output()) {
    const Site site = about("output '" + o.name() + "'");
    const auto v = scope.find(o.name());
    if (!v) {
      error(site, "is not defined", "no node, input or initializer has that name");
    } else if (*v >= 0) {
      const auto& declared = o.type().tensor_type();
      const auto dtype = dtype_of(declared.elem_type());
      const DType have = module->main().type(*v).dtype;
      if (o.type().has_tensor_type() && dtype && *dtype != have)
        error(site, "is declared as " + std::string(name(*dtype)) + ", the nodes compute " + std::string(name(have)));
      else
        check_declared(o, *v, site);
      outputs.push_back(*v);
      names.push_back(o.name());
    }
  }
  for (const auto& value : graph.value_info())
    if (const auto v = scope.find(value.name()); v && *v >= 0) check_declared(value, *v, about("value '" + value.name() + "'"));
  if (!diagnostics.ok()) return result;
  module->main().set_origins({});
  module->main().set_outputs(std::move(outputs), std::move(names));
  module->remove_unreachable();
  if (options.evaluator)  // constants were made behind nodes that use them
    for (int32_t i = 0; i < module->num_graphs(); ++i) module->graph(i).sort();
  result.decisions = decided;
  result.module = std::move(module);
  return result;
}

// --- decisions ------------------------------------------------------------------------------------------------------

namespace {

// Where a decision is needed, both outcomes are tried. Often only one of them is a model at all (the other fails a few
// nodes later, on the rank that it leads to): then that one is taken, under the requirement that it holds.
ImportResult import_decided(const std::shared_ptr<Source>& source, const std::string& folder, ImportOptions options,
                            Diagnostics& diagnostics, int depth) {
  const bool report = options.specialise;
  options.specialise = true;
  ImportResult open = Import(source, folder, options, diagnostics).run();
  if (!open.needs_decision) return open;
  const size_t given = options.decisions.size();
  ImportResult outcomes[2];
  Diagnostics errors[2];
  for (int i = 0; i < 2 && depth < 8; ++i) {
    options.decisions.resize(given);
    options.decisions.push_back(i == 0);
    outcomes[i] = import_decided(source, folder, options, errors[i], depth + 1);
  }
  for (int i = 0; i < 2; ++i)
    if (outcomes[i].module && !errors[1 - i].ok()) return std::move(outcomes[i]);
  if (report) return open;
  options.decisions.resize(given);
  options.specialise = false;
  return Import(source, folder, options, diagnostics).run();  // says which condition is open
}

}  // namespace

// --- files --------------------------------------------------------------------------------------------------------

ImportResult import_bytes(std::span<const std::byte> bytes, const std::string& folder, const ImportOptions& options,
                          Diagnostics& diagnostics) {
  auto source = std::make_shared<Source>();
  if (bytes.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    diagnostics.error({}, "is larger than 2 GB, more than a protobuf can be", "save the weights as external data");
    return {};
  }
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  stream.SetTotalBytesLimit(std::numeric_limits<int>::max());
  stream.SetRecursionLimit(100);
  if (!source->model.ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage()) {
    diagnostics.error({}, "is not an ONNX model, or a damaged one: the protobuf cannot be read");
    return {};
  }
  return import_decided(source, folder, options, diagnostics, 0);
}

ImportResult import_file(const std::string& path, const ImportOptions& options, Diagnostics& diagnostics) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not make it wait
  struct stat st {};
  if (fd < 0 || fstat(fd, &st) != 0) {
    diagnostics.error({}, "cannot be read: " + std::string(std::strerror(errno)));
    if (fd >= 0) close(fd);
    return {};
  }
  if (!S_ISREG(st.st_mode)) {
    diagnostics.error({}, "is not a file");
    close(fd);
    return {};
  }
  const size_t size = static_cast<size_t>(st.st_size);
  void* data = size ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0) : nullptr;
  const int error = errno;
  close(fd);
  if (data == MAP_FAILED) {
    diagnostics.error({}, "cannot be mapped: " + std::string(std::strerror(error)));
    return {};
  }
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  struct Unmap {
    void* data;
    size_t size;
    ~Unmap() {
      if (data) munmap(data, size);
    }
  } unmap{data, size};
  return import_bytes({static_cast<const std::byte*>(data), size}, folder, options, diagnostics);
}

std::unique_ptr<graph::Module> import_model(const std::string& path, const ImportOptions& options,
                                            Diagnostics& diagnostics) {
  return import_file(path, options, diagnostics).module;
}

}  // namespace tripod::importer
