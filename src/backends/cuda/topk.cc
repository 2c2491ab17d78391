// TopK: a block of threads sorts kSorted numbers in shared memory at a time, by a bitonic network.
//
//   number      an element's key (order as of the runtime operator: NaN above everything, -0 equal to 0) above its place
//               counted down, so that equal elements come in their order; what is not there is 0, below everything
//   one block   goes through its part of a row: the first k places hold the best so far, the others get what is new,
//               then all are sorted
//   long rows   are split between up to kMostSplits blocks, whose k best a second kernel takes for its row
#include <algorithm>

#include "backends/cuda/rules/rules.h"
#include "backends/cuda/written.h"

namespace tripod::cuda {

using loop::Op;

namespace {

constexpr int64_t kThreads = 512, kSorted = 2048, kMostSplits = 64;

class TopK {
 public:
  TopK(lower::Lowering& l, const graph::Node& n)
      : l_(l), c_(l.sym()), largest_(std::get<graph::AxisAttr>(n.attr).flag_a), axis_(std::get<graph::AxisAttr>(n.attr).axis),
        x_(l.buffer(n.operands[0])), values_(l.buffer(n.results[0])), indices_(l.buffer(n.results[1])) {
    for (int d = 0; d < static_cast<int>(x_->shape.size()); ++d)
      if (d != axis_) lines_.push_back(x_->shape[d]);
    count_ = x_->shape[axis_], k_ = values_->shape[axis_];
    rows_ = sym::product(c_, lines_);
  }

  void write() {
    const Index splits = splits_of();
    if (splits.is_const(1))
      return l_.append(grid(c_, rows_, [&](Index row) {
        return best_of(count_, [&](Index i, Index inside) { return number(row, i, inside); }, [&](Index j, Expr e) { return result(row, j, e); });
      }));
    const Buffer some = l_.temporary("some", DType::u64, {rows_, splits * k_});
    l_.append(grid(c_, rows_ * splits, [&](Index block) {
      const Index row = sym::floordiv(block, splits), split = sym::mod(block, splits), part = sym::ceildiv(count_, splits);
      const Index first = split * part;
      return best_of(sym::min(part, count_ - first), [&](Index i, Index inside) { return number(row, first + i, inside); },
                     [&](Index j, Expr e) { return loop::store(some, {row, split * k_ + j}, e); });
    }));
    l_.append(grid(c_, rows_, [&](Index row) {
      return best_of(splits * k_, [&](Index i, Index inside) { return loop::load_guarded(some, {row, i}, inside, loop::constant_int(DType::u64, 0)); },
                     [&](Index j, Expr e) { return result(row, j, e); });
    }));
  }

 private:
  // As many as leave every block two sorts or more; one where the rows alone keep the GPU at work.
  Index splits_of() const {
    if (rows_.constant().value_or(1) >= 2 * kMostSplits) return c_.constant(1);
    return sym::max(sym::min(sym::floordiv(count_, 2 * kSorted), kMostSplits), 1);
  }

  // The kernel's body for one block: number(i, inside) for i < count, then result(j, number) for j < k.
  Stmt best_of(Index count, const std::function<Expr(Index, Index)>& number, const std::function<Stmt(Index, Expr)>& result) {
    const Buffer sorted = loop::make_buffer(l_.block_name() + "_sorted", DType::u64, {c_.constant(kSorted)}, loop::Scope::shared);
    const Stmt barrier = loop::sync(loop::SyncKind::barrier);
    const Index fresh = kSorted - k_;
    std::vector<Stmt> all;
    all.push_back(every(kSorted, [&](Index at) { return loop::store(sorted, {at}, loop::constant_int(DType::u64, 0)); }));
    all.push_back(barrier);
    all.push_back(serial(c_, "round", sym::ceildiv(count, fresh), [&](Index round) {
      std::vector<Stmt> steps;
      steps.push_back(every(kSorted, [&](Index at) {
        const Index i = round * fresh + at - k_;
        return where(sym::ge(at, k_), [&] { return loop::store(sorted, {at}, number(i, sym::logical_and(sym::ge(at, k_), sym::lt(i, count)))); });
      }));
      steps.push_back(barrier);
      sort(sorted, steps);
      return loop::seq(steps);
    }));
    all.push_back(threads(c_, kThreads, [&](Index t) {
      return strided(c_, "j", k_, t, kThreads, [&](Index j) { return result(j, loop::load(sorted, {j})); });
    }));
    return loop::alloc(sorted, loop::seq(all));
  }

  Stmt every(int64_t extent, const std::function<Stmt(Index)>& body) {
    return threads(c_, kThreads, [&](Index t) {
      return unrolled(c_, "u", extent / kThreads, [&](Index u) { return body(u * kThreads + t); });
    });
  }

