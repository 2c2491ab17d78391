// See emit.h. The program becomes one function; arena addresses are base + offsets[i], both read after entering a
// segment; symbols are read from the dims array where they are used (a step may have set them). Sizes beyond 64 bits are
// errors; shape arithmetic on tensors wraps, as it does in ONNX Runtime.
#include "host/emit.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <map>
#include <unordered_map>

#include "codegen/llvm_kernel.h"
#include "runtime/abi.h"

namespace tripod::host {
namespace {

class ProgramEmitter {
 public:
  ProgramEmitter(const Program& p, llvm::Module& m) : p_(p), m_(m), b_(m.getContext()), index_(b_) {
    index_.watch_overflow();
    for (size_t i = 0; i < p.buffers.size(); ++i) {
      slot_.push_back(static_cast<int>(segment_buffers_[p.buffers[i].segment].size()));
      segment_buffers_[p.buffers[i].segment].push_back(static_cast<int>(i));
    }
  }

  llvm::Function* program() {
    llvm::Type *ptr = b_.getPtrTy(), *i32 = b_.getInt32Ty();
    function_ = llvm::Function::Create(llvm::FunctionType::get(i32, {ptr, ptr, ptr, ptr}, false),
                                       llvm::GlobalValue::InternalLinkage, "tripod_program", m_);
    entry_ = llvm::BasicBlock::Create(b_.getContext(), "entry", function_);
    auto* start = llvm::BasicBlock::Create(b_.getContext(), "start", function_);
    b_.SetInsertPoint(start);
    run_ = function_->getArg(0), dims_ = function_->getArg(1), inputs_ = function_->getArg(2), weights_ = function_->getArg(3);
    if (on_device()) {
      device_weights_ = b_.CreateCall(runtime("tp_device_weights", b_.getPtrTy(), {b_.getPtrTy()}), {run_}, "device_weights");
      stop_if(b_.CreateIsNull(device_weights_), b_.getInt32(5));
    }
    emit(p_.steps);
    b_.CreateRet(b_.getInt32(0));
    llvm::IRBuilder<>(entry_).CreateBr(start);
    return function_;
  }

