#include "loop/interpreter.h"

#include <algorithm>
#include <unordered_map>

#include "loop/interpreter_memory.h"
#include "loop/scalar.h"

namespace tripod::loop {
namespace {

constexpr size_t kMaxViolations = 20;

// The nodes of an expression in an order of evaluation, each once.
struct Program {
  struct Step {
    const ExprNode* node;
    int args[3] = {0, 0, 0};  // positions of earlier steps; load: args[0] is `other`
  };
  std::vector<Step> steps;
};

int compile_expr(const Expr& e, Program& p, std::unordered_map<const ExprNode*, int>& at) {
  if (const auto it = at.find(e.get()); it != at.end()) return it->second;
  TRIPOD_CHECK(!is_math(e->op), std::string(name(e->op)) + " must be expanded before interpretation");
  Program::Step s{e.get()};
  for (size_t i = 0; i < e->args.size(); ++i) s.args[i] = compile_expr(e->args[i], p, at);
  if (e->other) s.args[0] = compile_expr(e->other, p, at);
  p.steps.push_back(s);
  return at[e.get()] = static_cast<int>(p.steps.size()) - 1;
}

// A buffer as it exists now: its shape in numbers, and its cells (for thread-private scopes: those of each thread).
struct Instance {
  std::vector<int64_t> shape;
  int64_t size = 0;
  std::map<int64_t, std::unique_ptr<Cells>> cells;
};

class Interpreter {
 public:
  Interpreter(const Function& f, const sym::Values& dims, std::vector<Memory>& params, const InterpretOptions& o)
      : f_(f), options_(o), env_(dims) {
    TRIPOD_CHECK(params.size() == f.params.size(), "interpret: one memory a parameter");
    for (size_t i = 0; i < f.params.size(); ++i) {
      const Buffer& b = f.params[i];
      Instance& in = create(b);
      TRIPOD_CHECK(static_cast<int64_t>(params[i].bytes.size()) >= byte_size(b->dtype, in.size),
                   "interpret: the memory of " + b->name + " is too small");
      auto cells = std::make_unique<Cells>(b->dtype, in.size, &params[i].bytes);
      if (i + static_cast<size_t>(f.num_outputs) < f.params.size()) cells->mark_written();
      in.cells[0] = std::move(cells);
    }
  }

  InterpretResult run() {
    exec(f_.body);
    return std::move(result_);
  }

 private:
  // --- indices and memory ---

  int64_t value(Index i) {
    if (i.is_const()) return i.value();
    try {
      return sym::evaluate(i, env_);
    } catch (const sym::Overflow& o) {
      violation("index " + sym::text(i) + ": " + o.what());
      return 0;
    }
  }
  bool holds(Index guard) { return !guard || value(guard) != 0; }

  Instance& create(const Buffer& b) {
    Instance& in = memory_[b.get()];
    in = {};
    for (Index d : b->shape) in.shape.push_back(value(d));
    in.size = 1;
    for (Index d : b->layout.is_row_major() ? b->shape : b->layout.extents) in.size *= value(d);
    TRIPOD_CHECK(in.size >= 0, "buffer " + b->name + " has a negative size");
    return in;
  }

  // Registers and local memory belong to a thread, also when they are allocated around the loop over threads; where
  // the layout names the thread, all threads' parts are one buffer.
  Cells& cells(const Buffer& b, Instance& in) {
    const bool is_private = (b->scope == Scope::reg || b->scope == Scope::local) && b->layout.thread_dims == 0;
    auto& c = in.cells[is_private ? place_.thread : 0];
    if (!c) c = std::make_unique<Cells>(b->dtype, in.size, nullptr);
    return *c;
  }

