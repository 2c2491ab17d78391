// What a Schedule keeps, for the files schedule*.cc only.
//
// Loops and blocks stand in a tree that the primitives change in place. Blocks in the tree index buffers as the
// compute form does: by their own iterators only, over the whole logical shape. So a primitive changes loops,
// bindings and predicates, and hardly ever bodies. Where a local buffer lives and how much of it is alive at once is
// worked out when the function is asked for (schedule_build.cc).
//
// What holds, and what legality tests build on:
//   - blocks stand in the tree in an order in which every buffer is complete before another block reads it;
//   - the loops around a block run through each point of its iterators once, where its predicates hold; only a
//     block that computes a local buffer of an outer loop (compute_at) may be repeated by the loops from there out;
//   - a local buffer that is written and read under one loop is written and read by the same iteration of it.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "loop/schedule.h"

namespace tripod::loop {

// Why a primitive is not legal here; empty: it is.
using Refusal = std::string;

// One way in which the body of a block touches a buffer.
struct Access {
  Buffer buffer;
  std::vector<Index> indices;  // over iterators, Let variables and loops of the body
  std::vector<Index> extent;   // of a tile region; empty: one element
  bool is_store = false;
};
struct Accesses {
  std::vector<Access> list;                        // each once
  std::vector<std::pair<Index, Index>> own_loops;  // of the body: variable, extent
  bool only_stores = true;                         // nothing but stores (and Lets around them)
  bool has_effects = false;                        // checks, syncs, tile operations: cannot be copied or dropped
};

struct Tree {
  enum class Kind : uint8_t { loop, block, other };
  Kind kind = Kind::loop;
  Tree* parent = nullptr;
  std::vector<std::unique_ptr<Tree>> children;  // of a loop; the root is a loop without variable
  // loop
  Index var, extent;
  LoopKind loop_kind = LoopKind::serial;
  int64_t grain = 1;
  // block
  std::string name;
  std::vector<Iter> iters;        // with bindings
  std::vector<Index> predicates;  // a conjunction, over loop variables
  Stmt body, init;                // other: body is the statement
  bool conditional = false;       // had a predicate in the compute form: may leave elements unwritten

  const Accesses& accesses() const;   // of body and init
  void set_body(Stmt new_body, Stmt new_init);
  Stmt block_stmt() const;
  std::unique_ptr<Tree> clone() const;  // parents inside are set, the copy's own is null

  bool is_loop() const { return kind == Kind::loop; }
  bool is_block() const { return kind == Kind::block; }
  bool one_iteration() const { return !var || extent.is_const(1) || extent.is_const(0); }

 private:
  mutable std::shared_ptr<const Accesses> accesses_;
};

// --- the tree (schedule_tree.cc) ---
using Blocks = std::vector<Tree*>;
Blocks leaves(Tree& t);                            // blocks and other statements under t, in program order
std::vector<Tree*> path(const Tree& t);            // loops around t, outermost first, without the root
std::vector<Tree*> loops_between(const Tree& scope, const Tree& t);  // those inside scope
bool is_under(const Tree& t, const Tree& ancestor);                  // a proper ancestor
Tree* common_loop(Tree& a, Tree& b);               // the innermost loop (or root) around both; a itself if a loop over b
Tree* child_towards(Tree& ancestor, Tree& t);      // the child of ancestor that is or contains t
size_t position(const Tree& child);                // in its parent
std::unique_ptr<Tree> detach(Tree& t);             // takes t out; loops left empty vanish
Tree* insert(Tree& parent, size_t at, std::unique_ptr<Tree> t);
bool writes(const Tree& leaf, const BufferNode* b);
bool reads(const Tree& leaf, const BufferNode* b);
bool binds_with(const Iter& it, Index loop_var);   // does the iterator's value depend on the loop?
void substitute_loop(Tree& under, const sym::Map& vars);  // in bindings, predicates and extents
std::vector<Tree*> reduce_loops(const Tree& block);  // loops that its reduce iterators use, outermost first
// The loop is a vector loop or inside one: no place for blocks and buffers of their own.
Refusal not_in_lanes(const Tree& loop);

// --- state ---
struct Storage {
  Scope scope;
  Layout layout;
};

struct ScheduleState {
  explicit ScheduleState(sym::Context& c) : context(c) {}

  sym::Context& context;
  Function source;  // without body
  std::unique_ptr<Tree> root;
  std::vector<Buffer> locals;
  std::unordered_map<const BufferNode*, Storage> storage;  // where it differs from the buffer's own
  std::unordered_set<std::string> names;                   // of loops, blocks and buffers
  std::string reason;                                      // of the first failure
  Trace trace;
  // Rebuilt after each primitive.
  std::unordered_map<const sym::Node*, Tree*> loop_of;
  std::unordered_map<std::string, Tree*> block_of;
  // What function() made of it; empty when out of date.
  std::optional<Function> built;
  std::unordered_map<const BufferNode*, Buffer> built_buffers;
  mutable std::unordered_map<const Tree*, Stmt> block_stmts;  // what get() gave out

  // Runs a primitive: records it when it succeeds; else takes back what it changed and keeps the reason.
  template <class F>
  bool step(TraceStep record, F&& primitive);

