#include "loop/light_math.h"

#include <algorithm>
#include <unordered_set>

namespace tripod::loop {
namespace {

struct LightRow {
  Op exact, light;
};
constexpr LightRow kLight[] = {{Op::exp, Op::exp_light},     {Op::sigmoid, Op::sigmoid_light},
                               {Op::tanh, Op::tanh_light},   {Op::gelu, Op::gelu_light},
                               {Op::gelu_tanh, Op::gelu_tanh_light}};

bool is_small(DType t) { return t == DType::f16 || t == DType::bf16; }

bool never_negative(const Expr& e) {
  switch (e->op) {
    case Op::constant: return is_float(e->dtype) && constant_value(e) >= 0;
    case Op::exp:
    case Op::sigmoid:
    case Op::abs: return true;
    case Op::add:
    case Op::mul:
    case Op::div:
    case Op::min: return never_negative(e->args[0]) && never_negative(e->args[1]);
    case Op::max: return never_negative(e->args[0]) || never_negative(e->args[1]);
    default: return false;
  }
}

// Which values may be less accurate. Everything is taken to, until something needs it whole; that goes on until no
// buffer changes any more.
class Flow {
 public:
  explicit Flow(const Function& f) : f_(f) {
    size_t before;
    do {
      before = exact_buffers_.size();
      exact_.clear(), seen_.clear();
      visit(f.body, [&](const Stmt& s) { statement(*s); });
    } while (exact_buffers_.size() != before);
  }
  bool is_exact(const Expr& e) const { return exact_.count(e.get()) > 0; }

 private:
  bool is_exact(const Buffer& b) const { return exact_buffers_.count(b.get()) > 0; }
  bool is_parameter(const Buffer& b) const { return std::find(f_.params.begin(), f_.params.end(), b) != f_.params.end(); }

  void statement(const StmtNode& s) {
    if (!s.value) return;
    const bool internal = s.kind == StmtKind::store && !is_parameter(s.buffer) && s.buffer->dtype == DType::f32;
    value(s.value, internal && !is_exact(s.buffer));
  }

  // What a value may lose is what its use may lose; of several uses the strictest counts.
  void value(const Expr& e, bool light) {
    if (!light) {
      if (!exact_.insert(e.get()).second) return;
    } else if (!seen_.insert(e.get()).second) {
      return;
    }
    if (e->op == Op::load) {
      if (!light) exact_buffers_.insert(e->buffer.get());
      if (e->other) value(e->other, light);
    }
    for (size_t i = 0; i < e->args.size(); ++i) value(e->args[i], passes(*e, i, light));
  }

  static bool passes(const ExprNode& e, size_t i, bool light) {
    const bool is_f32 = e.args[i]->dtype == DType::f32;
    switch (e.op) {
      case Op::cast: return is_f32 && (is_small(e.dtype) || (light && e.dtype == DType::f32));
      case Op::select: return light && i > 0;
      case Op::mul:
      case Op::div:
      case Op::neg:
      case Op::abs:
      case Op::min:
      case Op::max: return light && is_f32;
      case Op::add:
      case Op::sub: {
        const Expr &a = e.args[0], &b = e.args[1];
        const bool shifts = a->op == Op::constant || b->op == Op::constant;
        return light && is_f32 && (!shifts || (e.op == Op::add && never_negative(a) && never_negative(b)));
      }
      case Op::fma: return light && is_f32 && e.args[2]->op != Op::constant;
      default: return false;
    }
  }

  const Function& f_;
  std::unordered_set<const BufferNode*> exact_buffers_;
  std::unordered_set<const ExprNode*> exact_, seen_;
};

class LightMath : public Rewriter {
 public:
  explicit LightMath(const Function& f) : flow_(f) {}

  using Rewriter::rewrite;
  Stmt rewrite(const Stmt& s) override {
    if (s->kind == StmtKind::block) {
      along_ = {};
      for (const Iter& i : s->iters) along_ = i.var;
      forget();
    }
    return nullptr;
  }
  Expr rewrite(const Expr& e) override {
    if (flow_.is_exact(e) || e->dtype != DType::f32) return nullptr;
    for (const LightRow& r : kLight)
      if (e->op == r.exact) return make(r.light, {apply(e->args[0])});
    const bool quotient = e->op == Op::div && e->args[1]->op == Op::load && along_ && !moves(*e->args[1]) && moves_inside(e->args[0]);
    if (quotient) return apply(e->args[0]) * (constant(DType::f32, 1) / apply(e->args[1]));
    return nullptr;
  }

 private:
  bool moves(const ExprNode& load) const {
    return load.guard || std::any_of(load.indices.begin(), load.indices.end(), [&](Index i) { return sym::uses(i, along_); });
  }
  bool moves_inside(const Expr& e) const {
    bool any = false;
    visit(e, [&](const Expr& x) { any = any || (x->op == Op::load && moves(*x)); });
    return any;
  }

  const Flow flow_;
  Index along_;  // the innermost iterator of the block at hand
};

}  // namespace

Function light_math(const Function& f) {
  Function r = f;
  r.body = LightMath(f).apply(f.body);
  return r;
}

}  // namespace tripod::loop
