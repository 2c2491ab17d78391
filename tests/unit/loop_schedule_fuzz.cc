// Random legal sequences of primitives compute what the compute form does. TRIPOD_FUZZ_SEEDS=first..last runs others.
#include <cstdlib>
#include <random>

#include "loop_schedule_testing.h"

namespace tripod::loop {
namespace {

const char* kPrograms[] = {
    R"(
func @stencils[N: 1.., M: 1..](A: f32[N, M], S: f32[M]) -> (D: f32[N, M]) {
  alloc B: f32[N, M] local
  alloc C: f32[N, M] local
  block b(i: N, j: M) { B[i, j] = A[i, j] + S[j] }
  block c(i: N, j: M) { C[i, j] = (B[i - 1, j] if i >= 1 else 3) + (B[i, j + 1] if j + 1 < M else 5) * 2 }
  block d(i: N, j: M) { D[i, j] = C[i, j] + (C[i, j - 1] if j >= 1 else -1) + B[i, j] }
})",
    R"(
func @softmax[N: 1.., M: 1..](X: f32[N, M]) -> (Y: f32[N, M]) {
  alloc m: f32[N] local
  alloc e: f32[N, M] local
  alloc d: f32[N] local
  block largest(i: N; reduce j: M) {
    init { m[i] = -inf }
    m[i] = max(m[i], X[i, j])
  }
  block shifted(i: N, j: M) { e[i, j] = X[i, j] - m[i] }
  block total(i: N; reduce j: M) {
    init { d[i] = 0 }
    d[i] = d[i] + e[i, j]
  }
  block scaled(i: N, j: M) { Y[i, j] = e[i, j] * 64 - d[i] }
})",
    R"(
func @matmul[N: 1.., M: 1.., K: 1..](A: f32[N, K], B: f32[K, M], bias: f32[M]) -> (Y: f32[N, M]) {
  alloc T: f32[M, K] local
  alloc C: f32[N, M] local
  block transposed(j: M, k: K) { T[j, k] = B[k, j] }
  block mm(i: N, j: M; reduce k: K) {
    init { C[i, j] = bias[j] }
    C[i, j] = fma(A[i, k], T[j, k], C[i, j])
  }
  block relu(i: N, j: M) { Y[i, j] = max(C[i, j], 9) }
})",
    R"(
func @conv[H: 1.., W: 1..](X: f32[2, H, W], K: f32[3, 2, 3]) -> (Z: f32[3, H, floordiv(W + 1, 2)]) {
  alloc P: f32[2, H, W + 2] local
  alloc Y: f32[3, H, floordiv(W + 1, 2)] local
  block pad(c: 2, y: H, x: W + 2) { P[c, y, x] = (X[c, y, x - 1] if x >= 1 && x < W + 1 else 0) }
  block conv(o: 3, y: H, x: floordiv(W + 1, 2); reduce c: 2, r: 3) {
    init { Y[o, y, x] = 0 }
    Y[o, y, x] = fma(P[c, y, x*2 + r], K[o, c, r], Y[o, y, x])
  }
  block relu(o: 3, y: H, x: floordiv(W + 1, 2)) { Z[o, y, x] = max(Y[o, y, x] - 100, 0) }
})",
    R"(
func @middle[N: 1.., M: 1..](A: i32[N, 4, M]) -> (B: i32[M, N], C: i32[M, N]) {
  alloc T: i32[M, N, 4] local
  block move(j: M, i: N, k: 4) { T[j, i, k] = A[i, k, j] }
  block sum(j: M, i: N; reduce k: 4) {
    init { B[j, i] = 0:i32 }
    B[j, i] = B[j, i] + T[j, i, k]
  }
  block square(j: M, i: N) { C[j, i] = B[j, i] * B[j, i] }
})",
    R"(
func @argmax[N: 1.., K: 1..](A: f32[N, K]) -> (V: f32[N], P: i64[N]) {
  block argmax(i: N; reduce k: K) {
    init { V[i] = -inf P[i] = 0:i64 }
    P[i] = select(V[i] < A[i, k], index<i64>(k), P[i])
    V[i] = max(V[i], A[i, k])
  }
})",
    R"(
func @gather[N: 1.., M: 1..](A: f32[N, M], I: i64[N]) -> (Y: f32[N, M + 1]) {
  alloc T: f32[N, M] local
  alloc G: f32[N, M] local
  block twice(i: N, j: M) { T[i, j] = A[i, j] * 2 }
  block rows(i: N, j: M) { let p: 0.. = rem(I[i], 4:i64) { G[i, j] = (T[p, j] if p < N else -1) } }
  block left(i: N, j: M) { Y[i, j] = G[i, j] + T[i, j] }
  block right(i: N, j: 1) { Y[i, j + M] = G[i, 0] }
})",
    R"(
