// Moves on constants.
#include <algorithm>
#include <cstring>

#include "base/float_bits.h"
#include "graph_opt/fold.h"

namespace tripod::graph_opt {

int64_t product(const Ints& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

Ints strides_of(const Ints& dims) {
  Ints s(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;) s[d - 1] = s[d] * dims[d];
  return s;
}

Ints stretched_strides(const Ints& from, const Ints& to) {
  Ints s(to.size(), 0);
  const Ints own = strides_of(from);
  for (size_t d = 0; d < from.size(); ++d)
    if (from[d] != 1) s[to.size() - from.size() + d] = own[d];
  return s;
}

namespace {

// Innermost dim as a loop over elements of a fixed size, so that the compiler sees plain loads and stores.
template <size_t kSize>
void copy_rows(const std::byte* data, int64_t base, const Ints& strides, const Ints& dims, std::byte* to) {
  const size_t rank = dims.size();
  const int64_t n = rank ? dims[rank - 1] : 1, step = rank ? strides[rank - 1] : 0;
  const int64_t rows = n ? product(dims) / n : 0;
  Ints index(rank, 0);
  for (int64_t row = 0, from = base; row < rows; ++row) {
    if (step == 1) {
      std::memcpy(to, data + from * static_cast<int64_t>(kSize), static_cast<size_t>(n) * kSize);
    } else {
      for (int64_t i = 0; i < n; ++i)
        std::memcpy(to + i * static_cast<int64_t>(kSize), data + (from + i * step) * static_cast<int64_t>(kSize), kSize);
    }
    to += n * static_cast<int64_t>(kSize);
    for (size_t d = rank > 0 ? rank - 1 : 0; d-- > 0;) {
      from += strides[d];
      if (++index[d] < dims[d]) break;
      from -= strides[d] * dims[d];
      index[d] = 0;
    }
  }
}

// A matrix that is read by columns, in blocks that stay in the cache.
template <size_t kSize>
void copy_matrix(const std::byte* data, int64_t row_stride, int64_t column_stride, int64_t rows, int64_t columns,
                 std::byte* to) {
  constexpr int64_t kBlock = 32;
  for (int64_t r0 = 0; r0 < rows; r0 += kBlock)
    for (int64_t c0 = 0; c0 < columns; c0 += kBlock)
      for (int64_t r = r0; r < std::min(rows, r0 + kBlock); ++r)
        for (int64_t c = c0; c < std::min(columns, c0 + kBlock); ++c)
          std::memcpy(to + (r * columns + c) * static_cast<int64_t>(kSize),
                      data + (r * row_stride + c * column_stride) * static_cast<int64_t>(kSize), kSize);
}

}  // namespace

std::vector<std::byte> strided_copy(const std::byte* data, size_t size, int64_t base, const Ints& strides,
                                    const Ints& dims) {
  std::vector<std::byte> to(static_cast<size_t>(product(dims)) * size);
  if (dims.size() == 2 && size == 4 && strides[1] > 1) {
    copy_matrix<4>(data + base * 4, strides[0], strides[1], dims[0], dims[1], to.data());
    return to;
  }
  if (size == 1) copy_rows<1>(data, base, strides, dims, to.data());
  if (size == 2) copy_rows<2>(data, base, strides, dims, to.data());
  if (size == 4) copy_rows<4>(data, base, strides, dims, to.data());
  if (size == 8) copy_rows<8>(data, base, strides, dims, to.data());
  return to;
}

namespace {

struct Source {
  const std::byte* data;
  Ints dims;
  size_t size;  // bytes of an element
};

Source source(const Graph& g, ValueId v) {
  return {g.bytes(v).data, *static_shape(g.type(v)), static_cast<size_t>(info(g.type(v).dtype).bits) / 8};
}

using Bytes = std::vector<std::byte>;

Bytes transpose(const Source& x, const std::vector<int>& perm, const Ints& to) {
  const Ints own = strides_of(x.dims);
  Ints strides;
  for (int p : perm) strides.push_back(own[static_cast<size_t>(p)]);
  return strided_copy(x.data, x.size, 0, strides, to);
}

std::optional<Bytes> slice(const Source& x, const graph::SliceAttr& a, const Ints& to) {
  Ints strides = strides_of(x.dims);
  int64_t base = 0;
  for (size_t d = 0; d < to.size(); ++d) {
    if (!a.starts[d].is_const()) return std::nullopt;
    base += a.starts[d].value() * strides[d];
    strides[d] *= a.steps[d];
  }
  return strided_copy(x.data, x.size, base, strides, to);
}

// Each dim as (how often, the operand's dim), the first of stride 0.
Bytes tile(const Source& x, const Ints& to) {
  const Ints own = strides_of(x.dims);
  Ints strides, dims;
  for (size_t d = 0; d < to.size(); ++d) {
    strides.insert(strides.end(), {0, own[d]});
    dims.insert(dims.end(), {x.dims[d] ? to[d] / x.dims[d] : 0, x.dims[d]});
  }
  return strided_copy(x.data, x.size, 0, strides, dims);
}

// Blocks of rows: outer dims, then for each part what lies from the axis on.
Bytes concat(const Graph& g, const Node& n, const Ints& to) {
  const size_t axis = static_cast<size_t>(std::get<graph::AxisAttr>(n.attr).axis);
  const int64_t outer = product(Ints(to.begin(), to.begin() + static_cast<std::ptrdiff_t>(axis)));
  Bytes bytes;
  bytes.reserve(static_cast<size_t>(product(to)) * source(g, n.operands[0]).size);
  for (int64_t i = 0; i < outer; ++i) {
    for (ValueId v : n.operands) {
      const Source x = source(g, v);
      const int64_t block = product(x.dims) / outer * static_cast<int64_t>(x.size);
      bytes.insert(bytes.end(), x.data + i * block, x.data + (i + 1) * block);
    }
  }
  return bytes;
}

// Nothing when an index is out of bounds: that is the run's error to report.
std::optional<Bytes> gather(const Graph& g, const Node& n) {
  const Source x = source(g, n.operands[0]);
  const auto axis = std::get<graph::AxisAttr>(n.attr).axis;
  const auto indices = g.int_values(n.operands[1]);
  if (!indices) return std::nullopt;
  const int64_t dim = x.dims[static_cast<size_t>(axis)];
  const int64_t outer = product(Ints(x.dims.begin(), x.dims.begin() + axis));
  const int64_t block = product(Ints(x.dims.begin() + axis + 1, x.dims.end())) * static_cast<int64_t>(x.size);
  Bytes bytes;
  bytes.reserve(static_cast<size_t>(outer * block) * indices->size());
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i : *indices) {
      if (i < -dim || i >= dim) return std::nullopt;
      const std::byte* from = x.data + (o * dim + (i < 0 ? i + dim : i)) * block;
      bytes.insert(bytes.end(), from, from + block);
    }
  }
  return bytes;
}

// The fill everywhere, then the operand's rows into the middle.
std::optional<Bytes> pad(const Graph& g, const Node& n, const Ints& to) {
  const auto& a = std::get<graph::PadAttr>(n.attr);
  if (a.mode != graph::PadAttr::constant) return std::nullopt;
  const Source x = source(g, n.operands[0]);
  const Ints strides = strides_of(to);
  int64_t at = 0;
  for (size_t d = 0; d < to.size(); ++d) {
    if (!a.begin[d].is_const()) return std::nullopt;
    at += a.begin[d].value() * strides[d];
  }
  Bytes bytes(static_cast<size_t>(product(to)) * x.size);
  if (n.operands.size() > 1 && n.operands[1] != kNoValue)
    bytes = strided_copy(g.bytes(n.operands[1]).data, x.size, 0, Ints(to.size(), 0), to);
  const size_t rank = x.dims.size();
  const int64_t count = product(x.dims), row = rank ? x.dims[rank - 1] : 1;
  Ints index(rank, 0);
  for (int64_t done = 0; done < count; done += row) {
    std::memcpy(bytes.data() + at * static_cast<int64_t>(x.size), x.data + done * static_cast<int64_t>(x.size),
                static_cast<size_t>(row) * x.size);
    for (size_t d = rank > 0 ? rank - 1 : 0; d-- > 0;) {
      at += strides[d];
      if (++index[d] < x.dims[d]) break;
      at -= strides[d] * x.dims[d];
      index[d] = 0;
    }
  }
  return bytes;
}

std::optional<Bytes> iota(const Graph& g, const Node& n, DType t, int64_t count) {
  if (!is_int(t)) return std::nullopt;
  const auto start = g.int_values(n.operands[0]), step = g.int_values(n.operands[1]);
  if (!start || !step) return std::nullopt;
  Bytes bytes(static_cast<size_t>(byte_size(t, count)));
  uint64_t v = static_cast<uint64_t>((*start)[0]);  // wraps as the kernel does
  for (int64_t i = 0; i < count; ++i, v += static_cast<uint64_t>((*step)[0]))
    store_int(t, bytes.data(), i, static_cast<int64_t>(v));
  return bytes;
}

std::optional<Bytes> moved(const Graph& g, const Node& n, const Type& t, const Ints& to) {
  switch (n.op) {
    case OpKind::transpose: return transpose(source(g, n.operands[0]), std::get<graph::PermAttr>(n.attr).perm, to);
    case OpKind::broadcast: {
      const Source x = source(g, n.operands[0]);
      return strided_copy(x.data, x.size, 0, stretched_strides(x.dims, to), to);
    }
    case OpKind::slice: return slice(source(g, n.operands[0]), std::get<graph::SliceAttr>(n.attr), to);
    case OpKind::tile: return tile(source(g, n.operands[0]), to);
    case OpKind::concat: return concat(g, n, to);
    case OpKind::gather: return gather(g, n);
    case OpKind::pad: return pad(g, n, to);
    case OpKind::iota: return iota(g, n, t.dtype, product(to));
    default: return std::nullopt;
  }
}

}  // namespace

std::optional<graph::ConstAttr> fold_move(const Graph& g, const Node& n) {
  if (n.op == OpKind::reshape || n.op == OpKind::identity) return g.bytes(n.operands[0]);
  const Type& t = g.type(n.results[0]);
  const Ints to = *static_shape(t);
  if (info(t.dtype).bits < 8) return std::nullopt;  // two elements a byte
  auto bytes = product(to) == 0 ? std::optional(Bytes()) : moved(g, n, t, to);
  if (!bytes || static_cast<int64_t>(bytes->size()) != byte_size(t.dtype, product(to))) return std::nullopt;
  return own_bytes(*std::move(bytes));
}

}  // namespace tripod::graph_opt
