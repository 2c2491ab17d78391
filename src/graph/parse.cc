// The inverse of text.cc.
#include <algorithm>
#include <cstring>

#include "base/float_bits.h"
#include "graph/attr_fields.h"
#include "graph/infer.h"
#include "graph/reader.h"
#include "graph/text_parts.h"

namespace tripod::graph {
namespace {

using Lookup = std::function<ConstAttr(std::string_view)>;

// --- attributes -----------------------------------------------------------------------------------------------------

// A body may be named before its graph stands in the text: names become indices at the end.
struct PendingBodies {
  Graph* graph;
  NodeId node;
  std::vector<std::pair<std::string, size_t>> names;  // and where they stand
};

template <size_t N>
size_t one_of(Reader& in, const std::string_view (&words)[N]) {
  const size_t start = in.position();
  const auto* w = std::find(std::begin(words), std::end(words), in.word());
  if (w == std::end(words)) in.fail_at(start, "unknown word");
  return static_cast<size_t>(w - words);
}

void read_value(Reader& in, bool& v) { v = in.boolean(); }
void read_value(Reader& in, int& v) { v = static_cast<int>(in.integer()); }
void read_value(Reader& in, int64_t& v) { v = in.integer(); }
void read_value(Reader& in, double& v) { v = in.number(); }
void read_value(Reader& in, std::string& v) { v = in.string(); }
void read_value(Reader& in, DType& v) { v = in.dtype(); }
void read_value(Reader& in, Expr& v) { v = in.expr(); }
void read_value(Reader& in, PadAttr::Mode& v) { v = static_cast<PadAttr::Mode>(one_of(in, kPadModes)); }
void read_value(Reader& in, RnnAttr::Direction& v) { v = static_cast<RnnAttr::Direction>(one_of(in, kDirections)); }
template <class T>
void read_value(Reader& in, std::vector<T>& v) {
  v = in.values<T>([&] {
    T e{};
    read_value(in, e);
    return e;
  });
}

// Reads the value of the field called `name`.
template <class A>
struct FieldReader {
  Reader& in;
  std::string_view name;
  A& attr;
  PendingBodies& pending;
  bool found = false;

  template <class T>
  void operator()(std::string_view field, T A::*member, Show) {
    if (field != name) return;
    read_value(in, attr.*member);
    found = true;
  }
  void bodies(std::string_view field, std::vector<int32_t> A::*) {
    if (field != name) return;
    in.list("[", "]", [&] {
      const size_t start = in.position();
      pending.names.emplace_back(in.name('@'), start);
    });
    found = true;
  }
};

template <size_t I = 0>
Attr default_attr(int index) {
  if constexpr (I < std::variant_size_v<Attr>)
    return static_cast<int>(I) == index ? Attr(std::in_place_index<I>) : default_attr<I + 1>(index);
  else
    return NoAttr{};
}

Attr read_attr(Reader& in, OpKind op, PendingBodies& pending) {
  Attr attr = default_attr(info(op).attr_index);
  if (!in.peek("{")) return attr;
  in.list("{", "}", [&] {
    const size_t start = in.position();
    const std::string_view field = in.word();
    in.expect(":");
    const bool found = std::visit(
        [&](auto& a) {
          using A = std::decay_t<decltype(a)>;
          FieldReader<A> r{in, field, a, pending};
          Fields<A>::visit(r);
          return r.found;
        },
        attr);
    if (!found) in.fail_at(start, std::string(info(op).text) + " has no attribute '" + std::string(field) + "'");
  });
  return attr;
}

// --- constants ------------------------------------------------------------------------------------------------------

ConstAttr hold(std::vector<std::byte> bytes) {
  auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return {owner, owner->data(), static_cast<int64_t>(owner->size()), {}};
}

ConstAttr read_constant(Reader& in, const Type& t, const Lookup& constants) {
  const size_t start = in.position();
  int64_t count = 1;
  for (Expr d : t.shape) {
    if (!d.is_const() || d.value() < 0 || __builtin_mul_overflow(count, d.value(), &count))
      in.fail_at(start, "a constant needs a static shape");
  }
  if (t.dtype == DType::string) {
    ConstAttr a;
    a.strings = in.values<std::string>([&] { return in.string(); });
    return a;
  }
  if (in.take("sha256:")) {
    std::string hash;
    while (std::isxdigit(static_cast<unsigned char>(in.next_char()))) hash += in.take_char();
    if (!constants) in.fail_at(start, "the bytes of constant " + hash + " are not at hand");
    ConstAttr a = constants(hash);
    if (a.size != byte_size(t.dtype, count)) in.fail_at(start, "the bytes of constant " + hash + " are not at hand");
    return a;
  }
  // A wrong count is cheap to write and must not cost memory: elements are gathered before bytes are made.
  std::vector<uint64_t> elements;
  if (in.take_word("fill")) {
    if (count > int64_t{1} << 28) in.fail_at(start, "the constant is too large for fill");
    elements.push_back(in.element_bits(t.dtype));
  } else {
    in.list("[", "]", [&] { elements.push_back(in.element_bits(t.dtype)); });
    if (static_cast<int64_t>(elements.size()) != count)
      in.fail_at(start, "expected " + std::to_string(count) + " elements, got " + std::to_string(elements.size()));
  }
  std::vector<std::byte> bytes(static_cast<size_t>(byte_size(t.dtype, count)));
  for (int64_t i = 0; i < count; ++i)
    store_bits(t.dtype, bytes.data(), i, elements[elements.size() == 1 ? 0 : static_cast<size_t>(i)]);
  return hold(std::move(bytes));
}

// --- graphs ---------------------------------------------------------------------------------------------------------

class GraphParser {
 public:
  GraphParser(Reader& in, Graph& g, const Lookup& constants, std::vector<PendingBodies>& pending)
      : in_(in), g_(g), constants_(constants), pending_(pending) {}

