// --debug-kernels: indices into global memory are checked against the size of the buffer.
#include "backends/cuda/kernel.h"

#include "loop_testing.h"

namespace tripod::loop {
namespace {

// The CUDA C of one kernel, all of it.
std::string printed(const cuda::BoundsSite& bounds) {
  sym::Context c;
  const Function f = parsed(c, R"(
func @column[N, K](A: f32[N, K], B: f32[N]) -> (C: f32[N, K]) {
  block add(n: N, k: K) { C[n, k] = A[n, k] * B[n] }
})");
  cuda::KernelCompiler compiler(c, {}, bounds);
  compiler.add(f);
  std::string s;
  for (const std::string& symbol : compiler.symbols()) s += compiler.sources().at(symbol);
  return s;
}

TEST(CudaBounds, EveryBufferHasASite) {
  std::vector<std::string> seen;
  const std::string text = printed([&](const std::string& symbol, const std::string& buffer) {
    EXPECT_EQ(symbol.rfind("k_column", 0), 0u) << symbol;
    if (std::find(seen.begin(), seen.end(), buffer) == seen.end()) seen.push_back(buffer);
    return 40 + static_cast<int32_t>(std::find(seen.begin(), seen.end(), buffer) - seen.begin());
  });
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, (std::vector<std::string>{"A", "B", "C"}));
  for (const char* site : {"A[inside(error, 4", "B[inside(error, 4", "C[inside(error, 4"}) EXPECT_NE(text.find(site), std::string::npos) << site << "\n" << text;
  EXPECT_NE(text.find(", N)]"), std::string::npos) << text;
}

TEST(CudaBounds, NoChecksWithoutThem) { EXPECT_EQ(printed(nullptr).find("inside("), std::string::npos); }

}  // namespace
}  // namespace tripod::loop
