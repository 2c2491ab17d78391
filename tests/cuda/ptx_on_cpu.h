// The helpers of the prelude that are PTX, in plain C++: what a person reads in NVIDIA's manual of the instruction. The
// prelude includes it in their place.
#pragma once

inline float min_of(float a, float b) { return a != a ? a : b != b || b < a ? b : a; }
inline float max_of(float a, float b) { return a != a ? a : b != b || b > a ? b : a; }

inline float exp2_fast(float x) {
  const float r = static_cast<float>(std::exp2(static_cast<double>(x)));
  return r < std::numeric_limits<float>::min() ? 0.0f : r;
}

inline float to_f32(f16 x) {
  const int exponent = x.bits >> 10 & 31, mantissa = x.bits & 1023;
  float v;
  if (exponent == 31) v = bits_as<float>(0x7f800000u | static_cast<unsigned>(mantissa) << 13);
  else if (exponent == 0) v = std::ldexp(static_cast<float>(mantissa), -24);
  else v = std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  return x.bits >> 15 ? -v : v;
}

// To nearest even; the magnitude is a multiple of a power of two that depends on its exponent.
inline f16 to_f16(float x) {
  const unsigned short sign = std::signbit(x) ? 0x8000 : 0;
  if (x != x) return {0x7fff};
  const double a = std::fabs(static_cast<double>(x));
  if (a >= 65520.0) return {static_cast<unsigned short>(sign | 0x7c00)};
  int exponent = a == 0 ? -14 : std::ilogb(a);
  if (exponent < -14) exponent = -14;
  const int units = static_cast<int>(std::nearbyint(std::ldexp(a, 10 - exponent)));  // of 2^(exponent - 10), up to 2048
  return {static_cast<unsigned short>(sign | (((exponent + 14) << 10) + units))};
}

inline bf16 to_bf16(float x) {
  if (x != x) return {0x7fff};
  const unsigned b = bits_as<unsigned>(x);
  return {static_cast<unsigned short>((b + 0x7fff + (b >> 16 & 1)) >> 16)};
}

inline void report(tp_error* error, int site, long long got, long long limit) {
  if (atomicCAS(&error->state, 0, 1) != 0) return;
  error->site = site;
  error->got = got;
  error->limit = limit;
}

template <int chunk, class T, int n>
void load_vector(T (&to)[n], const T* from) {
  if (reinterpret_cast<uintptr_t>(from) % chunk != 0) cuda_on_cpu::fail("a vector load of a wrong alignment");
  std::memcpy(to, from, sizeof to);
}
template <int chunk, int n, class T>
void load_vector(T* to, const T* from) {
  if (reinterpret_cast<uintptr_t>(from) % chunk != 0 || reinterpret_cast<uintptr_t>(to) % chunk != 0) cuda_on_cpu::fail("a vector load of a wrong alignment");
  std::memcpy(to, from, n * sizeof(T));
}
template <int chunk, class T, int n>
void store_vector(T* to, const T (&from)[n]) {
  if (reinterpret_cast<uintptr_t>(to) % chunk != 0) cuda_on_cpu::fail("a vector store of a wrong alignment");
  std::memcpy(to, from, sizeof from);
}

template <int bytes>
void copy_async(void* to, const void* from, bool inside = true) {
  if (reinterpret_cast<uintptr_t>(to) % bytes != 0 || (inside && reinterpret_cast<uintptr_t>(from) % bytes != 0))
    cuda_on_cpu::fail("an asynchronous copy of a wrong alignment");
  cuda_on_cpu::machine.fibers[cuda_on_cpu::machine.current].copies.back().push_back({to, from, bytes, inside});
}
inline void copy_async_commit() { cuda_on_cpu::machine.fibers[cuda_on_cpu::machine.current].copies.emplace_back(); }
template <int open>
void copy_async_wait() { cuda_on_cpu::copy_wait(open); }

