#include "loop/canonical.h"

#include <algorithm>
#include <unordered_map>

namespace tripod::loop {
namespace {

struct Renamer : Rewriter {
  Renamer(Canonical& canonical, const Function& f) : canonical(canonical), f(f) {}

  // Binders come before their uses, so that variables are numbered in the order in which the text binds them.
  Index rewrite_index(Index i) override {
    for (Index v : sym::variables(i))
      if (std::find(f.dims.begin(), f.dims.end(), v) == f.dims.end() && !names.count(v))
        names.emplace(v, canonical.variable(names.size(), v));
    return sym::substitute(i, names);
  }
  // Blocks are named after the ONNX nodes.
  Stmt rewrite(const Stmt& s) override {
    const Stmt r = rewrite_children(s);
    if (r->name.empty()) return r;
    Ref<StmtNode> n(new StmtNode(*r));
    n->name = "_";
    return Stmt(n.get());
  }
  using Rewriter::rewrite;
  Buffer rewrite_buffer(const Buffer& b) override {
    auto it = buffers.find(b.get());
    if (it == buffers.end()) {
      const std::string name = "_b" + std::to_string(buffers.size());
      it = buffers.emplace(b.get(), std::pair(b, make_buffer(name, b->dtype, b->shape, b->scope, b->layout))).first;
    }
    return it->second.second;
  }

  Canonical& canonical;
  const Function& f;
  sym::Map names;
  std::unordered_map<const BufferNode*, std::pair<Buffer, Buffer>> buffers;  // keeps the old ones alive: keys
};

}  // namespace

Index Canonical::variable(size_t n, Index like) {
  Index& v = variables_[{n, like->range.lo, like->range.hi, like->divisor}];
  if (!v) v = c_.var("_" + std::to_string(n), like->range, like->divisor);
  return v;
}

std::string Canonical::text(const Function& f) {
  Renamer renamer(*this, f);
  Function r = f;
  r.name = "_";
  r.origins.clear();
  r.rule.clear();
  for (Buffer& b : r.params) b = renamer.rewrite_buffer(b);
  r.body = renamer.apply(f.body);
  return loop::text(r);
}

}  // namespace tripod::loop
