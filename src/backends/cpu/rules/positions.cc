#include "backends/cpu/rules/positions.h"

#include <algorithm>

namespace tripod::cpu {

using loop::Iter;
using loop::StmtKind;

// The s of a floordiv(y, s) or mod(y, s) in e; 0: there is none.
static int64_t divisor_of(Index e, Index y) {
  if (!sym::uses(e, y)) return 0;
  if ((e->op == sym::Op::floordiv || e->op == sym::Op::mod) && e.arg(0) == y && e.arg(1).is_const()) return e.arg(1).value();
  for (int i = 0; i < 3 && e.arg(i); ++i)
    if (const int64_t s = divisor_of(e.arg(i), y)) return s;
  return 0;
}

static int64_t divisor_of(const Stmt& body, Index y) {
  int64_t s = 0;
  loop::visit(body, [](const Stmt&) {}, [&](const Expr& x) {
    for (const Index& i : x->indices)
      if (s == 0) s = divisor_of(i, y);
  });
  return s;
}

namespace {

struct Splitter : loop::Rewriter {
  explicit Splitter(sym::Context& context) : c(context) {}

  Stmt rewrite(const Stmt& s) override {
    if (s->kind != StmtKind::block || done) return Rewriter::rewrite(s);
    done = true;
    if (std::none_of(s->iters.begin(), s->iters.end(), [](const Iter& i) { return i.reduce; })) return s;
    sym::Map m;
    std::vector<Iter> iters;
    for (const Iter& i : s->iters) {
      const int64_t step = i.reduce ? 0 : divisor_of(s->body[0], i.var);
      if (step < 2 || !sym::mod(i.extent, step).is_const(0)) {
        iters.push_back(i);
        continue;
      }
      const Iter pixel{loop_var(c, "i", sym::floordiv(i.extent, step)), sym::floordiv(i.extent, step), false, {}};
      const Iter place{loop_var(c, "r", c.constant(step)), c.constant(step), false, {}};
      m[i.var] = pixel.var * step + place.var;
      iters.push_back(pixel), iters.push_back(place);
    }
    if (m.empty()) return s;
    return loop::block(s->name, iters, loop::substitute(s->body[0], m), s->init ? loop::substitute(s->init, m) : nullptr);
  }

  sym::Context& c;
  bool done = false;
};

}  // namespace

loop::Function split_positions(const loop::Function& f, sym::Context& c) {
  Splitter splitter(c);
  loop::Function r = f;
  r.body = splitter.apply(f.body);
  return r;
}

}  // namespace tripod::cpu
