#include "graph/reader.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/float_bits.h"
#include "graph/attr_fields.h"
#include "graph/text_parts.h"

namespace tripod::graph {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_word_char(char c) { return is_word_start(c) || is_digit(c); }

int hex_digit(char c) {
  return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

}  // namespace

void Reader::fail_at(size_t at, std::string message) const {
  at = std::min(at, text_.size());
  const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(at), '\n');
  const size_t start = text_.substr(0, at).rfind('\n');
  const size_t column = at - (start == std::string_view::npos ? 0 : start + 1) + 1;
  throw CompileError(Site{-1, "", std::to_string(line) + ":" + std::to_string(column)}, std::move(message));
}

// Blanks and comments: from # to the end of the line, and whole lines that start with //.
size_t Reader::position() const {
  size_t at = at_;
  bool line_start = at == 0;
  for (; at < text_.size(); ++at) {
    const char c = text_[at];
    if (c == '\n') {
      line_start = true;
    } else if (c == '#' || (line_start && text_.substr(at, 2) == "//")) {
      at = std::min(text_.find('\n', at), text_.size()) - 1;
    } else if (c != ' ' && c != '\t' && c != '\r') {
      break;
    }
  }
  return at;
}

bool Reader::peek(std::string_view token) const { return text_.substr(position(), token.size()) == token; }

bool Reader::take(std::string_view token) {
  if (!peek(token)) return false;
  at_ = position() + token.size();
  return true;
}

void Reader::expect(std::string_view token) {
  if (!take(token)) fail("expected '" + std::string(token) + "'");
}

bool Reader::take_word(std::string_view wanted) {
  if (!peek(wanted)) return false;
  const size_t end = position() + wanted.size();
  if (end < text_.size() && is_word_char(text_[end])) return false;
  at_ = end;
  return true;
}

std::string_view Reader::word() {
  space();
  const size_t start = at_;
  if (at_ >= text_.size() || !is_word_start(text_[at_])) fail("expected a word");
  while (at_ < text_.size() && is_word_char(text_[at_])) ++at_;
  return text_.substr(start, at_ - start);
}

std::string Reader::name(char sigil) {
  if (!take(std::string_view(&sigil, 1))) fail(std::string("expected a name that starts with ") + sigil);
  if (at_ < text_.size() && text_[at_] == '\'') return string();
  const size_t start = at_;
  while (at_ < text_.size() && plain_name_char(text_[at_])) ++at_;
  if (at_ == start) fail(std::string("expected a name after ") + sigil);
  return std::string(text_.substr(start, at_ - start));
}

std::string Reader::string() {
  expect("'");
  std::string s;
  for (;; ++at_) {
    if (at_ >= text_.size()) fail("a string without its closing quote");
    char c = text_[at_];
    if (c == '\'') break;
    if (c == '\\') {
      c = ++at_ < text_.size() ? text_[at_] : '\0';
      if (c == 'n') {
        c = '\n';
      } else if (c == 'x') {
        const int high = at_ + 2 < text_.size() ? hex_digit(text_[at_ + 1]) : -1;
        const int low = high >= 0 ? hex_digit(text_[at_ + 2]) : -1;
        if (low < 0) fail("expected two hexadecimal digits after \\x");
        c = static_cast<char>(high * 16 + low);
        at_ += 2;
      } else if (c != '\\' && c != '\'') {
        fail("unknown escape in a string");
      }
    }
    s += c;
  }
  ++at_;
  return s;
}

// --- numbers --------------------------------------------------------------------------------------------------------

std::string_view Reader::number_word() {
  space();
  const size_t start = at_;
  if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+')) ++at_;
  while (at_ < text_.size()) {
    const char c = text_[at_], before = text_[at_ - (at_ > start)];
    const bool sign_of_exponent = (c == '-' || c == '+') && (before == 'e' || before == 'E');
    if (!is_word_char(c) && c != '.' && !sign_of_exponent) break;
    ++at_;
  }
  return text_.substr(start, at_ - start);
}

