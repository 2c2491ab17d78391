// Building and editing: names, user lists, order, liveness.
#include "graph_helpers.h"

namespace tripod::graph {
namespace {

Type f32(Module& m, const Ints& dims) {
  Shape s;
  for (int64_t d : dims) s.push_back(m.sym().constant(d));
  return Type::make(DType::f32, s);
}

TEST(OpTable, TextIsUniqueAndFound) {
  for (int i = 0; i < kNumOps; ++i) EXPECT_EQ(parse_op(info(static_cast<OpKind>(i)).text), static_cast<OpKind>(i));
  EXPECT_EQ(parse_op("no_such"), std::nullopt);
  EXPECT_TRUE(type_is_given(OpKind::reshape));
  EXPECT_FALSE(type_is_given(OpKind::add));
}

TEST(Graph, NamesAreUnique) {
  Module m;
  Graph& g = m.main();
  const ValueId a = g.add_input("x", f32(m, {2})), b = g.add_input("x", f32(m, {2}));
  EXPECT_EQ(g.value(a).name, "x");
  EXPECT_EQ(g.value(b).name, "x.1");
  const ValueId y = g.add(OpKind::add, {a, b});
  g.set_name(y, "x");
  EXPECT_EQ(g.value(y).name, "x.2");
  g.set_name(y, "out");
  g.set_outputs({y}, {"y"});
  EXPECT_EQ(verify(m), std::vector<std::string>{});
  EXPECT_EQ(m.graph(m.add_graph("main")).name(), "main.1");
}

TEST(Graph, UsersFollowEdits) {
  Module m;
  Graph& g = m.main();
  const ValueId x = g.add_input("x", f32(m, {2}));
  const ValueId r = g.add(OpKind::relu, {x});
  const ValueId square = g.add(OpKind::mul, {r, r});
  g.set_outputs({square}, {"y"});
  EXPECT_EQ(g.value(r).users.size(), 2u);
  const ValueId t = g.add(OpKind::tanh, {r});
  g.replace_uses(r, t, g.value(t).producer);  // tanh goes between
  EXPECT_EQ(g.value(r).users.size(), 1u);
  EXPECT_EQ(g.value(t).users.size(), 2u);
  EXPECT_FALSE(verify(m).empty());  // tanh stands behind its user
  g.sort();
  EXPECT_EQ(verify(m), std::vector<std::string>{});
  g.set_operand(g.value(square).producer, 1, x);
  EXPECT_EQ(verify(m), std::vector<std::string>{});
  g.replace_uses(square, x);
  EXPECT_TRUE(g.is_output(x));
  EXPECT_EQ(g.remove_dead(), 3);
  EXPECT_EQ(verify(m), std::vector<std::string>{});
  g.compact();
  EXPECT_EQ(g.num_nodes(), 1);
  EXPECT_EQ(verify(m), std::vector<std::string>{});
  EXPECT_THROW(g.erase(0), InternalError);  // an output's producer
}

TEST(Graph, CompactKeepsTheText) {
  Module m;
  Graph& g = m.main();
  const ValueId x = g.add_input("x", f32(m, {2}));
  const ValueId a = g.add(OpKind::relu, {x});
  g.add(OpKind::exp, {x});
  const ValueId b = g.add(OpKind::add, {a, x});
  g.set_outputs({b}, {"y"});
  EXPECT_EQ(g.remove_dead(), 1);
  const std::string before = text(m);
  g.compact();
  EXPECT_EQ(text(m), before);
  EXPECT_EQ(g.num_nodes(), 3);
  EXPECT_EQ(verify(m), std::vector<std::string>{});
}

TEST(Graph, Constants) {
  Module m;
  Graph& g = m.main();
  EXPECT_EQ(g.scalar_value(g.scalar(DType::f16, 0.1)), 0.0999755859375);
  EXPECT_EQ(g.int_values(g.add_ints({1, -2})), (std::vector<int64_t>{1, -2}));
  EXPECT_EQ(g.float_values(g.add_ints({1, -2})), (std::vector<double>{1, -2}));
  EXPECT_EQ(g.int_values(g.scalar(DType::f32, 1)), std::nullopt);
  const Expr n = m.sym().var("N");
  EXPECT_TRUE(g.is_constant(g.add_exprs({m.sym().constant(3)})));
  const ValueId s = g.add_exprs({n, m.sym().constant(3)});
  EXPECT_TRUE(g.is(s, OpKind::sym_values));
  EXPECT_EQ(g.int_values(s), std::nullopt);
  EXPECT_EQ(g.value(s).contents->at(0), n);
  const float values[] = {2, 2, 3};
  const ValueId c = g.add_constant(DType::f32, {3}, values);
  EXPECT_EQ(g.scalar_value(c), std::nullopt);
  EXPECT_EQ(g.float_values(c)->at(2), 3);
  EXPECT_THROW(g.add_constant(f32(m, {4}), g.bytes(c)), ShapeError);
}

TEST(Graph, ErrorsNameTheNode) {
  Module m;
  Graph& g = m.main();
  const ValueId a = g.add_input("a", f32(m, {2})), b = g.add_input("b", f32(m, {3}));
  g.set_origins({{41, "Add", "sum"}});
  try {
    g.add(OpKind::add, {a, b});
    FAIL();
  } catch (const CompileError& e) {
    EXPECT_EQ(e.diagnostics.errors()[0].site.text(), "node 41 Add 'sum'");
    EXPECT_EQ(first_error(e), "operands 1 and 2 do not broadcast: [2] and [3] differ in dim 0");
  }
  EXPECT_THROW(g.add(OpKind::add, {a}), ShapeError);
  EXPECT_EQ(g.num_nodes(), 2);
}

TEST(Graph, SizesThatOverflowAreErrors) {
  Module m;
  Graph& g = m.main();
  EXPECT_THROW(g.add_input("x", f32(m, {int64_t{1} << 32, int64_t{1} << 32})), ShapeError);
  EXPECT_THROW(g.add_input("x", f32(m, {int64_t{1} << 62})), ShapeError);
  EXPECT_THROW(g.add_input("x", f32(m, {-1})), ShapeError);
  const ValueId a = g.add_input("a", f32(m, {int64_t{1} << 30, 1}));
  const ValueId b = g.add_input("b", f32(m, {1, int64_t{1} << 34}));
  EXPECT_THROW(g.add(OpKind::add, {a, b}), ShapeError);
}

TEST(Graph, UnprovenEqualityBecomesARequirement) {
  auto m = module_of("%a: f32[N, 4], %b: f32[M, 1]", "%y = add(%a, %b)\n%z = mul(%b, %a)", "1 <= N, 1 <= M");
  ASSERT_EQ(m->requirements.size(), 1u);
  EXPECT_EQ(text(m->main().type(m->main().outputs()[0])), "f32[N, 4]");
  EXPECT_EQ(sym::text(m->requirements[0].condition), "M == N");
  EXPECT_EQ(verify(*m), std::vector<std::string>{});
  m->requirements.clear();
  EXPECT_EQ(verify(*m).size(), 2u);
}

// A data symbol is used through types, not through operands: its definer stays, and stays in front.
TEST(Graph, DefinersOfDataSymbolsStay) {
  auto m = parse(R"(graph @main(%x: f32[8]) data 0 <= K <= 8, 0 <= L <= 8 {
  %i = nonzero(%x) {values: [K]} : i64[1, K]
  %j = nonzero(%x) {values: [L]} : i64[1, L]
  %s = sym_values() {values: [K*2]} : i64[1]
  return %s
})");
  Graph& g = m->main();
  EXPECT_EQ(verify(*m), std::vector<std::string>{});
  EXPECT_EQ(g.remove_dead(), 1);
  EXPECT_EQ(verify(*m), std::vector<std::string>{});
  // A use that was made in front of the definer is moved behind it.
  Graph& h = m->main();
  const NodeId definer = h.order()[1];
  const ValueId late = h.add(OpKind::neg, {h.outputs()[0]});
  h.set_outputs({late}, {"y"});
  h.sort();
  const auto order = h.order();
  EXPECT_LT(std::find(order.begin(), order.end(), definer),
            std::find(order.begin(), order.end(), h.value(h.outputs()[0]).producer));
}

}  // namespace
}  // namespace tripod::graph
