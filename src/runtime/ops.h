// Runtime operators: what the compiler calls instead of generating a kernel, because the work depends on data (sorting,
// compaction, suppression) or its order matters (scatter with duplicates). Each has the signature tp_operator of
// abi.h and is linked in only when it is called.
//
// For every operator: `views` in the order listed (a name in [brackets] may be absent: its data is null); `attrs` in
// the order listed. Axes are not negative. `site` is the number for error reports. Operators that move elements
// serve all types but the sub-byte ones (strings are moved as pointers); those that compare or compute serve bool, all
// integers, f16, bf16, f32 and f64. Ranks up to 8. Memory of outputs may not overlap inputs, save where
// it says so. A view of no elements needs no data.
//
// Operators of data-dependent extent come in two: NAME_count looks at the data and calls tp_set_dim(symbol); the
// program then makes room, and NAME fills the outputs. `work` views carry results from the one to the other; the
// program gives them arena memory of the stated (maximal) extent.
#pragma once

#include "runtime/abi.h"

extern "C" {

// TopK. views: x, values, indices (i64). attrs: axis, largest, sorted, site. k is the outputs' extent at axis.
// Equal elements come in the order of their index; NaN counts as larger than everything, -0 equals 0. The result is
// sorted whether or not that was asked.
int32_t tp_op_topk(tp_run* run, const tp_view* views, const int64_t* attrs);

// NonZero. count views: x. attrs: symbol, site. fill views: x, y (i64 [rank, n]; of a scalar [1, n]). attrs: none.
int32_t tp_op_nonzero_count(tp_run* run, const tp_view* views, const int64_t* attrs);
int32_t tp_op_nonzero(tp_run* run, const tp_view* views, const int64_t* attrs);

// Compress. count views: x, condition (bool [c]). attrs: axis, or -1: x is taken as flat; symbol, site. Conditions
// beyond the extent must be false. fill views: x, condition, y. attrs: axis.
int32_t tp_op_compress_count(tp_run* run, const tp_view* views, const int64_t* attrs);
int32_t tp_op_compress(tp_run* run, const tp_view* views, const int64_t* attrs);

// Unique. With n the extent of x at axis, or its elements when axis is -1 (flat), and u unique ones:
// count views: x, work_first (i64 [n]), work_inverse (i64 [n]), work_counts (i64 [n]). attrs: axis, sorted, symbol, site.
// fill views: x, work_first, work_inverse, work_counts, y, [indices] (i64 [u]), [inverse] (i64 [n]), [counts] (i64 [u]).
// attrs: axis. As numpy.unique does: NaNs are equal to each other and sort last, -0 equals 0; of equal ones the first
// is taken.
int32_t tp_op_unique_count(tp_run* run, const tp_view* views, const int64_t* attrs);
int32_t tp_op_unique(tp_run* run, const tp_view* views, const int64_t* attrs);

// NonMaxSuppression. count views: boxes (f32 [b, n, 4]), scores (f32 [b, c, n]), [max_output_boxes_per_class] (i64
// scalar), [iou_threshold] (f32), [score_threshold] (f32), work (i64 [cap, 3], cap = b * c * min(n, the largest
// max_output_boxes_per_class, where known)). attrs: center_point_box, symbol, site.
// fill views: work, y (i64 [n, 3]). attrs: none. It is a copy; the program may use tp_copy or the work buffer itself.
int32_t tp_op_nms_count(tp_run* run, const tp_view* views, const int64_t* attrs);
int32_t tp_op_nms(tp_run* run, const tp_view* views, const int64_t* attrs);

// CumSum. views: x, [axis] (i32 or i64 scalar, may be negative; wins over the attribute), y. attrs: axis, exclusive,
// reverse, site. Integers wrap; f16 and bf16 are summed in f32 and rounded at each store. y may be x.
int32_t tp_op_cumsum(tp_run* run, const tp_view* views, const int64_t* attrs);

// Reductions of scatter.
enum tp_reduction : int64_t { kTpNone = 0, kTpAdd = 1, kTpMul = 2, kTpMin = 3, kTpMax = 4 };

// Integers wrap; NaN wins in min and max, as in numpy; f16 and bf16 are rounded after every update.
//
// ScatterElements. views: data, indices (i32 or i64), updates, y. attrs: axis, reduction, site. One update after the
// other in row-major order; indices may be negative; one out of range fails the run. y may be data.
int32_t tp_op_scatter_elements(tp_run* run, const tp_view* views, const int64_t* attrs);

// ScatterND. views: data, indices (i64 [..., q]), updates, y. attrs: reduction, site. As above.
int32_t tp_op_scatter_nd(tp_run* run, const tp_view* views, const int64_t* attrs);
}
