// The rule that always applies: every block a kernel of its own. A thread computes one result, or a few vectors of
// neighbours that are read and written as 16 bytes at once. A reduction runs in the thread, in registers.
//
//   flat     the results in the order of their memory, `wide` neighbours a vector
//   thread   `each` vectors, kThreads apart, so that a warp's accesses lie together; all loads of a thread can be under
//            way at once, since only the last block of threads asks where the results end
//   variants where it is open whether rows are whole, aligned vectors: the kernel asks once, and goes one by one if not
#include <algorithm>

#include "backends/cuda/rules/rules.h"
#include "rules/inline.h"
#include "rules/walk.h"

namespace tripod::cuda {

using loop::Iter;
using loop::Op;
using loop::StmtKind;

namespace {

constexpr int64_t kThreads = 256, kVectorBytes = 16;
// Results that give every thread of a large GPU one vector: with fewer, a thread takes one.
constexpr int64_t kManyVectors = int64_t{132} * 2048 * 2;

class Points : rules::BlockWalk {
 public:
  Points(sym::Context& c, const loop::StmtNode& block) : BlockWalk(c, block) {}

  Stmt build() {
    sort_spatial();
    collapse();
    for (const Iter& i : spatial_) extents_.push_back(i.extent);
    if (writes_nibbles()) return nibbles();
    Index whole = c_.constant(1);
    const int64_t wide = vector_width(whole);
    if (wide == 1) return one_by_one();
    // A single row of any length: whole vectors and a rest.
    if (extents_.size() == 1) return kernel(wide, sym::ceildiv(extents_[0], wide));
    if (whole.is_const(1)) return kernel(wide, vectors_of(wide));
    // Two bodies of one kernel, on a grid that is enough for both.
    const Index vectors = vectors_of(wide), total = sym::product(c_, extents_);
    const Index per_block = c_.constant(kThreads * each(wide, vectors));
    const Index blocks = sym::select(whole, sym::ceildiv(vectors, per_block), sym::ceildiv(total, kThreads));
    return grid(c_, blocks, [&](Index block) {
      return loop::branch(loop::from_index(DType::b1, whole), body(block, wide, vectors), scalar_body(block, total));
    });
  }

 private:
  Index vectors_of(int64_t wide) const {
    Indices e = extents_;
    e.back() = sym::floordiv(e.back(), wide);
    return sym::product(c_, e);
  }
  Stmt one_by_one() {
    const Index total = sym::product(c_, extents_);
    return grid(c_, sym::ceildiv(total, kThreads), [&](Index block) { return scalar_body(block, total); });
  }
  Stmt kernel(int64_t wide, Index vectors) {
    return grid(c_, sym::ceildiv(vectors, kThreads * each(wide, vectors)), [&](Index block) { return body(block, wide, vectors); });
  }

  Stmt scalar_body(Index block, Index total) {
    return threads(c_, kThreads, [&](Index thread) {
      const Index flat = block * kThreads + thread;
      return where(sym::lt(flat, total), [&] { return result(unflatten(flat, extents_)); });
    });
  }

  // A block of threads whose vectors all exist does not ask for each.
  Stmt body(Index block, int64_t wide, Index vectors) {
    const int64_t n = each(wide, vectors);
    const bool one_row = extents_.size() == 1;
    const auto all = [&](bool ask) {
      return threads(c_, kThreads, [&](Index thread) {
        return unrolled(c_, "u", n, [&](Index u) {
          const Index flat = (block * n + u) * kThreads + thread;
          if (!ask) return vector_at(flat, wide);
          return where(sym::lt(flat, vectors), [&]() -> Stmt {
            if (!one_row || sym::proved(sym::eq(sym::mod(extents_[0], wide), c_.constant(0)))) return vector_at(flat, wide);
            const Stmt rest = serial(c_, "i", c_.constant(wide), [&](Index i) {
              return where(sym::lt(flat * wide + i, extents_[0]), [&] { return result({flat * wide + i}); });
            });
            return loop::branch(loop::from_index(DType::b1, sym::le(flat * wide + wide, extents_[0])), vector_at(flat, wide), rest);
          });
        });
      });
    };
    const Index end = (block + 1) * (n * kThreads);
    const Index exist = one_row ? sym::le(end * wide, extents_[0]) : sym::le(end, vectors);
    if (sym::proved(exist)) return all(false);
    return loop::branch(loop::from_index(DType::b1, exist), all(false), all(true));
  }

