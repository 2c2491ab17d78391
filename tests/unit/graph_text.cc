// Text and back, errors of the parser, and what the verifier says.
#include "base/sha256.h"
#include "graph_helpers.h"

namespace tripod::graph {
namespace {

void round_trip(const std::string& t, const std::function<ConstAttr(std::string_view)>& constants = nullptr) {
  auto m = parse(t, constants);
  EXPECT_EQ(text(*m), t);
  EXPECT_EQ(verify(*m), std::vector<std::string>{});
}

TEST(Text, RoundTripOfAModule) {
  round_trip(R"(module 'resnet \'50\''
metadata 'producer' = 'pytorch\n2.9'
graph @main(%x: f32[N, 64, H, `odd dim`], %'odd name:0': f32[M]) where 1 <= N <= 64, M, 1 <= H by 8, 1 <= `odd dim` <= 7 {
  %w = const f32[2, 3] [1, -0, inf, nan, bits:7fc00001, 0.1]
  %k = const f32[64, 64, 3, 3] fill 0.5
  %y = conv(%x, %k) {strides: [1, 1], dilations: [1, 1], pads_begin: [1, 1], pads_end: [1, 1]} : f32[N, 64, H, `odd dim`]  # 12 Conv 'layer1/conv2'
  %z = relu(%y) : f32[N, 64, H, `odd dim`]  # 13 Relu 'layer1/relu2', 14 my.ops::Foo ''
  %a, %b = topk(%'odd name:0') {axis: 0, flag_a: true, flag_b: true} : f32[3], i64[3]
  return %z as 'output', %a
}
require 2 < M : 'topk of 3 elements from a dim of M'
require M == N : 'dims differ' of N, M + 1  # 14 my.ops::Foo ''
)");
}

TEST(Text, RoundTripOfTypes) {
  round_trip(R"(graph @main(%a: f32[2, 3, 4] on cuda:1 order [0, 2, 1], %b: i8[4, 2] quant {scale: [0.1, 2], zero_point: [0, -3], axis: 1, block: 0}, %c: seq<f32[N]>, %d: opt<seq<string[]>>, %e: absent, %f: bf16[4] shard ['x']) where N {
  return
}
)");
}

TEST(Text, RoundTripOfConstants) {
  round_trip(R"(graph @main() {
  %v0 = const f16[3] [0.099975586, 65504, nan]
  %v1 = const bf16[2] [3.3895314e+38, -0]
  %v2 = const f64[2] [0.1, 5e-324]
  %v3 = const i4[3] [-8, 7, 0]
  %v4 = const u64[1] [18446744073709551615]
  %v5 = const b1[3] [true, false, bits:2]
  %v6 = const string[2] ['a\\b', '\x01']
  %v7 = const f8e4m3fn[2] [448, nan]
  %v8 = const i64[0] []
  %v9 = const i64[] [-9223372036854775808]
  return
}
)");
}

TEST(Text, LargeConstantsGoByHash) {
  Module m;
  std::vector<float> values(65, 1.0f);
  values[64] = 2;
  const ValueId c = m.main().add_constant(DType::f32, {65}, values.data());
  m.main().set_outputs({c}, {"c"});
  const std::string t = text(m);
  EXPECT_NE(t.find("sha256:" + sha256(values.data(), 65 * 4)), std::string::npos);
  round_trip(t, [&](std::string_view hash) {
    EXPECT_EQ(hash, sha256(values.data(), 65 * 4));
    return m.main().bytes(c);
  });
  EXPECT_THROW(parse(t), CompileError);
}

