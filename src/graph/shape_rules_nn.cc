// pool, attention, rnn.
#include "graph/shape_rules.h"

namespace tripod::graph::rules {
namespace {

void check_pool(const Rule& r, size_t spatial) {
  const auto& a = r.as<PoolAttr>();
  auto length = [&](const Ints& v, std::string_view name, int64_t least) {
    if (v.size() != spatial)
      throw ShapeError(std::string(name) + " has " + std::to_string(v.size()) + " entries for " +
                       std::to_string(spatial) + " spatial dims");
    for (int64_t x : v)
      if (x < least)
        throw ShapeError(std::string(name) + " must be at least " + std::to_string(least) + ", got " +
                         std::to_string(x));
  };
  length(a.kernel, "kernel", 1);
  length(a.strides, "strides", 1);
  length(a.dilations, "dilations", 1);
  length(a.pads_begin, "pads_begin", 0);
  length(a.pads_end, "pads_end", 0);
}

// With ceil_mode the last window may hang over the end, but must not start in the padding behind it: at most
// floor((in + begin - 1) / stride) + 1 windows start before the padding.
Expr windows(Expr in, int64_t begin, int64_t end, Expr kernel, int64_t stride, bool ceil_mode) {
  const Expr free = in + begin + end - kernel;
  if (!ceil_mode) return sym::floordiv(free, stride) + 1;
  return sym::min(sym::ceildiv(free, stride) + 1, sym::floordiv(in + begin - 1, stride) + 1);
}

}  // namespace

Types pool(Rule& r) {
  r.tensor(0);
  if (r.rank(0) < 3)
    throw ShapeError("operand 1 needs batch, channels and at least one spatial dim, it is " + text(r.type(0)));
  const auto& a = r.as<PoolAttr>();
  check_pool(r, static_cast<size_t>(r.rank(0)) - 2);
  Shape s = {r.dim(0, 0), r.dim(0, 1)};
  for (size_t i = 0; i < a.kernel.size(); ++i) {
    const Expr kernel = r.constant(a.kernel[i] - 1) * a.dilations[i] + 1;
    const Expr in = r.dim(0, static_cast<int>(i) + 2);
    const Expr extent = windows(in, a.pads_begin[i], a.pads_end[i], kernel, a.strides[i], a.ceil_mode);
    r.require(sym::ge(extent, 0), "the kernel's extent " + sym::text(kernel) + " exceeds the padded input " +
                                      sym::text(in + a.pads_begin[i] + a.pads_end[i]) + " in spatial dim " +
                                      std::to_string(i));
    s.push_back(extent);
  }
  Types types = {Type::make(r.dtype(0), s)};
  if (r.op == OpKind::max_pool) types.push_back(Type::make(DType::i64, s));
  return types;
}

Types attention(Rule& r) {
  for (int i = 0; i < 3; ++i) r.tensor(i, 4);
  r.same_dtype(0, 1);
  r.same_dtype(0, 2);
  const Expr batch = r.same(r.dim(0, 0), r.dim(1, 0), "queries and keys differ in batch size");
  r.same(batch, r.dim(2, 0), "queries and values differ in batch size");
  r.same(r.dim(1, 1), r.dim(2, 1), "keys and values differ in the number of heads");
  r.same(r.dim(1, 2), r.dim(2, 2), "keys and values differ in length");
  r.same(r.dim(0, 3), r.dim(1, 3), "queries have head size " + sym::text(r.dim(0, 3)) + ", keys " +
                                       sym::text(r.dim(1, 3)));
  if (r.dim(0, 1) != r.dim(1, 1))
    r.require(sym::eq(sym::mod(r.dim(0, 1), r.dim(1, 1)), 0),
              sym::text(r.dim(0, 1)) + " query heads do not divide into " + sym::text(r.dim(1, 1)) + " key heads");
  r.broadcasts_to(3, {batch, r.dim(0, 1), r.dim(0, 2), r.dim(1, 2)}, "mask");
  return {Type::make(r.dtype(0), {batch, r.dim(0, 1), r.dim(0, 2), r.dim(2, 3)})};
}

namespace {

// Operand i, where there is one, has exactly this shape.
void exact(Rule& r, int i, const Shape& wanted, std::string_view name) {
  if (!r.has(i)) return;
  const std::string what = "the " + std::string(name) + " (" + operand_text(i) + ") are " + text(r.type(i)) + ", " +
                           shape_text(wanted) + " is wanted";
  if (r.type(i).shape.size() != wanted.size()) throw ShapeError(what);
  for (size_t d = 0; d < wanted.size(); ++d) r.same(r.shape(i)[d], wanted[d], what);
}

}  // namespace

Types rnn(Rule& r) {
  for (int i = 0; i < 3; ++i) r.tensor(i, 3);
  const auto& a = r.as<RnnAttr>();
  const int64_t gates = r.op == OpKind::lstm ? 4 : r.op == OpKind::gru ? 3 : 1;
  const int64_t ways = a.direction == RnnAttr::bidirectional ? 2 : 1;
  if (a.hidden < 1) throw ShapeError("the hidden size must be positive, it is " + std::to_string(a.hidden));
  const Expr steps = r.dim(0, 0), batch = r.dim(0, 1), input = r.dim(0, 2);
  auto c = [&](int64_t v) { return r.constant(v); };
  exact(r, 1, {c(ways), c(gates * a.hidden), input}, "input weights");
  exact(r, 2, {c(ways), c(gates * a.hidden), c(a.hidden)}, "recurrent weights");
  exact(r, 3, {c(ways), c(2 * gates * a.hidden)}, "biases");
  exact(r, 4, {batch}, "sequence lengths");
  const Shape state = {c(ways), batch, c(a.hidden)};
  exact(r, 5, state, "initial states");
  exact(r, 6, state, "initial cells");
  exact(r, 7, {c(ways), c(3 * a.hidden)}, "peepholes");
  const DType t = r.dtype(0);
  Types types = {Type::make(t, {steps, c(ways), batch, c(a.hidden)}), Type::make(t, state)};
  if (r.op == OpKind::lstm) types.push_back(Type::make(t, state));
  return types;
}

}  // namespace tripod::graph::rules
