// Statements: loops, stores, branches, memory. See llvm_kernel.h.
#include "codegen/llvm_kernel.h"

#include <functional>
#include <unordered_set>

namespace tripod::codegen {

using loop::LoopKind;
using loop::StmtKind;

KernelInfo emit_kernel(llvm::Module& module, const loop::Function& f, const std::string& symbol, sym::Context& context,
                       llvm::DIBuilder& debug) {
  return KernelEmitter(module, f, context, debug).run(symbol);
}

KernelEmitter::KernelEmitter(llvm::Module& module, const loop::Function& f, sym::Context& context, llvm::DIBuilder& debug)
    : module_(module), f_(f), sym_(context), b_(module.getContext()), index_(b_), debug_(debug) {}

// The body's entry in the debug information: its source is SYMBOL.loop, which `tripod inspect --kernel SYMBOL --source`
// prints, and its name says which ONNX nodes it computes.
void KernelEmitter::describe(const std::string& symbol) {
  loop::text(f_, lines_);
  std::string name = symbol;
  for (const Site& s : f_.origins) name += (&s == &f_.origins[0] ? ": " : ", ") + s.text();
  llvm::DIFile* file = debug_.createFile(symbol + ".loop", "tripod");
  llvm::DISubprogram* p = debug_.createFunction(file, name, function_->getName(), file, 1,
                                                debug_.createSubroutineType(debug_.getOrCreateTypeArray({})), 1, llvm::DINode::FlagZero,
                                                llvm::DISubprogram::SPFlagDefinition | llvm::DISubprogram::SPFlagLocalToUnit | llvm::DISubprogram::SPFlagOptimized);
  function_->setSubprogram(p);
  b_.SetCurrentDebugLocation(llvm::DILocation::get(b_.getContext(), 1, 0, p));
}

// Positions of the parameters that the body touches: of many phases, each touches a few.
std::vector<size_t> KernelEmitter::used_params() const {
  std::unordered_set<const loop::BufferNode*> touched;
  loop::visit(f_.body, [&](const loop::Stmt& s) { touched.insert(s->buffer.get()); }, [&](const loop::Expr& e) { touched.insert(e->buffer.get()); });
  std::vector<size_t> r;
  for (size_t i = 0; i < f_.params.size(); ++i)
    if (touched.count(f_.params[i].get())) r.push_back(i);
  return r;
}

// void symbol(const uint64_t* args, int64_t begin, int64_t end, void* scratch): loads its arguments and calls the
// body, whose pointer parameters are noalias (an alias fact needs a parameter).
KernelInfo KernelEmitter::run(const std::string& symbol) {
  llvm::Type *ptr = b_.getPtrTy(), *i64 = b_.getInt64Ty();
  const std::vector<size_t> used = used_params();
  std::vector<llvm::Type*> types(used.size(), ptr);
  types.insert(types.end(), f_.dims.size(), i64);
  types.insert(types.end(), {ptr, i64, i64, ptr});  // run, begin, end, scratch
  function_ = llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), types, false),
                                     llvm::GlobalValue::InternalLinkage, symbol + ".body", module_);
  function_->addFnAttr(llvm::Attribute::NoUnwind);
  function_->addFnAttr(llvm::Attribute::NoInline);
  entry_ = llvm::BasicBlock::Create(b_.getContext(), "entry", function_);
  llvm::BasicBlock* start = llvm::BasicBlock::Create(b_.getContext(), "start", function_);
  b_.SetInsertPoint(start);
  unsigned k = 0;
  for (const size_t i : used) {
    llvm::Argument* a = function_->getArg(k++);
    a->setName(f_.params[i]->name);
    a->addAttr(llvm::Attribute::NoAlias);
    if (i + f_.num_outputs < f_.params.size()) a->addAttr(llvm::Attribute::ReadOnly);
    buffers_[f_.params[i].get()] = a;
  }
  for (const sym::Expr& d : f_.dims) {
    function_->getArg(k)->setName(d->name);
    index_.bind(d, function_->getArg(k++));
  }
  args_ = function_->getArg(k++), begin_ = function_->getArg(k++), end_ = function_->getArg(k++), scratch_ = function_->getArg(k);
  describe(symbol);
  info_.symbol = symbol;
  info_.parallel_extent = sym_.constant(1);
  info_.scratch_bytes = scratch_offset_ = scratch_bytes_ = sym_.constant(0);
  emit_in_scope(f_.body);
  b_.CreateRetVoid();
  b_.SetInsertPoint(entry_);
  b_.CreateBr(start);
  info_.scratch_bytes = scratch_bytes_;
  b_.SetCurrentDebugLocation(llvm::DebugLoc());

  auto* outer = llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), {ptr, i64, i64, ptr}, false),
                                       llvm::GlobalValue::ExternalLinkage, symbol, module_);
  outer->addFnAttr(llvm::Attribute::NoUnwind);
  outer->setVisibility(llvm::GlobalValue::HiddenVisibility);
  b_.SetInsertPoint(llvm::BasicBlock::Create(b_.getContext(), "entry", outer));
  std::vector<llvm::Value*> values;
  const auto slot = [&](llvm::Type* t, size_t i) { return b_.CreateLoad(t, b_.CreateConstGEP1_64(i64, outer->getArg(0), i)); };
  for (const size_t i : used) values.push_back(slot(ptr, 1 + i));
  for (size_t i = 0; i < f_.dims.size(); ++i) values.push_back(slot(i64, 1 + f_.params.size() + i));
  values.insert(values.end(), {slot(ptr, 0), outer->getArg(1), outer->getArg(2), outer->getArg(3)});
  b_.CreateCall(function_, values);
  b_.CreateRetVoid();
  return info_;
}

