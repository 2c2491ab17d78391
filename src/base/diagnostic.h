// What the compiler says when something is wrong.
//
// A user's error (bad or unsupported model, bad arguments, bad IR text) is collected in `Diagnostics`, all of
// them before the compile stops, each naming the ONNX node. `CompileError` carries them to the driver, which
// prints them and exits with code 2. A broken invariant of our own is an `InternalError` (exit code 1).
// "Not applicable" (a rule that does not fit, a primitive that is not legal) is a value, never an exception.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tripod {

// Where in the user's model: an ONNX node (index in its graph, op type, name), or only a text for the rest.
struct Site {
  int32_t index = -1;  // -1: not a node
  std::string op;      // "Conv", "my.domain::Foo"
  std::string name;    // the node's name, may be empty
  std::string text() const;  // node 41 Resize 'up3/resize'
};

struct Diagnostic {
  Site site;
  std::string message;
  std::vector<std::string> notes;
  std::string hint;
};

class Diagnostics {
 public:
  // Adds an error; the returned reference takes notes and a hint.
  Diagnostic& error(const Site& site, std::string message, std::string hint = "");
  bool ok() const { return errors_.empty(); }
  const std::vector<Diagnostic>& errors() const { return errors_; }
  // `file: error: node 41 Resize 'x': …`, notes, hints, and a closing "N errors".
  std::string text(std::string_view file) const;
  // Throws CompileError when there is any error.
  void stop_if_errors() const;

 private:
  std::vector<Diagnostic> errors_;
};

struct CompileError : std::runtime_error {
  explicit CompileError(Diagnostics d);
  CompileError(const Site& site, std::string message, std::string hint = "");
  Diagnostics diagnostics;
};

struct InternalError : std::logic_error {
  using std::logic_error::logic_error;
};

[[noreturn]] void internal_error(std::string_view file, int line, std::string message);

}  // namespace tripod

// An invariant of the compiler itself; stays on in release builds (the compiler is not the hot path).
#define TRIPOD_CHECK(condition, message)                                             \
  do {                                                                               \
    if (!(condition)) ::tripod::internal_error(__FILE__, __LINE__, std::string(#condition ": ") + (message)); \
  } while (false)
