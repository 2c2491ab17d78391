#include "onnx/window.h"

namespace tripod::importer {

Ints spatial_ints(const NodeContext& c, std::string_view name, int spatial, int64_t otherwise, int64_t least) {
  Ints v = c.attr_ints(name, Ints(spatial, otherwise));
  if (v.empty()) v.assign(spatial, otherwise);
  if (static_cast<int>(v.size()) != spatial) {
    c.fail("attribute " + std::string(name) + " has " + std::to_string(v.size()) + " entries for " +
           std::to_string(spatial) + " spatial dims");
  }
  for (int64_t e : v) {
    if (e < least) {
      c.fail("attribute " + std::string(name) + " has the entry " + std::to_string(e) + "; the least allowed is " +
             std::to_string(least));
    }
  }
  return v;
}

namespace {

void explicit_pads(const NodeContext& c, int spatial, Window& w) {
  Ints pads = c.attr_ints("pads", Ints(2 * spatial, 0));
  if (pads.empty()) pads.assign(2 * spatial, 0);
  if (static_cast<int>(pads.size()) != 2 * spatial) {
    c.fail("attribute pads has " + std::to_string(pads.size()) + " entries; " + std::to_string(2 * spatial) +
           " are needed (begin and end of each spatial dim)");
  }
  for (int64_t p : pads) {
    if (p < 0) c.fail("attribute pads has the negative entry " + std::to_string(p), "use a Slice in front");
  }
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
  const std::string mode =
      c.attr_choice("auto_pad", "NOTSET", {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"});
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
