// Instruction sets: what --cpu names, the code of a variant, and kernels that are shared.
#include <gtest/gtest.h>

#include "backends/cpu/kernel.h"
#include "base/diagnostic.h"
#include "runtime/abi.h"

namespace tripod::cpu {
namespace {

std::vector<std::string> names(const std::string& option) {
  std::vector<std::string> r;
  for (const CpuTarget& t : parse_targets(option)) r.push_back(t.name);
  return r;
}

std::string error_of(const std::string& option) {
  try {
    parse_targets(option);
  } catch (const CompileError& e) {
    return e.what();
  }
  return "";
}

TEST(CpuTargets, Names) {
  using List = std::vector<std::string>;
  EXPECT_EQ(names("v3"), List({"v3"}));
  EXPECT_EQ(names("v4"), List({"v4"}));
  EXPECT_EQ(names("v3,v4"), List({"v3", "v4"}));
  EXPECT_EQ(names("v4,v3,v4"), List({"v3", "v4"})) << "the lowest is the floor, whatever the order";
  EXPECT_EQ(names("native").size(), 1u);
  EXPECT_NE(error_of("amx").find("not built yet"), std::string::npos);
  EXPECT_NE(error_of("v5").find("\"v5\""), std::string::npos);
  EXPECT_NE(error_of(""), "");
}

const char* kProduct = R"(
func @product(A: f32[24, 40], B: constant f32[40, 48]) -> (C: f32[24, 48]) {
  block mm(i: 24, j: 48; reduce k: 40) {
    init {
      C[i, j] = 0
    }
    C[i, j] = fma(A[i, k], B[k, j], C[i, j])
  }
}
)";

struct Both {
  sym::Context c;
  codegen::LlvmUnit v3{"v3", cpu_v3().llvm()}, v4{"v4", cpu_v4().llvm()};
  KernelCompiler compiler{c, {{cpu_v3(), &v3}, {cpu_v4(), &v4}}};
};

TEST(Variants, StandBesideTheFloor) {
  Both b;
  const Kernel k = b.compiler.add(loop::parse(b.c, kProduct));
  ASSERT_EQ(k.phases.size(), 1u);
  ASSERT_EQ(k.phases[0].variants.size(), 1u);
  const Phase::Code &floor = k.phases[0].code, &variant = k.phases[0].variants[0];
  EXPECT_EQ(floor.features & kTpAvx512, 0u);
  EXPECT_EQ(variant.features & kTpAvx512, static_cast<uint32_t>(kTpAvx512));
  EXPECT_NE(floor.symbol, variant.symbol);
  b.v3.optimise(), b.v4.optimise();  // verifies the IR
  const std::string low = b.v3.assembly(), high = b.v4.assembly();
  EXPECT_EQ(low.find("zmm"), std::string::npos);
  EXPECT_NE(low.find("ymm"), std::string::npos);
  EXPECT_NE(high.find("zmm"), std::string::npos);
  EXPECT_NE(high.find("vfmadd"), std::string::npos);
  EXPECT_EQ(low.find(variant.symbol), std::string::npos);
}

TEST(Variants, OneFloorOnly) {
  sym::Context c;
  codegen::LlvmUnit unit("v4", cpu_v4().llvm());
  KernelCompiler compiler(c, {{cpu_v4(), &unit}});
  const Kernel k = compiler.add(loop::parse(c, kProduct));
  EXPECT_TRUE(k.phases[0].variants.empty());
}

TEST(Kernels, EqualFunctionsShareOne) {
  Both b;
  std::string renamed = kProduct;
  for (size_t at; (at = renamed.find("product")) != std::string::npos;) renamed.replace(at, 7, "layer_2");
  const Kernel one = b.compiler.add(loop::parse(b.c, kProduct));
  loop::Function twin = loop::parse(b.c, renamed);
  twin.origins = {{7, "MatMul", "layer2"}};
  std::vector<std::string> log;
  const Kernel two = b.compiler.add(twin, &log);
  EXPECT_EQ(one.phases[0].code.symbol, two.phases[0].code.symbol);
  ASSERT_EQ(two.function.origins.size(), 1u);
  EXPECT_EQ(two.function.origins[0].index, 7);
  std::string other = kProduct;
  other.replace(other.find("fma(A[i, k]"), 11, "fma(A[i, 39 - k]");
  EXPECT_NE(b.compiler.add(loop::parse(b.c, other)).phases[0].code.symbol, one.phases[0].code.symbol);
}

}  // namespace
}  // namespace tripod::cpu
