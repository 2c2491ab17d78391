#!/usr/bin/env python3
"""What the CPU rules read and write at the ends of rows and columns that fill no vector: kernels of 1 to 40 columns and a
few rows, each with its size compiled in and with its size free, against ONNX Runtime, in memory that ends (and again:
begins) at a page which may not be touched. Guards of a row and of a column meet where padding or concatenation is fused
into a kernel.

usage: tests/rules/check_ragged.py [WORD...] [--cpu v3|v4]    families whose name contains a word; v4 needs AVX-512
Ends with "N passed, N failed".
"""
from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable

import numpy as np
from onnx import helper

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / d) for d in ("python", "tests", "tests/ops")]
import guarded  # noqa: E402
from harness import COMPILER, compile_model, in_child  # noqa: E402
from resized import infer, reference  # noqa: E402
from small import Small, difference  # noqa: E402

node, f32, i64 = helper.make_node, np.float32, np.int64
ROWS = (1, 2, 3, 5, 8, 9)
SIZES = [(ROWS[c % len(ROWS)], c) for c in range(1, 41)]


class Part:
    """A few nodes of a model, on sizes r and c (numbers or names); names of values get the prefix."""

    def __init__(self, prefix: str, r: int | str, c: int | str, free: bool):
        self.prefix, self.r, self.c, self.free = prefix, r, c, free
        self.nodes: list[Any] = []
        self.inputs: dict[str, tuple[Any, list[int | str]]] = {}
        self.constants: dict[str, np.ndarray] = {}

    def input(self, name: str, *dims: int | str, dtype: Any = f32) -> str:
        self.inputs[self.prefix + name] = (dtype, list(dims))
        return self.prefix + name

    def weights(self, *shape: int) -> str:
        w = np.random.default_rng(len(self.constants) + sum(shape)).uniform(-1, 1, shape).astype(f32)
        return self.constant(w)

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, i64))

    def constant(self, value: np.ndarray) -> str:
        name = f"{self.prefix}w{len(self.constants)}"
        self.constants[name] = value
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{self.prefix}t{len(self.nodes)}"
        self.nodes.append(node(kind, list(inputs), [name], **attributes))
        return name

    def padded(self, name: str, dtype: Any = f32) -> str:
        """[r + 3, c + 4], one row and two columns of padding in front."""
        return self.op("Pad", self.input(name, self.r, self.c, dtype=dtype), self.ints(1, 2, 2, 2))


def joined(p: Part) -> str:
    x, y = p.input("x", p.r, p.c), p.input("y", p.r, p.c)
    both = p.op("Concat", p.op("Neg", x), y, axis=1)
    return p.op("Relu", p.op("Concat", both, p.op("Concat", y, x, axis=1), axis=0))


def product_with_padding(p: Part) -> str:
    """A product whose epilogue adds what is padded to its size."""
    width, depth = (p.c + 4, p.c) if isinstance(p.c, int) else (13, 9)
    z = p.input("z", p.r, width - 4)
    product = p.op("MatMul", p.input("a", f"{p.r}a" if p.free else p.r + 3, depth), p.weights(depth, width))
    return p.op("Add", product, p.op("Pad", z, p.ints(1, 2, 2, 2)))


def product_with_parts(p: Part) -> str:
    width = p.c if isinstance(p.c, int) else 11
    z = p.op("Concat", p.input("u", p.r, width), p.input("v", p.r, width), axis=1)
    return p.op("Mul", p.op("MatMul", p.input("a", p.r, width), p.weights(width, 2 * width)), z)


def convolution(channels: bool, **attributes: Any) -> Callable[[Part], str]:
    """Depthwise (`channels`), or dense, behind it an addition of something padded."""
    def make(p: Part) -> str:
        c = p.c if isinstance(p.c, int) else 19
        width = 6 if isinstance(p.c, int) else p.c
        x = p.input("x", 1, c, p.r, width)
        w = p.weights(c, 1, 3, 3) if channels else p.weights((c * 3) % 23 + 1, c, 3, 3)
        y = p.op("Conv", x, w, group=c if channels else 1, **attributes)
        return p.op("Add", p.op("Relu", y), y)
    return make


