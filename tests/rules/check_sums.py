#!/usr/bin/env python3
"""Convolutions, reductions and softmaxes that the CPU rules treat apart, against the same sums in doubles.

Each case names the rule that has to take it (as `tripod explain` says); every second one is compiled for what this
machine has, the others for the default. The bound is on the error in units of
2^-24 * sum |a||b| / sqrt(terms), so that a long sum in one chain of additions does not pass.

usage: tests/rules/check_sums.py    Ends with "N passed, N failed".
"""
from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests")]
import tripod  # noqa: E402
from harness import COMPILER, compile_model  # noqa: E402


@dataclass
class Conv:
    """A convolution of x[n, c, h, w] with weights[o, c/groups, r, s]; `sizes` are n, h, w at run time (all free)."""

    label: str
    rule: str
    channels: int
    outputs: int
    kernel: tuple[int, int]
    sizes: list[tuple[int, int, int]] = field(default_factory=lambda: [(1, 9, 23), (2, 16, 40)])
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)
    dilations: tuple[int, int] = (1, 1)
    fixed: bool = False   # the first size is compiled in
    epilogue: bool = False


CASES = [
    Conv("one output channel, padded", "dot", 8, 1, (5, 5), pads=(2, 2)),
    Conv("one output channel, 33 inputs", "dot", 33, 1, (3, 3), pads=(1, 1)),
    Conv("one output channel, tall kernel, sigmoid", "dot", 32, 1, (7, 3), pads=(3, 1), epilogue=True),
    Conv("one output channel, size compiled in", "dot", 8, 1, (5, 5), pads=(2, 2), fixed=True, sizes=[(1, 12, 88)]),
    Conv("one output channel, strided signal", "dot", 1, 1, (1, 256), strides=(1, 2), pads=(0, 127), sizes=[(1, 1, 685), (3, 1, 300)]),
    Conv("one output channel, three taps", "contraction", 1, 1, (1, 3)),
    Conv("8 output channels", "contraction", 8, 8, (3, 39), pads=(1, 19), sizes=[(1, 7, 50), (2, 5, 41)]),
    Conv("5 output channels", "contraction", 16, 5, (3, 3), pads=(1, 1)),
    Conv("24 output channels, size compiled in", "contraction", 3, 24, (3, 3), pads=(1, 1), fixed=True, sizes=[(1, 11, 13)]),
    Conv("40 output channels", "contraction", 20, 40, (1, 1)),
    Conv("36 output channels, long strided signal", "contraction", 1, 36, (1, 256), strides=(1, 16), sizes=[(1, 1, 1000)]),
    Conv("many input channels", "contraction", 480, 16, (1, 1), sizes=[(1, 3, 11)]),
    Conv("many input channels, 3x3", "contraction", 160, 32, (3, 3), pads=(1, 1), sizes=[(1, 6, 7)]),
    Conv("very many input channels", "contraction", 2304, 16, (1, 1), sizes=[(1, 3, 5)]),
    Conv("24 output channels", "contraction", 96, 24, (3, 3), pads=(1, 1)),
    Conv("56 output channels", "contraction", 10, 56, (3, 3), strides=(2, 2), pads=(1, 1)),
    Conv("many channels, few pixels", "contraction", 512, 96, (3, 3), pads=(1, 1), sizes=[(1, 7, 7), (1, 1, 1), (3, 2, 5)]),
    Conv("many channels, dilated", "contraction", 320, 48, (3, 3), pads=(6, 6), dilations=(6, 6), sizes=[(1, 9, 8), (2, 13, 1)]),
]

# Transposed convolutions whose windows do not overlap: (label, input channels, output channels, kernel = strides).
TRANSPOSED = [
    ("doubled, 24 channels", 24, 24, (2, 2)),
    ("doubled, one channel", 24, 1, (2, 2)),
    ("doubled, many channels", 640, 33, (2, 2)),
    ("by 3 and 1", 7, 18, (3, 1)),
]