  // --- how wide, how many ---

  // Neighbours that lie together in the result's memory, as many as 16 bytes of the widest type that is read or
  // written; 1 where that does not pay. `whole` is what has to be asked so that rows are whole vectors, 1 when nothing.
  int64_t vector_width(Index& whole) {
    if (spatial_.empty() || !reduce_.empty() || init_) return 1;
    const Index v = spatial_.back().var;
    int64_t bytes = 1;
    bool fits = true;
    const auto type = [&](DType t) {
      bytes = std::max<int64_t>(bytes, info(t).bits / 8);
      fits = fits && info(t).bits >= 8;
    };
    loop::visit(body_, [&](const Stmt& s) {
      if (s->buffer) type(s->buffer->dtype);
      // What a vector has in common may be anything; the rest are stores.
      if (s->kind != StmtKind::store && s->kind != StmtKind::seq) fits = fits && !uses_index(*s, v);
      fits = fits && s->kind != StmtKind::loop && s->kind != StmtKind::alloc;
    }, [&](const Expr& e) { if (e->op == Op::load) type(e->buffer->dtype); });
    for (const Access& a : accesses_)
      if (a.is_store) {
        const auto l = sym::linear_in(a.offset, v);
        fits = fits && l && l->coefficient.is_const(1);
      }
    for (int64_t w = kVectorBytes / bytes; fits && w > 1; w /= 2) {
      if (extents_.size() == 1) return w;
      if (extents_.back().is_const() && extents_.back().value() % w != 0) continue;
      if (auto asked = rows_are_whole(w)) return whole = *asked, w;
    }
    return 1;
  }
  static bool uses_index(const loop::StmtNode& s, Index v) {
    if (s.value && rules::uses(s.value, v)) return true;
    if (s.kind == StmtKind::check && (sym::uses(s.var, v) || sym::uses(s.extent, v))) return true;
    return s.guard && sym::uses(s.guard, v);
  }

  // What must hold of dims so that a row is whole vectors of w, each aligned where memory is contiguous along it.
  std::optional<Index> rows_are_whole(int64_t w) {
    const Index v = spatial_.back().var;
    Index all = c_.constant(1);
    int questions = 0;
    const auto ask = [&](Index size) {
      const Index holds = sym::eq(sym::mod(size, w), c_.constant(0));
      if (sym::proved(holds)) return;
      const Index both = sym::logical_and(all, holds);
      questions += !(both == all);
      all = both;
    };
    ask(spatial_.back().extent);
    for (const Access& a : accesses_) {
      const auto l = sym::linear_in(a.offset, v);
      if (!a.is_store && (!l || !l->coefficient.is_const(1))) continue;
      for (const Iter& i : spatial_)
        if (const auto step = sym::linear_in(a.offset, i.var); !(i.var == v) && step) ask(step->coefficient);
    }
    if (questions > 2 || sym::prove(all) == sym::Truth::no) return std::nullopt;
    return all;
  }

  // Vectors a thread: enough bytes under way to fill memory's latency, fewer where the work itself takes time.
  int64_t each(int64_t wide, Index vectors) const {
    int64_t work = 0;
    loop::visit(body_, [](const Stmt&) {}, [&](const Expr& e) {
      if (!is_float(e->dtype) && e->op != Op::load) return;  // what all lanes have in common, mostly
      work += loop::is_math(e->op) ? 16 : e->op == Op::div || e->op == Op::sqrt ? 8 : e->op == Op::load ? 2 : 1;
    });
    if (vectors.constant().value_or(kManyVectors) < kManyVectors) return 1;
    return work * wide <= 80 ? 4 : work * wide <= 240 ? 2 : 1;
  }

  // --- results ---

