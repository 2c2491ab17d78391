// What the tests of src/lower share: a module from text is lowered as one group, and its loop function is run by the
// interpreter in compute form and as flattened loops. References are plain C++ in the tests.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "loop/expand_math.h"
#include "loop/flatten.h"
#include "loop/interpreter.h"
#include "loop/scalar.h"
#include "lower/lower.h"

namespace tripod::lower {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<double> v;

  Tensor() = default;
  explicit Tensor(std::vector<int64_t> s, std::vector<double> values = {}) : shape(std::move(s)), v(std::move(values)) {
    if (v.empty()) v.resize(static_cast<size_t>(count()));
    EXPECT_EQ(static_cast<int64_t>(v.size()), count());
  }
  int64_t count() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
  int64_t offset(const std::vector<int64_t>& at) const {
    int64_t o = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (at[d] < 0 || at[d] >= shape[d]) {
        ADD_FAILURE() << "index " << at[d] << " of dim " << d;
        return 0;
      }
      o = o * shape[d] + at[d];
    }
    return o;
  }
  double& operator[](const std::vector<int64_t>& at) { return v[static_cast<size_t>(offset(at))]; }
  double operator[](const std::vector<int64_t>& at) const { return v[static_cast<size_t>(offset(at))]; }
};

// Calls f for every index of a shape, in order.
inline void each(const std::vector<int64_t>& shape, const std::function<void(const std::vector<int64_t>&)>& f) {
  std::vector<int64_t> at(shape.size(), 0);
  for (int64_t d : shape)
    if (d == 0) return;
  for (;;) {
    f(at);
    size_t d = shape.size();
    while (d > 0 && ++at[d - 1] == shape[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

inline Tensor fill(std::vector<int64_t> shape, const std::function<double(const std::vector<int64_t>&)>& f) {
  Tensor t(std::move(shape));
  each(t.shape, [&](const auto& at) { t[at] = f(at); });
  return t;
}

// Numbers in [low, high) that f32 holds exactly.
inline Tensor made_up(std::vector<int64_t> shape, uint32_t seed = 1, double low = -2, double high = 2) {
  uint32_t state = seed * 2654435761u + 12345;
  return fill(std::move(shape), [&](const auto&) {
    state = state * 1664525u + 1013904223u;
    return static_cast<double>(static_cast<float>(low + (high - low) * (state >> 8) / 16777216.0));
  });
}

struct Outcome {
  std::vector<Tensor> results;
  std::vector<loop::InterpretResult::CheckFailure> failed_checks;
  Numbering sites;
  std::string text;  // of the function
};

struct Model {
  std::string inputs;                   // "%x: f32[N, 4], %i: i64[2]"
  std::string body;                     // nodes
  std::string results = "%y";           // "%y, %i"
  std::map<std::string, int64_t> dims = {};
  std::string where = {};               // of the symbols; those it does not name may be anything

  std::string clause() const {
    std::string s = where;
    for (const auto& [name, value] : dims)
      if (where.find(name) == std::string::npos) s += (s.empty() ? "0 <= " : ", 0 <= ") + name;
    return s.empty() ? s : " where " + s;
  }
};

inline graph::Group group_of(const graph::Graph& g) {
  graph::Group group;
  const auto add_input = [&](graph::ValueId v) {
    if (std::find(group.inputs.begin(), group.inputs.end(), v) == group.inputs.end()) group.inputs.push_back(v);
  };
  const auto is_source = [&](graph::ValueId v) {
    return g.is(v, graph::OpKind::input) || g.is(v, graph::OpKind::constant);
  };
  for (graph::ValueId v : g.inputs()) add_input(v);
  for (graph::NodeId n : g.order()) {
    if (graph::has(g.node(n).op, graph::kSource)) continue;
    group.nodes.push_back(n);
    for (graph::ValueId v : g.node(n).operands)
      if (v != graph::kNoValue && is_source(v)) add_input(v);
  }
  group.outputs = g.outputs();
  return group;
}

inline loop::Memory memory_of(const Tensor& t, DType dtype) {
  loop::Memory m;
  m.bytes.resize(static_cast<size_t>(byte_size(dtype, t.count())));
  for (int64_t i = 0; i < t.count(); ++i)
    loop::write_element(dtype, m.bytes.data(), i, loop::bits_from_double(dtype, t.v[static_cast<size_t>(i)]));
  return m;
}

using LowerGroup = std::function<Lowered(const graph::Graph&, const graph::Group&, Numbering&)>;
inline Outcome run(const Model& model, const std::vector<Tensor>& args, const LowerGroup& by = nullptr) {
  const auto m = graph::parse("graph @main(" + model.inputs + ")" + model.clause() + " {\n" + model.body + "\n return " +
                              model.results + "\n}\n");
  for (const std::string& e : graph::verify(*m)) ADD_FAILURE() << e;
  const graph::Graph& g = m->main();
  Outcome out;
  const Lowered lowered = by ? by(g, group_of(g), out.sites) : lower_group(g, group_of(g), out.sites);
  out.text = loop::text(lowered.function);
  for (const std::string& e : loop::verify(lowered.function)) ADD_FAILURE() << e << "\n" << out.text;
  const loop::Function f = loop::expand_math(lowered.function);
  sym::Values dims;
  for (sym::Expr d : f.dims) {
    EXPECT_TRUE(model.dims.count(d->name)) << "free symbol " << d->name << "\n" << out.text;
    dims[d] = model.dims.count(d->name) ? model.dims.at(d->name) : 1;
  }

  std::vector<loop::Memory> params;
  for (size_t i = 0; i < f.params.size(); ++i) {
    const graph::ValueId v = lowered.params[i];
    const graph::Type& t = g.type(v);
    std::vector<int64_t> shape;
    for (sym::Expr d : t.shape) shape.push_back(sym::evaluate(d, dims));
    Tensor value(shape);
    if (g.is_constant(v)) {
      value.v = g.float_values(v) ? *g.float_values(v) : std::vector<double>();
      if (const auto ints = g.int_values(v)) value.v.assign(ints->begin(), ints->end());
    } else if (i + static_cast<size_t>(f.num_outputs) < f.params.size()) {
      const auto at = std::find(g.inputs().begin(), g.inputs().end(), v) - g.inputs().begin();
      value = args.at(static_cast<size_t>(at));
      EXPECT_EQ(value.shape, shape) << "argument " << at;
    }
    params.push_back(memory_of(value, t.dtype));
  }

  const auto execute = [&](const loop::Function& function, std::vector<loop::Memory>& memory) {
    const loop::InterpretResult r = loop::interpret(function, dims, memory);
    for (const std::string& e : r.violations) ADD_FAILURE() << e << "\n" << loop::text(function);
    return r;
  };
  std::vector<loop::Memory> flat_params = params;
  out.failed_checks = execute(f, params).failed_checks;
  execute(loop::flatten(f), flat_params);
  for (size_t i = f.params.size() - static_cast<size_t>(f.num_outputs); i < f.params.size(); ++i) {
    EXPECT_EQ(params[i].bytes, flat_params[i].bytes) << "flattened:\n" << loop::text(loop::flatten(lowered.function));
    const graph::Type& t = g.type(lowered.params[i]);
    std::vector<int64_t> shape;
    for (sym::Expr d : t.shape) shape.push_back(sym::evaluate(d, dims));
    Tensor value(shape);
    for (int64_t k = 0; k < value.count(); ++k)
      value.v[static_cast<size_t>(k)] =
          loop::double_from_bits(t.dtype, loop::read_element(t.dtype, params[i].bytes.data(), k));
    out.results.push_back(std::move(value));
  }
  return out;
}

// Equal up to `tolerance`, absolute and relative.
inline void expect_close(const Tensor& got, const Tensor& want, double tolerance, const std::string& what = "") {
  ASSERT_EQ(got.shape, want.shape) << what;
  int failures = 0;
  for (size_t i = 0; i < want.v.size() && failures < 5; ++i) {
    if (got.v[i] == want.v[i] || (std::isnan(got.v[i]) && std::isnan(want.v[i]))) continue;
    if (std::abs(got.v[i] - want.v[i]) <= tolerance * (1 + std::abs(want.v[i]))) continue;
    ADD_FAILURE() << what << " element " << i << ": got " << got.v[i] << ", want " << want.v[i];
    ++failures;
  }
}

// One result against a reference; no index out of range.
inline void check(const Model& model, const std::vector<Tensor>& args, const std::vector<Tensor>& want,
                  double tolerance = 0) {
  const Outcome got = run(model, args);
  EXPECT_TRUE(got.failed_checks.empty()) << model.body;
  ASSERT_EQ(got.results.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    expect_close(got.results[i], want[i], tolerance, model.body + " result " + std::to_string(i));
}

}  // namespace tripod::lower