  // void sizes(const int64_t* dims, int64_t* sizes): bytes of each buffer of the segment.
  llvm::Function* sizes(int segment) {
    llvm::Type* ptr = b_.getPtrTy();
    auto* f = llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), {ptr, ptr}, false),
                                     llvm::GlobalValue::InternalLinkage, "tripod_sizes_" + std::to_string(segment), m_);
    b_.SetInsertPoint(llvm::BasicBlock::Create(b_.getContext(), "entry", f));
    dims_ = f->getArg(0);
    const auto& list = segment_buffers_[segment];
    for (size_t i = 0; i < list.size(); ++i)
      b_.CreateStore(expr_or(p_.buffers[list[i]].bytes, INT64_MAX), b_.CreateConstGEP1_64(b_.getInt64Ty(), f->getArg(1), i));
    b_.CreateRetVoid();
    return f;
  }

  llvm::Constant* segments() {
    llvm::Type *ptr = b_.getPtrTy(), *i32 = b_.getInt32Ty();
    auto* row = llvm::StructType::get(b_.getContext(), {i32, i32, ptr, ptr});
    auto* interval = llvm::StructType::get(b_.getContext(), {i32, i32});
    std::vector<llvm::Constant*> rows;
    for (int s = 0; s < p_.num_segments; ++s) {
      std::vector<llvm::Constant*> intervals;
      for (int i : segment_buffers_[s])
        intervals.push_back(llvm::ConstantStruct::get(
            interval, {b_.getInt32(p_.buffers[i].first), b_.getInt32(p_.buffers[i].last)}));
      llvm::Function* f = sizes(s);
      rows.push_back(llvm::ConstantStruct::get(
          row, {b_.getInt32(intervals.size()), b_.getInt32(on_host(s) ? kTpHost : kTpDevice), array(interval, intervals, "intervals"), f}));
    }
    return array(row, rows, "tripod_segments");
  }

  llvm::Constant* array(llvm::Type* element, const std::vector<llvm::Constant*>& items, const std::string& name) {
    auto* type = llvm::ArrayType::get(element, items.size());
    return new llvm::GlobalVariable(m_, type, true, llvm::GlobalValue::InternalLinkage, llvm::ConstantArray::get(type, items), name);
  }

  llvm::Constant* string(const std::string& s) { return b_.CreateGlobalString(s, "", 0, &m_); }

  llvm::IRBuilder<>& builder() { return b_; }

  bool on_device() const { return p_.first_host_segment >= 0; }
  bool on_host(int segment) const { return !on_device() || segment >= p_.first_host_segment; }

 private:
  llvm::FunctionCallee runtime(const char* name, llvm::Type* result, std::vector<llvm::Type*> args) {
    return m_.getOrInsertFunction(name, llvm::FunctionType::get(result, args, false));
  }

  // Whether a sum or product in it is beyond 64 bits is not asked, and must not be: what the emitter keeps for that is a
  // value of this block.
  llvm::Value* expr(Index e) {
    llvm::Value* v = watched_expr(e);
    index_.take_overflow();
    return v;
  }

  llvm::Value* watched_expr(Index e) {
    for (const Index& v : sym::variables(e)) {
      llvm::Value* at = nullptr;
      for (size_t i = 0; i < p_.symbols.size(); ++i)
        if (p_.symbols[i].var == v) at = b_.CreateLoad(b_.getInt64Ty(), b_.CreateConstGEP1_64(b_.getInt64Ty(), dims_, i), v->name);
      TRIPOD_CHECK(at, "symbol " + sym::text(v) + " is not one of the program's");
      index_.bind(v, at);
    }
    return index_.emit(e);
  }

  // Or `otherwise` where a sum or product in it is beyond 64 bits.
  llvm::Value* expr_or(Index e, int64_t otherwise) {
    llvm::Value* v = watched_expr(e);
    llvm::Value* beyond = index_.take_overflow();
    return beyond ? b_.CreateSelect(beyond, b_.getInt64(otherwise), v) : v;
  }

  llvm::AllocaInst* stack(llvm::Type* element, int64_t count) {
    llvm::IRBuilder<> entry(entry_);
    auto* a = entry.CreateAlloca(llvm::ArrayType::get(element, std::max<int64_t>(count, 1)));
    a->setAlignment(llvm::Align(16));
    return a;
  }

  llvm::Value* address(const Place& p) {
    llvm::Value* start = start_of(p);
    return p.at ? b_.CreateGEP(b_.getInt8Ty(), start, expr(p.at)) : start;
  }

  llvm::Value* start_of(const Place& p) {
    llvm::Type *ptr = b_.getPtrTy(), *i8 = b_.getInt8Ty();
    switch (p.kind) {
      case Place::arena: {
        const int s = p_.buffers[p.index].segment;
        llvm::Value* at = b_.CreateLoad(b_.getInt64Ty(), b_.CreateConstGEP1_64(b_.getInt64Ty(), b_.CreateLoad(ptr, offsets(s)), slot_[p.index]));
        return b_.CreateGEP(i8, b_.CreateLoad(ptr, base(s)), at, p_.buffers[p.index].name);
      }
      case Place::input: return b_.CreateLoad(ptr, b_.CreateConstGEP1_64(ptr, inputs_, p.index));
      case Place::output: return b_.CreateLoad(ptr, output(p.index));
      case Place::weight: return b_.CreateConstGEP1_64(i8, device_weights_ && !host_step_ ? device_weights_ : weights_, p.offset);
      case Place::zero_size:
      case Place::none: return llvm::ConstantPointerNull::get(b_.getPtrTy());
    }
    internal_error(__FILE__, __LINE__, "no such place");
  }

  llvm::Value* base(int s) { return variable(bases_, s, "arena"); }
  llvm::Value* offsets(int s) { return variable(offsets_, s, "offsets"); }
  llvm::Value* output(int i) { return variable(outputs_, i, "output"); }
  llvm::Value* variable(std::map<int, llvm::Value*>& m, int i, const char* name) {
    llvm::Value*& v = m[i];
    if (!v) v = llvm::IRBuilder<>(entry_).CreateAlloca(b_.getPtrTy(), nullptr, name);
    return v;
  }

  // Leaves the program with the code of a call that failed.
  void stop_if(llvm::Value* failed, llvm::Value* code) {
    auto* stop = llvm::BasicBlock::Create(b_.getContext(), "stop", function_);
    auto* on = llvm::BasicBlock::Create(b_.getContext(), "on", function_);
    b_.CreateCondBr(failed, stop, on);
    b_.SetInsertPoint(stop);
    b_.CreateRet(code);
    b_.SetInsertPoint(on);
  }
  void stop_on_error(llvm::Value* code) { stop_if(b_.CreateICmpNE(code, b_.getInt32(0)), code); }

  void emit(const Steps& steps) {
    for (const Step& s : steps) emit(s);
  }

  void emit(const Step& s) {
    // Runtime operators, conditions and the like read weights in the host's memory.
    host_step_ = s.kind != Step::launch && s.kind != Step::copy;
    llvm::Type *ptr = b_.getPtrTy(), *i32 = b_.getInt32Ty(), *i64 = b_.getInt64Ty();
    switch (s.kind) {
      case Step::segment: {
        llvm::Value* a = b_.CreateCall(runtime("tp_enter_segment", ptr, {ptr, i32}), {run_, b_.getInt32(s.number)});
        stop_if(b_.CreateIsNull(a), b_.getInt32(3));
        b_.CreateStore(a, base(s.number));
        b_.CreateStore(b_.CreateCall(runtime("tp_offsets", ptr, {ptr, i32}), {run_, b_.getInt32(s.number)}), offsets(s.number));
        return;
      }
      case Step::output: {
        llvm::Value* shape = stack(i64, s.dims.size());
        for (size_t i = 0; i < s.dims.size(); ++i) b_.CreateStore(expr_or(s.dims[i], -1), b_.CreateConstGEP1_64(i64, shape, i));
        llvm::Value* a = b_.CreateCall(runtime("tp_output", ptr, {ptr, i32, i32, ptr}),
                                       {run_, b_.getInt32(s.number), b_.getInt32(s.dims.size()), shape});
        stop_if(b_.CreateIsNull(a), b_.getInt32(5));
        b_.CreateStore(a, output(s.number));
        return;
      }
      case Step::launch: return emit_launch(s);
      case Step::call: return emit_call(s);
      case Step::copy: {
        llvm::Value* bytes = b_.CreateMul(count(s.views[1]), b_.getInt64(info(s.views[1].dtype).bits / 8));
        if (on_device()) return emit_device_copy(s, bytes);
        b_.CreateCall(runtime("tp_step_copy", b_.getVoidTy(), {ptr, ptr, ptr, i64, i32}),
                      {run_, address(s.views[0].place), address(s.views[1].place), bytes, b_.getInt32(s.id)});
        return;
      }
      case Step::store: {
        llvm::Value* to = address(s.views[0].place);
        for (size_t i = 0; i < s.dims.size(); ++i) {
          llvm::Value* v = expr(s.dims[i]);
          const DType t = s.views[0].dtype;
          llvm::Type* type = t == DType::f32 ? b_.getFloatTy() : t == DType::f64 ? b_.getDoubleTy() : static_cast<llvm::Type*>(b_.getIntNTy(info(t).bits));
          v = is_float(t) ? b_.CreateSIToFP(v, type) : b_.CreateTrunc(v, type);
          b_.CreateStore(v, b_.CreateConstGEP1_64(type, to, i));
        }
        return;
      }
      case Step::set_dim:
        stop_on_error(b_.CreateCall(runtime("tp_set_dim", i32, {ptr, i32, i64, i32}), {run_, b_.getInt32(s.number), expr_or(s.dims[0], INT64_MAX), b_.getInt32(s.site)}));
        return;
      case Step::read_dim: {
        const DType t = s.views[0].dtype;
        llvm::Value* v = b_.CreateLoad(b_.getIntNTy(info(t).bits), address(s.views[0].place));
        v = b_.CreateIntCast(v, i64, is_signed(t));
        stop_on_error(b_.CreateCall(runtime("tp_set_dim", i32, {ptr, i32, i64, i32}), {run_, b_.getInt32(s.number), v, b_.getInt32(s.site)}));
        return;
      }
      case Step::require: {
        llvm::Value* good = b_.CreateICmpNE(expr_or(s.dims[0], 0), b_.getInt64(0));
        when(b_.CreateNot(good), [&] {
          llvm::Value* numbers = stack(i64, s.dims.size() - 1);
          for (size_t i = 1; i < s.dims.size(); ++i) b_.CreateStore(expr_or(s.dims[i], -1), b_.CreateConstGEP1_64(i64, numbers, i - 1));
          llvm::Value* code = b_.CreateCall(runtime("tp_fail_sizes", i32, {ptr, i32, ptr, ptr}), {run_, b_.getInt32(s.site), string(s.text), numbers});
          b_.CreateRet(code);
          b_.SetInsertPoint(llvm::BasicBlock::Create(b_.getContext(), "dead", function_));
        });
        return;
      }
      case Step::branch: {
        llvm::Value* c = b_.CreateICmpNE(b_.CreateLoad(b_.getInt8Ty(), address(s.views[0].place)), b_.getInt8(0));
        when(c, [&] { emit(s.body[0]); }, [&] { emit(s.body[1]); });
        return;
      }
      case Step::loop: return emit_loop(s);
    }
  }

  void when(llvm::Value* c, const std::function<void()>& then, const std::function<void()>& otherwise = nullptr) {
    auto* yes = llvm::BasicBlock::Create(b_.getContext(), "then", function_);
    auto* no = llvm::BasicBlock::Create(b_.getContext(), "else", function_);
    auto* after = llvm::BasicBlock::Create(b_.getContext(), "after", function_);
    b_.CreateCondBr(c, yes, no);
    b_.SetInsertPoint(yes);
    then();
    b_.CreateBr(after);
    b_.SetInsertPoint(no);
    if (otherwise) otherwise();
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
  }

  llvm::Value* count(const View& v) {
    llvm::Value* n = b_.getInt64(1);
    for (const Index& e : v.shape) n = b_.CreateMul(n, expr(e));
    return n;
  }

  void emit_launch(const Step& s) {
    llvm::Type *ptr = b_.getPtrTy(), *i32 = b_.getInt32Ty(), *i64 = b_.getInt64Ty();
    llvm::Value* args = stack(i64, 1 + s.places.size() + s.dims.size());
    const uint64_t number = static_cast<uint64_t>(s.id) | static_cast<uint64_t>(s.places.size()) << 32;
    b_.CreateStore(b_.getInt64(number), args);
    int k = 1;
    for (const Place& p : s.places) b_.CreateStore(address(p), b_.CreateConstGEP1_64(i64, args, k++));
    for (const Index& d : s.dims) b_.CreateStore(expr(d), b_.CreateConstGEP1_64(i64, args, k++));
    if (!s.code.geometry.empty()) return emit_grid(s, args, k);
    Launchable best = launchable(s.code);
    for (size_t i = s.variants.size(); i-- > 0;) {
      const Launchable v = launchable(s.variants[i]);
      llvm::Value* can = cpu_has(s.variants[i].features);
      best = {b_.CreateSelect(can, v.kernel, best.kernel), b_.CreateSelect(can, v.extent, best.extent),
              b_.CreateSelect(can, v.grain, best.grain), b_.CreateSelect(can, v.scratch, best.scratch)};
    }
    llvm::Value* code = b_.CreateCall(runtime("tp_step_launch", i32, {ptr, ptr, ptr, i64, i64, i64}),
                                      {run_, best.kernel, args, best.extent, best.grain, best.scratch});
    stop_on_error(code);
  }

  struct Launchable {
    llvm::Value *kernel, *extent, *grain, *scratch;
  };
  Launchable launchable(const LaunchCode& c) {
    llvm::Type *ptr = b_.getPtrTy(), *i64 = b_.getInt64Ty();
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {ptr, i64, i64, ptr}, false);
    // The code may be in another module of the file.
    auto* f = llvm::cast<llvm::Function>(m_.getOrInsertFunction(p_.kernels[c.kernel], type).getCallee());
    f->setVisibility(llvm::GlobalValue::HiddenVisibility);
    return {f, expr(c.extent), b_.getInt64(c.grain), expr(c.scratch)};
  }

  // Asked once a run, on entry.
  llvm::Value* cpu_has(uint32_t features) {
    llvm::Value*& known = cpu_has_[features];
    if (known) return known;
    llvm::IRBuilder<> entry(entry_);
    llvm::Value* answer = entry.CreateCall(runtime("tp_cpu_has", b_.getInt32Ty(), {b_.getInt32Ty()}), {entry.getInt32(features)});
    return known = entry.CreateICmpNE(answer, entry.getInt32(0), "variant");
  }

  void emit_grid(const Step& s, llvm::Value* args, int num_args) {
    llvm::Type *ptr = b_.getPtrTy(), *i32 = b_.getInt32Ty(), *i64 = b_.getInt64Ty();
    llvm::Value* geometry = stack(i64, s.code.geometry.size());
    for (size_t i = 0; i < s.code.geometry.size(); ++i) b_.CreateStore(expr(s.code.geometry[i]), b_.CreateConstGEP1_64(i64, geometry, i));
    llvm::Value* kernel = b_.getInt32(s.code.kernel);
    if (s.code.narrow) kernel = b_.CreateSelect(b_.CreateICmpNE(expr(s.code.narrow), b_.getInt64(0)), kernel, b_.getInt32(s.code.wide));
    stop_on_error(b_.CreateCall(runtime("tp_launch_grid", i32, {ptr, i32, ptr, i32, ptr}),
                                {run_, kernel, args, b_.getInt32(num_args), geometry}));
  }

  // A direction for each pair of memories (runtime/abi.h).
  void emit_device_copy(const Step& s, llvm::Value* bytes) {
    llvm::Type *ptr = b_.getPtrTy(), *i32 = b_.getInt32Ty(), *i64 = b_.getInt64Ty();
    const auto host = [&](const Place& p) { return p.kind == Place::arena && on_host(p_.buffers[p.index].segment); };
    const bool to = host(s.views[0].place), from = host(s.views[1].place);
    TRIPOD_CHECK(!(to && from), "a copy within the host's memory in a program for a GPU");
    const int direction = to ? kTpToHost : from ? kTpToDevice : kTpWithinDevice;
    stop_on_error(b_.CreateCall(runtime("tp_copy_between", i32, {ptr, ptr, ptr, i64, i32}),
                                {run_, address(s.views[0].place), address(s.views[1].place), bytes, b_.getInt32(direction)}));
  }

  void emit_call(const Step& s) {
    llvm::Type *ptr = b_.getPtrTy(), *i32 = b_.getInt32Ty(), *i64 = b_.getInt64Ty();
    auto* view = llvm::StructType::get(b_.getContext(), {ptr, i32, i32, llvm::ArrayType::get(i64, 8)});
    llvm::Value* views = stack(view, s.views.size());
    for (size_t i = 0; i < s.views.size(); ++i) {
      const View& v = s.views[i];
      llvm::Value* at = b_.CreateConstGEP1_64(view, views, i);
      b_.CreateStore(address(v.place), b_.CreateStructGEP(view, at, 0));
      b_.CreateStore(b_.getInt32(static_cast<int>(v.dtype)), b_.CreateStructGEP(view, at, 1));
      b_.CreateStore(b_.getInt32(v.shape.size()), b_.CreateStructGEP(view, at, 2));
      for (size_t d = 0; d < v.shape.size(); ++d)
        b_.CreateStore(expr(v.shape[d]), b_.CreateGEP(view, at, {b_.getInt64(0), b_.getInt32(3), b_.getInt64(d)}));
    }
    std::vector<llvm::Constant*> attributes;
    for (int64_t a : s.attributes) attributes.push_back(b_.getInt64(a));
    llvm::FunctionCallee function = runtime(s.symbol.c_str(), i32, {ptr, ptr, ptr});
    stop_on_error(b_.CreateCall(runtime("tp_step_call", i32, {ptr, ptr, ptr, ptr, i32, i32}),
                                {run_, function.getCallee(), views, array(i64, attributes, "attributes"),
                                 b_.getInt32(s.views.size()), b_.getInt32(s.id)}));
  }

  void emit_loop(const Step& s) {
    llvm::Type *i8 = b_.getInt8Ty(), *i64 = b_.getInt64Ty();
    auto* head = llvm::BasicBlock::Create(b_.getContext(), "loop", function_);
    auto* body = llvm::BasicBlock::Create(b_.getContext(), "body", function_);
    auto* after = llvm::BasicBlock::Create(b_.getContext(), "done", function_);
    llvm::Value* counter = b_.CreateConstGEP1_64(i64, dims_, s.number);
    b_.CreateStore(b_.getInt64(0), counter);
    b_.CreateBr(head);
    b_.SetInsertPoint(head);
    llvm::Value* i = b_.CreateLoad(i64, counter);
    llvm::Value* go = b_.getTrue();
    if (s.views[0].place.kind != Place::none) go = b_.CreateICmpSLT(i, b_.CreateLoad(i64, address(s.views[0].place)));
    if (s.extent) go = b_.CreateICmpSLT(i, expr(s.extent));
    if (s.views[1].place.kind != Place::none)
      go = b_.CreateAnd(go, b_.CreateICmpNE(b_.CreateLoad(i8, address(s.views[1].place)), b_.getInt8(0)));
    b_.CreateCondBr(go, body, after);
    b_.SetInsertPoint(body);
    if (s.views[2].place.kind != Place::none) b_.CreateStore(i, address(s.views[2].place));
    emit(s.body[0]);
    b_.CreateStore(b_.CreateAdd(b_.CreateLoad(i64, counter), b_.getInt64(1)), counter);
    b_.CreateBr(head);
    b_.SetInsertPoint(after);
  }

  const Program& p_;
  llvm::Module& m_;
  llvm::IRBuilder<> b_;
  codegen::IndexEmitter index_;
  llvm::Function* function_ = nullptr;
  llvm::BasicBlock* entry_ = nullptr;
  llvm::Value *run_ = nullptr, *dims_ = nullptr, *inputs_ = nullptr, *weights_ = nullptr, *device_weights_ = nullptr;
  bool host_step_ = false;
  std::vector<int> slot_;                           // of a buffer within its segment
  std::map<int, std::vector<int>> segment_buffers_;
  std::map<int, llvm::Value*> bases_, offsets_, outputs_;
  std::map<uint32_t, llvm::Value*> cpu_has_;
};

