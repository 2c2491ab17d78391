#include "onnx/window.h"

namespace tripod::importer {

namespace {
constexpr int64_t kLargest = (int64_t{1} << 31) - 1;  // products of two stay in 64 bits
}

Ints spatial_ints(const NodeContext& c, std::string_view name, int spatial, int64_t otherwise, int64_t least) {
  Ints v = c.attr_ints(name, Ints(spatial, otherwise));
  if (v.empty()) v.assign(spatial, otherwise);
  if (static_cast<int>(v.size()) != spatial) {
    c.fail("attribute " + std::string(name) + " has " + std::to_string(v.size()) + " entries; " +
           std::to_string(spatial) + " are needed");
  }
  for (int64_t e : v) {
    if (e < least || e > kLargest) {
      c.fail("attribute " + std::string(name) + " has the entry " + std::to_string(e) + "; allowed are " +
             std::to_string(least) + " to " + std::to_string(kLargest));
    }
  }
  return v;
}

namespace {

void explicit_pads(const NodeContext& c, int spatial, Window& w) {
  const Ints pads = spatial_ints(c, "pads", 2 * spatial, 0, 0);  // begin of each spatial dim, then end of each
  w.pads_begin.assign(pads.begin(), pads.begin() + spatial);
  w.pads_end.assign(pads.begin() + spatial, pads.end());
}

// result dim = ceil(dim / stride); what that needs is split over both sides, the odd one at the end for SAME_UPPER.
void same_pads(const NodeContext& c, ValueId x, const std::vector<Expr>& kernel, bool upper, Window& w) {
  const int spatial = static_cast<int>(kernel.size());
  bool known = true;
  for (int i = 0; i < spatial; ++i) {
    const Expr in = c.dim(x, i + 2);
    const Expr extent = (kernel[i] - 1) * w.dilations[i] + 1;
    const Expr total = sym::max((sym::ceildiv(in, w.strides[i]) - 1) * w.strides[i] + extent - in, 0);
    const Expr less = sym::floordiv(total, 2), more = total - less;
    w.before.push_back(upper ? less : more);
    w.after.push_back(upper ? more : less);
    known = known && total.is_const();
  }
  if (!known) return;
  for (int i = 0; i < spatial; ++i) {
    w.pads_begin[i] = w.before[i].value();
    w.pads_end[i] = w.after[i].value();
  }
  w.before.clear();
  w.after.clear();
}

}  // namespace

Window read_window(const NodeContext& c, ValueId x, const std::vector<Expr>& kernel) {
  const int spatial = static_cast<int>(kernel.size());
  Window w;
  w.strides = spatial_ints(c, "strides", spatial, 1, 1);
  w.dilations = spatial_ints(c, "dilations", spatial, 1, 1);
  w.pads_begin.assign(spatial, 0);
  w.pads_end.assign(spatial, 0);
  const std::string mode = c.attr_choice("auto_pad", "NOTSET", {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"});
  w.automatic = mode != "NOTSET";
  if (mode == "NOTSET") explicit_pads(c, spatial, w);
  if (mode == "SAME_UPPER" || mode == "SAME_LOWER") same_pads(c, x, kernel, mode == "SAME_UPPER", w);
  return w;
}

ValueId padded(const NodeContext& c, ValueId x, const Window& w, ValueId fill) {
  if (w.before.empty()) return x;
  graph::PadAttr pad;
  pad.begin = {c.expr(0), c.expr(0)};
  pad.end = pad.begin;
  pad.begin.insert(pad.begin.end(), w.before.begin(), w.before.end());
  pad.end.insert(pad.end.end(), w.after.begin(), w.after.end());
  return c.add(OpKind::pad, {x, fill}, pad);
}

}  // namespace tripod::importer
