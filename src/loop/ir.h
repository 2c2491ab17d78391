// The loop IR: how one kernel computes its buffers. Between TensorIR and a tile language.
//
// A Function has parameters (buffers in memory, symbolic dims) and a body. It exists in two forms:
//   compute form    a sequence of blocks without loops: what is computed. Each block names its iterators (spatial or
//                   reduce) with their extents; its reads and writes are derived from its body.
//   scheduled form  loops around (or without) blocks: how it is computed.
// loop/schedule.h turns the first into the second; loop/flatten.h removes the blocks; a back end prints or compiles
// what remains. Nodes are immutable and shared (an expression is a DAG: passes memoise on node identity, and an
// expression that occurs twice is evaluated once).
//
// Indices are sym expressions over loop variables and dims. Where an index comes from data (gather), a Let statement
// binds a fresh sym variable, with a declared range, to a value. Values are Exprs below.
//
// Semantics of scalar operations (the interpreter in loop/interpreter.cc is the judge, back ends give the same bits):
//   - floats: IEEE, round to nearest even, no contraction (fma is explicit), no flushing of denormals.
//   - f16, bf16, f8, i4 and u4 occur only in loads, stores, constants, casts, bitcasts and selects; arithmetic on them
//     does not exist. f64 becomes a small float with one rounding, integers through f32 (expand_math leaves casts of
//     small floats only from and to f32).
//   - rem is C's: the sign is the dividend's, fmod for floats.
//   - integers wrap; x / 0 and x rem 0 are 0, INT_MIN / -1 is INT_MIN; shifts by >= width give 0 (or the sign).
//   - min and max give NaN when an operand is NaN; of +0 and -0 either.
//   - cast float to int truncates towards zero: to i8, i16, i32, u8, u16 through i32 (NaN and what does not fit give
//     i32's minimum) and then wrapping; to u32 and i64 through i64 (likewise i64's minimum), wrapping for u32; u64 as
//     i64 below 2^63 and exact in [2^63, 2^64). These are the bits of x86's conversion instructions.
//   - exp2_fast (f32) is 2^x by the instruction that GPUs have for it: 2 ulp, results below the normal numbers are 0. It
//     is for results of 16 bits, rules of the CUDA back end alone place it, and its last bits are the hardware's.
//   - a load whose guard is false gives `other` and touches no memory; a store whose guard is false does nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/diagnostic.h"
#include "base/dtype.h"
#include "base/ref.h"
#include "sym/expr.h"

