// The printer. The syntax, by example (loop/parse.cc reads it):
//
//   func @matmul[M: 1.., K: 8..512 step 8](A: f32[M, K], B: constant f32[K, 64]) -> (C: f32[M, 64]) {
//     from 12 "MatMul" "layer1/matmul"
//     rule "matmul"
//     for m in 0..M parallel grain 4 {
//       block mm(i: M = m, j: 64; reduce k: K) where m < M {
//         init {
//           C[i, j] = 0
//         }
//         C[i, j] = fma(A[i, k], B[k, j], C[i, j])
//       }
//     }
//   }
//
// A value that a statement uses more than once stands in front of it as `%1 = ...`. Numbers without a type are f32:
// `2`, but `2:i32`; `bits<f32>(0x7fc00001)` is a NaN with a payload. f16(x) casts, bitcast<i32>(x) does not convert,
// index<i64>(i*4) is an index as a value; a branch on an index condition is `if i < N {`, on a value `if value(x) {`.
#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_map>

#include "base/number_text.h"
#include "loop/ir.h"
#include "loop/line_table.h"
#include "loop/scalar.h"
#include "loop/syntax.h"

namespace tripod::loop {
namespace {

std::string quoted(const std::string& s) {
  std::string r = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') r += '\\';
    if (c == '\n') r += "\\n";
    else r += c;
  }
  return r + "\"";
}

// Precedence of the infix operators; function notation for the others (0).
int level(Op op) {
  switch (op) {
    case Op::mul:
    case Op::div: return 6;
    case Op::add:
    case Op::sub: return 5;
    case Op::shl:
    case Op::shr: return 4;
    case Op::lt:
    case Op::le:
    case Op::eq:
    case Op::ne: return 3;
    case Op::bit_and: return 2;
    case Op::bit_xor:
    case Op::bit_or: return 1;
    default: return 0;
  }
}

std::string constant_text(const ExprNode& e) {
  const DType t = e.dtype;
  if (t == DType::b1) return e.bits ? "true" : "false";
  const std::string suffix = t == DType::f32 ? "" : ":" + std::string(name(t));
  if (!is_float(t)) return (is_signed(t) ? shortest(static_cast<int64_t>(e.bits)) : shortest(e.bits)) + suffix;
  const double v = double_from_bits(t, e.bits);
  if (std::isnan(v)) {
    if (bits_from_double(t, std::nan("")) == e.bits) return "nan" + suffix;
    return "bits<" + std::string(name(t)) + ">(" + hex(e.bits) + ")";
  }
  // A float's shortest text reads back as the same float, and every small float is one.
  return (t == DType::f64 ? shortest(v) : shortest(static_cast<float>(v))) + suffix;
}

std::string list(const std::vector<Index>& is) {
  std::string s;
  for (Index i : is) s += (s.empty() ? "" : ", ") + sym::text(i);
  return s;
}

bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

// `text` with every whole word `from` replaced.
std::string replace_word(const std::string& text, const std::string& from, const std::string& to) {
  std::string r;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && is_name_char(text[end])) ++end;
    if (end == i) ++end;
    const std::string word = text.substr(i, end - i);
    r += word == from ? to : word;
    i = end;
  }
  return r;
}

// The placeholders of a layout are its own: they print as they were named, without numbers.
std::string layout_text(const Layout& l) {
  std::string args, map = list(l.map);
  for (Index a : l.args) {
    map = replace_word(map, sym::text(a), a->name);
    args += (args.empty() ? "" : ", ") + a->name;
  }
  std::string s = " layout (" + args + ") -> (" + map + ") in [" + list(l.extents) + "]";
  if (l.thread_dims) s += " threads " + std::to_string(l.thread_dims);
  return s;
}

std::string range_text(const sym::Node& v) {
  const sym::Range r = v.range;
  if (r == sym::Range{} && v.divisor == 1) return "";
  std::string s = ": ";
  if (r.lo != sym::Range::kMin) s += std::to_string(r.lo);
  s += "..";
  if (r.hi != sym::Range::kMax) s += std::to_string(r.hi);
  if (v.divisor != 1) s += " step " + std::to_string(v.divisor);
  return s;
}

class Printer {
 public:
  std::string out;
  LineTable* lines = nullptr;   // filled where it is there

