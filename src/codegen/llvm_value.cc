// Value expressions. A value is a scalar, or a vector of the vector loop's lanes where it depends on the lane.
#include <llvm/IR/Intrinsics.h>

#include "codegen/llvm_kernel.h"

namespace tripod::codegen {

using loop::Op;

void KernelEmitter::unify(llvm::Value*& a, llvm::Value*& b) {
  if (a->getType()->isVectorTy() != b->getType()->isVectorTy()) a = index_.splat(a), b = index_.splat(b);
}

llvm::Constant* KernelEmitter::number(DType t, uint64_t bits) {
  llvm::Type* type = value_type(t);
  if (t == DType::f32) return llvm::ConstantFP::get(type, llvm::APFloat(llvm::APFloat::IEEEsingle(), llvm::APInt(32, bits & 0xffffffffu)));
  if (t == DType::f64) return llvm::ConstantFP::get(type, llvm::APFloat(llvm::APFloat::IEEEdouble(), llvm::APInt(64, bits)));
  return llvm::ConstantInt::get(type, llvm::APInt(64, bits).zextOrTrunc(type->getIntegerBitWidth()));
}

llvm::Value* KernelEmitter::emit(const loop::Expr& e) {
  auto it = values_.find(e.get());
  if (it != values_.end()) return it->second;
  llvm::Value* v = emit_op(*e);
  return values_[e.get()] = v;
}

llvm::Value* KernelEmitter::emit_load(const loop::ExprNode& e) {
  llvm::Value* v = e.guard && !e.guard.is_const(1) ? emit_access(e) : load_at(address(e.buffer, e.indices), e.buffer, nullptr, nullptr);
  return from_memory(v, e.dtype);
}

// A guarded load: lane-dependent guards mask, others branch (the address may be outside the buffer).
llvm::Value* KernelEmitter::emit_access(const loop::ExprNode& e) {
  llvm::Value* mask = index_.emit_condition(e.guard);
  llvm::Value* other = to_memory(emit(e.other), e.dtype);
  if (mask->getType()->isVectorTy()) {
    Address a = address(e.buffer, e.indices);
    if (a.kind == Address::uniform) {  // one element, read only where some lane wants it
      llvm::Value* any = b_.CreateOrReduce(mask);
      llvm::Value* loaded = nullptr;
      llvm::BasicBlock* from = b_.GetInsertBlock();
      llvm::Value* zero = llvm::Constant::getNullValue(memory_type(e.dtype));
      llvm::BasicBlock* loaded_in = nullptr;
      when(any, [&] {
        loaded = load_at(a, e.buffer, nullptr, nullptr);
        loaded_in = b_.GetInsertBlock();
      });
      llvm::PHINode* phi = b_.CreatePHI(zero->getType(), 2);
      phi->addIncoming(loaded, loaded_in);
      phi->addIncoming(zero, from);
      return b_.CreateSelect(mask, index_.splat(phi), index_.splat(other));
    }
    return load_at(a, e.buffer, mask, index_.splat(other));
  }
  llvm::BasicBlock* from = b_.GetInsertBlock();
  llvm::BasicBlock* loaded_in = nullptr;
  llvm::Value* loaded = nullptr;
  bool vector = false;
  for (sym::Expr i : e.indices) vector = vector || index_.uses_lane(i);
  if (vector) other = index_.splat(other);
  when(mask, [&] {
    loaded = load_at(address(e.buffer, e.indices), e.buffer, nullptr, nullptr);
    if (other->getType()->isVectorTy()) loaded = index_.splat(loaded);
    loaded_in = b_.GetInsertBlock();
  });
  llvm::PHINode* phi = b_.CreatePHI(loaded->getType(), 2);
  phi->addIncoming(loaded, loaded_in);
  phi->addIncoming(other, from);
  return phi;
}

// Both give NaN when an operand is NaN. x86's min/max return their second operand when one is NaN, which settles a
// NaN in b; a NaN in a needs a select, left out where a is a constant.
llvm::Value* KernelEmitter::emit_min_max(const loop::ExprNode& e, llvm::Value* a, llvm::Value* b) {
  const bool max = e.op == Op::max;
  if (!is_float(e.dtype)) {
    const bool s = is_signed(e.dtype);
    const auto id = max ? (s ? llvm::Intrinsic::smax : llvm::Intrinsic::umax) : (s ? llvm::Intrinsic::smin : llvm::Intrinsic::umin);
    return b_.CreateBinaryIntrinsic(id, a, b);
  }
  bool a_is_number = e.args[0]->op == Op::constant;
  if (!a_is_number && e.args[1]->op == Op::constant) std::swap(a, b), a_is_number = true;
  llvm::Value* v = b_.CreateSelect(max ? b_.CreateFCmpOGT(a, b) : b_.CreateFCmpOLT(a, b), a, b);
  return a_is_number ? v : b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, v);
}

