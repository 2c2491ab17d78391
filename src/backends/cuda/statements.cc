// Statements.
#include <cctype>

#include "backends/cuda/printer.h"

namespace tripod::cuda {

using loop::LoopKind;
using loop::StmtKind;

void KernelPrinter::print(const loop::Stmt& s) {
  switch (s->kind) {
    case StmtKind::seq:
      for (const loop::Stmt& t : s->body) print(t);
      return;
    case StmtKind::loop: return print_loop(*s);
    case StmtKind::store: return print_store(*s);
    case StmtKind::let: return print_let(*s);
    case StmtKind::branch: return print_branch(*s);
    case StmtKind::alloc: {
      // Dynamic shared memory is a stack: what is allocated one after the other shares its bytes.
      const int64_t below = shared_bytes_;
      declare(s->buffer);
      print(s->body[0]);
      shared_bytes_ = below;
      return;
    }
    case StmtKind::check: return print_check(*s);
    case StmtKind::tile: return print_tile(*s);
    case StmtKind::sync: return print_sync(*s);
    case StmtKind::block: break;
  }
  internal_error(__FILE__, __LINE__, "function " + f_.name + " is not flattened:\n" + loop::text(s));
}

void KernelPrinter::in_braces(const std::string& head, const std::string& body) {
  line(head + " {");
  append(body);
  line("}");
}

void KernelPrinter::print_loop(const loop::StmtNode& s) {
  if (s.loop_kind == LoopKind::vector) return print_vector(s);
  TRIPOD_CHECK(s.loop_kind == LoopKind::serial || s.loop_kind == LoopKind::unrolled,
               "a loop of kernel " + f_.name + " is bound to nothing that a GPU has inside a thread");
  hint_ = s.var->name + "_end";
  const std::string extent = within(index(s.extent), kSum);
  open(true);
  const std::string name = unique(s.var->name, scopes_.size() - 1);
  bind(s.var, name);
  print(s.body[0]);
  const std::string body = close();
  if (s.loop_kind == LoopKind::unrolled) {
    TRIPOD_CHECK(s.extent.is_const(), "an unrolled loop needs a constant extent");
    line("#pragma unroll");
  }
  in_braces("for (" + index_type() + " " + name + " = 0; " + name + " < " + extent + "; ++" + name + ")", body);
}

void KernelPrinter::print_store(const loop::StmtNode& s) {
  if (moved_.count(&s)) return;
  if (const auto it = stored_lanes_.find(&s); it != stored_lanes_.end()) {
    const std::string v = value(s.value).s;
    return line(it->second + "[" + variable(lane_) + "] = " + v + ";");
  }
  if (!s.guard || s.guard.is_const(1)) return store(s.buffer, s.indices, value(s.value));
  hint_ = s.buffer->name + "_i";
  const std::string condition = index(s.guard).s;
  open(false);
  store(s.buffer, s.indices, value(s.value));
  const std::string body = close();
  in_braces("if (" + condition + ")", body);
}

static bool mentions(const std::string& text, const std::string& name) {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1))
    if ((at == 0 || !is_word(text[at - 1])) && (at + name.size() == text.size() || !is_word(text[at + name.size()])))
      return true;
  return false;
}

void KernelPrinter::print_let(const loop::StmtNode& s) {
  const sym::Range r = s.var->range;
  const bool fits = narrow_ && r.lo >= INT32_MIN && r.hi <= INT32_MAX;
  const Text v = value(s.value);
  const DType from = s.value->dtype;
  const std::string type = fits ? "int" : "long long";
  const std::string text = from == DType::i32 || value_type(from) == type ? v.s : "(" + type + ")" + within(v, kUnary);
  // The body goes first into lines of its own: what it does not use must not be declared.
  const std::string name = unique(s.var->name, scopes_.size() - 1);
  bind(s.var, name);
  std::string before = std::move(scopes_.back().lines);
  scopes_.back().lines.clear();
  print(s.body[0]);
  const std::string body = std::move(scopes_.back().lines);
  scopes_.back().lines = std::move(before);
  line("const " + type + " " + name + " = " + text + ";");
  if (!mentions(body, name)) line("(void)" + name + ";");
  append(body);
}

// mod(x, n) == 0, or several of them joined by &&.
static void multiples_in(sym::Expr e, std::vector<std::pair<sym::Expr, int64_t>>& out) {
  if (e->op == sym::Op::logical_and) {
    multiples_in(e.arg(0), out);
    multiples_in(e.arg(1), out);
  } else if (e->op == sym::Op::eq) {
    for (int i : {0, 1})
      if (const sym::Expr m = e.arg(i); m->op == sym::Op::mod && m.arg(1).is_const() && e.arg(1 - i).is_const(0))
        out.push_back({m.arg(0), m.arg(1).value()});
  }
}

void KernelPrinter::print_branch(const loop::StmtNode& s) {
  hint_ = "i";
  const std::string condition = value(s.value).s;
  const auto outside = multiples_;
  if (s.value->op == loop::Op::index) multiples_in(s.value->value, multiples_);
  const auto arm = [&](size_t i) {
    open(false);
    print(s.body[i]);
    return close();
  };
  const std::string then = arm(0);
  multiples_ = outside;
  if (s.body.size() == 1) return in_braces("if (" + condition + ")", then);
  const std::string otherwise = arm(1);  // before anything is written: it may put locals in front of the branch
  line("if (" + condition + ") {");
  append(then);
  line("} else {");
  append(otherwise);
  line("}");
}

// The index that is checked is used clamped by its Let; here only the error is recorded.
void KernelPrinter::print_check(const loop::StmtNode& s) {
  hint_ = "at";
  const std::string v = within(index(s.var), kSum), limit = within(index(s.extent), kSum);
  const bool may_be_negative = sym::bounds(s.var).lo < 0;
  line("if (" + (may_be_negative ? v + " < 0 || " : std::string()) + v + " >= " + limit + ") report(error, " +
       std::to_string(s.site) + ", " + v + ", " + limit + ");");
}

}  // namespace tripod::cuda
