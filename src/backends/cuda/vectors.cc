// Vector loops: an unrolled loop over the lanes, with what lies together in memory moved as a whole around it.
//
//   float x4[4];                         every lane's element of x
//   load_vector<16>(x4, &x[i*4]);
//   #pragma unroll
//   for (int v = 0; v < 4; ++v) { y4[v] = x4[v] + 1.0f; }
//   store_vector<16>(&y[i*4], y4);
#include <algorithm>
#include <set>

#include "backends/cuda/printer.h"

namespace tripod::cuda {

using loop::StmtKind;

namespace {

// The statements of a straight-line body; nothing when there is more than stores and nested sequences.
bool straight(const loop::Stmt& s, std::vector<loop::Stmt>& stores) {
  if (s->kind == StmtKind::store) return stores.push_back(s), true;
  if (s->kind != StmtKind::seq) return false;
  return std::all_of(s->body.begin(), s->body.end(), [&](const loop::Stmt& t) { return straight(t, stores); });
}

bool in_memory(const loop::Buffer& b) { return b->scope != loop::Scope::reg && b->scope != loop::Scope::local; }

bool uses_lane(sym::Expr e, sym::Expr lane) { return e && sym::uses(e, lane); }

}  // namespace

// Where the lanes of an access lie side by side, at an offset that is aligned. Every buffer starts at a multiple of 16.
std::optional<KernelPrinter::Access> KernelPrinter::whole(const loop::Buffer& b, const std::vector<sym::Expr>& indices,
                                                          sym::Expr lane, int64_t lanes) {
  if (!in_memory(b) || is_nibble(b->dtype)) return std::nullopt;
  const sym::Expr at = loop::offset(c_, b, indices);
  const auto linear = sym::linear_in(at, lane);
  if (!linear || !linear->coefficient.is_const(1)) return std::nullopt;
  std::vector<sym::Expr> first;
  for (sym::Expr i : indices) first.push_back(sym::substitute(i, {{lane, c_.constant(0)}}));
  const int64_t size = info(b->dtype).bits / 8;
  int chunk = 16;
  while (chunk > size && (lanes * size % chunk != 0 || !is_multiple(b, first, chunk / size))) chunk /= 2;
  if (chunk <= size) return std::nullopt;
  return Access{first, chunk};
}

void KernelPrinter::load_whole(const loop::ExprNode& e, const Access& a, int64_t lanes) {
  const std::string name = unique(e.buffer->name + std::to_string(lanes), scopes_.size() - 1);
  const auto it = buffers_.find(e.buffer.get());
  TRIPOD_CHECK(it != buffers_.end(), "buffer " + e.buffer->name + " has no memory here");
  line("__align__(" + std::to_string(a.chunk) + ") " + memory_type(e.dtype) + " " + name + "[" + std::to_string(lanes) + "];");
  const std::string move = "load_vector<" + std::to_string(a.chunk) + ">(" + name + ", &" + element(e.buffer, a.first) + ");";
  if (!e.guard || e.guard.is_const(1)) {
    line(move);
  } else {  // all lanes or none
    hint_ = e.buffer->name + "_i";
    line("if (" + index(e.guard).s + ") " + move);
    line("else for (int v = 0; v < " + std::to_string(lanes) + "; ++v) " + name + "[v] = " + constant_text(e.other->dtype, e.other->bits).s + ";");
  }
  kept_.push_back(loop::Expr(&e));
  lanes_[number(kept_.back())] = name;
}

// registers[base + lane] = memory[...]: straight into the register array, whose elements stay as they came (two 16-bit
// ones a register).
bool KernelPrinter::move_to_registers(const loop::StmtNode& s, int64_t lanes) {
  if (s.guard || s.buffer->scope != loop::Scope::reg || s.indices.empty()) return false;
  const loop::ExprNode& v = *s.value;
  if (v.op != loop::Op::load || v.guard || v.dtype != s.buffer->dtype) return false;
  const auto from = whole(v.buffer, v.indices, lane_, lanes);
  const auto to = sym::linear_in(loop::offset(c_, s.buffer, s.indices), lane_);
  if (!from || !to || !to->coefficient.is_const(1)) return false;
  std::vector<sym::Expr> first;
  for (sym::Expr i : s.indices) first.push_back(sym::substitute(i, {{lane_, c_.constant(0)}}));
  const int64_t n = from->chunk / (info(v.dtype).bits / 8);
  if (!known_multiple(first.back(), n) || s.buffer->shape.back()->divisor % n != 0) return false;
  line("load_vector<" + std::to_string(from->chunk) + ", " + std::to_string(lanes) + ">(&" + element(s.buffer, first) + ", &" +
       element(v.buffer, from->first) + ");");
  return true;
}

void KernelPrinter::print_vector(const loop::StmtNode& s) {
  TRIPOD_CHECK(s.extent.is_const() && !lane_, "a vector loop needs a constant extent and no other around it");
  const int64_t lanes = s.extent.value();
  std::vector<loop::Stmt> stores;
  const bool is_straight = straight(s.body[0], stores);
  std::unordered_map<const loop::BufferNode*, int> written;
  std::set<const loop::BufferNode*> loaded;
  if (is_straight)
    for (const loop::Stmt& t : stores) {
      ++written[t->buffer.get()];
      loop::visit(t->value, [&](const loop::Expr& e) {
        if (e->op == loop::Op::load) loaded.insert(e->buffer.get());
      });
    }
  lane_ = s.var;
  if (is_straight) {
    for (const loop::Stmt& t : stores)
      if (!loaded.count(t->buffer.get()) && move_to_registers(*t, lanes)) moved_.insert(t.get());
    if (moved_.size() == stores.size()) return lane_ = {}, moved_.clear();
    std::erase_if(stores, [&](const loop::Stmt& t) { return moved_.count(t.get()) > 0; });
  }
  // Loads that every lane does, of memory that this loop does not write.
  if (is_straight)
    for (const loop::Stmt& t : stores)
      if (!t->guard || !uses_lane(t->guard, lane_)) {
        if (t->guard) continue;  // not read where the guard is false
        loop::visit(t->value, [&](const loop::Expr& e) {
          if (e->op != loop::Op::load || written.count(e->buffer.get()) || lanes_.count(number(e))) return;
          if (e->guard && !e->guard.is_const(1) && (uses_lane(e->guard, lane_) || e->other->op != loop::Op::constant)) return;
          if (const auto a = whole(e->buffer, e->indices, lane_, lanes)) load_whole(*e, *a, lanes);
        });
      }
  struct Store {
    loop::Stmt s;
    Access access;
    std::string name;
  };
  std::vector<Store> whole_stores;
  if (is_straight)
    for (const loop::Stmt& t : stores) {
      if (t->guard || written[t->buffer.get()] != 1 || loaded.count(t->buffer.get())) continue;
      const auto a = whole(t->buffer, t->indices, lane_, lanes);
      if (!a) continue;
      const std::string name = unique(t->buffer->name + std::to_string(lanes), scopes_.size() - 1);
      line("__align__(" + std::to_string(a->chunk) + ") " + memory_type(t->buffer->dtype) + " " + name + "[" +
           std::to_string(lanes) + "];");
      stored_lanes_[t.get()] = name;
      whole_stores.push_back({t, *a, name});
    }
  open(true);
  const std::string name = unique(s.var->name, scopes_.size() - 1);
  bind(s.var, name);
  print(s.body[0]);
  const std::string body = close();
  line("#pragma unroll");
  in_braces("for (int " + name + " = 0; " + name + " < " + std::to_string(lanes) + "; ++" + name + ")", body);
  for (const Store& w : whole_stores)
    line("store_vector<" + std::to_string(w.access.chunk) + ">(&" + element(w.s->buffer, w.access.first) + ", " + w.name + ");");
  lane_ = {};
  lanes_.clear();
  moved_.clear();
  stored_lanes_.clear();
}

}  // namespace tripod::cuda
