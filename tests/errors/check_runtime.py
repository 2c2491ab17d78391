#!/usr/bin/env python3
"""Bad calls of a good model.so: an error that names the input, never a crash or a read outside a buffer.

Each check runs in a child; what it hands over is put together from the raw structures of include/tripod/model.h.
Ends with "N passed, N failed".
"""
from __future__ import annotations

import ctypes as ct
import mmap
import os
import sys
import tempfile
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import numpy as np
import onnx
from onnx import TensorProto

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / d) for d in ("python", "tests")] + [str(Path(__file__).resolve().parent)]
from bad_models import F32, I64, graph_model, info  # noqa: E402
from hostile_models import squared_dims  # noqa: E402
from harness import COMPILER, compile_model, in_child  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402
from tripod import Model, TripodError, capi  # noqa: E402

INVALID, OUT_OF_RANGE = 1, 2
ANY_ERROR, ANY_END = -2, -1  # some status but 0; anything but a crash
A = np.arange(8, dtype=np.float32).reshape(2, 4)


def node(op: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(" "), [output], name=f"the/{op.lower()}", **attributes)


def models() -> dict[str, onnx.ModelProto]:
    """The models that are called, by name."""
    a, b, y = info("a", ["N", 4]), info("b", ["N", 4]), info("y", None)
    return {
        "add": graph_model([node("Add", "a b", "y")], [a, b], [info("y", ["N", 4])]),
        "gather": graph_model([node("Gather", "a i", "y", axis=0)], [a, info("i", ["K"], I64)], [info("y", ["K", 4])]),
        "gathernd": graph_model([node("GatherND", "a i", "y")], [a, info("i", ["K", 2], I64)], [info("y", ["K"])]),
        "scatter": graph_model([node("ScatterND", "a i b", "y")], [a, info("i", ["K", 1], I64), info("b", ["K", 4])],
                               [info("y", ["N", 4])]),
        "reshape": graph_model([node("Reshape", "a s", "y")], [a, info("s", [2], I64)], [info("y", ["P", "Q"])]),
        "slice_free": graph_model([node("Slice", "a s e", "y")], [a, info("s", [1], I64), info("e", [1], I64)], [info("y", ["P", 4])]),
        "expand": graph_model([node("Expand", "a s", "y")], [a, info("s", [2], I64)], [info("y", ["P", "Q"])]),
        "topk": graph_model([helper.make_node("TopK", ["a", "k"], ["y", "at"], name="the/topk")],
                            [a, info("k", [1], I64)], [info("y", ["N", "K"])]),
        "divide": graph_model([node("Div", "p q", "y")], [info("p", ["N"], TensorProto.INT32), info("q", ["N"], TensorProto.INT32)],
                              [info("y", ["N"], TensorProto.INT32)]),
        "unknown": graph_model([node("Relu", "a", "y")], [a], [y]),
        "concat": graph_model([node("Concat", "p q", "y", axis=0)], [info("p", ["N", "L"]), info("q", ["M", "K"])], [y]),
        "skip": graph_model([node("MaxPool", "x", "half", kernel_shape=[2], strides=[2]),
                             node("Resize", "half  twice", "whole"), node("Concat", "x whole", "y", axis=1)],
                            [info("x", [1, 3, "L"])], [y], [numpy_helper.from_array(np.array([1, 1, 2], np.float32), "twice")]),
        **data_dependent(a, b, y),
    }