llvm::Constant* io_table(ProgramEmitter& e, const std::vector<IoSpec>& list, const Program& p, bool inputs) {
  llvm::IRBuilder<>& b = e.builder();
  llvm::Type *ptr = b.getPtrTy(), *i32 = b.getInt32Ty(), *i64 = b.getInt64Ty();
  auto* row = llvm::StructType::get(b.getContext(), {ptr, i32, i32, ptr});
  auto* axis = llvm::StructType::get(b.getContext(), {i64, i32});
  std::vector<llvm::Constant*> rows;
  for (const IoSpec& io : list) {
    std::vector<llvm::Constant*> axes;
    for (const Index& d : io.shape) {
      int symbol = -1;
      for (size_t k = 0; k < p.symbols.size(); ++k)
        if (p.symbols[k].var == d) symbol = static_cast<int>(k);
      TRIPOD_CHECK(!inputs || symbol >= 0 || d.is_const(), "an input dim is a constant or a symbol");
      axes.push_back(llvm::ConstantStruct::get(axis, {b.getInt64(d.is_const() ? d.value() : -1), b.getInt32(symbol)}));
    }
    llvm::Constant* table = inputs ? e.array(axis, axes, "axes") : llvm::ConstantPointerNull::get(b.getPtrTy());
    rows.push_back(llvm::ConstantStruct::get(row, {e.string(io.name), b.getInt32(static_cast<int>(io.dtype)), b.getInt32(io.shape.size()), table}));
  }
  return e.array(row, rows, inputs ? "tripod_inputs" : "tripod_outputs");
}

