#include "loop/flatten.h"

#include "loop_testing.h"

namespace tripod::loop {
namespace {

// Flattens, checks that the outcome is the same for every vector of dims, and returns the text of the body.
std::string flattened(const std::string& source, const std::vector<std::map<std::string, int64_t>>& cases) {
  sym::Context c;
  const Function f = parsed(c, source);
  const Function flat = flatten(f);
  for (const std::string& e : verify(flat)) ADD_FAILURE() << e << "\n" << text(flat);
  visit(flat.body, [&](const Stmt& s) { EXPECT_NE(s->kind, StmtKind::block); });
  for (const auto& dims : cases) EXPECT_EQ(outcome(f, dims), outcome(flat, dims)) << text(flat);
  return text(flat.body);
}

TEST(Flatten, ComputeFormGetsSerialLoops) {
  const std::string t = flattened(R"(
func @f[N: 1.., K: 0..](A: f32[N, K]) -> (B: f32[N]) {
  block sum(n: N; reduce k: K) {
    init { B[n] = 0 }
    B[n] = B[n] + A[n, k]
  }
})", {{{"N", 3}, {"K", 5}}, {{"N", 1}, {"K", 0}}});
  EXPECT_EQ(t,
            "for n in 0..N {\n"
            "  B[n] = 0\n"
            "  for k in 0..K {\n"
            "    B[n] = B[n] + A[n, k]\n"
            "  }\n"
            "}\n");
}

TEST(Flatten, VectorTailBecomesARemainder) {
  const std::string t = flattened(R"(
func @f[N: 1..](A: f32[N]) -> (B: f32[N]) {
  for chunk in 0..floordiv(N + 7, 8) parallel grain 4 {
    for lane in 0..8 vector {
      block copy(n: N = chunk*8 + lane) where chunk*8 + lane < N {
        B[n] = A[n] * 2
      }
    }
  }
})", {{{"N", 1}}, {{"N", 7}}, {{"N", 8}}, {{"N", 19}}});
  EXPECT_EQ(t,
            "for chunk in 0..floordiv(N, 8) parallel grain 4 {\n"
            "  for lane in 0..8 vector {\n"
            "    B[chunk*8 + lane] = A[chunk*8 + lane] * 2\n"
            "  }\n"
            "}\n"
            "if floordiv(N, 8) < floordiv(N + 7, 8) {\n"
            "  for lane in 0..mod(N, 8) {\n"
            "    B[lane + floordiv(N, 8)*8] = A[lane + floordiv(N, 8)*8] * 2\n"
            "  }\n"
            "}\n");
}

TEST(Flatten, StaticTailIsStraight) {
  const std::string t = flattened(R"(
func @f(A: f32[21]) -> (B: f32[21]) {
  for chunk in 0..3 {
    for lane in 0..8 vector {
      block copy(n: 21 = chunk*8 + lane) where chunk*8 + lane < 21 {
        B[n] = A[n] * 2
      }
    }
  }
})", {{}});
  EXPECT_EQ(t,
            "for chunk in 0..2 {\n"
            "  for lane in 0..8 vector {\n"
            "    B[chunk*8 + lane] = A[chunk*8 + lane] * 2\n"
            "  }\n"
            "}\n"
            "for lane in 0..5 {\n"
            "  B[lane + 16] = A[lane + 16] * 2\n"
            "}\n");
}

TEST(Flatten, RegisterTile) {
  const std::string t = flattened(R"(
func @mm[M: 1.., N: 1.., K: 1..](A: f32[M, K], B: f32[K, N]) -> (C: f32[M, N]) {
  for m0 in 0..floordiv(M + 3, 4) parallel {
    for n0 in 0..floordiv(N + 7, 8) {
      alloc acc: reg f32[4, 8] {
        for k in 0..K {
          for m1 in 0..4 unrolled {
            for n1 in 0..8 vector {
              block mm(m: M = m0*4 + m1, n: N = n0*8 + n1; reduce kk: K = k) where m0*4 + m1 < M && n0*8 + n1 < N {
                init { acc[m - m0*4, n - n0*8] = 0 }
                acc[m - m0*4, n - n0*8] = fma(A[m, kk], B[kk, n], acc[m - m0*4, n - n0*8])
              }
            }
          }
        }
        for m1 in 0..4 unrolled {
          for n1 in 0..8 vector {
            block back(m: M = m0*4 + m1, n: N = n0*8 + n1) where m0*4 + m1 < M && n0*8 + n1 < N {
              C[m, n] = acc[m - m0*4, n - n0*8]
            }
          }
        }
      }
    }
  }
})", {{{"M", 1}, {"N", 3}, {"K", 2}}, {{"M", 4}, {"N", 8}, {"K", 3}}, {{"M", 9}, {"N", 21}, {"K", 5}}});
  // A full tile tests nothing inside, and the tests for it stand right inside the loops that they depend on.
  const std::string full =
      "for m0 in 0..floordiv(M + 3, 4) parallel {\n"
      "  if m0*4 + 3 < M {\n"
      "    for n0 in 0..floordiv(N + 7, 8) {\n"
      "      if n0*8 + 7 < N {\n"
      "        alloc acc: reg f32[4, 8] {\n"
      "          for m1 in 0..4 unrolled {\n"
      "            for n1 in 0..8 vector {\n"
      "              acc[m1, n1] = 0\n"
      "            }\n"
      "          }\n"
      "          for k in 0..K {\n"
      "            for m1 in 0..4 unrolled {\n"
      "              for n1 in 0..8 vector {\n"
      "                acc[m1, n1] = fma(A[m0*4 + m1, k], B[k, n0*8 + n1], acc[m1, n1])\n"
      "              }\n"
      "            }\n"
      "          }\n"
      "          for m1 in 0..4 unrolled {\n"
      "            for n1 in 0..8 vector {\n"
      "              C[m0*4 + m1, n0*8 + n1] = acc[m1, n1]\n"
      "            }\n"
      "          }\n"
      "        }\n"
      "      } else {\n";
  EXPECT_EQ(t.substr(0, full.size()), full);
  // Where columns are left over, rows are still full and columns masked.
  EXPECT_NE(t.find("fma(A[m0*4 + m1, k], (B[k, n0*8 + n1] if n0*8 + n1 < N else 0)"), std::string::npos) << t;
}

TEST(Flatten, InitStaysWhereItCannotMove) {
  // The fused loop drives a spatial and a reduce iterator: the init is under a test of the reduce iterator.
  const std::string t = flattened(R"(
func @f(A: f32[3, 4]) -> (B: f32[3]) {
  for i in 0..12 {
    block sum(n: 3 = floordiv(i, 4); reduce k: 4 = mod(i, 4)) {
      init { B[n] = 0 }
      B[n] = B[n] + A[n, k]
    }
  }
})", {{}});
  EXPECT_EQ(t,
            "for i in 0..12 {\n"
            "  if mod(i, 4) == 0 {\n"
            "    B[floordiv(i, 4)] = 0\n"
            "  }\n"
            "  B[floordiv(i, 4)] = B[floordiv(i, 4)] + A[floordiv(i, 4), mod(i, 4)]\n"
            "}\n");
}

TEST(Flatten, InitOfInnerSpatialLoopsGetsItsOwn) {
  const std::string t = flattened(R"(
func @f[N: 1.., K: 1..](A: f32[K, N]) -> (B: f32[N]) {
  for k in 0..K {
    for n0 in 0..floordiv(N + 3, 4) {
      for n1 in 0..4 vector {
        block sum(n: N = n0*4 + n1; reduce r: K = k) where n0*4 + n1 < N {
          init { B[n] = 1 }
          B[n] = B[n] + A[r, n]
        }
      }
    }
  }
})", {{{"N", 3}, {"K", 2}}, {{"N", 8}, {"K", 1}}, {{"N", 9}, {"K", 3}}});
  EXPECT_EQ(t.find("for n0"), 0u) << t;
}

TEST(Flatten, SerialTailIsALimit) {
  const std::string t = flattened(R"(
func @f[N: 1..](A: f32[N]) -> (B: f32[N]) {
  for i in 0..floordiv(N + 4, 5) {
    for j in 0..5 {
      block copy(n: N = i*5 + j) where i*5 + j < N {
        B[n] = A[n]
      }
    }
  }
})", {{{"N", 1}}, {{"N", 10}}, {{"N", 13}}});
  EXPECT_EQ(t,
            "for i in 0..floordiv(N + 4, 5) {\n"
            "  for j in 0..min(N - i*5, 5) {\n"
            "    B[i*5 + j] = A[i*5 + j]\n"
            "  }\n"
            "}\n");
}

TEST(Flatten, GuardsMoveOutOfTheLoopsTheyDoNotUse) {
  const std::string t = flattened(R"(
func @f[N: 1..](A: f32[N, 6]) -> (B: f32[N, 6]) {
  for i in 0..floordiv(N + 1, 2) {
    for j in 0..2 unrolled {
      for k in 0..6 {
        block copy(n: N = i*2 + j, m: 6 = k) where i*2 + j < N {
          B[n, m] = A[n, m]
        }
      }
    }
  }
})", {{{"N", 1}}, {{"N", 4}}, {{"N", 5}}});
  EXPECT_EQ(t.find("for k in 0..6 {\n      if"), std::string::npos) << t;
}

TEST(Flatten, ProvedGuardsAndSmallLoopsVanish) {
  const std::string t = flattened(R"(
func @f(A: f32[16]) -> (B: f32[16]) {
  for z in 0..1 {
    for i in 0..4 {
      for j in 0..4 vector {
        block copy(n: 16 = z*16 + i*4 + j) where z*16 + i*4 + j < 16 {
          B[n] = (A[n] if n < 16 else 7) if 0 <= n
        }
      }
    }
  }
})", {{}});
  EXPECT_EQ(t,
            "for i in 0..4 {\n"
            "  for j in 0..4 vector {\n"
            "    B[i*4 + j] = A[i*4 + j]\n"
            "  }\n"
            "}\n");
}

TEST(Flatten, SplitReduction) {
  const std::string t = flattened(R"(
func @f[N: 1.., K: 1..](A: f32[N, K]) -> (B: f32[N]) {
  for n in 0..N parallel {
    for k0 in 0..floordiv(K + 7, 8) {
      for k1 in 0..8 unrolled {
        block sum(i: N = n; reduce k: K = k0*8 + k1) where k0*8 + k1 < K {
          init { B[i] = 0 }
          B[i] = B[i] + A[i, k]
        }
      }
    }
  }
})", {{{"N", 3}, {"K", 5}}, {{"N", 2}, {"K", 16}}, {{"N", 2}, {"K", 19}}});
  EXPECT_EQ(t,
            "for n in 0..N parallel {\n"
            "  B[n] = 0\n"
            "  for k0 in 0..floordiv(K, 8) {\n"
            "    for k1 in 0..8 unrolled {\n"
            "      B[n] = B[n] + A[n, k0*8 + k1]\n"
            "    }\n"
            "  }\n"
            "  if floordiv(K, 8) < floordiv(K + 7, 8) {\n"
            "    for k1 in 0..mod(K, 8) {\n"
            "      B[n] = B[n] + A[n, k1 + floordiv(K, 8)*8]\n"
            "    }\n"
            "  }\n"
            "}\n");
}

}  // namespace
}  // namespace tripod::loop
