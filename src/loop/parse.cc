// The reader of the text form; loop/text.cc shows the syntax.
#include <charconv>
#include <map>

#include "loop/ir.h"
#include "loop/parse_lexer.h"
#include "loop/syntax.h"

namespace tripod::loop {
namespace {

constexpr int kMaxDepth = 400;  // of nested statements and expressions: text comes from files

class Parser {
 public:
  Parser(sym::Context& c, std::string_view text) : c_(c), in_(text) {}

  Function function() {
    Function f;
    in_.expect("func");
    in_.expect("@");
    f.name = in_.word("a function's name");
    if (in_.take("[")) {
      do f.dims.push_back(dim());
      while (in_.take(","));
      in_.expect("]");
    }
    parameters(f.params);
    if (in_.take("->")) {
      const size_t inputs = f.params.size();
      parameters(f.params);
      f.num_outputs = static_cast<int>(f.params.size() - inputs);
    }
    in_.expect("{");
    while (in_.take_word("from")) {
      const int64_t index = in_.integer();
      const std::string op = in_.string(), name = in_.string();
      f.origins.push_back({static_cast<int32_t>(index), op, name});
    }
    if (in_.take_word("rule")) f.rule = in_.string();
    f.body = statements();
    in_.end();
    return f;
  }

 private:
  // --- variables and buffers ---

  struct Variable {
    Index var, extent;
  };

  // A name that was bound before with at least this extent is the same variable again. "i.2" is the third variable
  // named i, where the two others have been seen, so that text comes out as it went in.
  Index bind(const std::string& name, Index extent) {
    if (const auto it = vars_.find(name); it != vars_.end())
      if (it->second.extent && sym::proved(sym::le(extent, it->second.extent))) return it->second.var;
    sym::Range r{0, sym::Range::kMax};
    if (extent.is_const()) r.hi = std::max<int64_t>(extent.value() - 1, 0);
    const Index v = new_variable(name, r, 1);
    if (!extent.is_const()) c_.assume_below(v, extent);
    vars_[name] = {v, extent};
    return v;
  }

  Index new_variable(const std::string& name, sym::Range r, int64_t divisor) {
    const size_t dot = name.rfind('.');
    const std::string base = name.substr(0, dot);
    const int64_t number = dot == std::string::npos ? 0 : std::atoll(name.c_str() + dot + 1);
    if (number != seen_[base]) return c_.var(name, r, divisor);
    ++seen_[base];
    return c_.var(base, r, divisor);
  }

  Index dim() {
    const std::string name = in_.name("a dim");
    sym::Range r;
    int64_t divisor = 1;
    if (in_.take(":")) range(r, divisor);
    const Index v = new_variable(name, r, divisor);
    vars_[name] = {v, {}};
    return v;
  }

  void range(sym::Range& r, int64_t& divisor) {
    if (in_.at_integer()) r.lo = in_.integer();
    in_.expect("..");
    if (in_.at_integer()) r.hi = in_.integer();
    if (in_.take_word("step")) divisor = in_.integer();
  }

  Index index() {
    return in_.index(c_, [&](std::string_view n) {
      const auto it = vars_.find(std::string(n));
      return it == vars_.end() ? Index() : it->second.var;
    });
  }

  std::vector<Index> indices() {
    std::vector<Index> is;
    in_.expect("[");
    if (in_.take("]")) return is;
    do is.push_back(index());
    while (in_.take(","));
    in_.expect("]");
    return is;
  }

  void parameters(std::vector<Buffer>& out) {
    in_.expect("(");
    if (in_.take(")")) return;
    do out.push_back(checked([&] { return declaration(); }));
    while (in_.take(","));
    in_.expect(")");
  }

