// Printer and parser. The syntax is C's, with floordiv(a, b), mod(a, b), min(a, b), max(a, b), select(c, a, b) and,
// read only, ceildiv(a, b). A name that is no identifier stands in backquotes.
#include <cctype>

#include "sym/impl.h"
#include "sym/syntax.h"

namespace tripod::sym {
namespace {

enum Level { kOr = 1, kAnd, kXor, kEqual, kOrder, kSum, kProduct, kUnary, kAtom };

bool name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

struct Printer {
  std::string out;

  static Level level(const Node* n) {
    switch (n->op) {
      case Op::constant: return n->value < 0 ? kSum : kAtom;
      case Op::add: return kSum;
      case Op::mul: return n->args[1]->op == Op::constant && n->args[1]->value < 0 ? kSum : kProduct;
      case Op::lt:
      case Op::le: return kOrder;
      case Op::eq:
      case Op::ne: return kEqual;
      case Op::logical_and: return kAnd;
      case Op::logical_or: return kOr;
      case Op::logical_not: return kUnary;
      case Op::bit_xor: return kXor;
      default: return kAtom;
    }
  }

  void print(const Node* n, Level needed) {
    const bool parens = level(n) < needed;
    if (parens) out += '(';
    body(n);
    if (parens) out += ')';
  }

  void infix(const Node* n, const char* op, Level left, Level right) {
    print(n->args[0], left);
    out += op;
    print(n->args[1], right);
  }

  void call(const Node* n, const char* name) {
    out += name;
    out += '(';
    for (int i = 0; i < 3 && n->args[i]; ++i) {
      if (i > 0) out += ", ";
      print(n->args[i], kOr);
    }
    out += ')';
  }

  void body(const Node* n) {
    switch (n->op) {
      case Op::constant: out += std::to_string(n->value); break;
      case Op::variable: variable(n); break;
      case Op::add:
      case Op::mul: sum(n); break;
      case Op::floordiv: call(n, "floordiv"); break;
      case Op::mod: call(n, "mod"); break;
      case Op::min: call(n, "min"); break;
      case Op::max: call(n, "max"); break;
      case Op::select: call(n, "select"); break;
      case Op::lt: infix(n, " < ", kSum, kSum); break;
      case Op::le: infix(n, " <= ", kSum, kSum); break;
      case Op::eq: infix(n, " == ", kOrder, kOrder); break;
      case Op::ne: infix(n, " != ", kOrder, kOrder); break;
      case Op::bit_xor: infix(n, " ^ ", kXor, kEqual); break;
      case Op::logical_and: infix(n, " && ", kAnd, kXor); break;
      case Op::logical_or: infix(n, " || ", kOr, kAnd); break;
      case Op::logical_not:
        out += '!';
        print(n->args[0], kUnary);
        break;
    }
  }

  void variable(const Node* n) {
    const std::string name = display_name(n);
    bool plain = !name.empty() && name_start(name[0]);
    for (char c : name) plain = plain && name_char(c);
    if (plain) {
      out += name;
      return;
    }
    out += '`';
    for (char c : name) {
      if (c == '`' || c == '\\') out += '\\';
      out += c;
    }
    out += '`';
  }

  // A positive term first where there is one: N - i*32 rather than -i*32 + N.
  void sum(const Node* n) {
    const Poly p = to_poly(n);
    size_t first = 0;
    while (first < p.terms.size() && p.terms[first].c < 0) ++first;
    bool constant_first = first == p.terms.size() && p.constant > 0;
    if (constant_first) out += std::to_string(p.constant);
    if (first < p.terms.size()) term(p.terms[first], true);
    for (size_t i = 0; i < p.terms.size(); ++i)
      if (i != first) term(p.terms[i], first == p.terms.size() && i == 0 && !constant_first);
    if (p.constant != 0 && !constant_first) {
      out += p.constant < 0 ? " - " : " + ";
      out += magnitude(p.constant);
    }
  }

  static std::string magnitude(int64_t v) {
    return std::to_string(v < 0 ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v));
  }

