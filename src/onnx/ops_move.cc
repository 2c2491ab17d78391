// Operators that only rearrange: shapes, order, repetition.
#include <algorithm>
#include <numeric>

#include "onnx/axis_values.h"
#include "onnx/op_importer.h"

namespace tripod::importer {
namespace {

// --- reshape ------------------------------------------------------------------------------------------------------

void split_product(Expr e, std::vector<Expr>& factors, int64_t& coefficient) {
  if (e.is_const()) {
    coefficient *= e.value();
  } else if (e->op == sym::Op::mul) {
    split_product(e.arg(0), factors, coefficient);
    split_product(e.arg(1), factors, coefficient);
  } else {
    factors.push_back(e);
  }
}

// What -1 stands for: product(from) / product(to), with equal factors cancelled (a dim of 0 among them makes -1
// ambiguous in ONNX anyway). That the division is exact is checked by the reshape itself.
Expr inferred_dim(NodeContext& c, const Shape& from, const Shape& to) {
  std::vector<Expr> up, down;
  int64_t up_number = 1, down_number = 1;
  for (Expr e : from) split_product(e, up, up_number);
  for (Expr e : to) split_product(e, down, down_number);
  std::erase_if(up, [&](Expr e) {
    const auto same = std::find(down.begin(), down.end(), e);
    if (same == down.end()) return false;
    down.erase(same);
    return true;
  });
  if (down_number == 0) c.fail("-1 in the shape has no meaning beside a dim of 0");
  const int64_t common = std::gcd(up_number, down_number);
  if (common) up_number /= common, down_number /= common;
  const Expr over = sym::product(c.sym(), up) * up_number, under = sym::product(c.sym(), down) * down_number;
  if (under.is_const(1)) return over;
  // Where the quotient is no division any more (B*P + B*S rows of C by the rows), it holds for every size.
  const Expr quotient = sym::floordiv(over, under);
  const bool divides = quotient->op == sym::Op::floordiv || !sym::proved(sym::eq(quotient * under, over));
  return divides && !sym::proved(sym::ge(under, 1)) ? sym::floordiv(over, sym::max(under, 1)) : quotient;
}

// A dim that is computed from data may turn out to be 0 (copy) or -1 (infer) at run time.
bool may_be_special(Expr e) {
  for (Expr v : sym::variables(e))
    if (v->range.lo < 0) return !sym::proved(sym::ge(e, 1));
  return false;
}

// A dim that is computed from dims is meant as it is, also where it turns out to be 0, which ONNX reads as "copy the
// input's dim". The two only differ where another dim is 0 as well (else a copied dim contradicts the number of
// elements, which is 0), and not where the copied dim is 0: that is required.
void require_plain_zeros(NodeContext& c, const Shape& from, const Shape& to) {
  for (size_t i = 0; i < to.size() && i < from.size(); ++i) {
    if (to[i].is_const() || to[i] == from[i] || may_be_special(to[i]) || sym::proved(sym::ge(to[i], 1))) continue;
    Expr plain = sym::logical_or(sym::ge(to[i], 1), sym::eq(from[i], 0));
    Expr others = c.expr(1);
    for (size_t k = 0; k < to.size(); ++k)
      if (k != i && !to[k].is_const(-1) && !may_be_special(to[k])) others = sym::logical_and(others, sym::ge(to[k], 1));
    plain = sym::logical_or(plain, others);
    if (!sym::proved(plain)) graph::require(c.g, plain, "dim " + std::to_string(i) + " of the shape is 0, which copies the input's dim");
  }
}

std::vector<ValueId> reshaped(NodeContext& c, std::vector<Expr> wanted, bool allow_zero) {
  const ValueId x = c.input(0);
  const Shape from = c.shape(x);
  const auto copied = [&](size_t i) -> std::optional<Expr> {
    return i < from.size() ? std::optional(from[i]) : std::nullopt;
  };
  Shape to = wanted;
  int unknown = -1;
  std::vector<size_t> special;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i].is_const(0) && !allow_zero) {
      if (!copied(i))
        c.fail("dim " + std::to_string(i) + " of the shape is 0 (copy), the input has only " +
               std::to_string(from.size()) + " dims");
      to[i] = *copied(i);
    } else if (to[i].is_const(-1)) {
      if (unknown >= 0) c.fail("the shape has more than one -1");
      unknown = static_cast<int>(i);
    } else if (to[i].is_const() && to[i].value() < 0) {
      c.fail("dim " + std::to_string(i) + " of the shape is " + std::to_string(to[i].value()));
    } else if (may_be_special(to[i])) {
      special.push_back(i);
      if (!allow_zero && copied(i)) to[i] = sym::select(sym::eq(wanted[i], 0), *copied(i), wanted[i]);
    }
  }
  if (!allow_zero) require_plain_zeros(c, from, to);
  const auto all_but = [&](size_t i) {
    Shape rest;
    for (size_t k = 0; k < to.size(); ++k)
      if (k != i) rest.push_back(to[k]);
    return rest;
  };
  if (unknown >= 0) {
    to[unknown] = inferred_dim(c, from, all_but(unknown));
  } else {
    Shape decided = to;
    for (size_t i : special) decided[i] = sym::select(sym::eq(wanted[i], -1), inferred_dim(c, from, all_but(i)), to[i]);
    to = decided;
  }
  return {c.reshape(x, std::move(to))};
}

