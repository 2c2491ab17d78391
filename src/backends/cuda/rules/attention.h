// Attention on tensor cores without the score matrix in memory: what the parts of the rule share. attention.cc decides,
// attention_shapes.cc chooses,
// attention_kernel.cc has the loop over the keys, attention_combine.cc puts together what blocks did.
//
//   block     row_warps * warp_rows rows of one batch and head, in one of `splits` parts of the keys. Rows are queries;
//             where those are few, the queries of all heads that share keys
//   step      `keys` keys: K and V in shared memory, `stages` of them, filled by cp.async stages - 1 steps ahead
//   warp      warp_rows of the rows, and one of key_warps parts of the keys of every step:
//               S = Q K^T          in C fragments
//               P = exp(S - m)     m the greatest logit of the row so far; what was summed before shrinks to the new m.
//                                  The four lanes that have a row meet for m only, its sum stays in parts to the end
//               O = O + P V        the C fragments of two neighbouring instructions are, thread for thread, an A fragment
//   end       (O, m, sum) of the warps and of the splits, in order; the result is O / sum
//
// P is rounded to the 16 bits of the operands, and exp is the hardware's: for results of 16 bits.
#pragma once

#include <optional>
#include <string>

#include "backends/cuda/rules/tensor_cores.h"
#include "rules/attention_form.h"

namespace tripod::cuda {

struct AttentionShape {
  int64_t row_warps, key_warps, warp_rows, keys;
  int stages;
  bool keep_queries;      // in registers, else they are read from shared memory at every step
  int64_t columns = 64;   // of an operand of a product, whose fragments are in registers together
  int64_t rows() const { return row_warps * warp_rows; }
  int64_t warps() const { return row_warps * key_warps; }
  int64_t threads() const { return warps() * 32; }
};
std::string text(const AttentionShape& s);

// One way to do it, for sizes where `when` (empty: whatever they are) holds.
struct AttentionVariant {
  AttentionShape shape;
  bool packed = false;                  // the rows of a block are (head of a group, query)
  Index splits, when;
};
// Chosen by what is known of the sizes (attention_shapes.cc); the last one is right for all of them.
std::vector<AttentionVariant> choose_attention(const rules::AttentionForm& f, sym::Context& c);

// The form on the way to the kernel.
class AttentionProblem {
 public:
  AttentionProblem(sym::Context& c, rules::AttentionForm f, bool packed);

  const rules::AttentionForm& form() const { return f_; }
  const TensorProblem& scores() const { return *scores_; }   // rows x keys, over the head size
  const TensorProblem& values() const { return *values_; }   // rows x columns, over the keys
  DType operands() const { return scores_->operands(); }
  Index batches() const { return scores_->batches; }
  Index rows() const { return scores_->rows; }

  // The form's variables at a batch (of batches()) and a row; with the key of `key` too.
  sym::Map place(Index batch, Index row) const;
  Expr logit(const Expr& score, Index batch, Index row, Index key) const;
  Stmt store(Index batch, Index row, Index column, const Expr& value) const;

  // Keys that at least one of the rows from `first` to `last` sees lie below `some`; all those below `all` are seen by
  // each of them.
  struct Seen {
    Index some, all;
  };
  Seen seen(Index first, Index last) const;
  // Every number that scores are in is this many binary logarithms: raw scores where the logit is a multiple of them,
  // else logits.
  double unit() const;
  bool plain() const { return f_.scale.has_value(); }
  // May a row see no key at all?
  bool may_be_blind() const;

 private:
  Index query_of(Index row) const;

  sym::Context& c_;
  rules::AttentionForm f_;
  bool packed_;
  Index group_head_, kv_head_;   // packed: h = kv_head * group + group_head
  std::optional<TensorProblem> scores_, values_;
};

// A group of heads that share keys; nothing where that is not a number.
std::optional<int64_t> heads_of_a_group(const rules::AttentionForm& f);

// Kernels one after the other, and the memory between them.
struct AttentionKernels {
  std::vector<Stmt> kernels;
  std::vector<Buffer> workspace;
};
AttentionKernels attention_kernels(const AttentionProblem& p, const AttentionVariant& v, sym::Context& c);

// What a block leaves for the second kernel: [split, batch, row, column], [split, batch, row].
struct AttentionParts {
  Buffer sums, maxima, totals;
};
Stmt combine_splits(const AttentionProblem& p, const AttentionParts& parts, Index splits, sym::Context& c);

// m where a row has seen a key, else 0: what its scores are shifted by.
Expr shift_of(const Expr& m);
// 2^e for weights of 16 bits.
inline Expr weight(const Expr& e) { return loop::make(loop::Op::exp2_fast, {e}); }

// With the given variants instead of the choice.
RuleResult attention_with(const loop::Function& f, sym::Context& c, const std::vector<AttentionVariant>& variants);

}  // namespace tripod::cuda
