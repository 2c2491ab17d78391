// Contents of moves: where each element of the result comes from. Shapes are static here, contents small.
#include "graph/contents.h"

namespace tripod::graph {
namespace {

Ints strides_of(const Ints& dims) {
  Ints s(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) s[i - 1] = s[i] * dims[i];
  return s;
}

// Calls f with the index vector of every element, row-major.
template <class F>
void for_each_index(const Ints& dims, F&& f) {
  int64_t count = 1;
  for (int64_t d : dims) count *= d;
  Ints index(dims.size(), 0);
  for (int64_t p = 0; p < count; ++p) {
    f(index);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < dims[d]) break;
      index[d] = 0;
    }
  }
}

int64_t offset(const Ints& index, const Ints& strides) {
  int64_t at = 0;
  for (size_t d = 0; d < index.size(); ++d) at += index[d] * strides[d];
  return at;
}

// The source of a single-operand move.
struct Source {
  const Elements& elements;
  Ints dims, strides;
  Source(const Graph& g, const Node& n, const Elements& e)
      : elements(e), dims(static_dims(g.type(n.operands[0]))), strides(strides_of(dims)) {}
  Expr at(const Ints& index) const { return elements[static_cast<size_t>(offset(index, strides))]; }
};

Elements transpose(const Source& x, const Node& n, const Ints& to) {
  const auto& perm = std::get<PermAttr>(n.attr).perm;
  Elements out;
  Ints from(x.dims.size());
  for_each_index(to, [&](const Ints& i) {
    for (size_t d = 0; d < i.size(); ++d) from[static_cast<size_t>(perm[d])] = i[d];
    out.push_back(x.at(from));
  });
  return out;
}

// broadcast and tile: the index in the source is the result's, modulo the source's dim.
Elements repeat(const Source& x, const Ints& to) {
  Elements out;
  Ints from(x.dims.size());
  const size_t skip = to.size() - x.dims.size();
  for_each_index(to, [&](const Ints& i) {
    for (size_t d = 0; d < from.size(); ++d) from[d] = i[d + skip] % x.dims[d];
    out.push_back(x.at(from));
  });
  return out;
}

std::optional<Elements> slice(const Source& x, const Node& n, const Ints& to) {
  const auto& a = std::get<SliceAttr>(n.attr);
  for (Expr s : a.starts)
    if (!s.is_const()) return std::nullopt;
  Elements out;
  Ints from(to.size());
  bool inside = true;
  for_each_index(to, [&](const Ints& i) {
    for (size_t d = 0; d < i.size(); ++d) {
      from[d] = a.starts[d].value() + i[d] * a.steps[d];
      inside = inside && from[d] >= 0 && from[d] < x.dims[d];
    }
    if (inside) out.push_back(x.at(from));
  });
  if (!inside) return std::nullopt;
  return out;
}

std::optional<Elements> pad(const Graph& g, const Source& x, const Node& n, const Ints& to) {
  const auto& a = std::get<PadAttr>(n.attr);
  const bool has_fill = n.operands.size() > 1 && n.operands[1] != kNoValue;
  const Elements* fill = contents_of(g, n, 1);
  if (a.mode != PadAttr::constant || (has_fill && !fill)) return std::nullopt;
  for (Expr b : a.begin)
    if (!b.is_const()) return std::nullopt;
  const Expr value = has_fill ? (*fill)[0] : g.sym().constant(0);
  Elements out;
  Ints from(to.size());
  for_each_index(to, [&](const Ints& i) {
    bool inside = true;
    for (size_t d = 0; d < i.size(); ++d) {
      from[d] = i[d] - a.begin[d].value();
      inside = inside && from[d] >= 0 && from[d] < x.dims[d];
    }
    out.push_back(inside ? x.at(from) : value);
  });
  return out;
}

std::optional<Elements> concat(const Graph& g, const Node& n, const Ints& to) {
  const auto axis = static_cast<size_t>(std::get<AxisAttr>(n.attr).axis);
  std::vector<const Elements*> parts;
  for (size_t i = 0; i < n.operands.size(); ++i) {
    parts.push_back(contents_of(g, n, i));
    if (!parts.back()) return std::nullopt;
  }
  // Outer index, then operand, then the operand's run of elements.
  int64_t outer = 1;
  for (size_t d = 0; d < axis; ++d) outer *= to[d];
  Elements out;
  for (int64_t o = 0; o < outer; ++o)
    for (const Elements* p : parts) {
      const int64_t run = static_cast<int64_t>(p->size()) / outer;
      out.insert(out.end(), p->begin() + o * run, p->begin() + (o + 1) * run);
    }
  return out;
}

// The indices as constants in [0, extent), or nothing.
std::optional<Ints> constant_indices(const Graph& g, const Node& n, int64_t extent) {
  const Elements* e = contents_of(g, n, 1);
  if (!e) return std::nullopt;
  Ints indices;
  for (Expr i : *e) {
    if (!i.is_const()) return std::nullopt;
    const int64_t v = i.value() < 0 ? i.value() + extent : i.value();
    if (v < 0 || v >= extent) return std::nullopt;
    indices.push_back(v);
  }
  return indices;
}