  Stmt result(const Indices& at) {
    sym::Map m;
    for (size_t d = 0; d < at.size(); ++d) m[spatial_[d].var] = at[d];
    return loop::substitute(point({}, [](DType) { return 1; }), m);
  }
  Stmt vector_at(Index flat, int64_t wide) {
    Indices e = extents_;
    e.back() = extents_.size() == 1 ? sym::ceildiv(e.back(), wide) : sym::floordiv(e.back(), wide);
    const Indices at = unflatten(flat, e);
    sym::Map m;
    for (size_t d = 0; d + 1 < at.size(); ++d) m[spatial_[d].var] = at[d];
    return lanes(loop::substitute(body_, m), at.back(), wide);
  }
  // Lets, checks and branches, which all lanes have in common, stay outside the vector loop.
  Stmt lanes(const Stmt& s, Index at, int64_t wide) {
    if (s->kind == StmtKind::let) return loop::let(s->var, s->value, lanes(s->body[0], at, wide));
    if (s->kind == StmtKind::check) return s;
    if (s->kind == StmtKind::branch) {
      std::vector<Stmt> arms;
      for (const Stmt& b : s->body) arms.push_back(lanes(b, at, wide));
      return loop::branch(s->value, arms[0], arms.size() > 1 ? arms[1] : nullptr);
    }
    if (s->kind == StmtKind::seq) {
      std::vector<Stmt> all;
      for (const Stmt& b : s->body) all.push_back(lanes(b, at, wide));
      return loop::seq(std::move(all));
    }
    return vector(c_, "lane", wide, [&](Index lane) { return loop::substitute(s, {{spatial_.back().var, at * wide + lane}}); });
  }

  // --- elements of 4 bits: the two of a byte belong to one thread ---

  bool writes_nibbles() const {
    bool found = false;
    loop::visit(body_, [&](const Stmt& s) { found = found || (s->kind == StmtKind::store && info(s->buffer->dtype).bits < 8); });
    return found;
  }
  Stmt nibbles() {
    const Index total = sym::product(c_, extents_), flat = loop_var(c_, "flat", total);
    sym::Map m;
    const Indices at = unflatten(flat, extents_);
    for (size_t d = 0; d < at.size(); ++d) m[spatial_[d].var] = at[d];
    bool dense = true;  // the results lie one after the other from a whole byte on
    for (const Access& a : accesses_)
      if (a.is_store) {
        const auto l = sym::linear_in(sym::substitute(a.offset, m), flat);
        dense = dense && l && l->coefficient.is_const(1) && sym::proved(sym::eq(sym::mod(l->rest, 2), c_.constant(0)));
      }
    // Otherwise one thread for all of them: bytes may be shared by any two.
    if (!dense)
      return grid(c_, c_.constant(1), [&](Index) {
        return threads(c_, 1, [&](Index) { return serial(c_, "i", total, [&](Index i) { return result(unflatten(i, extents_)); }); });
      });
    return grid(c_, sym::ceildiv(total, 2 * kThreads), [&](Index block) {
      return threads(c_, kThreads, [&](Index thread) {
        return serial(c_, "half", c_.constant(2), [&](Index half) {
          const Index i = (block * kThreads + thread) * 2 + half;
          return where(sym::lt(i, total), [&] { return result(unflatten(i, extents_)); });
        });
      });
    });
  }

  Indices extents_;
};

}  // namespace

RuleResult points(const loop::Function& f, sym::Context& c) {
  loop::Function r = rules::inline_elementwise(f, c);
  std::vector<Buffer> temporaries;
  Stmt body = r.body;
  while (body->kind == StmtKind::alloc) temporaries.push_back(body->buffer), body = body->body[0];
  std::vector<Stmt> kernels;
  for (const Stmt& b : body->kind == StmtKind::seq ? body->body : std::vector<Stmt>{body})
    kernels.push_back(Points(c, *b).build());
  r.body = loop::seq(kernels);
  for (const Buffer& t : temporaries) r.body = loop::alloc(t, r.body);
  return {{true, ""}, r};
}

}  // namespace tripod::cuda