  void function(const Function& f) {
    out += "func @" + f.name;
    if (!f.dims.empty()) {
      std::string dims;
      for (Index d : f.dims) dims += (dims.empty() ? "" : ", ") + sym::text(d) + range_text(*d.node());
      out += "[" + dims + "]";
    }
    const size_t inputs = f.params.size() - static_cast<size_t>(f.num_outputs);
    out += "(";
    for (size_t i = 0; i < f.params.size(); ++i) {
      if (i == inputs) out += ") -> (";
      else if (i > 0) out += ", ";
      buffer(f.params[i]);
    }
    out += ") {\n";
    ++line_, ++depth_;
    for (const Site& s : f.origins) {
      line("from " + std::to_string(s.index) + " " + quoted(s.op) + " " + quoted(s.name));
    }
    if (!f.rule.empty()) line("rule " + quoted(f.rule));
    stmt(f.body);
    --depth_;
    out += "}\n";
  }

  void stmt(const Stmt& s) {
    if (lines) (*lines)[s.get()] = line_;
    switch (s->kind) {
      case StmtKind::seq:
        for (const Stmt& b : s->body) stmt(b);
        break;
      case StmtKind::loop: loop_stmt(*s); break;
      case StmtKind::block: block_stmt(*s); break;
      case StmtKind::store: {
        const std::string v = value(s->value);
        if (lines) (*lines)[s.get()] = line_;
        line(access(s->buffer, s->indices) + " = " + v + (s->guard ? " if " + sym::text(s->guard) : ""));
        break;
      }
      case StmtKind::let: {
        const std::string v = value(s->value);
        body("let " + sym::text(s->var) + range_text(*s->var.node()) + " = " + v, s->body[0]);
        break;
      }
      case StmtKind::branch: branch_stmt(*s); break;
      case StmtKind::alloc: {
        const size_t start = out.size();
        buffer(s->buffer);
        const std::string declaration = out.substr(start);
        out.resize(start);
        body("alloc " + declaration, s->body[0]);
        break;
      }
      case StmtKind::check:
        line("check " + sym::text(s->var) + " in 0.." + sym::text(s->extent) + " site " + std::to_string(s->site));
        break;
      case StmtKind::tile: tile_stmt(*s); break;
      case StmtKind::sync: {
        std::string t = "sync " + std::string(syntax::kSyncs[static_cast<size_t>(s->sync)]);
        if (s->token >= 0) t += " token " + std::to_string(s->token);
        if (s->count) t += " count " + std::to_string(s->count);
        line(t);
        break;
      }
    }
  }

  // Prints what is shared in front, and returns the text of e.
  std::string value(const Expr& e) {
    shared_.clear();
    std::unordered_map<const ExprNode*, int> uses;
    count(e, uses);
    name_shared(e, uses);
    return expr(e, 0);
  }

 private:
  void line(const std::string& s) { out += std::string(static_cast<size_t>(depth_) * 2, ' ') + s + "\n", ++line_; }

  void body(const std::string& head, const Stmt& b) {
    line(head + " {");
    ++depth_;
    stmt(b);
    --depth_;
    line("}");
  }

  void loop_stmt(const StmtNode& s) {
    std::string t = "for " + sym::text(s.var) + " in 0.." + sym::text(s.extent);
    if (s.loop_kind != LoopKind::serial) t += " " + std::string(syntax::kLoops[static_cast<size_t>(s.loop_kind)]);
    if (s.grain != 1) t += " grain " + std::to_string(s.grain);
    body(t, s.body[0]);
  }

  void block_stmt(const StmtNode& s) {
    std::string t = "block " + s.name + "(";
    bool reducing = false, first = true;
    for (const Iter& i : s.iters) {
      const bool change = i.reduce != reducing;
      t += change ? (reducing ? "; spatial " : "; reduce ") : first ? "" : ", ";
      reducing = i.reduce;
      first = false;
      t += sym::text(i.var) + ": " + sym::text(i.extent);
      if (i.binding) t += " = " + sym::text(i.binding);
    }
    t += ")";
    if (s.predicate) t += " where " + sym::text(s.predicate);
    line(t + " {");
    ++depth_;
    if (s.init) body("init", s.init);
    stmt(s.body[0]);
    --depth_;
    line("}");
  }

  void branch_stmt(const StmtNode& s) {
    const bool on_index = s.value->op == Op::index && s.value->dtype == DType::b1;
    const std::string c = on_index ? sym::text(s.value->value) : "value(" + value(s.value) + ")";
    line("if " + c + " {");
    ++depth_;
    stmt(s.body[0]);
    --depth_;
    if (s.body.size() > 1) {
      line("} else {");
      ++depth_;
      stmt(s.body[1]);
      --depth_;
    }
    line("}");
  }