llvm::Value* KernelEmitter::emit_int_division(const loop::ExprNode& e, llvm::Value* a, llvm::Value* b) {
  const bool remainder = e.op == Op::rem, is_signed_type = is_signed(e.dtype);
  llvm::Type* t = a->getType();
  llvm::Value *zero = llvm::Constant::getNullValue(t), *one = llvm::ConstantInt::get(t, 1);
  llvm::Value* by_zero = b_.CreateICmpEQ(b, zero);
  llvm::Value* safe = b_.CreateSelect(by_zero, one, b);
  llvm::Value* q;
  if (is_signed_type) {
    llvm::Value* least = llvm::ConstantInt::get(t, llvm::APInt::getSignedMinValue(t->getScalarSizeInBits()));
    llvm::Value* overflow = b_.CreateAnd(b_.CreateICmpEQ(a, least), b_.CreateICmpEQ(b, llvm::Constant::getAllOnesValue(t)));
    safe = b_.CreateSelect(overflow, one, safe);  // INT_MIN / 1 == INT_MIN, remainder 0
    q = remainder ? b_.CreateSRem(a, safe) : b_.CreateSDiv(a, safe);
  } else {
    q = remainder ? b_.CreateURem(a, safe) : b_.CreateUDiv(a, safe);
  }
  return b_.CreateSelect(by_zero, zero, q);
}

llvm::Value* KernelEmitter::emit_shift(const loop::ExprNode& e, llvm::Value* a, llvm::Value* b) {
  llvm::Type* t = a->getType();
  llvm::Constant* width = llvm::ConstantInt::get(t, t->getScalarSizeInBits());
  llvm::Value* small = b_.CreateICmpULT(b, width);
  if (e.op == Op::shl) return b_.CreateSelect(small, b_.CreateShl(a, b_.CreateSelect(small, b, llvm::Constant::getNullValue(t))), llvm::Constant::getNullValue(t));
  if (is_signed(e.dtype)) return b_.CreateAShr(a, b_.CreateSelect(small, b, llvm::ConstantInt::get(t, t->getScalarSizeInBits() - 1)));
  return b_.CreateSelect(small, b_.CreateLShr(a, b_.CreateSelect(small, b, llvm::Constant::getNullValue(t))), llvm::Constant::getNullValue(t));
}

llvm::Value* KernelEmitter::widen_float(llvm::Value* v, DType from) {
  llvm::Type* f32 = vectored(b_.getFloatTy(), v);
  if (from == DType::f16) return b_.CreateFPExt(b_.CreateBitCast(v, vectored(b_.getHalfTy(), v)), f32);  // vcvtph2ps
  return b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(v, vectored(b_.getInt32Ty(), v)), 16), f32);
}

// f32 -> f16 by F16C; f32 -> bf16 rounds to nearest even by integer arithmetic. From f64 the value first goes to f32
// rounded to odd, which makes the second rounding exact.
llvm::Value* KernelEmitter::narrow_float(llvm::Value* v, DType from, DType to) {
  if (from == DType::f64) {
    llvm::Type* f32 = vectored(b_.getFloatTy(), v);
    llvm::Type* i32 = vectored(b_.getInt32Ty(), v);
    llvm::Value* near = b_.CreateFPTrunc(v, f32);
    llvm::Value* back = b_.CreateFPExt(near, v->getType());
    llvm::Value* bits = b_.CreateBitCast(near, i32);
    // Where inexact: step towards zero when rounding went away from it, then set the last bit.
    llvm::Value* fabs_back = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, back);
    llvm::Value* fabs_v = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v);
    llvm::Value* away = b_.CreateFCmpOGT(fabs_back, fabs_v);
    llvm::Value* odd = b_.CreateOr(b_.CreateSub(bits, b_.CreateZExt(away, i32)), llvm::ConstantInt::get(i32, 1));
    v = b_.CreateBitCast(b_.CreateSelect(b_.CreateFCmpONE(back, v), odd, bits), f32);
  }
  llvm::Type* i32 = vectored(b_.getInt32Ty(), v);
  llvm::Type* i16 = vectored(b_.getInt16Ty(), v);
  if (to == DType::f16) return b_.CreateBitCast(b_.CreateFPTrunc(v, vectored(b_.getHalfTy(), v)), i16);
  const auto c = [&](uint32_t x) { return llvm::ConstantInt::get(i32, x); };
  llvm::Value* bits = b_.CreateBitCast(v, i32);
  llvm::Value* lsb = b_.CreateAnd(b_.CreateLShr(bits, c(16)), c(1));
  llvm::Value* rounded = b_.CreateLShr(b_.CreateAdd(bits, b_.CreateAdd(lsb, c(0x7fff))), c(16));
  llvm::Value* nan = b_.CreateOr(b_.CreateLShr(bits, c(16)), c(0x40));
  return b_.CreateTrunc(b_.CreateSelect(b_.CreateFCmpUNO(v, v), nan, rounded), i16);
}

