// Traces as text, and their replay.
//
//   trace 1
//   i_o i_i = split(i; 16)
//   relu_rf = rfactor(sum, k_i)
//   compute_at(pad, i_o)
//
// A line is a step: results, primitive, handles, and after a semicolon attributes. Words with other characters than
// those of names stand in double quotes.
#include <algorithm>
#include <cctype>
#include <unordered_map>

#include "loop/schedule_state.h"

namespace tripod::loop {
namespace {

bool plain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-' || c == '*' || c == '+';
}

std::string word(const std::string& w) {
  if (!w.empty() && std::all_of(w.begin(), w.end(), plain)) return w;
  std::string out = "\"";
  for (char c : w) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') out += "\\n";
    else out += c;
  }
  return out + "\"";
}

std::string list(const std::vector<std::string>& ws, const char* between) {
  std::string out;
  for (size_t i = 0; i < ws.size(); ++i) out += (i > 0 ? between : "") + word(ws[i]);
  return out;
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Trace run() {
    Trace t;
    if (take_word() != "trace") fail("a trace starts with 'trace 1'");
    if (take_word() != "1") fail("this version of traces is not known");
    for (skip_lines(); at_ < text_.size(); skip_lines()) t.steps.push_back(step());
    return t;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    const std::string_view before = text_.substr(0, at_);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    throw CompileError(Site{-1, "", "trace"}, "line " + std::to_string(line) + ": " + why);
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\r') ++at_;
  }
  void skip_lines() {
    for (skip_blanks(); peek() == '\n' || peek() == '#'; skip_blanks())
      if (peek() == '#') at_ = std::min(text_.find('\n', at_), text_.size());
      else ++at_;
  }
  bool take(char c) {
    skip_blanks();
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void need(char c) {
    if (!take(c)) fail(std::string("expected '") + c + "'");
  }

  std::string take_word() {
    skip_blanks();
    std::string w;
    if (peek() != '"') {
      while (plain(peek())) w += text_[at_++];
      if (w.empty()) fail("expected a name");
      return w;
    }
    for (++at_; peek() != '"'; ++at_) {
      if (at_ >= text_.size() || peek() == '\n') fail("a quote is not closed");
      if (peek() != '\\') w += peek();
      else if (++at_, peek() == 'n') w += '\n';
      else w += peek();
    }
    ++at_;
    return w;
  }

  void words(std::vector<std::string>& out) {
    do out.push_back(take_word());
    while (take(','));
  }

  TraceStep step() {
    TraceStep s;
    std::vector<std::string> first{take_word()};
    for (skip_blanks(); plain(peek()) || peek() == '"'; skip_blanks()) first.push_back(take_word());
    if (take('=')) {
      s.results = std::move(first);
      first = {take_word()};
    }
    if (first.size() != 1) fail("expected '='");
    s.primitive = first[0];
    need('(');
    skip_blanks();
    if (peek() != ')' && peek() != ';') words(s.handles);
    if (take(';')) words(s.attributes);
    need(')');
    skip_blanks();
    if (at_ < text_.size() && peek() != '\n' && peek() != '#') fail("expected the end of the line");
    return s;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::string stable_text(Index e) {
  const std::string numbered = sym::text(e);
  std::string out;
  bool in_name = false;
  for (size_t i = 0; i < numbered.size(); ++i) {
    const char c = numbered[i];
    const bool letter = std::isalpha(static_cast<unsigned char>(c)) || c == '_';
    in_name = letter || (in_name && (std::isdigit(static_cast<unsigned char>(c)) || c == '.'));
    if (!in_name || c != '.') out += c;
    else while (i + 1 < numbered.size() && std::isdigit(static_cast<unsigned char>(numbered[i + 1]))) ++i;
  }
  return out;
}

std::string text(const Trace& t) {
  std::string out = "trace " + std::to_string(t.version) + "\n";
  for (const TraceStep& s : t.steps) {
    if (!s.results.empty()) out += list(s.results, " ") + " = ";
    out += s.primitive + "(" + list(s.handles, ", ");
    if (!s.attributes.empty()) out += "; " + list(s.attributes, ", ");
    out += ")\n";
  }
  return out;
}

Trace parse_trace(std::string_view text) { return Reader(text).run(); }

}  // namespace tripod::loop
