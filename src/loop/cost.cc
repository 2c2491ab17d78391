#include "loop/cost.h"

#include <algorithm>
#include <unordered_set>

namespace tripod::loop {
namespace {

int64_t arithmetic(const ExprNode& e) {
  if (e.dtype == DType::b1) return 0;
  switch (e.op) {
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::div:
    case Op::rem:
    case Op::min:
    case Op::max:
    case Op::neg:
    case Op::abs:
    case Op::sqrt:
    case Op::floor:
    case Op::ceil:
    case Op::trunc:
    case Op::rint:
    case Op::exp2_fast:
      return 1;
    case Op::fma:
      return 2;
    case Op::gelu:
    case Op::gelu_light:
      return 5;  // with an erf of one
    case Op::gelu_tanh:
    case Op::gelu_tanh_light:
      return 9;
    default:
      return is_math(e.op) ? 1 : 0;
  }
}

class Counter {
 public:
  Counter(sym::Context& c, const Function& f)
      : c_(c), f_(f), flops_(c.constant(0)), accesses_(f.params.size(), c.constant(0)) {}

  Cost run() {
    walk(f_.body, c_.constant(1));
    Index bytes = c_.constant(0);
    for (size_t i = 0; i < f_.params.size(); ++i) {
      const Buffer& b = f_.params[i];
      const Index elements = sym::min(sym::product(c_, b->shape), accesses_[i]);
      bytes = bytes + sym::ceildiv(elements * info(b->dtype).bits, 8);
    }
    return {flops_, bytes};
  }

 private:
  void walk(const Stmt& s, Index times) {
    switch (s->kind) {
      case StmtKind::block:
        for (const Iter& i : s->iters) times = times * i.extent;
        break;  // `init` is not counted: one store an element, and no arithmetic
      case StmtKind::loop:
        times = times * s->extent;
        break;
      case StmtKind::store:
        access(s->buffer, times);
        count(s->value, times);
        break;
      case StmtKind::let:
      case StmtKind::branch:
        count(s->value, times);
        break;
      default:
        break;
    }
    for (const Stmt& t : s->body) walk(t, times);
  }

  void count(const Expr& e, Index times) {
    int64_t n = 0;
    visit(e, [&](const Expr& x) {
      n += arithmetic(*x);
      if (x->op == Op::load) access(x->buffer, times);
    });
    if (n) flops_ = flops_ + times * n;
  }

  void access(const Buffer& b, Index times) {
    for (size_t i = 0; i < f_.params.size(); ++i)
      if (f_.params[i].get() == b.get()) accesses_[i] = accesses_[i] + times;
  }

  sym::Context& c_;
  const Function& f_;
  Index flops_;
  std::vector<Index> accesses_;
};

}  // namespace

Cost cost_of(sym::Context& c, const Function& compute_form) { return Counter(c, compute_form).run(); }

}  // namespace tripod::loop