def data_dependent(a: onnx.ValueInfoProto, b: onnx.ValueInfoProto, y: onnx.ValueInfoProto) -> dict[str, onnx.ModelProto]:
    """Models whose indices, sizes and counts come with the call."""
    def of(op: str, names: str, inputs: list[onnx.ValueInfoProto], constants: list[TensorProto] | None = None,
           **attributes: object) -> onnx.ModelProto:
        m = graph_model([node(op, names, "y", **attributes)], inputs, [y], constants)
        if op in ("Range", "NonMaxSuppression"):
            m.graph.output[0].type.tensor_type.elem_type = I64
        return m

    def ints(name: str, *shape: object) -> onnx.ValueInfoProto:
        return info(name, list(shape), I64)

    values = numpy_helper.from_array(np.array([0, 1], np.float32), "v")
    boxes, scores = info("boxes", [1, 4, 4]), info("scores", [1, 1, 4])
    return {
        "gatherelements": of("GatherElements", "a i", [a, ints("i", "K", 4)], axis=0),
        "scatterelements": of("ScatterElements", "a i b", [a, ints("i", "K", 4), info("b", ["K", 4])], axis=0),
        "onehot": of("OneHot", "i d v", [ints("i", "K"), ints("d")], [values]),
        "reversesequence": of("ReverseSequence", "a l", [a, ints("l", 4)], batch_axis=1, time_axis=0),
        "tile": of("Tile", "a r", [a, ints("r", 2)]),
        "pad": of("Pad", "a p", [a, ints("p", 4)]),
        "range": of("Range", "p q r", [ints("p"), ints("q"), ints("r")]),
        "constantofshape": of("ConstantOfShape", "s", [ints("s", 2)]),
        "split": graph_model([helper.make_node("Split", ["a", "s"], ["y", "z"], axis=1, name="the/split")], [a, ints("s", 2)],
                             [y, info("z", None)]),
        "cumsum": of("CumSum", "a x", [a, ints("x")]),
        "resize": of("Resize", "a r t s", [a, ints("s", 2)], [numpy_helper.from_array(np.zeros(0, np.float32), n) for n in "rt"]),
        "nonmaxsuppression": of("NonMaxSuppression", "boxes scores m", [boxes, scores, ints("m", 1)]),
        "powers": squared_dims(2),
        "powers_inside": sum_of_powers(),
        "compress": of("Compress", "a c", [a, info("c", ["K"], TensorProto.BOOL)], axis=0),
        "window_of_counted": window_of_counted(),
        "window_in_branch": window_in_branch(),
    }


def summed_window(x: str, y: str) -> tuple[list[onnx.NodeProto], list[TensorProto]]:
    """The sum of a convolution of x[1, 1, L], whose result lies in the arena, by a kernel of 5."""
    weights = [numpy_helper.from_array(np.ones((1, 1, 5), np.float32), "w"), numpy_helper.from_array(np.array(2), "axis")]
    return [node("Conv", f"{x} w", "window"), node("CumSum", "window axis", "sums"), node("ReduceSum", "sums", y)], weights


def window_of_counted() -> onnx.ModelProto:
    nodes, weights = summed_window("wide", "y")
    first = [node("NonZero", "c", "at"), node("Cast", "at", "found", to=F32), node("Unsqueeze", "found zero", "wide")]
    return graph_model(first + nodes, [info("c", ["K"])], [info("y", None)], [*weights, numpy_helper.from_array(np.array([0]), "zero")])


def window_in_branch() -> onnx.ModelProto:
    nodes, weights = summed_window("x", "s")
    then = helper.make_graph(nodes, "then", [], [info("s", None)], weights)
    rest = helper.make_graph([node("Identity", "x", "t")], "rest", [], [info("t", None)])
    branch = helper.make_node("If", ["c"], ["y"], name="the/if", then_branch=then, else_branch=rest)
    return graph_model([branch], [info("c", [], TensorProto.BOOL), info("x", [1, 1, "L"])], [info("y", None)])


def sum_of_powers() -> onnx.ModelProto:
    """y = the sum over a tensor of N^4 * M^4 elements that lies in the arena."""
    m = squared_dims(2)
    m.graph.node[-1].output[0] = "big"
    m.graph.node.append(node("CumSum", "big axis", "sums"))
    m.graph.node.append(node("ReduceSum", "sums", "y", keepdims=0))
    m.graph.initializer.append(numpy_helper.from_array(np.array(0), "axis"))
    return m


@dataclass
class Call:
    """A call of `model` with `inputs`; `change` may spoil the raw values. status 0: it must work."""

    model: str
    inputs: list[object]
    status: int
    words: list[str]
    change: Callable[[ct.Array], None] | None = None


