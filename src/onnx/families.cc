#include "onnx/op_importer.h"

namespace tripod::importer {

std::span<const std::span<const Row>> families() {
  // clang-format off
  static const std::span<const Row> tables[] = {
      elementwise_rows(), elementwise_legacy_rows(), identity_rows(), source_rows(), move_rows(), slice_rows(),
      gather_rows(), control_rows(), attention_rows(), conv_rows(), einsum_rows(), loss_rows(), matmul_rows(),
      norm_rows(), pool_rows(), quantize_rows(), reduce_rows(), resize_rows(), rnn_rows(), select_rows(), softmax_rows(),
  };
  // clang-format on
  return tables;
}

}  // namespace tripod::importer