llvm::Value* KernelEmitter::float_to_int(llvm::Value* v, DType from, DType to) {
  const auto real = [&](double x) { return llvm::ConstantFP::get(v->getType(), x); };
  (void)from;
  // Conversion with the hardware's answer (the minimum) for NaN and what does not fit in `bits`.
  const auto convert = [&](llvm::Value* x, int bits) {
    llvm::Type* t = vectored(b_.getIntNTy(bits), x);
    const double limit = bits == 32 ? 2147483648.0 : 9223372036854775808.0;
    llvm::Value* fits = b_.CreateAnd(b_.CreateFCmpOGE(x, real(-limit)), b_.CreateFCmpOLT(x, real(limit)));
    if (from == DType::f64 && bits == 32) fits = b_.CreateAnd(b_.CreateFCmpOGT(x, real(-limit - 1)), b_.CreateFCmpOLT(x, real(limit)));
    return b_.CreateSelect(fits, b_.CreateFPToSI(x, t), llvm::ConstantInt::get(t, llvm::APInt::getSignedMinValue(bits)));
  };
  llvm::Type* t = vectored(value_type(to), v);
  if (to == DType::u64) {
    llvm::Value* big = b_.CreateFCmpOGE(v, real(9223372036854775808.0));
    llvm::Value* fits = b_.CreateAnd(big, b_.CreateFCmpOLT(v, real(18446744073709551616.0)));
    llvm::Value* high = b_.CreateXor(convert(b_.CreateFSub(v, real(9223372036854775808.0)), 64),
                                     llvm::ConstantInt::get(vectored(b_.getInt64Ty(), v), uint64_t{1} << 63));
    return b_.CreateSelect(fits, high, convert(v, 64));
  }
  const bool wide = to == DType::i64 || to == DType::u32;
  return b_.CreateZExtOrTrunc(convert(v, wide ? 64 : 32), t);
}

llvm::Value* KernelEmitter::emit_cast(const loop::ExprNode& e, llvm::Value* v) {
  DType from = e.args[0]->dtype;
  const DType to = e.dtype;
  if (from == to) return v;
  if (from == DType::f16 || from == DType::bf16) v = widen_float(v, from), from = DType::f32;
  if (from == to) return v;
  llvm::Type* t = vectored(value_type(to), v);
  if (to == DType::b1) {
    llvm::Value* zero = llvm::Constant::getNullValue(v->getType());
    return is_float(from) ? b_.CreateFCmpUNE(v, zero) : b_.CreateICmpNE(v, zero);
  }
  if (is_float(from)) {
    if (to == DType::f16 || to == DType::bf16) return narrow_float(v, from, to);
    if (is_float(to)) return b_.CreateFPCast(v, t);
    return float_to_int(v, from, to);
  }
  if (is_float(to)) {
    const bool narrow = to == DType::f16 || to == DType::bf16;
    // Through f64 for 32-bit integers, so that a second rounding to 16 bits is exact; 64-bit ones take f32 directly.
    const DType via = narrow ? (info(from).bits == 32 ? DType::f64 : DType::f32) : to;
    llvm::Type* via_type = vectored(value_type(via), v);
    llvm::Value* f = is_signed(from) ? b_.CreateSIToFP(v, via_type) : b_.CreateUIToFP(v, via_type);
    return narrow ? narrow_float(f, via, to) : f;
  }
  return is_signed(from) ? b_.CreateSExtOrTrunc(v, t) : b_.CreateZExtOrTrunc(v, t);
}

