// One kernel at print. The parts: cuda_c.cc (the kernel as a whole), statements.cc, vectors.cc (vector loops), tiles.cc,
// memory.cc (buffers), values.cc (value expressions), indices.cc (integer expressions), names.cc.
//
// The text grows in a stack of scopes, one a brace. While an inner scope is printed the outer ones are still open:
// an integer expression that does not change in a loop becomes a local of the scope where its last variable is bound,
// which is appended to that scope's lines and so stands in front of the loop.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/cuda/cuda_c.h"
#include "loop/ir.h"

namespace tripod::cuda {

// C++'s levels of binding, tightest last. Where a person would add parentheses that C++ does not ask for (bits,
// shifts, && inside ||), the operands are asked to be `unary`.
enum Level { kLowest, kConditional, kOr, kAnd, kEqual, kOrder, kBits, kSum, kProduct, kUnary, kPrimary };

struct Text {
  std::string s;
  Level level = kPrimary;
};
std::string within(const Text& t, Level needed);  // in parentheses where it binds looser than `needed`

// C's type of a value, and of an element in memory (b1 and the 4- and 8-bit floats and integers differ).
std::string value_type(DType t);
std::string memory_type(DType t);
bool is_nibble(DType t);
Text constant_text(DType t, uint64_t bits);

// Identifiers that no word of CUDA C++ and no helper of the prelude uses.
std::string identifier(const std::string& wanted);

// The kernel in the form that the printer works on: grid and thread loops replaced by one variable an axis.
struct Axes {
  sym::Expr grid_var[3], block_var[3];     // empty: not used
  sym::Expr grid[3], block[3];             // extents, 1 where not used
  sym::Expr warp_var, lane_var;            // threadIdx.x / 32 and % 32, where a loop is over warps
};

class KernelPrinter {
 public:
  KernelPrinter(const loop::Function& f, const Axes& axes, sym::Context& c, bool narrow, const BoundsSite& bounds);
  std::string run(const std::string& symbol);
  Geometry geometry() const { return geometry_; }

 private:
  struct Scope {
    std::string lines;
    int depth = 1;
    bool is_loop = false;  // code in it runs more than once a run of the scope around
    std::unordered_map<sym::Expr, std::string, sym::Hash> locals;
    std::set<std::string> names;
  };

  // cuda_c.cc
  void declare_axes();
  std::string signature(const std::string& symbol) const;
  std::string comment() const;

  // names.cc, scopes
  std::string unique(const std::string& wanted, size_t scope);
  void line(const std::string& text) { line(text, scopes_.size() - 1); }
  void line(const std::string& text, size_t scope);
  void open(bool is_loop);
  std::string close();
  void append(const std::string& lines) { scopes_.back().lines += lines; }
  void bind(sym::Expr var, const std::string& name) { bind(var, name, scopes_.size() - 1); }
  void bind(sym::Expr var, const std::string& name, size_t scope);

  // statements.cc
  void print(const loop::Stmt& s);
  void print_loop(const loop::StmtNode& s);
  void print_store(const loop::StmtNode& s);
  void print_let(const loop::StmtNode& s);
  void print_branch(const loop::StmtNode& s);
  void print_check(const loop::StmtNode& s);
  void in_braces(const std::string& head, const std::string& body);

  // tiles.cc
  void print_sync(const loop::StmtNode& s);
  void print_tile(const loop::StmtNode& s);
  void print_block_reduction(const loop::StmtNode& s);
  void print_async_copy(const loop::StmtNode& s);
  void print_fragment_load(const loop::StmtNode& s);
  void print_mma(const loop::StmtNode& s);
  std::string fragment_part(const loop::Region& r, sym::Expr i, sym::Expr j);
  void unrolled(const std::vector<std::pair<const char*, int64_t>>& loops,
                const std::function<std::string(const std::vector<sym::Expr>&)>& text);

  // vectors.cc
  void print_vector(const loop::StmtNode& s);
  struct Access {            // a run of `lanes` neighbours in memory, moved as a whole
    std::vector<sym::Expr> first;  // indices of lane 0
    int chunk = 0;           // bytes moved at once
  };
  std::optional<Access> whole(const loop::Buffer& b, const std::vector<sym::Expr>& indices, sym::Expr lane, int64_t lanes);
  void load_whole(const loop::ExprNode& e, const Access& a, int64_t lanes);
  bool move_to_registers(const loop::StmtNode& s, int64_t lanes);

