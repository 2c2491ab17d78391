// Looking at a schedule, and its result.
#include <algorithm>

#include "loop/schedule_state.h"

namespace tripod::loop {

const Function& Schedule::function() const { return build(*impl_); }
sym::Context& Schedule::sym() const { return impl_->context; }

std::vector<Block> Schedule::blocks() const {
  std::vector<Block> out;
  for (const Tree* t : leaves(*impl_->root))
    if (t->is_block()) out.push_back({t->name});
  return out;
}

Block Schedule::only_block() const {
  const std::vector<Block> all = blocks();
  return all.size() == 1 ? all[0] : Block{};
}

// After a failure handles are empty, and a rule that just goes on must not trip over the answers.
const StmtNode& Schedule::get(const Block& b) const {
  const Tree* t = impl_->find(b);
  TRIPOD_CHECK(t || !ok(), "there is no block " + b.name);
  Stmt& s = impl_->block_stmts[t];
  if (!s) s = t ? t->block_stmt() : block("none", {}, seq({}));
  return *s;
}

std::vector<Loop> Schedule::loops(const Block& b) const {
  std::vector<Loop> out;
  if (const Tree* t = impl_->find(b))
    for (const Tree* l : path(*t)) out.push_back({l->var});
  return out;
}

Index Schedule::extent(const Loop& l) const {
  const Tree* t = impl_->find(l);
  if (t) return t->extent;
  return ok() ? Index{} : impl_->context.constant(1);
}

LoopKind Schedule::kind(const Loop& l) const {
  const Tree* t = impl_->find(l);
  return t ? t->loop_kind : LoopKind::serial;
}

namespace {
// Other blocks that do `theirs` to a buffer that b does `mine` to.
std::vector<Block> partners(const ScheduleState& s, const Block& b, bool mine_is_store) {
  std::vector<Block> out;
  const Tree* t = s.find(b);
  if (!t) return out;
  std::vector<const BufferNode*> touched;
  for (const Access& a : t->accesses().list)
    if (a.is_store == mine_is_store) touched.push_back(a.buffer.get());
  for (const Tree* other : leaves(*s.root)) {
    if (other == t || !other->is_block()) continue;
    const auto& list = other->accesses().list;
    const auto meets = [&](const Access& a) {
      return a.is_store != mine_is_store && std::find(touched.begin(), touched.end(), a.buffer.get()) != touched.end();
    };
    if (std::any_of(list.begin(), list.end(), meets)) out.push_back({other->name});
  }
  return out;
}
}  // namespace

std::vector<Block> Schedule::producers(const Block& b) const { return partners(*impl_, b, false); }
std::vector<Block> Schedule::consumers(const Block& b) const { return partners(*impl_, b, true); }

Buffer Schedule::written(const Block& b) const {
  const Tree* t = impl_->find(b);
  if (!t) return ok() ? nullptr : make_buffer("none", DType::f32, {});
  for (const Access& a : t->accesses().list) {
    if (!a.is_store) continue;
    if (impl_->is_local(a.buffer.get())) build(*impl_);  // how much of it is left after compute_at?
    const auto it = impl_->built_buffers.find(a.buffer.get());
    return it == impl_->built_buffers.end() ? a.buffer : it->second;
  }
  return nullptr;
}

bool Schedule::is_spatial(const Block& b) const {
  const Tree* t = impl_->find(b);
  return t && std::none_of(t->iters.begin(), t->iters.end(), [](const Iter& it) { return it.reduce; });
}

bool Schedule::is_output(const Block& b) const {
  const Tree* t = impl_->find(b);
  if (!t) return false;
  const auto& list = t->accesses().list;
  return std::any_of(list.begin(), list.end(),
                     [&](const Access& a) { return a.is_store && impl_->is_param(a.buffer.get()); });
}

bool Schedule::ok() const { return impl_->reason.empty(); }

Outcome Schedule::outcome() const {
  if (!ok()) return {false, impl_->reason};
  build(*impl_);
  for (const auto& [original, b] : impl_->built_buffers)
    if (b->scope == Scope::reg && !std::all_of(b->shape.begin(), b->shape.end(), [](Index i) { return i.is_const(); }))
      return {false, "buffer " + quoted(b->name) + " in registers has no constant size any more"};
  return {true, ""};
}

void Schedule::fail(std::string why) {
  if (impl_->reason.empty()) impl_->reason = why.empty() ? "not applicable" : std::move(why);
}

const Trace& Schedule::trace() const { return impl_->trace; }

}  // namespace tripod::loop