  // What the graph says against a node becomes an error at its place in the text.
  template <class F>
  auto checked(size_t at, F&& f) {
    try {
      return f();
    } catch (const ShapeError& e) {
      in_.fail_at(at, e.what());
    }
  }

  void inputs() {
    in_.list("(", ")", [&] {
      const size_t start = in_.position();
      const std::string name = in_.name('%');
      in_.expect(":");
      const ValueId v = checked(start, [&] { return g_.add_input(name, in_.type()); });
      define(start, name, v);
    });
  }

  void body() {
    in_.expect("{");
    while (!in_.take_word("return")) node();
    outputs();
    in_.expect("}");
  }

 private:
  void define(size_t at, const std::string& name, ValueId v) {
    if (!values_.emplace(name, v).second) in_.fail_at(at, "%" + name + " is defined twice");
    g_.set_name(v, name);
  }

  ValueId use() {
    const size_t start = in_.position();
    const std::string name = in_.name('%');
    auto it = values_.find(name);
    if (it == values_.end()) in_.fail_at(start, "%" + name + " is not defined before its use");
    return it->second;
  }

  void node() {
    const size_t start = in_.position();
    std::vector<std::pair<std::string, size_t>> names;
    if (!in_.peek("%") && !in_.peek("call")) in_.fail("expected %name = ..., or return");
    if (in_.peek("%")) {
      do {
        const size_t at = in_.position();
        names.emplace_back(in_.name('%'), at);
      } while (in_.take(","));
      in_.expect("=");
    }
    const size_t op_at = in_.position();
    const auto op = parse_op(in_.word());
    if (!op || *op == OpKind::input) in_.fail_at(op_at, "no such op");
    PendingBodies pending{&g_, -1, {}};
    std::vector<ValueId> operands;
    std::vector<Type> types;
    Attr attr;
    if (*op == OpKind::constant) {
      types.push_back(in_.type());
      attr = read_constant(in_, types[0], constants_);
    } else {
      in_.list("(", ")", [&] { operands.push_back(in_.take_word("none") ? kNoValue : use()); });
      attr = read_attr(in_, *op, pending);
      if (in_.take(":")) {
        do types.push_back(in_.type());
        while (in_.take(","));
      }
    }
    g_.set_origins(in_.origins());
    const NodeId n = checked(op_at, [&] { return add(*op, std::move(operands), std::move(attr), std::move(types)); });
    if (names.size() != g_.node(n).results.size())
      in_.fail_at(start, std::to_string(names.size()) + " names for " + std::to_string(g_.node(n).results.size()) +
                             " results");
    for (size_t i = 0; i < names.size(); ++i) define(names[i].second, names[i].first, g_.node(n).results[i]);
    pending.node = n;
    if (!pending.names.empty()) pending_.push_back(std::move(pending));
  }