  void term(const Poly::T& t, bool leading) {
    out += leading ? (t.c < 0 ? "-" : "") : (t.c < 0 ? " - " : " + ");
    bool later = false;
    for (const Node* a : atoms(t.m)) {
      if (later) out += '*';
      later = true;
      print(a, kUnary);
    }
    if (t.c != 1 && t.c != -1) out += '*' + magnitude(t.c);
  }
};

class Parser {
 public:
  Parser(std::string_view text, size_t position) : text_(text), at_(position) {}
  size_t position() const { return at_; }

  Syntax expression() { return binary(kOr); }

  [[noreturn]] void fail(const std::string& what) const {
    throw std::invalid_argument("at " + std::to_string(at_) + " in '" + std::string(text_) + "': " + what);
  }

 private:
  void space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }

  bool take(std::string_view token) {
    size_t start = at_;
    space();
    const std::string_view rest = text_.substr(at_);
    const bool arrow = token == "-" && rest.substr(0, 2) == "->";  // of the text around the expression
    if (rest.substr(0, token.size()) == token && !arrow) {
      at_ += token.size();
      return true;
    }
    at_ = start;  // what follows the expression keeps its spaces
    return false;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail("expected '" + std::string(token) + "'");
  }

  static Syntax node(Op op, Syntax a, Syntax b) {
    Syntax s{.op = op, .value = 0, .name = {}, .args = {}};
    s.args.push_back(std::move(a));
    s.args.push_back(std::move(b));
    return s;
  }
  static Syntax constant(int64_t v) { return Syntax{.op = Op::constant, .value = v, .name = {}, .args = {}}; }
  static Syntax negated(Syntax a) { return node(Op::mul, std::move(a), constant(-1)); }

  // Precedence climbing: operators of at least this level, left to right.
  Syntax binary(int level) {
    struct Operator {
      std::string_view token;
      Level level;
      Op op;
      bool swap, negate;
    };
    static constexpr Operator kOperators[] = {
        {"||", kOr, Op::logical_or, false, false}, {"&&", kAnd, Op::logical_and, false, false},
        {"^", kXor, Op::bit_xor, false, false},    {"==", kEqual, Op::eq, false, false},
        {"!=", kEqual, Op::ne, false, false},      {"<=", kOrder, Op::le, false, false},
        {">=", kOrder, Op::le, true, false},       {"<", kOrder, Op::lt, false, false},
        {">", kOrder, Op::lt, true, false},        {"+", kSum, Op::add, false, false},
        {"-", kSum, Op::add, false, true},         {"*", kProduct, Op::mul, false, false},
    };
    Syntax a = unary();
    for (;;) {
      const Operator* found = nullptr;
      for (const Operator& o : kOperators)
        if (o.level >= level && take(o.token)) {
          found = &o;
          break;
        }
      if (!found) return a;
      Syntax b = binary(found->level + 1);
      if (found->negate) b = negated(std::move(b));
      a = found->swap ? node(found->op, std::move(b), std::move(a)) : node(found->op, std::move(a), std::move(b));
    }
  }

  Syntax unary() {
    // Text comes from files: nesting has a limit so that it ends in an error and not in the stack.
    constexpr int kMaxDepth = 500;
    if (++depth_ > kMaxDepth) fail("nested too deeply");
    Syntax r = unary_at_depth();
    --depth_;
    return r;
  }

  Syntax unary_at_depth() {
    if (take("!")) {
      Syntax s{.op = Op::logical_not, .value = 0, .name = {}, .args = {}};
      s.args.push_back(unary());
      return s;
    }
    if (take("-")) {
      space();
      if (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) return number(true);
      return negated(unary());
    }
    if (take("(")) {
      Syntax s = expression();
      expect(")");
      return s;
    }
    space();
    if (at_ >= text_.size()) fail("expected an expression");
    if (std::isdigit(static_cast<unsigned char>(text_[at_]))) return number(false);
    if (text_[at_] == '`') return Syntax{.op = Op::variable, .value = 0, .name = quoted(), .args = {}};
    if (!name_start(text_[at_])) fail("expected an expression");
    size_t start = at_;
    while (at_ < text_.size() && name_char(text_[at_])) ++at_;
    std::string name(text_.substr(start, at_ - start));
    if (at_ < text_.size() && text_[at_] == '(') return call(name, start);
    return Syntax{.op = Op::variable, .value = 0, .name = std::move(name), .args = {}};
  }

