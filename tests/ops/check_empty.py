#!/usr/bin/env python3
"""Tensors without elements: every operator with free dims, each of them 0 in turn, then all, against ONNX Runtime.

Ends with "N passed, N failed".
"""
from __future__ import annotations

import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper

sys.path.insert(0, str(Path(__file__).resolve().parent))
from small import Small, run_all  # noqa: E402

SIZES = {"N": 3, "M": 5, "K": 4, "C": 8, "H": 6, "W": 7, "ONE": 1}
i64 = np.int64


def case(op: str, *inputs: str, opset: int = 21, outputs: int = 1, consts: dict[int, Any] | None = None,
         dtype: Any = np.float32, label: str = "", **attrs: Any) -> Small:
    """`inputs`: dims of each, like "N C H 3", with a dtype in front where it is another ("int64:N M"); "": left out;
    consts: operands by position."""
    consts = consts or {}
    names, declared, constants = [], {}, {}
    for k, dims in enumerate(inputs):
        names.append(f"x{k}" if dims is not None and (dims != "" or k in consts) else "")
        if k in consts:
            constants[f"x{k}"] = np.asarray(consts[k])
        elif dims != "":
            t, _, rest = dims.rpartition(":")
            declared[f"x{k}"] = (np.dtype(t or dtype), [int(d) if d.isdigit() else d for d in rest.split() if d != "-"])
    free = [d for d in SIZES if any(d in dims for _, dims in declared.values())]
    rng = np.random.default_rng(zlib.crc32(f"{op}{inputs}{attrs}".encode()))

    def feed(sizes: dict[str, int]) -> dict[str, np.ndarray]:
        arrays = {}
        for n, (t, dims) in declared.items():
            shape = [d if isinstance(d, int) else sizes[d] for d in dims]
            arrays[n] = (rng.integers(0, 2, shape) if t.kind in "iub" else rng.uniform(0.1, 0.9, shape)).astype(t)
        return arrays

    # Of windows, ONNX Runtime rounds the number of places in an empty dim towards 0 instead of down.
    every = {d: 0 for d in SIZES if "kernel_shape" not in attrs or d not in "HW"}
    feeds = [feed(SIZES), *(feed({**SIZES, d: 0}) for d in free if d in every), feed({**SIZES, **every})]
    outs = [f"y{k}" for k in range(outputs)]
    return Small(f"{op}-{opset} {' / '.join(inputs)} {attrs or ''} {label}", [helper.make_node(op, names, outs, name="it", **attrs)],
                 declared, outs, feeds, constants, opset)


def shaped(name: str, nodes: list[Any], inputs: dict[str, list[Any]], outputs: list[str], **constants: Any) -> Small:
    """Several nodes on f32 inputs."""
    rng = np.random.default_rng(7)
    free = [d for d in SIZES if any(d in dims for dims in inputs.values())]
    feeds = []
    for sizes in [SIZES, *({**SIZES, d: 0} for d in free), {d: 0 for d in SIZES}]:
        feeds.append({n: rng.uniform(-1, 1, [sizes.get(d, d) for d in dims]).astype(np.float32) for n, dims in inputs.items()})
    return Small(name, nodes, {n: (np.float32, dims) for n, dims in inputs.items()}, outputs, feeds,
                 {n: np.asarray(v) for n, v in constants.items()})


def elementwise() -> list[Small]:
    unary = ["Abs", "Neg", "Exp", "Sigmoid", "Relu", "Erf", "Floor", "Not", "IsNaN", "Softplus", "Gelu", "Identity", "Shape", "Size"]
    binary = ["Add", "Div", "Pow", "Max", "Less", "PRelu"]
    return [*(case(op, "bool:N M" if op == "Not" else "N M") for op in unary),
            *(case(op, "N M", "N M") for op in binary), case("Mul", "N M", "M"), case("Add", "N 1 M", "K 1"),
            case("Sub", "N M", "1"), case("Mod", "int64:N M", "", consts={1: i64(3)}), case("Where", "bool:N M", "N M", "N M"),
            case("Clip", "N M", "", "", consts={1: np.float32(0), 2: np.float32(0.5)}), case("Cast", "N M", to=7),
            case("Sum", "N M", "N M", "M"), case("Mean", "N M", "N M"), case("CumSum", "N M", "", consts={1: i64(1)}),
            case("CumSum", "N M", "", consts={1: i64(0)})]


