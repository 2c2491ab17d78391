// The importer on any bytes: diagnostics or a module that the verifier accepts and that prints; nothing else.
#include "fuzz.h"
#include "onnx/import.h"

using namespace tripod;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Diagnostics diagnostics;
  const auto result = importer::import_bytes({reinterpret_cast<const std::byte*>(data), size}, "", {}, diagnostics);
  (void)diagnostics.text("fuzz.onnx");
  if (!result.module) return 0;
  const auto problems = graph::verify(*result.module);
  fuzz::check(problems.empty(), problems.empty() ? "" : problems[0]);
  (void)graph::text(*result.module);
  return 0;
}
