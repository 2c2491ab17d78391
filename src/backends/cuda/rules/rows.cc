// Reductions over the innermost dims with what surrounds them (softmax, layer norm, row sums): a warp a row for short
// rows, else a block of threads. Memory is read once: what several blocks read, and what they compute for each other,
// stays in slots: registers, and shared memory for the rest of a long row. Where a row is longer than both it is read,
// and computed, again.
//
//   position i of a row   vectors of `wide` neighbours go to the threads in turn: i = (q*threads + t)*wide + lane
//   slot                  of position i: register q*wide + lane of thread t, or from q == vectors on, element
//                         (q - vectors, t*wide + lane) of shared memory, which no other thread touches
//   in place              what is computed of a load that nobody needs any more takes its slot
//   sums and maxima       one partial result a lane, then the lanes in order, then over the threads
//   numbers of a row      computed by every thread for itself
//   open row lengths      variants in one kernel: warp or block, aligned vectors or one by one
//
// Applies when all blocks share their leading spatial iterators (the rows) and what is behind them, reductions are sums
// or maxima, and what the blocks hand to each other is read at the position that wrote it.
#include <algorithm>

#include "backends/cuda/rules/rules.h"
#include "rules/inline.h"
#include "rules/rows.h"

namespace tripod::cuda {

using loop::Iter;
using loop::Op;
using loop::Scope;
using loop::StmtKind;
using loop::StmtNode;

namespace {

constexpr int64_t kWarp = 32, kThreads = 256, kMostThreads = 512;
constexpr int64_t kVectorBytes = 16;
constexpr int64_t kWarpSlotBytes = 128, kSlotBytes = 256;  // of a thread's registers for what is read
constexpr int64_t kLongThreads = 1024, kLongSlotBytes = 128;  // where shared memory helps: 64 registers a thread in all
constexpr int64_t kReserve = 2048;                         // of shared memory, for reductions

// How the positions of a row lie on threads.
struct Shape {
  bool warp = false;        // a warp a row, else a block of threads
  int64_t threads = kThreads, wide = 1, vectors = 1;  // of the block; neighbours together; vectors in registers
  int64_t beyond = 0;                                       // vectors in shared memory
  int64_t per_row() const { return warp ? kWarp : threads; }
  int64_t rows_each() const { return warp ? threads / kWarp : 1; }
  int64_t reach() const { return per_row() * wide * (vectors + beyond); }
};

class Rows : rules::RowBlocks {
 public:
  Rows(const loop::Function& f, sym::Context& c, int64_t shared_bytes) : RowBlocks(f, c), shared_bytes_(shared_bytes) {}

  RuleResult run() {
    std::string why = match(refuse_combiner);
    if (why.empty()) why = canonical();
    if (!why.empty()) return {loop::not_applicable(why), {}};
    find_cached();
    count_ = sym::product(c_, rows_), length_ = sym::product(c_, inner_);
    loop::Function r = f_;
    r.body = length_.is_const() ? alone(fixed_shape(length_.value())) : open();
    return {{true, ""}, r};
  }

 private:
  // --- the blocks over common iterators ---

  struct Part {
    Stmt block;          // as it was: for the combiner and init
    bool reduce, number; // number: one a row
    Buffer to;
    Indices at;
    Expr value;          // of reductions: with the accumulator as it stands
  };

