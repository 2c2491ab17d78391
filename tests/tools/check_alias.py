#!/usr/bin/env python3
"""--alias OUTPUT=INPUT: a call in place gives what a call with memory of its own gives."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import tvm_ffi
from onnx import helper

from models import Checks, model, random, tripod


def main() -> int:
    c = Checks()
    with tempfile.TemporaryDirectory() as folder:
        file, so = Path(folder) / "m.onnx", Path(folder) / "m.so"
        # Every element of the state is read again after the first of the new one could have been written.
        w = random(8, 8)
        onnx.save(
            model(
                [
                    helper.make_node("MatMul", ["state", "w"], ["m"]),
                    helper.make_node("Add", ["m", "x"], ["next"]),
                    helper.make_node("ReduceSum", ["state"], ["total"], keepdims=0),
                ],
                {"x": ["N", 8], "state": ["N", 8]},
                ["next", "total"],
                {"w": w},
            ),
            file,
        )
        p = tripod("compile", file, "-o", so, "--alias", "next=state")
        if c.equal(p.returncode, 0, f"compile {p.stderr}"):
            main_into = tvm_ffi.load_module(str(so))["main_into"]
            x, state, total = random(40, 8, seed=1), random(40, 8, seed=2), np.zeros((), np.float32)
            for step in range(3):
                want, sum_before = (state @ w + x).astype(np.float32), state.astype(np.float64).sum()
                main_into(x, state, state, total)
                c.check(
                    np.allclose(state, want, rtol=1e-5, atol=1e-5), f"step {step} in place", np.abs(state - want).max()
                )
                c.check(
                    abs(float(total) - sum_before) < 1e-3, f"step {step}: the other output", (float(total), sum_before)
                )
        for arguments, message in (
            (["--alias", "none=state"], 'no output "none"'),
            (["--alias", "next=none"], 'no input "none"'),
            (["--alias", "total=state"], "the output is f32[], the input f32[N, 8]"),
            (["--alias", "next"], "wanted OUTPUT=INPUT"),
        ):
            p = tripod("compile", file, "-o", so, *arguments)
            c.equal((p.returncode, message in p.stderr + p.stdout), (2, True), f"{arguments} {p.stderr}")
    return c.done()


if __name__ == "__main__":
    sys.exit(main())
