// Schedule primitives: each transforms the function correctly or says why it cannot.
//
// A Schedule starts from a function in compute form (it puts each block under serial loops, one an iterator, in the
// order of the iterators) and is changed by primitives. A primitive that is not legal changes nothing and makes the
// schedule fail: the first reason is kept, later primitives do nothing and return empty handles. A rule therefore
// reads as straight advice and ends with `return s.outcome();`.
//
// Every primitive that succeeds appends (primitive, handles, attributes, decision) to the trace, which prints as
// text, parses, and replays on the same compute form to the same function.
//
// Handles name loops by their variable and blocks by their (unique) name; they stay valid until the loop or block
// they name is gone. Buffers may be named by any version of them (before or after set_scope, compute_at, ...).
//
// A local buffer is allocated in the innermost loop around all that touches it, and shrinks to the part of it that one
// iteration of that loop touches: compute_at, reverse_compute_at, cache_read, cache_write and rfactor need not say so.
// written() tells how much is left of it at the moment.
//
// After a failure queries answer something harmless (extent 1, a buffer of rank 0, an empty block).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loop/ir.h"

namespace tripod::loop {

struct Loop {
  Index var;
  explicit operator bool() const { return static_cast<bool>(var); }
  friend bool operator==(const Loop& a, const Loop& b) { return a.var == b.var; }
};
struct Block {
  std::string name;
  explicit operator bool() const { return !name.empty(); }
  friend bool operator==(const Block&, const Block&) = default;
};

// What a rule answers: applied, or why not.
struct Outcome {
  bool applied = false;
  std::string reason;
};
inline Outcome not_applicable(std::string why) { return {false, std::move(why)}; }

struct TraceStep {
  std::string primitive;
  std::vector<std::string> handles;     // loops and blocks by name
  std::vector<std::string> attributes;  // factors, scopes, kinds
  std::vector<std::string> results;
};
struct Trace {
  int version = 1;
  std::vector<TraceStep> steps;
};
std::string text(const Trace& t);
Trace parse_trace(std::string_view text);

class Schedule {
 public:
  Schedule(sym::Context& context, Function compute_form);
  ~Schedule();

  // --- looking (never fails the schedule) ---
  const Function& function() const;
  sym::Context& sym() const;
  std::vector<Block> blocks() const;                 // in program order
  Block only_block() const;                          // empty when there are none or several
  const StmtNode& get(const Block& b) const;         // the block statement
  std::vector<Loop> loops(const Block& b) const;     // around it, outermost first
  Index extent(const Loop& l) const;
  LoopKind kind(const Loop& l) const;
  std::vector<Block> producers(const Block& b) const, consumers(const Block& b) const;
  Buffer written(const Block& b) const;              // the buffer that b writes
  bool is_spatial(const Block& b) const;             // no reduce iterator
  bool is_output(const Block& b) const;              // writes a parameter

  // --- loops ---
  // i -> outer*factor + inner; where factor does not divide the extent the block gets a predicate.
  std::pair<Loop, Loop> split(Loop l, Index factor);
  std::pair<Loop, Loop> split(Loop l, int64_t factor);
  Loop fuse(const std::vector<Loop>& ls);            // adjacent, perfectly nested, outermost first
  void reorder(const std::vector<Loop>& ls);         // all in one perfect nest; takes their places in this order
  void parallel(Loop l, int64_t grain = 1);
  void vectorise(Loop l);
  void unroll(Loop l);
  void bind(Loop l, LoopKind axis);

  // --- blocks ---
  // Puts a producer under loop l, which is around all its consumers, computing just the region that one iteration of l
  // reads. The producer gets new loops, one an iterator in their order (also where the extent is 1): schedule them
  // afterwards. They have constant extents where the region has (with predicates at the borders).
  void compute_at(const Block& producer, Loop l);
  // Puts a consumer under loop l of its producer, consuming just what one iteration of l has finished. New loops, too.
  void reverse_compute_at(const Block& consumer, Loop l);
  // Spatial; its value replaces every load of its buffer. Lets and checks in it (gather) move along.
  void inline_producer(const Block& b);
  // A copy of a buffer that b reads, in `scope` (optionally with a layout); returns the copying block.
  Block cache_read(const Block& b, const Buffer& buffer, Scope scope, Layout layout = {});
  // b writes a buffer in `scope`; the returned block copies it to where b wrote before.
  Block cache_write(const Block& b, Scope scope);
  // The reduction's init becomes a block of its own in front of loop l; returns it: NAME_init.
  Block decompose_reduction(const Block& b, Loop l);
  // Splits a reduction: loop l (of reduce iterators only) becomes spatial in a new block that reduces the rest, and b
  // reduces over l, behind the new block. Associativity is used: f32 sums change in the last bits. Returns the new
  // block, NAME_rf; its init is a block NAME_rf_init already. l and the other loops stay the new block's; b and the
  // init get copies of l and of the spatial loops inside the reduction.
  Block rfactor(const Block& b, Loop l);
  void set_scope(const Buffer& buffer, Scope scope);
  void set_layout(const Buffer& buffer, Layout layout);
  void set_name(const Block& b, std::string name);

  // --- result ---
  bool ok() const;
  Outcome outcome() const;                           // applied, or the first primitive's reason
  void fail(std::string reason);
  const Trace& trace() const;
  void replay(const Trace& t);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tripod::loop