std::vector<ValueId> reshape(NodeContext& c) {
  return reshaped(c, c.dims(c.input(1), {-1, c.kDimRange.hi}), c.opset >= 14 && c.attr_bool("allowzero", false));
}

std::vector<ValueId> flatten(NodeContext& c) {
  const ValueId x = c.input(0);
  const int rank = c.rank(x);
  int64_t axis = c.attr_int("axis", 1);
  if (axis < (c.opset >= 11 ? -rank : 0) || axis > rank)
    c.fail("axis " + std::to_string(axis) + " is out of range for " + std::to_string(rank) + " dims");
  if (axis < 0) axis += rank;
  const Shape s = c.shape(x);
  return {c.reshape(
      x, {sym::product(c.sym(), {s.begin(), s.begin() + axis}), sym::product(c.sym(), {s.begin() + axis, s.end()})})};
}

// The axes of Squeeze and Unsqueeze: an attribute up to opset 12, an operand from 13 on.
std::optional<AxisValues> squeezed_axes(NodeContext& c, int rank) {
  if (c.opset < 13)
    return c.has("axes") ? std::optional(AxisValues::given(c, rank, c.attr_ints("axes"))) : std::nullopt;
  return c.has_input(1) ? std::optional(AxisValues::read(c, rank, c.input(1))) : std::nullopt;
}

std::vector<ValueId> squeeze(NodeContext& c) {
  const ValueId x = c.input(0);
  const Shape from = c.shape(x);
  const int rank = c.rank(x);
  const auto axes = squeezed_axes(c, rank);
  Shape to;
  if (!axes) {
    for (int i = 0; i < rank; ++i) {
      if (from[i].is_const(1)) continue;
      // Ranks are static: a dim that is not known to be 1 stays, and must then never be 1.
      graph::require(c.g, sym::ne(from[i], 1), "dim " + std::to_string(i) + " of a squeeze without axes must not be 1");
      to.push_back(from[i]);
    }
    return {c.reshape(x, std::move(to))};
  }
  if (axes->constant()) {
    for (int i = 0; i < rank; ++i) {
      if (axes->named(i).is_const(0)) {
        to.push_back(from[i]);
        continue;
      }
      if (sym::prove(sym::eq(from[i], 1)) == sym::Truth::no)
        c.fail("dim " + std::to_string(i) + " of " + c.text(x) + " is not 1 and cannot be dropped");
      graph::require(c.g, sym::eq(from[i], 1), "dim " + std::to_string(i) + " that is dropped must be 1");
    }
    return {c.reshape(x, std::move(to))};
  }
  // Result dim j is the j-th that is kept: dim i goes to i - (dropped ones before i).
  if (axes->count() > rank) c.fail("drops " + std::to_string(axes->count()) + " dims of " + c.text(x));
  for (int j = 0; j < rank - axes->count(); ++j) {
    Expr d = c.expr(1), before = c.expr(0);
    for (int i = 0; i < rank; ++i) {
      const Expr kept = sym::logical_and(sym::logical_not(axes->named(i)), sym::eq(before + j, i));
      d = sym::select(kept, from[i], d);
      before = before + axes->named(i);
    }
    to.push_back(d);
  }
  return {c.reshape(x, std::move(to))};
}

std::vector<ValueId> unsqueeze(NodeContext& c) {
  const ValueId x = c.input(0);
  const Shape from = c.shape(x);
  int count = 0;
  if (c.opset < 13) {
    count = static_cast<int>(std::min<size_t>(c.attr_ints("axes").size(), 1 << 16));
  } else {
    const Shape s = c.shape(c.input(1));
    if (s.size() > 1 || (s.size() == 1 && !s[0].is_const()))
      c.fail("the number of axes must be known at compile time, they are " + c.text(c.input(1)));
    count = s.empty() ? 1 : static_cast<int>(std::min<int64_t>(s[0].value(), 1 << 16));
  }
  const int rank = c.rank(x) + count;
  if (rank > kMaxRank)
    c.fail("makes " + std::to_string(rank) + " dims, at most " + std::to_string(kMaxRank) + " are supported");
  const auto axes = squeezed_axes(c, rank);
  Shape to;
  Expr before = c.expr(0);  // new dims in front of i
  for (int i = 0; i < rank; ++i) {
    Expr d = c.expr(1);
    for (int k = 0; k < c.rank(x); ++k) d = sym::select(sym::eq(before + k, i), from[k], d);
    to.push_back(sym::select(axes->named(i), c.expr(1), d));
    before = before + axes->named(i);
  }
  return {c.reshape(x, std::move(to))};
}

