#include "roofline.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

namespace tripod::tools {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Runs work(thread) on all threads at once and gives the seconds until the last one is done.
double timed(int threads, const std::function<void(int)>& work) {
  const auto start = Clock::now();
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(work, t);
  work(0);
  for (std::thread& t : others) t.join();
  return seconds_since(start);
}

// 12 independent chains hide the latency of two fma units.
constexpr int kChains = 12;

__attribute__((target("avx2,fma"))) float spin_avx2(int64_t n) {
  __m256 acc[kChains];
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-3f);
  for (__m256& v : acc) v = b;
  for (int64_t i = 0; i < n; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) acc[c] = _mm256_fmadd_ps(acc[c], a, b);
  }
  for (int c = 1; c < kChains; ++c) acc[0] = _mm256_add_ps(acc[0], acc[c]);
  return _mm256_cvtss_f32(acc[0]);
}

__attribute__((target("avx512f"))) float spin_avx512(int64_t n) {
  __m512 acc[kChains];
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1e-3f);
  for (__m512& v : acc) v = b;
  for (int64_t i = 0; i < n; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) acc[c] = _mm512_fmadd_ps(acc[c], a, b);
  }
  for (int c = 1; c < kChains; ++c) acc[0] = _mm512_add_ps(acc[0], acc[c]);
  return _mm512_cvtss_f32(acc[0]);
}

// to = from, with 32-byte loads and stores, `times` times over.
__attribute__((target("avx2"))) void copy(float* to, const float* from, int64_t count, int64_t times) {
  for (int64_t k = 0; k < times; ++k) {
    for (int64_t i = 0; i < count; i += 16) {
      _mm256_store_ps(to + i, _mm256_load_ps(from + i));
      _mm256_store_ps(to + i + 8, _mm256_load_ps(from + i + 8));
    }
    asm volatile("" : : "r"(to), "r"(from) : "memory");
  }
}

constexpr int kRounds = 5;

double peak_flops(int threads, bool avx512) {
  const int64_t n = 400'000;  // 2 to 4 ms
  const int lanes = avx512 ? 16 : 8;
  std::vector<float> sinks(static_cast<size_t>(threads));
  double best = 1e30;
  for (int round = 0; round < kRounds; ++round)
    best = std::min(best, timed(threads, [&](int t) { sinks[t] = avx512 ? spin_avx512(n) : spin_avx2(n); }));
  return 2.0 * lanes * kChains * static_cast<double>(n) * threads / best;
}

double copy_bandwidth(int threads, int64_t bytes) {
  const int64_t count = std::max<int64_t>(bytes / threads / 2 / 4 / 16, 1) * 16;  // floats a thread and side
  const int64_t times = std::max<int64_t>(1, int64_t{32'000'000} / (count * 8));
  std::vector<std::vector<float>> memory(static_cast<size_t>(threads),
                                         std::vector<float>(static_cast<size_t>(2 * count + 32), 1.0f));
  double best = 1e30;
  for (int round = 0; round < kRounds; ++round)
    best = std::min(best, timed(threads, [&](int t) {
                      float* start = memory[t].data();
                      start = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(start) + 63) / 64 * 64);
                      copy(start, start + count, count, times);
                    }));
  return 8.0 * static_cast<double>(count * times) * threads / best;
}

}  // namespace

double Roofline::bandwidth_of(double bytes) const {
  for (const auto& [size, rate] : bandwidth)
    if (bytes <= static_cast<double>(size)) return rate;
  return bandwidth.empty() ? 0 : bandwidth.back().second;
}

double Roofline::least_seconds(double flops_wanted, double bytes) const {
  return std::max(flops > 0 ? flops_wanted / flops : 0, bandwidth.empty() ? 0 : bytes / bandwidth_of(bytes));
}

Roofline measure_roofline(int threads, bool avx512) {
  Roofline r;
  r.flops = peak_flops(threads, avx512);
  for (const int64_t size : {int64_t{1} << 14, int64_t{1} << 18, int64_t{1} << 20, int64_t{1} << 23, int64_t{1} << 27})
    r.bandwidth.push_back({size, copy_bandwidth(threads, size)});
  return r;
}

}  // namespace tripod::tools
