#include "host/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/diagnostic.h"
#include "base/float_bits.h"
#include "base/sha256.h"

namespace tripod::host {
namespace {

// Two independent 64-bit multiplicative hashes of the content; equality of 128 bits stands for equality of bytes
// (among the constants of one model a collision is out of reach).
std::string content_key(const std::byte* p, int64_t n) {
  uint64_t a = 0x9e3779b97f4a7c15ull ^ static_cast<uint64_t>(n), b = 0xc2b2ae3d27d4eb4full;
  for (int64_t i = 0; i < n; i += 8) {
    uint64_t w = 0;
    std::memcpy(&w, p + i, static_cast<size_t>(std::min<int64_t>(8, n - i)));
    a = (a ^ w) * 0x9fb21c651e98df25ull;
    a ^= a >> 32;
    b = (b + w) * 0xd6e8feb86659fd93ull;
    b ^= b >> 29;
  }
  return std::to_string(a) + ":" + std::to_string(b) + ":" + std::to_string(n);
}

// The offset of an element in a packed layout: a sum of contributions of each dim's index, and of pairs of dims where a
// physical dim mixes two (the channels of joint groups). Rules produce no other layouts.
struct Offsets {
  struct Pair {
    size_t first, second;
    std::vector<int64_t> table;  // [first dim, second dim]
  };
  std::vector<std::vector<int64_t>> tables;
  std::vector<Pair> pairs;
};

size_t dim_of(const loop::Layout& l, const sym::Expr& var) {
  return static_cast<size_t>(std::find(l.args.begin(), l.args.end(), var) - l.args.begin());
}

Offsets offsets_of(const loop::Buffer& b, const std::vector<int64_t>& shape) {
  const loop::Layout& l = b->layout;
  Offsets r;
  for (int64_t n : shape) r.tables.emplace_back(n, 0);
  int64_t stride = 1;
  if (l.is_row_major()) {
    for (size_t d = shape.size(); d-- > 0;) {
      for (int64_t i = 0; i < shape[d]; ++i) r.tables[d][i] = i * stride;
      stride *= b->shape[d].value();
    }
    return r;
  }
  for (size_t p = l.map.size(); p-- > 0; stride *= l.extents[p].value()) {
    const auto vars = sym::variables(l.map[p]);
    TRIPOD_CHECK(vars.size() <= 2, "a packed layout mixes three dims");
    if (vars.empty()) continue;
    const size_t d = dim_of(l, vars[0]);
    if (vars.size() == 1) {
      for (int64_t i = 0; i < shape[d]; ++i) r.tables[d][i] += stride * sym::evaluate(l.map[p], {{vars[0], i}});
      continue;
    }
    Offsets::Pair pair{d, dim_of(l, vars[1]), {}};
    for (int64_t i = 0; i < shape[pair.first]; ++i)
      for (int64_t j = 0; j < shape[pair.second]; ++j) pair.table.push_back(stride * sym::evaluate(l.map[p], {{vars[0], i}, {vars[1], j}}));
    r.pairs.push_back(std::move(pair));
  }
  return r;
}

template <class T>
void pack(const std::byte* from, std::byte* to, const std::vector<int64_t>& shape, const Offsets& offsets) {
  std::vector<int64_t> at(shape.size(), 0);
  int64_t count = 1;
  for (int64_t n : shape) count *= n;
  if (count == 0) return;
  const int64_t inner = shape.back();
  const std::vector<int64_t>& last = offsets.tables.back();
  for (int64_t i = 0; i < count; i += inner) {
    int64_t base = 0;
    for (size_t d = 0; d + 1 < shape.size(); ++d) base += offsets.tables[d][at[d]];
    for (int64_t j = 0; j < inner; ++j) {
      int64_t to_element = base + last[j];
      at.back() = j;
      for (const Offsets::Pair& p : offsets.pairs) to_element += p.table[at[p.first] * shape[p.second] + at[p.second]];
      std::memcpy(to + to_element * sizeof(T), from + (i + j) * sizeof(T), sizeof(T));
    }
    for (size_t d = shape.size() - 1; d-- > 0;) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
  }
}

}  // namespace

std::string Weights::identity() const {
  std::vector<std::pair<int64_t, const std::string*>> all;
  for (const auto& [key, offset] : known_) all.push_back({offset, &key});
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first != b.first ? a.first < b.first : *a.second < *b.second; });
  Sha256 hash;
  for (const auto& [offset, key] : all) hash.update(std::to_string(offset) + "=" + *key + "\n");
  return hash.hex();
}

