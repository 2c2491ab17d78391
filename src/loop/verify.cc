// What must hold of every function, whatever its form. Types and ranks are checked by the constructors; here is what
// depends on where a node stands.
#include <map>
#include <set>
#include <unordered_set>

#include "loop/ir.h"

namespace tripod::loop {
namespace {

class Verifier {
 public:
  explicit Verifier(const Function& f) : f_(f) {}

  std::vector<std::string> run() {
    signature();
    if (!f_.body) {
      error("no body");
      return std::move(errors_);
    }
    stmt(f_.body);
    if (blocks_.empty()) registers();
    return std::move(errors_);
  }

 private:
  void error(const std::string& what) { errors_.push_back("func @" + f_.name + ": " + what); }

  void signature() {
    if (f_.num_outputs < 0 || f_.num_outputs > static_cast<int>(f_.params.size()))
      error("more outputs than parameters");
    for (Index d : f_.dims) {
      if (!d.is_var()) error("dim " + sym::text(d) + " is no symbol");
      else vars_.insert(d);
    }
    std::set<std::string> names;
    for (const Buffer& b : f_.params) {
      if (!names.insert(b->name).second) error("two parameters are called " + b->name);
      if (b->scope != Scope::global && b->scope != Scope::constant)
        error("parameter " + b->name + " is no memory of the caller");
      declare(b);
    }
  }

  void declare(const Buffer& b) {
    buffers_.insert(b.get());
    for (Index d : b->shape) index(d, "the shape of " + b->name);
    for (Index d : b->layout.extents) index(d, "the layout of " + b->name);
  }

  // --- uses ---

  void index(Index i, const std::string& where) {
    if (!i) return;
    for (Index v : sym::variables(i))
      if (!vars_.count(v)) error(where + " uses " + sym::text(v) + ", which is not bound there");
  }

  void access(const Buffer& b, const std::vector<Index>& indices, bool writes) {
    const std::string where = std::string(writes ? "a store to " : "a load of ") + b->name;
    if (!buffers_.count(b.get())) error(where + ": the buffer does not exist there");
    if (static_cast<int>(indices.size()) != b->rank())
      error(where + " has " + std::to_string(indices.size()) + " indices");
    for (Index i : indices) index(i, where);
    if (writes && is_input(b)) error(where + ", which is an input");
  }

  bool is_input(const Buffer& b) const {
    if (b->scope == Scope::constant) return true;
    for (size_t i = 0; i + static_cast<size_t>(f_.num_outputs) < f_.params.size(); ++i)
      if (f_.params[i] == b) return true;
    return false;
  }

  void expr(const Expr& e) {
    visit(e, [&](const Expr& x) {
      if (x->op == Op::index) index(x->value, "a value");
      if (x->op != Op::load) return;
      access(x->buffer, x->indices, false);
      index(x->guard, "the guard of a load of " + x->buffer->name);
    });
  }

  // --- statements ---

  void stmt(const Stmt& s) {
    switch (s->kind) {
      case StmtKind::loop: return loop_stmt(s);
      case StmtKind::block: return block_stmt(s);
      case StmtKind::store:
        expr(s->value);
        access(s->buffer, s->indices, true);
        index(s->guard, "the guard of a store to " + s->buffer->name);
        if (s->value->dtype != s->buffer->dtype) error("a store to " + s->buffer->name + " of another type");
        return;
      case StmtKind::let:
        expr(s->value);
        return inside({s->var}, s->body[0]);
      case StmtKind::branch: expr(s->value); break;
      case StmtKind::alloc: {
        if (s->buffer->scope == Scope::constant) error("alloc of the constant " + s->buffer->name);
        const bool again = buffers_.count(s->buffer.get()) > 0;
        if (again) error("buffer " + s->buffer->name + " exists already");
        declare(s->buffer);
        stmt(s->body[0]);
        if (!again) buffers_.erase(s->buffer.get());
        return;
      }
      case StmtKind::check:
        index(s->var, "a check");
        index(s->extent, "a check");
        break;
      case StmtKind::tile: tile_stmt(s); break;
      case StmtKind::seq:
      case StmtKind::sync: break;
    }
    for (const Stmt& b : s->body) stmt(b);
  }

  void inside(const std::vector<Index>& bound, const Stmt& body) {
    std::vector<Index> fresh;
    for (Index v : bound)
      if (vars_.insert(v).second) fresh.push_back(v);
    if (body) stmt(body);
    for (Index v : fresh) vars_.erase(v);
  }

