// The words and numbers of the text form, with positions for errors.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "loop/ir.h"

namespace tripod::loop {

namespace syntax {
struct Infix {
  Op op;
  int level;  // binds tighter the higher it is
};
// The operation written as a function of this name.
std::optional<Op> function_named(std::string_view name);
}  // namespace syntax

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  // Throws a CompileError with line and column.
  [[noreturn]] void fail(const std::string& what) const;

  char peek();                            // the next character, 0 at the end
  bool take(std::string_view token);      // punctuation
  bool take_word(std::string_view word);  // a whole word
  bool take_word_here(std::string_view word);  // on this line: on the next one it begins a statement
  void expect(std::string_view token);    // of either kind
  void end();

  std::string word(const char* what);  // letters, digits and _
  std::string name(const char* what);  // the same with dots, or anything in backquotes
  std::string string();                // in double quotes
  std::string shared_name();           // %12
  int64_t integer();
  uint64_t hexadecimal();
  bool at_integer();
  bool at_number();
  std::string number();  // its characters
  const syntax::Infix* take_infix(int min_level);

  Index index(sym::Context& c, const std::function<Index(std::string_view)>& lookup);

 private:
  void space();

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace tripod::loop
