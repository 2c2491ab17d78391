// Normalisations: BatchNormalization, InstanceNormalization, GroupNormalization, LayerNormalization,
// RMSNormalization, LRN, MeanVarianceNormalization, LpNormalization.
#include <limits>

#include "onnx/pieces.h"

namespace tripod::importer {

namespace {

double epsilon_of(const NodeContext& c) { return c.attr_float("epsilon", 1e-5); }

// --- batch ---------------------------------------------------------------------------------------------------------

// (x - mean) / sqrt(var + epsilon) * scale + bias with parameters that broadcast against x.
ValueId normalise(const NodeContext& c, ValueId x, ValueId mean, ValueId var, ValueId scale, ValueId bias) {
  const ValueId deviation = c.add(OpKind::sqrt, {c.add(OpKind::add, {var, c.scalar_of(var, epsilon_of(c))})});
  const ValueId y = c.add(OpKind::div, {c.add(OpKind::sub, {x, mean}), deviation});
  return c.add(OpKind::add, {c.add(OpKind::mul, {y, scale}), bias});
}

// Statistics of this batch; the running ones are moved towards them.
std::vector<ValueId> batch_norm_training(NodeContext& c) {
  const ValueId x = c.input(0), old_mean = c.input(3), old_var = c.input(4);
  std::vector<int> axes{0};
  for (int i = 2; i < c.rank(x); ++i) axes.push_back(i);
  const DType wide = compute_type(c.dtype(x));
  const ValueId wide_x = c.cast(x, wide);
  const ValueId mean = c.add(OpKind::reduce_mean, {wide_x}, reduce_attr(axes, false));
  const ValueId off = c.add(OpKind::sub, {wide_x, c.align(mean, 1, c.rank(x))});
  const ValueId var = c.add(OpKind::reduce_mean, {c.add(OpKind::mul, {off, off})}, reduce_attr(axes, false));
  const ValueId y = c.add(OpKind::batch_norm,
                          {x, c.input(1), c.input(2), c.cast(mean, c.dtype(old_mean)), c.cast(var, c.dtype(old_var))},
                          graph::ScalarAttr{epsilon_of(c), 0, 0, 0});
  const double momentum = c.attr_float("momentum", 0.9);
  const auto moved = [&](ValueId old, ValueId now) {
    const ValueId kept = c.add(OpKind::mul, {old, c.scalar_of(old, momentum)});
    const ValueId add = c.add(OpKind::mul, {now, c.scalar_of(now, 1 - momentum)});
    return c.add(OpKind::add, {kept, c.cast(add, c.dtype(old))});
  };
  return {y, moved(old_mean, mean), moved(old_var, var)};
}

std::vector<ValueId> batch_norm(NodeContext& c) {
  const ValueId x = c.input(0);
  c.need_float(0);
  c.need_min_rank(0, 2);
  const bool per_element = c.attr_int("spatial", 1) == 0;  // opsets to 8: statistics of [C, spatial]
  for (int i = 1; i < 5; ++i) {
    c.need_rank(i, per_element ? c.rank(x) - 1 : 1);
    if (!per_element) require_dim(c, c.input(i), 0, c.dim(x, 1), "one parameter a channel");
  }
  if (c.opset >= 14 && c.attr_bool("training_mode", false)) return batch_norm_training(c);
  for (int i = 1; i < c.num_outputs(); ++i) {
    if (c.wants_output(i)) {
      c.fail("the outputs of the training mode are not supported", "export the model for inference (model.eval())");
    }
  }
  if (per_element) return {normalise(c, x, c.input(3), c.input(4), c.input(1), c.input(2))};
  return {c.add(OpKind::batch_norm, {x, c.input(1), c.input(2), c.input(3), c.input(4)},
                graph::ScalarAttr{epsilon_of(c), 0, 0, 0})};
}

// --- groups --------------------------------------------------------------------------------------------------------

std::vector<ValueId> instance_norm(NodeContext& c) {
  const ValueId x = c.input(0), scale = c.input(1), bias = c.input(2);
  c.need_min_rank(0, 3);
  c.need_rank(1, 1);
  c.need_rank(2, 1);
  const Expr channels = c.dim(x, 1);
  require_dim(c, scale, 0, channels, "one scale a channel");
  require_dim(c, bias, 0, channels, "one bias a channel");
  graph::ScalarAttr a;
  a.a = epsilon_of(c);
  if (channels.is_const()) {
    a.axis = static_cast<int>(channels.value());
    return {c.add(OpKind::group_norm, {x, scale, bias}, a)};
  }
  a.axis = 2;  // a free number of channels: each (n, c) plane is a row
  const ValueId y = c.add(OpKind::layer_norm, {x}, a);
  const ValueId scaled = c.add(OpKind::mul, {y, c.align(scale, 1, c.rank(x))});
  return {c.add(OpKind::add, {scaled, c.align(bias, 1, c.rank(x))})};
}

std::vector<ValueId> group_norm(NodeContext& c) {
  const ValueId x = c.input(0);
  c.need_min_rank(0, 2);
  const int64_t groups = c.attr_int("num_groups");
  const Expr channels = c.dim(x, 1);
  if (groups < 1 || groups > std::numeric_limits<int>::max())
    c.fail("attribute num_groups is " + std::to_string(groups));
  if (channels.is_const() && channels.value() % groups != 0) {
    c.fail(std::to_string(channels.value()) + " channels cannot be split into " + std::to_string(groups) + " groups");
  }
  std::vector<ValueId> operands{x};
  for (int i : {1, 2}) {
    c.need_rank(i, 1);
    ValueId p = c.input(i);
    if (c.opset < 21) {  // one a group, which opset 21 corrected to one a channel
      require_dim(c, p, 0, c.expr(groups), "one scale and bias a group");
      const Expr each = sym::floordiv(channels, groups);
      p = c.reshape(c.broadcast(c.unsqueeze(p, 1), {c.expr(groups), each}), {channels});
    } else {
      require_dim(c, p, 0, channels, "one scale and bias a channel");
    }
    operands.push_back(p);
  }
  graph::ScalarAttr a;
  a.a = epsilon_of(c);
  a.axis = static_cast<int>(groups);
  return {c.add(OpKind::group_norm, operands, a)};
}

// --- trailing axes -------------------------------------------------------------------------------------------------

// The parameter with exactly the normalised dims of x; kNoValue when it also varies over the others.
ValueId over_axes(const NodeContext& c, ValueId p, ValueId x, int axis) {
  Shape want(c.shape(x).begin() + axis, c.shape(x).end());
  const int extra = c.rank(p) - static_cast<int>(want.size());
  if (c.rank(p) > c.rank(x)) c.fail("scale and bias cannot have more dims than the input: " + c.text(p));
  for (int i = 0; i < extra; ++i) {
    if (!c.dim(p, i).is_const(1)) return kNoValue;
  }
  if (extra > 0) p = c.reshape(p, Shape(c.shape(p).begin() + extra, c.shape(p).end()));
  bool stretch = extra < 0;
  for (int i = 0; i < c.rank(p); ++i) {
    const Expr to = want[want.size() - c.rank(p) + i];
    if (c.dim(p, i).is_const(1) && !to.is_const(1)) {
      stretch = true;
    } else {
      require_dim(c, p, i, to, "scale and bias must fit the normalised dims");
    }
  }
  return stretch ? c.broadcast(p, want) : p;
}

// The norm with its scale and bias, which go into the op where they fit and behind it where they do not.
ValueId scaled_norm(NodeContext& c, OpKind op, int axis, ValueId scale, ValueId bias) {
  const ValueId x = c.input(0);
  graph::ScalarAttr a;
  a.a = epsilon_of(c);
  a.axis = axis;
  const ValueId in_scale = scale == kNoValue ? kNoValue : over_axes(c, scale, x, axis);
  const ValueId in_bias = bias == kNoValue ? kNoValue : over_axes(c, bias, x, axis);
  if (in_scale != kNoValue && (bias == kNoValue || in_bias != kNoValue)) {
    std::vector<ValueId> operands{x, in_scale};
    if (in_bias != kNoValue) operands.push_back(in_bias);
    return c.add(op, operands, a);
  }
  ValueId y = c.add(op, {x}, a);
  if (scale != kNoValue) y = c.add(OpKind::mul, {y, scale});
  if (bias != kNoValue) y = c.add(OpKind::add, {y, bias});
  return y;
}

DType stash_type(const NodeContext& c) {
  const DType t = c.attr_dtype("stash_type", DType::f32);
  if (!is_float(t)) c.fail("attribute stash_type must be a float type");
  return t;
}

std::vector<ValueId> layer_norm(NodeContext& c) {
  c.need_float(0);
  c.need_min_rank(0, 1);
  const ValueId x = c.input(0);
  const int axis = c.axis(c.attr_int("axis", -1), c.rank(x));
  const DType stash = stash_type(c);
  std::vector<ValueId> results{scaled_norm(c, OpKind::layer_norm, axis, c.input(1), c.optional_input(2))};
  if (!c.wants_output(1) && !c.wants_output(2)) return results;
  std::vector<int> axes;
  for (int i = axis; i < c.rank(x); ++i) axes.push_back(i);
  const graph::ReduceAttr a = reduce_attr(axes, true);
  const ValueId wide = c.cast(x, compute_type(c.dtype(x)));
  const ValueId mean = c.add(OpKind::reduce_mean, {wide}, a);
  const ValueId off = c.add(OpKind::sub, {wide, mean});
  const ValueId var = c.add(OpKind::reduce_mean, {c.add(OpKind::mul, {off, off})}, a);
  const ValueId deviation = c.add(OpKind::sqrt, {c.add(OpKind::add, {var, c.scalar_of(var, epsilon_of(c))})});
  results.push_back(c.cast(mean, stash));
  results.push_back(c.cast(c.add(OpKind::reciprocal, {deviation}), stash));
  return results;
}

std::vector<ValueId> rms_norm(NodeContext& c) {
  c.need_float(0);
  c.need_min_rank(0, 1);
  stash_type(c);
  const int axis = c.axis(c.attr_int("axis", -1), c.rank(c.input(0)));
  return {scaled_norm(c, OpKind::rms_norm, axis, c.cast(c.input(1), c.dtype(c.input(0))), kNoValue)};
}

// --- others --------------------------------------------------------------------------------------------------------

std::vector<ValueId> lrn(NodeContext& c) {
  c.need_min_rank(0, 2);
  if (!is_float(c.dtype(c.input(0)))) c.fail("the input must be float: " + c.text(c.input(0)));
  graph::ScalarAttr a;
  a.a = c.attr_float("alpha", 1e-4);
  a.b = c.attr_float("beta", 0.75);
  a.c = c.attr_float("bias", 1);
  const int64_t size = c.attr_int("size");
  if (size < 1 || size > (1 << 20)) c.fail("attribute size is " + std::to_string(size));
  a.axis = static_cast<int>(size);
  return {c.add(OpKind::lrn, {c.input(0)}, a)};
}

std::vector<ValueId> mean_variance_norm(NodeContext& c) {
  c.need_float(0);
  const ValueId x = c.input(0);
  const graph::ReduceAttr a = reduce_attr(c.axes(c.attr_ints("axes", {0, 2, 3}), c.rank(x)), true);
  const ValueId off = c.add(OpKind::sub, {x, c.add(OpKind::reduce_mean, {x}, a)});
  const ValueId var = c.add(OpKind::reduce_mean, {c.add(OpKind::mul, {off, off})}, a);
  const ValueId deviation = c.add(OpKind::add, {c.add(OpKind::sqrt, {var}), c.scalar_of(x, 1e-9)});
  return {c.add(OpKind::div, {off, deviation})};
}

std::vector<ValueId> lp_normalization(NodeContext& c) {
  c.need_float(0);
  const ValueId x = c.input(0);
  const int64_t p = c.attr_int("p", 2);
  if (p != 1 && p != 2) c.fail("attribute p must be 1 or 2");
  const int axis = c.axis(c.attr_int("axis", -1), c.rank(x));
  const ValueId norm = lp_norm(c, x, p, reduce_attr({axis}, true));
  const ValueId zero = c.add(OpKind::equal, {norm, c.scalar_of(x, 0)});  // then x is 0 too, and so is the result
  return {c.add(OpKind::div, {x, c.add(OpKind::where, {zero, c.scalar_of(x, 1), norm})})};
}

constexpr Row kRows[] = {
    {"BatchNormalization", 1, kMaxOpset, 5, 5, batch_norm},
    {"InstanceNormalization", 1, kMaxOpset, 3, 3, instance_norm},
    {"GroupNormalization", 18, kMaxOpset, 3, 3, group_norm},
    {"LayerNormalization", 17, kMaxOpset, 2, 3, layer_norm},
    {"RMSNormalization", 23, kMaxOpset, 2, 2, rms_norm},
    {"LRN", 1, kMaxOpset, 1, 1, lrn},
    {"MeanVarianceNormalization", 9, kMaxOpset, 1, 1, mean_variance_norm},
    {"LpNormalization", 1, kMaxOpset, 1, 1, lp_normalization},
};

}  // namespace

std::span<const Row> norm_rows() { return kRows; }

}  // namespace tripod::importer