  std::string canonical() {
    for (const Index& e : rows_) row_vars_.push_back(loop_var(c_, "row", e));
    const auto behind = [&](const Stmt& b) {
      Indices extents;
      for (size_t d = rows_.size(); d < b->iters.size(); ++d) extents.push_back(b->iters[d].extent);
      return extents;
    };
    inner_ = behind(*std::find_if(blocks_.begin(), blocks_.end(), [](const Stmt& b) { return reduces(*b); }));
    // One a row, perhaps with dims of 1 behind it.
    const auto is_number_block = [&](const Stmt& b) { return !reduces(*b) && behind(b) != inner_ && sym::product(c_, behind(b)).is_const(1); };
    for (const Stmt& b : blocks_)
      if (behind(b) != inner_ && !is_number_block(b)) return "block " + b->name + " has other dims behind the rows";
    if (inner_.empty()) return "nothing is behind the rows";
    for (const Index& e : inner_) inner_vars_.push_back(loop_var(c_, "k", e));
    for (const Stmt& b : blocks_) {
      sym::Map m;
      for (size_t d = 0; d < b->iters.size(); ++d)
        m[b->iters[d].var] = d < rows_.size() ? row_vars_[d] : is_number_block(b) ? c_.constant(0) : inner_vars_[d - rows_.size()];
      const Stmt s = loop::substitute(b->body[0], m);
      parts_.push_back({b, reduces(*b), is_number_block(b), s->buffer, s->indices, s->value});
    }
    for (const Part& p : parts_)
      if (std::string why = at_own_position(p); !why.empty()) return "block " + p.block->name + why;
    return "";
  }

  bool is_number(const Buffer& b) const { return sym::product(c_, row_shape(b)).is_const(1); }

  // What is internal has one writer, and is read where it was written.
  std::string at_own_position(const Part& p) const {
    std::string why;
    const auto check = [&](const Buffer& b, const Indices& at) {
      if (!is_internal(b) || is_number(b)) return;
      const Indices behind(at.begin() + static_cast<long>(rows_.size()), at.end());
      if (behind != inner_vars_) why = " reads or writes " + b->name + " at another position";
    };
    check(p.to, p.at);
    loop::visit(p.value, [&](const Expr& e) {
      if (e->op == Op::load && e->guard && is_internal(e->buffer)) why = " reads " + e->buffer->name + " under a condition";
      if (e->op == Op::load) check(e->buffer, e->indices);
      if (e->op == Op::load && is_internal(e->buffer) && !e->indices.empty() && p.number && !is_number(e->buffer)) why = " reads one position of " + e->buffer->name;
    });
    int writers = 0;
    for (const Part& o : parts_) writers += o.to == p.to;
    if (is_internal(p.to) && writers > 1) why = " is not the only one to write " + p.to->name;
    if (is_internal(p.to) && !p.number && !p.reduce && is_number(p.to) && !length_is_one()) why = " writes one number many times";
    return why;
  }
  bool length_is_one() const { return sym::product(c_, inner_).is_const(1); }

  // --- what registers keep ---

  static bool same_load(const Expr& a, const Expr& b) { return a->buffer == b->buffer && a->indices == b->indices; }
  bool along_row(const Expr& e) const {
    return std::any_of(inner_vars_.begin(), inner_vars_.end(), [&](Index v) { return rules::uses(e, v); });
  }

  // Loads of parameters that move along the row, and with the rows, and are needed by more than one block.
  void find_cached() {
    std::vector<std::pair<Expr, size_t>> seen;  // and the part that had it first
    for (size_t i = 0; i < parts_.size(); ++i)
      loop::visit(parts_[i].value, [&](const Expr& e) {
        if (e->op != Op::load || is_internal(e->buffer) || e->guard || !along_row(e)) return;
        widest_ = std::max<int64_t>(widest_, info(e->buffer->dtype).bits / 8);
        const bool with_rows = std::any_of(row_vars_.begin(), row_vars_.end(), [&](Index v) { return rules::uses(e, v); });
        if (!with_rows || info(e->buffer->dtype).bits < 8) return;
        const auto same = [&](const auto& s) { return same_load(s.first, e); };
        const auto it = std::find_if(seen.begin(), seen.end(), same);
        if (it == seen.end()) seen.push_back({e, i});
        else if (it->second != i && std::none_of(cached_.begin(), cached_.end(), [&](const Expr& k) { return same_load(k, e); })) cached_.push_back(e);
      });
    for (const Part& p : parts_)
      if (!p.number && !p.reduce && !is_internal(p.to)) widest_ = std::max<int64_t>(widest_, info(p.to->dtype).bits / 8);
    for (const Expr& e : cached_) slot_bytes_ += info(e->buffer->dtype).bits / 8;
    for (size_t i = 0; i < parts_.size(); ++i)
      if (kept(parts_[i]) && !find_place(i)) slot_bytes_ += info(parts_[i].to->dtype).bits / 8;
    if (slot_bytes_ == 0) slot_bytes_ = widest_;
  }
  // A cached load of the part's type that no later part needs, and no other part has taken.
  bool find_place(size_t part) {
    for (size_t k = 0; k < cached_.size(); ++k) {
      bool free = cached_[k]->buffer->dtype == parts_[part].to->dtype;
      for (const auto& [other, taken] : in_place_) free = free && taken != k;
      for (size_t i = part + 1; i < parts_.size(); ++i)
        loop::visit(parts_[i].value, [&](const Expr& e) { free = free && !(e->op == Op::load && same_load(e, cached_[k])); });
      if (free) return in_place_[parts_[part].to.get()] = k, true;
    }
    return false;
  }
  bool kept(const Part& p) const { return is_internal(p.to) && !p.number && !p.reduce; }

