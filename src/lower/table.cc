// Which op is lowered by which function. Ops with the property kElementwise share one.
#include "lower/ops.h"

namespace tripod::lower {

using graph::OpKind;

namespace {
struct Row {
  OpKind op;
  LowerOp lower;
};
constexpr Row kTable[] = {
    {OpKind::reduce_sum, lower_reduce}, {OpKind::reduce_mean, lower_reduce}, {OpKind::reduce_max, lower_reduce},
    {OpKind::reduce_min, lower_reduce}, {OpKind::reduce_prod, lower_reduce}, {OpKind::arg_max, lower_arg_reduce},
    {OpKind::arg_min, lower_arg_reduce}, {OpKind::cumsum, lower_cumsum},
    {OpKind::cumprod, lower_cumsum},
    {OpKind::matmul, lower_matmul}, {OpKind::conv, lower_conv}, {OpKind::conv_transpose, lower_conv_transpose},
    {OpKind::matmul_integer, lower_matmul_integer}, {OpKind::conv_integer, lower_conv_integer},
    {OpKind::reshape, lower_reshape}, {OpKind::transpose, lower_transpose}, {OpKind::broadcast, lower_broadcast},
    {OpKind::concat, lower_concat}, {OpKind::slice, lower_slice}, {OpKind::pad, lower_pad}, {OpKind::tile, lower_tile},
    {OpKind::iota, lower_iota}, {OpKind::copy, lower_copy},
    {OpKind::gather, lower_gather}, {OpKind::gather_elements, lower_gather_elements},
    {OpKind::gather_nd, lower_gather_nd}, {OpKind::one_hot, lower_one_hot}, {OpKind::trilu, lower_trilu},
    {OpKind::reverse_sequence, lower_reverse_sequence},
    {OpKind::max_pool, lower_max_pool}, {OpKind::average_pool, lower_average_pool}, {OpKind::lp_pool, lower_lp_pool},
    {OpKind::lrn, lower_lrn}, {OpKind::resize, lower_resize},
    {OpKind::softmax, lower_softmax}, {OpKind::log_softmax, lower_log_softmax}, {OpKind::layer_norm, lower_layer_norm},
    {OpKind::rms_norm, lower_rms_norm}, {OpKind::group_norm, lower_group_norm}, {OpKind::batch_norm, lower_batch_norm},
    {OpKind::attention, lower_attention}, {OpKind::rotary, lower_rotary},
    {OpKind::lstm, lower_lstm}, {OpKind::gru, lower_gru}, {OpKind::rnn, lower_rnn},
};
}  // namespace

LowerOp lowering_of(OpKind op) {
  if (graph::has(op, graph::kElementwise)) return lower_elementwise;
  for (const Row& r : kTable)
    if (r.op == op) return r.lower;
  return nullptr;
}

}  // namespace tripod::lower
