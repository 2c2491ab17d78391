// The helpers that stand in front of the kernels of a file. Those that are PTX are written a second time, in plain C++,
// in tests/cuda/ptx_on_cpu.h, where TRIPOD_CUDA_ON_CPU is defined.
#include "backends/cuda/cuda_c.h"

namespace tripod::cuda {

std::string prelude() {
  return R"cuda(// Helpers of the generated kernels. Signed arithmetic wraps; nothing divides by zero.
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
struct tp_error { int state, site; long long got, limit; };  // tp_device_error of runtime/abi.h

template <class A, class B> struct tp_wider { using type = decltype(A() + B()); };
template <class A> struct tp_wider<A, A> { using type = A; };
template <class T> struct tp_unsigned;
template <> struct tp_unsigned<signed char> { using type = unsigned char; };
template <> struct tp_unsigned<unsigned char> { using type = unsigned char; };
template <> struct tp_unsigned<short> { using type = unsigned short; };
template <> struct tp_unsigned<unsigned short> { using type = unsigned short; };
template <> struct tp_unsigned<int> { using type = unsigned; };
template <> struct tp_unsigned<unsigned> { using type = unsigned; };
template <> struct tp_unsigned<long long> { using type = unsigned long long; };
template <> struct tp_unsigned<unsigned long long> { using type = unsigned long long; };

template <class T> __device__ __forceinline__ T wrap_add(T a, T b) {
  using U = typename tp_unsigned<T>::type;
  return (T)(U)((U)a + (U)b);
}
template <class T> __device__ __forceinline__ T wrap_sub(T a, T b) {
  using U = typename tp_unsigned<T>::type;
  return (T)(U)((U)a - (U)b);
}
template <class T> __device__ __forceinline__ T wrap_mul(T a, T b) {
  using U = typename tp_unsigned<T>::type;
  return (T)(U)(1u * (U)a * (U)b);  // 1u: two 16-bit factors must not become int
}
template <class T> __device__ __forceinline__ T wrap_neg(T a) { return wrap_sub((T)0, a); }
template <class T> __device__ __forceinline__ T wrap_abs(T a) { return a < 0 ? wrap_neg(a) : a; }

// x / 0 and x rem 0 are 0, INT_MIN / -1 is INT_MIN.
template <class T> __device__ __forceinline__ T safe_div(T a, T b) {
  if (b == 0) return 0;
  if ((T)-1 < (T)0 && b == (T)-1) return wrap_neg(a);
  return (T)(a / b);
}
template <class T> __device__ __forceinline__ T safe_rem(T a, T b) {
  if (b == 0 || ((T)-1 < (T)0 && b == (T)-1)) return 0;
  return (T)(a % b);
}

// Shifts by the width or more give 0, or the sign.
template <class T> __device__ __forceinline__ T shift_left(T a, T by) {
  using U = typename tp_unsigned<T>::type;
  return (U)by < sizeof(T) * 8 ? (T)(U)((unsigned long long)(U)a << (U)by) : (T)0;
}
template <class T> __device__ __forceinline__ T shift_right(T a, T by) {
  using U = typename tp_unsigned<T>::type;
  const unsigned last = sizeof(T) * 8 - 1;
  if ((U)by > last) return (T)-1 < (T)0 ? (T)(a >> last) : (T)0;
  return (T)(a >> by);
}

// Rounds towards minus infinity; a division by 0 gives 0 (an extent of 0: its loop does not run).
template <class A, class B> __device__ __forceinline__ typename tp_wider<A, B>::type floor_div(A a, B b) {
  if (b == 0) return 0;
  const typename tp_wider<A, B>::type q = a / b;
  return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}
template <class A, class B> __device__ __forceinline__ typename tp_wider<A, B>::type floor_mod(A a, B b) {
  return a - floor_div(a, b) * b;
}

template <class To, class From> __device__ __forceinline__ To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// min and max give NaN when an operand is NaN.
template <class A, class B> __device__ __forceinline__ typename tp_wider<A, B>::type min_of(A a, B b) {
  typename tp_wider<A, B>::type x = a, y = b;
  return y < x ? y : x;
}
template <class A, class B> __device__ __forceinline__ typename tp_wider<A, B>::type max_of(A a, B b) {
  typename tp_wider<A, B>::type x = a, y = b;
  return y > x ? y : x;
}
__device__ __forceinline__ double min_of(double a, double b) { return a != a ? a : b != b || b < a ? b : a; }
__device__ __forceinline__ double max_of(double a, double b) { return a != a ? a : b != b || b > a ? b : a; }

// Float to integer as x86 does it: the least integer for NaN and what does not fit.
template <class T> struct tp_limits;
template <> struct tp_limits<int> {
  static constexpr int least = -2147483647 - 1;
  static constexpr double end = 2147483648.0;
};
template <> struct tp_limits<long long> {
  static constexpr long long least = -9223372036854775807ll - 1;
  static constexpr double end = 9223372036854775808.0;
};
template <class T> __device__ __forceinline__ T to_int(float x) {
  return x >= (float)-tp_limits<T>::end && x < (float)tp_limits<T>::end ? (T)x : tp_limits<T>::least;
}
template <class T> __device__ __forceinline__ T to_int(double x) {
  // -2147483648.5 truncates to the least int; the nearest i64 below its least is far away.
  const double below = sizeof(T) == 4 ? -tp_limits<T>::end - 1.0 : -tp_limits<T>::end;
  const bool above = sizeof(T) == 4 ? x > below : x >= below;
  return above && x < tp_limits<T>::end ? (T)x : tp_limits<T>::least;
}
template <class T> __device__ __forceinline__ unsigned long long to_u64(T x) {
  const T half = (T)9223372036854775808.0;
  if (x >= half && x < half * 2) return (unsigned long long)(long long)(x - half) ^ 0x8000000000000000ull;
  return (unsigned long long)to_int<long long>(x);
}

// 4-bit elements lie two a byte, the low nibble first.
__device__ __forceinline__ signed char to_i4(signed char v) { return (signed char)((signed char)((unsigned char)v << 4) >> 4); }
__device__ __forceinline__ unsigned char to_u4(unsigned char v) { return v & 15; }
__device__ __forceinline__ unsigned char load_u4(const unsigned char* from, long long i) {
  return (unsigned char)((from[i >> 1] >> ((i & 1) * 4)) & 15);
}
__device__ __forceinline__ signed char load_i4(const unsigned char* from, long long i) {
  return to_i4((signed char)load_u4(from, i));
}
__device__ __forceinline__ void store_4bit(unsigned char* to, long long i, int v) {
  const int shift = (i & 1) * 4;
  to[i >> 1] = (unsigned char)((to[i >> 1] & ~(15 << shift)) | ((v & 15) << shift));
}

__device__ __forceinline__ float to_f32(bf16 x) { return bits_as<float>((unsigned)x.bits << 16); }

#ifdef TRIPOD_CUDA_ON_CPU
#include "cuda/ptx_on_cpu.h"
#else
extern __shared__ __align__(16) unsigned char tp_shared[];  // of the launch's size

__device__ __forceinline__ float min_of(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
__device__ __forceinline__ float max_of(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
__device__ __forceinline__ float exp2_fast(float x) {  // 2 ulp; below the normal numbers: 0
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
__device__ __forceinline__ float to_f32(f16 x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits));
  return r;
}
__device__ __forceinline__ f16 to_f16(float x) {
  f16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));
  return r;
}
__device__ __forceinline__ bf16 to_bf16(float x) {
  bf16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));
  return r;
}