// ldmatrix: matrix j has its rows where lanes 8j to 8j + 7 say; a lane gets two neighbours of a row, or of a column.
template <class T, int n>
void load_matrix(T (&to)[n], const T* row) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) cuda_on_cpu::fail("ldmatrix of a row that is not aligned to 16 bytes");
  const unsigned lane = tp_lane();
  for (unsigned j = 0; j < n / 2; ++j) {
    const T* from = cuda_on_cpu::exchanged(row, j * 8 + lane / 4);
    to[j * 2] = from[lane % 4 * 2], to[j * 2 + 1] = from[lane % 4 * 2 + 1];
  }
}
template <class T, int n>
void load_matrix_transposed(T (&to)[n], const T* row) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) cuda_on_cpu::fail("ldmatrix of a row that is not aligned to 16 bytes");
  const unsigned lane = tp_lane();
  for (unsigned j = 0; j < n / 2; ++j)
    for (unsigned i = 0; i < 2; ++i) to[j * 2 + i] = cuda_on_cpu::exchanged(row, j * 8 + lane % 4 * 2 + i)[lane / 4];
}

template <class T>
void load_matrices(T (&to)[4], T (&second)[4], const T* row) {
  T all[8];
  load_matrix(all, row);
  std::memcpy(to, all, sizeof to), std::memcpy(second, all + 4, sizeof second);
}
template <class T>
void load_matrices_transposed(T (&to)[4], T (&second)[4], const T* row) {
  T all[8];
  load_matrix_transposed(all, row);
  std::memcpy(to, all, sizeof to), std::memcpy(second, all + 4, sizeof second);
}

// c[row][column] += sum over k of a[row][k] * b[k][column], k in order, as the loop interpreter does it.
template <int k_extent, class Get, int na, int nb, class T>
void mma_by_definition(float (&c)[4], const T (&a)[na], const T (&b)[nb], Get get) {
  cuda_on_cpu::Machine& m = cuda_on_cpu::machine;
  for (int e = 0; e < na; ++e) m.operands[0][m.current][e] = get(a[e]);
  for (int e = 0; e < nb; ++e) m.operands[1][m.current][e] = get(b[e]);
  __syncwarp();
  const size_t warp = m.current / 32 * 32;
  const int lane = static_cast<int>(m.current % 32);
  for (int e = 0; e < 4; ++e) {
    const int row = lane / 4 + 8 * (e / 2), column = lane % 4 * 2 + e % 2;
    for (int k = 0; k < k_extent; ++k) {
      const bool wide = k_extent == 8;  // tf32
      const int la = row % 8 * 4 + (wide ? k % 4 : k % 8 / 2), ea = wide ? k / 4 * 2 + row / 8 : k / 8 * 4 + row / 8 * 2 + k % 2;
      const int lb = column * 4 + (wide ? k % 4 : k % 8 / 2), eb = wide ? k / 4 : k / 8 * 2 + k % 2;
      c[e] = std::fmaf(m.operands[0][warp + static_cast<size_t>(la)][ea], m.operands[1][warp + static_cast<size_t>(lb)][eb], c[e]);
    }
  }
  __syncwarp();
}
inline void mma(float (&c)[4], const f16 (&a)[8], const f16 (&b)[4]) { mma_by_definition<16>(c, a, b, [](f16 x) { return to_f32(x); }); }
inline void mma(float (&c)[4], const bf16 (&a)[8], const bf16 (&b)[4]) { mma_by_definition<16>(c, a, b, [](bf16 x) { return to_f32(x); }); }
inline void mma(float (&c)[4], const float (&a)[4], const float (&b)[2]) {
  // tf32: 10 bits of mantissa, to nearest, ties away from zero.
  mma_by_definition<8>(c, a, b, [](float x) { return bits_as<float>((bits_as<unsigned>(x) + 0x1000u) & 0xffffe000u); });
}
