// Dropout (for inference) and the losses that training graphs end in.
#include "onnx/pieces.h"

namespace tripod::importer {

namespace {

// --- Dropout -------------------------------------------------------------------------------------------------------

void need_inference(const NodeContext& c) {
  if (c.opset < 12 || !c.has_input(2)) return;
  const auto training = c.ints(c.input(2));
  if (training && training->size() == 1 && (*training)[0] == 0) return;
  if (c.has_input(1)) {
    const auto ratio = c.floats(c.input(1));
    if (ratio && ratio->size() == 1 && (*ratio)[0] == 0) return;  // drops nothing either way
  }
  c.fail(training ? "training mode is not supported" : "training_mode must be constant",
         "export the model for inference (model.eval())");
}

std::vector<ValueId> dropout(NodeContext& c) {
  need_inference(c);
  const ValueId x = c.input(0);
  // What is kept: all. Before opset 12 inference leaves it open; ONNX Runtime gives zeros.
  ValueId mask = kNoValue;
  if (c.wants_output(1)) {
    const DType t = c.opset < 10 ? c.dtype(x) : DType::b1;
    const int kept = c.opset >= 12;
    mask = c.broadcast(is_float(t) ? c.scalar(t, kept) : c.int_scalar(t, kept), c.shape(x));
  }
  return {x, mask};
}

// --- losses --------------------------------------------------------------------------------------------------------

// -log_prob[n, target[n, d..], d..] * weight[target], reduced. Targets equal to ignore_index count nothing, whatever
// number that is.
ValueId likelihood_loss(const NodeContext& c, ValueId log_prob, ValueId target, ValueId weight) {
  const std::string reduction = c.attr_choice("reduction", "mean", {"none", "sum", "mean"});
  const ValueId zero = c.scalar_of(log_prob, 0);
  const Shape items = c.shape(target);
  ValueId valid = kNoValue;
  if (c.has("ignore_index")) {
    const ValueId ignored = c.int_scalar(c.dtype(target), c.attr_int("ignore_index"));
    valid = c.add(OpKind::logical_not, {c.add(OpKind::equal, {target, ignored})});
    target = c.add(OpKind::where, {valid, target, c.int_scalar(c.dtype(target), 0)});
  }
  const auto counted = [&](ValueId v) { return valid == kNoValue ? v : c.add(OpKind::where, {valid, v, zero}); };
  graph::AxisAttr classes;
  classes.axis = 1;
  const ValueId picked = c.add(OpKind::gather_elements, {log_prob, c.unsqueeze(target, 1)}, classes);
  ValueId loss = c.add(OpKind::neg, {c.reshape(picked, items)});
  ValueId share = kNoValue;  // what each item counts in the mean
  if (weight != kNoValue) {
    share = c.add(OpKind::gather, {weight, target}, graph::AxisAttr{});
    loss = c.add(OpKind::mul, {loss, share});
    share = counted(share);
  } else if (valid != kNoValue) {
    share = c.cast(valid, c.dtype(log_prob));
  }
  loss = counted(loss);
  if (reduction == "none") return loss;
  std::vector<int> axes;
  for (int i = 0; i < c.rank(loss); ++i) axes.push_back(i);
  const graph::ReduceAttr all = reduce_attr(axes, false);
  if (reduction == "mean" && share == kNoValue) return c.add(OpKind::reduce_mean, {loss}, all);
  const ValueId sum = c.add(OpKind::reduce_sum, {loss}, all);
  return reduction == "sum" ? sum : c.add(OpKind::div, {sum, c.add(OpKind::reduce_sum, {share}, all)});
}

void check_loss(const NodeContext& c) {
  c.need_float(0);
  c.need_integer(1);
  c.need_min_rank(0, 2);
  c.need_rank(1, c.rank(c.input(0)) - 1);
  for (int i = 0; i < c.rank(c.input(1)); ++i) {
    require_dim(c, c.input(1), i, c.dim(c.input(0), i == 0 ? 0 : i + 1), "targets must fit the scores");
  }
  if (!c.has_input(2)) return;
  c.need_rank(2, 1);
  require_dim(c, c.input(2), 0, c.dim(c.input(0), 1), "one weight a class");
}

std::vector<ValueId> negative_log_likelihood(NodeContext& c) {
  check_loss(c);
  return {likelihood_loss(c, c.input(0), c.input(1), c.optional_input(2))};
}

std::vector<ValueId> softmax_cross_entropy(NodeContext& c) {
  check_loss(c);
  graph::AxisAttr classes;
  classes.axis = 1;
  const ValueId log_prob = c.add(OpKind::log_softmax, {c.input(0)}, classes);
  return {likelihood_loss(c, log_prob, c.input(1), c.optional_input(2)), log_prob};
}

constexpr Row kRows[] = {
    {"Dropout", 1, 11, 1, 1, dropout},
    {"Dropout", 12, kMaxOpset, 1, 3, dropout},
    {"NegativeLogLikelihoodLoss", 12, kMaxOpset, 2, 3, negative_log_likelihood},
    {"SoftmaxCrossEntropyLoss", 12, kMaxOpset, 2, 3, softmax_cross_entropy},
};

}  // namespace

std::span<const Row> loss_rows() { return kRows; }

}  // namespace tripod::importer
