#include <algorithm>
#include <cstring>

#include "onnx/op_importer.h"
#include "onnx/scope.h"

namespace tripod::importer {
using ::onnx::AttributeProto;

NodeContext::NodeContext(Scope& scope, Graph& g, const ::onnx::NodeProto& node, const Row& row, int opset, Site site,
                         std::vector<ValueId> inputs)
    : scope(scope), g(g), node(node), row(row), opset(opset), site(std::move(site)), inputs_(std::move(inputs)) {
  while (!inputs_.empty() && inputs_.back() == kNoValue) inputs_.pop_back();
}

void NodeContext::fail(std::string message, std::string hint) const {
  throw NodeError{std::move(message), std::move(hint)};
}

// --- operands -----------------------------------------------------------------------------------------------------

int NodeContext::num_outputs() const { return node.output_size(); }
bool NodeContext::wants_output(int i) const { return i < node.output_size() && !node.output(i).empty(); }

ValueId NodeContext::input(int i) const {
  if (!has_input(i)) fail("input " + std::to_string(i) + " is missing");
  return inputs_[i];
}

ValueId NodeContext::optional_input(int i) const { return has_input(i) ? inputs_[i] : kNoValue; }

int NodeContext::axis(int64_t axis, int rank, std::string_view what) const {
  if (axis < -rank || axis >= rank)
    fail(std::string(what) + " " + std::to_string(axis) + " is out of range for " + std::to_string(rank) + " dims");
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<int> NodeContext::axes(const Ints& axes, int rank, std::string_view what) const {
  std::vector<int> r;
  for (int64_t a : axes) {
    r.push_back(axis(a, rank, what));
    if (std::count(r.begin(), r.end(), r.back()) > 1)
      fail(std::string(what) + " " + std::to_string(a) + " occurs twice");
  }
  return r;
}

void NodeContext::need_rank(int i, int rank) const {
  if (this->rank(input(i)) != rank)
    fail("input " + std::to_string(i) + " must have " + std::to_string(rank) + " dims, it is " + text(input(i)));
}

void NodeContext::need_min_rank(int i, int rank) const {
  if (this->rank(input(i)) < rank)
    fail("input " + std::to_string(i) + " must have at least " + std::to_string(rank) + " dims, it is " +
         text(input(i)));
}

void NodeContext::need_float(int i) const {
  if (!is_float(dtype(input(i))))
    fail("input " + std::to_string(i) + " must have a float type, it is " + text(input(i)));
}

void NodeContext::need_integer(int i) const {
  if (!is_int(dtype(input(i))))
    fail("input " + std::to_string(i) + " must have an integer type, it is " + text(input(i)));
}

void NodeContext::need_same_dtype(int a, int b) const {
  if (dtype(input(a)) != dtype(input(b)))
    fail("inputs " + std::to_string(a) + " and " + std::to_string(b) + " must have the same type, they are " +
         text(input(a)) + " and " + text(input(b)));
}

std::string NodeContext::text(ValueId v) const { return g.value(v).name + " : " + graph::text(g.type(v)); }

// --- attributes ---------------------------------------------------------------------------------------------------

const AttributeProto* NodeContext::find(std::string_view name) const {
  for (const AttributeProto& a : node.attribute())
    if (a.name() == name) return &a;
  return nullptr;
}

namespace {
std::string lower_type_name(AttributeProto::AttributeType t) {
  std::string s = AttributeProto::AttributeType_Name(t);
  std::transform(s.begin(), s.end(), s.begin(), [](char c) { return static_cast<char>(std::tolower(c)); });
  return s;
}

// Files from before the type was stored say UNDEFINED: then the field that is there counts.
bool holds(const AttributeProto& a, AttributeProto::AttributeType t) {
  if (a.type() != AttributeProto::UNDEFINED) return a.type() == t;
  switch (t) {
    case AttributeProto::FLOAT:
      return a.has_f();
    case AttributeProto::INT:
      return a.has_i();
    case AttributeProto::STRING:
      return a.has_s();
    case AttributeProto::TENSOR:
      return a.has_t();
    case AttributeProto::GRAPH:
      return a.has_g();
    case AttributeProto::FLOATS:
      return a.floats_size() > 0;
    case AttributeProto::INTS:
      return a.ints_size() > 0;
    case AttributeProto::STRINGS:
      return a.strings_size() > 0;
    default:
      return false;
  }
}
}  // namespace

const AttributeProto& NodeContext::get(std::string_view name, int wanted) const {
  const auto type = static_cast<AttributeProto::AttributeType>(wanted);
  const AttributeProto* a = find(name);
  if (!a) fail("attribute \"" + std::string(name) + "\" is missing");
  if (!a->ref_attr_name().empty())
    fail("attribute \"" + std::string(name) + "\" refers to a function's attribute, outside of a function");
  if (!holds(*a, type))
    fail("attribute \"" + std::string(name) + "\" must be of type " + lower_type_name(type) + ", it is of type " +
         lower_type_name(a->type()));
  return *a;
}

int64_t NodeContext::attr_int(std::string_view name) const { return get(name, AttributeProto::INT).i(); }
int64_t NodeContext::attr_int(std::string_view name, int64_t otherwise) const {
  return has(name) ? attr_int(name) : otherwise;
}
bool NodeContext::attr_bool(std::string_view name, bool otherwise) const {
  const int64_t v = attr_int(name, otherwise);
  if (v != 0 && v != 1) fail("attribute \"" + std::string(name) + "\" must be 0 or 1, it is " + std::to_string(v));
  return v == 1;
}
double NodeContext::attr_float(std::string_view name) const { return get(name, AttributeProto::FLOAT).f(); }
double NodeContext::attr_float(std::string_view name, double otherwise) const {
  return has(name) ? attr_float(name) : otherwise;
}
std::string NodeContext::attr_string(std::string_view name) const { return get(name, AttributeProto::STRING).s(); }
std::string NodeContext::attr_string(std::string_view name, std::string_view otherwise) const {
  return has(name) ? attr_string(name) : std::string(otherwise);
}

std::string NodeContext::attr_choice(std::string_view name, std::string_view otherwise,
                                     std::initializer_list<std::string_view> words) const {
  const std::string v = attr_string(name, otherwise);
  if (std::find(words.begin(), words.end(), v) != words.end()) return v;
  std::string list;
  for (std::string_view w : words) list += (list.empty() ? "\"" : ", \"") + std::string(w) + "\"";
  fail("attribute \"" + std::string(name) + "\" must be one of " + list + ", it is \"" + v + "\"");
}

Ints NodeContext::attr_ints(std::string_view name) const {
  const auto& a = get(name, AttributeProto::INTS).ints();
  return Ints(a.begin(), a.end());
}
Ints NodeContext::attr_ints(std::string_view name, Ints otherwise) const {
  return has(name) ? attr_ints(name) : std::move(otherwise);
}
std::vector<double> NodeContext::attr_floats(std::string_view name, std::vector<double> otherwise) const {
  if (!has(name)) return otherwise;
  const auto& a = get(name, AttributeProto::FLOATS).floats();
  return std::vector<double>(a.begin(), a.end());
}
std::vector<std::string> NodeContext::attr_strings(std::string_view name, std::vector<std::string> otherwise) const {
  if (!has(name)) return otherwise;
  const auto& a = get(name, AttributeProto::STRINGS).strings();
  return std::vector<std::string>(a.begin(), a.end());
}

DType NodeContext::attr_dtype(std::string_view name, DType otherwise) const {
  if (!has(name) && otherwise != DType::none) return otherwise;
  const int64_t v = attr_int(name);
  const auto t = v >= 0 && v < 1000 ? dtype_of(static_cast<int32_t>(v)) : std::nullopt;
  if (!t)
    fail("attribute \"" + std::string(name) + "\": the element type " +
         (v >= INT32_MIN && v <= INT32_MAX ? onnx_type_name(static_cast<int32_t>(v)) : std::to_string(v)) + " is not supported");
  return *t;
}

ValueId NodeContext::attr_tensor(std::string_view name) const {
  try {
    return scope.import.constant(g, get(name, AttributeProto::TENSOR).t());
  } catch (NodeError& e) {
    if (e.message.starts_with("attribute")) throw;
    fail("attribute \"" + std::string(name) + "\": " + e.message, e.hint);
  }
}

const ::onnx::GraphProto& NodeContext::attr_graph(std::string_view name) const {
  return get(name, AttributeProto::GRAPH).g();
}

// --- values -------------------------------------------------------------------------------------------------------

std::optional<Ints> NodeContext::ints(ValueId v) const {
  if (const auto& known = g.value(v).contents) {
    Ints r;
    for (Expr e : *known) {
      if (!e.is_const()) return std::nullopt;
      r.push_back(e.value());
    }
    return r;
  }
  return g.int_values(v);
}

std::optional<std::vector<Expr>> NodeContext::exprs(ValueId v) const {
  if (const auto& known = g.value(v).contents) return *known;
  if (const auto numbers = g.int_values(v)) {
    std::vector<Expr> r;
    for (int64_t n : *numbers) r.push_back(expr(n));
    return r;
  }
  return std::nullopt;
}

std::optional<std::vector<double>> NodeContext::floats(ValueId v) const {
  if (const auto f = g.float_values(v)) return f;
  if (const auto n = ints(v)) return std::vector<double>(n->begin(), n->end());
  return std::nullopt;
}

Expr NodeContext::new_data_symbol(std::string_view name, sym::Range range) const {
  std::string clean;
  for (char c : name) clean += std::isalnum(static_cast<unsigned char>(c)) || c == '_' ? c : '_';
  if (clean.empty() || std::isdigit(static_cast<unsigned char>(clean[0]))) clean.insert(0, "d_");
  Expr s = sym().var(clean, range);
  g.module().data_symbols.push_back(s);
  return s;
}

std::vector<Expr> NodeContext::dims(ValueId v, sym::Range range) const {
  if (auto known = exprs(v)) return *known;
  const Type t = type(v);
  if (!is_int(t.dtype) && t.dtype != DType::b1) fail(text(v) + " must have an integer type");
  if (t.rank() > 1) fail(text(v) + " must have at most one dim");
  if (t.rank() == 1 && !t.shape[0].is_const())
    fail("the number of elements of " + text(v) + " must be known at compile time: ranks are static");
  auto& memo = scope.state().read;
  const int64_t asked = range.lo;
  if (auto it = memo.find({v, asked}); it != memo.end()) return it->second;

  // What is known of a concatenation need not be read, nor what is arithmetic with something known.
  const graph::Node producer = g.producer(v);
  int& depth = scope.state().read_depth;
  struct Deeper {
    int& depth;
    explicit Deeper(int& d) : depth(d) { ++depth; }
    ~Deeper() { --depth; }
  } deeper(depth);
  const bool follow = depth < 64;  // chains longer than that are read where they end
  const auto whole = [&](ValueId x) { return rank(x) <= 1 && is_int(dtype(x)); };
  std::vector<Expr> r;
  if (follow && producer.op == OpKind::concat) {
    for (ValueId part : producer.operands)
      for (Expr e : dims(part, range)) r.push_back(e);
  } else if (follow && (producer.op == OpKind::reshape || producer.op == OpKind::cast || producer.op == OpKind::identity) &&
             whole(producer.operands[0])) {
    r = dims(producer.operands[0], range);
  } else if (follow && (producer.op == OpKind::add || producer.op == OpKind::sub) && t.dtype == DType::i64 &&
             (exprs(producer.operands[0]) || exprs(producer.operands[1])) && whole(producer.operands[0]) &&
             whole(producer.operands[1])) {
    const std::vector<Expr> a = dims(producer.operands[0], kAnyRange), b = dims(producer.operands[1], kAnyRange);
    for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
      const Expr x = a[a.size() == 1 ? 0 : i], y = b[b.size() == 1 ? 0 : i];
      r.push_back(producer.op == OpKind::add ? x + y : x - y);
      if (range == kAnyRange) continue;
      graph::require(
          g, sym::logical_and(sym::ge(r.back(), range.lo), sym::le(r.back(), g.sym().constant(range.hi))),
          "a size computed at run time must be within " + std::to_string(range.lo) + ".." + std::to_string(range.hi));
    }
  } else {
    ValueId source = v;
    if (range == kAnyRange && info(t.dtype).bits == 64 && !scope.state().ranges.contains(v))
      source =
          add(OpKind::clip, {v, int_scalar(t.dtype, is_signed(t.dtype) ? range.lo : 0), int_scalar(t.dtype, range.hi)});
    if (const auto known = scope.state().ranges.find(v); known != scope.state().ranges.end())
      range = {std::max(range.lo, known->second.lo), std::min(range.hi, known->second.hi)};
    const int64_t count = t.rank() == 0 ? 1 : t.shape[0].value();
    if (count > graph::kMaxContents) fail(text(v) + " has too many elements for a shape");
    for (int64_t i = 0; i < count; ++i) {
      const ValueId one = t.rank() == 0 ? source : slice(source, 0, expr(i), expr(1));
      r.push_back(new_data_symbol(g.value(v).name, range));
      g.add_given(OpKind::read_dim, {one}, graph::ExprsAttr{{r.back()}}, type(one));
    }
  }
  memo[{v, asked}] = r;
  return r;
}

Expr NodeContext::dims_scalar(ValueId v, sym::Range range) const {
  const std::vector<Expr> r = dims(v, range);
  if (r.size() != 1) fail(text(v) + " must have one element");
  return r[0];
}

Ints NodeContext::need_ints(int i, std::string_view what) const {
  if (auto r = ints(input(i))) return *r;
  fail(std::string(what) + " must be constant, input " + std::to_string(i) + " is computed: " + text(input(i)));
}

// --- short cuts ---------------------------------------------------------------------------------------------------

ValueId NodeContext::cast(ValueId x, DType to) const {
  return dtype(x) == to ? x : add(OpKind::cast, {x}, graph::CastAttr{to, true});
}

ValueId NodeContext::int_scalar(DType t, int64_t v) const {
  if (!is_int(t) && t != DType::b1) return scalar(t, static_cast<double>(v));
  return g.add_constant(t, {}, &v);  // little-endian: the low bytes come first
}

ValueId NodeContext::transpose(ValueId x, std::vector<int> perm) const {
  for (size_t i = 0; i < perm.size(); ++i)
    if (perm[i] != static_cast<int>(i)) return add(OpKind::transpose, {x}, graph::PermAttr{std::move(perm)});
  return x;
}

ValueId NodeContext::broadcast(ValueId x, Shape shape) const {
  if (this->shape(x) == shape) return x;
  Type t = Type::make(dtype(x), std::move(shape));
  return g.add_given(OpKind::broadcast, {x}, graph::NoAttr{}, std::move(t));
}

ValueId NodeContext::align(ValueId x, int axis, int rank) const {
  Shape s(rank, expr(1));
  for (int i = 0; i < this->rank(x) && axis + i < rank; ++i) s[axis + i] = dim(x, i);
  return reshape(x, std::move(s));
}

ValueId NodeContext::unsqueeze(ValueId x, int axis) const {
  Shape s = shape(x);
  s.insert(s.begin() + axis, expr(1));
  return reshape(x, std::move(s));
}

ValueId NodeContext::squeeze(ValueId x, int axis) const {
  Shape s = shape(x);
  graph::require(g, sym::eq(s[axis], 1), "dim " + std::to_string(axis) + " of " + g.value(x).name + " must be 1");
  s.erase(s.begin() + axis);
  return reshape(x, std::move(s));
}

ValueId NodeContext::slice(ValueId x, int axis, Expr start, Expr size, int64_t step) const {
  if (start.is_const(0) && step == 1 && size == dim(x, axis)) return x;
  graph::SliceAttr a;
  a.starts.assign(rank(x), expr(0));
  a.steps.assign(rank(x), 1);
  a.starts[axis] = start;
  a.steps[axis] = step;
  Type t = Type::make(dtype(x), shape(x));
  t.shape[axis] = size;
  return g.add_given(OpKind::slice, {x}, std::move(a), std::move(t));
}

// A kernel has a phase for each operand, and each takes all of them: many are put together in parts first.
ValueId NodeContext::concat(std::vector<ValueId> xs, int axis) const {
  constexpr size_t most = graph::kWidestConcat;
  while (xs.size() > most) {
    std::vector<ValueId> parts;
    for (size_t i = 0; i < xs.size(); i += most)
      parts.push_back(concat({xs.begin() + static_cast<int64_t>(i), xs.begin() + static_cast<int64_t>(std::min(xs.size(), i + most))}, axis));
    xs = std::move(parts);
  }
  if (xs.size() == 1) return xs[0];
  graph::AxisAttr a;
  a.axis = axis;
  return add(OpKind::concat, std::move(xs), std::move(a));
}

ValueId NodeContext::constant(const Ints& shape, const std::vector<float>& values) const {
  return g.add_constant(DType::f32, shape, values.data());
}

}  // namespace tripod::importer
