#include "backends/cpu/cpu_target.h"

#include <algorithm>
#include <sstream>

#include "base/diagnostic.h"
#include "runtime/abi.h"

namespace tripod::cpu {

CpuTarget cpu_v3() {
  CpuTarget t;
  t.features = kTpAvx2 | kTpFma | kTpF16c;
  return t;
}

CpuTarget cpu_v4() {
  CpuTarget t;
  t.name = "v4";
  t.features = cpu_v3().features | kTpAvx512;
  t.vector_bytes = 64;
  t.vector_registers = 32;
  t.l1_bytes = 48 * 1024;
  t.l2_bytes = 1024 * 1024;
  return t;
}

codegen::CpuTarget CpuTarget::llvm() const {
  return name == "v4" ? codegen::CpuTarget{"x86-64-v4", "-prefer-256-bit"} : codegen::CpuTarget{"x86-64-v3", ""};
}

bool CpuTarget::worth_a_variant(const std::string&) const { return true; }

static CpuTarget parse_target(const std::string& name) {
  if (name == "v3") return cpu_v3();
  if (name == "v4") return cpu_v4();
  if (name == "native") return __builtin_cpu_supports("x86-64-v4") ? cpu_v4() : cpu_v3();
  if (name == "amx") throw CompileError({}, "--cpu=amx: code for AMX tiles is not built yet", "use --cpu=v4 for a CPU that has AMX");
  throw CompileError({}, "--cpu: no instruction set \"" + name + "\"", "known: v3, v4, native, or several separated by commas");
}

std::vector<CpuTarget> parse_targets(const std::string& names) {
  std::vector<CpuTarget> all;
  std::stringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    CpuTarget t = parse_target(name);
    const auto is = [&](const CpuTarget& other) { return other.name == t.name; };
    if (std::none_of(all.begin(), all.end(), is)) all.push_back(std::move(t));
  }
  if (all.empty()) throw CompileError({}, "--cpu names no instruction set", "known: v3, v4, native, or several separated by commas");
  std::sort(all.begin(), all.end(), [](const CpuTarget& a, const CpuTarget& b) { return a.features < b.features; });
  return all;
}

}  // namespace tripod::cpu
