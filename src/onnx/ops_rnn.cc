// LSTM, GRU, RNN: one core op each; layout = 1 is transposes around it.
#include <algorithm>

#include "onnx/pieces.h"

namespace tripod::importer {

namespace {

struct Kind {
  OpKind op;
  int activations;  // functions a direction
  std::string_view defaults[3];
};

Kind kind_of(OpKind op) {
  if (op == OpKind::lstm) return {op, 3, {"sigmoid", "tanh", "tanh"}};
  if (op == OpKind::gru) return {op, 2, {"sigmoid", "tanh", ""}};
  return {op, 1, {"tanh", "", ""}};
}

// Which parameters a function takes from activation_alpha and activation_beta, and their defaults.
struct Function {
  std::string_view name;
  bool has_alpha, has_beta;
  double alpha, beta;
};
constexpr Function kFunctions[] = {
    {"relu", false, false, 0, 0},     {"tanh", false, false, 0, 0},          {"sigmoid", false, false, 0, 0},
    {"affine", true, true, 1, 0},     {"leakyrelu", true, false, 0.01, 0},   {"thresholdedrelu", true, false, 1, 0},
    {"scaledtanh", true, true, 1, 1}, {"hardsigmoid", true, true, 0.2, 0.5}, {"elu", true, false, 1, 0},
    {"softsign", false, false, 0, 0}, {"softplus", false, false, 0, 0},
};

// The lists of parameters name only the functions that take one, in order.
void read_activations(const NodeContext& c, const Kind& kind, int directions, graph::RnnAttr& a) {
  const size_t count = static_cast<size_t>(kind.activations * directions);
  std::vector<std::string> names = c.attr_strings("activations");
  for (size_t i = 0; names.empty() && i < count; ++i) {
    a.activations.emplace_back(kind.defaults[i % static_cast<size_t>(kind.activations)]);
  }
  // RNN's default names two functions whatever the direction.
  if (kind.op == OpKind::rnn && names.size() == 2 && count == 1) names.resize(1);
  if (!names.empty()) a.activations = names;
  if (a.activations.size() != count) {
    c.fail("attribute activations has " + std::to_string(names.size()) + " entries; " + std::to_string(count) +
           " are needed");
  }
  const std::vector<double> alphas = c.attr_floats("activation_alpha"), betas = c.attr_floats("activation_beta");
  size_t next_alpha = 0, next_beta = 0;
  for (std::string& name : a.activations) {
    std::string lower = name;
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char ch) { return std::tolower(ch); });
    const auto* f =
        std::find_if(std::begin(kFunctions), std::end(kFunctions), [&](const Function& g) { return g.name == lower; });
    if (f == std::end(kFunctions)) c.fail("unknown activation \"" + name + "\"");
    name = lower;
    a.alpha.push_back(f->has_alpha && next_alpha < alphas.size() ? alphas[next_alpha++] : f->alpha);
    a.beta.push_back(f->has_beta && next_beta < betas.size() ? betas[next_beta++] : f->beta);
  }
}

std::vector<ValueId> recurrent(NodeContext& c) {
  const Kind kind = kind_of(c.row.kind);
  graph::RnnAttr a;
  // GRU's first version misspelt its default.
  const std::string direction =
      c.attr_choice("direction", "forward", {"forward", "foward", "reverse", "bidirectional"});
  if (direction == "reverse") a.direction = graph::RnnAttr::reverse;
  if (direction == "bidirectional") a.direction = graph::RnnAttr::bidirectional;
  const int directions = a.direction == graph::RnnAttr::bidirectional ? 2 : 1;
  c.need_rank(2, 3);
  const Expr hidden = c.has("hidden_size") ? c.expr(c.attr_int("hidden_size")) : c.dim(c.input(2), 2);
  if (!hidden.is_const() || hidden.value() < 1 || hidden.value() > (1 << 30)) {
    c.fail("hidden_size must be known and positive");
  }
  a.hidden = hidden.value();
  read_activations(c, kind, directions, a);
  a.clip = c.attr_float("clip", 0);
  if (a.clip < 0) c.fail("attribute clip is negative");
  a.input_forget = c.attr_int("input_forget", 0) != 0;
  a.linear_before_reset = c.attr_int("linear_before_reset", 0) != 0;

  const bool batch_first = c.attr_bool("layout", false);
  c.need_rank(0, 3);
  std::vector<ValueId> operands;
  for (int i = 0; i < c.num_inputs(); ++i) operands.push_back(c.optional_input(i));
  if (batch_first) operands[0] = c.transpose(operands[0], {1, 0, 2});
  if (c.has_input(4)) operands[4] = c.cast(operands[4], DType::i32);
  for (int i : {5, 6}) {  // initial_h and initial_c
    if (c.has_input(i) && batch_first) operands[i] = c.transpose(operands[i], {1, 0, 2});
  }
  std::vector<ValueId> results = add_all(c, kind.op, operands, a);
  if (!batch_first) return results;
  results[0] = c.transpose(results[0], {2, 0, 1, 3});  // [S, D, B, H] -> [B, S, D, H]
  for (size_t i = 1; i < results.size(); ++i) results[i] = c.transpose(results[i], {1, 0, 2});
  return results;
}

constexpr Row kRows[] = {
    {"LSTM", 1, kMaxOpset, 3, 8, recurrent, OpKind::lstm},
    {"GRU", 1, kMaxOpset, 3, 6, recurrent, OpKind::gru},
    {"RNN", 1, kMaxOpset, 3, 6, recurrent, OpKind::rnn},
};

}  // namespace

std::span<const Row> rnn_rows() { return kRows; }

}  // namespace tripod::importer