static llvm::Intrinsic::ID unary_intrinsic(Op op) {
  switch (op) {
    case Op::sqrt: return llvm::Intrinsic::sqrt;
    case Op::floor: return llvm::Intrinsic::floor;
    case Op::ceil: return llvm::Intrinsic::ceil;
    case Op::trunc: return llvm::Intrinsic::trunc;
    case Op::rint: return llvm::Intrinsic::rint;
    default: return llvm::Intrinsic::not_intrinsic;
  }
}

llvm::Value* KernelEmitter::emit_op(const loop::ExprNode& e) {
  switch (e.op) {
    case Op::constant: return number(e.dtype, e.bits);
    case Op::load: return emit_load(e);
    case Op::index: {
      if (e.dtype == DType::b1) return index_.emit_condition(e.value);
      llvm::Value* v = index_.emit(e.value);
      llvm::Type* t = vectored(value_type(e.dtype), v);
      return is_float(e.dtype) ? b_.CreateSIToFP(v, t) : b_.CreateTrunc(v, t);
    }
    default: break;
  }
  llvm::Value* a = emit(e.args[0]);
  const DType in = e.args[0]->dtype;
  const bool floating = is_float(in);
  if (auto id = unary_intrinsic(e.op)) return b_.CreateUnaryIntrinsic(id, a);
  switch (e.op) {
    case Op::neg: return floating ? b_.CreateFNeg(a) : b_.CreateNeg(a);
    case Op::abs:
      if (floating) return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a);
      return is_signed(in) ? b_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, a, b_.getInt1(false)) : a;
    case Op::bit_not: return b_.CreateNot(a);
    case Op::cast: return emit_cast(e, a);
    case Op::bitcast: return b_.CreateBitCast(a, vectored(value_type(e.dtype), a));
    default: break;
  }
  TRIPOD_CHECK(!loop::is_math(e.op), "math must be expanded before code generation");
  llvm::Value* b = emit(e.args[1]);
  if (e.op == Op::select) {
    llvm::Value* c = emit(e.args[2]);
    unify(b, c);
    if (a->getType()->isVectorTy()) b = index_.splat(b), c = index_.splat(c);
    return b_.CreateSelect(a, b, c);
  }
  unify(a, b);
  switch (e.op) {
    case Op::add: return floating ? b_.CreateFAdd(a, b) : b_.CreateAdd(a, b);
    case Op::sub: return floating ? b_.CreateFSub(a, b) : b_.CreateSub(a, b);
    case Op::mul: return floating ? b_.CreateFMul(a, b) : b_.CreateMul(a, b);
    case Op::div: return floating ? b_.CreateFDiv(a, b) : emit_int_division(e, a, b);
    case Op::rem:
      TRIPOD_CHECK(!floating, "rem is for integers");
      return emit_int_division(e, a, b);
    case Op::min:
    case Op::max: return emit_min_max(e, a, b);
    case Op::fma: {
      llvm::Value* c = emit(e.args[2]);
      if (a->getType()->isVectorTy() || c->getType()->isVectorTy()) a = index_.splat(a), b = index_.splat(b), c = index_.splat(c);
      return floating ? b_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c})
                      : b_.CreateAdd(b_.CreateMul(a, b), c);
    }
    case Op::lt: return floating ? b_.CreateFCmpOLT(a, b) : is_signed(in) ? b_.CreateICmpSLT(a, b) : b_.CreateICmpULT(a, b);
    case Op::le: return floating ? b_.CreateFCmpOLE(a, b) : is_signed(in) ? b_.CreateICmpSLE(a, b) : b_.CreateICmpULE(a, b);
    case Op::eq: return floating ? b_.CreateFCmpOEQ(a, b) : b_.CreateICmpEQ(a, b);
    case Op::ne: return floating ? b_.CreateFCmpUNE(a, b) : b_.CreateICmpNE(a, b);
    case Op::bit_and: return b_.CreateAnd(a, b);
    case Op::bit_or: return b_.CreateOr(a, b);
    case Op::bit_xor: return b_.CreateXor(a, b);
    case Op::shl:
    case Op::shr: return emit_shift(e, a, b);
    default: internal_error(__FILE__, __LINE__, "no code for " + std::string(loop::name(e.op)));
  }
}

}  // namespace tripod::codegen
