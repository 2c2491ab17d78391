#include "backends/cpu/rules/rules.h"

namespace tripod::cpu {

const std::vector<RuleRow>& rule_table() {
  static const std::vector<RuleRow> kTable = {
      {"dot", dot},
      {"contraction", contraction},
      {"depthwise", depthwise},
      {"attention", attention},
      {"rows", rows},
      {"blocks", blocks},
  };
  return kTable;
}

loop::Function schedule(const loop::Function& f, sym::Context& c, const CpuTarget& target, std::vector<std::string>* log) {
  for (const RuleRow& row : rule_table()) {
    RuleResult r = row.rule(f, c, target);
    if (r.outcome.applied) {
      r.function.rule = row.name;
      return r.function;
    }
    if (log) log->push_back(std::string(row.name) + ": " + r.outcome.reason);
  }
  internal_error(__FILE__, __LINE__, "no rule applies to " + f.name);
}

}  // namespace tripod::cpu
