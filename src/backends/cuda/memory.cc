// Buffers: a parameter is a pointer, a register, local or shared buffer an array of its physical shape.
#include <algorithm>

#include "backends/cuda/printer.h"

namespace tripod::cuda {

static void factors(sym::Expr e, std::vector<sym::Expr>& out) {
  if (e->op != sym::Op::mul) return out.push_back(e);
  factors(e.arg(0), out);
  factors(e.arg(1), out);
}

// e is a multiple of n by its own form, or each of its terms is one or has a factor that a branch around says to be one.
bool KernelPrinter::known_multiple(sym::Expr e, int64_t n) const {
  if (e->divisor % n == 0) return true;
  int64_t constant = 0;
  const std::vector<sym::Term> ts = sym::terms(e, constant);
  return constant % n == 0 && std::all_of(ts.begin(), ts.end(), [&](const sym::Term& t) {
    const sym::Expr whole = t.factor * t.coefficient;
    if (whole->divisor % n == 0) return true;
    std::vector<sym::Expr> have;
    factors(whole, have);
    return std::any_of(multiples_.begin(), multiples_.end(), [&](const auto& known) {
      std::vector<sym::Expr> wanted, rest = have;
      factors(known.first, wanted);
      for (sym::Expr f : wanted) {
        const auto it = std::find(rest.begin(), rest.end(), f);
        if (it == rest.end()) return false;
        rest.erase(it);
      }
      return known.second % n == 0;
    });
  });
}

bool is_multiple(sym::Context& c, const loop::Buffer& b, const std::vector<sym::Expr>& indices, int64_t n, const std::function<bool(sym::Expr)>& known) {
  const auto whole = [&](sym::Expr e) { return e->divisor % n == 0 || (known && known(e)); };
  if (whole(loop::offset(c, b, indices))) return true;
  const std::vector<sym::Expr> at = loop::physical_index(b, indices);
  const std::vector<sym::Expr>& extents = b->layout.is_row_major() ? b->shape : b->layout.extents;
  sym::Expr stride = c.constant(1);
  for (size_t d = at.size(); d-- > 0; stride = stride * extents[d])
    if (!whole(at[d] * stride)) return false;
  return true;
}

bool KernelPrinter::is_multiple(const loop::Buffer& b, const std::vector<sym::Expr>& indices, int64_t n) const {
  return cuda::is_multiple(c_, b, indices, n, [&](sym::Expr e) { return known_multiple(e, n); });
}

// A thread's own number, or that of its warp or lane.
bool KernelPrinter::names_thread(sym::Expr e) const {
  for (int a = 0; a < 3; ++a) {
    const sym::Expr v = axes_.block_var[a];
    if (v && (e == v || e == sym::floordiv(v, 32) || e == sym::mod(v, 32))) return true;
  }
  return e.is_const(0) || (axes_.warp_var && (e == axes_.warp_var || e == axes_.lane_var));
}

// The text of an element: `x[n*C + c]` or `tile[k][m]`.
std::string KernelPrinter::element(const loop::Buffer& b, const std::vector<sym::Expr>& indices) {
  const auto it = buffers_.find(b.get());
  TRIPOD_CHECK(it != buffers_.end(), "buffer " + b->name + " has no memory here");
  const Place& p = it->second;
  if (p.extents.empty()) return element_at(b, loop::offset(c_, b, indices));
  const std::vector<sym::Expr> at = loop::physical_index(b, indices);
  std::string s = p.name;
  hint_ = b->name + "_at";
  for (size_t d = 0; d < static_cast<size_t>(p.thread_dims); ++d)
    TRIPOD_CHECK(names_thread(at[d]), "kernel " + f_.name + " reads registers " + b->name + " of another thread: " + sym::text(at[d]));
  for (size_t d = static_cast<size_t>(p.thread_dims); d < at.size(); ++d) s += "[" + index(at[d]).s + "]";
  if (at.size() == static_cast<size_t>(p.thread_dims)) s += "[0]";
  return s;
}

std::string KernelPrinter::element_at(const loop::Buffer& b, sym::Expr offset) {
  hint_ = b->name + "_at";
  const std::string at = index(offset).s;
  if (!bounds_) return buffers_.at(b.get()).name + "[" + at + "]";
  const std::string extent = index(loop::storage_size(c_, b)).s;
  return buffers_.at(b.get()).name + "[inside(error, " + std::to_string(bounds_(symbol_, b->name)) + ", " + at + ", " + extent + ")]";
}

Text KernelPrinter::load(const loop::ExprNode& e) {
  const auto plain = [&]() -> Text {
    if (is_nibble(e.dtype)) {
      hint_ = e.buffer->name + "_at";
      const auto it = buffers_.find(e.buffer.get());
      TRIPOD_CHECK(it != buffers_.end(), "buffer " + e.buffer->name + " has no memory here");
      return {std::string(is_signed(e.dtype) ? "load_i4(" : "load_u4(") + it->second.name + ", " +
              index(loop::offset(c_, e.buffer, e.indices)).s + ")"};
    }
    const std::string s = element(e.buffer, e.indices);
    return e.dtype == DType::b1 ? Text{s + " != 0", kEqual} : Text{s};
  };
  if (!e.guard || e.guard.is_const(1)) return plain();
  hint_ = e.buffer->name + "_i";
  const Text condition = index(e.guard), x = plain(), other = expr(e.other);
  return {within(condition, kOr) + " ? " + within(x, kOr) + " : " + within(other, kConditional), kConditional};
}

void KernelPrinter::store(const loop::Buffer& b, const std::vector<sym::Expr>& indices, const Text& v) {
  if (!is_nibble(b->dtype)) return line(element(b, indices) + " = " + v.s + ";");
  hint_ = b->name + "_at";
  const auto it = buffers_.find(b.get());
  TRIPOD_CHECK(it != buffers_.end(), "buffer " + b->name + " has no memory here");
  line("store_4bit(" + it->second.name + ", " + index(loop::offset(c_, b, indices)).s + ", " + v.s + ");");
}

static int64_t shared_size(const loop::Buffer& b) {
  int64_t elements = 1;
  for (sym::Expr e : b->layout.is_row_major() ? b->shape : b->layout.extents) elements *= e.constant().value_or(0);
  return (byte_size(b->dtype, elements) + 15) / 16 * 16;
}

// Up to 48 KB in all, which is what a kernel may have without asking, are static arrays; otherwise everything lies in
// the dynamic part.
void KernelPrinter::choose_shared() {
  constexpr int64_t kStaticLimit = 48 * 1024;
  int64_t bytes = 0;
  loop::visit(f_.body, [&](const loop::Stmt& s) {
    if (s->kind == loop::StmtKind::alloc && s->buffer->scope == loop::Scope::shared) bytes += shared_size(s->buffer);
    if (s->kind == loop::StmtKind::tile && (s->tile == loop::TileOp::reduce_sum || s->tile == loop::TileOp::reduce_max)) {
      int64_t each = 1;  // results, each with scratch memory of its own (print_block_reduction)
      for (sym::Expr e : s->regions[0].extent) each *= e.constant().value_or(1);
      bytes += each * kReductionScratch;
    }
  });
  dynamic_shared_ = bytes > kStaticLimit;
}

void KernelPrinter::declare_shared(const std::string& type, const std::string& name, const std::string& dims, int64_t bytes) {
  if (!dynamic_shared_) return line("__shared__ __align__(16) " + type + " " + name + dims + ";");
  line(type + " (&" + name + ")" + dims + " = *reinterpret_cast<" + type + " (*)" + dims + ">(tp_shared + " + std::to_string(shared_bytes_) + ");");
  shared_bytes_ += bytes;
  geometry_.shared_bytes = std::max(geometry_.shared_bytes, shared_bytes_);
}

// Registers and local memory: an array a thread.
void KernelPrinter::declare(const loop::Buffer& b) {
  Place p;
  const std::vector<sym::Expr>& extents = b->layout.is_row_major() ? b->shape : b->layout.extents;
  p.thread_dims = b->layout.thread_dims;
  int64_t elements = 1;
  std::string dims;
  for (size_t d = static_cast<size_t>(p.thread_dims); d < extents.size(); ++d) {
    TRIPOD_CHECK(extents[d].is_const(), "buffer " + b->name + " of kernel " + f_.name + " needs a constant size, not " +
                                            sym::text(extents[d]));
    elements *= extents[d].value();
    dims += "[" + std::to_string(is_nibble(b->dtype) ? 0 : extents[d].value()) + "]";
  }
  const bool is_shared = b->scope == loop::Scope::shared;
  p.name = unique(b->name, is_shared ? 0 : scopes_.size() - 1);
  p.extents = extents;
  if (is_nibble(b->dtype)) dims = "[" + std::to_string((elements + 1) / 2) + "]", p.extents.clear();
  if (dims.empty()) dims = "[1]";
  if (p.extents.empty() && !is_nibble(b->dtype)) p.extents = {c_.constant(1)};
  if (!is_shared) {
    const bool vectors = b->scope == loop::Scope::reg && byte_size(b->dtype, elements) >= 16;  // may be moved as such
    line((vectors ? "__align__(16) " : "") + memory_type(b->dtype) + " " + p.name + dims + ";");
    buffers_[b.get()] = p;
    return;
  }
  TRIPOD_CHECK(p.thread_dims == 0, "shared buffer " + b->name + " has thread dims");
  declare_shared(memory_type(b->dtype), p.name, dims, shared_size(b));
  buffers_[b.get()] = p;
}

}  // namespace tripod::cuda
