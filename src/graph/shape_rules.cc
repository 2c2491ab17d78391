// The entry of type inference, and what the rules share.
#include "graph/shape_rules.h"

#include <algorithm>

namespace tripod::graph {

std::string shape_text(const Shape& s) {
  std::string t = "[";
  for (size_t i = 0; i < s.size(); ++i) t += (i ? ", " : "") + sym::text(s[i]);
  return t + "]";
}

std::string operand_text(int i) { return "operand " + std::to_string(i + 1); }

Expr element_count(sym::Context& c, const Shape& s) { return sym::product(c, s); }

bool same_type(const Type& a, const Type& b) {
  auto same_pointee = [](const auto& x, const auto& y, auto equal) {
    return x == y || (x && y && equal(*x, *y));
  };
  auto equal = [](const auto& x, const auto& y) { return x == y; };
  return a.kind == b.kind && a.dtype == b.dtype && a.shape == b.shape && a.space == b.space && a.order == b.order && a.storage == b.storage &&
         same_pointee(a.quant, b.quant, equal) && same_pointee(a.sharding, b.sharding, equal) &&
         same_pointee(a.element, b.element, same_type);
}

// --- requirements ---------------------------------------------------------------------------------------------------

void Rule::require(Expr condition, std::string what, std::vector<Expr> sizes) {
  switch (sym::prove(condition)) {
    case sym::Truth::yes: return;
    case sym::Truth::no: throw ShapeError(std::move(what));
    case sym::Truth::unknown: required_.push_back({condition, std::move(what), {}, std::move(sizes)});
  }
}

Expr Rule::same(Expr a, Expr b, std::string what) {
  if (a == b) return a;
  require(sym::eq(a, b), std::move(what), {a, b});
  // Of two names for one size the shorter: what follows it would grow layer by layer (a causal mask that is cut out of a
  // table has dims full of min and max, and they meet the length that everything else is written in).
  return b.is_const() || (!a.is_const() && b->size < a->size) ? b : a;
}

void merge_requirements(Module& m, const Requirements& required, const std::vector<Site>& origins) {
  for (Module::Requirement r : required) {
    auto same = [&](const Module::Requirement& o) { return o.condition == r.condition; };
    if (std::any_of(m.requirements.begin(), m.requirements.end(), same)) continue;
    if (r.origins.empty()) r.origins = origins;
    m.requirements.push_back(std::move(r));
  }
}

void require(Graph& g, Expr condition, std::string what) {
  Requirements required;
  Rule(g, OpKind::identity, {}, NoAttr{}, required).require(condition, std::move(what));
  merge_requirements(g.module(), required, g.origins());
}

// --- checks the rules share -----------------------------------------------------------------------------------------

void Rule::tensor(int i, int wanted) const {
  if (!has(i)) throw ShapeError(operand_text(i) + " is missing");
  if (type(i).kind != Type::tensor) throw ShapeError(operand_text(i) + " must be a tensor, it is " + text(type(i)));
  if (wanted >= 0 && rank(i) != wanted)
    throw ShapeError(operand_text(i) + " must have rank " + std::to_string(wanted) + ", it is " + text(type(i)));
}

void Rule::same_dtype(int i, int j) const {
  if (dtype(i) != dtype(j))
    throw ShapeError(operand_text(i) + " is " + std::string(name(dtype(i))) + " and " + operand_text(j) + " is " +
                     std::string(name(dtype(j))) + "; both must have one element type");
}

void Rule::check_axis(int64_t axis, int rank) const {
  if (axis < 0 || axis >= rank)
    throw ShapeError("axis " + std::to_string(axis) + " is out of range for rank " + std::to_string(rank));
}

void Rule::vector_of(int i, Expr length, std::string_view what) {
  if (!has(i)) return;
  tensor(i, 1);
  same(dim(i, 0), length,
       "the " + std::string(what) + " (" + operand_text(i) + ") has " + sym::text(dim(i, 0)) + " elements, " +
           sym::text(length) + " are wanted");
}

Shape Rule::broadcast(const Shape& a, const Shape& b, std::string_view names) {
  const size_t rank = std::max(a.size(), b.size());
  Shape out;
  for (size_t i = 0; i < rank; ++i) {
    const bool in_a = i + a.size() >= rank, in_b = i + b.size() >= rank;
    const Expr x = in_a ? a[i + a.size() - rank] : constant(1);
    const Expr y = in_b ? b[i + b.size() - rank] : constant(1);
    if (x.is_const(1))
      out.push_back(y);
    else if (y.is_const(1))
      out.push_back(x);
    else
      out.push_back(same(x, y, std::string(names) + " do not broadcast: " + shape_text(a) + " and " + shape_text(b) +
                                   " differ in dim " + std::to_string(i)));
  }
  return out;
}

void Rule::broadcasts_to(int i, const Shape& shape, std::string_view what) {
  if (!has(i)) return;
  tensor(i);
  const std::string message = "the " + std::string(what) + " (" + operand_text(i) + ") " + shape_text(type(i).shape) +
                              " does not broadcast to " + shape_text(shape);
  if (type(i).shape.size() > shape.size()) throw ShapeError(message);
  const size_t skip = shape.size() - type(i).shape.size();
  for (size_t d = 0; d < type(i).shape.size(); ++d)
    if (!type(i).shape[d].is_const(1)) same(type(i).shape[d], shape[skip + d], message);
}

Shape broadcast_shapes(Graph& g, const Shape& a, const Shape& b) {
  Requirements required;
  Shape s = Rule(g, OpKind::identity, {}, NoAttr{}, required).broadcast(a, b, "the shapes");
  merge_requirements(g.module(), required, g.origins());
  return s;
}

// --- entry ----------------------------------------------------------------------------------------------------------

namespace {

rules::Types apply(Rule& r) {
  switch (r.op) {
#define OP(kind, text, least, most, results, attr, rule, properties) \
  case OpKind::kind: return rules::rule(r);
    TRIPOD_OPS(OP)
#undef OP
  }
  return {};
}

void check_attr(OpKind op, const Attr& attr) {
  TRIPOD_CHECK(static_cast<int>(attr.index()) == info(op).attr_index,
               std::string(info(op).text) + " has the wrong attribute struct");
}

// Float-only ops say so in the table.
void check_float_only(const Rule& r) {
  if (!has(r.op, kFloatOnly)) return;
  for (int i = 0; i < r.count(); ++i) {
    // Positions and lengths (sequence lengths of RNNs, masks) may be anything; the data operand decides.
    if (i > 0) break;
    r.tensor(i);
    if (!is_float(r.dtype(i)))
      throw ShapeError(operand_text(i) + " must have a float type, it is " + text(r.type(i)));
  }
}

// What every operand of an elementwise op, a reduction or a contraction must be: 4-bit integers and strings are stored
// and moved but not computed with, and arithmetic does not exist on bools.
enum class Operands { any, numbers, comparable, checked };  // checked: by the op's own rule, up to 4 bits

Operands operands_of(OpKind op) {
  switch (op) {
    case OpKind::identity:
    case OpKind::cast:
    case OpKind::where:
    case OpKind::quantize:
    case OpKind::dequantize: return Operands::any;
    case OpKind::equal:
    case OpKind::minimum:
    case OpKind::maximum:
    case OpKind::reduce_max:
    case OpKind::reduce_min: return Operands::comparable;
    case OpKind::logical_not:
    case OpKind::logical_and:
    case OpKind::logical_or:
    case OpKind::logical_xor:
    case OpKind::bit_not:
    case OpKind::bit_and:
    case OpKind::bit_or:
    case OpKind::bit_xor:
    case OpKind::shift_left:
    case OpKind::shift_right: return Operands::checked;
    default: return has(op, kElementwise) || has(op, kReduction) || has(op, kContraction) ? Operands::numbers : Operands::any;
  }
}

void check_element_types(const Rule& r) {
  const Operands wanted = operands_of(r.op);
  if (wanted == Operands::any) return;
  for (int i = 0; i < r.count(); ++i) {
    if (!r.has(i) || r.type(i).kind != Type::tensor) continue;
    const DType t = r.dtype(i);
    if (t == DType::i4 || t == DType::u4)
      throw ShapeError(operand_text(i) + " is " + text(r.type(i)) + ": 4-bit integers are not computed with, cast them first");
    const bool good = wanted == Operands::checked || is_float(t) || is_int(t) || (t == DType::b1 && wanted == Operands::comparable);
    if (!good) throw ShapeError(operand_text(i) + " must hold numbers, it is " + text(r.type(i)));
  }
}

}  // namespace

std::vector<Type> infer_types(const Graph& g, OpKind op, const std::vector<ValueId>& operands, const Attr& attr,
                              Requirements& required) {
  check_attr(op, attr);
  Rule r(g, op, operands, attr, required);
  check_float_only(r);
  check_element_types(r);
  std::vector<Type> types = apply(r);
  if (r.has(0))
    for (Type& t : types) t.space = r.type(0).space;
  return types;
}

std::vector<Type> infer(Graph& g, OpKind op, const std::vector<ValueId>& operands, const Attr& attr) {
  Requirements required;
  std::vector<Type> types = infer_types(g, op, operands, attr, required);
  merge_requirements(g.module(), required, g.origins());
  return types;
}

void check_types(const Graph& g, OpKind op, const std::vector<ValueId>& operands, const Attr& attr,
                 const std::vector<Type>& types, Requirements& required) {
  const int wanted = info(op).results;
  if (wanted >= 0 && static_cast<int>(types.size()) != wanted)
    throw ShapeError(std::string(info(op).text) + " has " + std::to_string(wanted) + " results, " +
                     std::to_string(types.size()) + " are given");
  if (type_is_given(op)) {
    check_attr(op, attr);
    Rule r(g, op, operands, attr, required);
    return check_given(r, types);
  }
  const std::vector<Type> inferred = infer_types(g, op, operands, attr, required);
  for (size_t i = 0; i < types.size(); ++i) {
    const Type &a = inferred[i], &b = types[i];
    bool fits = a.kind == b.kind && a.dtype == b.dtype && a.rank() == b.rank();
    for (size_t d = 0; fits && d < a.shape.size(); ++d)
      fits = a.shape[d] == b.shape[d] || sym::prove(sym::eq(a.shape[d], b.shape[d])) != sym::Truth::no;
    if (!fits)
      throw ShapeError("result " + std::to_string(i + 1) + " is " + text(a) + ", not " + text(b) + " as given");
  }
}

rules::Types rules::given(Rule& r) {
  internal_error(__FILE__, __LINE__, std::string(info(r.op).text) + " needs its result types: use add_node()");
}

}  // namespace tripod::graph