  Tree* find(const Loop& l) const;
  Tree* find(const Block& b) const;
  Buffer find_buffer(const Buffer& b) const;           // as the tree has it, from any version of it
  Buffer find_buffer(const std::string& name) const;
  bool is_param(const BufferNode* b) const;
  bool is_local(const BufferNode* b) const;
  Scope scope_of(const Buffer& b) const;
  Blocks writers(const BufferNode* b) const, readers(const BufferNode* b) const;  // in program order
  std::string fresh_name(std::string base);
  Index fresh_loop_var(const std::string& base, Index extent);
  std::unique_ptr<Tree> new_loop(const std::string& base, Index extent, LoopKind kind = LoopKind::serial);
  Buffer new_local(const std::string& base, DType t, std::vector<Index> shape, Scope scope);
  bool uses_loops(Index e) const;                      // any loop variable of the tree
  void rebuild_maps();

 private:
  struct Saved;
  Saved save() const;
  void restore(Saved saved, std::string why);
};

struct ScheduleState::Saved {
  std::unique_ptr<Tree> root;
  std::vector<Buffer> locals;
  std::unordered_map<const BufferNode*, Storage> storage;
};

template <class F>
bool ScheduleState::step(TraceStep record, F&& primitive) {
  if (!reason.empty()) return false;
  Saved saved = save();
  Refusal why;
  try {
    why = primitive(record);
  } catch (const sym::Overflow& e) {
    why = e.what();
  }
  if (!why.empty()) {
    restore(std::move(saved), record.primitive + ": " + why);
    return false;
  }
  trace.steps.push_back(std::move(record));
  built.reset();
  block_stmts.clear();
  rebuild_maps();
  return true;
}

struct Schedule::Impl : ScheduleState {
  using ScheduleState::ScheduleState;
};

std::string quoted(const std::string& name);  // 'name', for reasons
std::string name_of(const Loop& l);           // "?" when empty
// For traces: variables by the names they were made with, without the numbers that a context tells them apart with.
std::string stable_text(Index e);

// --- what blocks touch (schedule_region.cc) ---
struct Interval {
  Index lo, hi;  // inclusive; empty: not known
  explicit operator bool() const { return static_cast<bool>(lo); }
};
using Intervals = std::unordered_map<Index, Interval, sym::Hash>;
Interval interval(Index e, const Intervals& of);
// Of the loops inside scope around a leaf, and what its body binds.
Intervals ranges_below(const Tree& scope, const Tree& leaf);
sym::Map bindings(const Tree& block);

// The part of one dim: [lo, lo + extent). Where `last` is set, extent is only an upper bound and last the last index.
struct Side {
  Index lo, extent, last;
  bool whole = false;  // the dim from 0 to its end
};
enum class Touch : uint8_t { read, write, any };
// A box around what the leaves under scope touch of b in one iteration of scope (and of the loops around it).
// Never more than the buffer where that can be told; parts outside of it belong to guarded accesses.
std::vector<Side> touched(const ScheduleState& s, Tree& scope, const Buffer& b, Touch which);

// Builds the loops for a block's iterators (all of them, in order) with the given sides (reduce iterators: whole)
// and sets bindings and predicates, next to the given ones. Returns the outermost.
std::unique_ptr<Tree> nest(ScheduleState& s, std::unique_ptr<Tree> block, const std::vector<Side>& sides,
                           std::vector<Index> predicates = {});
// The predicates that all blocks have and that are about `loop` (or root) and loops around it only: what is put next
// to these blocks inside `loop` for their sake has no business where they do not run.
std::vector<Index> common_predicates(const Blocks& blocks, const Tree& loop);
Side whole_side(Index extent);

// --- what loops carry (schedule_depend.cc) ---
struct Carried {
  bool reduction;  // else another dependence
  std::string block;
  Buffer buffer;
  std::string text(const Tree& loop) const;
};
// What makes two iterations of the loop depend on each other.
std::vector<Carried> carried(const ScheduleState& s, Tree& loop);
// Are the boxes around what each iteration of m writes of b apart from each other?
bool boxes_apart(Tree& m, const BufferNode* b);
Tree* alloc_site(const ScheduleState& s, const BufferNode* b);  // the loop (or root) inside which the buffer exists

// A block that computes buffer[indices] = op(buffer[indices], operand).
struct Reduction {
  Op op;  // add, mul, min, max, bit_and, bit_or, bit_xor: associative and commutative
  Expr operand;
  Buffer buffer;
  std::vector<Index> indices;
};
std::optional<Reduction> reduction_of(const Tree& block);
Expr neutral(Op op, DType t);  // null when there is none

// The only store of a block whose body is one store (not guarded); null otherwise.
const StmtNode* single_store(const Tree& block);
// The only buffer a block writes; null when there are several.
Buffer only_written(const Tree& block);
// For each dim of its store: the number of the spatial iterator that is the index, or -1 for a constant 0 in a dim
// of extent 1. Nothing when the indices are anything else or an iterator (of extent other than 1) is missing.
std::optional<std::vector<int>> store_iters(const Tree& block, const BufferNode* b);

// --- result (schedule_build.cc) ---
const Function& build(ScheduleState& s);

}  // namespace tripod::loop
