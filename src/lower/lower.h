// From a fusion group to one loop function in compute form: what is computed, element by element, with no schedule.
//
// Each op of the group appends blocks (lower/*.cc, one function an op, listed in lower/table.cc). Values inside the
// group become buffers that are allocated around the blocks; the group's inputs and outputs are parameters. Arithmetic
// on f16 and bf16 is f32: such values are widened where they are loaded and rounded once, where an output is stored;
// values inside the group stay f32. The same holds of f32 values that are stored narrower (Type::storage).
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/numbering.h"
#include "graph/group.h"
#include "loop/ir.h"

namespace tripod::lower {

using graph::Graph;
using graph::NodeId;
using graph::ValueId;
using loop::Buffer;
using loop::Expr;
using loop::Index;
using loop::Iter;

// Index lists are built with these everywhere, so that names in printed IR follow the axes.
using Indices = std::vector<Index>;

class Lowering {
 public:
  Lowering(const Graph& g, const graph::Group& group, Numbering* sites);

  const Graph& graph() const { return g_; }
  sym::Context& sym() const { return g_.sym(); }
  const graph::Type& type(ValueId v) const { return g_.type(v); }

  // The buffer that holds a value. Inside the group f16 and bf16 values are held as f32.
  Buffer buffer(ValueId v);
  // An intermediate of the op's own (a row maximum, ...).
  Buffer temporary(const std::string& name, DType t, Indices shape);

  // Element of a value at an index of its own rank, in its compute type.
  Expr load(ValueId v, const Indices& at);
  // Element of a value at an index of a shape it broadcasts to.
  Expr load_broadcast(ValueId v, const Indices& at);
  // The statement value[at] = e, converted to what the buffer holds.
  loop::Stmt store(ValueId v, const Indices& at, Expr e);
  loop::Stmt store(const Buffer& b, const Indices& at, Expr e);

  // Spatial iterators over a shape; names "i0", "i1", ... or the given ones.
  std::vector<Iter> iters(const Indices& shape, const char* prefix = "i");
  Iter reduce(Index extent, const char* name = "k");
  static Indices vars(const std::vector<Iter>& is);

  // Appends a block. Names are made unique.
  void block(const std::string& name, std::vector<Iter> is, loop::Stmt body, loop::Stmt init = nullptr);
  // Appends a statement in scheduled form (a back end's own kernel, see lower_group).
  void append(loop::Stmt s) { blocks_.push_back(std::move(s)); }
  // An elementwise block over `shape`: value[i] = f(i).
  void map(ValueId result, const std::string& name, const std::function<Expr(const Indices&)>& f);
  void map(const Buffer& result, const std::string& name, const std::function<Expr(const Indices&)>& f);

  // Binds a data-dependent index in [0, limit) (negative ones count from the end when `wrap`), recording an error when
  // it is outside, and gives the clamped index to `body`.
  loop::Stmt with_index(Expr raw, Index limit, bool wrap, const std::function<loop::Stmt(Index)>& body);

  const graph::Node& node() const { return g_.node(node_); }
  NodeId node_id() const { return node_; }
  std::string block_name() const;        // of the node at work
  int32_t site() const;                  // its number in the table of sites

  loop::Function finish();
  const std::vector<ValueId>& params() const { return params_; }

 private:
  friend struct Lowered lower_group(const Graph&, const graph::Group&, Numbering&, void (*)(Lowering&, const graph::Node&));
  const Graph& g_;
  const graph::Group& group_;
  Numbering* sites_;
  NodeId node_ = -1;
  std::unordered_map<ValueId, Buffer> buffers_;
  std::vector<Buffer> temporaries_;
  std::vector<ValueId> params_;
  std::vector<loop::Stmt> blocks_;
  std::unordered_map<std::string, int> names_;
};

struct Lowered {
  loop::Function function;
  std::vector<ValueId> params;   // the values of function.params, inputs then outputs
};

using LowerOp = void (*)(Lowering&, const graph::Node&);
// The lowering of an op; null for those the host or a runtime operator carries out.
LowerOp lowering_of(graph::OpKind op);

// `sites` grows by the texts of the nodes whose kernels can report an error. `by` (may be null): in place of lowering_of()
// the group's one node; what it appends may be in scheduled form, the kernels of a back end that writes them itself.
Lowered lower_group(const Graph& g, const graph::Group& group, Numbering& sites, LowerOp by = nullptr);

// The scalar meaning of an elementwise op on operands in compute type (lower/formulas.cc).
Expr formula(const graph::Node& n, const std::vector<Expr>& operands, DType result);

}  // namespace tripod::lower
