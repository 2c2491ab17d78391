#!/usr/bin/env python3
"""--precision: values and weights between kernels are narrower, results stay near f32's, inputs and outputs keep theirs."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from models import Checks, model, random, tripod

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from tripod import Model  # noqa: E402

# Relative to the range of the result: f16 keeps 11 bits of a value, bf16 8.
BOUNDS = {"f32": 1e-6, "f16": 2e-3, "bf16": 2e-2}


def dense() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="first"),
        helper.make_node("Relu", ["m"], ["r"], name="act"),
        helper.make_node("MatMul", ["r", "v"], ["n"], name="second"),
        helper.make_node("Softmax", ["n"], ["y"], name="prob"),
    ]
    return model(nodes, {"x": ["N", 96]}, ["y"], {"w": random(96, 128) / 10, "v": random(128, 64, seed=1) / 10}), {"x": random(5, 96, seed=2)}


def masked() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Scores with a mask of -3.4e38 made of integers; one row hides everything, and must not become NaN."""
    nodes = [
        helper.make_node("Cast", ["hide"], ["h"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["h", "low"], ["mask"]),
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("Add", ["s", "mask"], ["t"]),
        helper.make_node("Softmax", ["t"], ["p"]),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("hide", TensorProto.INT64, ["N", 16])]
    inputs += [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in (("q", ["N", 8]), ("k", [8, 16]), ("v", [16, 8]))]
    low = numpy_helper.from_array(np.float32(np.finfo(np.float32).min), "low")
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [low])
    hide = (np.arange(6 * 16).reshape(6, 16) % 3 == 0).astype(np.int64)
    hide[4] = 1
    feed = {"hide": hide, "q": random(6, 8), "k": random(8, 16, seed=1), "v": random(16, 8, seed=2)}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), feed


def large_weights() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A table with a number beyond f16's range, which becomes the largest there is, not an infinity."""
    table = random(200, 32)
    table[7, 3] = -3e38
    nodes = [helper.make_node("Gather", ["t", "i"], ["g"]), helper.make_node("Sigmoid", ["g"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("i", TensorProto.INT64, [3])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [numpy_helper.from_array(table, "t")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), {"i": np.array([7, 0, 199])}


def reference(m: onnx.ModelProto, feed: dict[str, np.ndarray]) -> np.ndarray:
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feed)[0]


def values(c: Checks, folder: Path) -> None:
    for make in (dense, masked, large_weights):
        m, feed = make()
        onnx.save(m, folder / "m.onnx")
        want = reference(m, feed)
        sizes = {}
        for precision, bound in BOUNDS.items():
            what, so = f"{make.__name__} in {precision}", folder / f"{make.__name__}.{precision}.so"
            p = tripod("compile", folder / "m.onnx", "-o", so, "--precision", precision, "--verify")
            if not c.equal(p.returncode, 0, f"{what}: {p.stderr}"):
                continue
            with Model(str(so), threads=1) as loaded:
                [got] = loaded.run(list(feed.values()))
                sizes[precision] = so.stat().st_size
            c.equal(got.dtype, want.dtype, f"{what}: the output's dtype")
            error = float(np.abs(got - want).max() / np.ptp(want))
            c.check(error <= bound, f"{what}: error over range at most {bound}", error)
            c.check(precision == "f32" or error > 0, f"{what}: something is rounded", error)
        if make is dense:
            c.check(sizes["f32"] - sizes["f16"] > 30000, "weights take half the bytes", sizes)


def reports(c: Checks, folder: Path) -> None:
    m, _ = dense()
    onnx.save(m, folder / "m.onnx")
    p = tripod("compile", folder / "m.onnx", "-o", folder / "m.so", "--precision", "f16")
    manifest = json.loads(tripod("inspect", folder / "m.so", "--json").stdout)
    c.equal(manifest.get("precision"), "f16", "the manifest names the precision")
    stored = [r.get("stored") for s in manifest["steps"] for r in s.get("results", [])]
    c.check("f16" in stored, "the manifest says what is stored narrower", stored)
    p = tripod("verify", folder / "m.onnx", "--precision", "f16", "--size", "N=3", "--bisect", "--python", sys.executable)
    c.equal(p.returncode, 0, f"verify compares what is stored narrower: {p.stdout}{p.stderr}")
    p = tripod("compile", folder / "m.onnx", "-o", folder / "m.so", "--print-after", "layout", "--precision", "bf16")
    c.check("stored bf16" in p.stdout + p.stderr, "the graph's text has it", p.stdout[:300])
    p = tripod("explain", folder / "m.onnx", "--precision", "f16")
    c.check("stores r as f16" in p.stdout and "stores y as f32: it is an output" in p.stdout, "explain", p.stdout)
    p = tripod("compile", folder / "m.onnx", "-o", folder / "m.so", "--precision", "tf32")
    c.equal((p.returncode, "tf32 is of --target cuda" in p.stderr), (2, True), f"tf32 on a CPU: {p.stderr}")
    p = tripod("compile", folder / "m.onnx", "-o", folder / "m.so", "--precision", "f8")
    c.equal(p.returncode, 2, "an unknown precision")


def main() -> int:
    c = Checks()
    with tempfile.TemporaryDirectory() as folder:
        values(c, Path(folder))
        reports(c, Path(folder))
    return c.done()


if __name__ == "__main__":
    sys.exit(main())