// The first error of a run is kept.
__device__ __noinline__ void report(tp_error* error, int site, long long got, long long limit) {
  if (atomicCAS(&error->state, 0, 1) != 0) return;
  error->site = site;
  error->got = got;
  error->limit = limit;
}

// Of --debug-kernels: an index into a buffer, which is 0 where it was outside.
__device__ __forceinline__ long long inside(tp_error* error, int site, long long at, long long extent) {
  if (at >= 0 && at < extent) return at;
  report(error, site, at, extent);
  return 0;
}

// n elements as chunks of 16, 8, 4 or 2 bytes; both sides are aligned to the chunk.
template <int bytes> struct tp_chunk;
template <> struct tp_chunk<16> { using type = uint4; };
template <> struct tp_chunk<8> { using type = uint2; };
template <> struct tp_chunk<4> { using type = unsigned; };
template <> struct tp_chunk<2> { using type = unsigned short; };
template <int chunk, class T, int n> __device__ __forceinline__ void load_vector(T (&to)[n], const T* from) {
  using Chunk = typename tp_chunk<chunk>::type;
#pragma unroll
  for (int i = 0; i < (int)(n * sizeof(T)) / chunk; ++i) reinterpret_cast<Chunk*>(to)[i] = reinterpret_cast<const Chunk*>(from)[i];
}
template <int chunk, int n, class T> __device__ __forceinline__ void load_vector(T* to, const T* from) {  // into a part of an array
  using Chunk = typename tp_chunk<chunk>::type;
#pragma unroll
  for (int i = 0; i < (int)(n * sizeof(T)) / chunk; ++i) reinterpret_cast<Chunk*>(to)[i] = reinterpret_cast<const Chunk*>(from)[i];
}
template <int chunk, class T, int n> __device__ __forceinline__ void store_vector(T* to, const T (&from)[n]) {
  using Chunk = typename tp_chunk<chunk>::type;
#pragma unroll
  for (int i = 0; i < (int)(n * sizeof(T)) / chunk; ++i) reinterpret_cast<Chunk*>(to)[i] = reinterpret_cast<const Chunk*>(from)[i];
}