  Buffer declaration() {
    const std::string name = in_.name("a buffer");
    in_.expect(":");
    Scope scope = Scope::global;
    for (size_t i = 1; i < std::size(syntax::kScopes); ++i)
      if (in_.take_word(syntax::kScopes[i])) scope = static_cast<Scope>(i);
    const DType t = dtype(in_.word("an element type"));
    std::vector<Index> shape = indices();
    Layout l;
    if (in_.take_word("layout")) l = layout(shape);
    Buffer b = make_buffer(name, t, std::move(shape), scope, std::move(l));
    // The same declaration again (two versions of a piece of code) is the same buffer.
    if (const auto it = buffers_.find(name); it != buffers_.end() && same(it->second, b)) return it->second;
    return buffers_[name] = b;
  }

  static bool same(const Buffer& a, const Buffer& b) {
    return a->dtype == b->dtype && a->scope == b->scope && a->shape == b->shape && a->layout.is_row_major() &&
           b->layout.is_row_major();
  }

  Layout layout(const std::vector<Index>& shape) {
    Layout l;
    const auto outer = vars_;
    in_.expect("(");
    do {
      sym::Range r{0, sym::Range::kMax};
      const size_t d = l.args.size();
      if (d < shape.size() && shape[d].is_const()) r.hi = std::max<int64_t>(shape[d].value() - 1, 0);
      const std::string name = in_.name("a placeholder");
      l.args.push_back(c_.var(name, r));
      vars_[name] = {l.args.back(), {}};
    } while (in_.take(","));
    in_.expect(")");
    in_.expect("->");
    in_.expect("(");
    do l.map.push_back(index());
    while (in_.take(","));
    in_.expect(")");
    in_.expect("in");
    l.extents = indices();
    if (in_.take_word("threads")) l.thread_dims = static_cast<int>(in_.integer());
    vars_ = outer;
    return l;
  }

  Buffer buffer(const std::string& name) {
    const auto it = buffers_.find(name);
    if (it == buffers_.end()) in_.fail("unknown buffer '" + name + "'");
    return it->second;
  }

  DType dtype(const std::string& name) {
    const auto t = parse_dtype(name);
    if (!t || *t >= DType::string) in_.fail("'" + name + "' is no element type");
    return *t;
  }

  // --- statements ---

  // Up to and with the closing brace.
  Stmt statements() {
    if (++depth_ > kMaxDepth) in_.fail("nested too deeply");
    std::vector<Stmt> all;
    while (!in_.take("}")) {
      if (in_.peek() == '%') define_shared();
      else all.push_back(checked([&] { return statement(); }));
    }
    --depth_;
    return seq(std::move(all));
  }
  Stmt braced() {
    in_.expect("{");
    return statements();
  }

  void define_shared() {
    const std::string n = in_.shared_name();
    in_.expect("=");
    // Numbers start again at 1 with every statement.
    if (n == "%1") shared_.clear();
    shared_[n] = expression(0);
  }

  Stmt statement() {
    if (in_.take_word("for")) return loop_statement();
    if (in_.take_word("block")) return block_statement();
    if (in_.take_word("let")) return let_statement();
    if (in_.take_word("if")) return branch_statement();
    if (in_.take_word("alloc")) {
      const Buffer b = declaration();
      return alloc(b, braced());
    }
    if (in_.take_word("check")) {
      const Index v = index();
      in_.expect("in");
      in_.expect("0..");
      const Index limit = index();
      in_.expect("site");
      return check(v, limit, static_cast<int32_t>(in_.integer()));
    }
    if (in_.take_word("tile")) return tile_statement();
    if (in_.take_word("sync")) return sync_statement();
    const Buffer b = buffer(in_.name("a statement"));
    std::vector<Index> is = indices();
    in_.expect("=");
    Expr v = expression(0);
    const Index guard = in_.take_word_here("if") ? index() : Index();
    return store(b, std::move(is), std::move(v), guard);
  }

  Stmt loop_statement() {
    const std::string name = in_.name("a loop variable");
    in_.expect("in");
    in_.expect("0..");
    const Index extent = index();
    const Index v = bind(name, extent);
    LoopKind kind = LoopKind::serial;
    for (size_t i = 1; i < std::size(syntax::kLoops); ++i)
      if (in_.take_word(syntax::kLoops[i])) kind = static_cast<LoopKind>(i);
    const int64_t grain = in_.take_word("grain") ? in_.integer() : 1;
    Stmt body = braced();
    return loop(v, extent, kind, std::move(body), grain);
  }

