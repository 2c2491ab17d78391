// The contraction rule of the CPU back end against the function it schedules, by the interpreter, for every instruction
// set: every access inside its buffer, no races between threads, and sums of small integers, which are exact in any order.
#include "backends/cpu/rules/rules.h"

#include "loop/flatten.h"
#include "loop_testing.h"

namespace tripod::loop {
namespace {

// The elements of a parameter as another layout of it has them, zeros where that has more.
Memory packed(const Buffer& from, const Memory& memory, const Buffer& to, sym::Context& c, sym::Values values) {
  const int64_t bytes = info(to->dtype).bits / 8;
  Memory r;
  r.bytes.resize(static_cast<size_t>(sym::evaluate(storage_size(c, to), values) * bytes));
  std::vector<Index> at;
  int64_t count = 1;
  for (Index d : from->shape) at.push_back(c.var("at")), count *= sym::evaluate(d, values);
  const Index source = offset(c, from, at), target = offset(c, to, at);
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    for (size_t d = at.size(); d-- > 0;) {
      const int64_t extent = sym::evaluate(from->shape[d], values);
      values[at[d]] = rest % extent, rest /= extent;
    }
    std::memcpy(r.bytes.data() + sym::evaluate(target, values) * bytes, memory.bytes.data() + sym::evaluate(source, values) * bytes, static_cast<size_t>(bytes));
  }
  return r;
}

// The last parameter after a run of `now` on what `before` would be given.
std::vector<double> result(const Function& before, const Function& now, const std::map<std::string, int64_t>& dims, sym::Context& c) {
  const sym::Values values = dims_of(before, dims);
  std::vector<Memory> params = made_up_params(before, values);
  std::fill(params.back().bytes.begin(), params.back().bytes.end(), std::byte{0});
  for (size_t i = 0; i < params.size(); ++i)
    if (!(before.params[i] == now.params[i])) params[i] = packed(before.params[i], params[i], now.params[i], c, values);
  const InterpretResult r = interpret(now, values, params);
  for (const std::string& v : r.violations) ADD_FAILURE() << v << "\n" << text(now);
  return values_of(now.params.back()->dtype, params.back());
}

void same(const std::string& source, const std::vector<std::map<std::string, int64_t>>& sizes) {
  for (const cpu::CpuTarget& target : {cpu::cpu_v3(), cpu::cpu_v4()}) {
    sym::Context c;
    const Function f = parsed(c, source);
    std::vector<std::string> log;
    const Function scheduled = cpu::schedule(f, c, target, &log);
    std::string why;
    for (const std::string& l : log) why += l + "\n";
    EXPECT_EQ(scheduled.rule, "contraction") << target.name << "\n" << why;
    const Function flat = flatten(scheduled);
    for (const std::string& e : verify(flat)) ADD_FAILURE() << e << "\n" << text(flat);
    for (const auto& dims : sizes) EXPECT_EQ(result(f, f, dims, c), result(f, flat, dims, c)) << target.name << "\n" << text(flat);
  }
}

std::string product(const std::string& columns, const std::string& depth, bool constant) {
  const std::string shape = "[M, " + columns + "]", all = "i: M, j: " + columns;
  return "func @product[M" + std::string(columns == "N" ? ", N" : "") + "](A: f32[M, " + depth + "], B: " + (constant ? "constant " : "") +
         "f32[" + depth + ", " + columns + "], R: f32" + shape + ") -> (C: f32" + shape + ") {\n  alloc S: f32" + shape + " {\n    block sum(" + all +
         "; reduce k: " + depth + R"() {
      init {
        S[i, j] = 0
      }
      S[i, j] = fma(A[i, k], B[k, j], S[i, j])
    }
    block last()" + all + R"() { C[i, j] = S[i, j] + R[i, j] }
  }
})";
}

// Panels of 8, 16, 24 and 40 columns; one, two and three of 16; columns beyond the end.
TEST(CpuContraction, Columns) {
  for (const char* columns : {"2", "8", "13", "16", "24", "23", "32", "40", "37", "48", "56"})
    same(product(columns, "5", true), {{{"M", 1}}, {{"M", 29}}, {{"M", 0}}});
}

TEST(CpuContraction, FreeColumns) {
  same(product("N", "3", false), {{{"M", 7}, {"N", 1}}, {{"M", 25}, {"N", 50}}, {{"M", 2}, {"N", 0}}, {{"M", 1}, {"N", 33}}});
}

// Blocks of k, the last of them shorter, and tasks of several columns and row tiles.
TEST(CpuContraction, LongSums) {
  same(product("24", "700", true), {{{"M", 3}}, {{"M", 0}}});
  same(product("56", "601", true), {{{"M", 7}}});
}

