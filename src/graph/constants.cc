// Constants read as numbers.
#include <cstring>

#include "base/float_bits.h"
#include "graph/graph.h"

namespace tripod::graph {

bool ConstAttr::operator==(const ConstAttr& o) const {
  if (size != o.size || strings != o.strings) return false;
  return data == o.data || size == 0 || std::memcmp(data, o.data, static_cast<size_t>(size)) == 0;
}

namespace {

std::optional<int64_t> constant_count(const Type& t) {
  int64_t n = 1;
  for (Expr d : t.shape) {
    if (!d.is_const()) return std::nullopt;
    n *= d.value();  // the size was checked when the node was added
  }
  return n;
}

// The elements of a sym_values node, when all are constants.
std::optional<std::vector<int64_t>> exprs_as_ints(const Node& n) {
  const auto* a = n.op == OpKind::sym_values ? std::get_if<ExprsAttr>(&n.attr) : nullptr;
  if (!a) return std::nullopt;
  std::vector<int64_t> values;
  for (Expr e : a->values) {
    if (!e.is_const()) return std::nullopt;
    values.push_back(e.value());
  }
  return values;
}

// Is the value a constant with bytes that read as numbers?
bool readable(const Graph& g, ValueId v) {
  return g.is_constant(v) && g.type(v).dtype != DType::string && constant_count(g.type(v));
}

}  // namespace

const ConstAttr& Graph::bytes(ValueId v) const { return std::get<ConstAttr>(producer(v).attr); }

std::optional<std::vector<double>> Graph::float_values(ValueId v) const {
  if (v == kNoValue) return std::nullopt;
  if (auto ints = exprs_as_ints(producer(v))) return std::vector<double>(ints->begin(), ints->end());
  if (!readable(*this, v)) return std::nullopt;
  const DType t = type(v).dtype;
  std::vector<double> values(static_cast<size_t>(*constant_count(type(v))));
  for (size_t i = 0; i < values.size(); ++i) values[i] = load_double(t, bytes(v).data, static_cast<int64_t>(i));
  return values;
}

std::optional<std::vector<int64_t>> Graph::int_values(ValueId v) const {
  if (v == kNoValue) return std::nullopt;
  if (auto ints = exprs_as_ints(producer(v))) return ints;
  if (!readable(*this, v)) return std::nullopt;
  const DType t = type(v).dtype;
  if (is_float(t)) return std::nullopt;
  std::vector<int64_t> values(static_cast<size_t>(*constant_count(type(v))));
  for (size_t i = 0; i < values.size(); ++i) {
    auto x = load_int(t, bytes(v).data, static_cast<int64_t>(i));
    if (!x) return std::nullopt;
    values[i] = *x;
  }
  return values;
}

std::optional<double> Graph::scalar_value(ValueId v) const {
  if (v == kNoValue) return std::nullopt;
  if (auto ints = exprs_as_ints(producer(v))) {
    for (int64_t x : *ints)
      if (x != ints->front()) return std::nullopt;
    return ints->empty() ? std::nullopt : std::optional(static_cast<double>(ints->front()));
  }
  if (!readable(*this, v)) return std::nullopt;
  const int64_t n = *constant_count(type(v));
  if (n == 0) return std::nullopt;
  const DType t = type(v).dtype;
  const std::byte* data = bytes(v).data;
  const uint64_t first = load_bits(t, data, 0);
  for (int64_t i = 1; i < n; ++i)  // by bits: -0 is not 0, a NaN equals itself
    if (load_bits(t, data, i) != first) return std::nullopt;
  return load_double(t, data, 0);
}

}  // namespace tripod::graph
