// Integer expressions as 64-bit arithmetic.
#include "codegen/llvm_kernel.h"

namespace tripod::codegen {

using sym::Op;

IndexEmitter::Scope::~Scope() {
  for (; e_.order_.size() > start_; e_.order_.pop_back()) e_.known_.erase(e_.order_.back());
  --e_.depth_;
}

void IndexEmitter::bind(sym::Expr var, llvm::Value* v) {
  num_gathered_ += v->getType()->isVectorTy();
  vars_[var] = v;
}

void IndexEmitter::unbind(sym::Expr var) {
  auto it = vars_.find(var);
  num_gathered_ -= it->second->getType()->isVectorTy();
  vars_.erase(it);
}

void IndexEmitter::set_lanes(sym::Expr var, int lanes) {
  lane_ = var;
  lanes_ = lanes;
}

bool IndexEmitter::uses_lane(sym::Expr e) { return lane_ && (sym::uses(e, lane_) || uses_gathered(e)); }

bool IndexEmitter::uses_gathered(sym::Expr e) {
  if (!lane_ || num_gathered_ == 0) return false;
  for (const sym::Expr& v : sym::variables(e)) {
    auto it = vars_.find(v);
    if (!(v == lane_) && it != vars_.end() && it->second->getType()->isVectorTy()) return true;
  }
  return false;
}

llvm::Value* IndexEmitter::splat(llvm::Value* v) {
  return v->getType()->isVectorTy() ? v : b_.CreateVectorSplat(lanes_, v);
}

llvm::Value* IndexEmitter::emit(sym::Expr e) {
  llvm::Value* v = emit_node(e);
  return v->getType()->getScalarType()->isIntegerTy(1)
             ? b_.CreateZExt(v, v->getType()->getWithNewType(b_.getInt64Ty()))
             : v;
}

llvm::Value* IndexEmitter::emit_condition(sym::Expr e) {
  llvm::Value* v = emit_node(e);
  return v->getType()->getScalarType()->isIntegerTy(1)
             ? v
             : b_.CreateICmpNE(v, llvm::Constant::getNullValue(v->getType()));
}

// floordiv and mod. Operands that are known not to be negative take the unsigned forms, narrow ones 32 bits (a 64-bit
// division by a variable costs about three times as much).
llvm::Value* IndexEmitter::divide(sym::Expr e, bool remainder) {
  llvm::Value *a = emit(e.arg(0)), *b = emit(e.arg(1));
  if (a->getType()->isVectorTy() || b->getType()->isVectorTy()) a = splat(a), b = splat(b);
  const sym::Range ra = sym::bounds(e.arg(0)), rb = sym::bounds(e.arg(1));
  if (ra.lo >= 0 && rb.lo >= 0) {
    // A zero divisor only occurs where an extent is zero and the loop does not run; LICM may still hoist the division.
    if (rb.lo == 0) b = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umax, b, llvm::ConstantInt::get(b->getType(), 1));
    const bool narrow = ra.hi <= INT32_MAX && rb.hi <= INT32_MAX;
    llvm::Type* wide = a->getType();
    if (narrow) {
      llvm::Type* t = wide->getWithNewType(b_.getInt32Ty());
      a = b_.CreateTrunc(a, t), b = b_.CreateTrunc(b, t);
    }
    llvm::Value* q = remainder ? b_.CreateURem(a, b) : b_.CreateUDiv(a, b);
    return narrow ? b_.CreateZExt(q, wide) : q;
  }
  llvm::Value* one = llvm::ConstantInt::get(b->getType(), 1);
  llvm::Value* zero = llvm::Constant::getNullValue(b->getType());
  if (rb.lo <= 0 && rb.hi >= 0) b = b_.CreateSelect(b_.CreateICmpEQ(b, zero), one, b);
  llvm::Value* q = b_.CreateSDiv(a, b);
  llvm::Value* r = b_.CreateSub(a, b_.CreateMul(q, b));
  // Truncation rounds up where the remainder is not zero and the signs differ.
  llvm::Value* down = b_.CreateAnd(b_.CreateICmpNE(r, zero), b_.CreateICmpSLT(b_.CreateXor(r, b), zero));
  return remainder ? b_.CreateAdd(r, b_.CreateSelect(down, b, zero)) : b_.CreateSub(q, b_.CreateZExt(down, q->getType()));
}