  // The offset of an access, or -1 when it is outside.
  int64_t locate(const Buffer& b, const Instance& in, const std::vector<int64_t>& index, const char* what) {
    bool inside = true;
    for (size_t d = 0; d < index.size(); ++d) inside = inside && index[d] >= 0 && index[d] < in.shape[d];
    if (!inside) return violation(std::string(what) + " of " + at(b, index) + " outside its shape"), -1;
    const Layout& l = b->layout;
    int64_t offset = 0;
    if (l.is_row_major()) {
      for (size_t d = 0; d < index.size(); ++d) offset = offset * in.shape[d] + index[d];
      return offset;
    }
    for (size_t d = 0; d < index.size(); ++d) env_[l.args[d]] = index[d];
    for (size_t d = 0; d < l.map.size(); ++d) {
      const int64_t i = value(l.map[d]), extent = value(l.extents[d]);
      if (i < 0 || i >= extent) return violation(std::string(what) + " of " + at(b, index) + " outside its layout"), -1;
      offset = offset * extent + i;
    }
    return offset;
  }

  Instance* instance(const Buffer& b) {
    const auto it = memory_.find(b.get());
    if (it != memory_.end()) return &it->second;
    violation("buffer " + b->name + " does not exist here");
    return nullptr;
  }

  uint64_t read(const Buffer& b, const std::vector<int64_t>& index) {
    Instance* in = instance(b);
    const int64_t o = in ? locate(b, *in, index, "read") : -1;
    if (o < 0) return 0;
    uint64_t bits = 0;
    report(cells(b, *in).read(o, place_, checks_races(b), bits), b, index, "read");
    return bits;
  }

  void write(const Buffer& b, const std::vector<int64_t>& index, uint64_t bits) {
    Instance* in = instance(b);
    const int64_t o = in ? locate(b, *in, index, "write") : -1;
    if (o < 0) return;
    report(cells(b, *in).write(o, place_, checks_races(b), bits), b, index, "write");
  }
  // Registers that their layout gives to threads: warps and their threads share no address, whoever the loop names.
  bool checks_races(const Buffer& b) const { return options_.check_races && b->layout.thread_dims == 0; }

  std::vector<int64_t> values(const std::vector<Index>& is) {
    std::vector<int64_t> v;
    for (Index i : is) v.push_back(value(i));
    return v;
  }

  // --- expressions ---

  uint64_t eval(const Expr& e) {
    Program& p = programs_[e.get()];
    if (p.steps.empty()) {
      std::unordered_map<const ExprNode*, int> at;
      compile_expr(e, p, at);
    }
    std::vector<uint64_t> v(p.steps.size());
    for (size_t i = 0; i < v.size(); ++i) v[i] = eval_step(p.steps[i], v);
    return v.back();
  }

  uint64_t eval_step(const Program::Step& s, const std::vector<uint64_t>& v) {
    const ExprNode& e = *s.node;
    const auto arg = [&](int i) { return v[static_cast<size_t>(s.args[i])]; };
    switch (e.op) {
      case Op::constant: return e.bits;
      case Op::index: return bits_from_int(e.dtype, value(e.value));
      case Op::load: return holds(e.guard) ? read(e.buffer, values(e.indices)) : arg(0);
      case Op::cast: return convert(e.args[0]->dtype, e.dtype, arg(0));
      case Op::bitcast: return canonical_bits(e.dtype, arg(0));
      default: break;
    }
    const uint64_t args[3] = {arg(0), arg(1), arg(2)};
    return apply(e.op, e.args.back()->dtype, args);
  }

  // --- statements ---