namespace tripod::loop {

using Index = sym::Expr;

// --- layouts ------------------------------------------------------------------------------------------------------
// Maps a logical index to a physical one: `map` are expressions over the placeholders `args` (one a logical dim);
// the physical index is row-major within `extents`. Strides, tiling (NCHW16c), packing (VNNI), swizzles (bit_xor) and
// mma fragments are all of this form; for fragments the first `thread_dims` physical dims name the thread.
// No args: the identity (row-major).
struct Layout {
  std::vector<Index> args, map, extents;
  int thread_dims = 0;
  bool is_row_major() const { return args.empty(); }
};
Layout permuted(sym::Context& c, const std::vector<Index>& shape, const std::vector<int>& order);
// Splits dim `axis` in blocks of `block`, the block index staying at `axis` and the rest moving innermost.
Layout blocked(sym::Context& c, const std::vector<Index>& shape, int axis, int64_t block);

enum class Scope : uint8_t {
  global,    // a parameter: memory of the caller or of the model's arena
  constant,  // a parameter that is a constant of the model (never written; may be prepacked)
  shared,    // GPU shared memory
  local,     // scratch memory of the thread (CPU: may be large; GPU: per-thread local)
  reg,       // registers: every index into it must be a constant once unrolled and vectorised
};

struct BufferNode : RefCounted {
  std::string name;
  DType dtype;
  std::vector<Index> shape;  // logical
  Scope scope;
  Layout layout;
  int rank() const { return static_cast<int>(shape.size()); }
};
using Buffer = Ref<const BufferNode>;
Buffer make_buffer(std::string name, DType t, std::vector<Index> shape, Scope s = Scope::global, Layout l = {});
// Where a logical index lies: an index into the layout's extents (into the shape where the layout is row-major).
std::vector<Index> physical_index(const Buffer& b, const std::vector<Index>& index);
// Element offset in memory of a logical index (an empty Index, meaning 0, for a buffer of rank 0), and the number of
// elements the buffer takes.
Index offset(const Buffer& b, const std::vector<Index>& index);  // empty for rank 0
Index offset(sym::Context& c, const Buffer& b, const std::vector<Index>& index);
Index storage_size(sym::Context& c, const Buffer& b);

// --- value expressions --------------------------------------------------------------------------------------------
// name in text, operands. Math operations (from exp on) are removed by loop/expand_math.cc before interpretation and
// code generation; they have one definition for every back end and instruction set. The light ones are those of
// loop/light_math.h, with less accuracy.
// clang-format off
#define TRIPOD_LOOP_OPS(OP)                                                                                       \
  OP(constant, "const", 0) OP(load, "load", 0) OP(index, "index", 0)                                              \
  OP(add, "+", 2) OP(sub, "-", 2) OP(mul, "*", 2) OP(div, "/", 2) OP(rem, "rem", 2)                               \
  OP(min, "min", 2) OP(max, "max", 2) OP(neg, "neg", 1) OP(abs, "abs", 1)                                         \
  OP(sqrt, "sqrt", 1) OP(floor, "floor", 1) OP(ceil, "ceil", 1) OP(trunc, "trunc", 1) OP(rint, "rint", 1)         \
  OP(exp2_fast, "exp2_fast", 1) OP(fma, "fma", 3)                                                                                               \
  OP(lt, "<", 2) OP(le, "<=", 2) OP(eq, "==", 2) OP(ne, "!=", 2)                                                  \
  OP(bit_and, "&", 2) OP(bit_or, "|", 2) OP(bit_xor, "^", 2) OP(bit_not, "~", 1) OP(shl, "<<", 2) OP(shr, ">>", 2) \
  OP(select, "select", 3) OP(cast, "cast", 1) OP(bitcast, "bitcast", 1)                                           \
  OP(exp, "exp", 1) OP(log, "log", 1) OP(sin, "sin", 1) OP(cos, "cos", 1) OP(tan, "tan", 1)                       \
  OP(asin, "asin", 1) OP(acos, "acos", 1) OP(atan, "atan", 1) OP(sinh, "sinh", 1) OP(cosh, "cosh", 1)             \
  OP(tanh, "tanh", 1) OP(asinh, "asinh", 1) OP(acosh, "acosh", 1) OP(atanh, "atanh", 1) OP(erf, "erf", 1)         \
  OP(sigmoid, "sigmoid", 1) OP(log1p, "log1p", 1) OP(pow, "pow", 2)                                               \
  OP(gelu, "gelu", 1) OP(gelu_tanh, "gelu_tanh", 1)                                                               \
  OP(exp_light, "exp_light", 1) OP(sigmoid_light, "sigmoid_light", 1) OP(tanh_light, "tanh_light", 1)             \
  OP(gelu_light, "gelu_light", 1) OP(gelu_tanh_light, "gelu_tanh_light", 1)
// clang-format on
enum class Op : uint8_t {
#define OP(kind, ...) kind,
  TRIPOD_LOOP_OPS(OP)
#undef OP
};
std::string_view name(Op op);
int arity(Op op);
inline bool is_math(Op op) { return op >= Op::exp; }

struct ExprNode;
using Expr = Ref<const ExprNode>;

// Comparisons have dtype b1; select's condition is b1; & | ^ ~ on b1 are logical.
struct ExprNode : RefCounted {
  Op op;
  DType dtype;
  std::vector<Expr> args;
  // constant: the bits (floats: of the f64 value converted to dtype; integers sign-extended)
  uint64_t bits = 0;
  // index: the expression, converted to dtype. load: see below.
  Index value;
  // load
  Buffer buffer;
  std::vector<Index> indices;
  Index guard;  // empty: always
  Expr other;   // value where the guard is false
};

Expr constant(DType t, double v);
Expr constant_int(DType t, int64_t v);
Expr constant_bits(DType t, uint64_t bits);  // bit pattern of t
Expr from_index(DType t, Index i);
Expr load(const Buffer& b, std::vector<Index> indices);
Expr load_guarded(const Buffer& b, std::vector<Index> indices, Index guard, Expr other);
// The result type comes from the operands (an fma of integers is * and +). Constants fold, and identities that hold
// bit for bit (x * 1, x + -0, ...) are applied.
Expr make(Op op, std::vector<Expr> args);
Expr cast(Expr e, DType to);                              // no node when it is of that type already
Expr bitcast(Expr e, DType to);
double constant_value(const Expr& e);                     // of a constant, as f64

inline Expr operator+(Expr a, Expr b) { return make(Op::add, {std::move(a), std::move(b)}); }
inline Expr operator-(Expr a, Expr b) { return make(Op::sub, {std::move(a), std::move(b)}); }
inline Expr operator*(Expr a, Expr b) { return make(Op::mul, {std::move(a), std::move(b)}); }
inline Expr operator/(Expr a, Expr b) { return make(Op::div, {std::move(a), std::move(b)}); }
inline Expr operator-(Expr a) { return make(Op::neg, {std::move(a)}); }
inline Expr min(Expr a, Expr b) { return make(Op::min, {std::move(a), std::move(b)}); }
inline Expr max(Expr a, Expr b) { return make(Op::max, {std::move(a), std::move(b)}); }
inline Expr lt(Expr a, Expr b) { return make(Op::lt, {std::move(a), std::move(b)}); }
inline Expr le(Expr a, Expr b) { return make(Op::le, {std::move(a), std::move(b)}); }
inline Expr eq(Expr a, Expr b) { return make(Op::eq, {std::move(a), std::move(b)}); }
inline Expr ne(Expr a, Expr b) { return make(Op::ne, {std::move(a), std::move(b)}); }
inline Expr select(Expr c, Expr a, Expr b) { return make(Op::select, {std::move(c), std::move(a), std::move(b)}); }
inline Expr fma(Expr a, Expr b, Expr c) { return make(Op::fma, {std::move(a), std::move(b), std::move(c)}); }

// --- statements ---------------------------------------------------------------------------------------------------
struct StmtNode;
using Stmt = Ref<const StmtNode>;

enum class StmtKind : uint8_t { seq, loop, block, store, let, branch, alloc, check, tile, sync };

enum class LoopKind : uint8_t {
  serial,
  parallel,    // iterations may run on different threads; only the outermost loop of a function's statement
  vector,      // constant extent; lanes of one operation
  unrolled,    // constant extent
  grid_x, grid_y, grid_z, cluster_x, block_x, block_y, block_z, warp,  // GPU axes
};

// An iterator of a block. In compute form the binding is empty; in scheduled form it is the iterator's value in terms
// of the loop variables around the block.
struct Iter {
  Index var;
  Index extent;
  bool reduce = false;
  Index binding;
};

// A rectangular part of a buffer: [offset, offset + extent) on every dim.
struct Region {
  Buffer buffer;
  std::vector<Index> offset, extent;
};

// Tile statements work on whole regions; the target turns them into its instructions (FMA micro-kernels, AMX,
// mma.sync, wgmma, TMA) and the interpreter into plain loops.
enum class TileOp : uint8_t {
  copy,         // regions: to, from
  mma,          // to[m, n] += sum over k of a[m, k] * b[k, n]
  reduce_sum, reduce_max,  // to[m] = to[m] op over k of from[m, k]; over threads: backends/cuda/cuda_c.h
  elementwise,
};

enum class SyncKind : uint8_t {
  barrier,        // all threads of the block
  commit, wait,   // close a group of asynchronous copies; wait until at most `count` groups are open
  arrive, expect, // mbarrier phases
};

struct StmtNode : RefCounted {
  StmtKind kind;
  std::vector<Stmt> body;      // seq: the statements; loop, block, let, alloc: one; branch: then, else?
  // loop: `for var in 0..extent`; let: var
  Index var, extent;
  LoopKind loop_kind = LoopKind::serial;
  int64_t grain = 1;           // parallel: least number of iterations for a thread
  // block
  std::string name;
  std::vector<Iter> iters;
  Index predicate;             // block is skipped where it is false; empty: always
  Stmt init;                   // reduction: runs where every reduce iterator is 0
  // store: buffer[indices] = value where guard; let: value; branch: value is the condition (b1)
  Buffer buffer;               // also alloc: the buffer that exists inside body
  std::vector<Index> indices;
  Expr value;
  Index guard;
  // check: records an error for `site` when not 0 <= var < extent
  int32_t site = -1;
  // tile
  TileOp tile = TileOp::copy;
  std::vector<Region> regions;
  int32_t token = -1;          // asynchronous: completes token; sync: waits for it
  int64_t count = 0;           // sync(wait): groups; a reduction over threads into registers: how many form a group
  SyncKind sync = SyncKind::barrier;
};

Stmt seq(std::vector<Stmt> stmts);  // flattens; one statement stays itself
Stmt loop(Index var, Index extent, LoopKind kind, Stmt body, int64_t grain = 1);
Stmt store(const Buffer& b, std::vector<Index> indices, Expr value, Index guard = {});
Stmt let(Index var, Expr value, Stmt body);
Stmt branch(Expr condition, Stmt then, Stmt otherwise = nullptr);
Stmt alloc(const Buffer& b, Stmt body);
Stmt check(Index value, Index limit, int32_t site);
Stmt block(std::string name, std::vector<Iter> iters, Stmt body, Stmt init = nullptr);
Stmt tile(TileOp op, std::vector<Region> regions, int32_t token = -1, int64_t count = 0);
Stmt sync(SyncKind kind, int32_t token = -1, int64_t count = 0);

// --- functions ----------------------------------------------------------------------------------------------------
struct Function {
  std::string name;              // a C identifier; made of the ONNX names it comes from
  std::vector<Buffer> params;    // in the order of the kernel's arguments
  int num_outputs = 0;           // the last ones of params are written, the others only read
  std::vector<Index> dims;       // symbols that shapes and indices use, in the order of the arguments
  Stmt body;
  std::vector<Site> origins;
  std::string rule;              // the schedule rule that shaped it, for explain
};

// --- walking ------------------------------------------------------------------------------------------------------
// Rebuilds what changes. Override rewrite(); it returns a replacement, or null for "go on inside" (as does calling
// Rewriter::rewrite). apply() is the entry, and what rewrite_children() calls on every child; it remembers the results
// for expressions (a DAG), not for statements. A bound variable (of a loop, let, block iterator) goes through
// rewrite_index too, and is replaced when the result is a variable.
struct Rewriter {
  virtual ~Rewriter() = default;
  virtual Expr rewrite(const Expr& e);
  virtual Stmt rewrite(const Stmt& s);
  virtual Index rewrite_index(Index i) { return i; }
  virtual Buffer rewrite_buffer(const Buffer& b) { return b; }
  Expr apply(const Expr& e);
  Stmt apply(const Stmt& s);

 protected:
  Expr rewrite_children(const Expr& e);
  Stmt rewrite_children(const Stmt& s);
  std::vector<Index> rewrite_indices(const std::vector<Index>& is);
  // For a rewriter whose answer depends on where it is: when that changes.
  void forget() { done_.clear(); }

 private:
  std::unordered_map<const ExprNode*, std::pair<Expr, Expr>> done_;  // keeps the nodes alive: their addresses are keys
};
// Also in the shapes and layouts of buffers (which become new buffers then).
Stmt substitute(const Stmt& s, const sym::Map& vars);
Expr substitute(const Expr& e, const sym::Map& vars);
// Calls f for every statement, outermost first; g (if given) for every expression once.
void visit(const Stmt& s, const std::function<void(const Stmt&)>& f, const std::function<void(const Expr&)>& g = nullptr);
void visit(const Expr& e, const std::function<void(const Expr&)>& g);

// --- text, verification -------------------------------------------------------------------------------------------
std::string text(const Function& f);
std::string text(const Stmt& s);
std::string text(const Expr& e);
Function parse(sym::Context& c, std::string_view text);  // throws CompileError with line and column
std::vector<std::string> verify(const Function& f);

}  // namespace tripod::loop
