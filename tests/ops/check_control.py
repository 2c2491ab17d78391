#!/usr/bin/env python3
"""Loops whose carried values change their size, and branches, against ONNX Runtime.

Ends with "N passed, N failed".
"""
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from onnx import GraphProto, TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parent))
from small import Small, run_all  # noqa: E402

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node, info = helper.make_node, helper.make_tensor_value_info
i64, f32 = np.int64, np.float32


def body(name: str, nodes: list[Any], inputs: list[Any], outputs: list[Any], **constants: np.ndarray) -> GraphProto:
    return helper.make_graph(nodes, name, inputs, outputs, [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()])


def loop_body(nodes: list[Any], carried: list[Any], outputs: list[Any], **constants: np.ndarray) -> GraphProto:
    """A body whose condition passes through."""
    return body("body", [*nodes, node("Identity", ["go"], ["go_out"])], [info("i", I64, []), info("go", BOOL, []), *carried],
                [info("go_out", BOOL, []), *outputs], **constants)


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape) + len(shape)).standard_normal(shape).astype(f32)


def trips(*counts: int) -> list[np.ndarray]:
    return [np.array(n, i64) for n in counts]


def growing() -> Small:
    """A cache: each iteration appends a row, and sums what is there so far."""
    b = loop_body([node("Concat", ["c", "row"], ["c2"], axis=0), node("ReduceSum", ["c2", "axes"], ["total"], keepdims=0)], [info("c", F32, [None, 3])],
                  [info("c2", F32, [None, 3]), info("total", F32, [3])], axes=np.array([0], i64))
    nodes = [node("Loop", ["n", "", "c0"], ["c", "totals"], body=b), node("Relu", ["c"], ["y"])]
    feeds = [{"n": n, "c0": values(s, 3), "row": values(1, 3)} for n in trips(0, 1, 5, 40) for s in (2, 0, 7)]
    return Small("a cache that grows", nodes, {"n": (i64, []), "c0": (f32, ["S", 3]), "row": (f32, [1, 3])}, ["c", "totals", "y"], feeds)


def doubling_and_swapped() -> Small:
    """Two values that change places while one doubles; a third that stays as it is."""
    b = loop_body([node("Concat", ["a", "a"], ["a2"], axis=0), node("Add", ["s", "one"], ["s2"]), node("Identity", ["b"], ["b2"])],
                  [info("a", F32, [None]), info("b", F32, [None]), info("s", F32, [2])], [info("b2", F32, [None]), info("a2", F32, [None]), info("s2", F32, [2])],
                  one=np.array([1, 2], f32))
    nodes = [node("Loop", ["n", "", "a0", "b0", "s0"], ["a", "b", "s"], body=b)]
    feeds = [{"n": n, "a0": values(k), "b0": values(m), "s0": values(2)} for n in trips(0, 1, 2, 7) for k, m in ((1, 3), (4, 2))]
    return Small("swapped and doubled", nodes, {"n": (i64, []), "a0": (f32, ["A"]), "b0": (f32, ["B"]), "s0": (f32, [2])}, ["a", "b", "s"], feeds)


def shrinking_until() -> Small:
    """The condition comes from data: the value loses its first element while its sum is positive."""
    b = body("body", [node("Slice", ["c", "one", "end"], ["c2"]), node("ReduceSum", ["c2"], ["sum"], keepdims=0), node("Greater", ["sum", "zero"], ["go2"])],
             [info("i", I64, []), info("go", BOOL, []), info("c", F32, [None])], [info("go2", BOOL, []), info("c2", F32, [None])],
             one=np.array([1], i64), end=np.array([1 << 40], i64), zero=np.array(0, f32))
    nodes = [node("Loop", ["", "go0", "c0"], ["c"], body=b)]
    feeds = [{"go0": np.array(go), "c0": c} for go in (True, False) for c in (np.array([1, 2, 3], f32), np.array([3, -9, 20, 5, -1], f32), np.array([1], f32))]
    return Small("shrinks until", nodes, {"go0": (np.bool_, []), "c0": (f32, ["S"])}, ["c"], feeds)


def nested() -> Small:
    """A loop that grows inside of a loop that grows."""
    inner = body("inner", [node("Concat", ["k", "i_row"], ["k2"], axis=0), node("Identity", ["igo"], ["igo2"])], [info("j", I64, []), info("igo", BOOL, []), info("k", F32, [None, 2])],
                 [info("igo2", BOOL, []), info("k2", F32, [None, 2])])
    b = loop_body([node("ReduceMax", ["c", "axes"], ["i_row"], keepdims=1), node("Loop", ["i", "", "c"], ["c2"], body=inner)], [info("c", F32, [None, 2])], [info("c2", F32, [None, 2])],
                  axes=np.array([0], i64))
    feeds = [{"n": n, "c0": values(s, 2)} for n in trips(0, 1, 4) for s in (1, 3)]
    return Small("nested", [node("Loop", ["n", "", "c0"], ["c"], body=b)], {"n": (i64, []), "c0": (f32, ["S", 2])}, ["c"], feeds)