  void exec(const Stmt& s) {
    if (++steps_ > options_.max_steps) internal_error(__FILE__, __LINE__, "interpret: too many steps");
    switch (s->kind) {
      case StmtKind::seq:
        for (const Stmt& b : s->body) exec(b);
        break;
      case StmtKind::loop: exec_loop(s); break;
      case StmtKind::block: exec_block(s); break;
      case StmtKind::store:
        if (holds(s->guard)) {
          const uint64_t v = eval(s->value);
          write(s->buffer, values(s->indices), v);
        }
        break;
      case StmtKind::let:
        env_[s->var] = static_cast<int64_t>(eval(s->value));
        exec(s->body[0]);
        break;
      case StmtKind::branch:
        if (eval(s->value)) exec(s->body[0]);
        else if (s->body.size() > 1) exec(s->body[1]);
        break;
      case StmtKind::alloc:
        create(s->buffer);
        exec(s->body[0]);
        memory_.erase(s->buffer.get());
        break;
      case StmtKind::check: {
        const int64_t got = value(s->var), limit = value(s->extent);
        if (got < 0 || got >= limit) result_.failed_checks.push_back({s->site, got, limit});
        break;
      }
      case StmtKind::tile: exec_tile(s); break;
      case StmtKind::sync: ++place_.epoch; break;  // asynchronous copies are done at once
    }
  }

  void exec_loop(const Stmt& s) {
    const int64_t extent = value(s->extent);
    const Place outer = place_;
    const LoopKind k = s->loop_kind;
    const bool blocks = k == LoopKind::parallel || (k >= LoopKind::grid_x && k <= LoopKind::cluster_x);
    const bool threads = k >= LoopKind::block_x;
    if ((blocks || threads) && outer.region == 0) place_.region = ++regions_;
    if (k == LoopKind::vector && outer.lanes == 0) place_.lanes = ++lane_runs_;
    // Numbers that differ between iterations, and between loops that are bound to different axes.
    const auto number = [&](int64_t of, int64_t i) { return of * 1048583 + (i + 1) * 32 + static_cast<int64_t>(k); };
    for (int64_t i = 0; i < extent; ++i) {
      env_[s->var] = i;
      if (blocks) place_.block = number(outer.block, i);
      if (threads) place_.thread = number(outer.thread, i);
      if (k == LoopKind::vector) place_.lane = number(outer.lane, i);
      exec(s->body[0]);
    }
    const int64_t epoch = place_.epoch;
    place_ = outer;
    place_.epoch = epoch;
  }

  void exec_block(const Stmt& s) {
    if (std::any_of(s->iters.begin(), s->iters.end(), [](const Iter& i) { return !i.binding; })) {
      std::vector<const Iter*> spatial, reduce;
      for (const Iter& i : s->iters) (i.reduce ? reduce : spatial).push_back(&i);
      return over(spatial, 0, [&] {
        if (s->init) {
          for (const Iter* i : reduce) env_[i->var] = 0;
          exec(s->init);
        }
        over(reduce, 0, [&] { exec_point(s); });
      });
    }
    bool first = true;
    for (const Iter& i : s->iters) {
      const int64_t v = value(i.binding);
      env_[i.var] = v;
      if (i.reduce && v != 0) first = false;
    }
    if (!holds(s->predicate)) return;
    for (const Iter& i : s->iters)
      if (const int64_t v = env_[i.var], extent = value(i.extent); v < 0 || v >= extent)
        violation("block " + s->name + ": iterator " + i.var->name + " is " + std::to_string(v) + " of " +
                  std::to_string(extent));
    if (s->init && first) exec(s->init);
    exec_point(s);
  }

  template <class F>
  void over(const std::vector<const Iter*>& iters, size_t at, F f) {
    if (at == iters.size()) return f();
    const int64_t extent = value(iters[at]->extent);
    for (int64_t i = 0; i < extent; ++i) {
      env_[iters[at]->var] = i;
      over(iters, at + 1, f);
    }
  }

  void exec_point(const Stmt& s) {
    ++result_.executions[s->name];
    exec(s->body[0]);
  }

  // --- tiles ---

