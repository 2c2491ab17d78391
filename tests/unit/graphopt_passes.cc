// The cases of tests/passes/PASS/*.graph. A case is
//
//   // run: PASS PASS ...          (names of simplify's passes, or simplify itself; a line `// limit: N` limits rewrites)
//   // what it shows
//   graph @main(...) { ... }
//   // becomes                     (or: // stays)
//   graph @main(...) { ... }
//
// The result must be what is expected up to names and the order of independent nodes; the verifier must accept it; and
// it must compute the same as before on random data, where the reference evaluator knows the ops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "graph_opt/simplify.h"
#include "graphopt_reference.h"

namespace tripod::graph_opt {
namespace {

namespace fs = std::filesystem;
using graph::Graph;
using graph::Module;
using graph::NodeId;
using graph::ValueId;

struct Case {
  std::vector<std::string> passes;
  int64_t limit = -1;
  bool evaluated = true;  // `// not evaluated`: the case shows something that random data cannot
  std::string before, after;
};

Case read_case(const fs::path& file) {
  std::ifstream in(file);
  Case c;
  bool expectation = false;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string slashes, word;
    words >> slashes >> word;
    if (slashes != "//") {
      (expectation ? c.after : c.before) += line + "\n";
    } else if (word == "run:") {
      while (words >> word) c.passes.push_back(word);
    } else if (word == "limit:") {
      words >> c.limit;
    } else if (line == "// not evaluated") {
      c.evaluated = false;
    } else if (line == "// becomes") {
      expectation = true;
    } else if (line == "// stays") {
      c.after = c.before;
    }
  }
  return c;
}

// Text with values named in the order in which the outputs need them.
std::string canonical(Graph& g) {
  std::vector<NodeId> order;
  std::vector<bool> seen(static_cast<size_t>(g.num_nodes()), false);
  std::function<void(ValueId)> visit = [&](ValueId v) {
    if (v == graph::kNoValue) return;
    const NodeId n = g.value(v).producer;
    if (seen[static_cast<size_t>(n)]) return;
    seen[static_cast<size_t>(n)] = true;
    for (ValueId o : g.node(n).operands) visit(o);
    if (g.node(n).op != graph::OpKind::input) order.push_back(n);
  };
  for (ValueId v : g.outputs()) visit(v);
  int next = 0;
  for (const char* name : {"_", "n"})
    for (NodeId n : order)
      for (ValueId v : g.node(n).results) g.set_name(v, name + std::to_string(next++));
  std::string s = "graph " + g.name() + "(";
  for (ValueId v : g.inputs()) s += " %" + g.value(v).name + ": " + graph::text(g.type(v));
  s += ") {\n";
  for (NodeId n : order) s += "  " + graph::text(g, n) + "\n";
  s += "  return";
  for (ValueId v : g.outputs()) s += " %" + g.value(v).name;
  return s + "\n}\n";
}

std::string canonical(Module& m) {
  std::string s;
  for (int32_t i = 0; i < m.num_graphs(); ++i) s += canonical(m.graph(i));
  return s;
}

void expect_close(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.dims, b.dims);
  double range = 0;
  for (double x : a.data) range = std::isfinite(x) ? std::max(range, std::fabs(x)) : range;
  for (size_t i = 0; i < a.data.size(); ++i) {
    if (std::isnan(a.data[i]) && std::isnan(b.data[i])) continue;
    ASSERT_NEAR(a.data[i], b.data[i], 2e-6 * std::max(range, 1e-3)) << "element " << i;
  }
}

void expect_same_results(const Module& before, const Module& after) {
  for (int seed = 1; seed <= 3; ++seed) {
    std::string missing;
    const sym::Values a = choose_symbols(before, seed);
    sym::Values b;
    for (size_t i = 0; i < before.symbols.size(); ++i) b[after.symbols[i]] = a.at(before.symbols[i]);
    const auto inputs = random_inputs(before.main(), a, seed);
    const auto want = evaluate(before.main(), inputs, a, missing), got = evaluate(after.main(), inputs, b, missing);
    ASSERT_TRUE(want && got) << "the reference evaluator lacks " << missing << " (say `// not evaluated`)";
    for (size_t i = 0; i < want->size(); ++i) expect_close((*want)[i], (*got)[i]);
  }
}

void run_case(const fs::path& file) {
  SCOPED_TRACE(file.string());
  const Case c = read_case(file);
  ASSERT_FALSE(c.passes.empty() || c.before.empty() || c.after.empty()) << "not a case";
  const auto before = graph::parse(c.before), after = graph::parse(c.after), result = graph::parse(c.before);
  SimplifyOptions options;
  options.opt_limit = c.limit;
  for (const std::string& pass : c.passes) run_pass(*result, pass, options);
  EXPECT_EQ(graph::verify(*result), std::vector<std::string>{});
  if (c.evaluated) expect_same_results(*before, *result);
  const std::string once = graph::text(*result);
  EXPECT_EQ(canonical(*result), canonical(*after));
  if (c.passes.back() != "simplify" || c.limit >= 0) return;
  const auto again = graph::parse(once);
  EXPECT_EQ(simplify(*again, options).rewrites, 0) << "a second run finds more in\n" << once;
}

TEST(Passes, Cases) {
  const fs::path folder = "tests/passes";
  std::vector<fs::path> files;
  for (const auto& e : fs::recursive_directory_iterator(folder))
    if (e.path().extension() == ".graph") files.push_back(e.path());
  std::sort(files.begin(), files.end());
  ASSERT_FALSE(files.empty()) << "no cases in " << folder;
  for (const fs::path& f : files) {
    try {
      run_case(f);
    } catch (const CompileError& e) {
      ADD_FAILURE() << f << ": " << e.diagnostics.text("case");
    } catch (const std::exception& e) {
      ADD_FAILURE() << f << ": " << e.what();
    }
  }
}

}  // namespace
}  // namespace tripod::graph_opt
