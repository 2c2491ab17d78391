// Register fragments of mma.sync as layouts, and how tensor-core tiles are said in the loop IR:
//
//   for w in 0..4 warp {                                 the warps of a block, w = threadIdx.x / 32
//     alloc a: reg f16[4, 16, 16] layout ... threads 2   fragments: dims (warp, row, column); the layout names the thread
//     tile copy a[w : 1, 0 : 16, 0 : 16], As[m : 16, k : 16]          from shared memory: ldmatrix, or loads one by one
//     tile mma c[w : 1, 0 : 16, 0 : 8], a[...], b[...]                c += a * b
//   }
//   for t in 0..128 block_x { for e in 0..4 unrolled { y[...] = c[floordiv(t, 32), row(t, e), column(t, e)] } }
//
// A warp loop's body is done by 32 threads together; its tiles are the only things in it beside serial and unrolled
// loops. A fragment may be several instruction tiles large: tiles that repeat along rows and columns are further
// registers, and a tile statement works on one instruction's part or more. Shapes (m, n, k): f16 and bf16 16 8 16, tf32
// (operands in f32, which the instruction cuts to 19 bits) 16 8 8; the sum is f32.
#pragma once

#include <optional>

#include "loop/ir.h"

namespace tripod::cuda {

enum class Operand : uint8_t { a, b, c };  // a: [m, k], b: [k, n], c: [m, n]

struct MmaShape {
  int m = 16, n = 8, k = 16;
};
std::optional<MmaShape> mma_shape(DType operands);  // nothing: no instruction for it

// The layout of a fragment buffer [warps, rows, columns]. `operands` is the dtype of a and b, also for c.
loop::Layout fragment_layout(sym::Context& c, Operand o, DType operands, int64_t warps, int64_t rows, int64_t columns);

// Registers of one instruction's part, and the logical place of register e of lane `lane` in it.
int fragment_registers(Operand o, DType operands);
struct FragmentPlace {
  loop::Index row, column;
};
FragmentPlace fragment_place(Operand o, DType operands, loop::Index lane, loop::Index e);

// Which operand of which dtype the buffer's layout is; nothing when it is no fragment.
struct Fragment {
  Operand operand;
  DType operands;
};
std::optional<Fragment> fragment_of(const loop::Buffer& b);

}  // namespace tripod::cuda