  // --- shapes ---

  int64_t vector_of(int64_t length) const {
    int64_t wide = std::max<int64_t>(1, kVectorBytes / widest_);
    while (wide > 1 && (length % wide != 0 || length < kWarp * wide)) wide /= 2;
    return wide;
  }
  static int64_t up_to_power(int64_t n, int64_t least, int64_t most) {
    while (least < n && least < most) least *= 2;
    return least;
  }
  Shape fixed_shape(int64_t length) const {
    Shape s;
    s.wide = vector_of(length);
    const int64_t vectors = (length + s.wide - 1) / s.wide, bytes = s.wide * widest_;
    if (vectors * bytes <= kWarp * kWarpSlotBytes) {
      s.warp = true;
      s.vectors = std::max<int64_t>(1, (vectors + kWarp - 1) / kWarp);
      return s;
    }
    s.threads = up_to_power((vectors + 3) / 4, 64, kMostThreads);
    s.vectors = std::min((vectors + s.threads - 1) / s.threads, most_vectors(s.wide));
    return s.reach() < length ? long_shape(s, vectors) : s;
  }
  // Registers do not hold the row. With shared memory, if that is enough for the rest.
  Shape long_shape(const Shape& otherwise, int64_t vectors) const {
    Shape s = otherwise;
    const int64_t vector_bytes = s.wide * slot_bytes_;
    s.threads = kLongThreads;
    s.vectors = kLongSlotBytes / vector_bytes;
    s.beyond = (vectors + s.threads - 1) / s.threads - s.vectors;
    return s.vectors > 0 && s.beyond * s.threads * vector_bytes + kReserve <= shared_bytes_ ? s : otherwise;
  }
  int64_t most_vectors(int64_t wide) const { return std::max<int64_t>(1, kSlotBytes / (wide * slot_bytes_)); }

  Stmt alone(const Shape& s) {
    return grid(c_, sym::ceildiv(count_, s.rows_each()), [&](Index block) { return rows_of(s, block); });
  }

  // The length is open: short rows of whole vectors, long ones, and those that are no whole vectors.
  Stmt open() {
    Shape warp, block, single;
    warp.warp = true;
    warp.wide = block.wide = std::max<int64_t>(1, kVectorBytes / widest_);
    warp.vectors = kWarpSlotBytes / (warp.wide * widest_);
    block.vectors = std::min<int64_t>(8, most_vectors(block.wide));
    single.vectors = std::min<int64_t>(8, most_vectors(1));
    const Index whole = sym::eq(sym::mod(length_, warp.wide), c_.constant(0)), is_short = sym::le(length_, warp.reach());
    const Index few = sym::logical_and(whole, is_short);
    const auto holds = [](Index i) { return loop::from_index(DType::b1, i); };
    return grid(c_, sym::select(few, sym::ceildiv(count_, warp.rows_each()), count_), [&](Index at) {
      Stmt aligned = rows_of(warp, at);
      if (!sym::proved(is_short)) aligned = loop::branch(holds(is_short), aligned, rows_of(block, at));
      return sym::proved(whole) ? aligned : loop::branch(holds(whole), aligned, rows_of(single, at));
    });
  }

