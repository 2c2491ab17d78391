// The graph as text. What this prints, parse.cc reads back to an equal module:
//
//   module 'resnet'
//   metadata 'producer' = 'pytorch'
//   graph @main(%x: f32[N, 64, H, W]) where 1 <= N <= 64, 1 <= H, 1 <= W by 8 {
//     %w = const f32[64, 64, 3, 3] sha256:9f2c41...
//     %y = conv(%x, %w) {strides: [1, 1], ...} : f32[N, 64, H, W]  # 12 Conv 'layer1/conv2'
//     return %y as 'output'
//   }
//   require H == W : 'dims differ' of H, W  # 12 Conv 'layer1/conv2'
#include <charconv>
#include <cmath>
#include <limits>

#include "base/number_text.h"
#include "base/float_bits.h"
#include "base/sha256.h"
#include "graph/attr_fields.h"
#include "graph/graph.h"
#include "graph/symbols.h"
#include "graph/text_parts.h"

namespace tripod::graph {

// --- words ----------------------------------------------------------------------------------------------------------

std::string quoted(std::string_view s) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string t = "'";
  for (char c : s) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '\'' || c == '\\')
      t += '\\', t += c;
    else if (c == '\n')
      t += "\\n";
    else if (u < 32 || u == 127)
      t += "\\x", t += kDigits[u >> 4], t += kDigits[u & 15];
    else
      t += c;
  }
  return t + "'";
}

bool plain_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '/' || c == '-';
}

std::string name_text(char sigil, std::string_view name) {
  bool plain = !name.empty();
  for (char c : name) plain = plain && plain_name_char(c);
  return sigil + (plain ? std::string(name) : quoted(name));
}

std::string number_text(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  return shortest(v);
}

namespace {

std::string number_text(float v) {
  if (std::isnan(v) || std::isinf(v)) return graph::number_text(double{v});
  return shortest(v);
}

std::string hex_bits(uint64_t bits) {
  char buffer[20];
  return "bits:" + std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, bits, 16).ptr);
}

// Shortest text that reads back to the same bits.
std::string element_text(DType t, const std::byte* data, int64_t i) {
  const uint64_t bits = load_bits(t, data, i);
  if (t == DType::b1) return bits == 0 ? "false" : bits == 1 ? "true" : hex_bits(bits);
  if (is_int(t)) return is_signed(t) ? std::to_string(*load_int(t, data, i)) : std::to_string(bits);
  const double v = decode_float(t, bits);
  if (std::isnan(v) && bits != encode_float(t, std::numeric_limits<double>::quiet_NaN())) return hex_bits(bits);
  return t == DType::f64 ? graph::number_text(v) : number_text(static_cast<float>(v));
}

std::string constant_text(const Type& t, const ConstAttr& a) {
  std::string s;
  if (t.dtype == DType::string) {
    for (const std::string& e : a.strings) s += (s.empty() ? "" : ", ") + quoted(e);
    return "[" + s + "]";
  }
  int64_t count = 1;
  for (Expr d : t.shape) count *= d.value();
  if (count <= kMaxPrintedElements) {
    for (int64_t i = 0; i < count; ++i) s += (i ? ", " : "") + element_text(t.dtype, a.data, i);
    return "[" + s + "]";
  }
  for (int64_t i = 1; i < count; ++i)
    if (load_bits(t.dtype, a.data, i) != load_bits(t.dtype, a.data, 0))
      return "sha256:" + sha256(a.data, static_cast<size_t>(a.size));
  return "fill " + element_text(t.dtype, a.data, 0);
}

// --- values of attribute fields -------------------------------------------------------------------------------------

std::string value_text(bool v) { return v ? "true" : "false"; }
std::string value_text(int v) { return std::to_string(v); }
std::string value_text(int64_t v) { return std::to_string(v); }
std::string value_text(float v) { return number_text(v); }
std::string value_text(double v) { return graph::number_text(v); }
std::string value_text(const std::string& v) { return quoted(v); }
std::string value_text(Expr v) { return sym::text(v); }
std::string value_text(DType v) { return std::string(name(v)); }
std::string value_text(PadAttr::Mode v) { return std::string(kPadModes[v]); }
std::string value_text(RnnAttr::Direction v) { return std::string(kDirections[v]); }

template <class T>
std::string value_text(const std::vector<T>& values) {
  std::string s = "[";
  bool later = false;
  for (const auto& v : values) {
    s += (later ? ", " : "") + value_text(static_cast<T>(v));
    later = true;
  }
  return s + "]";
}

// Prints the fields of one attribute struct, those that differ from the default.
template <class A>
struct FieldPrinter {
  const Graph& g;
  const A& attr;
  const A fallback = {};
  std::string out = {};

  void put(std::string_view name, std::string value) {
    out += (out.empty() ? "" : ", ") + std::string(name) + ": " + value;
  }
  template <class T>
  void operator()(std::string_view name, T A::*member, Show show) {
    if (show == Show::always || !(attr.*member == fallback.*member)) put(name, value_text(attr.*member));
  }
  void bodies(std::string_view name, std::vector<int32_t> A::*member) {
    std::string s;
    for (int32_t i : attr.*member) s += (s.empty() ? "" : ", ") + name_text('@', g.module().graph(i).name());
    put(name, "[" + s + "]");
  }
};

std::string attr_text(const Graph& g, const Attr& attr) {
  std::string s = std::visit(
      [&](const auto& a) {
        using A = std::decay_t<decltype(a)>;
        FieldPrinter<A> p{g, a};
        Fields<A>::visit(p);
        return p.out;
      },
      attr);
  return s.empty() ? s : " {" + s + "}";
}

