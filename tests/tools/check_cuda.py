#!/usr/bin/env python3
"""compile --target=cuda without a GPU: the file is made, says what it is, and running it says that there is no GPU.

Skipped where there is no nvcc.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import sys
import tempfile
from pathlib import Path

import onnx
from onnx import helper

from models import Checks, model, random, tripod


def has_gpu() -> bool:
    try:
        return ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except OSError:
        return False


def main() -> int:
    c = Checks()
    if not shutil.which("nvcc") and not Path("/usr/local/cuda/bin/nvcc").exists():
        print("no nvcc here: skipped")
        return c.done()
    with tempfile.TemporaryDirectory() as folder:
        file, so = Path(folder) / "m.onnx", Path(folder) / "m.so"
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["m"], name="first"),
            helper.make_node("Relu", ["m"], ["r"], name="act"),
            helper.make_node("Softmax", ["r"], ["y"], name="prob"),
        ]
        onnx.save(model(nodes, {"x": ["N", 24]}, ["y"], {"w": random(24, 32)}), file)
        p = tripod("compile", file, "-o", so, "--target", "cuda", "--arch", "sm_90a", "--cache", Path(folder) / "cache")
        if c.equal(p.returncode, 0, f"compile {p.stderr}"):
            manifest = json.loads(tripod("inspect", so, "--json").stdout)
            c.equal(manifest["target"], "cuda", "target")
            c.check(any("__global__" in str(k) for k in manifest["kernels"]), "CUDA C in the manifest", manifest["kernels"])
            p = tripod("run", so, "--random", "--dim", "N=3")
            if not has_gpu():
                c.equal((p.returncode, "no GPU" in p.stderr), (2, True), f"run {p.stderr}")
        p = tripod("compile", file, "-o", so, "--target", "cuda", "--arch", "sm_12")
        c.equal((p.returncode, "sm_12" in p.stderr), (2, True), f"arch {p.stderr}")
    return c.done()


if __name__ == "__main__":
    sys.exit(main())
