// verify and its bisection: faults put into each phase are found there, and named.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "driver/verify.h"
#include "graph_opt/pass.h"
#include "loop/ir.h"
#include "onnx_models.h"

namespace tripod {
namespace {

using namespace importer::test;

// y = relu(x w + b) * x w, rows free.
std::string model_file() {
  GraphProto g;
  const auto weight = [&](const char* name, std::vector<int64_t> dims) {
    auto* t = g.add_initializer();
    t->set_name(name);
    t->set_data_type(kF32);
    int64_t count = 1;
    for (int64_t d : dims) t->add_dims(d), count *= d;
    for (int64_t i = 0; i < count; ++i) t->add_float_data(static_cast<float>((i * 7 % 11) - 5) / 8);
  };
  weight("w", {4, 6});
  weight("b", {6});
  const std::string parts = input("x", {"N", "4"}) + g.SerializeAsString() + node("MatMul", {"x", "w"}, {"xw"}) +
                            node("Add", {"xw", "b"}, {"sum"}) + node("Relu", {"sum"}, {"relu"}) +
                            node("Mul", {"relu", "xw"}, {"y"}) + output("y");
  const std::string path = testing::TempDir() + "tripod_verify.onnx";
  std::ofstream(path, std::ios::binary) << model(parts);
  return path;
}

VerifyReport check(const CompileHooks& hooks, bool bisect = true) {
  VerifyOptions o;
  o.compile.model = model_file();
  o.reference = "interpreter";
  o.dims = {{"N", 5}};
  o.bisect = bisect;
  return verify(o, hooks);
}

CompileHooks after(const std::string& phase, std::function<void(PhaseView&)> spoil) {
  return {[=](PhaseView& v) {
            if (v.phase == phase) spoil(v);
          },
          {}};
}

// Stores one more than it should.
struct AddOne : loop::Rewriter {
  using loop::Rewriter::rewrite;
  loop::Stmt rewrite(const loop::Stmt& s) override {
    if (s->kind != loop::StmtKind::store) return loop::Rewriter::rewrite(s);
    return loop::store(s->buffer, s->indices, s->value + loop::constant(s->buffer->dtype, 1), s->guard);
  }
};

void remove_relu(graph_opt::Rewriter& r) {
  for (graph_opt::NodeId n : r.order())
    if (!r.dead(n) && r.g.node(n).op == graph::OpKind::relu && r.begin({n}))
      r.replace(r.result(n), r.g.node(n).operands[0]);
}

TEST(Verify, AGoodModelIsGood) {
  const VerifyReport r = check({});
  EXPECT_TRUE(r.good);
  EXPECT_EQ(r.reference, "the graph interpreter");
  EXPECT_TRUE(r.phases.empty());
  ASSERT_FALSE(r.rows.empty());
  EXPECT_LT(r.rows[0].difference.relative, 1e-6);
}

TEST(Verify, FindsTheImport) {
  const VerifyReport r = check(after("import", [](PhaseView& v) {
    graph::Graph& g = v.module->main();
    for (graph::NodeId n : g.order())
      if (g.node(n).op == graph::OpKind::relu) g.node(n).op = graph::OpKind::neg;
  }));
  EXPECT_FALSE(r.good);
  EXPECT_EQ(r.first_phase, "import");
}

TEST(Verify, NamesTheRewrite) {
  CompileHooks hooks;
  hooks.extra_passes = {{"remove_relu", remove_relu}};
  const VerifyReport r = check(hooks);
  EXPECT_FALSE(r.good);
  EXPECT_EQ(r.first_phase, "simplify");
  ASSERT_EQ(r.phases.size(), 2u);
  EXPECT_TRUE(r.phases[0].good);
  EXPECT_GT(r.rewrite, 0);
  EXPECT_EQ(r.rewrite_text, "remove_relu: relu of node 2 Relu");
}

TEST(Verify, FindsTheLowering) {
  const VerifyReport r = check(after("lower", [](PhaseView& v) {
    loop::Function& f = v.kernels->back().lowered.function;
    f.body = AddOne().apply(f.body);
  }));
  EXPECT_FALSE(r.good);
  EXPECT_EQ(r.first_phase, "lower");
  EXPECT_NE(r.culprit.find("node 3 Mul"), std::string::npos) << r.culprit;
  EXPECT_NE(r.culprit.find("in kernel"), std::string::npos) << r.culprit;
}

// The code is made with the schedule: what the plan launches is spoiled beside it.
void launch_nothing(PhaseView& v) {
  for (cpu::Phase& p : v.kernels->back().kernel.phases) {
    p.code.extent = v.module->sym().constant(0);
    for (cpu::Phase::Code& variant : p.variants) variant.extent = p.code.extent;
  }
}

TEST(Verify, FindsTheSchedule) {
  const VerifyReport r = check(after("schedule", [](PhaseView& v) {
    loop::Function& f = v.kernels->back().kernel.function;
    f.body = AddOne().apply(f.body);
    launch_nothing(v);
  }));
  EXPECT_FALSE(r.good);
  EXPECT_EQ(r.first_phase, "schedule");
}

TEST(Verify, WhatIsLeftIsTheCode) {
  const VerifyReport r = check(after("schedule", launch_nothing));
  EXPECT_FALSE(r.good);
  EXPECT_EQ(r.first_phase, "compiled");
  EXPECT_EQ(r.phases.size(), 5u);
  EXPECT_NE(r.culprit.find("kernel k_"), std::string::npos) << r.culprit;
}

TEST(Compare, CountsInRangesAndUlps) {
  const auto tensor = [](std::vector<float> v) {
    Tensor t{DType::f32, {static_cast<int64_t>(v.size())}, {}};
    const auto* p = reinterpret_cast<const std::byte*>(v.data());
    t.bytes.assign(p, p + v.size() * 4);
    return t;
  };
  const Tensor want = tensor({-1, 0, 3});
  EXPECT_EQ(compare(want, want).error, 0);
  const Difference d = compare(tensor({-1, 0.5f, 3}), want);
  EXPECT_EQ(d.error, 0.5);
  EXPECT_EQ(d.relative, 0.125);
  EXPECT_EQ(d.at, 1);
  EXPECT_EQ(compare(tensor({-1, 0, std::nextafter(3.0f, 4.0f)}), want).ulp, 1);
  EXPECT_EQ(compare(tensor({-std::nextafter(1.0f, 2.0f), -0.0f, 3}), want).ulp, 1);
  EXPECT_TRUE(compare(tensor({-1, NAN, 3}), want).over(1e30));
  EXPECT_FALSE(compare(tensor({-1, 0}), want).problem.empty());
}

}  // namespace
}  // namespace tripod
