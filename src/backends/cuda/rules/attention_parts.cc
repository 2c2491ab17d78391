// Attention whose numbers no tensor core takes (f32 without TF32, f64, long heads) as three kernels with the scores in
// memory between them: a product, a softmax over rows, a product. Each is scheduled by the table of rules.
#include <algorithm>

#include "backends/cuda/rules/rules.h"
#include "rules/attention_form.h"

namespace tripod::cuda {

using loop::StmtKind;

namespace {

using Buffers = std::vector<Buffer>;

bool has(const Buffers& all, const Buffer& b) { return std::find(all.begin(), all.end(), b) != all.end(); }

void add(Buffers& all, const Buffer& b) {
  if (!has(all, b)) all.push_back(b);
}

struct Part {
  std::vector<Stmt> blocks;
  Buffers read, written;
};

Part part(std::vector<Stmt> blocks) {
  Part p{std::move(blocks), {}, {}};
  for (const Stmt& b : p.blocks)
    loop::visit(
        b, [&](const Stmt& s) { if (s->kind == StmtKind::store) add(p.written, s->buffer); },
        [&](const loop::Expr& e) { if (e->op == loop::Op::load) add(p.read, e->buffer); });
  return p;
}

struct Renamed : loop::Rewriter {
  Renamed(Buffer from, Buffer to) : from(std::move(from)), to(std::move(to)) {}
  Buffer rewrite_buffer(const Buffer& b) override { return b == from ? to : b; }
  Buffer from, to;
};

// What leaves a part and is read in it, too, is a buffer inside that is copied out in the end: rules keep it in registers.
Part with_copies(sym::Context& c, Part p, const Buffers& leaving) {
  for (const Buffer& b : Buffers(p.written)) {
    if (!has(leaving, b) || !has(p.read, b)) continue;
    const Buffer inside = loop::make_buffer(b->name + "_inside", b->dtype, b->shape);
    Renamed rename(b, inside);
    std::vector<loop::Iter> iters;
    Indices at;
    for (const Index& extent : b->shape) {
      iters.push_back({loop_var(c, "i", extent), extent, false, {}});
      at.push_back(iters.back().var);
    }
    std::vector<Stmt> blocks;
    for (const Stmt& s : p.blocks) blocks.push_back(rename.apply(s));
    blocks.push_back(loop::block(b->name + "_out", iters, loop::store(b, at, loop::load(inside, at))));
    p = part(blocks);
  }
  return p;
}

// A part as a function of its own: what other parts read leaves it, the rest of what it writes stays inside.
loop::Function function(sym::Context& c, const loop::Function& f, const Part& whole, const Buffers& leaving) {
  const Part p = with_copies(c, whole, leaving);
  loop::Function r = f;
  r.params.clear(), r.num_outputs = 0;
  for (const Buffer& b : p.read)
    if (!has(p.written, b)) r.params.push_back(b);
  r.body = loop::seq(p.blocks);
  Buffers outputs;
  for (const Buffer& b : p.written) {
    if (has(leaving, b) || has(f.params, b)) outputs.push_back(b);
    else r.body = loop::alloc(b, r.body);
  }
  r.num_outputs = static_cast<int>(outputs.size());
  r.params.insert(r.params.end(), outputs.begin(), outputs.end());
  return r;
}

}  // namespace

RuleResult attention_parts(const loop::Function& f, sym::Context& c, const ScheduleOptions& o) {
  std::string why;
  const loop::Function inlined = rules::inline_elementwise(f, c);
  if (!rules::match_attention(inlined, &why)) return {loop::not_applicable(why), {}};
  Stmt s = inlined.body;
  while (s->kind == StmtKind::alloc) s = s->body[0];
  const auto first = s->body.begin(), softmax = s->body.end() - 5, last = s->body.end() - 2;  // maxima, exponentials, sums
  const std::vector<Part> parts{part({first, softmax}), part({softmax, last}), part({last, s->body.end()})};
  Buffers between, workspace;
  for (const Part& p : parts)
    for (const Part& other : parts)
      for (const Buffer& b : p.written)
        if (&p != &other && has(other.read, b)) add(between, b);
  std::vector<Stmt> kernels;
  for (const Part& p : parts) {
    Stmt body = schedule(function(c, inlined, p, between), c, nullptr, o).function.body;
    for (; body->kind == StmtKind::alloc && body->buffer->scope == loop::Scope::global; body = body->body[0]) workspace.push_back(body->buffer);
    kernels.push_back(body);
  }
  loop::Function r = inlined;
  r.body = loop::seq(kernels);
  for (const Buffers& all : {between, workspace})
    for (const Buffer& b : all) r.body = loop::alloc(b, r.body);
  return {{true, ""}, r};
}

}  // namespace tripod::cuda
