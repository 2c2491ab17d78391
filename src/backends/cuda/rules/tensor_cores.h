// Contractions on tensor cores: what the parts of the rule share. tensor_cores.cc decides, tensor_tiles.cc chooses the
// tile, tensor_operands.cc brings operands into shared memory, tensor_kernel.cc puts the kernel together.
//
//   block     rows x columns results of one batch (and one of `splits` parts of the reduction)
//   warp      warp_rows x warp_columns of them, in fragments; `slices` warps share a tile of results, each doing its
//             part of every step, and are summed at the end
//   step      `depth` of the reduction: both operands' tiles in shared memory, `stages` of them, filled by cp.async
//             stages - 1 steps ahead; swizzled, so that neither cp.async nor ldmatrix meets a bank twice
//   end       fragments go through shared memory, so that the epilogue works on rows and stores 16 bytes at once
#pragma once

#include <optional>
#include <string>

#include "backends/cuda/rules/rules.h"
#include "rules/contraction.h"

namespace tripod::cuda {

struct TileShape {
  int64_t rows, columns, depth;
  int stages;
  int64_t warp_rows, warp_columns;
  int64_t slices = 1;
  int64_t warps() const { return rows / warp_rows * (columns / warp_columns) * slices; }
  int64_t threads() const { return warps() * 32; }
};
std::string text(const TileShape& t, int64_t splits);

struct TensorCoreOptions {
  bool tf32 = false;                 // f32 operands may be cut to tf32
  std::optional<TileShape> tile;     // instead of the choice (for measurements)
  int64_t splits = 0;                // 0: chosen
};

// What the choice depends on.
struct Problem {
  std::optional<int64_t> batches, rows, columns, depth;
  int64_t bytes = 2;                 // of an element of the operands
  double memory = 0;                 // bytes of the tensors that are read and written; 0: not known
};
struct Choice {
  TileShape tile;
  int64_t splits = 1;
};
Choice choose_tile(const Problem& p, const TensorCoreOptions& o);

// Where the number of rows is open: the choice for up to so many rows, in ascending order; the last is for all others.
// `problem` gives the sizes at a number of rows.
struct RowClass {
  std::optional<int64_t> most_rows;
  Choice choice;
};
std::vector<RowClass> choose_tiles_by_rows(const std::function<Problem(int64_t rows)>& problem);

// An operand of the product as it lies in memory: [lines, k], the lines being rows of a or columns of b.
struct TensorOperand {
  Expr value;                        // of the operands' dtype, in terms of the contraction's iterators
  bool is_a = false;
  Index extent;                      // lines
  bool along_k = false;              // memory runs along k, else along the lines
  int64_t chunk = 1;                 // elements that are moved at once
  bool asynchronous = false;         // by cp.async; else through registers, computed on the way
};

// The contraction with its reduction in the order of memory, and its index arithmetic. An operand a that is null is made
// in registers.
class TensorProblem {
 public:
  TensorProblem(sym::Context& c, rules::Contraction k, DType operands);

  const rules::Contraction& contraction() const { return k_; }
  DType operands() const { return dtype_; }
  TensorOperand a, b;
  Index batches, rows, columns, depth;

  // The iterators at (batch, line), and at k.
  void bind_batch(sym::Map& m, Index batch) const;
  void bind_line(sym::Map& m, bool is_a, Index line) const;
  void bind_k(sym::Map& m, Index k) const;

 private:
  TensorOperand operand(bool is_a, const Expr& value);
  bool find_run(TensorOperand& o, bool along_k, int64_t chunk, bool asynchronous) const;
  bool unit_stride(const Expr& value, Index var) const;
  void order_reduction();

  sym::Context& c_;
  rules::Contraction k_;
  DType dtype_;
  Indices row_extents_, batch_extents_, reduce_extents_;
};

// A shared buffer [stages, lines, k] (of a) or [stages, k, lines] (of b), physically along o's memory and swizzled.
Buffer shared_tile(sym::Context& c, const std::string& name, DType t, const TensorOperand& o, int64_t stages, int64_t lines, int64_t depth);

// Thread's part of filling one stage: lines from `first_line`, k from `first_k`. What is outside becomes 0; `exact`: nothing is.
struct Fill {
  Buffer tile;
  Index stage, first_line, first_k;
  int64_t lines, depth, threads;
  bool exact_lines, exact_k;
};
Stmt fill_tile(sym::Context& c, const TensorProblem& p, const TensorOperand& o, const Fill& f, const sym::Map& batch, Index thread);

loop::Function tensor_kernel(const loop::Function& f, const TensorProblem& p, const Choice& choice, sym::Context& c);

RuleResult tensor_cores_with(const loop::Function& f, sym::Context& c, const TensorCoreOptions& o);

}  // namespace tripod::cuda