// a + b or a * b of scalars; what may be beyond 64 bits by its range is noted when it is.
llvm::Value* IndexEmitter::watched(sym::Expr e, llvm::Value* a, llvm::Value* b) {
  const bool add = e->op == Op::add;
  if (e->range.lo != sym::Range::kMin && e->range.hi != sym::Range::kMax) return add ? b_.CreateAdd(a, b) : b_.CreateMul(a, b);
  llvm::Value* r = b_.CreateBinaryIntrinsic(add ? llvm::Intrinsic::sadd_with_overflow : llvm::Intrinsic::smul_with_overflow, a, b);
  llvm::Value* beyond = b_.CreateExtractValue(r, 1);
  overflow_ = overflow_ ? b_.CreateOr(overflow_, beyond) : beyond;
  return b_.CreateExtractValue(r, 0);
}

llvm::Value* IndexEmitter::emit_node(sym::Expr e) {
  if (depth_ == 0 || e->op == Op::constant || e->op == Op::variable) return compute(e);
  if (const auto it = known_.find(e); it != known_.end()) return it->second;
  llvm::Value* v = compute(e);
  order_.push_back(e);
  return known_[e] = v;
}

llvm::Value* IndexEmitter::compute(sym::Expr e) {
  switch (e->op) {
    case Op::constant:
      return b_.getInt64(e.value());
    case Op::variable: {
      auto it = vars_.find(e);
      TRIPOD_CHECK(it != vars_.end(), "variable " + sym::text(e) + " is not bound");
      return it->second;
    }
    case Op::floordiv:
    case Op::mod:
      return divide(e, e->op == Op::mod);
    case Op::logical_not:
      return b_.CreateNot(emit_condition(e.arg(0)));
    case Op::logical_and:
    case Op::logical_or: {
      llvm::Value *a = emit_condition(e.arg(0)), *b = emit_condition(e.arg(1));
      if (a->getType() != b->getType()) a = splat(a), b = splat(b);
      return e->op == Op::logical_and ? b_.CreateAnd(a, b) : b_.CreateOr(a, b);
    }
    case Op::select: {
      llvm::Value *c = emit_condition(e.arg(0)), *a = emit(e.arg(1)), *b = emit(e.arg(2));
      if (a->getType() != b->getType() || c->getType()->isVectorTy()) a = splat(a), b = splat(b);
      return b_.CreateSelect(c, a, b);
    }
    default:
      break;
  }
  llvm::Value *a = emit(e.arg(0)), *b = emit(e.arg(1));
  if (a->getType() != b->getType()) a = splat(a), b = splat(b);
  if (watched_ && (e->op == Op::add || e->op == Op::mul)) return watched(e, a, b);
  switch (e->op) {
    case Op::add: return b_.CreateAdd(a, b, "", false, true);
    case Op::mul: return b_.CreateMul(a, b, "", false, true);
    case Op::min: return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a, b);
    case Op::max: return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, a, b);
    case Op::lt: return b_.CreateICmpSLT(a, b);
    case Op::le: return b_.CreateICmpSLE(a, b);
    case Op::eq: return b_.CreateICmpEQ(a, b);
    case Op::ne: return b_.CreateICmpNE(a, b);
    case Op::bit_xor: return b_.CreateXor(a, b);
    default: internal_error(__FILE__, __LINE__, "no code for " + sym::text(e));
  }
}

}  // namespace tripod::codegen
