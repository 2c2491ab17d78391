#include "loop/parse_lexer.h"

#include <cctype>
#include <charconv>
#include <stdexcept>

namespace tripod::loop {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)); }
bool is_word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

struct Token {
  std::string_view text;
  syntax::Infix infix;
};
constexpr Token kInfix[] = {
    {"*", {Op::mul, 6}}, {"/", {Op::div, 6}},     {"+", {Op::add, 5}},    {"-", {Op::sub, 5}},    {"<<", {Op::shl, 4}},
    {">>", {Op::shr, 4}}, {"<=", {Op::le, 3}},    {"<", {Op::lt, 3}},     {"==", {Op::eq, 3}},    {"!=", {Op::ne, 3}},
    {"&", {Op::bit_and, 2}}, {"^", {Op::bit_xor, 1}}, {"|", {Op::bit_or, 1}},
};

}  // namespace

std::optional<Op> syntax::function_named(std::string_view n) {
  if (n == "not") return Op::bit_not;
  static constexpr Op kAll[] = {
#define OP(kind, ...) Op::kind,
      TRIPOD_LOOP_OPS(OP)
#undef OP
  };
  for (const Op op : kAll) {
    if (op < Op::add) continue;  // they have a syntax of their own
    if (op != Op::cast && op != Op::bitcast && name(op) == n) return op;
  }
  return std::nullopt;
}

void Lexer::fail(const std::string& what) const {
  size_t line = 1, start = 0;
  for (size_t i = 0; i < at_ && i < text_.size(); ++i)
    if (text_[i] == '\n') ++line, start = i + 1;
  throw CompileError(Site{},
                     "line " + std::to_string(line) + ", column " + std::to_string(at_ - start + 1) + ": " + what);
}

void Lexer::space() {
  for (; at_ < text_.size(); ++at_) {
    if (text_[at_] == '#' || text_.substr(at_, 2) == "//") at_ = std::min(text_.find('\n', at_), text_.size() - 1);
    else if (!std::isspace(static_cast<unsigned char>(text_[at_]))) return;
  }
}

char Lexer::peek() {
  space();
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool Lexer::take(std::string_view token) {
  space();
  if (text_.substr(at_, token.size()) != token) return false;
  at_ += token.size();
  return true;
}

bool Lexer::take_word_here(std::string_view word) {
  space();
  for (size_t i = at_; i > 0 && (text_[i - 1] == ' ' || text_[i - 1] == '\n'); --i)
    if (text_[i - 1] == '\n') return false;
  return take_word(word);
}

bool Lexer::take_word(std::string_view word) {
  space();
  if (text_.substr(at_, word.size()) != word) return false;
  const size_t end = at_ + word.size();
  if (end < text_.size() && (is_word_char(text_[end]) || text_[end] == '.')) return false;
  // A buffer may have the name of a keyword: then an index follows.
  if (end < text_.size() && text_[end] == '[') return false;
  at_ = end;
  return true;
}

void Lexer::expect(std::string_view token) {
  if (!take(token)) fail("expected '" + std::string(token) + "'");
}

void Lexer::end() {
  if (peek() != '\0') fail("expected the end");
}

std::string Lexer::word(const char* what) {
  space();
  const size_t start = at_;
  while (at_ < text_.size() && is_word_char(text_[at_])) ++at_;
  if (at_ == start) fail("expected " + std::string(what));
  return std::string(text_.substr(start, at_ - start));
}

std::string Lexer::name(const char* what) {
  if (peek() == '`') {
    std::string n;
    for (++at_; at_ < text_.size() && text_[at_] != '`'; ++at_) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
      n += text_[at_];
    }
    expect("`");
    return n;
  }
  if (is_digit(peek())) fail("expected " + std::string(what));
  const size_t start = at_;
  while (at_ < text_.size() && (is_word_char(text_[at_]) || text_[at_] == '.')) ++at_;
  if (at_ == start) fail("expected " + std::string(what));
  return std::string(text_.substr(start, at_ - start));
}

std::string Lexer::string() {
  expect("\"");
  std::string s;
  for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
    const bool escape = text_[at_] == '\\' && at_ + 1 < text_.size();
    if (escape) ++at_;
    s += escape && text_[at_] == 'n' ? '\n' : text_[at_];
  }
  expect("\"");
  return s;
}

std::string Lexer::shared_name() {
  expect("%");
  return "%" + word("a number");
}

bool Lexer::at_integer() {
  const char c = peek();
  return is_digit(c) || (c == '-' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]));
}

bool Lexer::at_number() { return at_integer() || (peek() == '-' && text_.substr(at_, 4) == "-inf"); }

int64_t Lexer::integer() {
  space();
  int64_t v = 0;
  const auto r = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
  if (r.ec != std::errc()) fail("expected an integer of 64 bits");
  at_ = static_cast<size_t>(r.ptr - text_.data());
  return v;
}

uint64_t Lexer::hexadecimal() {
  expect("0x");
  uint64_t v = 0;
  const auto r = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v, 16);
  if (r.ec != std::errc()) fail("expected a hexadecimal number");
  at_ = static_cast<size_t>(r.ptr - text_.data());
  return v;
}

std::string Lexer::number() {
  space();
  const size_t start = at_;
  if (text_[at_] == '-') ++at_;
  while (at_ < text_.size()) {
    const char c = text_[at_];
    const bool sign = (c == '-' || c == '+') && text_[at_ - 1] == 'e';
    if (!is_word_char(c) && c != '.' && !sign) break;
    ++at_;
  }
  return std::string(text_.substr(start, at_ - start));
}

const syntax::Infix* Lexer::take_infix(int min_level) {
  space();
  for (const Token& t : kInfix) {
    if (text_.substr(at_, t.text.size()) != t.text) continue;
    if (t.infix.level < min_level) return nullptr;
    at_ += t.text.size();
    return &t.infix;
  }
  return nullptr;
}

Index Lexer::index(sym::Context& c, const std::function<Index(std::string_view)>& lookup) {
  space();
  // Up to the end of the line: what a message quotes.
  const std::string_view rest = text_.substr(at_, text_.find('\n', at_) - at_);
  size_t used = 0;
  try {
    const Index i = sym::parse_prefix(c, rest, used, lookup);
    at_ += used;
    return i;
  } catch (const std::invalid_argument& e) {
    fail(e.what());
  } catch (const sym::Overflow& e) {
    fail(std::string("an index overflows: ") + e.what());
  }
}

}  // namespace tripod::loop
