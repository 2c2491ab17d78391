// LSTM, GRU and RNN (lower/recurrent.cc): the block of the steps, one block of threads for each sequence and direction.
// All steps are one kernel; the state lies in shared memory.
//
//   hidden units   loops over them (whole vectors of lanes, and a rest) become loops over the threads, which take units
//                  kThreads apart; what a lane keeps in registers is a thread's own
//   local buffers  are shared; a barrier stands behind every loop over the threads
//   the rest       (the order of the weights, the products of the inputs) are kernels of the rule for points
//
// Applies where the last block has loops over lanes, and only loops around them that are the same for all units.
#include <algorithm>

#include "backends/cuda/rules/rules.h"
#include "rules/inline.h"

namespace tripod::cuda {

using loop::Expr;
using loop::LoopKind;
using loop::Op;
using loop::StmtKind;

namespace {

constexpr int64_t kWarp = 32, kMostThreads = 512, kSharedBytes = 48 << 10;

bool has_lanes(const Stmt& s) {
  bool found = false;
  loop::visit(s, [&](const Stmt& x) { found = found || (x->kind == StmtKind::loop && x->loop_kind == LoopKind::vector); });
  return found;
}

// Loops over units, and what a unit does: `at` gives the values of the loops' variables for unit u.
struct Units {
  int64_t count = 0, lanes = 1;
  Index vector, lane;  // vector: of whole vectors, or the unit itself in the rest
  Stmt body;
};
std::optional<Units> units_of(const Stmt& s) {
  if (s->kind != StmtKind::loop || !s->extent.is_const()) return std::nullopt;
  Units u;
  u.vector = s->var, u.count = s->extent.value(), u.body = s->body[0];
  if (!has_lanes(s)) return u;
  const Stmt inner = s->loop_kind == LoopKind::vector ? s : s->body[0];
  if (inner->kind != StmtKind::loop || inner->loop_kind != LoopKind::vector || has_lanes(inner->body[0])) return std::nullopt;
  if (inner == s) u.vector = {}, u.count = 1;
  u.lane = inner->var, u.lanes = inner->extent.value(), u.body = inner->body[0];
  u.count *= u.lanes;
  return u;
}

// Registers that a loop over lanes has one of for each lane.
struct OwnRegisters : loop::Rewriter {
  using loop::Rewriter::rewrite;
  Index zero;
  std::unordered_map<const loop::BufferNode*, Buffer> own;
  Stmt rewrite(const Stmt& s) override {
    if (s->kind == StmtKind::alloc && s->buffer->scope == loop::Scope::reg && s->buffer->rank() == 1) {
      const Buffer b = loop::make_buffer(s->buffer->name, s->buffer->dtype, {zero + 1}, loop::Scope::reg);
      own[s->buffer.get()] = b;
      return loop::alloc(b, apply(s->body[0]));
    }
    if (s->kind == StmtKind::store)
      if (const auto it = own.find(s->buffer.get()); it != own.end()) return loop::store(it->second, {zero}, apply(s->value));
    return nullptr;
  }
  Expr rewrite(const Expr& e) override {
    if (e->op != Op::load) return nullptr;
    const auto it = own.find(e->buffer.get());
    return it == own.end() ? nullptr : loop::load(it->second, {zero});
  }
};

class Recurrent {
 public:
  Recurrent(sym::Context& c, const loop::StmtNode& block) : c_(c), block_(block) {}

  std::string match() {
    if (block_.init || !has_lanes(block_.body[0])) return "no loop over lanes";
    std::string why;
    look(block_.body[0], why);
    if (why.empty() && shared_ > kSharedBytes) why = "the state does not fit in shared memory";
    return why;
  }

  Stmt build() {
    threads_ = std::min(kMostThreads, (most_ + kWarp - 1) / kWarp * kWarp);
    Indices extents;
    for (const loop::Iter& i : block_.iters) extents.push_back(i.extent);
    return grid(c_, sym::product(c_, extents), [&](Index at) {
      const Indices is = unflatten(at, extents);
      sym::Map m;
      for (size_t d = 0; d < is.size(); ++d) m[block_.iters[d].var] = is[d];
      return loop::substitute(all(block_.body[0]), m);
    });
  }

 private:
  void look(const Stmt& s, std::string& why) {
    if (s->kind == StmtKind::alloc && s->buffer->scope == loop::Scope::local) {
      const Index size = loop::storage_size(c_, s->buffer);
      if (!size.is_const()) why = "a state of open size";
      else shared_ += size.value() * info(s->buffer->dtype).bits / 8;
      return look(s->body[0], why);
    }
    if (s->kind == StmtKind::seq) {
      for (const Stmt& b : s->body) look(b, why);
      return;
    }
    if (s->kind != StmtKind::loop) return void(why = "a statement of the steps that is no loop");
    if (const auto u = units_of(s)) return void(most_ = std::max(most_, u->count));
    if (s->loop_kind != LoopKind::serial || !has_lanes(s)) return void(why = "a loop of the steps of another kind");
    look(s->body[0], why);
  }

  Stmt all(const Stmt& s) {
    if (s->kind == StmtKind::alloc) {
      const Buffer& b = s->buffer;
      const Buffer shared = loop::make_buffer(b->name, b->dtype, b->shape, loop::Scope::shared);
      struct Move : loop::Rewriter {
        const Buffer *from, *to;
        Buffer rewrite_buffer(const Buffer& b) override { return b == *from ? *to : b; }
      } move;
      move.from = &b, move.to = &shared;
      return loop::alloc(shared, all(move.apply(s->body[0])));
    }
    if (s->kind == StmtKind::seq) {
      std::vector<Stmt> parts;
      for (const Stmt& b : s->body) parts.push_back(all(b));
      return loop::seq(parts);
    }
    if (const auto u = units_of(s)) return loop::seq({spread(*u), loop::sync(loop::SyncKind::barrier)});
    return loop::loop(s->var, s->extent, LoopKind::serial, all(s->body[0]));
  }

  Stmt spread(const Units& u) {
    return threads(c_, threads_, [&](Index t) {
      return strided(c_, "unit", c_.constant(u.count), t, threads_, [&](Index unit) {
        OwnRegisters own;
        own.zero = c_.constant(0);
        sym::Map m;
        if (u.vector) m[u.vector] = sym::floordiv(unit, u.lanes);
        if (u.lane) m[u.lane] = sym::mod(unit, u.lanes);
        return loop::substitute(own.apply(u.body), m);
      });
    });
  }

  sym::Context& c_;
  const loop::StmtNode& block_;
  int64_t most_ = 1, shared_ = 0, threads_ = kWarp;
};

}  // namespace

RuleResult recurrent(const loop::Function& f, sym::Context& c) {
  std::vector<Buffer> temporaries;
  Stmt body = f.body;
  while (body->kind == StmtKind::alloc) temporaries.push_back(body->buffer), body = body->body[0];
  if (body->kind != StmtKind::seq || body->body.back()->kind != StmtKind::block) return {loop::not_applicable("one block"), {}};
  Recurrent r(c, *body->body.back());
  if (std::string why = r.match(); !why.empty()) return {loop::not_applicable(why), {}};
  std::vector<Stmt> kernels;
  for (size_t i = 0; i + 1 < body->body.size(); ++i) {
    loop::Function one = f;
    one.body = body->body[i];
    kernels.push_back(points(one, c).function.body);
  }
  kernels.push_back(r.build());
  RuleResult result{{true, ""}, f};
  result.function.body = loop::seq(kernels);
  for (const Buffer& t : temporaries) result.function.body = loop::alloc(t, result.function.body);
  return result;
}

}  // namespace tripod::cuda
