// The host program of a model: what one call does, step by step. Made by host/plan.cc from the fused groups and their
// kernels, printed for people, and compiled to machine code by host/emit.cc (no interpretation at run time).
//
// Memory: every buffer that is neither an input, an output nor a constant lives in the arena of a segment. A segment
// is a stretch of the program in which no new data-dependent dim becomes known; when one does, the next segment
// starts, with an arena of its own. Offsets inside an arena are solved at run time, once for each vector of dims,
// from the static live intervals given here (runtime/abi.h).
#pragma once

#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "base/dtype.h"
#include "sym/expr.h"

namespace tripod::host {

using Index = sym::Expr;

// A place in memory, dense.
struct Place {
  enum Kind : uint8_t { none, arena, input, output, weight, zero_size } kind = none;
  int32_t index = -1;     // arena: into Program::buffers; input, output: position
  int64_t offset = 0;     // weight: bytes from the start of the weights
  Index at{};             // bytes from there, by the symbols of the moment (a slice of the iteration); empty: 0
};

struct ArenaBuffer {
  std::string name;       // the value it holds first
  Index bytes;
  int32_t segment = 0;
  int32_t first = 0, last = 0;  // steps (numbered through the whole program, nested ones included)
};

struct View {
  Place place;
  DType dtype;
  std::vector<Index> shape;
};

// One compiled form of a launch's kernel.
struct LaunchCode {
  uint32_t features = 0;          // tp_cpu_feature bits that it needs
  int32_t kernel = 0;             // index into Program::kernels
  Index extent, scratch;
  int64_t grain = 1;
  // On a GPU, instead of those three: grid x, y, z, block x, y, z, bytes of dynamic shared memory. `narrow`, when set:
  // this kernel where it holds, otherwise kernel `wide`.
  std::vector<Index> geometry;
  Index narrow;
  int32_t wide = -1;
};

// What a fusion group does, for people and tools (manifest, bench, verify). Its kernel may be several launches.
struct Work {
  std::string rule;                 // that scheduled it; of a runtime operator or a copy its name
  std::vector<std::string> nodes;   // of the ONNX file, as text
  Index flops, bytes;               // empty: not known
};

// A value of the main graph that a step leaves in one of its buffers.
struct Result {
  int32_t buffer = 0;               // position among the step's places or views
  std::string value;
  DType dtype;
  std::vector<Index> shape;
  std::vector<int> order;           // of its dims in memory, outermost first; empty: row-major
  DType stored;                     // of its elements in memory: dtype, or narrower (graph::Type::storage)
};

struct Step;
using Steps = std::vector<Step>;

struct Step {
  enum Kind : uint8_t {
    segment,   // enter segment `number`
    output,    // obtain the memory of output `number`, whose shape is `dims`
    launch,    // a kernel on `places` with `dims`: the first of `variants` that the CPU can run, or else `code`
    call,      // runtime operator `symbol` on `views` with `attributes`
    copy,      // views[0] = views[1]: as many bytes as views[1] has
    store,     // views[0] = dims, converted to its dtype (shape arithmetic)
    set_dim,   // symbol `number` = dims[0], checked against its range
    read_dim,  // symbol `number` = the element of views[0], checked against its range
    require,   // fail unless dims[0] holds, with `text`, whose kTripodNumber bytes become the values of dims[1], ...
    branch,    // body[0] when the bool at views[0], else body[1]
    loop,      // see below
  } kind;
  int32_t id = 0;                 // position in the numbering
  int32_t in_segment = 0;         // what the step makes belongs there
  int32_t number = 0;
  std::vector<Place> places;
  std::vector<Index> dims;
  LaunchCode code;                // launch
  std::vector<LaunchCode> variants;
  Index extent;                   // loop
  int32_t reads = 0;              // call: so many of `views`, from the first, are only read
  std::vector<View> views;
  std::string symbol, text;
  std::vector<int64_t> attributes;
  std::vector<Steps> body;
  int32_t site = -1;              // index into Program::sites
  int32_t work = -1;              // index into Program::works; launch, call, copy
  std::vector<Result> results;    // that are complete after this step
  // loop: runs body[0] while iteration < trip count and the condition holds.
  //   views: {trip count i64 or none, condition bool or none, iteration counter i64, ...}
  //   The body ends with copies that carry values over; `symbol` unused. `number`: the symbol that counts iterations.
};

struct Symbol {
  Index var;
  std::string name;
  bool bound_by_input = true;
  bool defined = false;   // while planning: a step above sets it
};

struct IoSpec {
  std::string name;
  DType dtype;
  std::vector<Index> shape;
  int32_t shares = -1;    // of an output: the input whose memory it may be given
};

struct Program {
  std::vector<IoSpec> inputs, outputs;
  std::vector<Symbol> symbols;         // tp_model.symbols: first those bound by inputs
  std::vector<ArenaBuffer> buffers;    // of all segments
  int32_t num_segments = 1;
  // Of a program for a GPU (host/spaces.h): segments from this one on lie in the host's memory, the others, inputs,
  // outputs and weights in the device's. -1: everything is the host's.
  int32_t first_host_segment = -1;
  std::vector<std::string> kernels;    // symbols of the launches' kernels, variants included
  std::vector<Work> works;
  std::vector<std::string> sites;      // "node 12 Gather 'emb'"
  Steps steps;
};

std::string text(const Program& p);

}  // namespace tripod::host