std::string origins_text(const std::vector<Site>& origins) {
  std::string s;
  for (const Site& o : origins) {
    s += s.empty() ? "  # " : ", ";
    s += (o.index < 0 ? "-" : std::to_string(o.index)) + " " + (o.op.empty() ? "-" : o.op) + " " + quoted(o.name);
  }
  return s;
}

// `1 <= N <= 64 by 8`; a symbol without bounds is just its name.
std::string symbol_text(Expr v) {
  std::string s = sym::text(v);
  const sym::Range r = v->range;
  if (r.lo != sym::Range::kMin) s = std::to_string(r.lo) + " <= " + s;
  if (r.hi != sym::Range::kMax) s += " <= " + std::to_string(r.hi);
  if (v->divisor != 1) s += " by " + std::to_string(v->divisor);
  return s;
}

std::string symbols_text(std::string_view word, const std::vector<Expr>& symbols) {
  std::string s;
  for (Expr v : symbols) s += (s.empty() ? " " + std::string(word) + " " : ", ") + symbol_text(v);
  return s;
}

// Variables that no list of the module declares. The verifier objects to them, but a dump for debugging must read back.
std::vector<Expr> undeclared(const Module& m) {
  SymbolCollector all(m, false);
  for (int32_t i = 0; i < m.num_graphs(); ++i)
    for (NodeId n : m.graph(i).order()) all.node(m.graph(i), m.graph(i).node(n));
  for (const auto& r : m.requirements) {
    all.expr(r.condition);
    for (Expr e : r.sizes) all.expr(e);
  }
  std::unordered_set<Expr, sym::Hash> known(m.symbols.begin(), m.symbols.end());
  known.insert(m.data_symbols.begin(), m.data_symbols.end());
  std::vector<Expr> rest;
  for (Expr v : all.take_new())
    if (known.insert(v).second) rest.push_back(v);
  return rest;
}

}  // namespace

// --- types ----------------------------------------------------------------------------------------------------------

std::string text(const Type& t) {
  switch (t.kind) {
    case Type::absent: return "absent";
    case Type::sequence: return "seq<" + (t.element ? text(*t.element) : "absent") + ">";
    case Type::optional: return "opt<" + (t.element ? text(*t.element) : "absent") + ">";
    case Type::tensor: break;
  }
  std::string s = std::string(name(t.dtype)) + value_text(t.shape);
  if (!(t.space == Space{})) s += " on " + std::string(kSpaces[t.space.kind]) + ":" + std::to_string(t.space.index);
  if (!t.order.empty()) s += " order " + value_text(t.order);
  if (t.storage != DType::none) s += " stored " + std::string(name(t.storage));
  if (t.quant) {
    s += " quant {scale: " + value_text(t.quant->scale) + ", zero_point: " + value_text(t.quant->zero_point);
    s += ", axis: " + value_text(t.quant->axis) + ", block: " + value_text(t.quant->block) + "}";
  }
  if (t.sharding) s += " shard " + value_text(t.sharding->mesh_axis_of_dim);
  return s;
}

// --- nodes and graphs -----------------------------------------------------------------------------------------------

std::string text(const Graph& g, NodeId id) {
  const Node& n = g.node(id);
  std::string names, types, operands;
  for (ValueId r : n.results) {
    names += (names.empty() ? "" : ", ") + name_text('%', g.value(r).name);
    types += (types.empty() ? "" : ", ") + text(g.type(r));
  }
  std::string s = names.empty() ? "" : names + " = ";
  s += info(n.op).text;
  if (n.op == OpKind::constant) {
    s += " " + types + " " + constant_text(g.type(n.results[0]), std::get<ConstAttr>(n.attr));
  } else {
    for (size_t i = 0; i < n.operands.size(); ++i)
      operands += (i ? ", " : "") +
                  (n.operands[i] == kNoValue ? std::string("none") : name_text('%', g.value(n.operands[i]).name));
    s += "(" + operands + ")" + attr_text(g, n.attr) + (types.empty() ? "" : " : " + types);
  }
  return s + origins_text(n.origins);
}

std::string text(const Graph& g) {
  std::string s = "graph " + name_text('@', g.name()) + "(", inputs, outputs;
  for (ValueId v : g.inputs())
    inputs += (inputs.empty() ? "" : ", ") + name_text('%', g.value(v).name) + ": " + text(g.type(v));
  s += inputs + ")";
  const Module& m = g.module();
  if (&g == &m.main())
    s += symbols_text("where", m.symbols) + symbols_text("data", m.data_symbols) + symbols_text("other", undeclared(m));
  s += " {\n";
  for (NodeId n : g.order())
    if (g.node(n).op != OpKind::input) s += "  " + text(g, n) + "\n";
  for (size_t i = 0; i < g.outputs().size(); ++i) {
    const std::string& name = g.value(g.outputs()[i]).name;
    outputs += (i ? ", " : " ") + name_text('%', name);
    if (g.output_names()[i] != name) outputs += " as " + quoted(g.output_names()[i]);
  }
  return s + "  return" + outputs + "\n}\n";
}

std::string text(const Module& m) {
  std::string s;
  if (!m.name.empty()) s += "module " + quoted(m.name) + "\n";
  for (const auto& [key, value] : m.metadata) s += "metadata " + quoted(key) + " = " + quoted(value) + "\n";
  for (int32_t i = 0; i < m.num_graphs(); ++i) s += text(m.graph(i));
  for (const auto& r : m.requirements) {
    s += "require " + sym::text(r.condition) + " : " + quoted(r.what);
    for (const Expr& e : r.sizes) s += (&e == &r.sizes[0] ? " of " : ", ") + sym::text(e);
    s += origins_text(r.origins) + "\n";
  }
  return s;
}

}  // namespace tripod::graph
