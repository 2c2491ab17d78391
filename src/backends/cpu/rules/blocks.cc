// The rule that always applies: every block a loop nest of its own, spatial iterators in the memory order of what it
// writes, adjacent ones that all accesses walk as one collapsed, the innermost in vectors, the others spread over the
// threads. A reduction accumulates in registers (a vector of results at a time) and stores once.
#include <algorithm>

#include "backends/cpu/rules/nest.h"
#include "backends/cpu/rules/prepare.h"
#include "backends/cpu/rules/rules.h"

namespace tripod::cpu {

RuleResult blocks(const loop::Function& f, sym::Context& c, const CpuTarget& target) {
  loop::Function r = inline_elementwise(f, c);
  std::vector<Buffer> temporaries;
  Stmt body = r.body;
  while (body->kind == loop::StmtKind::alloc) temporaries.push_back(body->buffer), body = body->body[0];
  std::vector<Stmt> stages;
  for (const Stmt& b : body->kind == loop::StmtKind::seq ? body->body : std::vector<Stmt>{body})
    stages.push_back(Nest(c, target, *b).build());
  r.body = loop::seq(stages);
  for (const Buffer& t : temporaries) r.body = loop::alloc(t, r.body);
  return {{true, ""}, r};
}

}  // namespace tripod::cpu
