// Reads the words of the text form: positions, names, numbers, strings, expressions, types.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace tripod::graph {

class Reader {
 public:
  Reader(Module& m, std::string_view text) : module_(m), text_(text) {}

  // Throws CompileError that names line and column (of `at`, by default of the next word).
  [[noreturn]] void fail(std::string message) const { fail_at(at_, std::move(message)); }
  [[noreturn]] void fail_at(size_t at, std::string message) const;

  size_t position() const;  // of the next word
  void go_to(size_t position) { at_ = position; }
  bool at_end() const { return position() == text_.size(); }
  char next_char() const { return at_ < text_.size() ? text_[at_] : '\0'; }  // right here, blanks included
  char take_char() { return text_[at_++]; }
  bool peek(std::string_view token) const;
  bool take(std::string_view token);         // punctuation
  void expect(std::string_view token);
  bool take_word(std::string_view word);     // a whole identifier
  std::string_view word();                   // [A-Za-z_][A-Za-z0-9_]*
  std::string name(char sigil);              // %x, %'odd name'
  std::string string();
  int64_t integer();
  double number();
  uint64_t element_bits(DType t);            // an element of a constant
  Expr expr();
  bool boolean();
  DType dtype();
  Type type();
  // The comment at the end of this line, if it has the form of origins; else nothing is taken.
  std::vector<Site> origins();

  // f() for each element of `[a, b, ...]`.
  template <class F>
  void list(std::string_view open, std::string_view close, F&& f) {
    expect(open);
    if (take(close)) return;
    do f();
    while (take(","));
    expect(close);
  }
  template <class T, class F>
  std::vector<T> values(F&& f) {
    std::vector<T> v;
    list("[", "]", [&] { v.push_back(static_cast<T>(f())); });
    return v;
  }

  // `1 <= N <= 64 by 8`: makes the symbol.
  Expr declare_symbol();
  std::string symbol_name();                 // N, `odd name`

 private:
  void space() { at_ = position(); }
  std::string_view number_word();

  Module& module_;
  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;  // of the type being read
  std::unordered_map<std::string, Expr> symbols_;
};

}  // namespace tripod::graph
