// CumSum along the innermost axis: a block of threads takes kTile elements at a time, kEach neighbours a thread; the
// threads' sums are added up by doubling distances in shared memory.
//
//   long rows   are split between up to kMostSplits blocks: a first kernel sums each part, the second starts every part
//               at the sum of those before it
//
// Small floats are summed in f32. Sums of floats are made of sums of parts, as everywhere (kChain).
#include "backends/cuda/rules/rules.h"
#include "backends/cuda/written.h"

namespace tripod::cuda {

namespace {

constexpr int64_t kThreads = 256, kEach = 4, kTile = kThreads * kEach, kMostSplits = 64;

class Scan {
 public:
  Scan(lower::Lowering& l, const graph::Node& n)
      : l_(l), c_(l.sym()), a_(std::get<graph::AxisAttr>(n.attr)), x_(n.operands[0]), y_(n.results[0]),
        t_(compute_type(l.type(n.operands[0]).dtype)), zero_(c_.constant(0)) {
    const graph::Shape& s = l.type(x_).shape;
    for (int d = 0; d < static_cast<int>(s.size()); ++d)
      if (d != a_.axis) lines_.push_back(s[d]);
    count_ = s[a_.axis], rows_ = sym::product(c_, lines_);
  }

  void write() {
    const Index splits = rows_.constant().value_or(1) >= 2 * kMostSplits ? c_.constant(1)
                                                                         : sym::max(sym::min(sym::floordiv(count_, 2 * kTile), kMostSplits), 1);
    const Index part = sym::ceildiv(count_, splits);
    const auto length = [&](Index split) { return sym::min(part, count_ - split * part); };
    Buffer sums;
    if (!splits.is_const(1)) {
      sums = l_.temporary("sums", t_, {rows_, splits});
      l_.append(grid(c_, rows_ * splits, [&](Index block) {
        const Index row = sym::floordiv(block, splits), split = sym::mod(block, splits);
        return total(row, split * part, length(split), [&](const Expr& e) { return loop::store(sums, {row, split}, e); });
      }));
    }
    l_.append(grid(c_, rows_ * splits, [&](Index block) {
      const Index row = sym::floordiv(block, splits), split = sym::mod(block, splits);
      return scan(row, split * part, length(split), [&](const Buffer& start) {
        std::vector<Stmt> s = {loop::store(start, {zero_}, loop::constant(t_, 0))};
        if (sums)
          s.push_back(serial(c_, "before", split, [&](Index i) {
            return loop::store(start, {zero_}, loop::load(start, {zero_}) + loop::load(sums, {row, i}));
          }));
        return loop::seq(s);
      });
    }));
  }

 private:
  Buffer shared(const char* name, int64_t size) {
    return loop::make_buffer(l_.block_name() + "_" + name, t_, {c_.constant(size)}, loop::Scope::shared);
  }
  static Stmt barrier() { return loop::sync(loop::SyncKind::barrier); }

  Indices at(Index row, Index i) const {
    Indices r = unflatten(row, lines_);
    r.insert(r.begin() + a_.axis, a_.flag_b ? count_ - 1 - i : i);
    return r;
  }

  // Element i of a row, 0 behind `end`.
  Expr element(Index row, Index i, Index end) {
    const Buffer b = l_.buffer(x_);
    return loop::cast(loop::load_guarded(b, at(row, i), sym::lt(i, end), loop::constant_bits(b->dtype, 0)), t_);
  }

  // The sum of [first, first + length), once.
  Stmt total(Index row, Index first, Index length, const std::function<Stmt(const Expr&)>& done) {
    const Buffer sums = shared("all", kThreads), mine = loop::make_buffer("mine", t_, {c_.constant(1)}, loop::Scope::reg);
    std::vector<Stmt> s = {threads(c_, kThreads, [&](Index t) {
                             return loop::alloc(mine, loop::seq({loop::store(mine, {zero_}, loop::constant(t_, 0)),
                                                                 strided(c_, "i", length, t, kThreads, [&](Index i) {
                                                                   return loop::store(mine, {zero_}, loop::load(mine, {zero_}) + element(row, first + i, first + length));
                                                                 }),
                                                                 loop::store(sums, {t}, loop::load(mine, {zero_}))}));
                           }),
                           barrier()};
    for (int64_t half = kThreads / 2; half > 0; half /= 2) {
      s.push_back(threads(c_, kThreads, [&](Index t) {
        return where(sym::lt(t, half), [&] { return loop::store(sums, {t}, loop::load(sums, {t}) + loop::load(sums, {t + half})); });
      }));
      s.push_back(barrier());
    }
    s.push_back(threads(c_, kThreads, [&](Index t) { return where(sym::eq(t, 0), [&] { return done(loop::load(sums, {zero_})); }); }));
    return loop::alloc(sums, loop::seq(s));
  }

