#!/usr/bin/env python3
"""tripod bench: what it counts is right, and what it measures holds together."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import onnx
from onnx import helper
from models import Checks, model, perceptron, tripod


def main() -> int:
    c = Checks()
    with tempfile.TemporaryDirectory() as folder:
        onnx_file, so = Path(folder) / "m.onnx", Path(folder) / "m.so"
        onnx.save(perceptron(), onnx_file)
        c.equal(tripod("compile", onnx_file, "-o", so).returncode, 0, "compile")
        p = tripod("bench", so, "--dim", "N=64", "--runs", 20, "--threads", 1, "--json")
        if c.equal(p.returncode, 0, "bench --json"):
            j = json.loads(p.stdout)
            c.check(
                j["min_ms"] <= j["low_quartile_ms"] <= j["median_ms"] <= j["high_quartile_ms"] <= j["p90_ms"], "order"
            )
            c.equal(j["threads"], 1, "threads")
            c.check(j["peak_flops"] > 1e9 and all(b["bytes_per_second"] > 1e8 for b in j["bandwidth"]), "peaks", j)
            by_node = {n: k for k in j["kernels"] for n in k["nodes"]}
            first = by_node.get("node 0 MatMul 'first'", {})
            # x w (an addition and a multiplication each), + b, relu
            c.equal(first.get("flops"), 64 * 32 * (2 * 24 + 2), "flops of the first kernel")
            c.equal(first.get("bytes"), 4 * (64 * 24 + 24 * 32 + 32 + 64 * 32), "bytes of the first kernel")
            c.equal(
                first.get("nodes"), ["node 0 MatMul 'first'", "node 1 Add 'bias'", "node 2 Relu 'act'"], "its nodes"
            )
            c.equal(len(by_node), 5, "every ONNX node is in a kernel")
            for k in j["kernels"]:
                c.equal(k["calls"], 1, f"calls of {k['kernel']}")
                c.check(0 < k["roofline"] and 0 < k["share"] <= 1, f"shares of {k['kernel']}", k)
            c.check(sum(k["ms"] for k in j["kernels"]) <= j["profiled_ms"] * 1.2, "kernels add up to the run")
        text = tripod("bench", so, "--dim", "N=64", "--runs", 3).stdout
        c.check("roofline" in text and "node 0 MatMul 'first' and 2 more" in text, "text", text)
        total = tripod("bench", so, "--runs", 3, "--total-only").stdout
        c.equal(len(total.splitlines()), 1, "--total-only prints one line")
        bad = tripod("bench", so, "--dim", "N=x")
        c.equal((bad.returncode, "--dim wants NAME=VALUE" in bad.stderr), (2, True), "a bad --dim")

        # An operator of the run time, and a dim that data decides.
        onnx.save(
            model(
                [helper.make_node("NonZero", ["x"], ["at"], name="nz"), helper.make_node("Cast", ["at"], ["y"], to=1)],
                {"x": ["N", 4]},
                ["y"],
            ),
            onnx_file,
        )
        c.equal(tripod("compile", onnx_file, "-o", so).returncode, 0, "compile NonZero")
        j = json.loads(tripod("bench", so, "--dim", "N=5", "--runs", 3, "--json").stdout)
        nonzero = [k for k in j["kernels"] if "node 0 NonZero 'nz'" in k["nodes"]]
        c.equal([k["kernel"] for k in nonzero], ["tp_op_nonzero"], "the operator has one row")
        cast = [k for k in j["kernels"] if k["rule"] == "blocks"]
        c.equal([k.get("bytes") for k in cast], [2 * 20 * (8 + 4)], "bytes by a dim that data decides")
    return c.done()


if __name__ == "__main__":
    sys.exit(main())
