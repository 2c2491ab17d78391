// What this core can do at most, measured: the loops that bench/gemm.py compares kernels with. AVX2 + FMA.
#include <immintrin.h>
#include <stdint.h>

// 12 independent chains of fused multiply-adds, each 8 floats wide: as many as the register tile of a GEMM has, more
// than latency x throughput needs. Returns a number so that nothing is optimised away; 192 flops a round.
float fma_rounds(int64_t rounds) {
  __m256 a[12];
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);
  for (int i = 0; i < 12; ++i) a[i] = _mm256_set1_ps((float)i);
  for (int64_t r = 0; r < rounds; ++r)
    for (int i = 0; i < 12; ++i) a[i] = _mm256_fmadd_ps(a[i], x, y);
  for (int i = 1; i < 12; ++i) a[0] = _mm256_add_ps(a[0], a[i]);
  return _mm256_cvtss_f32(a[0]);
}

// Reads n floats once, in four streams.
float read_floats(const float* p, int64_t n) {
  __m256 s[8];
  for (int i = 0; i < 8; ++i) s[i] = _mm256_setzero_ps();
  const int64_t quarter = n / 4 / 16 * 16;
  for (int64_t k = 0; k < quarter; k += 16)
    for (int i = 0; i < 4; ++i) {
      s[2 * i] = _mm256_add_ps(s[2 * i], _mm256_loadu_ps(p + i * quarter + k));
      s[2 * i + 1] = _mm256_add_ps(s[2 * i + 1], _mm256_loadu_ps(p + i * quarter + k + 8));
    }
  for (int i = 1; i < 8; ++i) s[0] = _mm256_add_ps(s[0], s[i]);
  return _mm256_cvtss_f32(s[0]);
}
