// Loop function -> LLVM function. The emitter is one object a kernel; see llvm_kernel.cc (statements),
// llvm_value.cc (value expressions) and llvm_index.cc (integer expressions).
#pragma once

#include <llvm/IR/DIBuilder.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <unordered_map>
#include <utility>
#include <vector>

#include "codegen/llvm_unit.h"
#include "loop/ir.h"
#include "loop/line_table.h"

namespace tripod::codegen {

// `debug` gets line tables of the kernels: their lines are those of the loop IR's text (loop::text).
KernelInfo emit_kernel(llvm::Module& module, const loop::Function& f, const std::string& symbol, sym::Context& context,
                       llvm::DIBuilder& debug);

// Emits sym expressions as 64-bit integers. Inside a vector loop the lane variable is a vector, and so is every
// expression that uses it; everything else stays scalar.
class IndexEmitter {
 public:
  IndexEmitter(llvm::IRBuilder<>& builder) : b_(builder) {}

  // The value of an expression is remembered to the end of the scope it was emitted in, and used again: unrolled bodies
  // ask for the same rows and columns over and over. A scope is open around all code that may not run (it does not
  // dominate what follows) and inside every binding whose variable may be bound again. Outside of all scopes, as in host
  // programs, nothing is remembered.
  class Scope {
   public:
    explicit Scope(IndexEmitter& e) : e_(e), start_(e.order_.size()) { ++e_.depth_; }
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    IndexEmitter& e_;
    const size_t start_;
  };

  void bind(sym::Expr var, llvm::Value* v);
  void unbind(sym::Expr var);
  // Names the lane variable of the vector loop around (null: none), whose value is 0..lanes-1.
  void set_lanes(sym::Expr var, int lanes);

  sym::Expr lane_var() const { return lane_; }
  int lanes() const { return lanes_; }
  bool uses_lane(sym::Expr e);      // differs from lane to lane
  bool uses_gathered(sym::Expr e);  // ... because a Let bound a vector of indices from data

  llvm::Value* emit(sym::Expr e);            // scalar i64, or <lanes x i64> where it uses the lane variable
  llvm::Value* emit_condition(sym::Expr e);  // i1 or <lanes x i1>
  llvm::Value* splat(llvm::Value* v);        // to `lanes` lanes when it is a scalar

  // From here on sums and products may be beyond 64 bits. take_overflow(): has one been in what was emitted since the
  // last call (an i1, null when none could have been)?
  void watch_overflow() { watched_ = true; }
  llvm::Value* take_overflow() { return std::exchange(overflow_, nullptr); }

 private:
  llvm::Value* watched(sym::Expr e, llvm::Value* a, llvm::Value* b);
  llvm::Value* emit_node(sym::Expr e);
  llvm::Value* compute(sym::Expr e);
  llvm::Value* divide(sym::Expr e, bool remainder);
  llvm::IRBuilder<>& b_;
  std::unordered_map<sym::Expr, llvm::Value*, sym::Hash> vars_;
  std::unordered_map<sym::Expr, llvm::Value*, sym::Hash> known_;  // of the open scopes
  std::vector<sym::Expr> order_;                                  // known_, as they came
  int depth_ = 0;                                                 // open scopes
  sym::Expr lane_;
  int lanes_ = 1;
  int num_gathered_ = 0;  // bound variables that are vectors
  bool watched_ = false;
  llvm::Value* overflow_ = nullptr;
};

class KernelEmitter {
 public:
  KernelEmitter(llvm::Module& module, const loop::Function& f, sym::Context& context, llvm::DIBuilder& debug);
  KernelInfo run(const std::string& symbol);

 private:
  // statements (llvm_kernel.cc)
  void emit(const loop::Stmt& s);
  void emit_in_scope(const loop::Stmt& s);  // in an IndexEmitter::Scope of its own
  std::vector<size_t> used_params() const;
  void describe(const std::string& symbol);
  void copy_lines(const loop::Stmt& from, const loop::Stmt& to);
  void emit_loop(const loop::StmtNode& s);
  void emit_counted(sym::Expr var, llvm::Value* begin, llvm::Value* end, const loop::Stmt& body);
  void emit_vector(const loop::StmtNode& s);
  void emit_store(const loop::StmtNode& s);
  void emit_branch(const loop::StmtNode& s);
  void emit_alloc(const loop::StmtNode& s);
  void emit_check(const loop::StmtNode& s);
  void emit_let(const loop::StmtNode& s);
  void when(llvm::Value* condition, const std::function<void()>& then, const std::function<void()>& otherwise = nullptr);