namespace {

template <class T>
bool read(std::string_view w, T& v) {
  if (w.substr(0, 1) == "+") w.remove_prefix(1);
  const auto [end, error] = std::from_chars(w.data(), w.data() + w.size(), v);
  return error == std::errc() && end == w.data() + w.size();
}

}  // namespace

int64_t Reader::integer() {
  const size_t start = position();
  int64_t v;
  if (!read(number_word(), v)) fail_at(start, "expected a 64-bit integer");
  return v;
}

double Reader::number() {
  const size_t start = position();
  double v;
  if (!read(number_word(), v)) fail_at(start, "expected a number");
  return v;
}

uint64_t Reader::element_bits(DType t) {
  const size_t start = position();
  if (take("bits:")) {
    const std::string_view w = number_word();
    uint64_t bits;
    const auto [end, error] = std::from_chars(w.data(), w.data() + w.size(), bits, 16);
    if (error != std::errc() || end != w.data() + w.size() || (info(t).bits < 64 && bits >> info(t).bits != 0))
      fail_at(start, "expected up to " + std::to_string(info(t).bits) + " bits in hexadecimal");
    return bits;
  }
  if (t == DType::b1) return boolean();
  const std::string_view w = number_word();
  if (t == DType::u64) {
    uint64_t v;
    if (!read(w, v)) fail_at(start, "expected an element of type u64");
    return v;
  }
  if (is_int(t)) {
    int64_t v;
    if (!read(w, v) || v < int_min(t) || v > int_max(t))
      fail_at(start, "expected an element of type " + std::string(tripod::name(t)));
    return static_cast<uint64_t>(v) & (info(t).bits == 64 ? ~uint64_t{0} : (uint64_t{1} << info(t).bits) - 1);
  }
  if (w == "nan") return encode_float(t, std::numeric_limits<double>::quiet_NaN());
  // Text is the shortest for a float (for f64 a double): reading it as one keeps the rounding single.
  float narrow;
  double v;
  if (t == DType::f64 ? !read(w, v) : !read(w, narrow))
    fail_at(start, "expected an element of type " + std::string(tripod::name(t)));
  return encode_float(t, t == DType::f64 ? v : double{narrow}, false);
}

bool Reader::boolean() {
  if (take_word("true")) return true;
  if (take_word("false")) return false;
  fail("expected true or false");
}

// --- symbols --------------------------------------------------------------------------------------------------------

Expr Reader::expr() {
  const size_t start = position();
  at_ = start;
  try {
    return sym::parse_prefix(module_.sym(), text_, at_, [&](std::string_view n) {
      auto it = symbols_.find(std::string(n));
      if (it == symbols_.end()) fail_at(start, "no symbol '" + std::string(n) + "' (symbols are declared by @main's where)");
      return it->second;
    });
  } catch (const std::invalid_argument& e) {
    // Its message quotes the whole text; what follows the last quote is the reason.
    const std::string_view what = e.what();
    const size_t reason = what.rfind("': ");
    fail_at(start, "not an expression: " + std::string(reason == std::string_view::npos ? what : what.substr(reason + 3)));
  } catch (const sym::Overflow& e) {
    fail_at(start, e.what());
  }
}

std::string Reader::symbol_name() {
  if (!take("`")) {
    std::string n(word());
    while (at_ < text_.size() && (is_word_char(text_[at_]) || text_[at_] == '.')) n += text_[at_++];
    return n;
  }
  std::string n;
  for (; at_ < text_.size() && text_[at_] != '`'; ++at_) {
    if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
    n += text_[at_];
  }
  expect("`");
  return n;
}