func @norm[N: 1.., M: 1..](X: f32[N, M], g: f32[M]) -> (Y: f32[N, M]) {
  alloc mean: f32[N, 1] local
  alloc sq: f32[N, M] local
  alloc var: f32[N, 1] local
  block sum(i: N, u: 1; reduce j: M) {
    init { mean[i, u] = 0 }
    mean[i, u] = mean[i, u] + X[i, j]
  }
  block square(i: N, j: M) { sq[i, j] = (X[i, j] - mean[i, 0]) * (X[i, j] - mean[i, 0]) }
  block variance(i: N, u: 1; reduce j: M) {
    init { var[i, u] = 0 }
    var[i, u] = var[i, u] + sq[i, j]
  }
  block scale(i: N, j: M) { Y[i, j] = (X[i, j] - mean[i, 0]) * g[j] + var[i, 0] }
})",
    R"(
func @resize[N: 1.., M: 1..](X: f32[N, M]) -> (Y: f32[N*2, M*3]) {
  alloc E: f32[N, M] local
  block scaled(i: N, j: M) { E[i, j] = X[i, j] * 5 }
  block nearest(i: N*2, j: M*3) { Y[i, j] = E[floordiv(i, 2), floordiv(j, 3)] }
})",
};

class Fuzz {
 public:
  Fuzz(const std::string& source, uint32_t seed) : t_(source), random_(seed) { s_.emplace(t_.c, t_.f); }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      primitive();
      if (s_->ok()) continue;
      ++refused;
      s_.emplace(t_.c, t_.f);  // and on without the one that was refused
      s_->replay(done_);
      ASSERT_TRUE(s_->ok()) << s_->outcome().reason << "\n" << text(done_);
      continue;
    }
    ASSERT_TRUE(s_->outcome().applied) << s_->outcome().reason << "\n" << text(done_);
    check();
  }

  int refused = 0, applied = 0;

 private:
  size_t pick(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  Block block() { return s_->blocks()[pick(s_->blocks().size())]; }
  Loop loop(const Block& b) {
    const std::vector<Loop> ls = s_->loops(b);
    return ls.empty() ? Loop{} : ls[pick(ls.size())];
  }

  void primitive() {
    const Block b = block();
    switch (pick(20)) {
      case 0: case 1: case 2: s_->split(loop(b), static_cast<int64_t>(1 + pick(4))); break;
      case 3: case 4: {
        const std::vector<Loop> ls = s_->loops(b);
        const size_t at = pick(ls.size() + 1), n = 2 + pick(2);
        if (at + n <= ls.size()) s_->fuse({ls.begin() + static_cast<long>(at), ls.begin() + static_cast<long>(at + n)});
        break;
      }
      case 5: case 6: case 7: {
        std::vector<Loop> ls = s_->loops(b);
        std::shuffle(ls.begin(), ls.end(), random_);
        ls.resize(std::min<size_t>(ls.size(), 2 + pick(3)));
        s_->reorder(ls);
        break;
      }
      case 8: s_->parallel(loop(b), 3); break;
      case 9: s_->vectorise(loop(b)); break;
      case 10: s_->unroll(loop(b)); break;
      case 11: case 12: case 13: s_->compute_at(b, loop(block())); break;
      case 14: s_->reverse_compute_at(b, loop(block())); break;
      case 15: s_->inline_producer(b); break;
      case 16: s_->cache_read(b, s_->function().params[pick(s_->function().params.size())], Scope::local); break;
      case 17: s_->cache_write(b, Scope::local); break;
      case 18: s_->decompose_reduction(b, loop(b)); break;
      case 19: s_->rfactor(b, loop(b)); break;
    }
    if (s_->ok()) ++applied, done_ = s_->trace();
  }

  void check() {
    const int64_t sizes[] = {1, 2, 3, 5, 7};
    for (int i = 0; i < 2; ++i) {
      Dims d;
      for (const char* n : {"N", "M", "K", "H", "W"}) d[n] = sizes[pick(5)];
      const auto want = outcome(t_.f, d);
      const Function& g = s_->function();
      const Function flat = flatten(g);
      for (const Function* each : {&g, &flat})
        for (const std::string& e : verify(*each)) ADD_FAILURE() << e << "\n" << text(done_) << text(*each);
      ASSERT_TRUE(want == outcome(g, d)) << Scheduled::dims_text(d) << text(done_) << text(g);
      ASSERT_TRUE(want == outcome(flat, d)) << Scheduled::dims_text(d) << text(done_) << text(g) << text(flat);
      ASSERT_FALSE(testing::Test::HasFailure()) << Scheduled::dims_text(d) << text(done_);
    }
  }

  Scheduled t_;
  std::optional<Schedule> s_;
  Trace done_;
  std::mt19937 random_;
};

TEST(ScheduleFuzz, RandomSequences) {
  uint32_t first = 1, last = 54;
  const char* range = std::getenv("TRIPOD_FUZZ_SEEDS");
  ASSERT_TRUE(!range || std::sscanf(range, "%u..%u", &first, &last) == 2);
  int applied = 0, refused = 0;
  for (uint32_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Fuzz f(kPrograms[seed % std::size(kPrograms)], seed);
    f.run(6 + static_cast<int>(seed % 13));
    if (testing::Test::HasFailure()) return;
    applied += f.applied, refused += f.refused;
  }
  EXPECT_GT(applied * 2, refused);
}

}  // namespace
}  // namespace tripod::loop