def spoil(index: int, **fields: object) -> Callable[[ct.Array], None]:
    """Sets fields of input `index`'s tensor."""
    def change(values: ct.Array) -> None:
        for name, value in fields.items():
            setattr(values[index].tensor, name, value)
    return change


def strided(values: ct.Array) -> None:
    """Input 0 becomes a column-major view of the same memory; kept alive on the array."""
    values.strides = (ct.c_int64 * 2)(1, 2)
    values[0].tensor.strides = values.strides


def set_strides(values: ct.Array, *strides: int) -> None:
    values.strides = (ct.c_int64 * len(strides))(*strides)
    values[0].tensor.strides = values.strides


def reversed_rows(values: ct.Array) -> None:
    """Input 0 becomes its rows from the last to the first: negative strides, data at the last row."""
    set_strides(values, -4, 1)
    values[0].tensor.data += 16


def sequence(values: ct.Array) -> None:
    values[0].kind = capi.KIND_SEQUENCE


def i64(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


CALLS: dict[str, Call] = {
    "good": Call("add", [A, A], 0, []),
    "strided": Call("add", [A, A], 0, [], strided),
    "dtype": Call("add", [A, A.astype(np.float64)], INVALID, ["'b'", "f64", "f32"]),
    "rank": Call("add", [A, A.reshape(2, 2, 2)], INVALID, ["'b'", "3", "2"]),
    "fixed_dim": Call("add", [A, np.zeros((2, 5), np.float32)], INVALID, ["'b'", "axis 1", "5", "4"]),
    "symbol_differs": Call("add", [A, np.zeros((3, 4), np.float32)], INVALID, ["'b'", "axis 0", "3", "2"]),
    "too_few": Call("add", [A], INVALID, ["1", "2"]),
    "too_many": Call("add", [A, A, A], INVALID, ["3", "2"]),
    "null_data": Call("add", [A, A], INVALID, ["'b'", "null"], spoil(1, data=None)),
    "null_shape": Call("add", [A, A], INVALID, ["'b'"], spoil(1, shape=None)),
    "negative_rank": Call("add", [A, A], INVALID, ["'b'"], spoil(1, rank=-1)),
    "huge_rank": Call("add", [A, A], INVALID, ["'b'"], spoil(1, rank=1 << 20)),
    "bad_dtype": Call("add", [A, A], INVALID, ["'b'"], spoil(1, dtype=77)),
    "device": Call("add", [A, A], INVALID, ["'b'", "cuda"], spoil(1, device=1)),
    "misaligned": Call("add", [A, A], INVALID, ["'a'"], lambda v: setattr(v[0].tensor, "data", v[0].tensor.data + 1)),
    "kind": Call("add", [A, A], INVALID, ["'a'", "sequence"], sequence),
    "gather_above": Call("gather", [A, i64(0, 2)], OUT_OF_RANGE, ["the/gather"]),
    "gather_below": Call("gather", [A, i64(-3)], OUT_OF_RANGE, ["the/gather"]),
    "gather_far": Call("gather", [A, i64(1 << 62)], OUT_OF_RANGE, ["the/gather"]),
    "gather_good": Call("gather", [A, i64(-1, 1)], 0, []),
    "gathernd_above": Call("gathernd", [A, np.array([[0, 4]])], OUT_OF_RANGE, ["the/gathernd"]),
    "scatter_above": Call("scatter", [A, np.array([[5]]), A[:1]], OUT_OF_RANGE, ["the/scatternd"]),
    "reshape_count": Call("reshape", [A, i64(3, 3)], ANY_ERROR, ["the/reshape"]),
    "reshape_two_free": Call("reshape", [A, i64(-1, -1)], ANY_ERROR, ["the/reshape"]),
    "reshape_huge": Call("reshape", [A, i64(1 << 62, 4)], ANY_ERROR, ["the/reshape"]),
    "slice_clamps": Call("slice_free", [A, i64(-100), i64(1 << 62)], 0, []),
    "expand_conflict": Call("expand", [A, i64(3, 4)], ANY_ERROR, ["the/expand"]),
    "topk_above": Call("topk", [A, i64(9)], ANY_ERROR, ["the/topk"]),
    "divide_by_zero": Call("divide", [np.array([1, 2], np.int32), np.array([0, 1], np.int32)], ANY_END, []),
    "divide_overflow": Call("divide", [np.array([-2**31], np.int32), np.array([-1], np.int32)], 0, []),
    "gatherelements_above": Call("gatherelements", [A, np.full((1, 4), 2)], OUT_OF_RANGE, ["the/gatherelements"]),
    "gatherelements_below": Call("gatherelements", [A, np.full((1, 4), -3)], OUT_OF_RANGE, ["the/gatherelements"]),
    "scatterelements_above": Call(
        "scatterelements", [A, np.full((1, 4), 7), A[:1]], OUT_OF_RANGE, ["the/scatterelements"]),
    "scatterelements_larger": Call(
        "scatterelements", [A, np.zeros((3, 4), np.int64), np.zeros((3, 4), np.float32)], ANY_END, []),
    "onehot_outside": Call("onehot", [i64(0, 99, -99), np.array(3)], 0, []),
    "onehot_negative": Call("onehot", [i64(0), np.array(-3)], ANY_ERROR, ["the/onehot"]),
    "onehot_huge": Call("onehot", [i64(0), np.array(1 << 62)], ANY_ERROR, []),
    "reversesequence_long": Call("reversesequence", [A, i64(1, 2, 3, 9)], ANY_END, []),
    "reversesequence_negative": Call("reversesequence", [A, i64(1, 2, -1, -(1 << 62))], ANY_END, []),
    "tile_negative": Call("tile", [A, i64(-1, 1)], ANY_ERROR, ["the/tile"]),
    "tile_huge": Call("tile", [A, i64(1 << 40, 1 << 40)], ANY_ERROR, []),
    "pad_huge": Call("pad", [A, i64(1 << 62, 0, 1 << 62, 0)], ANY_ERROR, []),
    "pad_more_negative": Call("pad", [A, i64(-3, 0, 0, 0)], ANY_ERROR, []),
    "range_no_step": Call("range", [np.array(0), np.array(5), np.array(0)], ANY_ERROR, ["the/range"]),
    "range_huge": Call(
        "range", [np.array(-(1 << 62)), np.array((1 << 62) - 1 + (1 << 62)), np.array(1)], ANY_ERROR, []),
    "range_step_least": Call("range", [np.array(0), np.array(-(1 << 63)), np.array(-(1 << 63))], ANY_END, []),
    "constantofshape_negative": Call("constantofshape", [i64(-1, 4)], ANY_ERROR, ["the/constantofshape"]),
    "constantofshape_huge": Call("constantofshape", [i64(1 << 31, 1 << 31)], ANY_ERROR, []),
    "split_sum": Call("split", [A, i64(1, 2)], ANY_ERROR, ["the/split"]),
    "split_negative": Call("split", [A, i64(-1, 5)], ANY_ERROR, ["the/split"]),
    "cumsum_axis": Call("cumsum", [A, np.array(2)], ANY_ERROR, ["the/cumsum"]),
    "resize_nothing": Call("resize", [A, i64(0, 0)], ANY_END, []),
    "resize_negative": Call("resize", [A, i64(-4, 4)], ANY_ERROR, ["the/resize"]),
    "resize_huge": Call("resize", [A, i64(1 << 31, 1 << 31)], ANY_ERROR, []),
    "nms_most": Call(
        "nonmaxsuppression", [np.zeros((1, 4, 4), np.float32), np.full((1, 1, 4), np.nan, np.float32), i64((1 << 63) - 1)], ANY_END,
        []),
    "nms_negative": Call(
        "nonmaxsuppression", [np.zeros((1, 4, 4), np.float32), np.zeros((1, 1, 4), np.float32), i64(-1)], ANY_END, []),
    "compress_longer": Call("compress", [A, np.ones(5, bool)], ANY_END, []),
    "concat_fits": Call("concat", [A, A[:1]], 0, []),
    "concat_differs": Call("concat", [A, A.reshape(4, 2)], INVALID, ["the/concat", "dim 1", "4 and 2"]),
    "skip_even": Call("skip", [np.zeros((1, 3, 8), np.float32)], 0, []),
    "skip_odd": Call("skip", [np.zeros((1, 3, 7), np.float32)], INVALID, ["the/concat", "dim 2", "7 and 6"]),
    "powers": Call("powers", [np.zeros((3, 1), np.float32)], 0, []),
    "powers_beyond": Call("powers", [np.zeros((65537, 0), np.float32)], ANY_ERROR, ["'y'", "no memory can hold"]),
    "powers_wrap": Call("powers", [np.zeros((65536, 1), np.float32)], ANY_ERROR, ["'y'", "no memory can hold"]),
    "powers_inside": Call("powers_inside", [np.zeros((3, 2), np.float32)], 0, []),
    "powers_inside_wrap": Call("powers_inside", [np.zeros((65536, 1), np.float32)], ANY_ERROR, ["out of memory"]),
    "window_of_many": Call("window_of_counted", [np.ones(6, np.float32)], 0, []),
    "window_of_few": Call("window_of_counted", [np.ones(2, np.float32)], INVALID, ["the/conv", "exceeds the padded input"]),
    "window_in_branch": Call("window_in_branch", [np.array(True), np.ones((1, 1, 6), np.float32)], 0, []),
    "window_too_wide": Call("window_in_branch", [np.array(True), np.ones((1, 1, 2), np.float32)], INVALID, ["the/conv", "exceeds the padded input"]),
    "window_not_taken": Call("window_in_branch", [np.array(False), np.ones((1, 1, 2), np.float32)], 0, []),
    "reversed_rows": Call("add", [A, A], 0, [], reversed_rows),
    "one_row_again": Call("add", [A, A], 0, [], lambda v: set_strides(v, 0, 1)),
    "empty": Call("add", [A[:0], A[:0]], ANY_END, []),
}


def perform(so: Path, call: Call) -> str:
    """"" when the call ends as it should."""
    with Model(str(so), threads=2) as model:
        keep: list[object] = []
        values = (capi.Value * max(1, len(call.inputs)))()
        for slot, v in zip(values, call.inputs):
            capi._fill(slot, v, keep)
        if call.change:
            call.change(values)
        outputs = (capi.Value * max(1, model.num_outputs))()
        for slot, kind in zip(outputs, model._output_kinds):
            slot.kind = kind
        status = model._api.run(model._context, values, len(call.inputs), outputs, model.num_outputs)
        message = model.last_error()
        if call.status == ANY_END:
            return ""
        if status != call.status and not (call.status == ANY_ERROR and status):
            return f"status {status}, wanted {call.status}: {message}"
        lacking = [w for w in call.words if w not in message]
        if lacking:
            return f"the message lacks {lacking}: {message}"
        if status:  # the context must still serve
            try:
                model.run(next(c.inputs for c in CALLS.values() if c.model == call.model and c.status == 0 and not c.change))
            except StopIteration:
                pass
            except TripodError as e:
                return f"the next good call failed: {e}"
    return ""


def edges(so: Path) -> str:
    """Inputs that end at a page which may not be read: a read past the buffer is a crash."""
    page = mmap.PAGESIZE
    libc = ct.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ct.c_void_p, ct.c_size_t, ct.c_int]
    with Model(str(so), threads=2) as model:
        for rows in (1, 2, 3, 7, 33, 250):
            size = rows * 16
            block = mmap.mmap(-1, (size + page - 1) // page * page + page)
            start = ct.addressof(ct.c_char.from_buffer(block))
            end = start + len(block) - page
            if libc.mprotect(end, page, 0):
                return "mprotect failed"
            view = np.ctypeslib.as_array((ct.c_float * (rows * 4)).from_address(end - size)).reshape(rows, 4)
            view[...] = rows
            y = model.run([view, view])[0]
            libc.mprotect(end, page, 3)
            if not np.array_equal(y, np.full((rows, 4), 2 * rows, np.float32)):
                return f"{rows} rows: wrong sums"
    return ""


def threads(so: Path) -> str:
    """Four threads on one model: each gets its own results, of its own sizes."""
    wrong: list[str] = []
    with Model(str(so), threads=2) as model:
        def calls(number: int) -> None:
            for k in range(200):
                x = np.full(((number * 7 + k) % 50, 4), number, np.float32)
                y = model.run([x, x])[0]
                if y.shape != x.shape or not (y == 2 * number).all():
                    wrong.append(f"thread {number}, call {k}")
        workers = [threading.Thread(target=calls, args=(n,)) for n in range(1, 5)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
    return ", ".join(wrong[:3])


def integers_wrap(folder: Path) -> str:
    """Shape arithmetic as values of a tensor is int64 arithmetic: it wraps, as in ONNX Runtime."""
    for times in (2, 6, 20):
        nodes = [helper.make_node("Shape", ["x"], ["s0"]), *(helper.make_node("Mul", [f"s{k}"] * 2, [f"s{k + 1}"]) for k in range(times)),
                 helper.make_node("Identity", [f"s{times}"], ["y"])]
        m = graph_model(nodes, [info("x", ["N", "M"])], [info("y", None, I64)])
        (folder / "wrap.onnx").write_bytes(m.SerializeToString())
        c = compile_model(str(COMPILER), folder / "wrap.onnx", folder / f"wrap{times}.so")
        if c.status != "pass":
            return f"{c.status}: {c.message}"
        got = Model(str(folder / f"wrap{times}.so")).run([np.zeros((3, 2), np.float32)])[0]
        want = np.array([pow(n, 2**times, 2**64) for n in (3, 2)], np.uint64).astype(np.int64)
        if not np.array_equal(got, want):
            return f"{times} squares: {got}, wanted {want}"
    return ""


def weights_files(folder: Path) -> str:
    """Weights beside the model that are cut off, of another model, gone, a folder, a pipe that nobody writes to."""
    weights = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    m = graph_model([node("MatMul", "a w", "y")], [info("a", ["N", 64])], [info("y", ["N", 64])], [weights])
    (folder / "beside.onnx").write_bytes(m.SerializeToString())
    c = compile_model(str(COMPILER), folder / "beside.onnx", folder / "beside.so", ["--weights", "external"])
    if c.status != "pass":
        return f"{c.status}: {c.message}"
    file = folder / "beside.weights"
    good = file.read_bytes()

    def spoilt(make: Callable[[], object], word: str) -> str:
        file.unlink()
        make()
        try:
            Model(str(folder / "beside.so")).run([np.zeros((2, 64), np.float32)])
            return f"{word}: no error"
        except TripodError as e:
            return "" if word in str(e) else f"the message lacks {word!r}: {e}"

    return (spoilt(lambda: file.write_bytes(good[:-1]), "cut off") or spoilt(lambda: file.write_bytes(b"\xff" * len(good)), "another model")
            or spoilt(lambda: os.mkfifo(file), "not a regular file"))


def main() -> int:
    failed, total = 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder, broken = Path(name), set()
        for stem, m in models().items():
            (folder / f"{stem}.onnx").write_bytes(m.SerializeToString())
            c = compile_model(str(COMPILER), folder / f"{stem}.onnx", folder / f"{stem}.so")
            if c.status != "pass":
                print(f"{stem}: {c.status}: {c.message}")
                broken.add(stem)
        work: dict[str, tuple[str, Callable[[], str]]] = {
            n: (c.model, lambda c=c: perform(folder / f"{c.model}.so", c)) for n, c in CALLS.items()}
        work["edges"] = ("add", lambda: edges(folder / "add.so"))
        work["threads"] = ("add", lambda: threads(folder / "add.so"))
        work["integers_wrap"] = ("", lambda: integers_wrap(folder))
        work["weights_files"] = ("", lambda: weights_files(folder))
        for check, (stem, run) in work.items():
            def guarded(run: Callable[[], str] = run) -> str:
                try:
                    return run()
                except Exception:
                    return traceback.format_exc(limit=-2)

            total += 1
            status, message = in_child(guarded, 30) if stem not in broken else ("error", f"{stem} does not compile")
            failed += status != "pass"
            if status != "pass":
                print(f"{check}: {status}: {message}")
    print(f"{total - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