llvm::Constant* symbol_table(ProgramEmitter& e, const Program& p) {
  llvm::IRBuilder<>& b = e.builder();
  llvm::Type *ptr = b.getPtrTy(), *i32 = b.getInt32Ty(), *i64 = b.getInt64Ty();
  auto* row = llvm::StructType::get(b.getContext(), {ptr, i64, i64, i64, i32});
  std::vector<llvm::Constant*> rows;
  for (const Symbol& s : p.symbols) {
    const sym::Range r = s.var->range;
    rows.push_back(llvm::ConstantStruct::get(row, {e.string(s.name), b.getInt64(r.lo), b.getInt64(r.hi), b.getInt64(s.var->divisor), b.getInt32(s.bound_by_input)}));
  }
  return e.array(row, rows, "tripod_symbols");
}

// tp_device_part, or null.
llvm::Constant* device_table(ProgramEmitter& e, const Program& p, const DevicePart* d, llvm::Module& module) {
  llvm::IRBuilder<>& b = e.builder();
  llvm::Type *ptr = b.getPtrTy(), *i32 = b.getInt32Ty(), *i64 = b.getInt64Ty();
  if (!d) return llvm::ConstantPointerNull::get(b.getPtrTy());
  auto* row = llvm::StructType::get(b.getContext(), {i32, i32, ptr, i64});
  std::vector<llvm::Constant*> images, names, origins;
  for (const DeviceImage& image : d->images) {
    llvm::Constant* bytes = llvm::ConstantDataArray::getString(b.getContext(), image.bytes, true);
    auto* g = new llvm::GlobalVariable(module, bytes->getType(), true, llvm::GlobalValue::InternalLinkage, bytes, "tripod_image");
    g->setAlignment(llvm::Align(64));
    images.push_back(llvm::ConstantStruct::get(row, {b.getInt32(image.arch), b.getInt32(image.ptx), g, b.getInt64(image.bytes.size())}));
  }
  for (const std::string& k : p.kernels) names.push_back(e.string(k));
  for (const std::string& o : d->origins) origins.push_back(e.string(o));
  llvm::Constant* part = llvm::ConstantStruct::getAnon({b.getInt32(images.size()), b.getInt32(names.size()), e.array(row, images, "images"),
                                                        e.array(ptr, names, "kernels"), e.array(ptr, origins, "origins")});
  return new llvm::GlobalVariable(module, part->getType(), true, llvm::GlobalValue::InternalLinkage, part, "tripod_device");
}

}  // namespace

