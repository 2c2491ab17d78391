#!/usr/bin/env python3
"""Attention by the CPU rule `attention` (online softmax over blocks of keys), against the same in doubles.

Every case is compiled with free batch and lengths and run at several sizes: fewer and more keys than a block, sizes that
fill no panel, rows that see no key. `tripod explain` must say that the rule took it. Also: the pattern that exporters
write is recovered, and the memory that a long sequence takes is far less than its scores.

usage: tests/rules/check_attention.py    Ends with "N passed, N failed".
"""
from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests")]
import tripod  # noqa: E402
from harness import COMPILER, compile_model  # noqa: E402

SIZES = [(1, 1, 1), (2, 3, 5), (1, 17, 300), (1, 50, 16), (2, 100, 100), (1, 7, 600)]


@dataclass
class Case:
    """softmax(q k^T * scale, softcap, mask) v with q [b, heads, s, d], k [b, kv_heads, t, d], v [b, kv_heads, t, e]."""

    label: str
    heads: int = 2
    kv_heads: int = 2
    d: int = 64
    e: int = 64
    mask: str = ""           # "", "float" [b, 1, 1, t], "bool" [s, t]
    causal: bool = False
    scale: float | None = None
    softcap: float = 0.0
    half: bool = False
    magnitude: float = 1.0
    sizes: list[tuple[int, int, int]] = field(default_factory=lambda: SIZES)


CASES = [
    Case("plain"),
    Case("head sizes that fill no panel", d=20, e=33),
    Case("head size 1", d=1, e=1),
    Case("large heads", d=200, e=80),
    Case("added mask", mask="float"),
    Case("flags, some rows see nothing", mask="bool"),
    Case("causal", causal=True),
    Case("causal, more queries than keys", causal=True, sizes=[(1, 70, 20), (2, 400, 300)]),
    Case("causal with flags and a cap", causal=True, mask="bool", softcap=3.0),
    Case("grouped queries", heads=6, kv_heads=2, scale=0.3),
    Case("one key head", heads=4, kv_heads=1, mask="float", softcap=10.0),
    Case("f16", half=True, mask="float"),
    Case("large scores", magnitude=30.0),
]