  // memory.cc
  struct Place {
    std::string name;
    std::vector<sym::Expr> extents;  // of the dims of a local or shared array; empty: a pointer
    int thread_dims = 0;
  };
  std::string element(const loop::Buffer& b, const std::vector<sym::Expr>& indices);
  std::string element_at(const loop::Buffer& b, sym::Expr offset);
  Text load(const loop::ExprNode& e);
  void store(const loop::Buffer& b, const std::vector<sym::Expr>& indices, const Text& value);
  void choose_shared();
  void declare(const loop::Buffer& b);
  void declare_shared(const std::string& type, const std::string& name, const std::string& dims, int64_t bytes);
  bool is_multiple(const loop::Buffer& b, const std::vector<sym::Expr>& indices, int64_t n) const;
  bool known_multiple(sym::Expr e, int64_t n) const;
  bool names_thread(sym::Expr e) const;

  // values.cc
  Text value(const loop::Expr& e);             // of a statement: puts locals in front of it
  Text expr(const loop::Expr& e);
  Text operation(const loop::ExprNode& e);
  Text int_operation(const loop::ExprNode& e);
  Text cast(DType from, DType to, const Text& v);
  Text index_value(const loop::ExprNode& e);
  int number(const loop::Expr& e);             // equal for expressions that are equal
  void count(const loop::Expr& e);
  void name_shared(const loop::Expr& e);
  std::string local_name(const loop::ExprNode& e) const;

  // indices.cc
  Text index(sym::Expr e) { return index(e, scopes_.size() - 1); }
  Text index(sym::Expr e, size_t at);          // printed for scope `at`
  Text index_node(sym::Expr e, size_t at);
  Text sum(sym::Expr e, size_t at);
  Text term(int64_t coefficient, sym::Expr factor, size_t at);
  Text divide(sym::Expr e, size_t at);
  std::string variable(sym::Expr v);
  std::string literal(int64_t v) const;
  size_t home(sym::Expr e) const;              // the outermost scope where all its variables are bound
  bool loop_between(size_t outer, size_t inner) const;
  std::string local(sym::Expr e, size_t scope);
  std::string index_type() const { return narrow_ ? "int" : "long long"; }

  const loop::Function& f_;
  const Axes& axes_;
  sym::Context& c_;
  const bool narrow_;
  const BoundsSite& bounds_;               // empty: no checks
  std::string symbol_;
  Geometry geometry_;
  std::vector<std::string> params_;            // names in the signature
  std::vector<std::string> dim_params_;
  std::vector<Scope> scopes_;
  std::unordered_map<sym::Expr, std::string, sym::Hash> names_;     // of bound variables
  std::unordered_map<sym::Expr, size_t, sym::Hash> homes_;
  std::unordered_map<sym::Expr, std::function<std::string()>, sym::Hash> lazy_;  // declarations of axes and dims
  std::unordered_map<const loop::BufferNode*, Place> buffers_;
  std::string hint_;                           // what an integer local is for: part of its name

  std::unordered_map<const loop::ExprNode*, int> numbers_;
  std::unordered_map<std::string, int> number_of_;
  std::unordered_map<int, int> uses_;          // in the statement at work
  std::unordered_map<int, std::string> shared_;
  std::vector<loop::Expr> kept_;               // numbers_ has their addresses as keys
  std::unordered_map<int, std::string> lanes_;     // loads of the vector loop around that were moved as a whole: name
  std::unordered_map<const loop::StmtNode*, std::string> stored_lanes_;  // and its stores
  std::set<const loop::StmtNode*> moved_;      // stores of the vector loop at work that are done already
  sym::Expr lane_;
  std::vector<std::pair<sym::Expr, int64_t>> multiples_;  // what the branches around say: first is a multiple of second
  static constexpr int64_t kReductionScratch = 32 * sizeof(double);  // a number for each warp
  bool dynamic_shared_ = false;                // shared memory is the dynamic part, else static arrays
  int64_t shared_bytes_ = 0;                   // of the dynamic part: of what is alive
  bool has_threads_ = false, in_threads_ = false;
};

}  // namespace tripod::cuda
