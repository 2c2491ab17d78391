// What counts as the same function, and what does not.
#include <gtest/gtest.h>

#include "loop/canonical.h"

namespace tripod::loop {
namespace {

std::string scaled(const std::string& name, const std::string& in, const std::string& i, const std::string& value,
                   const std::string& n = "64") {
  return "func @" + name + "[M: 1..8](" + in + ": f32[M, " + n + "]) -> (out: f32[M, " + n + "]) {\n  block " + name + "(r: M, " + i +
         ": " + n + ") {\n    out[r, " + i + "] = " + value + "\n  }\n}\n";
}

TEST(Canonical, NamesDoNotCount) {
  sym::Context c;
  Canonical canonical(c);
  const std::string first = canonical.text(parse(c, scaled("one", "x", "i", "x[r, i]*2")));
  // The second parse makes another dim: kernels of one module share their dims, so the same one is put in.
  Function second = parse(c, scaled("two", "longer", "column", "longer[r, column]*2"));
  const Function again = parse(c, scaled("one", "x", "i", "x[r, i]*2"));
  const sym::Map dims = {{second.dims[0], again.dims[0]}};
  for (Buffer& b : second.params) b = make_buffer(b->name, b->dtype, {again.dims[0], b->shape[1]}, b->scope);
  second.dims = again.dims;
  second.origins = {{3, "Mul", "layer2/mul"}};
  const std::string a = canonical.text(again);
  EXPECT_NE(a, first) << "dims are arguments: another dim is another function";
  // Bodies still name the old buffers and dims; a rewrite gives both.
  struct Rename : Rewriter {
    Index rewrite_index(Index i) override { return sym::substitute(i, dims); }
    Buffer rewrite_buffer(const Buffer& b) override { return b->name == "out" ? out : in; }
    sym::Map dims;
    Buffer in, out;
  } rename;
  rename.dims = dims, rename.in = second.params[0], rename.out = second.params[1];
  second.body = rename.apply(second.body);
  EXPECT_EQ(canonical.text(second), a);
}

TEST(Canonical, WhatIsComputedCounts) {
  sym::Context c;
  Canonical canonical(c);
  const auto text = [&](const std::string& value, const std::string& n = "64") {
    std::string s = scaled("f", "x", "i", value, n);
    s.replace(s.find("[M: 1..8]"), 9, "");
    for (size_t at; (at = s.find("M")) != std::string::npos;) s.replace(at, 1, "3");
    return canonical.text(parse(c, s));
  };
  const std::string base = text("x[r, i]*2");
  EXPECT_EQ(text("x[r, i]*2"), base);
  EXPECT_NE(text("x[r, i]*3"), base);
  EXPECT_NE(text("x[r, i]+2"), base);
  EXPECT_NE(text("x[r, 63 - i]*2"), base);
  EXPECT_NE(text("x[r, i]*2", "32"), base);
}

TEST(Canonical, NamesLikeOperatorsDoNotMeet) {
  sym::Context c;
  Canonical canonical(c);
  const auto text = [&](const std::string& in, const std::string& op) {
    return canonical.text(parse(c, "func @f(" + in + ": f32[8]) -> (out: f32[8]) {\n  block b(i: 8) {\n    out[i] = " + op +
                                       "(" + in + "[i], 1)\n  }\n}\n"));
  };
  EXPECT_EQ(text("x", "max"), text("y", "max"));
  EXPECT_NE(text("x", "max"), text("x", "min"));
}

}  // namespace
}  // namespace tripod::loop