// A long sum over several iterators: a dilated convolution of one picture row.
TEST(CpuContraction, LongSumsOverTaps) {
  same(R"(
func @taps[W](X: f32[W + 4, 256], K: constant f32[3, 256, 24]) -> (Y: f32[W, 24]) {
  block sum(w: W, o: 24; reduce r: 3, c: 256) {
    init {
      Y[w, o] = 0
    }
    Y[w, o] = fma(X[w + r * 2, c], K[r, c, o], Y[w, o])
  }
})", {{{"W", 9}}, {{"W", 1}}, {{"W", 0}}});
}

// Transposed convolutions: the place in the window moves the weights only.
TEST(CpuContraction, DisjointWindows) {
  for (const std::string outputs : {"5", "1"})
    same("func @up[H, W](X: f32[H, W, 3], K: constant f32[3, " + outputs + ", 2, 3], B: f32[" + outputs + "]) -> (Y: f32[H * 2, W * 3, " + outputs +
         "]) {\n  alloc S: f32[H * 2, W * 3, " + outputs + "] {\n    block sum(y: H * 2, x: W * 3, o: " + outputs + R"(; reduce c: 3) {
      init {
        S[y, x, o] = 0
      }
      S[y, x, o] = fma(X[floordiv(y, 2), floordiv(x, 3), c], K[c, o, mod(y, 2), mod(x, 3)], S[y, x, o])
    }
    block bias(y: H * 2, x: W * 3, o: )" + outputs + R"() { Y[y, x, o] = S[y, x, o] + B[o] }
  }
})", {{{"H", 3}, {"W", 5}}, {{"H", 1}, {"W", 1}}, {{"H", 0}, {"W", 4}}});
}

// Rows that are gathered: a transposed convolution with overlapping windows, and a dilated one with its padding.
TEST(CpuContraction, GatheredRows) {
  same(R"(
func @up[W](X: f32[W, 24], K: constant f32[24, 20, 4]) -> (Y: f32[W * 2, 20]) {
  block sum(x: W * 2, o: 20; reduce c: 24, r: 4) {
    init {
      Y[x, o] = 0
    }
    Y[x, o] = fma((X[floordiv(x - r + 1, 2), c] if mod(x - r + 1, 2) == 0 && 0 <= floordiv(x - r + 1, 2) && floordiv(x - r + 1, 2) < W else 0), K[c, o, r], Y[x, o])
  }
})", {{{"W", 1}}, {{"W", 14}}, {{"W", 0}}});
  same(R"(
func @dilated[W](X: f32[W, 160], K: constant f32[3, 160, 24]) -> (Y: f32[W, 24]) {
  block sum(w: W, o: 24; reduce r: 3, c: 160) {
    init {
      Y[w, o] = 0
    }
    Y[w, o] = fma((X[w + r * 5 - 5, c] if 0 <= w + r * 5 - 5 && w + r * 5 - 5 < W else 0), K[r, c, o], Y[w, o])
  }
})", {{{"W", 9}}, {{"W", 1}}});
}

// Groups of as many channels as columns: of 2 to 4 they are joined to 8 or 6 columns, of 5 and 12 they stay alone, of 16
// and 24 they are whole panels of packed weights.
TEST(CpuContraction, Groups) {
  for (const auto& [size, groups] : std::vector<std::pair<int, int>>{{2, 8}, {2, 3}, {3, 4}, {4, 6}, {5, 4}, {12, 3}, {16, 2}, {24, 2}}) {
    const std::string g = std::to_string(size), all = std::to_string(size * groups);
    same("func @groups[W](X: f32[W, " + all + "], K: constant f32[" + all + ", " + g + ", 3], B: f32[" + all + "]) -> (Y: f32[W, " + all +
         "]) {\n  alloc S: f32[W, " + all + "] {\n    block sum(w: W, o: " + all + "; reduce c: " + g + R"(, r: 3) {
      init {
        S[w, o] = 0
      }
      S[w, o] = fma((X[w + r - 1, floordiv(o, )" + g + ")*" + g + " + c] if 0 <= w + r - 1 && w + r - 1 < W else 0), K[o, c, r], S[w, o])\n    }\n    block bias(w: W, o: " + all + R"() { Y[w, o] = S[w, o] + B[o] }
  }
})", {{{"W", 1}}, {{"W", 29}}, {{"W", 0}}});
  }
}

// Groups with fewer channels than columns.
TEST(CpuContraction, GroupsOfFewChannels) {
  same(R"(
func @groups[W](X: f32[W, 16], K: constant f32[32, 2]) -> (Y: f32[W, 32]) {
  block sum(w: W, o: 32; reduce c: 2) {
    init {
      Y[w, o] = 0
    }
    Y[w, o] = fma(X[w, floordiv(o, 4)*2 + c], K[o, c], Y[w, o])
  }
})", {{{"W", 1}}, {{"W", 14}}, {{"W", 0}}});
}

}  // namespace
}  // namespace tripod::loop