def model_of(c: Case) -> onnx.ModelProto:
    kind = TensorProto.FLOAT16 if c.half else TensorProto.FLOAT
    info = helper.make_tensor_value_info
    inputs = [info("q", kind, ["b", c.heads, "s", c.d]), info("k", kind, ["b", c.kv_heads, "t", c.d]), info("v", kind, ["b", c.kv_heads, "t", c.e])]
    if c.mask:
        inputs.append(info("m", kind, ["b", 1, 1, "t"]) if c.mask == "float" else info("m", TensorProto.BOOL, ["s", "t"]))
    attributes: dict[str, Any] = {"is_causal": int(c.causal), "softcap": c.softcap}
    if c.scale is not None:
        attributes["scale"] = c.scale
    node = helper.make_node("Attention", [i.name for i in inputs], ["y"], name="attention", **attributes)
    graph = helper.make_graph([node], "case", inputs, [info("y", kind, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def reference(c: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, c.heads // c.kv_heads, axis=1) for x in (k, v))
    scores = q @ k.swapaxes(2, 3) * (c.scale if c.scale is not None else c.d ** -0.5)
    if c.softcap:
        scores = c.softcap * np.tanh(scores / c.softcap)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask.astype(np.float64)
    if c.causal:  # ONNX: the first query sees the first key only
        scores = np.where(np.tril(np.ones(scores.shape[2:], bool)), scores, -np.inf)
    most = scores.max(3, keepdims=True)
    p = np.exp(scores - np.where(np.isinf(most), 0, most))
    total = p.sum(3, keepdims=True)
    return (p / np.where(total == 0, 1, total)) @ v


def compiled(file: Path, so: Path) -> str:
    """Compiles; what is wrong, or that another rule took the attention."""
    result = compile_model(str(COMPILER), file, so)
    if result.status != "pass":
        return f"{result.status}: {result.message}"
    said = subprocess.run([str(COMPILER), "explain", str(file)], capture_output=True, text=True).stdout
    return "" if "rule attention" in said else f"not taken by the rule attention: {said.strip()[:400]}"


def check(c: Case, folder: Path, number: int) -> str:
    """What is wrong with a case; "" if nothing."""
    rng = np.random.default_rng(number)
    file, so = folder / f"case{number}.onnx", folder / f"case{number}.so"
    onnx.save(model_of(c), file)
    if problem := compiled(file, so):
        return problem
    kind = np.float16 if c.half else np.float32
    with tripod.Model(str(so), threads=2) as m:
        for b, s, t in c.sizes:
            made = lambda *shape: (rng.standard_normal(shape) * c.magnitude ** 0.5).astype(kind)
            feed = [made(b, c.heads, s, c.d), made(b, c.kv_heads, t, c.d), made(b, c.kv_heads, t, c.e)]
            mask = None
            if c.mask == "float":
                mask = np.where(rng.random((b, 1, 1, t)) < 0.2, -np.inf, rng.standard_normal((b, 1, 1, t))).astype(kind)
            elif c.mask == "bool":
                mask = rng.random((s, t)) < 0.6
                mask[s // 2] = False
            got = m.run(feed + ([mask] if mask is not None else []))[0]
            want = reference(c, *feed, mask)
            if got.shape != want.shape or not np.isfinite(got).all():
                return f"b, s, t = {b, s, t}: shape {got.shape} or not finite"
            error = float(np.abs(got.astype(np.float64) - want).max()) / max(1.0, float(np.abs(want).max()))
            if error > (1e-3 if c.half else 3e-6 * max(1.0, c.magnitude / 3)):
                return f"b, s, t = {b, s, t}: error {error:.1e}"
    return ""


def exported(folder: Path) -> str:
    """What PyTorch writes for a layer, at a length whose scores would take 268 MB: right, and in 32 MB."""
    heads, d, s = 4, 32, 4096
    node, info = helper.make_node, helper.make_tensor_value_info
    split = lambda x, perm: [node("Reshape", [x, "split"], [x + "_split"]), node("Transpose", [x + "_split"], [x + "_heads"], perm=perm)]
    nodes = [*split("q", [0, 2, 1, 3]), *split("k", [0, 2, 3, 1]), *split("v", [0, 2, 1, 3]),
             node("MatMul", ["q_heads", "k_heads"], ["product"]), node("Div", ["product", "root"], ["scaled"]),
             node("Softmax", ["scaled"], ["p"], axis=-1), node("MatMul", ["p", "v_heads"], ["o"]),
             node("Transpose", ["o"], ["o_rows"], perm=[0, 2, 1, 3]), node("Reshape", ["o_rows", "joined"], ["y"])]
    constants = {"split": np.array([0, -1, heads, d]), "joined": np.array([0, -1, heads * d]), "root": np.float32(d ** 0.5)}
    graph = helper.make_graph(nodes, "layer", [info(x, TensorProto.FLOAT, ["b", "s", heads * d]) for x in "qkv"],
                              [info("y", TensorProto.FLOAT, None)], [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()])
    file, so = folder / "layer.onnx", folder / "layer.so"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    if problem := compiled(file, so):
        return problem
    steps = json.loads(subprocess.run([str(COMPILER), "inspect", str(so), "--json"], capture_output=True, text=True).stdout)["steps"]
    if len(steps) > 3:
        return f"{len(steps)} steps; the transposes should cost no pass"
    rng = np.random.default_rng(0)
    feed = [rng.standard_normal((1, s, heads * d)).astype(np.float32) for _ in "qkv"]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tripod.Model(str(so), threads=2) as m:
        got = m.run(feed)[0]
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    rows = slice(0, s, 97)
    q, k, v = (x.reshape(s, heads, d).swapaxes(0, 1) for x in (x[0] for x in feed))
    want = reference(Case("", d=d), q[None, :, rows], k[None], v[None], None)[0].swapaxes(0, 1).reshape(-1, heads * d)
    error = float(np.abs(got[0, rows] - want).max())
    if error > 3e-6:
        return f"error {error:.1e}"
    return "" if held < 32 << 10 else f"takes {held} KB more, allowed 32 MB"


def main() -> int:
    failed = 0
    checks = [(c.label, lambda folder, c=c, n=n: check(c, folder, n)) for n, c in enumerate(CASES)]
    checks.append(("as exported, 4096 tokens", exported))
    with tempfile.TemporaryDirectory() as folder:
        for label, run in checks:
            if problem := run(Path(folder)):
                failed += 1
                print(f"{label}: {problem}")
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
