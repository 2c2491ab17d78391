// Windows of convolutions and pools: strides, dilations and padding as ONNX writes them.
#pragma once

#include "onnx/op_importer.h"

namespace tripod::importer {

struct Window {
  Ints strides, dilations, pads_begin, pads_end;  // one a spatial dim
  bool automatic = false;                         // auto_pad other than NOTSET: ceil_mode has no effect then
  // auto_pad = SAME_* over dims that only the run knows: what `padded` puts in front of the op instead; the Ints
  // above are zero then. One a spatial dim, or empty.
  std::vector<Expr> before, after;
};

// The attributes strides, dilations, pads and auto_pad for a window of `kernel` (one a spatial dim) over x [N, C, ..].
Window read_window(const NodeContext& c, ValueId x, const std::vector<Expr>& kernel);

// x with the padding that only the run knows, filled with `fill` (a scalar of x's type); x itself when there is none.
ValueId padded(const NodeContext& c, ValueId x, const Window& w, ValueId fill);

// `spatial` entries from least to 2^31 - 1; `otherwise` for all when the attribute is absent.
Ints spatial_ints(const NodeContext& c, std::string_view name, int spatial, int64_t otherwise, int64_t least);

}  // namespace tripod::importer