  Syntax number(bool negative) {
    const uint64_t limit = static_cast<uint64_t>(Range::kMax) + negative;
    uint64_t v = 0;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])); ++at_) {
      const uint64_t digit = static_cast<uint64_t>(text_[at_] - '0');
      if (v > (limit - digit) / 10) fail("the number does not fit 64 bits");
      v = v * 10 + digit;
    }
    return constant(static_cast<int64_t>(negative ? 0 - v : v));
  }

  std::string quoted() {
    std::string name;
    for (++at_;; ++at_) {
      if (at_ < text_.size() && text_[at_] == '\\') ++at_;
      else if (at_ < text_.size() && text_[at_] == '`') break;
      if (at_ >= text_.size()) fail("a name without its closing backquote");
      name += text_[at_];
    }
    ++at_;
    return name;
  }

  Syntax call(const std::string& name, size_t start) {
    Syntax s;
    expect("(");
    do s.args.push_back(expression());
    while (take(","));
    expect(")");
    struct Function {
      std::string_view name;
      Op op;
      size_t arity;
    };
    static constexpr Function kFunctions[] = {
        {"floordiv", Op::floordiv, 2}, {"mod", Op::mod, 2},     {"min", Op::min, 2},          {"max", Op::max, 2},
        {"select", Op::select, 3},     {"gcd", Op::variable, 2}, {"at_most", Op::variable, 2}, {"ceildiv", Op::variable, 2},
    };
    for (const Function& f : kFunctions) {
      if (f.name != name) continue;
      if (s.args.size() != f.arity) fail(name + " takes " + std::to_string(f.arity) + " arguments");
      s.op = f.op;
      if (f.op == Op::variable) s.name = name;
      return s;
    }
    at_ = start;
    fail("no function '" + name + "'");
  }

  std::string_view text_;
  size_t at_;
  int depth_ = 0;
};

Expr build(Context& ctx, const Syntax& s, const std::function<Expr(std::string_view)>& lookup) {
  if (s.op == Op::constant) return ctx.constant(s.value);
  if (s.op == Op::variable && s.args.empty()) {
    Expr e = lookup(s.name);
    if (!e) throw std::invalid_argument("unknown name '" + s.name + "'");
    return e;
  }
  Expr args[3];
  for (size_t i = 0; i < s.args.size(); ++i) args[i] = build(ctx, s.args[i], lookup);
  if (s.op == Op::variable) {
    if (s.name != "ceildiv") throw std::invalid_argument("no function '" + s.name + "'");
    return ceildiv(args[0], args[1]);
  }
  return ctx.make(s.op, args[0], args[1], args[2]);
}

}  // namespace

Syntax parse_syntax(std::string_view text, size_t& position) {
  Parser parser(text, position);
  Syntax s = parser.expression();
  position = parser.position();
  return s;
}

std::string text(Expr e) {
  Printer p;
  p.print(e.node(), kOr);
  return std::move(p.out);
}

Expr parse_prefix(Context& context, std::string_view text, size_t& position,
                  const std::function<Expr(std::string_view)>& lookup) {
  const size_t start = position;
  Syntax s = parse_syntax(text, position);
  try {
    return build(context, s, lookup);
  } catch (const std::invalid_argument& e) {
    throw std::invalid_argument("at " + std::to_string(start) + " in '" + std::string(text) + "': " + e.what());
  }
}

Expr parse(Context& context, std::string_view text, const std::function<Expr(std::string_view)>& lookup) {
  size_t position = 0;
  Expr e = parse_prefix(context, text, position, lookup);
  while (position < text.size() && std::isspace(static_cast<unsigned char>(text[position]))) ++position;
  if (position != text.size()) Parser(text, position).fail("unexpected text after the expression");
  return e;
}

std::string name(Expr var) { return display_name(var.node()); }

}  // namespace tripod::sym