def reductions() -> list[Small]:
    ops = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
           "ReduceLogSumExp", "ReduceSumSquare"]
    result = []
    for op in ops:
        opset = 21
        for axes in ([1], [0], [0, 1]):
            for keep in (0, 1):
                result.append(case(op, "N M K", "", consts={1: np.array(axes, i64)}, keepdims=keep, opset=opset, label=str(axes)))
        result.append(case(op, "N M", opset=opset))
    for op in ("ArgMax", "ArgMin"):
        result += [case(op, "N M", axis=1), case(op, "N M", axis=0, keepdims=0)]
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        result += [case(op, "N M", axis=1), case(op, "N M K", axis=1), case(op, "N M", axis=0)]
    return [*result, case("LayerNormalization", "N M K", "K", "K", axis=-1), case("LayerNormalization", "N M 4", "4", "4", axis=-1),
            case("RMSNormalization", "N M 4", "4", opset=23), case("LpNormalization", "N M", axis=1),
            case("InstanceNormalization", "N C H W", "C", "C"), case("GroupNormalization", "N 8 H W", "8", "8", num_groups=2),
            case("BatchNormalization", "N C H W", "C", "C", "C", "C"), case("MeanVarianceNormalization", "N C H W"),
            case("LRN", "N C H W", size=3), case("TopK", "N M", "", consts={1: np.array([2], i64)}, outputs=2, axis=1),
            case("TopK", "N M", "", consts={1: np.array([0], i64)}, outputs=2, axis=1),
            case("TopK", "N M", "", consts={1: np.array([2], i64)}, outputs=2, axis=0)]


def contractions() -> list[Small]:
    w = np.random.default_rng(1).standard_normal((8, 4, 3, 3)).astype(np.float32)
    return [case("MatMul", "N K", "K M"), case("MatMul", "H N K", "H K M"), case("MatMul", "H N K", "K M"), case("MatMul", "K", "K M"),
            case("MatMul", "N K", "", consts={1: np.ones((4, 16), np.float32)}), case("MatMul", "H N K", "", consts={1: np.ones((4, 33), np.float32)}),
            case("MatMul", "K", "K"), case("Gemm", "N K", "K M", "M"), case("Gemm", "N K", "K M", "N M", alpha=0.5, beta=2.0), case("Gemm", "K N", "M K", transA=1, transB=1),
            case("Gemm", "N K", "", "", consts={1: np.ones((4, 17), np.float32), 2: np.ones(17, np.float32)}),
            case("MatMulInteger", "uint8:N 4", "uint8:4 M", dtype=np.uint8), case("Einsum", "N K", "K M", equation="ij,jk->ik"),
            case("Einsum", "N M K", "N K", equation="bij,bj->bi"),
            case("Conv", "N 4 H W", "", consts={1: w}, pads=[1, 1, 1, 1]), case("Conv", "N 4 H W", "", consts={1: w}),
            case("Conv", "N 8 H W", "", consts={1: w[:, :1]}, group=8, pads=[1, 1, 1, 1]), case("Conv", "N 4 H W", "M 4 3 3", pads=[1, 1, 1, 1]),
            case("Conv", "N C H W", "M C 3 3", pads=[1, 1, 1, 1]), case("ConvTranspose", "N 8 H W", "", consts={1: w}, strides=[2, 2]),
            case("Attention", "N 2 M 8", "N 2 K 8", "N 2 K 8", opset=23), case("Attention", "N 2 M 8", "N 2 M 8", "N 2 M 8", opset=23, is_causal=1)]


def windows() -> list[Small]:
    sizes = {"kernel_shape": [3, 3], "strides": [2, 2]}
    linear = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    scales = {2: np.array([1, 1, 2, 2], np.float32)}
    return [case("MaxPool", "N C H W", pads=[1, 1, 1, 1], **sizes), case("MaxPool", "N C H W", **sizes), case("AveragePool", "N C H W", pads=[1, 1, 1, 1], **sizes),
            case("AveragePool", "N C H W", pads=[1, 1, 1, 1], count_include_pad=1, **sizes), case("LpPool", "N C H W", **sizes),
            case("GlobalAveragePool", "N C H W"), case("GlobalMaxPool", "N C H W"), case("GlobalLpPool", "N C H W"),
            case("Resize", "N C H W", "", "", consts=scales), case("Resize", "N C H W", "", "", consts=scales, **linear),
            case("Resize", "N C H W", "", "", consts=scales, mode="cubic"), case("DepthToSpace", "N 8 H W", blocksize=2), case("SpaceToDepth", "N C 4 6", blocksize=2)]