  void loop_stmt(const Stmt& s) {
    const std::string where = "loop " + sym::text(s->var);
    index(s->extent, where);
    if (vars_.count(s->var)) error(where + ": the variable is bound already");
    const LoopKind k = s->loop_kind;
    if ((k == LoopKind::vector || k == LoopKind::unrolled) && !s->extent.is_const())
      error(where + " is vector or unrolled, and its extent is not constant");
    if (k == LoopKind::parallel && loop_depth_ > 0) error(where + " is parallel inside another loop");
    if (s->grain < 1) error(where + " has no grain");
    ++loop_depth_;
    inside({s->var}, s->body[0]);
    --loop_depth_;
  }

  void block_stmt(const Stmt& s) {
    const std::string where = "block " + s->name;
    if (!blocks_.insert(s->name).second) error("two blocks are called " + s->name);
    std::vector<Index> vars;
    size_t bound = 0;
    bool reduces = false;
    for (const Iter& i : s->iters) {
      index(i.binding, where);
      bound += static_cast<bool>(i.binding);
      reduces = reduces || i.reduce;
      vars.push_back(i.var);
    }
    if (bound != 0 && bound != s->iters.size()) error(where + " binds some of its iterators only");
    if (bound == 0 && !s->iters.empty() && loop_depth_ > 0) error(where + " stands in a loop without bindings");
    if (s->init && !reduces) error(where + " has an init and no reduce iterator");
    std::vector<Index> fresh;
    for (Index v : vars)
      if (vars_.insert(v).second) fresh.push_back(v);
    for (const Iter& i : s->iters) index(i.extent, where);
    index(s->predicate, where);
    if (s->init) stmt(s->init);
    stmt(s->body[0]);
    for (Index v : fresh) vars_.erase(v);
  }

  void tile_stmt(const Stmt& s) {
    static const std::map<TileOp, size_t> kRegions = {
        {TileOp::copy, 2}, {TileOp::mma, 3}, {TileOp::reduce_sum, 2}, {TileOp::reduce_max, 2}};
    const auto it = kRegions.find(s->tile);
    if (it != kRegions.end() && s->regions.size() != it->second)
      error("a tile statement with a wrong number of regions");
    for (size_t i = 0; i < s->regions.size(); ++i) {
      access(s->regions[i].buffer, s->regions[i].offset, i == 0);
      for (Index e : s->regions[i].extent) index(e, "a tile");
    }
    index(s->guard, "the guard of a tile");
    if (s->guard && s->tile != TileOp::copy) error("a tile that is no copy has a guard");
    const bool reduces = s->tile == TileOp::reduce_sum || s->tile == TileOp::reduce_max;
    if (s->count != 0 && (!reduces || s->regions.empty() || s->regions[0].buffer->layout.thread_dims == 0)) error("a tile that is no reduction into registers of threads has a count");
    if (s->count < 0 || s->count > 32 || (s->count & (s->count - 1)) != 0) error("a reduction over groups of threads whose size is no power of two up to 32");
  }

  // Registers have no addresses: once loops are unrolled and vectorised, an index into them is a number. (Which thread
  // has them, the first dims of the layout, is no part of that index.)
  void registers() {
    std::unordered_set<Index, sym::Hash> rolled;
    visit(f_.body, [&](const Stmt& s) {
      const bool keeps =
          s->kind == StmtKind::loop && s->loop_kind != LoopKind::vector && s->loop_kind != LoopKind::unrolled;
      if (keeps || s->kind == StmtKind::let) rolled.insert(s->var);
    });
    std::set<std::string> bad;
    const auto look = [&](const Buffer& b, const std::vector<Index>& indices) {
      if (b->scope != Scope::reg) return;
      std::vector<Index> inner = indices;
      if (b->layout.thread_dims > 0 && b->layout.args.size() == indices.size()) {
        inner = physical_index(b, indices);
        inner.erase(inner.begin(), inner.begin() + b->layout.thread_dims);
      }
      for (Index i : inner)
        for (Index v : sym::variables(i))
          if (rolled.count(v))
            bad.insert("registers " + b->name + " are indexed by " + sym::text(v) + ", which is not unrolled");
    };
    visit(
        f_.body, [&](const Stmt& s) { if (s->kind == StmtKind::store) look(s->buffer, s->indices); },
        [&](const Expr& e) { if (e->op == Op::load) look(e->buffer, e->indices); });
    for (const std::string& b : bad) error(b);
  }

  const Function& f_;
  std::vector<std::string> errors_;
  std::unordered_set<Index, sym::Hash> vars_;
  std::unordered_set<const BufferNode*> buffers_;
  std::set<std::string> blocks_;
  int loop_depth_ = 0;
};

}  // namespace

std::vector<std::string> verify(const Function& f) { return Verifier(f).run(); }

}  // namespace tripod::loop