  // start(buffer) puts what precedes the part into the buffer's element 0, by one thread.
  Stmt scan(Index row, Index first, Index length, const std::function<Stmt(const Buffer&)>& start) {
    // `carry` holds the sum up to this tile and that up to the next, in turns; `sums` two generations of the threads' sums.
    const Buffer carry = shared("carry", 2), parts = per_thread(c_, l_.block_name() + "_parts", t_, kThreads, {c_.constant(kEach)});
    const Buffer sums[2] = {shared("sums", kThreads), shared("more", kThreads)};
    const Index end = first + length;
    std::vector<Stmt> all = {threads(c_, kThreads, [&](Index t) { return where(sym::eq(t, 0), [&] { return start(carry); }); })};
    all.push_back(serial(c_, "tile", sym::ceildiv(length, kTile), [&](Index tile) {
      const auto place = [&](Index t, Index e) { return first + tile * kTile + t * kEach + e; };
      std::vector<Stmt> s = {threads(c_, kThreads, [&](Index t) {
        std::vector<Stmt> one;
        for (int64_t e = 0; e < kEach; ++e) {
          const Expr x = element(row, place(t, c_.constant(e)), end);
          one.push_back(loop::store(parts, {t, c_.constant(e)}, e == 0 ? x : loop::load(parts, {t, c_.constant(e - 1)}) + x));
        }
        one.push_back(loop::store(sums[0], {t}, loop::load(parts, {t, c_.constant(kEach - 1)})));
        return loop::seq(one);
      })};
      s.push_back(barrier());
      int from = 0;
      for (int64_t distance = 1; distance < kThreads; distance *= 2, from = 1 - from) {
        s.push_back(threads(c_, kThreads, [&](Index t) {
          const Expr before = loop::load_guarded(sums[from], {t - distance}, sym::ge(t, distance), loop::constant(t_, 0));
          return loop::store(sums[1 - from], {t}, loop::load(sums[from], {t}) + before);
        }));
        s.push_back(barrier());
      }
      const Index old = sym::mod(tile, 2), next = 1 - old;
      s.push_back(threads(c_, kThreads, [&](Index t) {
        const Expr before = loop::load(carry, {old}) + loop::load_guarded(sums[from], {t - 1}, sym::ge(t, 1), loop::constant(t_, 0));
        std::vector<Stmt> one;
        for (int64_t e = 0; e < kEach; ++e) {
          const Index i = place(t, c_.constant(e));
          const Expr value = a_.flag_a ? (e == 0 ? before : before + loop::load(parts, {t, c_.constant(e - 1)})) : before + loop::load(parts, {t, c_.constant(e)});
          one.push_back(where(sym::lt(i, end), [&] { return l_.store(y_, at(row, i), value); }));
        }
        one.push_back(where(sym::eq(t, 0), [&] {
          return loop::store(carry, {next}, loop::load(carry, {old}) + loop::load(sums[from], {c_.constant(kThreads - 1)}));
        }));
        return loop::seq(one);
      }));
      s.push_back(barrier());
      return loop::seq(s);
    }));
    Stmt body = loop::seq({all[0], barrier(), all[1]});
    for (const Buffer& b : {carry, parts, sums[0], sums[1]}) body = loop::alloc(b, body);
    return body;
  }

  lower::Lowering& l_;
  sym::Context& c_;
  const graph::AxisAttr& a_;
  const graph::ValueId x_, y_;
  const DType t_;
  const Index zero_;
  Indices lines_;
  Index count_, rows_;
};

}  // namespace

// Columns side by side are one a thread, which the rule for points has; a few columns are few threads.
bool scan_applies(const graph::Graph& g, const graph::Node& n) {
  const graph::Type& x = g.type(n.operands[0]);
  const size_t axis = static_cast<size_t>(std::get<graph::AxisAttr>(n.attr).axis);
  for (size_t d = axis + 1; d < x.shape.size(); ++d)
    if (!x.shape[d].is_const(1)) return false;
  return info(x.stored()).bits >= 8 && x.order.empty() && x.shape[axis].constant().value_or(kTile) >= 64;
}

void write_scan(lower::Lowering& l, const graph::Node& n) { Scan(l, n).write(); }

}  // namespace tripod::cuda
