// Every schedule rule of the CUDA back end against the function it schedules, by the interpreter: same bits, every
// access inside its buffer, no races between threads.
#include "backends/cuda/kernel.h"
#include "backends/cuda/rules/rules.h"
#include "backends/cuda/rules/tensor_cores.h"

#include "loop/flatten.h"
#include "loop_testing.h"

namespace tripod::loop {
namespace {

void same(const std::string& source, const std::string& rule, const std::vector<std::map<std::string, int64_t>>& sizes,
          const cuda::ScheduleOptions& options = {}) {
  sym::Context c;
  const Function f = parsed(c, source);
  std::vector<std::string> log;
  const cuda::RuleResult result = cuda::schedule(f, c, &log, options);
  std::string why;
  for (const std::string& l : log) why += l + "\n";
  EXPECT_EQ(result.function.rule, rule) << why;
  const auto compare = [&](const Function& scheduled, Index when) {
    const Function flat = flatten(scheduled);
    for (const std::string& e : verify(flat)) ADD_FAILURE() << e << "\n" << text(flat);
    for (const auto& dims : sizes) {
      sym::Values values;
      for (Index d : f.dims) values[d] = dims.at(d->name);
      if (!sym::evaluate(when, values)) continue;
      EXPECT_EQ(outcome(f, dims), outcome(flat, dims)) << text(flat);
    }
  };
  compare(result.function, c.constant(1));
  for (const cuda::Variant& v : result.variants) compare(v.function, v.when);
}

TEST(CudaRules, Elementwise) {
  same(R"(
func @add[N](A: f32[N, 12], B: f32[12]) -> (C: f32[N, 12]) {
  block add(n: N, k: 12) { C[n, k] = A[n, k] * 2 + B[k] }
})", "points", {{{"N", 1}}, {{"N", 100}}, {{"N", 0}}});
}

// Whether rows are whole vectors is asked at run time; one row has a rest.
TEST(CudaRules, ElementwiseOfOpenSizes) {
  const std::vector<std::map<std::string, int64_t>> sizes = {{{"N", 3}, {"K", 16}}, {{"N", 3}, {"K", 13}}, {{"N", 300}, {"K", 8}}, {{"N", 0}, {"K", 8}}, {{"N", 2}, {"K", 0}}};
  same(R"(
func @rows[N, K](A: f16[N, K], B: f16[K]) -> (C: f16[N, K]) {
  block add(n: N, k: K) { C[n, k] = f16(f32(A[n, k]) + f32(B[k])) }
})", "points", sizes);
  same(R"(
func @one[N, K](A: f16[N, K], B: f32[N, K]) -> (C: f32[N, K]) {
  block add(n: N, k: K) { C[n, k] = f32(A[n, k]) * B[n, k] }
})", "points", sizes);
  same(R"(
func @column[N, K](A: f32[N, K], B: f32[N]) -> (C: f32[N, K]) {
  block add(n: N, k: K) { C[n, k] = A[n, k] * B[n] }
})", "points", sizes);
}

TEST(CudaRules, Gather) {
  same(R"(
func @gather[N, V](I: i32[N], T: f16[V, 24]) -> (C: f16[N, 24]) {
  block gather(n: N, k: 24) {
    let i = I[n] {
      check i in 0..V site 1
      C[n, k] = (T[min(max(i, 0), V - 1), k] if 0 < V else 0:f16)
    }
  }
})", "points", {{{"N", 1}, {"V", 16}}, {{"N", 90}, {"V", 20}}, {{"N", 3}, {"V", 0}}});
}

TEST(CudaRules, ConcatenationAndPadding) {
  same(R"(
func @concat[N](A: f32[N, 8], B: f32[N, 3]) -> (C: f32[N, 11]) {
  block a(n: N, k: 8) { C[n, k] = A[n, k] }
  block b(n: N, k: 3) { C[n, k + 8] = B[n, k] }
})", "points", {{{"N", 1}}, {{"N", 100}}});
  same(R"(
func @pad[N, K](A: f32[N, K]) -> (C: f32[N + 2, K + 8]) {
  block pad(n: N + 2, k: K + 8) { C[n, k] = (A[n - 1, k - 4] if 1 <= n && n < N + 1 && 4 <= k && k < K + 4 else 7) }
})", "points", {{{"N", 3}, {"K", 4}}, {{"N", 20}, {"K", 9}}});
}

// The two elements of a byte are one thread's, also where rows share bytes.
TEST(CudaRules, FourBitResults) {
  same(R"(
func @rows[N](A: i8[N, 3]) -> (C: i4[N, 3]) {
  block a(n: N, k: 3) { C[n, k] = i4(A[n, k]) }
})", "points", {{{"N", 1}}, {{"N", 300}}, {{"N", 0}}});
  same(R"(
func @concat[N](A: i8[N, 3], B: i8[N, 2]) -> (C: u4[N, 5]) {
  block a(n: N, k: 3) { C[n, k] = u4(A[n, k]) }
  block b(n: N, k: 2) { C[n, k + 3] = u4(B[n, k]) }
})", "points", {{{"N", 1}}, {{"N", 30}}});
}

TEST(CudaRules, Transpose) {
  same(R"(
func @short[N](A: f16[N, 7]) -> (C: f16[7, N]) {
  block t(k: 7, n: N) { C[k, n] = A[n, k] }
})", "transpose", {{{"N", 1}}, {{"N", 300}}, {{"N", 0}}});
  same(R"(
func @open[N, K](A: f16[N, K], B: f16[N]) -> (C: f32[K, N]) {
  block t(k: K, n: N) { C[k, n] = f32(A[n, k]) * f32(A[n, k]) + f32(B[n]) }
})", "transpose", {{{"N", 1}, {"K", 1}}, {{"N", 70}, {"K", 130}}, {{"N", 65}, {"K", 63}}, {{"N", 0}, {"K", 4}}});
  same(R"(
func @images[N](A: f32[N, 3, 5, 20]) -> (C: f32[N, 5, 20, 3]) {
  block t(n: N, y: 5, x: 20, c: 3) { C[n, y, x, c] = A[n, c, y, x] }
})", "transpose", {{{"N", 1}}, {{"N", 4}}});
  same(R"(
func @reversed(A: i16[6, 1, 34, 10]) -> (C: i16[10, 34, 1, 6]) {
  block t(d: 10, c: 34, b: 1, a: 6) { C[d, c, b, a] = A[a, b, c, d] }
})", "transpose", {{}});
}

// The innermost dim stays: vectors.
TEST(CudaRules, TransposeOfOuterDims) {
  same(R"(
func @heads[N](A: f16[N, 6, 5, 8]) -> (C: f16[N, 5, 6, 8]) {
  block t(n: N, s: 5, h: 6, d: 8) { C[n, s, h, d] = A[n, h, s, d] }
})", "points", {{{"N", 1}}, {{"N", 9}}});
}

TEST(CudaRules, ColumnReductions) {
  same(R"(
func @s[N](A: f32[N, 5]) -> (C: f32[5]) {
  block s(k: 5; reduce n: N) {
    init { C[k] = 0 }
    C[k] = C[k] + A[n, k]
  }
})", "reduce", {{{"N", 1}}, {{"N", 33}}, {{"N", 700}}, {{"N", 0}}});
  same(R"(
func @mean[N, K](A: f16[2, N, K]) -> (C: f16[2, 1, K]) {
  alloc acc: f32[2, 1, K] {
    block s(b: 2, k: K; reduce n: N) {
      init { acc[b, 0, k] = 0 }
      acc[b, 0, k] = acc[b, 0, k] + f32(A[b, n, k])
    }
    block mean(b: 2, i: 1, k: K) { C[b, i, k] = f16(acc[b, 0, k] / 8) }
  }
})", "reduce", {{{"N", 1}, {"K", 8}}, {{"N", 100}, {"K", 13}}, {{"N", 1000}, {"K", 264}}, {{"N", 3}, {"K", 0}}});
  same(R"(
func @most(A: i8[300, 40]) -> (C: i8[40]) {
  block s(k: 40; reduce n: 300) {
    init { C[k] = -128:i8 }
    C[k] = max(C[k], A[n, k])
  }
})", "reduce", {{}});
  same(R"(
func @few(A: f32[9, 40]) -> (C: f32[40]) {
  block s(k: 40; reduce n: 9) {
    init { C[k] = 0 }
    C[k] = C[k] + A[n, k]
  }
})", "windows", {{}});
}

// Channels innermost: neighbouring channels are a vector, and what follows the sum is the thread's.
TEST(CudaRules, Windows) {
  same(R"(
func @depthwise[N, H](X: f16[N, 16, H, 6] layout (n, c, y, x) -> (n, y, x, c) in [N, H, 6, 16], W: f16[16, 3, 3] layout (c, a, b) -> (a, b, c) in [3, 3, 16], B: f32[16]) -> (Y: f16[N, 16, H, 6] layout (n, c, y, x) -> (n, y, x, c) in [N, H, 6, 16]) {
  alloc acc: f32[N, 16, H, 6] {
    block conv(n: N, c: 16, y: H, x: 6; reduce r: 3, s: 3) {
      init { acc[n, c, y, x] = 0 }
      acc[n, c, y, x] = fma(f32((X[n, c, y + r - 1, x + s - 1] if 1 <= y + r && y + r <= H && 1 <= x + s && x + s <= 6 else 0:f16)), f32(W[c, r, s]), acc[n, c, y, x])
    }
    block out(n: N, c: 16, y: H, x: 6) { Y[n, c, y, x] = f16(max(0, acc[n, c, y, x] + B[c]) * (acc[n, c, y, x] + 1)) }
  }
})", "windows", {{{"N", 1}, {"H", 1}}, {{"N", 2}, {"H", 5}}, {{"N", 0}, {"H", 3}}});
  same(R"(
func @slice[N](X: f32[N, 5, 8]) -> (Y: f32[N, 4]) {
  alloc acc: f32[N, 8] {
    block sum(n: N, c: 8; reduce r: 5) {
      init { acc[n, c] = 0 }
      acc[n, c] = acc[n, c] + X[n, r, c]
    }
    block out(n: N, c: 4) { Y[n, c] = acc[n, c] * 2 }
  }
})", "points", {{{"N", 3}}});
  same(R"(
func @pool[N](X: f32[N, 8, 9, 12]) -> (Y: f32[N, 4, 4, 12]) {
  block most(n: N, y: 4, x: 4, c: 12; reduce r: 2, s: 3) {
    init { Y[n, y, x, c] = -inf }
    Y[n, y, x, c] = max(Y[n, y, x, c], X[n, y * 2 + r, x * 2 + s, c])
  }
})", "windows", {{{"N", 1}}, {{"N", 5}}});
}

TEST(CudaRules, FullReductions) {
  const std::vector<std::map<std::string, int64_t>> sizes = {{{"N", 1}, {"K", 8}}, {{"N", 3}, {"K", 5001}}, {{"N", 40}, {"K", 1000}}, {{"N", 0}, {"K", 3}}};
  same(R"(
func @squares[N, K](A: f16[N, K]) -> (C: f32[]) {
  alloc acc: f32[] {
    block s(; reduce n: N, k: K) {
      init { acc[] = 0 }
      acc[] = fma(f32(A[n, k]), f32(A[n, k]), acc[])
    }
    block root() { C[] = acc[] * 0.5 }
  }
})", "reduce", sizes);
  same(R"(
func @least[N, K](A: i32[N, K, 2]) -> (C: i32[3]) {
  block s(i: 3; reduce n: N, k: K, j: 2) {
    init { C[i] = 100:i32 }
    C[i] = min(C[i], A[n, k, j] + index<i32>(i))
  }
})", "reduce", sizes);
}

TEST(CudaRules, RowSumAndMaximum) {
  same(R"(
func @s[N](A: f32[N, 700]) -> (S: f32[N], M: f32[N]) {
  block s(n: N; reduce k: 700) {
    init { S[n] = 0 }
    S[n] = S[n] + A[n, k]
  }
  block m(n: N; reduce k: 700) {
    init { M[n] = -1 }
    M[n] = max(M[n], A[n, k])
  }
})", "rows", {{{"N", 1}}, {{"N", 5}}});
}

TEST(CudaRules, RowWithWhatFollows) {
  for (const char* k : {"100", "8", "256", "3000", "40000"}) {
    std::string source = R"(
func @s[N](a: f32[N, #]) -> (c: f32[N, #], d: f32[N, #]) {
  alloc sum: f32[N] {
    alloc line: f32[N, #] {
      block line(n: N, k: #) { line[n, k] = sqrt(a[n, k]) }
      block s(n: N; reduce k: #) {
        init { sum[n] = 0 }
        sum[n] = sum[n] + a[n, k] * a[n, k]
      }
      block c(n: N, k: #) { c[n, k] = line[n, k] - sum[n] }
      block d(n: N, k: #) { d[n, k] = line[n, k] + a[n, k] }
    }
  }
})";
    for (size_t at = 0; (at = source.find('#')) != std::string::npos;) source.replace(at, 1, k);
    same(source, "rows", {{{"N", 1}}, {{"N", 9}}, {{"N", 0}}});
  }
}

int64_t shared_elements(const Function& f) {
  int64_t n = 0;
  visit(f.body, [&](const Stmt& s) {
    if (s->kind != StmtKind::alloc || s->buffer->scope != Scope::shared) return;
    int64_t of = 1;
    for (const Index& e : s->buffer->shape) of *= e.value();
    n += of;
  });
  return n;
}

// Rows beyond what registers hold: the rest of a row in shared memory where that is enough, and then every input is read
// once; what is made of an input that is not needed any more takes its place.
TEST(CudaRules, LongRows) {
  const std::string norm = R"(
func @norm[N](A: f16[N, #], G: f16[#]) -> (C: f16[N, #]) {
  alloc sum: f32[N] {
    alloc wide: f32[N] {
      block sum(n: N; reduce k: #) {
        init { sum[n] = 0 }
        sum[n] = sum[n] + f32(A[n, k])
      }
      block wide(n: N; reduce k: #) {
        init { wide[n] = 0 }
        wide[n] = wide[n] + abs(f32(A[n, k]) - min(sum[n], 16))
      }
      block c(n: N, k: #) { C[n, k] = f16((f32(A[n, k]) - sum[n]) * f32(G[k]) + wide[n]) }
    }
  }
})";
  const std::string weights = R"(
func @weights[N](A: f32[N, #]) -> (C: f32[N, #]) {
  alloc most: f32[N] {
    alloc e: f32[N, #] {
      alloc sum: f32[N] {
        block most(n: N; reduce k: #) {
          init { most[n] = -1 }
          most[n] = max(most[n], A[n, k])
        }
        block e(n: N, k: #) { e[n, k] = most[n] - A[n, k] }
        block sum(n: N; reduce k: #) {
          init { sum[n] = 0 }
          sum[n] = sum[n] + e[n, k]
        }
        block c(n: N, k: #) { C[n, k] = e[n, k] * sum[n] }
      }
    }
  }
})";
  struct Case {
    const std::string& source;
    const char* length;
    int64_t shared;       // bytes that are allowed
    int64_t elements;     // that slots in shared memory have
  };
  const Case cases[] = {{norm, "131072", 227 << 10, 65536}, {norm, "131072", 99 << 10, 0},   {norm, "66001", 99 << 10, 1024},
                        {weights, "50257", 227 << 10, 18 * 1024}, {weights, "32768", 99 << 10, 0}, {weights, "33000", 99 << 10, 4096}};
  for (const Case& k : cases) {
    std::string source = k.source;
    for (size_t at = 0; (at = source.find('#')) != std::string::npos;) source.replace(at, 1, k.length);
    const cuda::ScheduleOptions options{.shared_bytes = k.shared};
    same(source, "rows", {{{"N", 2}}}, options);
    sym::Context c;
    const Function f = cuda::schedule(parsed(c, source), c, nullptr, options).function;
    EXPECT_EQ(shared_elements(f) / 1024 * 1024, k.elements) << k.length << " " << k.shared;
  }
}

// Rows of open length: short ones, long ones, beyond the registers, no whole vectors, empty.
TEST(CudaRules, RowsOfOpenLength) {
  const std::vector<std::map<std::string, int64_t>> sizes = {{{"N", 3}, {"K", 40}}, {{"N", 9}, {"K", 1024}}, {{"N", 2}, {"K", 2056}},
                                                             {{"N", 1}, {"K", 40000}}, {{"N", 2}, {"K", 333}}, {{"N", 1}, {"K", 9001}},
                                                             {{"N", 2}, {"K", 0}}, {{"N", 0}, {"K", 8}}};
  same(R"(
func @norm[N, K](A: f16[N, K], G: f16[K]) -> (C: f16[N, K], M: f32[N]) {
  alloc most: f32[N] {
    alloc sum: f32[N] {
      block most(n: N; reduce k: K) {
        init { most[n] = -1 }
        most[n] = max(most[n], f32(A[n, k]))
      }
      block sum(n: N; reduce k: K) {
        init { sum[n] = 0 }
        sum[n] = sum[n] + (most[n] - f32(A[n, k]))
      }
      block c(n: N, k: K) { C[n, k] = f16(sqrt(f32(A[n, k])) - most[n] + f32(G[k])) }
      block m(n: N) { M[n] = sum[n] * 2 }
    }
  }
})", "rows", sizes);
}

// Dims behind the rows that are several; what registers keep is handed over by position.
TEST(CudaRules, RowsOfImages) {
  same(R"(
func @group[N](A: f32[N, 6, 5, 4], G: f32[6]) -> (C: f32[N, 6, 5, 4]) {
  alloc sum: f32[N, 2] {
    block sum(n: N, g: 2; reduce c: 3, y: 5, x: 4) {
      init { sum[n, g] = 0 }
      sum[n, g] = sum[n, g] + A[n, g*3 + c, y, x]
    }
    block c(n: N, g: 2, c: 3, y: 5, x: 4) { C[n, g*3 + c, y, x] = A[n, g*3 + c, y, x] * G[g*3 + c] - sum[n, g] }
  }
})", "rows", {{{"N", 1}}, {{"N", 7}}});
}

// Numbers of a row with dims of 1 behind them.
TEST(CudaRules, RowsWithKeptDims) {
  same(R"(
func @mean[N](A: f32[N, 3, 4]) -> (C: f32[N, 1, 1]) {
  alloc acc: f32[N, 1, 1] {
    block sum(n: N; reduce y: 3, x: 4) {
      init { acc[n, 0, 0] = 0 }
      acc[n, 0, 0] = acc[n, 0, 0] + A[n, y, x]
    }
    block mean(n: N, i: 1, m: 1) { C[n, i, m] = acc[n, i, m] / 4 }
  }
})", "rows", {{{"N", 1}}, {{"N", 9}}});
  same(R"(
func @other[N](A: f32[N, 3, 4]) -> (C: f32[N, 1, 1], D: f32[N, 2]) {
  alloc acc: f32[N, 1, 1] {
    block sum(n: N; reduce y: 3, x: 4) {
      init { acc[n, 0, 0] = 0 }
      acc[n, 0, 0] = acc[n, 0, 0] + A[n, y, x]
    }
    block mean(n: N, i: 1, m: 1) { C[n, i, m] = acc[n, i, m] / 4 }
    block two(n: N, i: 2) { D[n, i] = acc[n, 0, 0] * 2 }
  }
})", "rows_shared", {{{"N", 1}}, {{"N", 9}}});
}

// Read at another position: shared memory.
TEST(CudaRules, RowReadElsewhere) {
  same(R"(
func @s[N](A: f32[N, 100]) -> (C: f32[N, 100]) {
  alloc sum: f32[N] {
    alloc line: f32[N, 100] {
      block line(n: N, k: 100) { line[n, k] = floor(sqrt(A[n, k])) }
      block s(n: N; reduce k: 100) {
        init { sum[n] = 0 }
        sum[n] = sum[n] + line[n, k]
      }
      block c(n: N, k: 100) { C[n, k] = line[n, 99 - k] - sum[n] }
    }
  }
})", "rows_shared", {{{"N", 1}}, {{"N", 3}}});
}

TEST(CudaRules, Product) {
  same(R"(
func @mm[M](A: f32[M, 40], B: f32[40, 70], D: f32[70]) -> (C: f32[M, 70]) {
  alloc acc: f32[M, 70] {
    block mm(m: M, n: 70; reduce k: 40) {
      init { acc[m, n] = 0 }
      acc[m, n] = fma(A[m, k], B[k, n], acc[m, n])
    }
    block out(m: M, n: 70) { C[m, n] = max(acc[m, n] + D[n], 0) }
  }
})", "contraction", {{{"M", 1}}, {{"M", 65}}});
}

TEST(CudaRules, BatchOfProductsWithTransposedOperand) {
  same(R"(
func @mm[B, K](X: f16[B, 9, K], Y: f32[B, 33, K]) -> (C: f32[B, 9, 33]) {
  block mm(b: B, m: 9, n: 33; reduce k: K) {
    init { C[b, m, n] = 0 }
    C[b, m, n] = fma(f32(X[b, m, k]), Y[b, n, k], C[b, m, n])
  }
})", "contraction", {{{"B", 1}, {"K", 1}}, {{"B", 3}, {"K", 50}}, {{"B", 2}, {"K", 0}}});
}

TEST(CudaRules, Convolution) {
  same(R"(
func @conv[H](X: f32[2, H, 8, 3], W: f32[3, 3, 3, 17]) -> (Y: f32[2, H, 8, 17]) {
  block conv(n: 2, y: H, x: 8, o: 17; reduce r: 3, s: 3, i: 3) {
    init { Y[n, y, x, o] = 0 }
    Y[n, y, x, o] = fma((X[n, y + r - 1, x + s - 1, i] if 0 <= y + r - 1 && y + r - 1 < H && 0 <= x + s - 1 && x + s - 1 < 8 else 0), W[r, s, i, o], Y[n, y, x, o])
  }
})", "contraction", {{{"H", 1}}, {{"H", 6}}});
}

// Groups of channels are batches of products.
TEST(CudaRules, GroupedConvolution) {
  same(R"(
func @conv[H](X: f32[2, 24, H, 5], W: f32[32, 6, 3, 3], B: f32[32]) -> (Y: f32[2, 32, H, 5] layout (n, c, y, x) -> (n, y, x, c) in [2, H, 5, 32]) {
  alloc acc: f32[2, 32, H, 5] {
    block conv(n: 2, o: 32, y: H, x: 5; reduce c: 6, r: 3, s: 3) {
      init { acc[n, o, y, x] = 0 }
      acc[n, o, y, x] = fma((X[n, floordiv(o, 8)*6 + c, y + r - 1, x + s - 1] if 0 <= y + r - 1 && y + r - 1 < H && 0 <= x + s - 1 && x + s - 1 < 5 else 0), W[o, c, r, s], acc[n, o, y, x])
    }
    block out(n: 2, o: 32, y: H, x: 5) { Y[n, o, y, x] = max(acc[n, o, y, x] + B[o], 0) }
  }
})", "contraction", {{{"H", 1}}, {{"H", 6}}});
}

// What is open may be large: a mean over pictures of any size is printed, for 32-bit and for 64-bit indices.
TEST(CudaRules, MeanOfOpenSizesIsPrinted) {
  sym::Context c;
  const Function f = parsed(c, R"(
func @mean[N: 0..2147483647, H: 0..2147483647, W: 0..2147483647](X: f32[N, 72, floordiv(H + 7, 8), floordiv(W + 7, 8)] layout (n, c, y, x) -> (n, y, x, c) in [N, floordiv(H + 7, 8), floordiv(W + 7, 8), 72]) -> (Y: f32[N, 72]) {
  alloc acc: f32[N, 72] {
    block sum(n: N, c: 72; reduce y: floordiv(H + 7, 8), x: floordiv(W + 7, 8)) {
      init { acc[n, c] = 0 }
      acc[n, c] = acc[n, c] + X[n, c, y, x]
    }
    block mean(n: N, c: 72) { Y[n, c] = acc[n, c] / index<f32>(max(floordiv(H + 7, 8)*floordiv(W + 7, 8), 1)) }
  }
})");
  cuda::KernelCompiler compiler(c);
  const cuda::Kernel k = compiler.add(f);
  EXPECT_EQ(k.function.rule, "reduce");
  for (const cuda::Launch& l : k.launches) {
    EXPECT_FALSE(l.wide.empty());
    EXPECT_FALSE(l.kernel.narrow.is_const());
  }
}

// --- tensor cores ---

// Tiles small enough for the interpreter. Small integers: sums are exact in any order.
const std::vector<cuda::Choice> kWhole = {{{32, 32, 32, 3, 16, 16, 1}, 1}, {{16, 32, 64, 2, 16, 16, 2}, 1}};
const std::vector<cuda::Choice> kSplit = {{{16, 32, 32, 4, 16, 16, 1}, 2}, {{32, 16, 32, 2, 16, 16, 2}, 3}};

void same_on_tensor_cores(const std::string& source, const std::vector<cuda::Choice>& choices, const std::vector<std::map<std::string, int64_t>>& sizes) {
  sym::Context c;
  const Function f = parsed(c, source);
  std::vector<std::vector<std::vector<std::byte>>> wanted;
  for (const auto& dims : sizes) wanted.push_back(outcome(f, dims));
  for (const cuda::Choice& choice : choices) {
    const cuda::RuleResult r = cuda::tensor_cores_with(f, c, {true, choice.tile, choice.splits});
    ASSERT_TRUE(r.outcome.applied) << r.outcome.reason;
    const Function flat = flatten(r.function);
    for (const std::string& e : verify(flat)) ADD_FAILURE() << e << "\n" << text(flat);
    for (size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(wanted[i], outcome(flat, sizes[i])) << cuda::text(choice.tile, choice.splits) << "\n" << text(flat);
  }
}

TEST(CudaRules, TensorCoresRowMajor) {
  const std::string source = R"(
func @mm[M](A: f16[M, 72], B: f16[72, 40], D: f16[40], R: f16[M, 40]) -> (C: f16[M, 40]) {
  alloc acc: f32[M, 40] {
    block mm(m: M, n: 40; reduce k: 72) {
      init { acc[m, n] = 0 }
      acc[m, n] = fma(f32(A[m, k]), f32(B[k, n]), acc[m, n])
    }
    block out(m: M, n: 40) { C[m, n] = f16(max(acc[m, n] + f32(D[n]) - f32(R[m, n]), 0)) }
  }
})";
  same_on_tensor_cores(source, kWhole, {{{"M", 19}}, {{"M", 0}}});
  same_on_tensor_cores(source, kSplit, {{{"M", 1}}, {{"M", 0}}});
}

TEST(CudaRules, TensorCoresTransposedOperandsInBatches) {
  same_on_tensor_cores(R"(
func @mm[B](X: bf16[B, 40, 24], Y: bf16[B, 17, 40]) -> (C: f32[B, 24, 17]) {
  block mm(b: B, m: 24, n: 17; reduce k: 40) {
    init { C[b, m, n] = 0 }
    C[b, m, n] = fma(f32(X[b, k, m]), f32(Y[b, n, k]), C[b, m, n])
  }
})", {kWhole[0], kSplit[1]}, {{{"B", 2}}});
}

// Nothing is aligned: elements go through registers.
TEST(CudaRules, TensorCoresSymbolicDepth) {
  same_on_tensor_cores(R"(
func @mm[K, N](X: f16[5, K], Y: f16[K, N]) -> (C: f16[5, N]) {
  alloc acc: f32[5, N] {
    block mm(m: 5, n: N; reduce k: K) {
      init { acc[m, n] = 0 }
      acc[m, n] = fma(f32(f16(f32(X[m, k]) + 1)), f32(Y[k, n]), acc[m, n])
    }
    block out(m: 5, n: N) { C[m, n] = f16(acc[m, n] * 0.125) }
  }
})", {kWhole[1], kSplit[0]}, {{{"K", 1}, {"N", 1}}, {{"K", 75}, {"N", 19}}, {{"K", 0}, {"N", 3}}, {{"K", 33}, {"N", 0}}});
}

// Converted on the way into shared memory, 8 at once.
TEST(CudaRules, TensorCoresConvertedOperands) {
  same_on_tensor_cores(R"(
func @mm[M](A: f32[M, 40], B: f32[40, 24], S: f32[24]) -> (C: f16[M, 24]) {
  alloc acc: f32[M, 24] {
    block mm(m: M, n: 24; reduce k: 40) {
      init { acc[m, n] = 0 }
      acc[m, n] = fma(f32(f16(A[m, k])), f32(f16(B[k, n] + S[n])), acc[m, n])
    }
    block out(m: M, n: 24) { C[m, n] = f16(acc[m, n]) }
  }
})", {kWhole[0], kSplit[1]}, {{{"M", 9}}});
}

// Weights of 8 and 4 bits are converted on their way into shared memory.
TEST(CudaRules, TensorCoresDequantised) {
  for (const std::string w : {"i8", "u4"})
    same_on_tensor_cores(R"(
func @mm[M](A: f16[M, 64], B: )" + w + R"([64, 32], S: f16[32]) -> (C: f16[M, 32]) {
  alloc acc: f32[M, 32] {
    alloc weights: f32[64, 32] {
      block dequantize(k: 64, n: 32) { weights[k, n] = (f32(B[k, n]) - 3) * f32(S[n]) }
      block mm(m: M, n: 32; reduce k: 64) {
        init { acc[m, n] = 0 }
        acc[m, n] = fma(f32(A[m, k]), weights[k, n], acc[m, n])
      }
      block out(m: M, n: 32) { C[m, n] = f16(acc[m, n]) }
    }
  }
})", {kWhole[0], kSplit[1]}, {{{"M", 9}}});
}

TEST(CudaRules, TensorCoresTf32) {
  same_on_tensor_cores(R"(
func @mm[M](A: f32[M, 20], B: f32[20, 17]) -> (C: f32[M, 17]) {
  block mm(m: M, n: 17; reduce k: 20) {
    init { C[m, n] = 0 }
    C[m, n] = fma(A[m, k], B[k, n], C[m, n])
  }
})", {{{16, 32, 16, 3, 16, 16, 1}, 1}}, {{{"M", 9}}});
}

TEST(CudaRules, TensorCoresConvolution) {
  same_on_tensor_cores(R"(
func @conv[H](X: f16[2, 16, H, 5] layout (n, c, y, x) -> (n, y, x, c) in [2, H, 5, 16], W: f16[40, 16, 3, 3] layout (o, c, r, s) -> (o, r, s, c) in [40, 3, 3, 16]) -> (Y: f16[2, 40, H, 5] layout (n, c, y, x) -> (n, y, x, c) in [2, H, 5, 40]) {
  alloc acc: f32[2, 40, H, 5] {
    block conv(n: 2, o: 40, y: H, x: 5; reduce c: 16, r: 3, s: 3) {
      init { acc[n, o, y, x] = 0 }
      acc[n, o, y, x] = fma(f32((X[n, c, y + r - 1, x + s - 1] if 0 <= y + r - 1 && y + r - 1 < H && 0 <= x + s - 1 && x + s - 1 < 5 else 0:f16)), f32(W[o, c, r, s]), acc[n, o, y, x])
    }
    block out(n: 2, o: 40, y: H, x: 5) { Y[n, o, y, x] = f16(max(acc[n, o, y, x] - 1000, 0)) }
  }
})", {kWhole[0], kWhole[1]}, {{{"H", 3}}});
}

TEST(CudaRules, TensorCoresGroupedConvolution) {
  same_on_tensor_cores(R"(
func @conv[H](X: f16[2, 32, H, 5] layout (n, c, y, x) -> (n, y, x, c) in [2, H, 5, 32], W: f16[48, 8, 3, 3] layout (o, c, r, s) -> (o, r, s, c) in [48, 3, 3, 8], B: f16[48]) -> (Y: f16[2, 48, H, 5] layout (n, c, y, x) -> (n, y, x, c) in [2, H, 5, 48]) {
  alloc acc: f32[2, 48, H, 5] {
    block conv(n: 2, o: 48, y: H, x: 5; reduce c: 8, r: 3, s: 3) {
      init { acc[n, o, y, x] = 0 }
      acc[n, o, y, x] = fma(f32((X[n, floordiv(o, 12)*8 + c, y + r - 1, x + s - 1] if 0 <= y + r - 1 && y + r - 1 < H && 0 <= x + s - 1 && x + s - 1 < 5 else 0:f16)), f32(W[o, c, r, s]), acc[n, o, y, x])
    }
    block out(n: 2, o: 48, y: H, x: 5) { Y[n, o, y, x] = f16(max(acc[n, o, y, x] + f32(B[o]), 0)) }
  }
})", {kWhole[0], kSplit[1]}, {{{"H", 3}}});
}

}  // namespace
}  // namespace tripod::loop
