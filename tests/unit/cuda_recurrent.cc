// LSTM, GRU and RNN as the CUDA rule schedules them: the bits of the compute form, no races between threads.
#include "backends/cuda/rules/rules.h"

#include "lower_testing.h"

namespace tripod::lower {
namespace {

LowerGroup scheduled(const std::string& rule) {
  return [rule](const graph::Graph& g, const graph::Group& group, Numbering& sites) {
    Lowered l = lower_group(g, group, sites);
    l.function = cuda::schedule(l.function, g.sym(), nullptr).function;
    EXPECT_EQ(l.function.rule, rule);
    return l;
  };
}

void same(const std::string& op, int64_t hidden, const std::string& direction, const std::string& more, const std::string& rule = "recurrent") {
  const int64_t gates = op == "lstm" ? 4 : op == "gru" ? 3 : 1, ways = direction == "bidirectional" ? 2 : 1;
  const std::string h = std::to_string(hidden), gh = std::to_string(gates * hidden), d = std::to_string(ways);
  std::string activations;
  for (int64_t i = 0; i < ways; ++i)
    activations += std::string(i ? ", " : "") + (op == "lstm" ? "'sigmoid', 'tanh', 'tanh'" : op == "gru" ? "'sigmoid', 'tanh'" : "'tanh'");
  Model m;
  m.inputs = "%x: f32[T, B, 3], %w: f32[" + d + ", " + gh + ", 3], %r: f32[" + d + ", " + gh + ", " + h + "], %b: f32[" + d + ", " +
             std::to_string(2 * gates * hidden) + "], %h: f32[" + d + ", B, " + h + "]";
  m.dims = {{"T", 3}, {"B", 2}};
  m.results = op == "lstm" ? "%y, %last, %cells" : "%y, %last";
  m.body = m.results + " = " + op + "(%x, %w, %r, %b, none, %h) {direction: " + direction + ", hidden: " + h + ", activations: [" + activations + "]" + more + "}";
  const std::vector<Tensor> args = {made_up({3, 2, 3}, 1), made_up({ways, gates * hidden, 3}, 2, -1, 1), made_up({ways, gates * hidden, hidden}, 3, -1, 1),
                                    made_up({ways, 2 * gates * hidden}, 4, -0.5, 0.5), made_up({ways, 2, hidden}, 5)};
  const Outcome want = run(m, args), got = run(m, args, scheduled(rule));
  for (size_t i = 0; i < want.results.size(); ++i) EXPECT_EQ(got.results[i].v, want.results[i].v) << op << " result " << i << "\n" << got.text;
}

TEST(CudaRecurrent, Lstm) {
  same("lstm", 16, "forward", "");
  same("lstm", 40, "bidirectional", "");  // a rest behind whole vectors
}
TEST(CudaRecurrent, Gru) {
  same("gru", 32, "reverse", "");
  same("gru", 16, "forward", ", linear_before_reset: true");
}
TEST(CudaRecurrent, Rnn) { same("rnn", 48, "forward", ", clip: 0.75"); }

// More units than threads; and so few that there are no lanes to spread.
TEST(CudaRecurrent, ManyAndFewUnits) {
  same("rnn", 528, "forward", "");
  same("gru", 5, "forward", "", "points");
}

}  // namespace
}  // namespace tripod::lower