  // --- the code of a block of threads ---

  // Where a statement stands: thread t of the block, and perhaps a position of its row.
  struct Here {
    Index thread, position, slot;  // slot: empty where the position has none; else its last index
    Index row = {};                // of the slots in shared memory; empty: in registers
  };
  // What has a slot at every position.
  struct Slots {
    Buffer registers, beyond;
  };
  struct Local {
    Slots slots;                   // or only a number, in slots.registers
    bool shared = false;
  };
  Slots make_slots(const std::string& name, DType t) {
    Slots s{keep(per_thread(c_, name, t, shape_.threads, {c_.constant(shape_.vectors * shape_.wide)})), {}};
    if (shape_.beyond > 0) s.beyond = keep(loop::make_buffer(name + "_beyond", t, {c_.constant(shape_.beyond), c_.constant(shape_.threads * shape_.wide)}, Scope::shared));
    return s;
  }
  static Expr load_slot(const Slots& s, const Here& h) { return h.row ? loop::load(s.beyond, {h.row, h.slot}) : loop::load(s.registers, {h.thread, h.slot}); }
  static Stmt store_slot(const Slots& s, const Here& h, const Expr& v) {
    return h.row ? loop::store(s.beyond, {h.row, h.slot}, v) : loop::store(s.registers, {h.thread, h.slot}, v);
  }

  Stmt rows_of(const Shape& s, Index block) {
    shape_ = s, block_ = block;
    caches_.clear(), locals_.clear(), allocs_.clear();
    std::vector<Stmt> all;
    for (const Expr& e : cached_) caches_.push_back(make_slots(e->buffer->name + "_row", e->buffer->dtype));
    if (!cached_.empty())
      all.push_back(each_position([&](const Here& h) -> Stmt {
        if (!h.slot) return nullptr;
        std::vector<Stmt> loads;
        for (size_t i = 0; i < cached_.size(); ++i)
          loads.push_back(store_slot(caches_[i], h, loop::substitute(cached_[i], position_map(h))));
        return loop::seq(loads);
      }));
    for (const Part& p : parts_) p.reduce ? reduction(p, all) : p.number ? number(p, all) : along(p, all);
    Stmt body = loop::seq(all);
    for (const Buffer& b : allocs_) body = loop::alloc(b, body);
    return body;
  }
  Buffer keep(const Buffer& b) { return allocs_.push_back(b), b; }

  Index in_row(Index thread) const { return shape_.warp ? sym::mod(thread, kWarp) : thread; }
  Index row(Index thread) const { return shape_.warp ? block_ * shape_.rows_each() + sym::floordiv(thread, kWarp) : block_; }
  // The last warps of the last block may have no row: they compute the last one, and store nothing.
  Stmt where_row(Index thread, const std::function<Stmt()>& body) const {
    return shape_.warp ? where(sym::lt(row(thread), count_), body) : body();
  }
  sym::Map row_map(Index thread) const {
    sym::Map m;
    const Indices at = unflatten(shape_.warp ? sym::min(row(thread), count_ - 1) : block_, rows_);
    for (size_t d = 0; d < at.size(); ++d) m[row_vars_[d]] = at[d];
    return m;
  }
  sym::Map position_map(const Here& h) const {
    sym::Map m = row_map(h.thread);
    if (!h.position) return m;
    const Indices at = unflatten(h.position, inner_);
    for (size_t d = 0; d < at.size(); ++d) m[inner_vars_[d]] = at[d];
    return m;
  }