  // Types may be left out where the op's rule finds them (for files written by hand).
  NodeId add(OpKind op, std::vector<ValueId> operands, Attr attr, std::vector<Type> types) {
    if (types.empty() && info(op).results > 0) {
      if (type_is_given(op)) throw ShapeError(std::string(info(op).text) + " needs its result type");
      return g_.value(g_.add(op, std::move(operands), std::move(attr))).producer;
    }
    return g_.add_node(op, std::move(operands), std::move(attr), std::move(types));
  }

  void outputs() {
    std::vector<ValueId> values;
    std::vector<std::string> names;
    if (in_.peek("%")) {
      do {
        values.push_back(use());
        names.push_back(in_.take_word("as") ? in_.string() : g_.value(values.back()).name);
      } while (in_.take(","));
    }
    g_.set_outputs(std::move(values), std::move(names));
    g_.set_origins({});
  }

  Reader& in_;
  Graph& g_;
  const Lookup& constants_;
  std::vector<PendingBodies>& pending_;
  std::unordered_map<std::string, ValueId> values_;
};

class ModuleParser {
 public:
  ModuleParser(std::string_view text, const Lookup& constants)
      : module_(std::make_unique<Module>()), in_(*module_, text), constants_(constants) {}

  std::unique_ptr<Module> parse() {
    if (in_.take_word("module")) module_->name = in_.string();
    while (in_.take_word("metadata")) {
      std::string key = in_.string();
      in_.expect("=");
      module_->metadata.emplace_back(std::move(key), in_.string());
    }
    if (!in_.peek("graph")) in_.fail("expected graph @main(...) { ... }");
    while (in_.take_word("graph")) graph();
    resolve();
    requirements();
    if (!in_.at_end()) in_.fail("expected the end of the text");
    return std::move(module_);
  }

 private:
  void graph() {
    const size_t start = in_.position();
    const std::string name = in_.name('@');
    if ((name == "main") != graphs_.empty()) in_.fail_at(start, "@main comes first");
    const int32_t index = graphs_.empty() ? 0 : module_->add_graph(name);
    if (!graphs_.emplace(name, index).second) in_.fail_at(start, "@" + name + " is defined twice");
    GraphParser body(in_, module_->graph(index), constants_, pending_);
    const size_t behind = index == 0 ? symbols_ahead() : 0;
    body.inputs();
    if (index == 0) in_.go_to(behind);
    body.body();
  }

  // The types of the inputs use the symbols of the clauses behind them: those are read first. Returns the position
  // behind them.
  size_t symbols_ahead() {
    const size_t back = in_.position();
    int depth = 0;
    do {  // to the end of the input list
      if (in_.at_end()) in_.fail("expected ')'");
      if (in_.peek("'")) {
        in_.string();
      } else if (in_.peek("`")) {
        in_.symbol_name();
      } else {
        in_.go_to(in_.position());
        const char c = in_.take_char();
        depth += (c == '(') - (c == ')');
      }
    } while (depth > 0);
    clause("where", &module_->symbols);
    clause("data", &module_->data_symbols);
    clause("other", nullptr);
    const size_t behind = in_.position();
    in_.go_to(back);
    return behind;
  }

  void clause(std::string_view word, std::vector<Expr>* into) {
    if (!in_.take_word(word)) return;
    do {
      const Expr v = in_.declare_symbol();
      if (into) into->push_back(v);
    } while (in_.take(","));
  }

  void resolve() {
    for (PendingBodies& p : pending_)
      for (auto& [name, at] : p.names) {
        auto it = graphs_.find(name);
        if (it == graphs_.end()) in_.fail_at(at, "no graph @" + name);
        std::get<SubgraphAttr>(p.graph->node(p.node).attr).graphs.push_back(it->second);
      }
  }

  // The text's requirements in their order, then what the shape rules found that it does not state.
  void requirements() {
    Requirements stated;
    while (in_.take_word("require")) {
      Module::Requirement r;
      r.condition = in_.expr();
      in_.expect(":");
      r.what = in_.string();
      if (in_.take_word("of")) do r.sizes.push_back(in_.expr()); while (in_.take(","));
      r.origins = in_.origins();
      stated.push_back(std::move(r));
    }
    Requirements found = std::exchange(module_->requirements, std::move(stated));
    merge_requirements(*module_, found, {});
  }

  std::unique_ptr<Module> module_;
  Reader in_;
  const Lookup& constants_;
  std::unordered_map<std::string, int32_t> graphs_;
  std::vector<PendingBodies> pending_;
};

}  // namespace

std::unique_ptr<Module> parse(std::string_view text, const Lookup& constants) {
  return ModuleParser(text, constants).parse();
}

}  // namespace tripod::graph