std::optional<Elements> gather(const Graph& g, const Source& x, const Node& n, const Ints& to) {
  const auto axis = static_cast<size_t>(std::get<AxisAttr>(n.attr).axis);
  const auto indices = constant_indices(g, n, x.dims[axis]);
  if (!indices) return std::nullopt;
  const Ints index_dims = static_dims(g.type(n.operands[1])), index_strides = strides_of(index_dims);
  const size_t k = index_dims.size();
  Elements out;
  Ints from(x.dims.size());
  for_each_index(to, [&](const Ints& i) {
    int64_t at = 0;
    for (size_t d = 0; d < k; ++d) at += i[axis + d] * index_strides[d];
    for (size_t d = 0; d < from.size(); ++d)
      from[d] = d < axis ? i[d] : d == axis ? (*indices)[static_cast<size_t>(at)] : i[d + k - 1];
    out.push_back(x.at(from));
  });
  return out;
}

std::optional<Elements> gather_elements(const Graph& g, const Source& x, const Node& n, const Ints& to) {
  const auto axis = static_cast<size_t>(std::get<AxisAttr>(n.attr).axis);
  const auto indices = constant_indices(g, n, x.dims[axis]);
  if (!indices) return std::nullopt;
  Elements out;
  bool inside = true;
  size_t p = 0;
  for_each_index(to, [&](const Ints& i) {
    Ints from = i;
    from[axis] = (*indices)[p++];
    for (size_t d = 0; d < from.size(); ++d) inside = inside && from[d] < x.dims[d];
    if (inside) out.push_back(x.at(from));
  });
  if (!inside) return std::nullopt;
  return out;
}

}  // namespace

std::optional<Elements> move_contents(const Graph& g, const Node& n, const Type& t) {
  const Ints to = static_dims(t);
  if (n.op == OpKind::concat) return concat(g, n, to);
  const Elements* in = contents_of(g, n, 0);
  if (!in) return std::nullopt;
  if (n.op == OpKind::reshape) return *in;
  const Source x(g, n, *in);
  switch (n.op) {
    case OpKind::transpose: return transpose(x, n, to);
    case OpKind::broadcast:
    case OpKind::tile: return repeat(x, to);
    case OpKind::slice: return slice(x, n, to);
    case OpKind::pad: return pad(g, x, n, to);
    case OpKind::gather: return gather(g, x, n, to);
    case OpKind::gather_elements: return gather_elements(g, x, n, to);
    default: return std::nullopt;
  }
}

std::optional<Elements> scatter_contents(const Graph& g, const Node& n) {
  const Elements *data = contents_of(g, n, 0), *index = contents_of(g, n, 1), *updates = contents_of(g, n, 2);
  const auto& a = std::get<AxisAttr>(n.attr);
  if (!data || !index || !updates || (!a.text.empty() && a.text != "none")) return std::nullopt;
  const Ints dims = static_dims(g.type(n.operands[0])), strides = strides_of(dims);
  const Ints index_dims = static_dims(g.type(n.operands[1]));
  // Where update p goes along dim d of the data, from index element i; -1: unknown or out of bounds.
  auto along = [&](size_t d, size_t i) -> int64_t {
    if (!(*index)[i].is_const()) return -1;
    const int64_t v = (*index)[i].value() < 0 ? (*index)[i].value() + dims[d] : (*index)[i].value();
    return v < dims[d] ? v : -1;
  };
  Elements out = *data;
  bool known = true;
  if (n.op == OpKind::scatter_elements) {
    size_t p = 0;
    for_each_index(index_dims, [&](Ints at) {
      const auto axis = static_cast<size_t>(a.axis);
      at[axis] = along(axis, p);
      known = known && at[axis] >= 0;
      for (size_t d = 0; d < at.size(); ++d) known = known && at[d] < dims[d];
      if (known) out[static_cast<size_t>(offset(at, strides))] = (*updates)[p];
      ++p;
    });
  } else {
    const auto depth = static_cast<size_t>(index_dims.back());
    int64_t run = 1;  // elements one index tuple addresses
    for (size_t d = depth; d < dims.size(); ++d) run *= dims[d];
    const size_t tuples = depth ? index->size() / depth : 0;
    for (size_t t = 0; t < tuples && known; ++t) {
      int64_t at = 0;
      for (size_t d = 0; d < depth && known; ++d) {
        const int64_t v = along(d, t * depth + d);
        known = v >= 0;
        at += v * strides[d];
      }
      for (int64_t k = 0; k < run && known; ++k)
        out[static_cast<size_t>(at + k)] = (*updates)[t * static_cast<size_t>(run) + static_cast<size_t>(k)];
    }
    known = known && depth > 0;
  }
  if (!known) return std::nullopt;
  return out;
}

}  // namespace tripod::graph