// Gives a substituted statement and what is in it the lines of the original.
void KernelEmitter::copy_lines(const loop::Stmt& from, const loop::Stmt& to) {
  if (from.get() == to.get() || from->kind != to->kind || from->body.size() != to->body.size()) return;
  if (const auto line = lines_.find(from.get()); line != lines_.end()) {
    const int number = line->second;
    lines_[to.get()] = number;
  }
  for (size_t i = 0; i < from->body.size(); ++i) copy_lines(from->body[i], to->body[i]);
}

void KernelEmitter::emit_in_scope(const loop::Stmt& s) {
  const IndexEmitter::Scope scope(index_);
  emit(s);
}

void KernelEmitter::emit(const loop::Stmt& s) {
  // A statement that is not in the table stays on the line of what is around it.
  if (const auto line = lines_.find(s.get()); line != lines_.end())
    b_.SetCurrentDebugLocation(llvm::DILocation::get(b_.getContext(), static_cast<unsigned>(line->second), 0, function_->getSubprogram()));
  switch (s->kind) {
    case StmtKind::seq:
      for (const loop::Stmt& t : s->body) emit(t);
      return;
    case StmtKind::loop: return emit_loop(*s);
    case StmtKind::store: return emit_store(*s);
    case StmtKind::let: return emit_let(*s);
    case StmtKind::branch: return emit_branch(*s);
    case StmtKind::alloc: return emit_alloc(*s);
    case StmtKind::check: return emit_check(*s);
    case StmtKind::block:
    case StmtKind::tile:
    case StmtKind::sync: break;
  }
  internal_error(__FILE__, __LINE__, "function " + f_.name + " is not flattened for the CPU:\n" + loop::text(s));
}

void KernelEmitter::when(llvm::Value* condition, const std::function<void()>& then, const std::function<void()>& otherwise) {
  llvm::BasicBlock* yes = llvm::BasicBlock::Create(b_.getContext(), "then", function_);
  llvm::BasicBlock* after = llvm::BasicBlock::Create(b_.getContext(), "after", function_);
  llvm::BasicBlock* no = otherwise ? llvm::BasicBlock::Create(b_.getContext(), "else", function_) : after;
  b_.CreateCondBr(condition, yes, no);
  const auto arm = [&](llvm::BasicBlock* block, const std::function<void()>& work) {
    const IndexEmitter::Scope scope(index_);
    b_.SetInsertPoint(block);
    work();
    b_.CreateBr(after);
  };
  arm(yes, then);
  if (otherwise) arm(no, otherwise);
  b_.SetInsertPoint(after);
}

void KernelEmitter::emit_counted(sym::Expr var, llvm::Value* begin, llvm::Value* end, const loop::Stmt& body) {
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::BasicBlock* head = llvm::BasicBlock::Create(b_.getContext(), var->name, function_);
  llvm::BasicBlock* after = llvm::BasicBlock::Create(b_.getContext(), var->name + ".end", function_);
  b_.CreateCondBr(b_.CreateICmpSLT(begin, end), head, after);
  b_.SetInsertPoint(head);
  llvm::PHINode* i = b_.CreatePHI(b_.getInt64Ty(), 2, var->name);
  i->addIncoming(begin, before);
  index_.bind(var, i);
  loops_.push_back(var);
  values_.clear();
  emit_in_scope(body);
  values_.clear();
  loops_.pop_back();
  index_.unbind(var);
  llvm::Value* next = b_.CreateAdd(i, b_.getInt64(1), "", true, true);
  i->addIncoming(next, b_.GetInsertBlock());
  b_.CreateCondBr(b_.CreateICmpSLT(next, end), head, after);
  b_.SetInsertPoint(after);
}

void KernelEmitter::emit_loop(const loop::StmtNode& s) {
  switch (s.loop_kind) {
    case LoopKind::serial:
      return emit_counted(s.var, b_.getInt64(0), index_.emit(s.extent), s.body[0]);
    case LoopKind::parallel:
      TRIPOD_CHECK(info_.parallel_extent.is_const(1), "two parallel loops in one kernel");
      info_.parallel_extent = s.extent;
      info_.grain = s.grain;
      return emit_counted(s.var, begin_, end_, s.body[0]);
    case LoopKind::unrolled:
      TRIPOD_CHECK(s.extent.is_const(), "an unrolled loop needs a constant extent");
      for (int64_t i = 0; i < s.extent.value(); ++i) {
        values_.clear();
        // A constant in the expressions: addresses into register tiles are constants then, and what does not use it is one
        // expression in all copies.
        const loop::Stmt body = loop::substitute(s.body[0], {{s.var, sym_.constant(i)}});
        copy_lines(s.body[0], body);
        emit(body);
      }
      values_.clear();
      return;
    case LoopKind::vector:
      return emit_vector(s);
    default:
      internal_error(__FILE__, __LINE__, "a GPU axis in a CPU kernel");
  }
}

