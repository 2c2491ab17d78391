#include <algorithm>

#include "loop/ir.h"

namespace tripod::loop {
namespace {

// Placeholders for the logical index, with the range that the shape gives them where it is known.
std::vector<Index> placeholders(sym::Context& c, const std::vector<Index>& shape) {
  std::vector<Index> args;
  for (size_t d = 0; d < shape.size(); ++d) {
    sym::Range r{0, sym::Range::kMax};
    if (shape[d].is_const()) r.hi = std::max<int64_t>(shape[d].value() - 1, 0);
    args.push_back(c.var("d" + std::to_string(d), r));
  }
  return args;
}

// index[0] * extent[1] * extent[2] ... + index[1] * extent[2] ... + ...
Index row_major(const std::vector<Index>& index, const std::vector<Index>& extents) {
  Index at = index[0];
  for (size_t d = 1; d < index.size(); ++d) at = at * extents[d] + index[d];
  return at;
}

}  // namespace

Layout permuted(sym::Context& c, const std::vector<Index>& shape, const std::vector<int>& order) {
  TRIPOD_CHECK(order.size() == shape.size(), "permuted: an order of another rank");
  Layout l;
  l.args = placeholders(c, shape);
  for (int d : order) {
    TRIPOD_CHECK(d >= 0 && d < static_cast<int>(shape.size()), "permuted: no such dim");
    l.map.push_back(l.args[static_cast<size_t>(d)]);
    l.extents.push_back(shape[static_cast<size_t>(d)]);
  }
  return l;
}

Layout blocked(sym::Context& c, const std::vector<Index>& shape, int axis, int64_t block) {
  TRIPOD_CHECK(axis >= 0 && axis < static_cast<int>(shape.size()) && block > 0, "blocked: no such dim");
  Layout l;
  l.args = placeholders(c, shape);
  l.map = l.args;
  l.extents = shape;
  const size_t a = static_cast<size_t>(axis);
  l.map[a] = floordiv(l.args[a], block);
  l.extents[a] = ceildiv(shape[a], block);
  l.map.push_back(mod(l.args[a], block));
  l.extents.push_back(c.constant(block));
  return l;
}

Buffer make_buffer(std::string name, DType t, std::vector<Index> shape, Scope s, Layout l) {
  TRIPOD_CHECK(t < DType::string, "buffer " + name + " of strings");
  for (Index d : shape) TRIPOD_CHECK(d, "buffer " + name + " lacks a dim");
  if (!l.is_row_major()) {
    TRIPOD_CHECK(l.args.size() == shape.size(), "buffer " + name + ": a layout of another rank");
    TRIPOD_CHECK(l.map.size() == l.extents.size() && !l.map.empty(), "buffer " + name + ": a malformed layout");
  }
  auto* b = new BufferNode;
  b->name = std::move(name);
  b->dtype = t;
  b->shape = std::move(shape);
  b->scope = s;
  b->layout = std::move(l);
  return Buffer(b);
}

std::vector<Index> physical_index(const Buffer& b, const std::vector<Index>& index) {
  TRIPOD_CHECK(static_cast<int>(index.size()) == b->rank(), "an index into " + b->name + " of another rank");
  if (b->layout.is_row_major()) return index;
  sym::Map m;
  for (size_t d = 0; d < index.size(); ++d) m[b->layout.args[d]] = index[d];
  std::vector<Index> at;
  for (Index e : b->layout.map) at.push_back(sym::substitute(e, m));
  return at;
}

Index offset(const Buffer& b, const std::vector<Index>& index) {
  const std::vector<Index> at = physical_index(b, index);
  if (index.empty()) return {};
  return row_major(at, b->layout.is_row_major() ? b->shape : b->layout.extents);
}

Index offset(sym::Context& c, const Buffer& b, const std::vector<Index>& index) {
  return index.empty() ? c.constant(0) : offset(b, index);
}

Index storage_size(sym::Context& c, const Buffer& b) {
  return sym::product(c, b->layout.is_row_major() ? b->shape : b->layout.extents);
}

}  // namespace tripod::loop