def matmul_in_loop() -> Small:
    """A captured weight that is constant after folding only, and a product with the grown value."""
    b = loop_body([node("MatMul", ["c", "w"], ["p"]), node("Concat", ["c", "p"], ["c2"], axis=0)], [info("c", F32, [None, 4])], [info("c2", F32, [None, 4])])
    nodes = [node("Transpose", ["w0"], ["w"], perm=[1, 0]), node("Loop", ["n", "", "c0"], ["c"], body=b)]
    feeds = [{"n": n, "c0": values(s, 4)} for n in trips(0, 1, 3) for s in (1, 5)]
    return Small("a product in a loop", nodes, {"n": (i64, []), "c0": (f32, ["S", 4])}, ["c"], feeds, {"w0": 0.3 * values(4, 4)}, rtol=1e-4)


def branches() -> Small:
    """Branches of different extents, taken by data, with a constant that both capture."""
    then_ = body("then", [node("Slice", ["x", "zero", "two"], ["t"]), node("Mul", ["t", "w"], ["t2"])], [], [info("t2", F32, [None, 3])], zero=np.array([0], i64), two=np.array([2], i64))
    else_ = body("else", [node("Concat", ["x", "x"], ["e"], axis=0), node("Add", ["e", "w"], ["e2"])], [], [info("e2", F32, [None, 3])])
    nodes = [node("Neg", ["w0"], ["w"]), node("If", ["c"], ["y"], then_branch=then_, else_branch=else_), node("Relu", ["y"], ["z"])]
    feeds = [{"c": np.array(c), "x": values(s, 3)} for c in (True, False) for s in (0, 1, 5)]
    return Small("branches of different extents", nodes, {"c": (np.bool_, []), "x": (f32, ["S", 3])}, ["y", "z"], feeds, {"w0": values(1, 3)})


def collected_until() -> Small:
    """Scanned results of which only the run knows how many there are: a matrix, and one of another type."""
    b = body("body", [node("Mul", ["c", "half"], ["c2"]), node("ReduceMax", ["c2"], ["most"], keepdims=0), node("Greater", ["most", "least"], ["go2"]),
                      node("Identity", ["c2"], ["row"]), node("Identity", ["i"], ["at"])],
             [info("i", I64, []), info("go", BOOL, []), info("c", F32, [3, 2])],
             [info("go2", BOOL, []), info("c2", F32, [3, 2]), info("row", F32, [3, 2]), info("at", I64, [])], half=np.array(0.5, f32), least=np.array(0.1, f32))
    nodes = [node("Loop", ["n", "go0", "c0"], ["c", "rows", "at"], body=b), node("Neg", ["rows"], ["y"])]
    feeds = [{"n": n, "go0": np.array(go), "c0": np.full((3, 2), m, f32)} for n in trips(0, 2, 99) for go in (True, False) for m in (1.0, 0.1)]
    return Small("collected until", nodes, {"n": (i64, []), "go0": (np.bool_, []), "c0": (f32, [3, 2])}, ["c", "rows", "at", "y"], feeds)


def scan_body(name: str) -> GraphProto:
    """A running sum of x, and the double of each sum."""
    return body(name, [node("Add", ["s", "x"], ["s2"]), node("Add", ["s2", "s2"], ["z"])], [info("s", F32, [None]), info("x", F32, [None])],
                [info("s2", F32, [None]), info("z", F32, [None])])


def scan_in_scan() -> Small:
    """Slices of slices are read and written, backwards too."""
    inner = node("Scan", ["zero", "xs"], ["last", "zs"], body=scan_body("inner"), num_scan_inputs=1, scan_input_directions=[1])
    outer = body("outer", [inner, node("Add", ["t", "last"], ["t2"])], [info("t", F32, [None]), info("xs", F32, [None, None])],
                 [info("t2", F32, [None]), info("zs", F32, [None, None])])
    nodes = [node("Scan", ["t0", "x"], ["t", "z"], body=outer, num_scan_inputs=1, scan_output_directions=[1])]
    feeds = [{"t0": values(3), "zero": np.zeros(3, f32), "x": values(a, b, 3)} for a, b in ((1, 1), (2, 5), (4, 0), (0, 3))]
    return Small("a scan in a scan", nodes, {"t0": (f32, [3]), "zero": (f32, [3]), "x": (f32, ["A", "B", 3])}, ["t", "z"], feeds)


def scan_of_batches() -> Small:
    """Opset 8: everything has a batch axis in front."""
    nodes = [node("Scan", ["", "s0", "x"], ["s", "z"], body=scan_body("body"), num_scan_inputs=1, directions=[1])]
    feeds = [{"s0": values(n, 2), "x": values(n, t, 2)} for n, t in ((1, 1), (3, 4), (2, 3))]
    return Small("a scan of batches", nodes, {"s0": (f32, ["N", 2]), "x": (f32, ["N", "T", 2])}, ["s", "z"], feeds, opset=8)


def main() -> int:
    return run_all([growing(), doubling_and_swapped(), shrinking_until(), nested(), matmul_in_loop(), branches(), collected_until(), scan_in_scan(),
                    scan_of_batches()])


if __name__ == "__main__":
    sys.exit(main())
