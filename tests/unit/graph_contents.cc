// Symbolic contents: inputs, nodes that end in %y, the elements of %y.
#include "graph_helpers.h"

namespace tripod::graph {
namespace {

const std::string kWhere = "1 <= N <= 64, 1 <= H <= 4096, 1 <= W";
const std::string kSource = "%s = sym_values() {values: [N, 3, H, W]} : i64[4]\n";

std::string of(const std::string& nodes) { return contents_text("%x: f32[N]", kSource + nodes, kWhere); }

struct Row {
  std::string nodes, want;
};
void check(const std::vector<Row>& rows) {
  for (const Row& r : rows) EXPECT_EQ(of(r.nodes), r.want) << r.nodes;
}

TEST(Contents, Arithmetic) {
  check({
      {"%y = add(%s, %s)", "[N*2, 6, H*2, W*2]"},
      {"%c = const i64[] [2]\n%y = div(%s, %c)", "[floordiv(N, 2), 1, floordiv(H, 2), floordiv(W, 2)]"},
      {"%c = const i64[] [-7]\n%d = const i64[] [2]\n%y = div(%c, %d)", "[-3]"},
      {"%c = const i64[] [-7]\n%d = const i64[] [2]\n%y = mod(%c, %d)", "[1]"},
      {"%c = const i64[] [-7]\n%d = const i64[] [2]\n%y = fmod(%c, %d)", "[-1]"},
      {"%c = const i64[] [0]\n%y = div(%s, %c)", "none"},
      {"%c = const i64[1] [2]\n%y = mul(%s, %c)", "[N*2, 6, H*2, W*2]"},
      {"%y = neg(%s)", "[-N, -3, -H, -W]"},
      {"%n = neg(%s)\n%y = abs(%n)", "[N, 3, H, W]"},
      {"%c = const i64[] [100]\n%y = max(%s, %c)", "[100, 100, max(H, 100), max(W, 100)]"},
      {"%y = equal(%s, %s)", "[1, 1, 1, 1]"},
      {"%c = const i64[4] [-1, 3, -1, 4096]\n%y = less(%c, %s)", "[1, 0, 1, 4096 < W]"},
      {"%c = const i64[4] [-1, 3, -1, -1]\n%m = const i64[] [-1]\n%e = equal(%c, %m)\n%y = where(%e, %s, %c)",
       "[N, 3, H, W]"},
      {"%c = const i8[1] [100]\n%y = add(%c, %c)", "none"},
      {"%c = const i64[1] [9223372036854775807]\n%y = add(%c, %c)", "none"},
      {"%c = cast(%s) {to: i32}\n%y = mul(%c, %c)", "[N*N, 9, H*H, W*W]"},
      {"%c = cast(%s) {to: b1}\n%y = not(%c)", "[0, 0, 0, 0]"},
      {"%y = cast(%s) {to: i8}", "none"},
  });
}

TEST(Contents, Moves) {
  check({
      {"%i = const i64[] [-1]\n%y = gather(%s, %i) {axis: 0}", "[W]"},
      {"%i = const i64[2] [2, 0]\n%y = gather(%s, %i) {axis: 0}", "[H, N]"},
      {"%y = slice(%s) {starts: [2], steps: [1]} : i64[2]", "[H, W]"},
      {"%y = slice(%s) {starts: [3], steps: [-1]} : i64[4]", "[W, H, 3, N]"},
      {"%c = const i64[1] [7]\n%y = concat(%c, %s, %c) {axis: 0}", "[7, N, 3, H, W, 7]"},
      {"%r = reshape(%s) : i64[2, 2]\n%y = transpose(%r) {perm: [1, 0]}", "[N, H, 3, W]"},
      {"%r = reshape(%s) : i64[2, 2]\n%y = concat(%r, %r) {axis: 1}", "[N, 3, N, 3, H, W, H, W]"},
      {"%r = reshape(%s) : i64[4, 1]\n%y = broadcast(%r) : i64[4, 2]", "[N, N, 3, 3, H, H, W, W]"},
      {"%r = reshape(%s) : i64[2, 2]\n%y = tile(%r) : i64[2, 4]", "[N, 3, N, 3, H, W, H, W]"},
      {"%r = reshape(%s) : i64[2, 2]\n%i = const i64[1] [1]\n%y = gather(%r, %i) {axis: 1}", "[3, W]"},
      {"%y = pad(%s) {begin: [1], end: [1]}", "[0, N, 3, H, W, 0]"},
      {"%a = const i64[] [1]\n%b = const i64[] [2]\n%y = iota(%a, %b) : i64[3]", "[1, 3, 5]"},
      {"%i = const i64[1, 1] [-1]\n%u = const i64[1] [5]\n%y = scatter_nd(%s, %i, %u) {axis: 0}", "[N, 3, H, 5]"},
      {"%i = const i64[1] [0]\n%u = const i64[1] [5]\n%y = scatter_elements(%s, %i, %u) {axis: 0}", "[5, 3, H, W]"},
  });
}

TEST(Contents, Reductions) {
  check({
      {"%y = reduce_prod(%s) {axes: [0], keep_dims: false}", "[H*N*W*3]"},
      {"%r = reshape(%s) : i64[2, 2]\n%y = reduce_sum(%r) {axes: [1]}", "[N + 3, H + W]"},
      {"%r = reshape(%s) : i64[2, 2]\n%y = reduce_max(%r) {axes: [0]}", "[max(H, N), max(W, 3)]"},
      {"%e = const i64[0] []\n%y = reduce_prod(%e) {axes: [0], keep_dims: false}", "[1]"},
      {"%e = const i64[0] []\n%y = reduce_max(%e) {axes: [0], keep_dims: false}", "none"},
  });
}

// Sizes that exporters compute in floating point.
TEST(Contents, ThroughFloats) {
  const std::string f = "%f = cast(%s) {to: f32}\n%i = const i64[2] [2, 3]\n%h = gather(%f, %i) {axis: 0}\n";
  check({
      {f + "%c = const f32[] [2]\n%m = mul(%h, %c)\n%y = cast(%m) {to: i64}", "[H*2, W*2]"},
      {f + "%c = const f32[] [0.5]\n%m = mul(%h, %c)\n%d = floor(%m)\n%y = cast(%d) {to: i64}",
       "[floordiv(H, 2), floordiv(W, 2)]"},
      {f + "%c = const f32[2] [1.5, 1]\n%m = mul(%h, %c)\n%d = ceil(%m)\n%y = cast(%d) {to: i32}",
       "[H + floordiv(H + 1, 2), W]"},
      {f + "%c = const f32[] [3]\n%m = div(%h, %c)\n%y = cast(%m) {to: i64}", "[floordiv(H, 3), floordiv(W, 3)]"},
      // The number of elements of a Range over floats.
      {f + "%c = const f32[] [0.5]\n%o = const f32[] [1]\n%z = const f32[] [0]\n%l = sub(%h, %o)\n%n = div(%l, %c)\n"
           "%d = ceil(%n)\n%m = max(%d, %z)\n%y = cast(%m) {to: i64}", "[H*2 - 2, W*2 - 2]"},
      {f + "%c = const f32[] [0.5]\n%m = add(%h, %c)\n%d = floor(%m)\n%y = cast(%d) {to: i64}", "[H, W]"},
      // 0.3 is no small dyadic number: what the float product rounds to cannot be said.
      {f + "%c = const f32[] [0.3]\n%m = mul(%h, %c)\n%d = floor(%m)\n%y = cast(%d) {to: i64}", "none"},
      // A rounded quotient that is scaled again is not exact.
      {f + "%c = const f32[] [3]\n%m = div(%h, %c)\n%n = mul(%m, %c)\n%y = cast(%n) {to: i64}", "none"},
  });
  auto m = module_of("%x: f32[N]", kSource + f + "%c = const f32[] [2]\n%m = mul(%h, %c)\n%y = cast(%m) {to: i64}",
                     kWhere);
  // H is bounded, W is not: its exactness is required.
  ASSERT_FALSE(m->requirements.empty());
  for (const auto& r : m->requirements) EXPECT_EQ(sym::text(r.condition).find('H'), std::string::npos);
}

}  // namespace
}  // namespace tripod::graph
