#include "lower/lower.h"

#include <algorithm>
#include <cctype>

namespace tripod::lower {

using graph::Type;

static std::string identifier(std::string_view s) {
  std::string r;
  for (char c : s) r += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (r.empty() || std::isdigit(static_cast<unsigned char>(r[0]))) r = "v" + r;
  return r;
}

static loop::Layout layout_of(sym::Context& c, const Type& t) {
  return t.order.empty() ? loop::Layout{} : loop::permuted(c, t.shape, t.order);
}

Lowering::Lowering(const Graph& g, const graph::Group& group, Numbering* sites)
    : g_(g), group_(group), sites_(sites) {
  const auto param = [&](ValueId v) {
    const Type& t = g.type(v);
    const bool constant = g.is_constant(v);
    buffers_[v] = loop::make_buffer(identifier(g.value(v).name), t.stored(), t.shape,
                                    constant ? loop::Scope::constant : loop::Scope::global, layout_of(sym(), t));
    params_.push_back(v);
  };
  for (ValueId v : group.inputs) param(v);
  for (ValueId v : group.outputs) param(v);
}

Buffer Lowering::buffer(ValueId v) {
  Buffer& b = buffers_[v];
  if (!b) {
    b = loop::make_buffer(identifier(g_.value(v).name), compute_type(g_.type(v).dtype), g_.type(v).shape);
    temporaries_.push_back(b);
  }
  return b;
}

Buffer Lowering::temporary(const std::string& name, DType t, Indices shape) {
  temporaries_.push_back(loop::make_buffer(block_name() + "_" + name, t, std::move(shape)));
  return temporaries_.back();
}

Expr Lowering::load(ValueId v, const Indices& at) {
  const Buffer b = buffer(v);
  return loop::cast(loop::load(b, at), compute_type(b->dtype));
}

Expr Lowering::load_broadcast(ValueId v, const Indices& at) {
  const graph::Shape& s = type(v).shape;
  Indices own;
  for (size_t d = 0; d < s.size(); ++d) own.push_back(s[d].is_const(1) ? sym().constant(0) : at[at.size() - s.size() + d]);
  return load(v, own);
}

loop::Stmt Lowering::store(ValueId v, const Indices& at, Expr e) { return store(buffer(v), at, std::move(e)); }

loop::Stmt Lowering::store(const Buffer& b, const Indices& at, Expr e) {
  return loop::store(b, at, loop::cast(std::move(e), b->dtype));
}

std::vector<Iter> Lowering::iters(const Indices& shape, const char* prefix) {
  std::vector<Iter> r;
  for (size_t d = 0; d < shape.size(); ++d) {
    const sym::Range range{0, std::max<int64_t>(0, sym::bounds(shape[d]).hi == sym::Range::kMax ? sym::Range::kMax : sym::bounds(shape[d]).hi - 1)};
    Index v = sym().var(prefix + std::to_string(d), range);
    sym().assume_below(v, shape[d]);
    r.push_back({v, shape[d], false, {}});
  }
  return r;
}

Iter Lowering::reduce(Index extent, const char* name) {
  Iter i = iters({extent}, name)[0];
  i.reduce = true;
  return i;
}

Indices Lowering::vars(const std::vector<Iter>& is) {
  Indices r;
  for (const Iter& i : is) r.push_back(i.var);
  return r;
}

void Lowering::block(const std::string& name, std::vector<Iter> is, loop::Stmt body, loop::Stmt init) {
  const int n = names_[name]++;
  blocks_.push_back(loop::block(n ? name + "_" + std::to_string(n) : name, std::move(is), std::move(body), std::move(init)));
}

void Lowering::map(const Buffer& result, const std::string& name, const std::function<Expr(const Indices&)>& f) {
  std::vector<Iter> is = iters(result->shape);
  const Indices at = vars(is);
  block(name, is, store(result, at, f(at)));
}

void Lowering::map(ValueId result, const std::string& name, const std::function<Expr(const Indices&)>& f) {
  map(buffer(result), name, f);
}

loop::Stmt Lowering::with_index(Expr raw, Index limit, bool wrap, const std::function<loop::Stmt(Index)>& body) {
  Index v = sym().var("at");
  Index wrapped = wrap ? sym::select(sym::lt(v, int64_t{0}), v + limit, v) : v;
  Index clamped = sym::max(sym::min(wrapped, limit - 1), int64_t{0});
  return loop::let(v, std::move(raw), loop::seq({loop::check(wrapped, limit, site()), body(clamped)}));
}

std::string Lowering::block_name() const {
  const graph::Node& n = g_.node(node_);
  return identifier(std::string(graph::info(n.op).text) + "_" +
                    (n.results.empty() ? std::string() : g_.value(n.results[0]).name));
}

int32_t Lowering::site() const {
  const graph::Node& n = g_.node(node_);
  const std::string text = n.origins.empty() ? std::string(graph::info(n.op).text) : n.origins[0].text();
  return sites_->number(text);
}

loop::Function Lowering::finish() {
  loop::Function f;
  // Free symbols of shapes and indices, once each, are the kernel's dims.
  std::vector<Index> bound;
  const auto collect = [&](Index e) {
    for (const Index& v : sym::variables(e))
      if (std::find(f.dims.begin(), f.dims.end(), v) == f.dims.end()) f.dims.push_back(v);
  };
  for (ValueId v : params_) {
    f.params.push_back(buffers_.at(v));
    for (const Index& d : f.params.back()->shape) collect(d);
  }
  f.num_outputs = static_cast<int>(group_.outputs.size());
  loop::Stmt body = loop::seq(blocks_);
  for (const Buffer& b : temporaries_) {
    body = loop::alloc(b, body);
    for (const Index& d : b->shape) collect(d);
  }
  // Indices may use dims that no shape mentions (a slice's start).
  std::unordered_map<Index, bool, sym::Hash> inner;
  std::vector<Index> used;
  const auto note = [&](Index e) {
    if (e)
      for (const Index& v : sym::variables(e)) used.push_back(v);
  };
  loop::visit(body, [&](const loop::Stmt& s) {
    if (s->kind == loop::StmtKind::block)
      for (const Iter& i : s->iters) inner[i.var] = true, note(i.extent);
    if (s->kind == loop::StmtKind::let || s->kind == loop::StmtKind::loop) inner[s->var] = true, note(s->extent);
    if (s->kind == loop::StmtKind::check) note(s->var), note(s->extent);
    for (const Index& i : s->indices) note(i);
    note(s->guard);
  }, [&](const Expr& e) {
    note(e->value), note(e->guard);
    for (const Index& i : e->indices) note(i);
  });
  for (const Index& v : used)
    if (!inner.count(v)) collect(v);
  f.body = body;
  std::string name;
  for (NodeId n : group_.nodes) {
    const graph::Node& node = g_.node(n);
    if (name.size() < 60) name += (name.empty() ? "" : "_") + std::string(graph::info(node.op).text);
    for (const Site& s : node.origins)
      if (std::none_of(f.origins.begin(), f.origins.end(), [&](const Site& o) { return o.index == s.index && o.name == s.name; }))
        f.origins.push_back(s);
  }
  f.name = identifier(name);
  return f;
}

Lowered lower_group(const Graph& g, const graph::Group& group, Numbering& sites, LowerOp by) {
  Lowering l(g, group, &sites);
  for (NodeId n : group.nodes) {
    const LowerOp op = by ? by : lowering_of(g.node(n).op);
    TRIPOD_CHECK(op, std::string("no lowering for ") + std::string(graph::info(g.node(n).op).text));
    l.node_ = n;
    op(l, g.node(n));
  }
  return {l.finish(), l.params()};
}

}  // namespace tripod::lower
