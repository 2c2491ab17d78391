#!/usr/bin/env python3
"""tripod verify on the command line: against ONNX Runtime, against the interpreter, and what bisecting prints."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from models import Checks, model, perceptron, random, tripod


def run(c: Checks, what: str, code: int, *args: object) -> dict:
    p = tripod("verify", *args, "--python", sys.executable, "--json")
    return json.loads(p.stdout) if c.equal(p.returncode, code, f"{what}: exit code {p.stderr}") else {}


def main() -> int:
    c = Checks()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "m.onnx"
        onnx.save(perceptron(), file)
        j = run(c, "ONNX Runtime", 0, file, "--size", "N=7")
        c.equal((j.get("good"), j.get("reference"), j.get("note")), (True, "ONNX Runtime", ""), "reference")
        rows = {r["value"]: r for r in j.get("values", [])}
        # Values inside kernels are not seen; those between them are.
        c.check({"h", "y"} <= set(rows), "values", sorted(rows))
        c.equal(rows.get("h", {}).get("nodes", [])[:1], ["node 0 MatMul 'first'"], "nodes of h")
        c.equal((rows["y"]["output"], rows["y"]["type"]), (True, "f32[7, 10]"), "y is the output")
        c.check(
            all(r["difference"]["relative"] < 1e-5 for r in rows.values()),
            "errors",
            rows,
        )
        worst = [r["difference"]["relative"] for r in j["values"]]
        c.equal(worst, sorted(worst, reverse=True), "worst first")

        j = run(c, "interpreter", 0, file, "--size", "N=7", "--reference", "interpreter")
        c.equal((j.get("good"), j.get("reference")), (True, "the graph interpreter"), "the interpreter as reference")
        p = tripod("verify", file, "--python", "/no/such/python")
        c.check(
            p.returncode == 0 and "the graph interpreter (not ONNX Runtime: cannot run" in p.stdout,
            "without Python",
            p.stdout,
        )
        p = tripod("verify", file, "--python", "/no/such/python", "--reference", "onnxruntime")
        c.equal(
            (p.returncode, "no reference from ONNX Runtime" in p.stderr),
            (2, True),
            "ONNX Runtime asked for and not there",
        )

        # Inputs from files, and outputs of a wrong bound: rounding is blamed on the first phase that rounds otherwise.
        np.save(Path(folder) / "input_0.npy", random(3, 24, seed=5))
        j = run(c, "a bound below rounding", 1, file, "--input-dir", folder, "--tolerance", "1e-12", "--bisect")
        c.check(
            not j.get("good") and j.get("first_phase") in ("import", "schedule", "lower", "simplify"),
            "bisect",
            j.get("first_phase"),
        )
        c.check("MatMul" in j.get("culprit", "") or "Softmax" in j.get("culprit", ""), "culprit", j.get("culprit"))

        # Channels-last memory, a runtime operator, an integer output, an If.
        conv = model(
            [
                helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
                helper.make_node("Relu", ["c"], ["r"]),
                helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
                helper.make_node("Conv", ["p", "v"], ["y"], name="last"),
            ],
            {"x": ["N", 3, 8, 8]},
            ["y"],
            {"w": random(16, 3, 3, 3), "v": random(8, 16, 1, 1)},
        )
        onnx.save(conv, file)
        j = run(c, "conv", 0, file, "--size", "N=2")
        rows = {r["value"]: r for r in j.get("values", [])}
        c.check({"r", "p", "y"} <= set(rows), "values of the convolutions", sorted(rows))
        j = run(c, "conv by interpreter", 0, file, "--size", "N=2", "--reference", "interpreter")
        topk = model(
            [helper.make_node("TopK", ["x", "k"], ["v", "i"], name="top"), helper.make_node("Neg", ["v"], ["y"])],
            {"x": ["N", 9]},
            ["y"],
            {"k": np.array([4], np.int64)},
        )
        onnx.save(topk, file)
        j = run(c, "TopK", 0, file, "--size", "N=3")
        c.check({"v", "y"} <= {r["value"] for r in j.get("values", [])}, "values of TopK", j)
    return c.done()


if __name__ == "__main__":
    sys.exit(main())
