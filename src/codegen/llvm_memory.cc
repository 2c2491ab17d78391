// Loads and stores: from a buffer and its logical index to an address, by how the address moves with the lane.
#include "codegen/llvm_kernel.h"

namespace tripod::codegen {

// 4-bit elements lie two a byte, the low nibble first; lanes go one by one.
static bool is_nibble(DType t) { return info(t).bits < 8; }

llvm::Type* KernelEmitter::memory_type(DType t) {
  switch (t) {
    case DType::f32: return b_.getFloatTy();
    case DType::f64: return b_.getDoubleTy();
    default: return b_.getIntNTy(info(t).bits);
  }
}

llvm::Type* KernelEmitter::value_type(DType t) { return t == DType::b1 ? b_.getInt1Ty() : memory_type(t); }

llvm::Type* KernelEmitter::vectored(llvm::Type* t, llvm::Value* like) {
  auto* v = llvm::dyn_cast<llvm::VectorType>(like->getType());
  return v ? llvm::VectorType::get(t, v->getElementCount()) : t;
}

llvm::Value* KernelEmitter::to_memory(llvm::Value* v, DType t) {
  return t == DType::b1 ? b_.CreateZExt(v, vectored(b_.getInt8Ty(), v)) : v;
}

llvm::Value* KernelEmitter::from_memory(llvm::Value* v, DType t) {
  return t == DType::b1 ? b_.CreateICmpNE(v, llvm::Constant::getNullValue(v->getType())) : v;
}

// Callers may give memory that is aligned to the element only; vectors of it use unaligned instructions.
llvm::Align KernelEmitter::alignment(const loop::Buffer& b) const {
  if (b->scope == loop::Scope::reg || b->scope == loop::Scope::local) return llvm::Align(info(b->dtype).bits / 8);
  return llvm::Align(std::max(1, info(b->dtype).bits / 8));
}

// base + at, as a chain of address computations from the outermost loop inwards and the constant last: each link is
// invariant in the loops inside it, so that licm leaves one addition (or a displacement) in the innermost loop.
llvm::Value* KernelEmitter::pointer_at(llvm::Type* element, llvm::Value* base, sym::Expr at, size_t depth) {
  while (depth > 0 && !sym::uses(at, loops_[depth - 1])) --depth;
  const auto linear = depth > 0 ? sym::linear_in(at, loops_[depth - 1]) : std::nullopt;
  if (!linear) return at.is_const(0) ? base : b_.CreateGEP(element, base, index_.emit(at));
  llvm::Value* outer = pointer_at(element, base, linear->rest, depth - 1);
  return b_.CreateGEP(element, outer, index_.emit(linear->coefficient * loops_[depth - 1]));
}

llvm::Value* KernelEmitter::pointer(llvm::Type* element, llvm::Value* base, sym::Expr at) {
  int64_t constant = 0;
  sym::terms(at, constant);
  llvm::Value* p = pointer_at(element, base, at - constant, loops_.size());
  return constant == 0 ? p : b_.CreateConstGEP1_64(element, p, constant);
}

KernelEmitter::Address KernelEmitter::address(const loop::Buffer& b, const std::vector<sym::Expr>& indices) {
  auto it = buffers_.find(b.get());
  TRIPOD_CHECK(it != buffers_.end(), "buffer " + b->name + " has no memory here");
  llvm::Value* base = it->second;
  llvm::Type* element = memory_type(b->dtype);
  const sym::Expr at = loop::offset(sym_, b, indices);
  if (is_nibble(b->dtype)) return {base, Address::scattered, nullptr, index_.emit(at)};
  if (!index_.uses_lane(at)) return {pointer(element, base, at), Address::uniform};
  const auto linear = sym::linear_in(at, index_.lane_var());
  if (!linear || index_.uses_gathered(at)) return {base, Address::scattered, nullptr, index_.emit(at)};
  // The lane variable counts from 0, so the rest is lane 0's address.
  llvm::Value* start = pointer(element, base, linear->rest);
  if (linear->coefficient.is_const(1)) return {start, Address::contiguous};
  return {start, Address::strided, index_.emit(linear->coefficient)};
}

llvm::Value* KernelEmitter::lane_of(llvm::Value* v, int lane) {
  return v->getType()->isVectorTy() ? b_.CreateExtractElement(v, lane) : v;
}

llvm::Value* KernelEmitter::load_nibble(llvm::Value* base, llvm::Value* at) {
  llvm::Value* byte = b_.CreateLoad(b_.getInt8Ty(), b_.CreateGEP(b_.getInt8Ty(), base, b_.CreateLShr(at, 1)));
  llvm::Value* shift = b_.CreateTrunc(b_.CreateShl(b_.CreateAnd(at, 1), 2), b_.getInt8Ty());
  return b_.CreateTrunc(b_.CreateLShr(byte, shift), b_.getIntNTy(4));
}

void KernelEmitter::store_nibble(llvm::Value* base, llvm::Value* at, llvm::Value* v) {
  llvm::Value* pointer = b_.CreateGEP(b_.getInt8Ty(), base, b_.CreateLShr(at, 1));
  llvm::Value* shift = b_.CreateTrunc(b_.CreateShl(b_.CreateAnd(at, 1), 2), b_.getInt8Ty());
  llvm::Value* kept = b_.CreateAnd(b_.CreateLoad(b_.getInt8Ty(), pointer), b_.CreateNot(b_.CreateShl(b_.getInt8(15), shift)));
  b_.CreateStore(b_.CreateOr(kept, b_.CreateShl(b_.CreateZExt(v, b_.getInt8Ty()), shift)), pointer);
}

llvm::Value* KernelEmitter::load_at(const Address& a, const loop::Buffer& b, llvm::Value* mask, llvm::Value* other) {
  if (is_nibble(b->dtype)) {
    if (!a.offsets->getType()->isVectorTy() && !mask) return load_nibble(a.pointer, a.offsets);
    llvm::Value* v = llvm::PoisonValue::get(llvm::FixedVectorType::get(b_.getIntNTy(4), index_.lanes()));
    for (int i = 0; i < index_.lanes(); ++i) {
      llvm::Value* at = lane_of(a.offsets, i);
      if (mask) at = b_.CreateSelect(lane_of(mask, i), at, b_.getInt64(0));  // a masked lane reads some byte and drops it
      llvm::Value* loaded = load_nibble(a.pointer, at);
      if (mask) loaded = b_.CreateSelect(lane_of(mask, i), loaded, lane_of(other, i));
      v = b_.CreateInsertElement(v, loaded, i);
    }
    return v;
  }
  llvm::Type* element = memory_type(b->dtype);
  const llvm::Align align = alignment(b);
  if (a.kind == Address::uniform) return b_.CreateAlignedLoad(element, a.pointer, align);
  const int lanes = index_.lanes();
  auto* vector = llvm::FixedVectorType::get(element, lanes);
  if (a.kind == Address::contiguous)
    return mask ? static_cast<llvm::Value*>(b_.CreateMaskedLoad(vector, a.pointer, align, mask, other))
                : b_.CreateAlignedLoad(vector, a.pointer, align);
  llvm::Value* steps = a.offsets;
  if (a.kind == Address::strided) {
    llvm::SmallVector<llvm::Constant*, 16> counts;
    for (int i = 0; i < lanes; ++i) counts.push_back(b_.getInt64(i));
    steps = b_.CreateMul(llvm::ConstantVector::get(counts), b_.CreateVectorSplat(lanes, a.stride));
  }
  if (mask) return b_.CreateMaskedGather(vector, b_.CreateGEP(element, a.pointer, steps), align, mask, other);
  // Scalar loads beat the gather instruction on most cores.
  llvm::Value* v = llvm::PoisonValue::get(vector);
  for (int i = 0; i < lanes; ++i) {
    llvm::Value* step = a.kind == Address::strided ? b_.CreateMul(a.stride, b_.getInt64(i))
                                                   : b_.CreateExtractElement(steps, b_.getInt64(i));
    v = b_.CreateInsertElement(v, b_.CreateAlignedLoad(element, b_.CreateGEP(element, a.pointer, step), align), i);
  }
  return v;
}

void KernelEmitter::store_at(const Address& a, const loop::Buffer& b, llvm::Value* v, llvm::Value* mask) {
  if (is_nibble(b->dtype)) {
    const int lanes = a.offsets->getType()->isVectorTy() ? index_.lanes() : 1;
    for (int i = 0; i < lanes; ++i) {
      const auto store_lane = [&] { store_nibble(a.pointer, lane_of(a.offsets, i), lane_of(v, i)); };
      mask ? when(lane_of(mask, i), store_lane) : store_lane();
    }
    return;
  }
  llvm::Type* element = memory_type(b->dtype);
  const llvm::Align align = alignment(b);
  if (a.kind == Address::uniform) {
    TRIPOD_CHECK(!v->getType()->isVectorTy() && !mask, "all lanes store to one element of " + b->name);
    b_.CreateAlignedStore(v, a.pointer, align);
    return;
  }
  v = index_.splat(v);
  if (a.kind == Address::contiguous) {
    if (mask)
      b_.CreateMaskedStore(v, a.pointer, align, mask);
    else
      b_.CreateAlignedStore(v, a.pointer, align);
    return;
  }
  for (int i = 0; i < index_.lanes(); ++i) {
    const auto store_lane = [&] {
      llvm::Value* step = a.kind == Address::strided ? b_.CreateMul(a.stride, b_.getInt64(i))
                                                     : b_.CreateExtractElement(a.offsets, b_.getInt64(i));
      b_.CreateAlignedStore(b_.CreateExtractElement(v, i), b_.CreateGEP(element, a.pointer, step), align);
    };
    if (mask)
      when(b_.CreateExtractElement(mask, i), store_lane);
    else
      store_lane();
  }
}

}  // namespace tripod::codegen