// One node of every attribute struct, no field at its default.
TEST(Text, RoundTripOfAttributes) {
  round_trip(R"(graph @main(%x: f32[N, 4, 8, 8], %w: f32[4, 2, 3, 3], %q: f32[N, 2, 4, 8], %s: f32[16, N, 8], %g: f32[2, 96, 8], %r: f32[2, 96, 32]) where 1 <= N {
  %a = cast(%x) {to: f8e5m2, saturate: false} : f8e5m2[N, 4, 8, 8]
  %b = cumsum(%x) {axis: 1, flag_a: true, flag_b: true} : f32[N, 4, 8, 8]
  %c = reduce_sum(%x) {axes: [1, 3], keep_dims: false} : f32[N, 8]
  %d = arg_max(%x) {axes: [3], last_index: true} : i64[N, 4, 8, 1]
  %e = selu(%x) {a: 1.6732632423543772, b: 1.05} : f32[N, 4, 8, 8]
  %f = conv_transpose(%x, %w) {strides: [2, 2], dilations: [1, 1], pads_begin: [1, 0], pads_end: [0, 1], output_padding: [1, 1], group: 2} : f32[N, 4, 17, 17]
  %h, %i = max_pool(%x) {kernel: [3, 3], strides: [2, 2], dilations: [1, 1], pads_begin: [0, 0], pads_end: [1, 1], ceil_mode: true, column_major_indices: true} : f32[N, 4, 4, 4], i64[N, 4, 4, 4]
  %j = lp_pool(%x) {kernel: [2, 2], strides: [2, 2], dilations: [1, 1], pads_begin: [0, 0], pads_end: [0, 0], count_include_pad: true, p: 3} : f32[N, 4, 4, 4]
  %k = transpose(%x) {perm: [0, 2, 3, 1]} : f32[N, 8, 8, 4]
  %l = slice(%x) {starts: [N - 1, 0, 7, 0], steps: [1, 1, -2, 1]} : f32[1, 4, 4, 8]
  %m = pad(%x) {begin: [0, 0, N, 1], end: [0, 0, 1, 1], mode: edge} : f32[N, 4, N + 9, 10]
  %n = resize(%x) {mode: 'cubic', coordinate: 'align_corners', nearest: 'floor', cubic_a: -0.5, extrapolation: 1, exclude_outside: true, antialias: true, scales: [1, 1, 2, nan], roi: [0, 0, 0, 0, 1, 1, 1, 1]} : f32[N, 4, 16, 16]
  %o = attention(%q, %q, %q) {scale: 0.125, causal: true, softcap: 50} : f32[N, 2, 4, 8]
  %p, %t = gru(%s, %g, %r) {direction: bidirectional, hidden: 32, activations: ['sigmoid', 'tanh'], alpha: [0.1], beta: [0.2], clip: 3, input_forget: true, linear_before_reset: true} : f32[16, 2, N, 32], f32[2, N, 32]
  %u = sym_values() {values: [N*2, 3]} : i64[2]
  %v = call(%x, none) {function: 'my_kernel', ints: [1, -2]} : f32[N]
  return %v
}
)");
}

TEST(Text, RoundTripOfBodies) {
  round_trip(R"(graph @main(%c: b1[], %x: f32[N], %n: i64[]) where 0 <= N data 0 <= K {
  %y = if(%c, %x) {graphs: [@then, @else]} : f32[N]
  %a, %b = loop(%n, none, %x, %y) {graphs: [@body], num_carried: 1} : f32[N], f32[K, N]
  return %a, %b
}
graph @then(%p: f32[N]) {
  %r = relu(%p) : f32[N]
  return %r
}
graph @else(%p: f32[N]) {
  return %p
}
graph @body(%i: i64[], %k: b1[], %acc: f32[N], %cap: f32[N]) {
  %s = add(%acc, %cap) : f32[N]
  return %k, %s, %s
}
)");
}

TEST(Text, HandWrittenFilesMayLeaveTypesOut) {
  auto m = parse(R"(// run: simplify
graph @main(%x: f32[N, 3]) where N {
  # a comment
  %c = const f32[] [3]
  %y = add(%x, %c)      # not an origin
  %z = mul(%y,
           %y)
  return %z
})");
  EXPECT_EQ(text(m->main().type(m->main().outputs()[0])), "f32[N, 3]");
}

TEST(Text, SymbolsOfOneName) {
  Module m;
  const Expr a = m.sym().var("N", {1, 8}), b = m.sym().var("N", {1, 9});
  m.symbols = {a, b};
  const ValueId x = m.main().add_input("x", Type::make(DType::f32, {b, a}));
  m.main().set_outputs({x}, {"x"});
  round_trip(text(m));
}

TEST(Text, Errors) {
  auto error = [](const std::string& t) -> std::string {
    try {
      parse(t);
      return "none";
    } catch (const CompileError& e) {
      return e.diagnostics.errors()[0].site.name + ": " + first_error(e);
    }
  };
  const std::string head = "graph @main(%x: f32[N]) where N {\n  ";
  EXPECT_EQ(error(""), "1:1: expected graph @main(...) { ... }");
  EXPECT_EQ(error("graph @main(%x: f32[N]) {\n return %x }"),
            "1:21: no symbol 'N' (symbols are declared by @main's where)");
  EXPECT_EQ(error(head + "%y = foo(%x)\n return %y }"), "2:8: no such op");
  EXPECT_EQ(error(head + "%y = relu(%z)\n return %y }"), "2:13: %z is not defined before its use");
  EXPECT_EQ(error(head + "%x = relu(%x)\n return %x }"), "2:3: %x is defined twice");
  EXPECT_EQ(error(head + "%y = relu(%x) {axis: 1}\n return %y }"), "2:18: relu has no attribute 'axis'");
  EXPECT_EQ(error(head + "%y = reshape(%x)\n return %y }"), "2:8: reshape needs its result type");
  EXPECT_EQ(error(head + "%y = relu(%x) : f32[3, N]\n return %y }"),
            "2:8: result 1 is f32[N], not f32[3, N] as given");
  EXPECT_EQ(error(head + "%y = const f32[2] [1]\n return %y }"), "2:21: expected 2 elements, got 1");
  EXPECT_EQ(error(head + "%y = const u8[1] [256]\n return %y }"), "2:21: expected an element of type u8");
  EXPECT_EQ(error(head + "%y = if(%x) {graphs: [@a, @b]} : f32[N]\n return %y }"), "2:25: no graph @a");
  EXPECT_EQ(error(head + "return %x"), "2:12: expected '}'");
  EXPECT_EQ(error("graph @main(%x: f32[1 +]) {\n return %x }").substr(0, 29), "1:21: not an expression: expe");
  EXPECT_EQ(error("graph @main('x"), "1:15: a string without its closing quote");
}