  void tile_stmt(const StmtNode& s) {
    std::string t = "tile " + std::string(syntax::kTiles[static_cast<size_t>(s.tile)]);
    for (const Region& r : s.regions) {
      t += (&r == &s.regions[0] ? " " : ", ") + name_of(r.buffer) + "[";
      for (size_t d = 0; d < r.offset.size(); ++d)
        t += (d ? ", " : "") + sym::text(r.offset[d]) + " : " + sym::text(r.extent[d]);
      t += "]";
    }
    if (s.guard) t += " if " + sym::text(s.guard);
    if (s.token >= 0) t += " token " + std::to_string(s.token);
    if (s.count > 0) t += " count " + std::to_string(s.count);
    line(t);
  }

  // --- buffers ---

  void buffer(const Buffer& b) {
    out += name_of(b) + ": ";
    if (b->scope != Scope::global) out += std::string(syntax::kScopes[static_cast<size_t>(b->scope)]) + " ";
    out += std::string(name(b->dtype)) + "[" + list(b->shape) + "]";
    if (!b->layout.is_row_major()) out += layout_text(b->layout);
  }

  // Two buffers of one name are told apart by a number.
  const std::string& name_of(const Buffer& b) {
    const auto it = names_.find(b.get());
    if (it != names_.end()) return it->second;
    std::string n = b->name;
    for (int k = 1; std::any_of(names_.begin(), names_.end(), [&](const auto& p) { return p.second == n; }); ++k)
      n = b->name + "." + std::to_string(k);
    return names_[b.get()] = n;
  }

  std::string access(const Buffer& b, const std::vector<Index>& indices) {
    return name_of(b) + "[" + list(indices) + "]";
  }

  // --- expressions ---

  static bool is_leaf(const Expr& e) { return e->op == Op::constant || e->op == Op::index; }

  static void count(const Expr& e, std::unordered_map<const ExprNode*, int>& uses) {
    if (!e || is_leaf(e) || ++uses[e.get()] > 1) return;
    for (const Expr& a : e->args) count(a, uses);
    count(e->other, uses);
  }

  void name_shared(const Expr& e, const std::unordered_map<const ExprNode*, int>& uses) {
    if (!e || is_leaf(e) || shared_.count(e.get())) return;
    for (const Expr& a : e->args) name_shared(a, uses);
    name_shared(e->other, uses);
    if (uses.at(e.get()) < 2) return;
    const std::string t = expr(e, 0);
    const std::string n = "%" + std::to_string(shared_.size() + 1);
    line(n + " = " + t);
    shared_[e.get()] = n;
  }

  std::string expr(const Expr& e, int needed) {
    if (const auto it = shared_.find(e.get()); it != shared_.end()) return it->second;
    switch (e->op) {
      case Op::constant: return constant_text(*e);
      case Op::index: return "index<" + std::string(name(e->dtype)) + ">(" + sym::text(e->value) + ")";
      case Op::load: {
        const std::string t = access(e->buffer, e->indices);
        return e->guard ? "(" + t + " if " + sym::text(e->guard) + " else " + expr(e->other, 0) + ")" : t;
      }
      case Op::cast: return std::string(name(e->dtype)) + "(" + expr(e->args[0], 0) + ")";
      case Op::bitcast: return "bitcast<" + std::string(name(e->dtype)) + ">(" + expr(e->args[0], 0) + ")";
      default: break;
    }
    const int l = level(e->op);
    if (l > 0) {
      const std::string t = expr(e->args[0], l) + " " + std::string(name(e->op)) + " " + expr(e->args[1], l + 1);
      return l < needed ? "(" + t + ")" : t;
    }
    std::string t = std::string(e->op == Op::bit_not ? "not" : name(e->op)) + "(";
    for (size_t i = 0; i < e->args.size(); ++i) t += (i ? ", " : "") + expr(e->args[i], 0);
    return t + ")";
  }

  int depth_ = 0, line_ = 1;
  std::unordered_map<const BufferNode*, std::string> names_;
  std::unordered_map<const ExprNode*, std::string> shared_;
};

}  // namespace

std::string text(const Function& f) {
  Printer p;
  p.function(f);
  return std::move(p.out);
}

std::string text(const Function& f, LineTable& lines) {
  Printer p;
  p.lines = &lines;
  p.function(f);
  return std::move(p.out);
}

std::string text(const Stmt& s) {
  Printer p;
  p.stmt(s);
  return std::move(p.out);
}

std::string text(const Expr& e) {
  Printer p;
  const std::string t = p.value(e);
  return p.out + t;
}

}  // namespace tripod::loop
