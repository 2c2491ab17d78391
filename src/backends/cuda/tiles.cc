// Tile statements and syncs: reductions over a block, asynchronous copies, tensor-core fragments.
#include "backends/cuda/fragments.h"
#include "backends/cuda/printer.h"

namespace tripod::cuda {

using loop::Region;
using loop::TileOp;

void KernelPrinter::print_sync(const loop::StmtNode& s) {
  switch (s.sync) {
    case loop::SyncKind::barrier: return line("__syncthreads();");
    case loop::SyncKind::commit: return line("copy_async_commit();");
    case loop::SyncKind::wait: return line("copy_async_wait<" + std::to_string(s.count) + ">();");
    default: break;
  }
  internal_error(__FILE__, __LINE__, "kernel " + f_.name + ": this sync has no CUDA text");
}

void KernelPrinter::print_tile(const loop::StmtNode& s) {
  switch (s.tile) {
    case TileOp::reduce_sum:
    case TileOp::reduce_max: return print_block_reduction(s);
    case TileOp::mma: return print_mma(s);
    case TileOp::copy:
      if (fragment_of(s.regions[0].buffer)) return print_fragment_load(s);
      return print_async_copy(s);
    case TileOp::elementwise: break;
  }
  internal_error(__FILE__, __LINE__, "kernel " + f_.name + ": this tile statement has no CUDA text");
}

// to[m] = the sum (or maximum) over all threads of from[thread, m]. Its own scratch memory: the barrier that `to` waits
// for also keeps two runs of one statement apart.
void KernelPrinter::print_block_reduction(const loop::StmtNode& s) {
  const loop::Region &to = s.regions[0], &from = s.regions[1];
  const sym::Expr threads = axes_.block[0] * axes_.block[1] * axes_.block[2];
  const bool by_warp = to.buffer->layout.thread_dims > 0;
  TRIPOD_CHECK(from.buffer->layout.thread_dims > 0 && (by_warp || to.buffer->scope == loop::Scope::shared),
               "kernel " + f_.name + ": a reduction goes from registers with thread dims to shared memory or such registers");
  TRIPOD_CHECK(threads.is_const() && threads.value() % 32 == 0 && threads.value() <= 1024,
               "kernel " + f_.name + ": a reduction over threads needs 32 to 1024 of them, in warps of 32");
  const size_t warps = static_cast<size_t>(threads.value() / 32), thread_dims = static_cast<size_t>(from.buffer->layout.thread_dims);
  std::vector<int64_t> extents;
  int64_t each = 1;
  for (size_t d = thread_dims; d < from.extent.size(); ++d) {
    TRIPOD_CHECK(from.extent[d].is_const(), "kernel " + f_.name + ": a reduction over threads of constant extents");
    extents.push_back(from.extent[d].value());
    each *= extents.back();
  }
  sym::Expr thread = c_.constant(0);
  for (int a = 2; a >= 0; --a)
    thread = thread * axes_.block[a] + (axes_.block_var[a] ? axes_.block_var[a] : c_.constant(0));
  const std::string type = memory_type(to.buffer->dtype), base = to.buffer->name;
  const std::string tid = index(thread).s;
  const char* function = s.tile == loop::TileOp::reduce_sum ? "block_sum<" : "block_max<";
  for (int64_t e = 0; e < each; ++e) {
    if (by_warp) {
      const auto registers_of = [&](const loop::Region& r) {
        std::vector<sym::Expr> index(static_cast<size_t>(r.buffer->layout.thread_dims), c_.constant(0));
        for (size_t d = index.size(); d < r.extent.size(); ++d) {
          int64_t below = 1;  // elements of a step along d
          for (size_t b = d + 1; b < r.extent.size(); ++b) below *= r.extent[b].value();
          index.push_back(r.offset[d] + e / below % r.extent[d].value());
        }
        return index;
      };
      const std::string group = s.count > 0 ? "<" + std::to_string(s.count) + ">(" : "(";
      line(element(to.buffer, registers_of(to)) + " = " + (s.tile == loop::TileOp::reduce_sum ? "warp_sum" : "warp_max") + group +
           element(from.buffer, registers_of(from)) + ");");
      continue;
    }
    std::string scratch = "(" + type + "*)nullptr";
    if (warps > 1) {
      scratch = unique(base + "_warps", 0);
      declare_shared(type, scratch, "[" + std::to_string(warps) + "]", kReductionScratch);
    }
    std::vector<sym::Expr> at(thread_dims, c_.constant(0)), into = to.offset;
    int64_t rest = e;
    for (size_t d = extents.size(); d-- > 0; rest /= extents[d]) at.insert(at.begin() + static_cast<std::ptrdiff_t>(thread_dims), from.offset[thread_dims + d] + rest % extents[d]);
    rest = e;
    for (size_t d = into.size(); d-- > 0;) {
      const int64_t extent = to.extent[d].constant().value_or(1);
      into[d] = into[d] + rest % extent;
      rest /= extent;
    }
    const std::string total = unique(base + (s.tile == loop::TileOp::reduce_sum ? "_sum" : "_most"), scopes_.size() - 1);
    line("const " + type + " " + total + " = " + function + std::to_string(warps) + ">(" + element(from.buffer, at) + ", " + scratch + ", " + tid + ");");
    line("if (" + tid + " == 0) " + element(to.buffer, into) + " = " + total + ";");
  }
}

// A run of 4, 8 or 16 bytes from global to shared memory that goes on behind the thread's back until a wait.
void KernelPrinter::print_async_copy(const loop::StmtNode& s) {
  const Region &to = s.regions[0], &from = s.regions[1];
  const DType t = to.buffer->dtype;
  int64_t elements = 1;
  for (sym::Expr e : to.extent) elements *= e.constant().value_or(0);
  for (const Region& r : {to, from}) {  // along one dim, whose neighbours lie side by side
    const sym::Expr v = c_.var("v", {0, elements - 1});
    std::vector<sym::Expr> at = r.offset;
    for (size_t d = 0; d < at.size(); ++d)
      if (!r.extent[d].is_const(1)) at[d] = at[d] + v;
    const auto linear = sym::linear_in(loop::offset(c_, r.buffer, at), v);
    TRIPOD_CHECK(elements == 1 || (linear && linear->coefficient.is_const(1)), "kernel " + f_.name + ": an asynchronous copy takes a run of " + r.buffer->name);
  }
  TRIPOD_CHECK(s.token >= 0 && from.buffer->dtype == t && to.buffer->scope == loop::Scope::shared && !is_nibble(t),
               "kernel " + f_.name + ": a tile copy in a thread is asynchronous, to shared memory, and converts nothing");
  const int64_t bytes = elements * info(t).bits / 8;
  TRIPOD_CHECK(bytes == 4 || bytes == 8 || bytes == 16, "kernel " + f_.name + ": an asynchronous copy moves 4, 8 or 16 bytes");
  for (const Region& r : {to, from})
    TRIPOD_CHECK(is_multiple(r.buffer, r.offset, elements), "kernel " + f_.name + ": the place of an asynchronous copy in " + r.buffer->name +
                                                                " is not aligned: " + sym::text(loop::offset(c_, r.buffer, r.offset)));
  const std::string guard = s.guard && !s.guard.is_const(1) ? ", " + index(s.guard).s : "";
  line("copy_async<" + std::to_string(bytes) + ">(&" + element(to.buffer, to.offset) + ", &" + element(from.buffer, from.offset) + guard + ");");
}

// --- fragments -----------------------------------------------------------------------------------------------------

namespace {

int64_t constant_extent(const Region& r, size_t d) {
  TRIPOD_CHECK(r.extent[d].is_const(), "a tile of fragments has constant extents");
  return r.extent[d].value();
}

struct Parts {
  int rows, columns;
};
Parts part_of(const Fragment& f) {
  const MmaShape s = *mma_shape(f.operands);
  return f.operand == Operand::a ? Parts{s.m, s.k} : f.operand == Operand::b ? Parts{s.k, s.n} : Parts{s.m, s.n};
}

}  // namespace

// `a[i][j]`: the registers of instruction tile (i, j), counted from the region's offset.
std::string KernelPrinter::fragment_part(const Region& r, sym::Expr i, sym::Expr j) {
  const Parts p = part_of(*fragment_of(r.buffer));
  return buffers_.at(r.buffer.get()).name + "[" + index(sym::floordiv(r.offset[1], p.rows) + i).s + "][" +
         index(sym::floordiv(r.offset[2], p.columns) + j).s + "]";
}

// `for` loops that are unrolled around one line; a loop of one iteration is none.
void KernelPrinter::unrolled(const std::vector<std::pair<const char*, int64_t>>& loops, const std::function<std::string(const std::vector<sym::Expr>&)>& text) {
  std::vector<sym::Expr> vars;
  size_t opened = 0;
  std::vector<std::string> heads;
  for (const auto& [wanted, extent] : loops) {
    if (extent == 1) {
      vars.push_back(c_.constant(0));
      continue;
    }
    open(true);
    ++opened;
    vars.push_back(c_.var(wanted, {0, extent - 1}));
    const std::string name = unique(wanted, scopes_.size() - 1);
    bind(vars.back(), name);
    heads.push_back("for (int " + name + " = 0; " + name + " < " + std::to_string(extent) + "; ++" + name + ")");
  }
  line(text(vars));
  for (; opened > 0; --opened) {
    const std::string body = close();
    line("#pragma unroll");
    in_braces(heads[opened - 1], body);
  }
}

void KernelPrinter::print_mma(const loop::StmtNode& s) {
  const Region &c = s.regions[0], &a = s.regions[1], &b = s.regions[2];
  const auto fa = fragment_of(a.buffer), fb = fragment_of(b.buffer), fc = fragment_of(c.buffer);
  TRIPOD_CHECK(fa && fb && fc && fa->operand == Operand::a && fb->operand == Operand::b && fc->operand == Operand::c &&
                   fa->operands == fb->operands && c.buffer->dtype == DType::f32,
               "kernel " + f_.name + ": the operands of mma are not fragments that fit each other");
  const MmaShape shape = *mma_shape(fa->operands);
  const int64_t m = constant_extent(c, 1), n = constant_extent(c, 2), k = constant_extent(a, 2);
  TRIPOD_CHECK(m % shape.m == 0 && n % shape.n == 0 && k % shape.k == 0, "kernel " + f_.name + ": mma on parts of an instruction tile");
  unrolled({{"ki", k / shape.k}, {"mi", m / shape.m}, {"ni", n / shape.n}}, [&](const std::vector<sym::Expr>& i) {
    return "mma(" + fragment_part(c, i[1], i[2]) + ", " + fragment_part(a, i[1], i[0]) + ", " + fragment_part(b, i[0], i[2]) + ");";
  });
}

// From shared memory by ldmatrix where rows of 8 16-bit elements lie together and are aligned, else one by one.
void KernelPrinter::print_fragment_load(const loop::StmtNode& s) {
  const Region &to = s.regions[0], &from = s.regions[1];
  const Fragment f = *fragment_of(to.buffer);
  const Parts p = part_of(f);
  TRIPOD_CHECK(from.offset.size() >= 2 && from.buffer->dtype == to.buffer->dtype, "kernel " + f_.name + ": a fragment is read from a matrix of its type");
  const int64_t rows = constant_extent(to, 1) / p.rows, columns = constant_extent(to, 2) / p.columns;
  const size_t last = from.offset.size() - 1;
  const auto at = [&](sym::Expr row, sym::Expr column) {
    std::vector<sym::Expr> indices = from.offset;
    indices[last - 1] = indices[last - 1] + row;
    indices[last] = indices[last] + column;
    return indices;
  };
  const sym::Expr lane = axes_.lane_var, v = c_.var("v", {0, 7});
  // The row that lane i names: rows of 8 along the columns of the matrix, or (transposed) along its rows.
  struct Row {
    sym::Expr row, column;
  };
  const sym::Expr low = sym::mod(lane, 8), mid = sym::mod(sym::floordiv(lane, 8), 2), high = sym::floordiv(lane, 16);
  const auto named = [&](bool along_columns) -> Row {
    if (f.operand == Operand::a) return along_columns ? Row{low + mid * 8, high * 8} : Row{mid * 8, low + high * 8};
    return along_columns ? Row{low + mid * 8, c_.constant(0)} : Row{mid * 8, low};
  };
  const bool sixteen = info(to.buffer->dtype).bits == 16 && f.operand != Operand::c && from.buffer->scope == loop::Scope::shared;
  for (bool along_columns : {true, false}) {
    const Row r = named(along_columns);
    const sym::Expr offset = loop::offset(c_, from.buffer, along_columns ? at(r.row, r.column + v) : at(r.row + v, r.column));
    const auto linear = sym::linear_in(offset, v);
    if (!sixteen || !linear || !linear->coefficient.is_const(1) || !is_multiple(from.buffer, at(r.row, r.column), 8)) continue;
    // Memory runs along k of a and along n of b in the order that the instruction gives; otherwise transposed.
    const bool transposed = (f.operand == Operand::a) != along_columns;
    if (f.operand == Operand::b && columns % 2 == 0) {  // two instructions' parts at once: lanes 16 to 31 name the second's rows
      unrolled({{"ri", rows}, {"qi", columns / 2}}, [&](const std::vector<sym::Expr>& i) {
        return std::string(transposed ? "load_matrices_transposed(" : "load_matrices(") + fragment_part(to, i[0], i[1] * 2) + ", " +
               fragment_part(to, i[0], i[1] * 2 + 1) + ", &" +
               element(from.buffer, at(r.row + i[0] * p.rows, r.column + high * 8 + i[1] * 16)) + ");";
      });
      return;
    }
    unrolled({{"ri", rows}, {"qi", columns}}, [&](const std::vector<sym::Expr>& i) {
      return std::string(transposed ? "load_matrix_transposed(" : "load_matrix(") + fragment_part(to, i[0], i[1]) + ", &" +
             element(from.buffer, at(r.row + i[0] * p.rows, r.column + i[1] * p.columns)) + ");";
    });
    return;
  }
  unrolled({{"ri", rows}, {"qi", columns}, {"e", fragment_registers(f.operand, f.operands)}}, [&](const std::vector<sym::Expr>& i) {
    const FragmentPlace place = fragment_place(f.operand, f.operands, lane, i[2]);
    return fragment_part(to, i[0], i[1]) + "[" + index(i[2]).s + "] = " + element(from.buffer, at(place.row + i[0] * p.rows, place.column + i[1] * p.columns)) + ";";
  });
}

}  // namespace tripod::cuda
