// What ONNX Runtime computes for a model, by a Python process: every value of the main graph, without optimisation, and
// the outputs with it (how far it is from itself is how far we may be from it).
#pragma once

#include <string>
#include <vector>

#include "driver/execute.h"

namespace tripod {

struct Reference {
  NamedTensors values;            // tensors only
  std::vector<Tensor> outputs;    // unoptimised
  std::vector<Tensor> optimised;  // may be empty
  std::string problem;            // why there is none
};

// `folder` is for files on the way: it exists and is the caller's to remove.
Reference onnxruntime_reference(const std::string& python, const std::string& model, const std::vector<Tensor>& inputs,
                                const std::string& folder);

}  // namespace tripod
