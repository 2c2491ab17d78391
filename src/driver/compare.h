// How far one tensor is from another.
#pragma once

#include <string>

#include "driver/loaded_model.h"

namespace tripod {

struct Difference {
  std::string problem;  // shapes or types that differ; empty: the numbers below hold
  double error = 0;     // largest |got - want|; infinite where only one of them is NaN or infinite
  double range = 1;     // of `want`: most - least, or the largest magnitude for up to 8 elements
  double relative = 0;  // error / range; of integers and bools: the share of elements that differ
  double ulp = 0;       // largest distance in representable numbers, floats only
  int64_t at = 0;       // where `error` is
  bool is_float = true;
  bool over(double bound) const { return !problem.empty() || !(relative <= (is_float ? bound : 0)); }
};

Difference compare(const Tensor& got, const Tensor& want);

}  // namespace tripod