def convolution_with_padding(p: Part) -> str:
    """Depthwise, plus its own input moved by a pixel and a channel."""
    c = p.c if isinstance(p.c, int) else 19
    x = p.input("x", 1, c + 1, p.r, 5)
    y = p.op("Conv", x, p.weights(c + 1, 1, 3, 3), group=c + 1, pads=[1, 1, 1, 1])
    z = p.op("Pad", p.input("z", 1, c, p.r, 4), p.ints(0, 1, 0, 1, 0, 0, 0, 0))
    return p.op("Add", y, z)


def grouped(size: int) -> Callable[[Part], str]:
    """Groups of `size` channels, as many groups as the sizes say."""
    def make(p: Part) -> str:
        c = size * (p.c if isinstance(p.c, int) else 6)
        x = p.input("x", 1, c, p.r, 5 if isinstance(p.c, int) else p.c)
        return p.op("Relu", p.op("Conv", x, p.weights(c, size, 3, 3), group=c // size, pads=[1, 1, 1, 1]))
    return make


def one_channel(p: Part) -> str:
    c = p.c if isinstance(p.c, int) else 21
    return p.op("Conv", p.input("x", 1, c, p.r, 7), p.weights(1, c, 1, 3), pads=[0, 1, 0, 1])


def pool(kind: str, **attributes: Any) -> Callable[[Part], str]:
    return lambda p: p.op(kind, p.input("x", 1, 2, p.r, p.c), kernel_shape=[3, 3], pads=[1, 1, 1, 1], **attributes)


def attention(p: Part) -> str:
    q, k, v = p.input("q", 1, 2, p.r, 12), p.input("k", 1, 2, p.c, 12), p.input("v", 1, 2, p.c, 20)
    scores = p.op("Softmax", p.op("MatMul", q, p.op("Transpose", k, perm=[0, 1, 3, 2])))
    return p.op("MatMul", scores, v)


FAMILIES: dict[str, Callable[[Part], str]] = {
    "pad": lambda p: p.op("Relu", p.padded("x")),
    "pad f16": lambda p: p.op("Neg", p.padded("x", np.float16)),
    "pad i8": lambda p: p.op("Neg", p.padded("x", np.int8)),
    "pad edges": lambda p: p.op("Relu", p.op("Pad", p.input("x", p.r, p.c), p.ints(1, 2, 3, 1), mode="edge")),
    "two paddings": lambda p: p.op("Mul", p.padded("x"), p.op("Transpose", p.op("Transpose", p.padded("y"), perm=[1, 0]), perm=[1, 0])),
    "transposed padding": lambda p: p.op("Relu", p.op("Transpose", p.padded("x"), perm=[1, 0])),
    "concat": joined,
    "softmax of padding": lambda p: p.op("Softmax", p.padded("x")),
    "row sums of padding": lambda p: p.op("ReduceSum", p.padded("x"), p.ints(1)),
    "column sums of padding": lambda p: p.op("ReduceSum", p.padded("x"), p.ints(0)),
    "product": lambda p: p.op("MatMul", p.input("a", p.r, p.c), p.input("b", p.c, p.r)),
    "wide product": lambda p: p.op("MatMul", p.input("a", p.r, 7), p.input("b", 7, p.c)),
    "product of paddings": lambda p: p.op("MatMul", p.padded("a"), p.op("Transpose", p.padded("b"), perm=[1, 0])),
    "product and padding": product_with_padding,
    "product and parts": product_with_parts,
    "depthwise": convolution(True, pads=[1, 1, 1, 1]),
    "depthwise, strided": convolution(True, pads=[1, 1, 1, 1], strides=[2, 2]),
    "depthwise, dilated": convolution(True, pads=[2, 2, 2, 2], dilations=[2, 2]),
    "depthwise and padding": convolution_with_padding,
    "grouped convolution, 2": grouped(2),
    "grouped convolution, 3": grouped(3),
    "grouped convolution, 4": grouped(4),
    "grouped convolution, 16": grouped(16),
    "dense convolution": convolution(False, pads=[1, 1, 1, 1]),
    "dense convolution, uneven": convolution(False, pads=[2, 0, 1, 2], strides=[1, 2]),
    "one output channel": one_channel,
    "largest of windows": pool("MaxPool"),
    "mean of windows": pool("AveragePool", count_include_pad=0),
    "attention": attention,
    "backwards": lambda p: p.op("Relu", p.op("Slice", p.input("x", p.r, p.c), p.ints(-1), p.ints(-1000), p.ints(1), p.ints(-1))),
}


def feed_of(inputs: dict[str, tuple[Any, list[int | str]]], sizes: dict[str, int], seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    r = {}
    for name, (dtype, dims) in inputs.items():
        shape = [d if isinstance(d, int) else sizes[d] for d in dims]
        r[name] = rng.integers(-9, 9, shape).astype(dtype) if np.dtype(dtype).kind == "i" else rng.uniform(-1, 1, shape).astype(dtype)
    return r


def cases(name: str, make: Callable[[Part], str]) -> list[Small]:
    """The sizes compiled in, all in one model; and free, one run each."""
    nodes, inputs, constants, outputs = [], {}, {}, []
    for k, (r, c) in enumerate(SIZES):
        part = Part(f"s{k}_", r, c, False)
        outputs.append(make(part))
        nodes += part.nodes
        inputs |= part.inputs
        constants |= part.constants
    fixed = Small(f"{name}, sizes compiled in", nodes, inputs, outputs, [feed_of(inputs, {}, 1)], constants, rtol=1e-4, atol=1e-5)
    part = Part("", "R", "C", True)
    output = make(part)
    feeds = [feed_of(part.inputs, {"R": r, "Ra": r + 3, "C": c}, c) for r, c in SIZES]
    return [fixed, Small(f"{name}, free", part.nodes, part.inputs, [output], feeds, part.constants, rtol=1e-4, atol=1e-5)]


def run(case: Small, so: Path, wanted: list[list[np.ndarray]], at_begin: bool) -> str:
    with guarded.GuardedModel(str(so), threads=1, at_begin=at_begin) as model:
        for feed, want in zip(case.feeds, wanted):
            for k, (g, w) in enumerate(zip(model.run(list(feed.values())), want)):
                text = difference(g, w, case.rtol, case.atol)
                if text and "other sign" not in text:
                    return f"{[a.shape for a in feed.values()][:3]}, output {k}: {text}"
    return ""


def check(case: Small, folder: Path, arguments: list[str]) -> str:
    model = case.model()
    session = reference(model)
    wanted = [infer(session, list(feed.values())) for feed in case.feeds]
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    compiled = compile_model(str(COMPILER), folder / "model.onnx", folder / "model.so", arguments)
    if compiled.status != "pass":
        return f"{compiled.status}: {compiled.message}"
    for at_begin in (False, True):
        status, message = in_child(lambda: run(case, folder / "model.so", wanted, at_begin), 60)
        if status != "pass":
            return f"{status}, memory {'begins' if at_begin else 'ends'} at a page: {message}"
    return ""


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("words", nargs="*")
    p.add_argument("--cpu", default="v3")
    args = p.parse_args()
    if not guarded.active():
        os.execve(sys.executable, [sys.executable, *sys.argv], guarded.environment())
    total = failed = 0
    for name, make in FAMILIES.items():
        if args.words and not any(w in name for w in args.words):
            continue
        for case in cases(name, make):
            with tempfile.TemporaryDirectory() as folder:
                problem = check(case, Path(folder), ["--cpu", args.cpu])
            total += 1
            failed += bool(problem)
            if problem:
                print(f"{case.name}: {problem}", flush=True)
    print(f"{total - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