  Stmt block_statement() {
    std::string name = in_.name("a block");
    std::vector<Iter> iters;
    in_.expect("(");
    bool reduce = false;
    while (!in_.take(")")) {
      if (in_.take(";")) {
        reduce = in_.take_word("reduce");
        if (!reduce) in_.expect("spatial");
      } else if (!iters.empty()) {
        in_.expect(",");
      }
      iters.push_back(iterator(reduce));
    }
    const Index predicate = in_.take_word("where") ? index() : Index();
    in_.expect("{");
    Stmt init = in_.take_word("init") ? braced() : nullptr;
    const Stmt b = block(std::move(name), std::move(iters), statements(), std::move(init));
    if (!predicate) return b;
    Ref<StmtNode> n(new StmtNode(*b));
    n->predicate = predicate;
    return Stmt(n.get());
  }

  Iter iterator(bool reduce) {
    Iter i;
    const std::string name = in_.name("an iterator");
    in_.expect(":");
    i.extent = index();
    i.reduce = reduce;
    if (in_.take("=")) i.binding = index();
    i.var = bind(name, i.extent);
    return i;
  }

  Stmt let_statement() {
    const std::string name = in_.name("a variable");
    sym::Range r;
    int64_t divisor = 1;
    if (in_.take(":")) range(r, divisor);
    in_.expect("=");
    Expr v = expression(0);
    const Index var = new_variable(name, r, divisor);
    vars_[name] = {var, {}};
    return let(var, std::move(v), braced());
  }

  Stmt branch_statement() {
    Expr condition;
    if (in_.take("value(")) {
      condition = expression(0);
      in_.expect(")");
    } else {
      condition = from_index(DType::b1, index());
    }
    Stmt then = braced();
    Stmt otherwise = in_.take_word("else") ? braced() : nullptr;
    return branch(std::move(condition), std::move(then), std::move(otherwise));
  }

  template <size_t N>
  size_t one_of(const std::string_view (&words)[N], const char* what) {
    const std::string w = in_.word(what);
    for (size_t i = 0; i < N; ++i)
      if (words[i] == w) return i;
    in_.fail("'" + w + "' is not " + what);
  }

  Stmt tile_statement() {
    const auto op = static_cast<TileOp>(one_of(syntax::kTiles, "a tile operation"));
    std::vector<Region> regions;
    do {
      Region r{buffer(in_.name("a buffer")), {}, {}};
      in_.expect("[");
      if (!in_.take("]")) {
        do {
          r.offset.push_back(index());
          in_.expect(":");
          r.extent.push_back(index());
        } while (in_.take(","));
        in_.expect("]");
      }
      regions.push_back(std::move(r));
    } while (in_.take(","));
    const Index guard = in_.take_word_here("if") ? index() : Index();
    const int64_t token = in_.take_word("token") ? in_.integer() : -1;
    const int64_t group = in_.take_word("count") ? in_.integer() : 0;
    const Stmt t = tile(op, std::move(regions), static_cast<int32_t>(token), group);
    if (!guard) return t;
    if (op != TileOp::copy) in_.fail("only a copy takes a guard");
    Ref<StmtNode> n(new StmtNode(*t));
    n->guard = guard;
    return Stmt(n.get());
  }

  Stmt sync_statement() {
    const auto kind = static_cast<SyncKind>(one_of(syntax::kSyncs, "a kind of sync"));
    const int64_t token = in_.take_word("token") ? in_.integer() : -1;
    return sync(kind, static_cast<int32_t>(token), in_.take_word("count") ? in_.integer() : 0);
  }

  // --- expressions ---

  Expr expression(int level) {
    if (++depth_ > kMaxDepth) in_.fail("nested too deeply");
    Expr a = primary();
    for (;;) {
      const syntax::Infix* o = in_.take_infix(level);
      if (!o) break;
      a = checked([&] { return make(o->op, {a, expression(o->level + 1)}); });
    }
    --depth_;
    return a;
  }