Expr Reader::declare_symbol() {
  const size_t start = position();
  sym::Range range;
  if (start < text_.size() && (is_digit(text_[start]) || text_[start] == '-')) {
    range.lo = integer();
    expect("<=");
  }
  const std::string printed = symbol_name();
  if (take("<=")) range.hi = integer();
  const int64_t divisor = take_word("by") ? integer() : 1;
  if (range.lo > range.hi || divisor < 1) fail_at(start, "the range of '" + printed + "' is empty");
  // "N.1" is the second N where there is a first; the order of names (and so of terms) then is that of the original.
  std::string base = printed;
  if (const size_t dot = printed.rfind('.'); dot != std::string::npos && dot > 0) {
    const std::string before = printed.substr(0, dot);
    int64_t k;
    if (read(std::string_view(printed).substr(dot + 1), k) && symbols_.count(before)) base = before;
  }
  const Expr v = module_.sym().var(base, range, divisor);
  if (!symbols_.emplace(printed, v).second) fail_at(start, "'" + printed + "' is declared twice");
  return v;
}

// --- types ----------------------------------------------------------------------------------------------------------

DType Reader::dtype() {
  const size_t start = position();
  const auto t = parse_dtype(word());
  if (!t) fail_at(start, "expected an element type");
  return *t;
}

Type Reader::type() {
  Type t;
  if (take_word("absent")) {
    t.kind = Type::absent;
    return t;
  }
  const bool sequence = take_word("seq");
  if (sequence || take_word("opt")) {
    t.kind = sequence ? Type::sequence : Type::optional;
    expect("<");
    constexpr int kMaxDepth = 16;  // text comes from files: nesting ends in an error, not in the stack
    if (++depth_ > kMaxDepth) fail("types are nested too deeply");
    t.element = std::make_shared<const Type>(type());
    --depth_;
    expect(">");
    return t;
  }
  t.dtype = dtype();
  t.shape = values<Expr>([&] { return expr(); });
  if (take_word("on")) {
    const size_t start = position();
    const auto* kind = std::find(std::begin(kSpaces), std::end(kSpaces), word());
    if (kind == std::end(kSpaces)) fail_at(start, "expected host, cuda or npu");
    expect(":");
    const int64_t index = integer();
    if (index < 0 || index > 255) fail_at(start, "a device index is 0 to 255");
    t.space = {static_cast<Space::Kind>(kind - kSpaces), static_cast<uint8_t>(index)};
  }
  if (take_word("order")) t.order = values<int>([&] { return integer(); });
  if (take_word("stored")) t.storage = dtype();
  if (take_word("quant")) {
    Quantisation q;
    list("{", "}", [&] {
      const size_t start = position();
      const std::string_view field = word();
      expect(":");
      if (field == "scale") q.scale = values<float>([&] { return number(); });
      else if (field == "zero_point") q.zero_point = values<int32_t>([&] { return integer(); });
      else if (field == "axis") q.axis = static_cast<int>(integer());
      else if (field == "block") q.block = static_cast<int>(integer());
      else fail_at(start, "expected scale, zero_point, axis or block");
    });
    t.quant = std::make_shared<const Quantisation>(std::move(q));
  }
  if (take_word("shard"))
    t.sharding = std::make_shared<const Sharding>(Sharding{values<std::string>([&] { return string(); })});
  return t;
}

// --- origins --------------------------------------------------------------------------------------------------------

std::vector<Site> Reader::origins() {
  std::vector<Site> sites;
  size_t at = at_;
  auto skip_blanks = [&] {
    while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\t')) ++at;
  };
  skip_blanks();
  if (at >= text_.size() || text_[at] != '#') return {};
  ++at;
  auto piece = [&] {
    skip_blanks();
    const size_t start = at;
    while (at < text_.size() && text_[at] != ' ' && text_[at] != '\n') ++at;
    return std::string(text_.substr(start, at - start));
  };
  for (;;) {
    Site s;
    const std::string index = piece();
    if (index != "-" && !read(std::string_view(index), s.index)) return {};  // just a comment
    s.op = piece();
    if (s.op == "-") s.op.clear();
    skip_blanks();
    if (at >= text_.size() || text_[at] != '\'') return {};
    at_ = at;
    s.name = string();
    at = at_;
    sites.push_back(std::move(s));
    if (at >= text_.size() || text_[at] != ',') return sites;
    ++at;
  }
}

}  // namespace tripod::graph