// Damaged text ends in a CompileError that has a place, or is a module; nothing else.
TEST(Text, DamageIsAnError) {
  const std::string good = R"(module 'm'
graph @main(%x: f32[N, 4, 8], %c: b1[], %q: i8[4] quant {scale: [1], zero_point: [0], axis: -1, block: 0}) where 1 <= N <= 9 data 0 <= K {
  %w = const f32[4, 4, 3] fill 1
  %i = const i64[2] [1, -1]
  %y = conv(%x, %w) {strides: [1], dilations: [1], pads_begin: [1], pads_end: [1]} : f32[N, 4, 8]  # 3 Conv 'a'
  %s = sym_values() {values: [N, 4, 8]} : i64[3]
  %g = gather(%s, %i) {axis: 0} : i64[2]
  %t = tile(%g) : i64[4]
  %p = pad(%t) {begin: [1], end: [2]} : i64[7]
  %l = slice(%p) {starts: [6], steps: [-2]} : i64[4]
  %d = scatter_elements(%l, %i, %g) {axis: 0} : i64[4]
  %f = cast(%d) {to: f32} : f32[4]
  %a, %b = max_pool(%y) {kernel: [2], strides: [2], dilations: [1], pads_begin: [0], pads_end: [0]} : f32[N, 4, 4], i64[N, 4, 4]
  %z = if(%c, %x) {graphs: [@t, @t2]} : f32[N, 4, 8]
  return %z, %f as 'o'
}
graph @t(%x: f32[N, 4, 8]) {
  return %x
}
graph @t2(%x: f32[N, 4, 8]) {
  return %x
}
require 1 <= N : 'w' of N, N*2
)";
  parse(good);
  const std::string alphabet = "%@'`#[]{}():,=<>-0123456789NKaf .\n";
  uint32_t state = 1;
  auto random = [&](size_t n) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % n;
  };
  int errors = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string t = good;
    for (size_t k = 1 + random(3); k > 0; --k) {
      const size_t at = random(t.size());
      switch (random(4)) {
        case 0: t.erase(at, 1 + random(6)); break;
        case 1: t.insert(at, 1, alphabet[random(alphabet.size())]); break;
        case 2: t[at] = alphabet[random(alphabet.size())]; break;
        default: t.insert(at, t.substr(random(t.size()), 1 + random(20)));
      }
    }
    try {
      auto m = parse(t);
      verify(*m);
      EXPECT_EQ(text(*parse(text(*m))), text(*m)) << t;
    } catch (const CompileError& e) {
      ++errors;
      EXPECT_NE(e.diagnostics.errors()[0].site.name, "") << t;
    } catch (const std::exception& e) {
      FAIL() << e.what() << "\n" << t;
    }
  }
  EXPECT_GT(errors, 500);
}

TEST(Verify, Messages) {
  auto m = module_of("%x: f32[N]", "%a = relu(%x)\n%y = exp(%a)", "N");
  Graph& g = m->main();
  const NodeId relu = g.order()[1];
  g.node(relu).attr = AxisAttr{};
  EXPECT_EQ(verify(*m), std::vector<std::string>{"@main: node 1 (relu) has the wrong attribute struct"});
  g.node(relu).attr = NoAttr{};
  g.value(g.node(relu).results[0]).users.clear();
  EXPECT_EQ(verify(*m), std::vector<std::string>{"@main: the user list of %a is not true"});
  g.value(g.node(relu).results[0]).users = {2};
  g.value(g.node(relu).results[0]).type.dtype = DType::f64;
  EXPECT_EQ(verify(*m).size(), 2u);  // relu's result, exp's result
  g.value(g.node(relu).results[0]).type.dtype = DType::f32;
  m->symbols.clear();
  EXPECT_EQ(verify(*m), std::vector<std::string>{"symbol N is used but is neither an input's nor a data symbol"});
}

}  // namespace
}  // namespace tripod::graph