  // A region in numbers, without its dims of extent 1.
  struct Box {
    Buffer buffer;
    std::vector<int64_t> offset, extent;
    std::vector<size_t> dims;
    int64_t size(size_t d) const { return d < dims.size() ? extent[dims[d]] : 1; }
    std::vector<int64_t> at(std::initializer_list<int64_t> point) const {
      std::vector<int64_t> index = offset;
      size_t d = 0;
      for (int64_t p : point)
        if (d < dims.size()) index[dims[d++]] += p;
      return index;
    }
    int64_t points() const {
      int64_t n = 1;
      for (int64_t e : extent) n *= e;
      return n;
    }
    std::vector<int64_t> nth(int64_t n) const {
      std::vector<int64_t> index = offset;
      for (size_t d = index.size(); d-- > 0; n /= extent[d]) index[d] += n % extent[d];
      return index;
    }
  };

  Box box(const Region& r, size_t keep) {
    Box b{r.buffer, values(r.offset), values(r.extent), {}};
    for (size_t d = 0; d < b.extent.size(); ++d)
      if (b.extent[d] != 1) b.dims.push_back(d);
    // A matrix with one row or column keeps its last dims.
    if (b.dims.size() != keep && b.extent.size() >= keep) {
      b.dims.clear();
      for (size_t d = b.extent.size() - keep; d < b.extent.size(); ++d) b.dims.push_back(d);
    }
    return b;
  }

  void exec_tile(const Stmt& s) {
    switch (s->tile) {
      case TileOp::copy: return holds(s->guard) ? exec_copy(box(s->regions[0], 0), box(s->regions[1], 0)) : exec_zeros(box(s->regions[0], 0));
      case TileOp::mma: return exec_mma(box(s->regions[0], 2), box(s->regions[1], 2), box(s->regions[2], 2));
      case TileOp::reduce_sum:
      case TileOp::reduce_max:
        if (s->regions[1].buffer->layout.thread_dims > 0) return exec_reduce_threads(*s, box(s->regions[0], 0), box(s->regions[1], 0));
        return exec_reduce(s->tile, box(s->regions[0], 1), box(s->regions[1], 2));
      case TileOp::elementwise: violation("an elementwise tile has no meaning yet");
    }
  }

  void exec_copy(const Box& to, const Box& from) {
    if (to.points() != from.points()) return violation("a tile copy between regions of different size");
    for (int64_t i = 0; i < to.points(); ++i)
      write(to.buffer, to.nth(i), convert(from.buffer->dtype, to.buffer->dtype, read(from.buffer, from.nth(i))));
  }

  void exec_zeros(const Box& to) {
    for (int64_t i = 0; i < to.points(); ++i) write(to.buffer, to.nth(i), 0);
  }

  void exec_mma(const Box& c, const Box& a, const Box& b) {
    const DType t = c.buffer->dtype;
    for (int64_t m = 0; m < c.size(0); ++m)
      for (int64_t n = 0; n < c.size(1); ++n)
        for (int64_t k = 0; k < a.size(1); ++k) {
          const uint64_t x = convert(a.buffer->dtype, t, read(a.buffer, a.at({m, k})));
          const uint64_t y = convert(b.buffer->dtype, t, read(b.buffer, b.at({k, n})));
          write(c.buffer, c.at({m, n}), multiply_add(t, x, y, read(c.buffer, c.at({m, n}))));
        }
  }

  static uint64_t multiply_add(DType t, uint64_t x, uint64_t y, uint64_t z) {
    const uint64_t args[3] = {x, y, z};
    if (is_float(t)) return apply(Op::fma, t, args);
    const uint64_t sum[2] = {apply(Op::mul, t, args), z};
    return apply(Op::add, t, sum);
  }

  void exec_reduce(TileOp op, const Box& to, const Box& from) {
    const DType t = to.buffer->dtype;
    for (int64_t m = 0; m < from.size(0); ++m)
      for (int64_t k = 0; k < from.size(1); ++k) {
        const uint64_t args[2] = {read(to.buffer, to.at({m})),
                                  convert(from.buffer->dtype, t, read(from.buffer, from.at({m, k})))};
        write(to.buffer, to.at({m}), apply(op == TileOp::reduce_sum ? Op::add : Op::max, t, args));
      }
  }