  // Every position of the thread's row that is its own: those with slots, then the others. Null bodies vanish.
  Stmt positions(Index thread, const std::function<Stmt(const Here&)>& body) {
    enum Where { registers, beyond, nowhere };
    const int64_t n = shape_.per_row(), wide = shape_.wide;
    const auto vector_at = [&](Index q, Where place) -> Stmt {
      const Index first = (q * n + in_row(thread)) * wide;
      const auto here = [&](Index lane) -> Here {
        if (place == registers) return {thread, first + lane, q * wide + lane};
        if (place == beyond) return {thread, first + lane, thread * wide + lane, q - shape_.vectors};
        return {thread, first + lane, {}};
      };
      if (!body(here(c_.constant(0)))) return nullptr;
      return where(sym::lt(first, length_), [&] {
        if (wide == 1) return body(here(c_.constant(0)));
        return vector(c_, "lane", wide, [&](Index lane) { return body(here(lane)); });
      });
    };
    const Index zero = c_.constant(0);
    const int64_t slots = shape_.vectors + shape_.beyond;
    std::vector<Stmt> all;
    if (vector_at(zero, registers)) all.push_back(unrolled(c_, "q", shape_.vectors, [&](Index q) { return vector_at(q, registers); }));
    if (shape_.beyond > 0 && vector_at(zero + shape_.vectors, beyond))
      all.push_back(unrolled(c_, "q", shape_.beyond, [&](Index q) { return vector_at(q + shape_.vectors, beyond); }));
    const Index rest = sym::max(sym::ceildiv(length_ - shape_.reach(), n * wide), 0);
    if (!sym::proved(sym::le(length_, shape_.reach())) && vector_at(zero, nowhere))
      all.push_back(serial(c_, "q", rest, [&](Index q) { return vector_at(q + slots, nowhere); }));
    return loop::seq(all);
  }
  Stmt each_position(const std::function<Stmt(const Here&)>& body) {
    return threads(c_, shape_.threads, [&](Index t) { return positions(t, body); });
  }

  // Values of this place: loads that registers have, and what no slot keeps computed anew.
  struct Bind : loop::Rewriter {
    Bind(Rows& r, const Here& h) : rows(r), here(h), map(r.position_map(h)) {}
    using loop::Rewriter::rewrite;
    Expr rewrite(const Expr& e) override {
      if (e->op != Op::load) return nullptr;
      if (here.slot)
        for (size_t i = 0; i < rows.cached_.size(); ++i)
          if (!e->guard && same_load(e, rows.cached_[i])) return load_slot(rows.caches_[i], here);
      if (const auto it = rows.locals_.find(e->buffer.get()); it != rows.locals_.end()) {
        const Local& l = it->second;
        if (l.shared) return loop::load(l.slots.registers, {rows.c_.constant(0)});
        if (rows.is_number(e->buffer)) return loop::load(l.slots.registers, {here.thread});
        if (here.slot) return load_slot(l.slots, here);
      }
      for (const Part& p : rows.parts_)
        if (rows.kept(p) && p.to == e->buffer) return apply(p.value);
      return nullptr;
    }
    Index rewrite_index(Index i) override { return sym::substitute(i, map); }
    Rows& rows;
    const Here& here;
    sym::Map map;
  };
  Expr bind(const Expr& e, const Here& h) { return Bind(*this, h).apply(e); }
  Stmt store(const Part& p, const Expr& value, const Here& h) const {
    Indices at;
    for (const Index& i : p.at) at.push_back(sym::substitute(i, position_map(h)));
    return loop::store(p.to, at, value);
  }

  void along(const Part& p, std::vector<Stmt>& all) {
    if (kept(p)) {
      const auto place = in_place_.find(p.to.get());
      const Slots s = place != in_place_.end() ? caches_[place->second] : make_slots(p.to->name, p.to->dtype);
      all.push_back(each_position([&](const Here& h) -> Stmt { return h.slot ? store_slot(s, h, bind(p.value, h)) : nullptr; }));
      locals_[p.to.get()] = {s, false};
      return;
    }
    all.push_back(threads(c_, shape_.threads, [&](Index t) {
      return where_row(t, [&] { return positions(t, [&](const Here& h) { return store(p, bind(p.value, h), h); }); });
    }));
  }

