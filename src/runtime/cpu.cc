// What the CPU can do. Built for plain x86-64: this is the code that tells an older CPU that it is too old.
#include <cpuid.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/internal.h"

namespace tripod::rt {
namespace {

struct Registers {
  uint32_t a, b, c, d;
};

Registers cpuid(uint32_t leaf, uint32_t sub) {
  Registers r = {};
  __get_cpuid_count(leaf, sub, &r.a, &r.b, &r.c, &r.d);  // leaves zeros when the leaf does not exist
  return r;
}

// Register state that the operating system saves: without it the instructions fault.
uint64_t os_state(uint32_t leaf1_c) {
  if (!(leaf1_c >> 27 & 1)) return 0;  // OSXSAVE
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

// Linux gives AMX tiles to a process that asks.
bool amx_permitted() {
  constexpr long kReqXcompPerm = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kReqXcompPerm, kTileData) == 0;
}

constexpr uint32_t kDetected = 1u << 31;

uint32_t detect() {
  Registers one = cpuid(1, 0), seven = cpuid(7, 0), seven1 = cpuid(7, 1), extended = cpuid(0x8000'0001, 0);
  uint64_t state = os_state(one.c);
  bool ymm = (state & 0x6) == 0x6, zmm = (state & 0xe6) == 0xe6, tiles = (state & 0x6'0000) == 0x6'0000;
  bool bit_manipulation = (seven.b >> 3 & 1) && (seven.b >> 8 & 1) && (extended.c >> 5 & 1) && (one.c >> 22 & 1);
  uint32_t features = kDetected;
  // x86-64-v3 is one feature here: the compiler's code for AVX2 also uses BMI1, BMI2, LZCNT and MOVBE.
  if (ymm && (seven.b >> 5 & 1) && bit_manipulation) features |= kTpAvx2;
  if (ymm && (one.c >> 12 & 1)) features |= kTpFma;
  if (ymm && (one.c >> 29 & 1)) features |= kTpF16c;
  constexpr uint32_t kV4 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;  // F, DQ, CD, BW, VL
  if (zmm && (seven.b & kV4) == kV4) features |= kTpAvx512;
  if ((zmm && (seven.c >> 11 & 1)) || (ymm && (seven1.a >> 4 & 1))) features |= kTpVnni;
  if (tiles && (seven.d >> 24 & 1) && (seven.d >> 25 & 1) && (tp_the_model.cpu_features & kTpAmx) && amx_permitted())
    features |= kTpAmx;
  return features;
}

std::atomic<uint32_t> detected;  // detecting twice gives the same answer
std::atomic<uint32_t> problem_known;
char problem[192];

constexpr struct {
  uint32_t feature;
  const char* name;
} kNames[] = {{kTpAvx2, "AVX2"},      {kTpFma, "FMA"},   {kTpF16c, "F16C"},
              {kTpAvx512, "AVX-512"}, {kTpVnni, "VNNI"}, {kTpAmx, "AMX"}};

}  // namespace

uint32_t cpu_features() {
  uint32_t features = detected.load(std::memory_order_relaxed);
  if (features == 0) detected.store(features = detect(), std::memory_order_relaxed);
  return features;
}

const char* cpu_problem() {
  uint32_t needed = tp_the_model.cpu_features | kTpAvx2 | kTpFma | kTpF16c;
  uint32_t lacking = needed & ~cpu_features();
  if (lacking == 0) return nullptr;
  if (problem_known.load(std::memory_order_acquire)) return problem;
  char list[80] = "";
  int length = 0;
  for (const auto& row : kNames)
    if (lacking & row.feature)
      length += snprintf(list + length, sizeof list - static_cast<size_t>(length), "%s%s", length ? ", " : "", row.name);
  snprintf(problem, sizeof problem, "this model is compiled for a newer CPU: this one (or its operating system) lacks %s",
           list);
  problem_known.store(1, std::memory_order_release);
  return problem;
}

}  // namespace tripod::rt

int32_t tp_cpu_has(uint32_t features) { return (tripod::rt::cpu_features() & features) == features; }
