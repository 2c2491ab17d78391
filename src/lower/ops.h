// The lowering functions, by file. A new one is declared here and named in lower/table.cc.
#pragma once

#include "lower/lower.h"

namespace tripod::lower {

#define TRIPOD_LOWER(name) void name(Lowering& l, const graph::Node& n)

// elementwise.cc
TRIPOD_LOWER(lower_elementwise);
// reductions.cc
TRIPOD_LOWER(lower_reduce);
TRIPOD_LOWER(lower_arg_reduce);
TRIPOD_LOWER(lower_cumsum);
// contractions.cc
TRIPOD_LOWER(lower_matmul);
TRIPOD_LOWER(lower_conv);
TRIPOD_LOWER(lower_conv_transpose);
TRIPOD_LOWER(lower_matmul_integer);
TRIPOD_LOWER(lower_conv_integer);
// moves.cc
TRIPOD_LOWER(lower_reshape);
TRIPOD_LOWER(lower_transpose);
TRIPOD_LOWER(lower_broadcast);
TRIPOD_LOWER(lower_concat);
TRIPOD_LOWER(lower_slice);
TRIPOD_LOWER(lower_pad);
TRIPOD_LOWER(lower_tile);
TRIPOD_LOWER(lower_iota);
TRIPOD_LOWER(lower_copy);
// gathers.cc
TRIPOD_LOWER(lower_gather);
TRIPOD_LOWER(lower_gather_elements);
TRIPOD_LOWER(lower_gather_nd);
TRIPOD_LOWER(lower_one_hot);
TRIPOD_LOWER(lower_trilu);
TRIPOD_LOWER(lower_reverse_sequence);
// pools.cc
TRIPOD_LOWER(lower_max_pool);
TRIPOD_LOWER(lower_average_pool);
TRIPOD_LOWER(lower_lp_pool);
TRIPOD_LOWER(lower_lrn);
// resize.cc
TRIPOD_LOWER(lower_resize);
// norms.cc
TRIPOD_LOWER(lower_softmax);
TRIPOD_LOWER(lower_log_softmax);
TRIPOD_LOWER(lower_layer_norm);
TRIPOD_LOWER(lower_rms_norm);
TRIPOD_LOWER(lower_group_norm);
TRIPOD_LOWER(lower_batch_norm);
// attention.cc
TRIPOD_LOWER(lower_attention);
TRIPOD_LOWER(lower_rotary);
// recurrent.cc
TRIPOD_LOWER(lower_lstm);
TRIPOD_LOWER(lower_gru);
TRIPOD_LOWER(lower_rnn);

#undef TRIPOD_LOWER

}  // namespace tripod::lower