// --- asynchronous copies to shared memory; what is outside becomes zeros ---
template <int bytes> __device__ __forceinline__ void copy_async(void* to, const void* from, bool inside = true) {
  const unsigned at = (unsigned)__cvta_generic_to_shared(to);
  const int size = inside ? bytes : 0;
  if constexpr (bytes == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(size) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(bytes), "r"(size) : "memory");
}
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int open> __device__ __forceinline__ void copy_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(open) : "memory"); }

// --- tensor cores; the fragments are those of the PTX manual ---
// Every lane names the start of a row of 8 elements in shared memory.
template <class T> __device__ __forceinline__ void load_matrix(T (&to)[8], const T* row) {
  unsigned r[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
  memcpy(to, r, sizeof r);
}
template <class T> __device__ __forceinline__ void load_matrix_transposed(T (&to)[8], const T* row) {
  unsigned r[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
  memcpy(to, r, sizeof r);
}
template <class T> __device__ __forceinline__ void load_matrix(T (&to)[4], const T* row) {
  unsigned r[2];
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
  memcpy(to, r, sizeof r);
}
template <class T> __device__ __forceinline__ void load_matrix_transposed(T (&to)[4], const T* row) {
  unsigned r[2];
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
  memcpy(to, r, sizeof r);
}
template <class T> __device__ __forceinline__ void load_matrices(T (&to)[4], T (&second)[4], const T* row) {
  unsigned r[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
  memcpy(to, r, sizeof to);
  memcpy(second, r + 2, sizeof second);
}
template <class T> __device__ __forceinline__ void load_matrices_transposed(T (&to)[4], T (&second)[4], const T* row) {
  unsigned r[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
  memcpy(to, r, sizeof to);
  memcpy(second, r + 2, sizeof second);
}
__device__ __forceinline__ void mma(float (&c)[4], const f16 (&a)[8], const f16 (&b)[4]) {
  unsigned x[4], y[2];
  memcpy(x, a, sizeof x);
  memcpy(y, b, sizeof y);
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}
__device__ __forceinline__ void mma(float (&c)[4], const bf16 (&a)[8], const bf16 (&b)[4]) {
  unsigned x[4], y[2];
  memcpy(x, a, sizeof x);
  memcpy(y, b, sizeof y);
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}
__device__ __forceinline__ unsigned tp_tf32(float x) {  // to nearest, ties away from zero
  unsigned r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}
__device__ __forceinline__ void mma(float (&c)[4], const float (&a)[4], const float (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(tp_tf32(a[0])), "r"(tp_tf32(a[1])), "r"(tp_tf32(a[2])), "r"(tp_tf32(a[3])), "r"(tp_tf32(b[0])), "r"(tp_tf32(b[1])));
}
#endif

// --- over the threads of a block; every thread calls them ---
__device__ __forceinline__ float tp_add(float a, float b) { return a + b; }
__device__ __forceinline__ double tp_add(double a, double b) { return a + b; }
template <class T> __device__ __forceinline__ T tp_add(T a, T b) { return wrap_add(a, b); }
template <class T> __device__ __forceinline__ T tp_from_lane(T v, int distance) {  // of the lane `distance` (xor) away
  if constexpr (sizeof(T) < 4) return (T)__shfl_xor_sync(0xffffffffu, (int)v, distance);
  else return __shfl_xor_sync(0xffffffffu, v, distance);
}
template <int lanes = 32, class T> __device__ __forceinline__ T warp_sum(T v) {  // of groups of `lanes` threads
#pragma unroll
  for (int d = lanes / 2; d > 0; d /= 2) v = tp_add(v, tp_from_lane(v, d));
  return v;
}
template <int lanes = 32, class T> __device__ __forceinline__ T warp_max(T v) {
#pragma unroll
  for (int d = lanes / 2; d > 0; d /= 2) v = max_of(v, tp_from_lane(v, d));
  return v;
}
// The result is right in the first warp. `warps` has one element a warp.
template <int num_warps, class T> __device__ __forceinline__ T block_sum(T v, T* warps, int thread) {
  v = warp_sum(v);
  if (num_warps == 1) return v;
  if ((thread & 31) == 0) warps[thread >> 5] = v;
  __syncthreads();
  return thread < 32 ? warp_sum(thread < num_warps ? warps[thread] : (T)-0.0) : v;
}
template <int num_warps, class T> __device__ __forceinline__ T block_max(T v, T* warps, int thread) {
  v = warp_max(v);
  if (num_warps == 1) return v;
  if ((thread & 31) == 0) warps[thread >> 5] = v;
  __syncthreads();
  return thread < 32 ? warp_max(warps[thread < num_warps ? thread : 0]) : v;
}

)cuda";
}

}  // namespace tripod::cuda