def moves() -> list[Small]:
    at = np.array([1, 0], i64)
    return [case("Transpose", "N M K", perm=[2, 0, 1]), case("Concat", "N M", "K M", axis=0), case("Concat", "N M", "N K", axis=1), case("Flatten", "N M K", axis=1),
            case("Reshape", "N M 4", "", consts={1: np.array([0, 0, 2, 2], i64)}), case("Reshape", "N M 4", "", consts={1: np.array([-1, 4], i64)}),
            case("Reshape", "N 4", "", consts={1: np.array([0, -1], i64)}), case("Reshape", "N M 4", "", consts={1: np.array([0, -1, 2], i64)}),
            case("Squeeze", "N 1 M", "", consts={1: np.array([1], i64)}), case("Unsqueeze", "N M", "", consts={1: np.array([1], i64)}),
            case("Expand", "N 1", "", consts={1: np.array([1, 3, 5], i64)}), case("Tile", "N M", "", consts={1: np.array([2, 3], i64)}),
            case("Tile", "N M", "", consts={1: np.array([0, 3], i64)}), case("Split", "N 6", outputs=2, axis=1, num_outputs=2),
            case("Split", "N 6", "", consts={1: np.array([0, 6], i64)}, outputs=2, axis=1),
            case("Slice", "N M", "", "", consts={1: np.array([1], i64), 2: np.array([100], i64)}),
            case("Slice", "N M", "", "", "", "", consts={1: np.array([-1], i64), 2: np.array([-100], i64), 3: np.array([1], i64), 4: np.array([-2], i64)}),
            case("Pad", "N M", "", consts={1: np.array([1, 0, 0, 2], i64)}), case("Pad", "N M", "", consts={1: np.array([1, 0, 0, 2], i64)}, mode="edge"),
            case("Gather", "N M", "int64:K", axis=0), case("Gather", "N M", "", consts={1: at}, axis=1), case("Gather", "4 M", "int64:N K"),
            case("GatherElements", "N M", "int64:N M", axis=1), case("GatherND", "4 M", "int64:N 1"),
            case("ScatterElements", "3 M", "int64:N M", "N M", axis=0), case("ScatterND", "4 M", "int64:N 1", "N M"), case("ScatterND", "N M", "int64:K 1", "K M"),
            case("OneHot", "int64:N M", "", "", consts={1: i64(4), 2: np.array([0, 1], np.float32)}), case("Trilu", "N M K"), case("Trilu", "N M K", upper=0),
            case("NonZero", "N M"), case("Compress", "N M", "bool:N", axis=0), case("Compress", "N M", "bool:0"), case("Unique", "N", outputs=4), case("Unique", "N M", axis=0),
            case("ReverseSequence", "M N K", "int64:N"), case("EyeLike", "N M", dtype=np.float32), case("ConstantOfShape", "int64:2"),
            case("NonMaxSuppression", "N M 4", "N K M", "", consts={2: i64(3)}),
            case("QuantizeLinear", "N M", "", "", consts={1: np.float32(0.1), 2: np.uint8(3)}),
            case("DequantizeLinear", "uint8:N M", "", "", consts={1: np.float32(0.1), 2: np.uint8(3)}), case("DynamicQuantizeLinear", "N M", outputs=3)]


def recurrent() -> list[Small]:
    rng = np.random.default_rng(3)
    weight = lambda gates: {1: rng.standard_normal((1, gates * 4, 5)).astype(np.float32), 2: rng.standard_normal((1, gates * 4, 4)).astype(np.float32)}
    return [case("LSTM", "M N 5", "", "", consts=weight(4), outputs=3, hidden_size=4), case("GRU", "M N 5", "", "", consts=weight(3), outputs=2, hidden_size=4),
            case("RNN", "M N 5", "", "", consts=weight(1), outputs=2, hidden_size=4)]


def chains() -> list[Small]:
    n = helper.make_node
    return [
        shaped("softmax of a product", [n("MatMul", ["a", "b"], ["s"]), n("Softmax", ["s"], ["p"], axis=-1), n("MatMul", ["p", "c"], ["y"])],
               {"a": ["N", "M", "K"], "b": ["N", "K", "W"], "c": ["N", "W", "K"]}, ["y"]),
        shaped("a cache that starts empty", [n("Concat", ["past", "x"], ["all"], axis=2), n("ReduceMean", ["all", "axes"], ["y"], keepdims=0)],
               {"past": ["N", 2, "M", 4], "x": ["N", 2, "K", 4]}, ["all", "y"], axes=np.array([3], i64)),
        shaped("reshape by its own dims", [n("Shape", ["x"], ["s"]), n("Gather", ["s", "i0"], ["n"]), n("Gather", ["s", "i1"], ["m"]),
                                           n("Concat", ["n", "m", "two", "rest"], ["shape"], axis=0), n("Reshape", ["x", "shape"], ["y"])],
               {"x": ["N", "M", 8]}, ["y"], i0=np.array([0], i64), i1=np.array([1], i64), two=np.array([2], i64), rest=np.array([4], i64)),
        shaped("norm with residual", [n("Add", ["x", "r"], ["a"]), n("LayerNormalization", ["a", "g", "b"], ["l"]), n("Relu", ["l"], ["y"])],
               {"x": ["N", "M", 16], "r": ["N", "M", 16]}, ["y", "a"], g=np.ones(16, np.float32), b=np.ones(16, np.float32)),
        shaped("mean over rows as a quotient", [n("ReduceSum", ["x", "axes"], ["s"]), n("Shape", ["x"], ["shape"]), n("Gather", ["shape", "i1"], ["n"]),
                                                n("Cast", ["n"], ["f"], to=1), n("Div", ["s", "f"], ["y"])],
               {"x": ["N", "M"]}, ["y"], axes=np.array([1], i64), i1=np.array([1], i64)),
    ]


def main() -> int:
    cases = [*elementwise(), *reductions(), *contractions(), *windows(), *moves(), *recurrent(), *chains()]
    wanted = sys.argv[1:]
    return run_all([c for c in cases if not wanted or any(w in c.name for w in wanted)], signs=False)


if __name__ == "__main__":
    sys.exit(main())