// --- order, joining, splitting ------------------------------------------------------------------------------------

std::vector<ValueId> transpose(NodeContext& c) {
  const ValueId x = c.input(0);
  const int rank = c.rank(x);
  std::vector<int> perm;
  for (int64_t p : c.attr_ints("perm", Ints())) perm.push_back(static_cast<int>(std::clamp<int64_t>(p, -1, rank)));
  if (!c.has("perm"))
    for (int i = rank; i-- > 0;) perm.push_back(i);
  std::vector<int> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  for (int i = 0; i < static_cast<int>(sorted.size()); ++i)
    if (sorted[i] != i || static_cast<int>(sorted.size()) != rank)
      c.fail("perm must name each of the " + std::to_string(rank) + " dims of " + c.text(x) + " once");
  if (rank == 0) return {x};
  return {c.transpose(x, std::move(perm))};
}

std::vector<ValueId> concat(NodeContext& c) {
  const int axis = c.axis(c.attr_int("axis"), c.rank(c.input(0)));
  std::vector<ValueId> xs;
  for (int i = 0; i < c.num_inputs(); ++i) {
    c.need_same_dtype(0, i);
    c.need_rank(i, c.rank(c.input(0)));
    xs.push_back(c.input(i));
  }
  return {c.concat(std::move(xs), axis)};
}

std::vector<ValueId> split(NodeContext& c) {
  const ValueId x = c.input(0);
  const int axis = c.axis(c.attr_int("axis", 0), c.rank(x));
  const Expr dim = c.dim(x, axis);
  const int outputs = c.num_outputs();
  if (outputs == 0) return {};
  std::vector<Expr> sizes;
  if (c.opset < 13 && c.has("split")) {
    for (int64_t s : c.attr_ints("split")) sizes.push_back(c.expr(s));
  } else if (c.opset >= 13 && c.has_input(1)) {
    if (c.has("num_outputs")) c.fail("has both split sizes and the attribute \"num_outputs\"");
    sizes = c.dims(c.input(1));
  } else if (c.opset >= 18) {  // rounded up, the last ones are smaller
    const int64_t n = c.attr_int("num_outputs", outputs);
    if (n != outputs) c.fail("num_outputs is " + std::to_string(n) + ", the node has " + std::to_string(outputs));
    const Expr chunk = sym::ceildiv(dim, n);
    for (int64_t i = 0; i < n; ++i) sizes.push_back(sym::min(chunk, sym::max(dim - chunk * i, 0)));
  } else {
    sizes.assign(outputs, sym::floordiv(dim, outputs));
  }
  if (static_cast<int>(sizes.size()) != outputs)
    c.fail("splits into " + std::to_string(sizes.size()) + " parts, the node has " + std::to_string(outputs) +
           " outputs");
  for (Expr s : sizes)
    if (s.is_const() && s.value() < 0) c.fail("the size of a part is " + std::to_string(s.value()));
  const Expr sum = sym::sum(c.sym(), sizes);
  if (sym::prove(sym::eq(sum, dim)) == sym::Truth::no)
    c.fail("the parts have " + sym::text(sum) + " elements together, dim " + std::to_string(axis) + " of " + c.text(x) +
           " has " + sym::text(dim));
  graph::require(c.g, sym::eq(sum, dim), "the parts of a split must fill dim " + std::to_string(axis));
  std::vector<ValueId> parts;
  Expr start = c.expr(0);
  for (Expr s : sizes) {
    parts.push_back(c.slice(x, axis, start, s));
    start = start + s;
  }
  return parts;
}

// --- repetition ---------------------------------------------------------------------------------------------------

// Both ways: the result has the larger of the two dims.
std::vector<ValueId> expand(NodeContext& c) {
  const ValueId x = c.input(0);
  Shape from = c.shape(x), wanted = c.dims(c.input(1));
  const size_t rank = std::max(from.size(), wanted.size());
  from.insert(from.begin(), rank - from.size(), c.expr(1));
  wanted.insert(wanted.begin(), rank - wanted.size(), c.expr(1));
  for (size_t i = 0; i < rank; ++i) {
    // A dim of x that is certainly not 1 decides; a computed target may still be 1 and then changes nothing.
    if (from[i].is_const() && !from[i].is_const(1) && !wanted[i].is_const()) {
      graph::require(c.g, sym::logical_or(sym::eq(wanted[i], from[i]), sym::eq(wanted[i], 1)),
                     "dim " + std::to_string(i) + " of an expand must be " + sym::text(from[i]) + " or 1");
      wanted[i] = from[i];
    }
  }
  return {c.broadcast(x, graph::broadcast_shapes(c.g, from, wanted))};
}

