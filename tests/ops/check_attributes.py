#!/usr/bin/env python3
"""Operators with attributes and values drawn at random, against ONNX Runtime: integers exactly, zeros with their sign.

usage: tests/ops/check_attributes.py [OPERATOR...] [--seed N] [--count N] [-v]
Every operator of the table runs `count` times (default 2), at one of its opsets, with static or free dims.
Ends with "N passed, N failed".
"""
from __future__ import annotations

import argparse
import sys
import zlib
from pathlib import Path
from typing import Any, Callable

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from small import Small, one_node, run_all  # noqa: E402

i64, f32 = np.int64, np.float32
INTS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float32, np.float64, np.float16]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0]


class Draw:
    """Random choices of one case."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one(self, *options: Any) -> Any:
        return options[self.rng.integers(len(options))]

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def chance(self, p: float = 0.5) -> bool:
        return self.rng.random() < p

    def shape(self, low: int = 1, high: int = 4, most: int = 6) -> list[int]:
        return [self.one(1, *range(2, most + 1)) for _ in range(self.number(low, high))]

    def axis(self, rank: int) -> int:
        return self.number(-rank, rank - 1)

    def array(self, dtype: Any, shape: list[int], special: float = 0.0, low: float = -3, high: float = 3) -> np.ndarray:
        """Floats in [low, high] with some of SPECIAL; integers small, or (special) at the ends of their range."""
        t = np.dtype(dtype)
        if t.kind == "b":
            return self.rng.random(shape) < 0.5
        if t.kind == "f":
            a = self.rng.uniform(low, high, shape).astype(t)
            return np.where(self.rng.random(shape) < special, self.rng.choice(SPECIAL, shape), a).astype(t)
        info = np.iinfo(t)
        a = self.rng.integers(max(info.min, int(low) - 7), min(info.max, int(high) + 7), shape, endpoint=True).astype(t)
        ends = self.rng.choice(np.array([info.min, info.max, info.max - 1, 0, 1], dtype=t), shape)
        return np.where(self.rng.random(shape) < special, ends, a).astype(t)

    def broadcast(self, shape: list[int]) -> list[int]:
        """A shape that broadcasts with `shape`."""
        part = shape[self.number(0, len(shape)):]
        return [1 if self.chance(0.3) else d for d in part]


Row = Callable[[Draw], Small]
ROWS: dict[str, Row] = {}


def row(*names: str) -> Callable[[Callable[[Draw, str], Small]], Callable[[Draw, str], Small]]:
    def add(f: Callable[[Draw, str], Small]) -> Callable[[Draw, str], Small]:
        for n in names:
            ROWS[n] = lambda d, n=n: f(d, n)
        return f
    return add


@row("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Sum", "Mean", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Mod", "PRelu",
     "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift", "And", "Or", "Xor")
def binary(d: Draw, op: str) -> Small:
    attrs: dict[str, Any] = {}
    kinds = {"And": [np.bool_], "Or": [np.bool_], "Xor": [np.bool_], "BitShift": [np.uint8, np.uint32, np.uint64], "BitwiseAnd": INTS, "BitwiseOr": INTS,
             "BitwiseXor": INTS, "Mean": FLOATS[:2], "Sum": FLOATS[:2], "PRelu": FLOATS[:2], "Pow": [np.int32, np.int64, *FLOATS[:2]]}.get(op, [*INTS, *FLOATS])
    t = d.one(*kinds)
    shape = d.shape()
    a, b = d.array(t, shape, 0.3), d.array(t, d.broadcast(shape), 0.3)
    if op in ("Div", "Mod") and np.dtype(t).kind != "f":
        b = np.where(b == 0, np.array(3, t), b).astype(t)
        if np.dtype(t).kind == "i":
            b = np.where((b == -1), np.array(-2, t), b).astype(t)
    if op == "Mod":
        attrs["fmod"] = 1 if np.dtype(t).kind == "f" else d.number(0, 1)
    if op == "BitShift":
        attrs["direction"] = d.one("LEFT", "RIGHT")
        b = (b % np.array(np.dtype(t).itemsize * 8, t)).astype(t)
    if op == "Pow":
        a, b = (d.array(t, list(x.shape), 0, 0.2 if np.dtype(t).kind == "f" else 0, 2) for x in (a, b))
        if np.dtype(t).kind == "i":
            a, b = abs(a) % 5, abs(b) % 4
    if op not in ("PRelu", "Pow") and d.chance(0.3):
        a, b = b, a
    opset = d.one(*{"Mod": (10, 13), "Pow": (12, 13, 15), "Max": (8, 12, 13), "Min": (8, 12, 13), "BitShift": (11,), "PRelu": (7, 9, 16), "Sum": (8, 13), "Mean": (8, 13)}.get(
        op, (18, 21) if op.startswith("Bitwise") else (13, 14) if op not in ("Less", "Greater", "Equal") else (7, 9, 11, 13, 19)))
    return one_node(op, [a, b], attrs, opset=opset, free=d.chance(), constant=d.one((), (), (1,)))


@row("Abs", "Neg", "Sign", "Ceil", "Floor", "Round", "Sqrt", "Reciprocal", "Exp", "Log", "Sin", "Cos", "Tan", "Atan", "Asin", "Acos", "Sinh", "Cosh", "Asinh", "Acosh",
     "Atanh", "Tanh", "Erf", "Sigmoid", "Relu", "Softplus", "Softsign", "HardSwish", "Not", "BitwiseNot", "IsNaN", "IsInf", "LeakyRelu", "Elu", "Celu", "Selu",
     "ThresholdedRelu", "Shrink", "HardSigmoid", "Gelu", "Mish", "Identity")
def unary(d: Draw, op: str) -> Small:
    attrs: dict[str, Any] = {}
    kinds: list[Any] = {"Abs": [*INTS, *FLOATS], "Sign": [*INTS, *FLOATS], "Neg": [np.int8, np.int16, np.int32, np.int64, *FLOATS], "Relu": [np.int8, np.int32, *FLOATS[:2]],
                        "Not": [np.bool_], "BitwiseNot": INTS, "Shrink": [np.float32, np.float64, np.int32, np.uint8], "Identity": [*INTS, *FLOATS]}.get(op, [np.float32, np.float64])
    t = d.one(*kinds)
    x = d.array(t, d.shape(), 0.3)
    opset = {"Gelu": 20, "Mish": 18, "IsInf": 20, "BitwiseNot": 18, "Relu": 14}.get(op, d.one(13, 16))
    if op in ("LeakyRelu", "Elu", "ThresholdedRelu", "Celu") and d.chance():
        attrs["alpha"] = d.one(0.3, 1.7)
    if op == "Selu" and d.chance():
        attrs.update(alpha=1.2, gamma=0.7)
    if op == "HardSigmoid" and d.chance():
        attrs.update(alpha=0.3, beta=0.4)
    if op == "Shrink":
        attrs.update(lambd=d.one(0.5, 1.5), bias=d.one(0.0, 1.0))
    if op == "IsInf":
        attrs.update(detect_negative=d.number(0, 1), detect_positive=d.number(0, 1))
    if op == "Gelu":
        attrs["approximate"] = d.one("none", "tanh")
    return one_node(op, [x], attrs, opset=opset, free=d.chance())


@row("Clip")
def clip(d: Draw, op: str) -> Small:
    t = d.one(np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, *FLOATS)
    x = d.array(t, d.shape(), 0.3)
    low, high = (np.array(v, t) for v in ((2, 5) if d.chance(0.8) else (5, 2)))
    if d.chance(0.3) and np.dtype(t) == np.float32:
        return one_node(op, [x], {k: v for k, v in (("min", -1.0), ("max", 1.5)) if d.chance(0.7)}, opset=6)
    return one_node(op, [x, low if d.chance(0.7) else None, high if d.chance(0.7) else None], opset=d.one(12, 13), free=d.chance(), constant=d.one((), (1, 2)))


@row("Cast")
def cast(d: Draw, op: str) -> Small:
    from onnx import helper
    a, b = d.one(*INTS, *FLOATS, np.bool_), d.one(*INTS, *FLOATS, np.bool_)
    x = d.array(a, d.shape(), 0.3)
    if np.dtype(a).kind == "f" and np.dtype(b).kind in "iu":  # what does not fit is undefined
        info = np.iinfo(b)
        x = np.clip(np.nan_to_num(x, posinf=1, neginf=0), max(info.min, -100), min(info.max, 100)).astype(a)
    return one_node(op, [x], {"to": helper.np_dtype_to_tensor_dtype(np.dtype(b))}, opset=d.one(9, 13, 19), free=d.chance())


@row("Where")
def where(d: Draw, op: str) -> Small:
    shape, t = d.shape(), d.one(np.float32, np.int32, np.int64, np.uint8, np.float64)
    parts = [d.array(np.bool_, d.broadcast(shape)), d.array(t, shape, 0.3), d.array(t, d.broadcast(shape), 0.3)]
    return one_node(op, parts, opset=d.one(9, 16), free=d.chance())


@row("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
def reduce(d: Draw, op: str) -> Small:
    shape = d.shape()
    t = d.one(np.float32, np.float64, np.int32, np.int64) if op not in ("ReduceMax", "ReduceMin") else d.one(np.float32, np.float64, np.int32, np.int64, np.int8, np.uint8)
    if op in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean"):
        t = d.one(np.float32, np.float64)
    x = d.array(t, shape, 0.2 if op in ("ReduceMax", "ReduceMin") and np.dtype(t).kind != "f" else 0, 0.1 if op == "ReduceLogSum" else -2, 2)
    axes = sorted({d.axis(len(shape)) % len(shape) for _ in range(d.number(0, len(shape)))})
    axes = [a - len(shape) if d.chance(0.3) else a for a in axes]
    attrs: dict[str, Any] = {"keepdims": d.number(0, 1)} if d.chance(0.8) else {}
    opset = d.one(11, 13, 18, 20)
    if opset < (13 if op == "ReduceSum" else 18):
        if axes:
            attrs["axes"] = axes
        return one_node(op, [x], attrs, opset=opset, free=d.chance(), rtol=1e-4)
    if d.chance(0.3):
        attrs["noop_with_empty_axes"] = 1
    given = d.chance(0.9)
    return one_node(op, [x, np.array(axes, i64)] if given else [x], attrs, opset=opset, free=d.chance(),
                    constant=() if attrs.get("keepdims", 1) and given and d.chance() else (1,), rtol=1e-4)


@row("ArgMax", "ArgMin")
def arg(d: Draw, op: str) -> Small:
    shape = d.shape()
    t = d.one(np.float32, np.float64, np.int32, np.int64, np.uint8, np.int8)
    x = d.array(t, shape, 0.3 if np.dtype(t).kind != "f" else 0)
    x = np.round(x).astype(t)  # ties
    attrs = {"axis": d.axis(len(shape)), "keepdims": d.number(0, 1), "select_last_index": d.number(0, 1)}
    return one_node(op, [x], attrs, opset=d.one(12, 13), free=d.chance())


@row("Softmax", "LogSoftmax", "Hardmax")
def softmax(d: Draw, op: str) -> Small:
    shape = d.shape()
    opset = d.one(6, 11, 13)
    attrs = {"axis": d.axis(len(shape)) if opset >= 11 else d.number(0, len(shape) - 1)} if d.chance(0.8) or len(shape) < 2 else {}
    return one_node(op, [d.array(d.one(np.float32, np.float64), shape)], attrs, opset=opset, free=d.chance())


@row("TopK")
def topk(d: Draw, op: str) -> Small:
    shape, opset = d.shape(), d.one(10, 11)
    axis = d.axis(len(shape))
    t = d.one(np.float32, np.float64, np.int64, np.int32) if opset == 11 else np.float32
    x = np.round(d.array(t, shape, 0.2 if np.dtype(t).kind != "f" else 0)).astype(t)
    attrs: dict[str, Any] = {"axis": axis}
    if opset == 11:
        attrs["largest"] = d.number(0, 1)
    return one_node(op, [x, np.array([d.number(0, shape[axis])], i64)], attrs, opset=opset, outputs=2, free=d.chance(), constant=d.one((), (1,)))


@row("CumSum", "CumProd")
def cumulative(d: Draw, op: str) -> Small:
    shape = d.shape()
    x = d.array(d.one(np.float32, np.float64, np.int32, np.int64), shape)
    return one_node(op, [x, np.array(d.axis(len(shape)), i64)], {"exclusive": d.number(0, 1), "reverse": d.number(0, 1)}, opset=26 if op == "CumProd" else d.one(11, 14),
                    free=d.chance(), constant=(1,))


@row("MaxPool", "AveragePool", "LpPool")
def pool(d: Draw, op: str) -> Small:
    spatial = d.number(1, 3)
    size = [d.number(4, 9) for _ in range(spatial)]
    kernel = [d.number(1, 3) for _ in range(spatial)]
    opset = {"MaxPool": d.one(8, 10, 12), "AveragePool": d.one(7, 10, 11, 19), "LpPool": d.one(11, 18)}[op]
    attrs: dict[str, Any] = {"kernel_shape": kernel}
    if d.chance(0.8):
        attrs["strides"] = [d.number(1, 3) for _ in range(spatial)]
    dilated = opset >= {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[op]
    if dilated and d.chance(0.4):
        attrs["dilations"] = [d.number(1, 2) for _ in range(spatial)]
    if d.chance(0.4):
        attrs["auto_pad"] = d.one("SAME_UPPER", "SAME_LOWER", "VALID")
    elif d.chance(0.7):
        attrs["pads"] = [d.number(0, k - 1) for k in kernel + kernel]
    # ONNX Runtime 1.32's LpPool rounds up with VALID too, against the formula of the specification.
    if opset >= 10 and d.chance() and (op != "LpPool" or (opset >= 18 and attrs.get("auto_pad") != "VALID")):
        attrs["ceil_mode"] = 1
    if op == "AveragePool":
        attrs["count_include_pad"] = d.number(0, 1)
    if op == "LpPool":
        attrs["p"] = d.number(1, 3)
    outputs = 2 if op == "MaxPool" and d.chance(0.4) else 1
    if outputs == 2:
        attrs["storage_order"] = d.number(0, 1)
    return one_node(op, [d.array(d.one(np.float32, np.uint8) if op == "MaxPool" and opset == 12 else np.float32, [d.number(1, 2), d.number(1, 3), *size])], attrs, opset=opset,
                    outputs=outputs, free=d.chance())


@row("Conv", "ConvTranspose")
def conv(d: Draw, op: str) -> Small:
    spatial, group = d.number(1, 3), d.one(1, 1, 2, 3)
    cin, cout = group * d.number(1, 3), group * d.number(1, 4)
    size = [d.number(4, 8) for _ in range(spatial)]
    kernel = [d.number(1, 3) for _ in range(spatial)]
    attrs: dict[str, Any] = {"group": group}
    if d.chance(0.6):
        attrs["strides"] = [d.number(1, 3) for _ in range(spatial)]
    if d.chance(0.4):
        attrs["dilations"] = [d.number(1, 2) for _ in range(spatial)]
    if d.chance(0.4):
        attrs["auto_pad"] = d.one("SAME_UPPER", "SAME_LOWER", "VALID")
    elif d.chance(0.6):
        attrs["pads"] = [d.number(0, 1) for _ in kernel + kernel]
    if op == "ConvTranspose" and "strides" in attrs and d.chance(0.4):
        attrs["output_padding"] = [d.number(0, s - 1) for s in attrs["strides"]]
    w = [cout, cin // group, *kernel] if op == "Conv" else [cin, cout // group, *kernel]
    parts = [d.array(f32, [d.number(1, 2), cin, *size]), d.array(f32, w), d.array(f32, [cout]) if d.chance() else None]
    return one_node(op, parts if parts[2] is not None else parts[:2], attrs, opset=d.one(6, 11, 22), free=d.chance(), constant=d.one((1, 2), (1, 2), ()), rtol=1e-4, atol=2e-5)


@row("Gemm")
def gemm(d: Draw, op: str) -> Small:
    m, n, k = (d.number(1, 20) for _ in range(3))
    ta, tb = d.number(0, 1), d.number(0, 1)
    opset = d.one(7, 9, 11, 13)
    t = d.one(np.float32, np.float64)
    parts = [d.array(t, [k, m] if ta else [m, k]), d.array(t, [n, k] if tb else [k, n]), d.array(t, d.one([n], [m, n], [1, n], [m, 1], [1], []))]
    return one_node(op, parts[:2] if opset >= 11 and d.chance(0.3) else parts, {"transA": ta, "transB": tb, "alpha": d.one(1.0, 0.5), "beta": d.one(1.0, 0.25, 0.0)}, opset=opset,
                    free=d.chance(), constant=d.one((), (1,)), rtol=1e-4, atol=1e-5)


@row("MatMul", "MatMulInteger")
def matmul(d: Draw, op: str) -> Small:
    m, n, k = (d.number(1, 20) for _ in range(3))
    batch = d.shape(0, 2, 3)
    a, b = [*d.broadcast(batch), m, k], [*batch, k, n]
    if d.chance(0.3):
        a, b = [*batch, m, k], [*d.broadcast(batch), k, n]
    if op == "MatMul":
        if d.chance(0.15):
            a = [k]
        return one_node(op, [d.array(t := d.one(np.float32, np.float64, np.int32, np.uint64), a), d.array(t, b)], opset=d.one(9, 13), free=d.chance(), constant=d.one((), (1,)), rtol=1e-4, atol=1e-5)
    ta, tb = d.one(np.uint8, np.int8), d.one(np.uint8, np.int8)
    zeros = [d.array(ta, []) if d.chance(0.7) else None, d.array(tb, []) if d.chance(0.7) else None]
    return one_node(op, [d.array(ta, a, 0.3), d.array(tb, b, 0.3), *zeros], opset=10, free=d.chance(), constant=d.one((), (1,), (1, 2, 3)))


@row("Transpose", "Flatten", "Concat", "Slice", "Pad", "Tile", "Expand", "Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "OneHot", "Trilu", "Split",
     "DepthToSpace", "SpaceToDepth", "ReverseSequence", "Squeeze", "Unsqueeze", "Unique", "NonZero", "Compress", "Resize", "CenterCropPad", "EyeLike", "Range", "Einsum")
def moves(d: Draw, op: str) -> Small:
    shape = d.shape()
    rank, t = len(shape), d.one(np.float32, np.int64, np.int32, np.uint8, np.float64)
    x, free = d.array(t, shape), d.chance()
    axis = d.axis(rank)
    ints = lambda *v: np.array(v, i64)
    if op == "Transpose":
        return one_node(op, [x], {"perm": [int(p) for p in d.rng.permutation(rank)]} if d.chance(0.8) else {}, free=free)
    if op == "Flatten":
        return one_node(op, [x], {"axis": d.number(-rank, rank)}, opset=d.one(11, 13), free=free)
    if op == "Concat":
        others = [d.array(t, [d.number(0, 4) if i == axis % rank else s for i, s in enumerate(shape)]) for _ in range(d.number(0, 2))]
        return one_node(op, [x, *others], {"axis": axis}, opset=d.one(11, 13), free=free)
    if op == "Slice":
        axes = sorted({d.axis(rank) % rank for _ in range(d.number(1, rank))})
        far = [2**62, -(2**62), 9, -9, 0, 1, 2, -1, -2]
        parts = [x, ints(*(d.one(*far) for _ in axes)), ints(*(d.one(*far) for _ in axes)), ints(*(a - rank if d.chance(0.3) else a for a in axes)),
                 ints(*(d.one(1, 2, 3, -1, -2, -3) for _ in axes)) if d.chance(0.7) else None]
        parts = parts if parts[4] is not None else parts[:4]
        return one_node(op, parts, opset=d.one(10, 11, 13), free=free, constant=d.one((1, 2, 3, 4), (3, 4), (3,)))
    if op == "Pad":
        mode = d.one("constant", "reflect", "edge", "wrap") if (x := x if x.dtype != np.uint8 else x.astype(f32)).size else "constant"
        pads = [d.number(-1 if mode == "constant" else 0, max(0, shape[i % rank] - 1)) for i in range(2 * rank)]
        parts = [x, ints(*pads)] + ([d.array(x.dtype, [])] if d.chance() else [])
        return one_node(op, parts, {"mode": mode}, opset=19 if mode == "wrap" else d.one(11, 13, 18), free=free, constant=d.one((1, 2), (1,), ()))
    if op == "Tile":
        return one_node(op, [x, ints(*(d.number(0, 3) for _ in shape))], opset=d.one(6, 13), free=free, constant=d.one((), (1,)))
    if op == "Expand":
        return one_node(op, [x, ints(*([d.number(1, 3)] * d.number(0, 1) + [s if s > 1 else d.number(1, 4) for s in shape]))], opset=d.one(8, 13), free=free, constant=d.one((), (1,)))
    if op in ("Gather", "GatherElements", "ScatterElements"):
        n = shape[axis % rank]
        at = d.shape(0, 2) if op == "Gather" else [d.number(1, s) for s in shape] if op == "GatherElements" else [s if i == axis % rank else d.number(1, s) for i, s in enumerate(shape)]
        idx = d.rng.integers(-n, n, at).astype(d.one(np.int32, np.int64))
        if op != "ScatterElements":
            return one_node(op, [x, idx], {"axis": axis}, opset=d.one(11, 13), free=free, constant=d.one((), (1,)))
        how = d.one("none", "add", "mul", "max", "min")
        if how == "none":  # of duplicates any may win
            idx = np.argsort(d.rng.random(at), axis=axis).astype(i64)
        return one_node(op, [x, idx, d.array(t, at)], {"axis": axis, **({"reduction": how} if how != "none" else {})}, opset=18, free=free)
    if op == "GatherND":
        batch = d.number(0, min(1, rank - 1))
        depth = d.number(1, rank - batch)
        lead = shape[:batch] + d.shape(0, 1)
        if len(lead) <= batch - 1 or (batch and len(lead) < batch):
            lead = shape[:batch]
        idx = np.stack([d.rng.integers(-shape[batch + k], shape[batch + k], lead) for k in range(depth)], -1).astype(i64)
        return one_node(op, [x, idx], {"batch_dims": batch} if batch else {}, opset=d.one(12, 13), free=free)
    if op == "ScatterND":
        depth, how = d.number(1, rank), d.one("none", "add", "mul", "max", "min")
        lead = [d.number(1, 3)] if how != "none" else [1]
        idx = np.stack([d.rng.integers(-shape[k], shape[k], lead) for k in range(depth)], -1).astype(i64)
        return one_node(op, [x, idx, d.array(t, lead + shape[depth:])], {"reduction": how} if how != "none" else {}, opset=18, free=free)
    if op == "OneHot":
        n = d.number(2, 5)
        kind = d.one(np.int64, np.float32, np.int32)
        return one_node(op, [d.rng.integers(-n - 1, n + 2, shape).astype(kind), d.one(np.array(n, i64), np.array([n], i64)), d.array(d.one(np.float32, np.int64), [2])],
                        {"axis": d.number(-rank - 1, rank)}, opset=d.one(9, 11), free=free, constant=(1,))
    if op == "Trilu":
        return one_node(op, [d.array(t, d.shape(2, 4)), np.array(d.number(-4, 4), i64)] if d.chance(0.7) else [d.array(t, d.shape(2, 4))], {"upper": d.number(0, 1)}, opset=14, free=free, constant=d.one((), (1,)))
    if op == "Split":
        n = shape[axis % rank]
        cut = d.number(0, n)
        if d.chance(0.4) and n >= 2:
            return one_node(op, [x], {"axis": axis, "num_outputs": 2}, opset=18, outputs=2, free=free)
        return one_node(op, [x, ints(cut, n - cut)], {"axis": axis}, opset=d.one(13, 18), outputs=2, free=free, constant=(1,))
    if op in ("DepthToSpace", "SpaceToDepth"):
        x = d.array(f32, [2, 8, 4, 6])
        return one_node(op, [x], {"blocksize": 2, **({"mode": d.one("DCR", "CRD")} if op == "DepthToSpace" else {})}, opset=d.one(11, 13), free=free)
    if op == "ReverseSequence":
        n, b, rest = d.number(2, 6), d.number(1, 4), d.shape(0, 2)
        first = d.chance()
        return one_node(op, [d.array(t, [b, n, *rest] if first else [n, b, *rest]), d.rng.integers(1, n + 1, [b]).astype(i64)], {"batch_axis": 0 if first else 1, "time_axis": 1 if first else 0}, opset=10, free=free)
    if op in ("Squeeze", "Unsqueeze"):
        axes = sorted({d.number(0, rank) for _ in range(2)})
        if op == "Squeeze":
            for a in axes:
                x = np.expand_dims(x, a)
        total = len(shape) + len(axes)
        given = [a - total if d.chance(0.3) else a for a in axes]
        return one_node(op, [x, ints(*given)], opset=13, free=free, constant=d.one((), (1,))) if d.chance() else one_node(op, [x], {"axes": given}, opset=11, free=free)
    if op == "Unique":
        x = np.round(x / 2).astype(d.one(np.float32, np.int64))
        return one_node(op, [x], {"sorted": d.number(0, 1), **({"axis": axis} if d.chance() else {})}, opset=11, outputs=4, free=free)
    if op == "NonZero":
        return one_node(op, [np.round(x / 2).astype(t)], opset=d.one(9, 13), free=free)
    if op == "Compress":
        flat = d.chance(0.3)
        n = x.size if flat else shape[axis % rank]
        return one_node(op, [x, d.array(np.bool_, [d.number(1, n)])], {} if flat else {"axis": axis}, opset=d.one(9, 11), free=free)
    if op == "Resize":
        x = d.array(f32, [1, d.number(1, 3), d.number(2, 6), d.number(2, 6)])
        mode = d.one("nearest", "linear", "cubic")
        attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": d.one("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")}
        if mode == "nearest":
            attrs["nearest_mode"] = d.one("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        if mode == "cubic" and d.chance():
            attrs.update(cubic_coeff_a=-0.5, exclude_outside=d.number(0, 1))
        by_scale = d.chance()
        scales = np.array([1, 1, d.one(0.5, 1.5, 2.0, 2.6), d.one(0.5, 0.7, 3.0)], f32)
        size = ints(*x.shape[:2], d.number(1, 9), d.number(1, 9))
        return one_node(op, [x, None, scales if by_scale else None, *([] if by_scale else [size])], attrs, opset=d.one(11, 13, 18) if by_scale else 13, free=free, constant=(2, 3), rtol=1e-4, atol=1e-5)
    if op == "CenterCropPad":
        axes = sorted({d.axis(rank) % rank for _ in range(d.number(1, rank))})
        return one_node(op, [x, ints(*(d.number(1, 8) for _ in axes))], {"axes": axes}, opset=18, free=free, constant=d.one((), (1,)))
    if op == "EyeLike":
        return one_node(op, [d.array(f32, [d.number(1, 5), d.number(1, 5)])], {"k": d.number(-3, 3), "dtype": d.one(1, 6, 7)}, opset=9, free=free)
    if op == "Range":
        kind = d.one(np.float32, np.int64, np.int32)
        return one_node(op, [np.array(v, kind) for v in d.one((0, 7, 1), (5, -4, -2), (1, 9, 3), (3, 3, 1), (3, 0, 1))], opset=11)
    equation, a, b = d.one(("ij,jk->ik", [3, 4], [4, 5]), ("bij,bjk->bik", [2, 3, 4], [2, 4, 5]), ("ij,ij->", [3, 4], [3, 4]), ("ii,ij->j", [4, 4], [4, 3]), ("i,j->ij", [3], [4]),
                           ("...ij,...jk->...ik", [2, 3, 4], [4, 5]), ("bhid,bhjd->bhij", [1, 2, 3, 4], [1, 2, 5, 4]), ("ijk,k->ji", [2, 3, 4], [4]))
    return one_node(op, [d.array(f32, a), d.array(f32, b)], {"equation": equation}, opset=12, free=free, rtol=1e-4, atol=1e-5)


@row("LayerNormalization", "InstanceNormalization", "BatchNormalization", "LpNormalization", "LRN", "MeanVarianceNormalization", "GroupNormalization")
def norms(d: Draw, op: str) -> Small:
    shape = [d.number(1, 3), d.one(2, 4, 6), *d.shape(1, 2)]
    rank, free = len(shape), d.chance()
    c = shape[1]
    x = d.array(f32, shape)
    per = [d.array(f32, [c]) for _ in range(3)] + [d.array(f32, [c], 0, 0.5, 2)]
    loose = {"rtol": 2e-4, "atol": 2e-5, "free": free}
    if op == "LayerNormalization":
        axis = d.axis(rank)
        tail = shape[axis % rank:]
        return one_node(op, [x, d.array(f32, tail), *([d.array(f32, tail)] if d.chance() else [])], {"axis": axis, "epsilon": 1e-3}, opset=17, **loose)
    if op == "InstanceNormalization":
        return one_node(op, [x, *per[:2]], {"epsilon": 1e-3}, opset=d.one(6, 22), **loose)
    if op == "BatchNormalization":
        return one_node(op, [x, *per], {"epsilon": 1e-3}, opset=d.one(9, 14, 15), constant=d.one((), (1, 2, 3, 4)), **loose)
    if op == "LpNormalization":
        return one_node(op, [x], {"axis": d.axis(rank), "p": d.number(1, 2)}, opset=d.one(6, 22), **loose)
    if op == "LRN":
        return one_node(op, [d.array(f32, [2, 6, 3, 3])], {"size": d.one(1, 3, 5, 4), "alpha": 0.5, "beta": 0.6, "bias": 1.5}, opset=d.one(6, 13), **loose)
    if op == "GroupNormalization":
        return one_node(op, [x, *per[:2]], {"num_groups": 2, "epsilon": 1e-3}, opset=21, **loose)
    return one_node(op, [x], {"axes": sorted({d.number(0, rank - 1), 0})} if d.chance(0.7) else {"axes": [0]}, opset=d.one(9, 13), **loose)


@row("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearMatMul")
def quantize(d: Draw, op: str) -> Small:
    shape = d.shape(1, 3)
    rank, t = len(shape), d.one(np.uint8, np.int8)
    axis = d.axis(rank)
    per_axis = d.chance()
    n = [shape[axis % rank]] if per_axis else []
    scale, zero = d.array(f32, n, 0, 0.1, 0.6), d.array(t, n)
    attrs = {"axis": axis} if per_axis else {}
    if op == "QuantizeLinear":
        return one_node(op, [d.array(f32, shape, 0, -90, 90), scale, zero], attrs, opset=d.one(13, 19, 21), free=d.chance())
    if op == "DequantizeLinear":
        return one_node(op, [d.array(t, shape, 0.3), scale, zero], attrs, opset=d.one(13, 19, 21), free=d.chance())
    if op == "DynamicQuantizeLinear":
        return one_node(op, [d.array(f32, shape, 0, *d.one((-3, 3), (1, 4), (-4, -1)))], outputs=3, opset=11, free=d.chance())
    a, b = d.array(t, [5, 7], 0.3), d.array(t, [7, 6], 0.3)
    s = lambda: np.array(d.rng.uniform(0.01, 0.1), f32)
    z = lambda: d.array(t, [])
    return one_node(op, [a, s(), z(), b, s(), z(), np.array(d.rng.uniform(0.3, 0.6), f32), z()], opset=d.one(10, 21))


@row("LSTM", "GRU", "RNN")
def recurrent(d: Draw, op: str) -> Small:
    gates, hidden, size, steps, batch = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], d.number(1, 5), d.number(1, 4), d.number(1, 4), d.number(1, 3)
    direction = d.one("forward", "reverse", "bidirectional")
    n = 2 if direction == "bidirectional" else 1
    attrs: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if op == "GRU":
        attrs["linear_before_reset"] = d.number(0, 1)
    if op == "LSTM" and d.chance(0.3):
        attrs["input_forget"] = 1
    if d.chance(0.3):
        attrs["clip"] = 0.5
    parts: list[np.ndarray | None] = [d.array(f32, [steps, batch, size]), d.array(f32, [n, gates * hidden, size]), d.array(f32, [n, gates * hidden, hidden]),
                                      d.array(f32, [n, 2 * gates * hidden]) if d.chance() else None,
                                      d.rng.integers(1, steps + 1, [batch]).astype(np.int32) if d.chance() else None,
                                      d.array(f32, [n, batch, hidden]) if d.chance() else None]
    if op == "LSTM":
        parts += [d.array(f32, [n, batch, hidden]) if d.chance() else None, d.array(f32, [n, 3 * hidden]) if d.chance(0.3) else None]
    while parts[-1] is None:
        parts.pop()
    return one_node(op, parts, attrs, opset=d.one(7, 14), outputs=3 if op == "LSTM" else 2, constant=(1, 2, 3, 7), rtol=1e-4, atol=1e-5)


@row("Slice older", "Pad older", "Split older", "TopK older", "Resize older", "Upsample", "Dropout", "Pow mixed", "Shape", "LayerNormalization outputs", "GroupNormalization older",
     "Max of many", "Pad axes", "Split uneven", "Reshape", "Concat of one", "Constant of shape")
def versions(d: Draw, op: str) -> Small:
    """What other versions of an operator say, or other forms of it."""
    shape = d.shape()
    rank, x, free = len(shape), d.array(f32, shape), d.chance()
    axis = d.axis(rank)
    if op == "Slice older":
        axes = sorted({d.axis(rank) % rank for _ in range(d.number(1, rank))})
        far = [2**40, -(2**40), 9, -9, 0, 1, 2, -1, -2]
        return one_node("Slice", [x], {"axes": axes, "starts": [d.one(*far) for _ in axes], "ends": [d.one(*far) for _ in axes]}, opset=d.one(7, 9), free=free)
    if op == "Pad older":
        mode = d.one("constant", "reflect", "edge")
        pads = [d.number(-1 if mode == "constant" else 0, max(0, shape[i % rank] - 1)) for i in range(2 * rank)]
        return one_node("Pad", [x], {"mode": mode, "pads": pads, "value": 1.5}, opset=d.one(7, 10), free=free)
    if op == "Split older":
        n = shape[axis % rank]
        cut = d.number(0, n)
        return one_node("Split", [x], {"axis": axis % rank, "split": [cut, n - cut]}, opset=d.one(7, 11), outputs=2, free=free)
    if op == "TopK older":
        return one_node("TopK", [np.round(x)], {"axis": axis, "k": d.number(1, shape[axis % rank])}, opset=d.one(7, 9), outputs=2, free=free)
    if op in ("Resize older", "Upsample"):
        image = d.array(f32, [1, d.number(1, 3), d.number(2, 6), d.number(2, 6)])
        scales = np.array([1, 1, d.one(1.0, 1.5, 2.0, 2.6), d.one(1.0, 2.0, 3.0)], f32)
        mode = d.one("nearest", "linear")
        if op == "Upsample" and d.chance():
            return one_node(op, [image], {"mode": mode, "scales": [float(v) for v in scales]}, opset=7, free=free)
        if op == "Resize older":
            scales[2:] *= np.array(d.one([1, 1], [0.4, 0.5]), f32)
        return one_node("Upsample" if op == "Upsample" else "Resize", [image, scales], {"mode": mode}, opset=9 if op == "Upsample" else 10, free=free, constant=(1,), rtol=1e-4, atol=1e-5)
    if op == "Dropout":
        opset = d.one(7, 10, 12, 13)
        return one_node(op, [x], {"ratio": 0.3} if opset < 12 else {}, opset=opset, outputs=d.number(1, 2) if opset >= 10 else 1, free=free)
    if op == "Pow mixed":
        a, b = d.one((np.float32, np.int64), (np.int32, np.float32), (np.int64, np.int32), (np.float32, np.int32), (np.float64, np.float32))
        base = d.array(a, shape, 0, 0, 3)
        power = np.array(d.number(0, 4), b) if d.chance() else np.abs(d.array(b, d.broadcast(shape), 0, 0, 3)).astype(b)
        return one_node("Pow", [abs(base).astype(a), power % 5], opset=d.one(12, 13, 15), free=free, constant=d.one((), (1,)), rtol=1e-4)
    if op == "Shape":
        return one_node(op, [x], {"start": d.number(-6, 6), "end": d.number(-6, 6)} if d.chance(0.8) else {}, opset=15, free=free)
    if op == "LayerNormalization outputs":
        tail = shape[axis % rank:]
        return one_node("LayerNormalization", [x, d.array(f32, tail), d.array(f32, tail)], {"axis": axis}, opset=17, outputs=3, free=free, rtol=1e-3, atol=1e-4)
    if op == "GroupNormalization older":
        image = d.array(f32, [2, 6, *d.shape(1, 2)])
        return one_node("GroupNormalization", [image, d.array(f32, [3]), d.array(f32, [3])], {"num_groups": 3}, opset=18, free=free, rtol=1e-4, atol=1e-5)
    if op == "Max of many":
        t = d.one(np.float32, np.float64, np.int32)
        return one_node(d.one("Max", "Min"), [d.array(t, shape, 0.3), *(d.array(t, d.broadcast(shape), 0.3) for _ in range(d.number(0, 3)))], opset=d.one(8, 12, 13), free=free)
    if op == "Pad axes":
        axes = sorted({d.axis(rank) % rank for _ in range(d.number(1, rank))})
        return one_node("Pad", [x, np.array([d.number(-1, 2) for _ in [*axes, *axes]], i64), np.array(2.5, f32), np.array([a - rank if d.chance() else a for a in axes], i64)],
                        opset=d.one(18, 21), free=free, constant=d.one((1, 2, 3), (3,)))
    if op == "Split uneven":
        n = d.number(3, 9)
        parts = d.number(1, n)
        if (parts - 1) * -(-n // parts) >= n:  # the last part would be empty or negative
            parts = 1
        return one_node("Split", [d.array(f32, [2, n])], {"axis": 1, "num_outputs": parts}, opset=18, outputs=parts, free=free)
    if op == "Reshape":
        new = [0, -1] if rank > 1 and d.chance() else [-1] if d.chance() else [*shape[::-1]]
        return one_node(op, [x, np.array(new, i64)], {"allowzero": 0} if d.chance() else {}, opset=14, free=free, constant=d.one((), (1,)))
    if op == "Concat of one":
        return one_node("Concat", [x], {"axis": axis}, opset=13, free=free)
    from onnx import numpy_helper
    return one_node("ConstantOfShape", [np.array(shape, i64)], {"value": numpy_helper.from_array(np.array([d.number(0, 3)], d.one(np.float32, np.int64, np.uint8)))} if d.chance(0.8) else {},
                    opset=9, constant=d.one((), (0,)))


@row("QLinearConv", "ConvInteger", "NonMaxSuppression", "LSTM layout", "GRU activations", "Attention", "RotaryEmbedding", "CastLike", "Not broadcast")
def larger(d: Draw, op: str) -> Small:
    free = d.chance()
    if op in ("QLinearConv", "ConvInteger"):
        group = d.one(1, 2)
        t, tw = d.one(np.uint8, np.int8), d.one(np.uint8, np.int8)
        cin, cout = 2 * group, 3 * group
        x, w = d.array(t, [2, cin, 6, 7], 0.3), d.array(tw, [cout, cin // group, 3, 2], 0.3)
        attrs: dict[str, Any] = {"group": group, "strides": [d.number(1, 2), 1]} | ({"pads": [1, 0, 1, 1]} if d.chance() else {"auto_pad": "SAME_UPPER"})
        if op == "ConvInteger":
            return one_node(op, [x, w, d.array(t, []) if d.chance() else None, d.array(tw, []) if d.chance() else None], attrs, opset=10, free=free, constant=(1, 3))
        n = [cout] if d.chance() else []
        return one_node(op, [x, np.array(0.02, f32), d.array(t, []), w, d.array(f32, n, 0, 0.01, 0.05), np.zeros(n, tw), np.array(0.3, f32), d.array(t, []), d.array(np.int32, [cout]) if d.chance() else None],
                        attrs, opset=10, free=free, constant=(1, 2, 3, 4, 5, 6, 7, 8))
    if op == "NonMaxSuppression":
        corners = np.sort(d.rng.uniform(0, 4, (2, 9, 2, 2)), axis=2).reshape(2, 9, 4).astype(f32)
        parts = [corners, d.rng.uniform(0, 1, (2, 3, 9)).astype(f32), np.array(d.number(0, 6), i64), np.array(d.one(0.2, 0.5), f32), np.array(d.one(0.0, 0.4), f32)]
        return one_node(op, parts[: d.number(3, 5)], {"center_point_box": d.number(0, 1)}, opset=d.one(10, 11), free=free, constant=d.one((), (2, 3, 4)))
    if op in ("LSTM layout", "GRU activations"):
        lstm = op == "LSTM layout"
        n, gates, hidden, size, steps, batch = d.number(1, 2), 4 if lstm else 3, d.number(1, 9), 3, d.number(1, 4), d.number(1, 3)
        attrs = {"hidden_size": hidden, "direction": "bidirectional" if n == 2 else d.one("forward", "reverse")}
        names = ["Sigmoid", "Tanh", "Relu", "HardSigmoid", "Softsign", "Elu", "LeakyRelu", "Softplus"]
        # Not Affine, ThresholdedRelu and ScaledTanh by default: ONNX Runtime 1.32 has other defaults than 1.0 for them.
        count = (3 if lstm else 2) * n
        attrs["activations"] = [d.one(*names) for _ in range(count)]
        if d.chance(0.3):
            attrs |= {"activations": ["ScaledTanh"] * count} | {f"activation_{k}": [float(v) for v in d.rng.uniform(0.5, 2, count)] for k in ("alpha", "beta")}
        # Small weights: below about -88 ONNX Runtime's Softplus of a gate is 0 or NaN where the value is a tiny number.
        weights = [[n, gates * hidden, size], [n, gates * hidden, hidden], [n, 2 * gates * hidden]]
        parts = [d.array(f32, [steps, batch, size])] + [d.array(f32, shape, low=-0.5, high=0.5) for shape in weights]
        return one_node("LSTM" if lstm else "GRU", parts, attrs, opset=14, outputs=3 if lstm else 2, constant=(1, 2, 3), free=free, rtol=1e-3, atol=1e-4)
    if op == "Attention":
        h, kv, s, t, e = *d.one((2, 2), (4, 2), (3, 1)), d.number(1, 5), d.number(1, 7), d.one(4, 8)
        parts = [d.array(f32, [2, h, s, e]), d.array(f32, [2, kv, t, e]), d.array(f32, [2, kv, t, e])]
        if d.chance():
            parts.append(d.array(d.one(f32, np.bool_), [s, t]))
        return one_node(op, parts, {"is_causal": d.number(0, 1)} | ({"scale": 0.3} if d.chance() else {}) | ({"softcap": 2.0} if d.chance(0.3) else {}), opset=23, free=free, rtol=1e-4, atol=1e-5)
    if op == "RotaryEmbedding":
        rotary = d.one(0, 4)
        half = (rotary or 8) // 2
        return one_node(op, [d.array(f32, [2, 3, 5, 8]), d.array(f32, [9, half]), d.array(f32, [9, half]), d.rng.integers(0, 9, [2, 5]).astype(i64)],
                        {"interleaved": d.number(0, 1), "rotary_embedding_dim": rotary, "num_heads": 3}, opset=23, free=free)
    if op == "CastLike":
        return one_node(op, [d.array(d.one(np.float32, np.int32), d.shape()), d.array(d.one(np.float64, np.int64, np.float16), [1])], opset=15, free=free)
    shape = d.shape()
    return one_node("Where", [d.array(np.bool_, d.broadcast(shape)), d.array(f32, d.broadcast(shape)), d.array(f32, d.broadcast(shape))], opset=16, free=free)


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("operators", nargs="*")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--count", type=int, default=2)
    p.add_argument("-v", "--verbose", action="store_true")
    args = p.parse_args()
    cases = []
    for name, make in ROWS.items():
        if args.operators and name not in args.operators:
            continue
        for k in range(args.count):
            cases.append(make(Draw(zlib.crc32(f"{name} {args.seed} {k}".encode()))))
    # Free dims leave these lists' lengths open, and with them ranks.
    limits = ("must be known at compile time", "must be a constant")
    return run_all(cases, allowed=lambda _, message: any(w in message for w in limits), verbose=args.verbose)


if __name__ == "__main__":
    sys.exit(main())
