// The parser of graphs on any text: an error with a line, or a module that the verifier judges and whose text is exact.
#include "fuzz.h"
#include "graph/graph.h"

using namespace tripod;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::unique_ptr<graph::Module> m;
  try {
    m = graph::parse({reinterpret_cast<const char*>(data), size});
  } catch (const CompileError&) {
    return 0;
  }
  if (!graph::verify(*m).empty()) return 0;
  const std::string once = graph::text(*m);
  fuzz::check(graph::text(*graph::parse(once)) == once, once);
  return 0;
}
