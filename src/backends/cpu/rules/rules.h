// Schedule rules of the CPU back end: each turns a function in compute form into scheduled loops, or says why it does
// not apply. They are tried in the order of the table in rules.cc; the last one always applies.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backends/cpu/cpu_target.h"
#include "loop/schedule.h"

namespace tripod::cpu {

struct RuleResult {
  loop::Outcome outcome;
  loop::Function function;   // scheduled, not yet flattened
};

using Rule = RuleResult (*)(const loop::Function& compute_form, sym::Context& c, const CpuTarget& target);

struct RuleRow {
  const char* name;
  Rule rule;
};
const std::vector<RuleRow>& rule_table();

RuleResult contraction(const loop::Function& f, sym::Context& c, const CpuTarget& target);
RuleResult dot(const loop::Function& f, sym::Context& c, const CpuTarget& target);
RuleResult depthwise(const loop::Function& f, sym::Context& c, const CpuTarget& target);
RuleResult attention(const loop::Function& f, sym::Context& c, const CpuTarget& target);
RuleResult rows(const loop::Function& f, sym::Context& c, const CpuTarget& target);
RuleResult elementwise(const loop::Function& f, sym::Context& c, const CpuTarget& target);
RuleResult blocks(const loop::Function& f, sym::Context& c, const CpuTarget& target);

// The first rule that applies; the function carries its name, `log` (may be null) each rule's reason for not applying.
loop::Function schedule(const loop::Function& f, sym::Context& c, const CpuTarget& target, std::vector<std::string>* log);

}  // namespace tripod::cpu
