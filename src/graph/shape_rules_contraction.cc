// matmul, conv, conv_transpose and their integer forms.
#include <limits>

#include "graph/shape_rules.h"

namespace tripod::graph::rules {
namespace {

// numpy: vectors become a row or a column, which leaves the result again; outer dims broadcast.
Shape matmul_shape(Rule& r) {
  r.tensor(0);
  r.tensor(1);
  if (r.rank(0) < 1 || r.rank(1) < 1) throw ShapeError("matmul does not take scalars");
  Shape a = r.shape(0), b = r.shape(1);
  const bool row = a.size() == 1, column = b.size() == 1;
  if (row) a.insert(a.begin(), r.constant(1));
  if (column) b.push_back(r.constant(1));
  const Expr inner_a = a.back(), inner_b = b[b.size() - 2];
  r.same(inner_a, inner_b, "inner dims differ: " + shape_text(r.shape(0)) + " times " + shape_text(r.shape(1)));
  Shape out = r.broadcast({a.begin(), a.end() - 2}, {b.begin(), b.end() - 2}, "outer dims");
  if (!row) out.push_back(a[a.size() - 2]);
  if (!column) out.push_back(b.back());
  return out;
}

bool is_byte(DType t) { return t == DType::i8 || t == DType::u8; }

void check_bytes(const Rule& r) {
  for (int i = 0; i < 2; ++i)
    if (!is_byte(r.dtype(i))) throw ShapeError(operand_text(i) + " must be i8 or u8, it is " + text(r.type(i)));
  for (int i = 2; i < r.count(); ++i)
    if (r.has(i)) r.same_dtype(i, i - 2);
}

// What every convolution must satisfy of ranks and attribute lengths. Returns the number of spatial dims.
int check_conv(const Rule& r) {
  r.tensor(0);
  r.tensor(1);
  const auto& a = r.as<ConvAttr>();
  if (r.rank(0) < 3)
    throw ShapeError("operand 1 needs batch, channels and at least one spatial dim, it is " + text(r.type(0)));
  if (r.rank(1) != r.rank(0))
    throw ShapeError("operand 1 " + shape_text(r.shape(0)) + " has rank " + std::to_string(r.rank(0)) +
                     ", the weights " + shape_text(r.shape(1)) + " have rank " + std::to_string(r.rank(1)));
  const size_t n = static_cast<size_t>(r.rank(0)) - 2;
  auto length = [&](const Ints& v, std::string_view name, int64_t least) {
    if (v.size() != n)
      throw ShapeError(std::string(name) + " has " + std::to_string(v.size()) + " entries for " + std::to_string(n) +
                       " spatial dims");
    for (int64_t x : v)
      if (x < least)
        throw ShapeError(std::string(name) + " must be at least " + std::to_string(least) + ", got " +
                         std::to_string(x));
  };
  length(a.strides, "strides", 1);
  length(a.dilations, "dilations", 1);
  length(a.pads_begin, "pads_begin", std::numeric_limits<int64_t>::min());
  length(a.pads_end, "pads_end", std::numeric_limits<int64_t>::min());
  if (!a.output_padding.empty()) length(a.output_padding, "output_padding", 0);
  if (a.group < 1) throw ShapeError("group must be at least 1, got " + std::to_string(a.group));
  return static_cast<int>(n);
}

// Extent of a dilated kernel.
Expr dilated(Expr kernel, int64_t dilation) { return (kernel - 1) * dilation + 1; }

Shape conv_shape(Rule& r) {
  const int spatial = check_conv(r);
  const auto& a = r.as<ConvAttr>();
  const Expr channels = r.dim(0, 1), wanted = r.dim(1, 1) * a.group, out_channels = r.dim(1, 0);
  r.same(channels, wanted,
         "operand 1 has " + sym::text(channels) + " channels, the weights want " + sym::text(wanted) +
             (a.group > 1 ? " (" + sym::text(r.dim(1, 1)) + " in each of " + std::to_string(a.group) + " groups)" : ""));
  r.require(sym::eq(sym::mod(out_channels, a.group), 0),
            sym::text(out_channels) + " output channels do not divide into " + std::to_string(a.group) + " groups");
  Shape out = {r.dim(0, 0), out_channels};
  for (int i = 0; i < spatial; ++i) {
    const size_t k = static_cast<size_t>(i);
    const Expr padded = r.dim(0, i + 2) + a.pads_begin[k] + a.pads_end[k];
    const Expr kernel = dilated(r.dim(1, i + 2), a.dilations[k]);
    const Expr extent = sym::floordiv(padded - kernel, a.strides[k]) + 1;
    r.require(sym::ge(r.dim(1, i + 2), 1), "the kernel is empty in spatial dim " + std::to_string(i));
    r.require(sym::ge(extent, 0), "the kernel's extent " + sym::text(kernel) + " exceeds the padded input " +
                                      sym::text(padded) + " in spatial dim " + std::to_string(i));
    out.push_back(extent);
  }
  return out;
}

}  // namespace

Types matmul(Rule& r) {
  Shape s = matmul_shape(r);
  r.same_dtype(0, 1);
  return {Type::make(r.dtype(0), std::move(s))};
}

Types matmul_integer(Rule& r) {
  Shape s = matmul_shape(r);
  check_bytes(r);
  return {Type::make(DType::i32, std::move(s))};
}

Types conv(Rule& r) {
  Shape s = conv_shape(r);
  r.same_dtype(0, 1);
  r.vector_of(2, r.dim(1, 0), "bias");
  if (r.has(2)) r.same_dtype(0, 2);
  return {Type::make(r.dtype(0), std::move(s))};
}

Types conv_integer(Rule& r) {
  Shape s = conv_shape(r);
  check_bytes(r);
  return {Type::make(DType::i32, std::move(s))};
}

Types conv_transpose(Rule& r) {
  const int spatial = check_conv(r);
  r.same_dtype(0, 1);
  const auto& a = r.as<ConvAttr>();
  const Expr channels = r.dim(0, 1);  // weights are [C, M/group, kernel]
  r.same(channels, r.dim(1, 0),
         "operand 1 has " + sym::text(channels) + " channels, the weights want " + sym::text(r.dim(1, 0)));
  r.require(sym::eq(sym::mod(channels, a.group), 0),
            sym::text(channels) + " channels do not divide into " + std::to_string(a.group) + " groups");
  const Expr out_channels = r.dim(1, 1) * a.group;
  r.vector_of(2, out_channels, "bias");
  if (r.has(2)) r.same_dtype(0, 2);
  Shape out = {r.dim(0, 0), out_channels};
  for (int i = 0; i < spatial; ++i) {
    const size_t k = static_cast<size_t>(i);
    const int64_t extra = a.output_padding.empty() ? 0 : a.output_padding[k];
    r.require(sym::ge(r.dim(1, i + 2), 1), "the kernel is empty in spatial dim " + std::to_string(i));
    const Expr extent = (r.dim(0, i + 2) - 1) * a.strides[k] + dilated(r.dim(1, i + 2), a.dilations[k]) + extra -
                        a.pads_begin[k] - a.pads_end[k];
    r.require(sym::ge(extent, 0), "the pads exceed the result in spatial dim " + std::to_string(i));
    out.push_back(extent);
  }
  return {Type::make(r.dtype(0), std::move(out))};
}

}  // namespace tripod::graph::rules