  // From the largest to the smallest. Pairs `stride` apart are put in order, in runs of `size` that alternate.
  void sort(const Buffer& b, std::vector<Stmt>& steps) {
    for (int64_t size = 2; size <= kSorted; size *= 2)
      for (int64_t stride = size / 2; stride > 0; stride /= 2) {
        steps.push_back(every(kSorted / 2, [&](Index pair) {
          const Index i = sym::floordiv(pair, stride) * (2 * stride) + sym::mod(pair, stride);
          const Index falls = size == kSorted ? c_.constant(1) : sym::eq(sym::mod(sym::floordiv(i, size), 2), 0);
          return in_order(b, i, i + stride, falls);
        }));
        steps.push_back(loop::sync(loop::SyncKind::barrier));
      }
  }
  Stmt in_order(const Buffer& b, Index i, Index j, Index falls) {
    const Index zero = c_.constant(0), one = c_.constant(1);
    const Buffer pair = loop::make_buffer("pair", DType::u64, {c_.constant(2)}, loop::Scope::reg);
    const Expr first = loop::load(pair, {zero}), second = loop::load(pair, {one});
    const Expr rises = loop::lt(first, second), falling = loop::lt(second, first);
    const Expr swap = falls.is_const(1) ? rises : loop::select(loop::from_index(DType::b1, falls), rises, falling);
    return loop::alloc(pair, loop::seq({loop::store(pair, {zero}, loop::load(b, {i})), loop::store(pair, {one}, loop::load(b, {j})),
                                        loop::branch(swap, loop::seq({loop::store(b, {i}, second), loop::store(b, {j}, first)}))}));
  }

  Indices at(Index row, Index i) const {
    Indices r = unflatten(row, lines_);
    r.insert(r.begin() + axis_, i);
    return r;
  }

  // 0 where it is not `inside`.
  Expr number(Index row, Index i, Index inside) const {
    const Expr x = loop::load_guarded(x_, at(row, i), inside, loop::constant_bits(x_->dtype, 0));
    const Expr place = loop::make(Op::bit_not, {loop::from_index(DType::u32, i)});
    const auto wide = [](Expr e) { return loop::cast(std::move(e), DType::u64); };
    const Expr above = loop::make(Op::shl, {wide(key(x)), loop::constant_int(DType::u64, 32)});
    return loop::select(loop::from_index(DType::b1, inside), loop::make(Op::bit_or, {above, wide(place)}), loop::constant_int(DType::u64, 0));
  }

  // u32 in the order of the elements, the wanted ones above.
  Expr key(const Expr& x) const {
    const auto u32 = [](int64_t v) { return loop::constant_bits(DType::u32, static_cast<uint64_t>(v)); };
    Expr r;
    if (is_float(x->dtype)) {
      const Expr f = loop::cast(x, DType::f32);
      const Expr bits = loop::select(loop::eq(f, loop::constant(DType::f32, 0)), u32(0), loop::bitcast(f, DType::u32));
      const Expr negative = loop::ne(loop::make(Op::shr, {bits, u32(31)}), u32(0));
      r = loop::select(negative, loop::make(Op::bit_not, {bits}), loop::make(Op::bit_or, {bits, u32(0x80000000)}));
      r = loop::select(loop::ne(f, f), u32(0xffffffff), r);
    } else if (is_signed(x->dtype)) {
      r = loop::make(Op::bit_xor, {loop::bitcast(loop::cast(x, DType::i32), DType::u32), u32(0x80000000)});
    } else {
      r = loop::cast(x, DType::u32);
    }
    return largest_ ? r : loop::make(Op::bit_not, {r});
  }

  Stmt result(Index row, Index j, const Expr& number) {
    const Index i = c_.var("at", {0, sym::Range::kMax});
    const Expr place = loop::cast(loop::make(Op::bit_not, {loop::cast(number, DType::u32)}), DType::i64);
    const Index inside = sym::min(i, count_ - 1);  // known by now, and not to be proved
    return loop::let(i, place, loop::seq({loop::store(values_, at(row, j), loop::load(x_, at(row, inside))),
                                          loop::store(indices_, at(row, j), loop::from_index(DType::i64, i))}));
  }

  lower::Lowering& l_;
  sym::Context& c_;
  const bool largest_;
  const int axis_;
  const Buffer x_, values_, indices_;
  Indices lines_;
  Index count_, k_, rows_;
};

}  // namespace

bool topk_applies(const graph::Graph& g, const graph::Node& n) {
  const graph::Type& x = g.type(n.operands[0]);
  const Index k = g.type(n.results[0]).shape[static_cast<size_t>(std::get<graph::AxisAttr>(n.attr).axis)];
  const int bits = info(x.stored()).bits;
  return sym::bounds(k).hi <= kMostTopK && (bits == 8 || bits == 16 || bits == 32) && compute_type(x.dtype) != DType::f64;
}

void write_topk(lower::Lowering& l, const graph::Node& n) { TopK(l, n).write(); }

}  // namespace tripod::cuda