  // Over the registers of all threads, in the order of backends/cuda/cuda_c.h. The tile itself brings the threads together, so reading
  // their registers is no race; what it writes is one thread's.
  void exec_reduce_threads(const StmtNode& s, const Box& to, const Box& from) {
    const TileOp op = s.tile;
    const DType t = to.buffer->dtype;
    int64_t threads = 1;
    for (int d = 0; d < from.buffer->layout.thread_dims; ++d) threads *= from.extent[static_cast<size_t>(d)];
    const int64_t each = threads ? from.points() / threads : 0;
    const bool by_group = to.buffer->layout.thread_dims > 0;  // every thread gets the result of its group
    const int64_t group = by_group && s.count > 0 ? s.count : 32;
    if (to.points() != (by_group ? from.points() : each) || from.buffer->dtype != t) return violation("a reduction over threads between regions that do not fit");
    if (threads % 32 != 0 || threads > 1024) return violation("a reduction over " + std::to_string(threads) + " threads");
    Instance* in = instance(from.buffer);
    if (!in) return;
    const auto combine = [&](uint64_t a, uint64_t b) {
      const uint64_t args[2] = {a, b};
      return apply(op == TileOp::reduce_sum ? Op::add : Op::max, t, args);
    };
    const auto halves = [&](std::vector<uint64_t> v) {  // element i with element i + distance, distance = 16, 8, 4, 2, 1
      for (size_t distance = by_group ? static_cast<size_t>(group) / 2 : 16; distance > 0; distance /= 2)
        for (size_t i = 0; i < distance; ++i)
          if (i + distance < v.size()) v[i] = combine(v[i], v[i + distance]);
      return v[0];
    };
    for (int64_t e = 0; e < each; ++e) {
      std::vector<uint64_t> warps;
      for (int64_t w = 0; w < threads; w += group) {
        std::vector<uint64_t> lanes(static_cast<size_t>(group));
        for (int64_t l = 0; l < group; ++l) {
          const std::vector<int64_t> index = from.nth((w + l) * each + e);
          const int64_t o = locate(from.buffer, *in, index, "read");
          if (o >= 0) report(cells(from.buffer, *in).read(o, place_, false, lanes[static_cast<size_t>(l)]), from.buffer, index, "read");
        }
        warps.push_back(halves(lanes));
        for (int64_t l = 0; by_group && l < group; ++l) write(to.buffer, to.nth((w + l) * each + e), warps.back());
      }
      if (by_group) continue;
      write(to.buffer, to.nth(e), warps.size() > 1 ? halves(warps) : warps[0]);
    }
  }

  // --- violations ---

  static std::string at(const Buffer& b, const std::vector<int64_t>& index) {
    std::string s = b->name + "[";
    for (size_t d = 0; d < index.size(); ++d) s += (d ? ", " : "") + std::to_string(index[d]);
    return s + "]";
  }
  void report(const std::string& problem, const Buffer& b, const std::vector<int64_t>& index, const char* what) {
    if (!problem.empty()) violation(std::string(what) + " of " + at(b, index) + ": " + problem);
  }
  void violation(std::string what) {
    if (result_.violations.size() < kMaxViolations) result_.violations.push_back(std::move(what));
  }

  const Function& f_;
  const InterpretOptions options_;
  sym::Values env_;
  std::unordered_map<const BufferNode*, Instance> memory_;
  std::unordered_map<const ExprNode*, Program> programs_;
  Place place_;
  int64_t regions_ = 0, lane_runs_ = 0, steps_ = 0;
  InterpretResult result_;
};

}  // namespace

InterpretResult interpret(const Function& f, const sym::Values& dims, std::vector<Memory>& params,
                          const InterpretOptions& options) {
  return Interpreter(f, dims, params, options).run();
}

}  // namespace tripod::loop