void emit(const Program& p, const EmitOptions& options, llvm::Module& module) {
  ProgramEmitter e(p, module);
  llvm::Function* program = e.program();
  llvm::Constant* segments = e.segments();
  llvm::IRBuilder<>& b = e.builder();
  llvm::Type *ptr = b.getPtrTy(), *i32 = b.getInt32Ty();
  llvm::Constant* null = llvm::ConstantPointerNull::get(b.getPtrTy());
  std::vector<llvm::Constant*> sites;
  for (const std::string& s : p.sites) sites.push_back(e.string(s));
  const bool external = !options.external_weights.empty();
  llvm::Constant* weights = options.weights_size == 0 || external ? null : module.getOrInsertGlobal("tp_weights", b.getInt8Ty());
  if (auto* g = llvm::dyn_cast<llvm::GlobalVariable>(weights)) g->setVisibility(llvm::GlobalValue::HiddenVisibility);
  std::vector<llvm::Constant*> shares;
  for (const IoSpec& o : p.outputs) shares.push_back(b.getInt32(o.shares));
  const bool shared = std::any_of(p.outputs.begin(), p.outputs.end(), [](const IoSpec& o) { return o.shares >= 0; });
  // In the order of tp_model's fields.
  std::vector<llvm::Constant*> fields = {
      b.getInt32(kTripodAbiVersion), b.getInt32(options.cpu_features),
      e.string(options.manifest), b.getInt64(options.manifest.size()),
      b.getInt32(p.inputs.size()), b.getInt32(p.outputs.size()), b.getInt32(p.symbols.size()), b.getInt32(p.num_segments),
      io_table(e, p.inputs, p, true), io_table(e, p.outputs, p, false), symbol_table(e, p), segments,
      program, weights, b.getInt64(options.weights_size),
      external ? e.string(options.external_weights) : null, external ? e.string(options.external_header) : null,
      e.array(ptr, sites, "tripod_sites"), b.getInt32(p.sites.size()), device_table(e, p, options.device, module), shared ? e.array(i32, shares, "tripod_shares") : null};
  llvm::Constant* model = llvm::ConstantStruct::getAnon(fields);
  auto* g = new llvm::GlobalVariable(module, model->getType(), true, llvm::GlobalValue::ExternalLinkage, model, "tp_the_model");
  g->setVisibility(llvm::GlobalValue::HiddenVisibility);
}

}  // namespace tripod::host
