// The parser of loop IR on any text: an error with a line, or a function that the verifier judges and whose text is
// exact.
#include "fuzz.h"
#include "loop/ir.h"

using namespace tripod;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sym::Context c;
  loop::Function f;
  try {
    f = loop::parse(c, {reinterpret_cast<const char*>(data), size});
  } catch (const CompileError&) {
    return 0;
  }
  if (!loop::verify(f).empty()) return 0;
  const std::string once = loop::text(f);
  sym::Context d;
  fuzz::check(loop::text(loop::parse(d, once)) == once, once);
  return 0;
}
