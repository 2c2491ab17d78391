// Who runs each ONNX node, why, and what it costs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/group.h"
#include "host/program.h"

namespace tripod {

struct Explanation {
  std::string who;                   // "kernel k_conv_relu", "runtime operator tp_op_topk", "no code"
  std::string why;                   // "rule contraction"; of what has no code: where it went
  std::vector<std::string> nodes;    // of the ONNX file
  std::vector<std::string> refused;  // rules that were tried before, and why they do not apply
  std::vector<std::string> notes;    // with --precision: how its results are stored, and why not narrower
  std::string flops, bytes;          // expressions of the dims; empty: not known
  double least_us = 0;               // where both are constants: on the model machine below
};

// What estimates stand for: one core, as the AVX2 machines that the project is measured on.
inline constexpr double kModelFlops = 100e9, kModelBandwidth = 25e9;

// `refused`: by the symbol of a kernel's last phase. `all_nodes`: of the graph as imported.
std::vector<Explanation> explain(const host::Program& program,
                                 const std::map<std::string, std::vector<std::string>>& refused, const graph::Module& m,
                                 const std::vector<graph::Groups>& groups, const std::vector<std::string>& all_nodes);

std::vector<std::string> node_names(const graph::Module& m);
std::string text(const Explanation& e);

}  // namespace tripod
