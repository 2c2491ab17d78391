// The kernel as a whole: its axes, its signature, narrow and wide.
#include "backends/cuda/cuda_c.h"

#include <algorithm>
#include <cstdint>
#include <functional>

#include "backends/cuda/printer.h"

namespace tripod::cuda {

using loop::LoopKind;
using loop::StmtKind;

namespace {

// What a 32-bit index may count to, with room for the rounding up of a grid.
constexpr int64_t kNarrowLimit = INT32_MAX - (1 << 20);
constexpr int64_t kGridLimit = 65535;  // of y and z

int grid_axis(LoopKind k) { return k >= LoopKind::grid_x && k <= LoopKind::grid_z ? static_cast<int>(k) - static_cast<int>(LoopKind::grid_x) : -1; }
int block_axis(LoopKind k) { return k >= LoopKind::block_x && k <= LoopKind::block_z ? static_cast<int>(k) - static_cast<int>(LoopKind::block_x) : -1; }

sym::Expr axis_var(sym::Context& c, const std::string& name, sym::Expr extent) {
  const sym::Range r = sym::bounds(extent);
  const sym::Expr v = c.var(name, {0, r.hi == sym::Range::kMax ? r.hi : std::max<int64_t>(r.hi - 1, 0)});
  if (!extent.is_const()) c.assume_below(v, extent);
  return v;
}

Axes find_axes(const loop::Function& f, sym::Context& c) {
  Axes axes;
  std::string block_name[3];
  int64_t warps = 0;
  loop::visit(f.body, [&](const loop::Stmt& s) {
    if (s->kind != StmtKind::loop) return;
    if (s->loop_kind == LoopKind::warp) {
      TRIPOD_CHECK(s->extent.is_const(), "a loop over warps of kernel " + f.name + " has no constant extent");
      warps = std::max(warps, s->extent.value());
    } else if (const int a = grid_axis(s->loop_kind); a >= 0) {
      TRIPOD_CHECK(!axes.grid[a], "two loops of kernel " + f.name + " are bound to one grid axis");
      axes.grid[a] = s->extent;
      axes.grid_var[a] = axis_var(c, s->var->name, s->extent);
    } else if (const int b = block_axis(s->loop_kind); b >= 0) {
      sym::Expr& e = axes.block[b];
      if (!e) block_name[b] = s->var->name;
      TRIPOD_CHECK(!e || e == s->extent || (e.is_const() && s->extent.is_const()),
                   "the thread loops of kernel " + f.name + " have different extents");
      if (!e || (e.is_const() && s->extent.value() > e.value())) e = s->extent;
    }
  });
  if (warps > 0) {
    sym::Expr& x = axes.block[0];
    if (!x) x = c.constant(warps * 32), block_name[0] = "thread";
    TRIPOD_CHECK(x.is_const() && x.value() % 32 == 0 && x.value() >= warps * 32 && !axes.block[1] && !axes.block[2],
                 "the loops over warps and over threads of kernel " + f.name + " do not fit each other");
    axes.warp_var = c.var("warp", {0, x.value() / 32 - 1});
    axes.lane_var = c.var("lane", {0, 31});
  }
  for (int a = 0; a < 3; ++a) {
    if (axes.block[a]) axes.block_var[a] = axis_var(c, block_name[a], axes.block[a]);
    if (!axes.block[a]) axes.block[a] = c.constant(1);
    if (!axes.grid[a]) axes.grid[a] = c.constant(1);
  }
  return axes;
}

// Takes the bound loops away, their variables become those of the axes. What only some threads may do (a store beside
// or outside the thread loops) gets a condition.
struct Bind : loop::Rewriter {
  Bind(const Axes& axes) : axes(axes) {}
  const Axes& axes;
  sym::Map vars;
  bool bound[3] = {};