// The elements as they are stored. Numbers beyond the narrow type's range become its largest: a mask of -3.4e38 must not
// turn into an infinity, of which a row of nothing else would make NaN.
static graph::ConstAttr narrowed(const graph::ConstAttr& bytes, const graph::Type& t) {
  auto owned = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(bytes.size) / 2);
  const double most = decode_float(t.storage, t.storage == DType::f16 ? 0x7bff : 0x7f7f);
  for (int64_t i = 0; i < bytes.size / 4; ++i) {
    const double v = load_double(DType::f32, bytes.data, i);
    store_double(t.storage, owned->data(), i, std::isfinite(v) ? std::clamp(v, -most, most) : v);
  }
  return {owned, owned->data(), static_cast<int64_t>(owned->size()), {}};
}

int64_t Weights::place(const graph::ConstAttr& bytes, const graph::Type& t, const loop::Buffer& wanted) {
  if (t.storage != DType::none) {
    graph::Type stored = t;
    stored.dtype = t.storage, stored.storage = DType::none;
    return place(narrowed(bytes, t), stored, wanted);
  }
  std::vector<int64_t> shape;
  for (const sym::Expr& e : t.shape) shape.push_back(e.value());
  std::string key = content_key(bytes.data, bytes.size);
  bool plain = wanted->layout.is_row_major();
  for (size_t d = 0; d < shape.size(); ++d) plain = plain && wanted->shape[d].is_const(shape[d]);
  if (!plain) {
    key += std::string(name(t.dtype));
    for (int64_t n : shape) key += "," + std::to_string(n);
    // The layout by its effect: physical dims in terms of numbered logical ones.
    for (size_t p = 0; p < wanted->layout.map.size(); ++p) {
      auto vars = sym::variables(wanted->layout.map[p]);
      std::string text = sym::text(wanted->layout.map[p]);
      // Longer names first: one may be the beginning of another.
      std::stable_sort(vars.begin(), vars.end(), [](const auto& x, const auto& y) { return sym::text(x).size() > sym::text(y).size(); });
      for (const auto& v : vars) {
        const std::string var = sym::text(v);
        for (size_t at; (at = text.find(var)) != std::string::npos;) text.replace(at, var.size(), "#" + std::to_string(dim_of(wanted->layout, v)));
      }
      key += "|" + text + ":" + sym::text(wanted->layout.extents[p]);
    }
  }
  if (auto it = known_.find(key); it != known_.end()) return it->second;
  const int64_t offset = (size_ + 63) / 64 * 64;
  int64_t size = bytes.size;
  const std::byte* data = bytes.data;
  if (plain) {
    owners_.push_back(bytes.owner);
  } else {
    sym::Context& c = wanted->shape[0].context();
    const int64_t each = info(t.dtype).bits / 8;
    size = loop::storage_size(c, wanted).value() * each;
    auto packed = std::make_shared<std::vector<std::byte>>(size);
    const Offsets offsets = offsets_of(wanted, shape);
    switch (each) {
      case 1: pack<uint8_t>(bytes.data, packed->data(), shape, offsets); break;
      case 2: pack<uint16_t>(bytes.data, packed->data(), shape, offsets); break;
      case 4: pack<uint32_t>(bytes.data, packed->data(), shape, offsets); break;
      default: pack<uint64_t>(bytes.data, packed->data(), shape, offsets); break;
    }
    data = packed->data();
    owners_.push_back(packed);
  }
  pieces_.push_back({offset, size, data});
  size_ = offset + size;
  return known_[key] = offset;
}

}  // namespace tripod::host