  // values (llvm_value.cc)
  llvm::Value* emit(const loop::Expr& e);
  llvm::Value* emit_op(const loop::ExprNode& e);
  llvm::Value* emit_load(const loop::ExprNode& e);
  llvm::Value* emit_access(const loop::ExprNode& e);
  llvm::Value* emit_min_max(const loop::ExprNode& e, llvm::Value* a, llvm::Value* b);
  llvm::Value* emit_int_division(const loop::ExprNode& e, llvm::Value* a, llvm::Value* b);
  llvm::Value* emit_cast(const loop::ExprNode& e, llvm::Value* v);
  llvm::Value* emit_shift(const loop::ExprNode& e, llvm::Value* a, llvm::Value* b);
  llvm::Value* float_to_int(llvm::Value* v, DType from, DType to);
  llvm::Value* widen_float(llvm::Value* v, DType from);   // f16, bf16 bits -> f32
  llvm::Value* narrow_float(llvm::Value* v, DType from, DType to);
  llvm::Constant* number(DType t, uint64_t bits);
  void unify(llvm::Value*& a, llvm::Value*& b);           // both scalar or both vectors

  // memory (llvm_memory.cc)
  struct Address {
    llvm::Value* pointer;     // of lane 0
    enum Kind { uniform, contiguous, strided, scattered } kind;
    llvm::Value* stride = nullptr;   // strided: elements
    llvm::Value* offsets = nullptr;  // scattered: elements from `pointer` (the buffer's base), one a lane; 4-bit types
                                     // always take this kind, with a scalar where all lanes agree
  };
  llvm::Value* pointer(llvm::Type* element, llvm::Value* base, sym::Expr at);
  llvm::Value* pointer_at(llvm::Type* element, llvm::Value* base, sym::Expr at, size_t depth);
  Address address(const loop::Buffer& b, const std::vector<sym::Expr>& indices);
  llvm::Value* load_at(const Address& a, const loop::Buffer& b, llvm::Value* mask, llvm::Value* other);
  void store_at(const Address& a, const loop::Buffer& b, llvm::Value* v, llvm::Value* mask);
  llvm::Value* lane_of(llvm::Value* v, int lane);
  llvm::Value* load_nibble(llvm::Value* base, llvm::Value* at);
  void store_nibble(llvm::Value* base, llvm::Value* at, llvm::Value* v);
  llvm::Value* to_memory(llvm::Value* v, DType t);        // b1: i1 -> i8
  llvm::Value* from_memory(llvm::Value* v, DType t);
  llvm::Align alignment(const loop::Buffer& b) const;

  llvm::Type* memory_type(DType t);                       // b1: i8
  llvm::Type* value_type(DType t);                        // b1: i1
  llvm::Type* vectored(llvm::Type* t, llvm::Value* like); // a vector of t where `like` is a vector

  llvm::Module& module_;
  const loop::Function& f_;
  sym::Context& sym_;
  llvm::IRBuilder<> b_;
  IndexEmitter index_;
  llvm::DIBuilder& debug_;
  loop::LineTable lines_;
  llvm::Function* function_ = nullptr;
  llvm::BasicBlock* entry_ = nullptr;
  llvm::Value *args_ = nullptr, *begin_ = nullptr, *end_ = nullptr, *scratch_ = nullptr;
  std::unordered_map<const loop::BufferNode*, llvm::Value*> buffers_;
  std::unordered_map<const loop::ExprNode*, llvm::Value*> values_;  // of the statement at work
  std::vector<sym::Expr> loops_;                                    // serial and parallel loops around, outermost first
  sym::Expr scratch_offset_, scratch_bytes_;                        // of the allocs around; the most of all
  KernelInfo info_;
};

}  // namespace tripod::codegen