  loop::Stmt rewrite(const loop::Stmt& s) override {
    if (s->kind == StmtKind::loop) {
      const bool warp = s->loop_kind == LoopKind::warp;
      const int g = grid_axis(s->loop_kind), b = block_axis(s->loop_kind);
      if (g < 0 && b < 0 && !warp) return nullptr;
      const sym::Expr var = warp ? axes.warp_var : g >= 0 ? axes.grid_var[g] : axes.block_var[b];
      forget();
      vars[s->var] = var;
      if (b >= 0) bound[b] = true;
      loop::Stmt body = apply(s->body[0]);
      if (b >= 0) bound[b] = false;
      forget();
      const bool some = warp ? s->extent.value() * 32 < axes.block[0].value() : b >= 0 && !(s->extent == axes.block[b]);
      if (some)
        body = loop::branch(loop::from_index(DType::b1, sym::lt(var, s->extent)), body);
      return body;
    }
    const bool visible = s->kind == StmtKind::check || (s->kind == StmtKind::store && s->buffer->scope != loop::Scope::reg &&
                                                        s->buffer->scope != loop::Scope::local);
    if (!visible) return nullptr;
    sym::Expr one_thread;
    for (int a = 0; a < 3; ++a)
      if (axes.block_var[a] && !bound[a]) {
        const sym::Expr first = sym::eq(axes.block_var[a], 0);
        one_thread = one_thread ? sym::logical_and(one_thread, first) : first;
      }
    if (!one_thread) return nullptr;
    return loop::branch(loop::from_index(DType::b1, one_thread), Rewriter::rewrite_children(s));
  }
  sym::Expr rewrite_index(sym::Expr i) override { return sym::substitute(i, vars); }
};

// The condition under which 32 bits hold every index: no buffer, and no nest of loops, counts further. Empty: always.
struct Narrow {
  struct Limit {
    sym::Expr inside, of;
    int64_t most;
  };
  sym::Context& c;
  std::vector<Limit> limits;
  bool always = true;
  sym::Expr inside;  // what the branches around say of dims; empty: nothing
  void require(sym::Expr count) {
    if (sym::bounds(count).hi <= kNarrowLimit) return;
    always = false;
    int64_t constant = 0;
    const std::vector<sym::Term> ts = sym::terms(count, constant);
    const bool scaled = ts.size() == 1 && constant == 0 && ts[0].coefficient > 0;
    const sym::Expr of = scaled ? ts[0].factor : count;
    const int64_t limit = kNarrowLimit / (scaled ? ts[0].coefficient : 1);
    for (Limit& l : limits)
      if (l.inside == inside && l.of == of) return void(l.most = std::min(l.most, limit));
    limits.push_back({inside, of, limit});
  }
  sym::Expr condition() const {
    sym::Expr all;
    for (const Limit& l : limits) {
      sym::Expr holds = sym::le(l.of, l.most);
      if (l.inside) holds = sym::logical_or(sym::logical_not(l.inside), holds);
      all = all ? sym::logical_and(all, holds) : holds;
    }
    return all;
  }
  // `counts`: extents of the loops around. A grid that depends on what a branch asks is known inside of the branch.
  void loops(const loop::Stmt& s, std::vector<sym::Expr> counts) {
    if (s->kind == StmtKind::branch && s->value->op == loop::Op::index && only_dims(s->value->value)) return arms(s, counts);
    if (s->kind == StmtKind::loop) {
      const int64_t most = sym::bounds(s->extent).hi;
      if (only_dims(s->extent)) counts.push_back(s->extent);
      // A thread's share of a loop, or what is left of it: no more than the buffers that it runs over, which are asked.
      else if (most <= kNarrowLimit) counts.push_back(c.constant(most));
    }
    if (s->kind == StmtKind::alloc) require_if_dims(loop::storage_size(c, s->buffer));
    bool leaf = true;
    for (const loop::Stmt& b : s->body) loops(b, counts), leaf = false;
    if (leaf) require_if_dims(sym::product(c, counts));
  }
  void arms(const loop::Stmt& s, const std::vector<sym::Expr>& counts) {
    const sym::Expr asked = s->value->value, around = inside;
    for (size_t i = 0; i < s->body.size(); ++i) {
      const sym::Expr holds = i == 0 ? asked : sym::logical_not(asked);
      std::vector<sym::Expr> known = counts;
      for (sym::Expr& e : known)
        if (e->op == sym::Op::select && e.arg(0) == asked) e = e.arg(i == 0 ? 1 : 2);
      inside = around ? sym::logical_and(around, holds) : holds;
      loops(s->body[i], known);
    }
    inside = around;
  }
  std::vector<sym::Expr> dims;
  bool only_dims(sym::Expr e) const {
    for (sym::Expr v : sym::variables(e))
      if (std::find(dims.begin(), dims.end(), v) == dims.end()) return false;
    return true;
  }
  void require_if_dims(sym::Expr e) {
    if (only_dims(e)) require(e);
  }
};

}  // namespace

KernelPrinter::KernelPrinter(const loop::Function& f, const Axes& axes, sym::Context& c, bool narrow, const BoundsSite& bounds)
    : f_(f), axes_(axes), c_(c), narrow_(narrow), bounds_(bounds) {}

// Grid and thread numbers. An axis y or z of the grid that may exceed 65535 is folded into x: block = (z*Y + y)*X + x.
void KernelPrinter::declare_axes() {
  static constexpr char kAxis[] = "xyz";
  const auto declare = [&](sym::Expr var, const std::function<std::string()>& text) {
    const std::string name = unique(var->name, 0);
    bind(var, name, 0);
    lazy_[var] = [this, name, text] { return "const " + index_type() + " " + name + " = " + text() + ";"; };
  };
  for (int a = 0; a < 3; ++a) {
    geometry_.block[a] = axes_.block[a];
    geometry_.grid[a] = axes_.grid[a];
  }
  const bool fold = sym::bounds(axes_.grid[1]).hi > kGridLimit || sym::bounds(axes_.grid[2]).hi > kGridLimit;
  if (fold) {
    geometry_.grid[0] = axes_.grid[0] * axes_.grid[1] * axes_.grid[2];
    geometry_.grid[1] = geometry_.grid[2] = c_.constant(1);
  }
  if (axes_.warp_var) {
    declare(axes_.warp_var, [] { return "threadIdx.x / 32"; });
    declare(axes_.lane_var, [] { return "threadIdx.x % 32"; });
  }
  const std::string block = "(" + index_type() + ")blockIdx.x";
  for (int a = 0; a < 3; ++a) {
    if (axes_.block_var[a]) declare(axes_.block_var[a], [a] { return std::string("threadIdx.") + kAxis[a]; });
    if (!axes_.grid_var[a]) continue;
    if (!fold) {
      declare(axes_.grid_var[a], [a] { return std::string("blockIdx.") + kAxis[a]; });
      continue;
    }
    sym::Expr before = c_.constant(1);
    bool last = true;
    for (int b = 0; b < a; ++b) before = before * axes_.grid[b];
    for (int b = a + 1; b < 3; ++b) last = last && axes_.grid[b].is_const(1);
    declare(axes_.grid_var[a], [=, this] {
      std::string text = before.is_const(1) ? block : block + " / " + within(index(before, 0), kUnary);
      if (!last) text += " % " + within(index(axes_.grid[a], 0), kUnary);
      return text;
    });
  }
}

std::string KernelPrinter::comment() const {
  std::string s;
  for (const Site& site : f_.origins) {
    const std::string text = site.text();
    s += "// ";
    for (char ch : text) s += ch == '\n' || ch == '\\' ? ' ' : ch;  // a backslash at the end would swallow the next line
    s += "\n";
  }
  if (!f_.rule.empty()) s += "// rule: " + f_.rule + "\n";
  return s;
}

std::string KernelPrinter::signature(const std::string& symbol) const {
  const sym::Expr threads = axes_.block[0] * axes_.block[1] * axes_.block[2];
  std::string s = "extern \"C\" __global__ void __launch_bounds__(" + std::to_string(threads.is_const() ? threads.value() : 1024) + ")\n";
  std::string line = symbol + "(tp_error* error";
  const auto add = [&](const std::string& p) {
    line += ",";
    if (line.size() + p.size() > 116) s += line + "\n", line = "   ";
    line += " " + p;
  };
  for (size_t i = 0; i < f_.params.size(); ++i) {
    const bool is_input = i + static_cast<size_t>(f_.num_outputs) < f_.params.size();
    add((is_input ? "const " : "") + memory_type(f_.params[i]->dtype) + "* __restrict__ " + params_[i]);
  }
  for (const std::string& d : dim_params_) add("long long " + d);
  return s + line + ") {\n";
}

std::string KernelPrinter::run(const std::string& symbol) {
  scopes_.emplace_back();
  scopes_[0].names = {"error", symbol};
  symbol_ = symbol;
  for (const loop::Buffer& b : f_.params) {
    params_.push_back(unique(b->name, 0));
    buffers_[b.get()] = {params_.back(), {}, 0};
  }
  for (sym::Expr d : f_.dims) {
    const std::string name = unique(d->name, 0);
    dim_params_.push_back(narrow_ ? unique(name + "_dim", 0) : name);
    bind(d, name, 0);
    if (narrow_) lazy_[d] = [name, from = dim_params_.back()] { return "const int " + name + " = (int)" + from + ";"; };
  }
  declare_axes();
  choose_shared();
  print(f_.body);
  return comment() + signature(symbol) + scopes_[0].lines + "}\n";
}

std::vector<CudaKernel> print_kernel(const loop::Function& f, const std::string& symbol, sym::Context& c, const BoundsSite& bounds) {
  const Axes axes = find_axes(f, c);
  loop::Function bound = f;
  bound.body = Bind(axes).apply(f.body);
  Narrow narrow{c, {}, true, {}, f.dims};
  for (const loop::Buffer& b : f.params) narrow.require(loop::storage_size(c, b));
  for (sym::Expr d : f.dims) narrow.require(d), narrow.require(-d);
  narrow.loops(f.body, {});
  const auto print = [&](const std::string& name, bool is_narrow) {
    KernelPrinter p(bound, axes, c, is_narrow, bounds);
    CudaKernel k;
    k.symbol = name;
    k.source = p.run(name);
    k.geometry = p.geometry();
    return k;
  };
  std::vector<CudaKernel> kernels{print(symbol, true)};
  if (narrow.always) return kernels;
  kernels[0].narrow = narrow.condition();
  kernels.push_back(print(symbol + "_wide", false));
  return kernels;
}

}  // namespace tripod::cuda
