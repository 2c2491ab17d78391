// The rule that always applies: every block a kernel of its own, one thread a result (or a few neighbouring ones, where
// they can be read and written as one vector). A reduction runs in the thread, in registers.
#include "backends/cuda/rules/rules.h"
#include "rules/inline.h"
#include "rules/walk.h"

namespace tripod::cuda {

using loop::Iter;
using loop::StmtKind;

namespace {

constexpr int64_t kThreads = 256;

class Points : rules::BlockWalk {
 public:
  Points(sym::Context& c, const loop::StmtNode& block) : BlockWalk(c, block) {}

  Stmt build() {
    sort_spatial();
    collapse();
    Indices extents;
    for (const Iter& i : spatial_) extents.push_back(i.extent);
    const int64_t wide = vector_width();
    if (wide > 1) extents.back() = sym::floordiv(extents.back(), wide);
    const Index total = sym::product(c_, extents);
    return grid(c_, sym::ceildiv(total, kThreads), [&](Index block) {
      return threads(c_, kThreads, [&](Index thread) {
        const Index flat = block * kThreads + thread;
        return where(sym::lt(flat, total), [&] { return results(unflatten(flat, extents), wide); });
      });
    });
  }

 private:
  // 16 bytes of the widest type that is read or written along the memory of all of them.
  int64_t vector_width() const {
    if (spatial_.empty() || !reduce_.empty() || init_) return 1;
    const Index v = spatial_.back().var;
    int64_t bytes = 1;
    bool plain = body_->kind == StmtKind::store && !body_->guard && guards_.empty();
    for (const Access& a : accesses_) {
      const auto l = sym::linear_in(a.offset, v);
      plain = plain && l && (l->coefficient.is_const(1) || (!a.is_store && l->coefficient.is_const(0)));
    }
    loop::visit(body_, [&](const Stmt& s) { if (s->buffer) bytes = std::max<int64_t>(bytes, info(s->buffer->dtype).bits / 8); },
                [&](const Expr& e) { if (e->op == loop::Op::load) bytes = std::max<int64_t>(bytes, info(e->buffer->dtype).bits / 8); });
    for (int64_t w = 16 / bytes; plain && w > 1; w /= 2)
      if (sym::proved(sym::eq(sym::mod(spatial_.back().extent, w), c_.constant(0)))) return w;
    return 1;
  }

  Stmt results(const Indices& at, int64_t wide) {
    sym::Map m;
    for (size_t d = 0; d < at.size(); ++d) m[spatial_[d].var] = at[d];
    if (wide == 1) return loop::substitute(point({}, [](DType) { return 1; }), m);
    return vector(c_, "lane", wide, [&](Index lane) {
      m[spatial_.back().var] = at.back() * wide + lane;
      return loop::substitute(body_, m);
    });
  }
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