void KernelEmitter::emit_vector(const loop::StmtNode& s) {
  TRIPOD_CHECK(s.extent.is_const() && !index_.lane_var(), "a vector loop needs a constant extent and no other around it");
  const int lanes = static_cast<int>(s.extent.value());
  llvm::SmallVector<llvm::Constant*, 16> counts;
  for (int i = 0; i < lanes; ++i) counts.push_back(b_.getInt64(i));
  index_.bind(s.var, llvm::ConstantVector::get(counts));
  index_.set_lanes(s.var, lanes);
  values_.clear();
  emit_in_scope(s.body[0]);
  values_.clear();
  index_.set_lanes({}, 1);
  index_.unbind(s.var);
}

void KernelEmitter::emit_store(const loop::StmtNode& s) {
  values_.clear();
  const auto plain = [&](llvm::Value* mask) {
    llvm::Value* v = to_memory(emit(s.value), s.buffer->dtype);
    store_at(address(s.buffer, s.indices), s.buffer, v, mask);
  };
  if (!s.guard || s.guard.is_const(1)) return plain(nullptr);
  llvm::Value* mask = index_.emit_condition(s.guard);
  if (mask->getType()->isVectorTy()) return plain(mask);
  when(mask, [&] { plain(nullptr); });
  values_.clear();
}

void KernelEmitter::emit_let(const loop::StmtNode& s) {
  values_.clear();
  llvm::Value* v = emit(s.value);
  index_.bind(s.var, b_.CreateIntCast(v, vectored(b_.getInt64Ty(), v), is_signed(s.value->dtype)));
  emit_in_scope(s.body[0]);
  index_.unbind(s.var);
}

void KernelEmitter::emit_branch(const loop::StmtNode& s) {
  values_.clear();
  llvm::Value* condition = emit(s.value);
  TRIPOD_CHECK(!condition->getType()->isVectorTy(), "a branch inside a vector loop must not depend on the lane");
  const auto arm = [&](size_t i) {
    return [&, i] {
      values_.clear();
      emit(s.body[i]);
      values_.clear();
    };
  };
  if (s.body.size() > 1)
    when(condition, arm(0), arm(1));
  else
    when(condition, arm(0));
}

// Register tiles and small buffers of constant size live on the stack (and in registers after sroa); the others in
// the thread's scratch memory, at an offset behind those of the allocs around.
void KernelEmitter::emit_alloc(const loop::StmtNode& s) {
  const loop::Buffer& b = s.buffer;
  const sym::Expr elements = loop::storage_size(sym_, b);
  const int64_t bytes_each = std::max(1, info(b->dtype).bits / 8);
  constexpr int64_t kStackLimit = 16384;
  if (elements.is_const() && elements.value() * bytes_each <= kStackLimit) {
    llvm::IRBuilder<> entry(entry_);
    llvm::AllocaInst* a = entry.CreateAlloca(llvm::ArrayType::get(memory_type(b->dtype), elements.value()), nullptr, b->name);
    a->setAlignment(llvm::Align(64));
    buffers_[b.get()] = a;
    emit(s.body[0]);
    return;
  }
  TRIPOD_CHECK(b->scope != loop::Scope::reg, "register tile " + b->name + " needs a constant size");
  const sym::Expr before = scratch_offset_;
  buffers_[b.get()] = b_.CreateGEP(b_.getInt8Ty(), scratch_, index_.emit(before));
  scratch_offset_ = before + sym::ceildiv(elements * bytes_each, 64) * 64;
  scratch_bytes_ = sym::max(scratch_bytes_, scratch_offset_);
  emit(s.body[0]);
  scratch_offset_ = before;
}

// The index that is checked is used clamped by its Let; here only the error is recorded.
void KernelEmitter::emit_check(const loop::StmtNode& s) {
  llvm::FunctionCallee report = module_.getOrInsertFunction(
      "tp_kernel_error", llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy(), b_.getInt32Ty(), b_.getInt64Ty(), b_.getInt64Ty()}, false));
  llvm::Value *v = index_.emit(s.var), *limit = index_.emit(s.extent);
  const auto one = [&](llvm::Value* x, llvm::Value* l) {
    when(b_.CreateICmpUGE(x, l), [&] { b_.CreateCall(report, {args_, b_.getInt32(s.site), x, l}); });
  };
  if (!v->getType()->isVectorTy()) return one(v, limit);
  limit = index_.splat(limit);
  for (int i = 0; i < index_.lanes(); ++i) one(b_.CreateExtractElement(v, i), b_.CreateExtractElement(limit, i));
}

}  // namespace tripod::codegen