def model_of(c: Conv, weights: np.ndarray, bias: np.ndarray) -> onnx.ModelProto:
    n, h, w = c.sizes[0] if c.fixed else ("n", "h", "w")
    nodes = [helper.make_node("Conv", ["x", "weights", "bias"], ["y" if not c.epilogue else "t"], name="conv",
                              strides=list(c.strides), pads=[*c.pads, *c.pads], dilations=list(c.dilations))]
    if c.epilogue:
        nodes.append(helper.make_node("Sigmoid", ["t"], ["y"], name="sigmoid"))
    graph = helper.make_graph(
        nodes, "case", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [n, c.channels, h, w])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(bias, "bias")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def reference(c: Conv, x: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The result in doubles, and what one unit in the bound is worth at each place."""
    (ph, pw), (sh, sw), (r, s) = c.pads, c.strides, c.kernel
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    (dh, dw) = c.dilations
    span = ((r - 1) * dh + 1, (s - 1) * dw + 1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, span, axis=(2, 3))[:, :, ::sh, ::sw, ::dh, ::dw]
    wide = weights.astype(np.float64)
    y = np.einsum("nchwrs,ocrs->nohw", windows, wide) + bias.astype(np.float64)[:, None, None]
    size = np.einsum("nchwrs,ocrs->nohw", np.abs(windows), np.abs(wide))
    unit = 2.0 ** -24 * (size / np.sqrt(weights[0].size) + np.abs(y))
    if not c.epilogue:
        return y, unit
    y = 1 / (1 + np.exp(-y))
    return y, unit * 0.25 + 2.0 ** -23 * y


def check_conv(c: Conv, folder: Path, number: int) -> str:
    """What is wrong with a case; "" if nothing."""
    rng = np.random.default_rng(number)
    weights = rng.standard_normal((c.outputs, c.channels, *c.kernel)).astype(np.float32)
    bias = rng.standard_normal(c.outputs).astype(np.float32)
    file, so = folder / f"case{number}.onnx", folder / f"case{number}.so"
    onnx.save(model_of(c, weights, bias), file)
    compiled = compile_model(str(COMPILER), file, so, ["--cpu", "native"] if number % 2 else [])
    if compiled.status != "pass":
        return f"{compiled.status}: {compiled.message}"
    said = subprocess.run([str(COMPILER), "explain", str(file)], capture_output=True, text=True).stdout
    if f"rule {c.rule}" not in said:
        return f"not taken by the rule {c.rule}: {said.strip()[:200]}"
    worst = 0.0
    with tripod.Model(str(so), threads=2) as m:
        for n, h, w in c.sizes:
            x = rng.standard_normal((n, c.channels, h, w)).astype(np.float32)
            got, (want, unit) = m.run([x])[0], reference(c, x, weights, bias)
            if got.shape != want.shape:
                return f"shape {got.shape}, wanted {want.shape}"
            error = np.abs(got - want) / unit
            if not np.isfinite(got).all():
                return "not finite"
            worst = max(worst, float(np.sqrt((error ** 2).mean())))
    return "" if worst < 6 else f"error {worst:.1f} units (root mean square), allowed 6"


def check_transposed(channels: int, outputs: int, kernel: tuple[int, int], folder: Path, name: str) -> str:
    rng = np.random.default_rng(channels)
    (r, s), x = kernel, rng.standard_normal((2, channels, 5, 9)).astype(np.float32)
    w, b = rng.standard_normal((channels, outputs, r, s)).astype(np.float32), rng.standard_normal(outputs).astype(np.float32)
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], name="up", strides=list(kernel))
    got, said = run_model([node], ["n", channels, "h", "w"], {"w": w, "b": b}, x, folder, name)
    if "rule contraction" not in said:
        return f"not taken by the rule contraction: {said.strip()[:200]}"
    places = lambda a, k: np.einsum("nchw,cors->nohrws", a, k).reshape(2, outputs, 5 * r, 9 * s)
    want = places(x.astype(np.float64), w.astype(np.float64)) + b.astype(np.float64)[:, None, None]
    unit = 2.0 ** -24 * (places(np.abs(x).astype(np.float64), np.abs(w).astype(np.float64)) / np.sqrt(channels) + np.abs(want))
    if got.shape != want.shape:
        return f"shape {got.shape}, wanted {want.shape}"
    worst = float(np.sqrt((((got - want) / unit) ** 2).mean()))
    return "" if worst < 6 else f"error {worst:.1f} units (root mean square), allowed 6"


def run_model(nodes: list[onnx.NodeProto], shape: list[int | str], constants: dict[str, np.ndarray], x: np.ndarray,
              folder: Path, name: str) -> tuple[np.ndarray, str]:
    """y of a model on x, and what `tripod explain` says."""
    graph = helper.make_graph(
        nodes, "case", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, n) for n, v in constants.items()])
    file, so = folder / f"{name}.onnx", folder / f"{name}.so"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), file)
    compiled = compile_model(str(COMPILER), file, so)
    if compiled.status != "pass":
        raise RuntimeError(f"{compiled.status}: {compiled.message}")
    said = subprocess.run([str(COMPILER), "explain", str(file)], capture_output=True, text=True).stdout
    with tripod.Model(str(so), threads=2) as m:
        return m.run([x])[0], said


def column_sums(folder: Path) -> str:
    """Sums over an outer axis: near-equal terms, whose errors would add up in one chain."""
    x = np.random.default_rng(1).uniform(0.7, 0.8, (2, 5000, 37)).astype(np.float32)
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["y"], name="sum", keepdims=0)]
    got, _ = run_model(nodes, ["n", "k", 37], {"axes": np.array([1])}, x, folder, "columns")
    want = x.astype(np.float64).sum(1)
    error = float(np.abs(got / want - 1).max())
    return "" if got.shape == want.shape and error < 5e-7 else f"relative error {error:.1e}, allowed 5e-7"


def recognised_text(folder: Path) -> str:
    """The end of a recogniser: channels-last memory read as a matrix, many classes, softmax over them."""
    rng = np.random.default_rng(2)
    x, w = rng.standard_normal((2, 24, 1, 19)).astype(np.float32), rng.standard_normal((24, 3001)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "k"], ["c"], name="conv"), helper.make_node("Squeeze", ["c", "two"], ["s"], name="squeeze"),
             helper.make_node("Transpose", ["s"], ["t"], name="transpose", perm=[0, 2, 1]),
             helper.make_node("MatMul", ["t", "w"], ["m"], name="matmul"), helper.make_node("Softmax", ["m"], ["y"], name="softmax", axis=2)]
    k = np.eye(24, dtype=np.float32)[:, :, None, None] * np.float32(0.1)
    got, said = run_model(nodes, ["n", 24, 1, "w"], {"k": k, "w": w, "two": np.array([2])}, x, folder, "text")
    m = np.einsum("ncw,ck->nwk", x[:, :, 0].astype(np.float64) * np.float64(np.float32(0.1)), w.astype(np.float64))
    want = np.exp(m - m.max(2, keepdims=True))
    want /= want.sum(2, keepdims=True)
    error = float(np.abs(got / want - 1).max())
    if "rule rows" not in said:
        return f"the softmax is not taken by the rule rows: {said[:300]}"
    return "" if error < 1e-5 else f"relative error {error:.1e}, allowed 1e-5"


def gathered(second: str, folder: Path) -> str:
    """Behind another convolution, so that channels lie side by side: overlapping windows, and wide dilations."""
    rng = np.random.default_rng(3)
    x, first = rng.standard_normal((2, 5, 6, 11)).astype(np.float32), rng.standard_normal((48, 5, 1, 1)).astype(np.float32)
    transposed = second == "ConvTranspose"
    w = rng.standard_normal((48, 20, 4, 4) if transposed else (20, 48, 3, 3)).astype(np.float32)
    attributes = {"strides": [2, 2], "pads": [1] * 4} if transposed else {"dilations": [4, 4], "pads": [4] * 4}
    nodes = [helper.make_node("Conv", ["x", "first"], ["t"], name="first"), helper.make_node(second, ["t", "w"], ["y"], name="second", **attributes)]
    got, said = run_model(nodes, ["n", 5, "h", "w"], {"first": first, "w": w}, x, folder, second)
    if said.count("rule contraction") < 2:
        return f"not taken by the rule contraction: {said.strip()[:200]}"
    t = np.einsum("nchw,oc->nohw", x.astype(np.float64), first[:, :, 0, 0].astype(np.float64))
    if transposed:
        want = np.zeros((2, 20, 14, 24))
        for r in range(4):
            for q in range(4):
                want[:, :, r:r + 12:2, q:q + 22:2] += np.einsum("nchw,co->nohw", t, w[:, :, r, q].astype(np.float64))
        want = want[:, :, 1:-1, 1:-1]
    else:
        want = np.zeros((2, 20, 6, 11))
        padded = np.pad(t, ((0, 0), (0, 0), (4, 4), (4, 4)))
        for r in range(3):
            for q in range(3):
                want += np.einsum("nchw,oc->nohw", padded[:, :, 4 * r:4 * r + 6, 4 * q:4 * q + 11], w[:, :, r, q].astype(np.float64))
    if got.shape != want.shape:
        return f"shape {got.shape}, wanted {want.shape}"
    error = float(np.abs(got - want).max() / np.ptp(want))
    return "" if error < 1e-6 else f"error {error:.1e} of the range, allowed 1e-6"


def main() -> int:
    failed = 0
    checks = [(c.label, lambda folder, c=c, n=n: check_conv(c, folder, n)) for n, c in enumerate(CASES)]
    checks += [(f"transposed, {t[0]}", lambda folder, t=t, n=n: check_transposed(*t[1:], folder, f"transposed{n}")) for n, t in enumerate(TRANSPOSED)]
    checks += [(f"gathered rows, {op}", lambda folder, op=op: gathered(op, folder)) for op in ("ConvTranspose", "Conv")]
    checks += [("sums over an outer axis", column_sums), ("softmax over classes behind a convolution", recognised_text)]
    with tempfile.TemporaryDirectory() as folder:
        for label, check in checks:
            problem = check(Path(folder))
            if problem:
                failed += 1
                print(f"{label}: {problem}")
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