  // Constructors refuse wrong types as a broken invariant; in text they are the author's error.
  template <class F>
  auto checked(F f) -> decltype(f()) {
    try {
      return f();
    } catch (const InternalError& e) {
      const std::string_view what = e.what();
      const size_t at = what.rfind(": ");
      in_.fail(std::string(at == std::string_view::npos ? what : what.substr(at + 2)));
    }
  }

  Expr primary() {
    if (in_.at_number()) return number();
    if (in_.peek() == '%') {
      const std::string n = in_.shared_name();
      if (!shared_.count(n)) in_.fail("unknown value " + n);
      return shared_[n];
    }
    if (in_.take("(")) {
      Expr e = expression(0);
      if (in_.take_word("if")) e = guarded(e);
      in_.expect(")");
      return e;
    }
    const std::string w = in_.name("an expression");
    if (w == "true" || w == "false") return constant_bits(DType::b1, w == "true");
    if (w == "nan" || w == "inf") return number_of(w);
    if (in_.peek() == '[') {
      const Buffer b = buffer(w);
      return load(b, indices());
    }
    if (w == "index" || w == "bitcast" || w == "bits") return typed(w);
    return call(w);
  }

  Expr guarded(const Expr& e) {
    if (e->op != Op::load || e->guard) in_.fail("only a load takes a guard");
    const Index guard = index();
    in_.expect("else");
    Expr other = expression(0);
    return checked([&] { return load_guarded(e->buffer, e->indices, guard, other); });
  }

  Expr typed(const std::string& what) {
    in_.expect("<");
    const DType t = dtype(in_.word("an element type"));
    in_.expect(">");
    in_.expect("(");
    Expr e;
    if (what == "index") {
      e = from_index(t, index());
    } else if (what == "bits") {
      e = constant_bits(t, in_.hexadecimal());
    } else {
      Expr a = expression(0);
      e = checked([&] { return bitcast(a, t); });
    }
    in_.expect(")");
    return e;
  }

  Expr call(const std::string& w) {
    std::vector<Expr> args;
    in_.expect("(");
    if (!in_.take(")")) {
      do args.push_back(expression(0));
      while (in_.take(","));
      in_.expect(")");
    }
    if (const auto t = parse_dtype(w); t && args.size() == 1) return checked([&] { return cast(args[0], *t); });
    const auto op = syntax::function_named(w);
    if (!op) in_.fail("no operation '" + w + "'");
    if (arity(*op) != static_cast<int>(args.size())) in_.fail(w + " takes " + std::to_string(arity(*op)) + " operands");
    return checked([&] { return make(*op, args); });
  }

  Expr number() { return number_of(in_.number()); }

  Expr number_of(const std::string& digits) {
    const DType t = in_.take(":") ? dtype(in_.word("an element type")) : DType::f32;
    const char *first = digits.data(), *last = first + digits.size();
    if (t == DType::f64 || (is_float(t) && t != DType::f32)) return constant(t, read<double>(first, last));
    if (t == DType::f32) return constant(t, read<float>(first, last));
    if (is_signed(t)) return constant_bits(t, static_cast<uint64_t>(read<int64_t>(first, last)));
    return constant_bits(t, read<uint64_t>(first, last));
  }

  template <class T>
  T read(const char* first, const char* last) {
    T v{};
    const auto r = std::from_chars(first, last, v);
    if (r.ec != std::errc() || r.ptr != last) in_.fail("'" + std::string(first, last) + "' is not such a number");
    return v;
  }

  sym::Context& c_;
  Lexer in_;
  std::map<std::string, Variable> vars_;
  std::map<std::string, int64_t> seen_;
  std::map<std::string, Buffer> buffers_;
  std::map<std::string, Expr> shared_;
  int depth_ = 0;
};

}  // namespace

Function parse(sym::Context& c, std::string_view text) { return Parser(c, text).function(); }

}  // namespace tripod::loop
