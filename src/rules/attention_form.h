// Recognising attention as lower/attention.cc writes it: scores, their maxima by row, exponentials, their sums, the
// weighted sum of the values, the quotient.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "rules/inline.h"

namespace tripod::rules {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// result[b, h, query, column] = sum over keys of p * v / (sum of p), p = exp(logit - greatest logit of the row),
// logit = logit(sum over d of q * k). A row that sees no key gives zeros. All arithmetic is f32.
struct AttentionForm {
  Index b, h, query, key, d;              // variables of q, k and logit
  Index batch, heads, queries, keys, depth, columns;  // extents; depth and columns are constants
  Expr q, k;                              // at [b, h, query, d] and [b, h, key, d]; k has one load: [.., .., key, d]
  Expr v;                                 // one load: [.., .., key, column], indexed by b and h as k's, with variables key and column of its own
  std::function<Expr(const Expr& score, const sym::Map&)> logit;  // with the variables replaced
  // Where it is false the key is hidden; it stays so with a later key or an earlier query. Empty: every key may be seen.
  Index visible;
  std::optional<double> scale;            // the logit of a key that `visible` shows is score * scale, a positive number
  Buffer result;
  loop::Op exponential = loop::Op::exp;   // or its light form
};

// f after everything elementwise has been inlined. `why` says what does not fit.
std::optional<AttentionForm> match_attention(const loop::Function& f, std::string* why);

}  // namespace tripod::rules
