// Recognising a contraction: a block that sums products, whose result feeds only elementwise blocks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rules/loops.h"
#include "loop/schedule.h"

namespace tripod::rules {

// acc[to] += a * b over `reduce`. The spatial iterators are sorted by what they index: rows move a (and the result)
// only, the column moves b and is innermost in the memory of the result, batch iterators move both.
struct Contraction {
  std::string name;
  Buffer acc;
  Indices to;
  Expr a, b;
  DType dtype;                       // of the accumulator
  std::vector<loop::Iter> batch, rows, reduce;
  loop::Iter column;
  // What follows, one elementwise store each: target[at] = value, where loads of acc at [its own element] stand for
  // the finished sum. Its iterators are those of the contraction.
  struct Epilogue {
    Buffer target;
    Indices at;
    Expr value;
  };
  std::vector<Epilogue> epilogue;
};

// Which operands the column moves.
enum class Column : uint8_t {
  one,        // exactly one
  both,       // as in a depthwise convolution
  of_group,   // one; or both, of which one only by the group that it is in (a grouped convolution): then the group becomes
              // a batch iterator and the column its place in the group, if a group has kLeastGroup columns or more
};
constexpr int64_t kLeastGroup = 8;

// Matches f after everything elementwise has been inlined. `why` says what does not fit.
std::optional<Contraction> match_contraction(const loop::Function& f, sym::Context& c, std::string* why, Column column = Column::one);

// An expression with iterators replaced, and loads of the accumulator replaced by `sum`.
Expr epilogue_value(const Contraction& k, const Contraction::Epilogue& e, const sym::Map& iters, const Expr& sum);

}  // namespace tripod::rules