std::vector<ValueId> tile(NodeContext& c) {
  const ValueId x = c.input(0);
  const std::vector<Expr> repeats = one_each(c, 1, c.rank(x), c.kDimRange, "repeats");
  Type t = c.type(x);
  bool same = true;
  for (int i = 0; i < c.rank(x); ++i) {
    if (repeats[i].is_const() && repeats[i].value() < 0) c.fail("repeats must not be negative");
    t.shape[i] = t.shape[i] * repeats[i];
    same &= repeats[i].is_const(1);
  }
  if (same) return {x};
  return {c.g.add_given(OpKind::tile, {x}, graph::NoAttr{}, Type::make(t.dtype, t.shape))};
}

// --- depth and space ----------------------------------------------------------------------------------------------

Expr divided(NodeContext& c, Expr dim, int64_t by, std::string_view what) {
  const Expr exact = sym::eq(sym::mod(dim, by), 0);
  if (sym::prove(exact) == sym::Truth::no)
    c.fail(std::string(what) + " " + sym::text(dim) + " is not a multiple of " + std::to_string(by));
  graph::require(c.g, exact, std::string(what) + " must be a multiple of " + std::to_string(by));
  return sym::floordiv(dim, by);
}

int64_t block_size(NodeContext& c) {
  const int64_t b = c.attr_int("blocksize");
  if (b < 1 || b > 4096) c.fail("blocksize " + std::to_string(b) + " is out of range");
  return b;
}

std::vector<ValueId> depth_to_space(NodeContext& c) {
  c.need_rank(0, 4);
  const ValueId x = c.input(0);
  const int64_t b = block_size(c);
  const bool dcr = c.attr_choice("mode", "DCR", {"DCR", "CRD"}) == "DCR";
  const Expr n = c.dim(x, 0), h = c.dim(x, 2), w = c.dim(x, 3), block = c.expr(b);
  const Expr depth = divided(c, c.dim(x, 1), b * b, "the number of channels");
  const ValueId parts = c.reshape(x, dcr ? Shape{n, block, block, depth, h, w} : Shape{n, depth, block, block, h, w});
  const ValueId moved = c.transpose(parts, dcr ? std::vector{0, 3, 4, 1, 5, 2} : std::vector{0, 1, 4, 2, 5, 3});
  return {c.reshape(moved, {n, depth, h * b, w * b})};
}

std::vector<ValueId> space_to_depth(NodeContext& c) {
  c.need_rank(0, 4);
  const ValueId x = c.input(0);
  const int64_t b = block_size(c);
  const bool dcr = c.attr_choice("mode", "DCR", {"DCR", "CRD"}) == "DCR";
  const Expr n = c.dim(x, 0), depth = c.dim(x, 1), block = c.expr(b);
  const Expr h = divided(c, c.dim(x, 2), b, "the height"), w = divided(c, c.dim(x, 3), b, "the width");
  const ValueId parts = c.reshape(x, {n, depth, h, block, w, block});
  const ValueId moved = c.transpose(parts, dcr ? std::vector{0, 3, 5, 1, 2, 4} : std::vector{0, 1, 3, 5, 2, 4});
  return {c.reshape(moved, {n, depth * (b * b), h, w})};
}

const Row kRows[] = {
    {"Reshape", 6, kMaxOpset, 2, 2, reshape},
    {"Flatten", 6, kMaxOpset, 1, 1, flatten},
    {"Squeeze", 6, 12, 1, 1, squeeze},
    {"Squeeze", 13, kMaxOpset, 1, 2, squeeze},
    {"Unsqueeze", 6, 12, 1, 1, unsqueeze},
    {"Unsqueeze", 13, kMaxOpset, 2, 2, unsqueeze},
    {"Transpose", 6, kMaxOpset, 1, 1, transpose},
    {"Concat", 6, kMaxOpset, 1, -1, concat},
    {"Split", 6, 12, 1, 1, split},
    {"Split", 13, kMaxOpset, 1, 2, split},
    {"Expand", 8, kMaxOpset, 2, 2, expand},
    {"Tile", 6, kMaxOpset, 2, 2, tile},
    {"DepthToSpace", 6, kMaxOpset, 1, 1, depth_to_space},
    {"SpaceToDepth", 6, kMaxOpset, 1, 1, space_to_depth},
};

}  // namespace

std::span<const Row> move_rows() { return kRows; }

}  // namespace tripod::importer