  // One value a row: every thread computes it, one of the row's stores it if it is a result.
  void number(const Part& p, std::vector<Stmt>& all) {
    if (is_internal(p.to)) {
      const Buffer b = keep(per_thread(c_, p.to->name, p.to->dtype, shape_.threads, {}));
      all.push_back(threads(c_, shape_.threads, [&](Index t) { return loop::store(b, {t}, bind(p.value, {t, {}, {}})); }));
      locals_[p.to.get()] = {{b, {}}, false};
      return;
    }
    all.push_back(first_of_row(p, [&](const Here& h) { return bind(p.value, h); }));
  }
  Stmt first_of_row(const Part& p, const std::function<Expr(const Here&)>& value) {
    return threads(c_, shape_.threads, [&](Index t) {
      return where_row(t, [&] {
        return loop::branch(loop::from_index(DType::b1, sym::eq(in_row(t), 0)), store(p, value({t, {}, {}}), {t, {}, {}}));
      });
    });
  }

  void reduction(const Part& p, std::vector<Stmt>& all) {
    const DType t = p.to->dtype;
    const int64_t wide = shape_.wide;
    const Op op = *combiner(*p.block);
    const Buffer part = keep(per_thread(c_, p.block->name + "_part", t, shape_.threads, {c_.constant(wide)}));
    const Index zero = c_.constant(0), one = c_.constant(1), n = c_.constant(shape_.threads);
    const Expr accumulator = p.value->args[p.value->op == Op::fma ? 2 : 0];
    all.push_back(threads(c_, shape_.threads, [&](Index th) {
      std::vector<Stmt> mine = {unrolled(c_, "lane", wide, [&](Index lane) { return loop::store(part, {th, lane}, p.block->init->value); })};
      mine.push_back(positions(th, [&](const Here& h) {
        const Index lane = sym::mod(h.position, wide);
        Bind b(*this, h);
        return loop::store(part, {th, lane}, b.apply(rules::replace_load(p.value, accumulator, loop::load(part, {th, lane}))));
      }));
      if (wide > 1)
        mine.push_back(unrolled(c_, "lane", wide - 1, [&](Index lane) {
          return loop::store(part, {th, zero}, loop::make(op, {loop::load(part, {th, zero}), loop::load(part, {th, lane + 1})}));
        }));
      return loop::seq(mine);
    }));
    const loop::Region from{part, {zero, zero}, {n, one}};
    Local total;
    total.shared = !shape_.warp;
    if (shape_.warp) {
      total.slots.registers = keep(per_thread(c_, p.to->name, t, shape_.threads, {}));
      all.push_back(loop::tile(*row_tile(op), {{total.slots.registers, {zero}, {n}}, from}));
    } else {
      total.slots.registers = keep(loop::make_buffer(p.to->name, t, {one}, Scope::shared));
      all.push_back(loop::tile(*row_tile(op), {{total.slots.registers, {zero}, {one}}, from}));
      all.push_back(loop::sync(loop::SyncKind::barrier));
    }
    locals_[p.to.get()] = total;
    if (is_internal(p.to)) return;
    all.push_back(first_of_row(p, [&](const Here& h) { return loop::load(total.slots.registers, {shape_.warp ? h.thread : zero}); }));
    locals_.erase(p.to.get());
  }

  std::vector<Part> parts_;
  Indices row_vars_, inner_vars_, inner_;
  Index count_, length_;              // rows, positions of a row
  std::vector<Expr> cached_;          // loads that slots keep
  std::unordered_map<const loop::BufferNode*, size_t> in_place_;  // internal buffers in the slots of a cached load
  int64_t widest_ = 1, slot_bytes_ = 0;
  const int64_t shared_bytes_;        // of a block of threads, at most

  Shape shape_;                       // of the variant at work
  Index block_;
  std::vector<Slots> caches_;
  std::vector<Buffer> allocs_;
  std::unordered_map<const loop::BufferNode*, Local> locals_;  // of internal buffers
};

}  // namespace

RuleResult rows(const loop::Function& f, sym::Context& c, const ScheduleOptions& o) {
  const loop::Function inlined = rules::inline_elementwise(f, c);
  return Rows(inlined, c, o.shared_bytes).run();
}

}  // namespace tripod::cuda
