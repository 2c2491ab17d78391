"""--device of the command line and `device` of python/tripod: what they accept, and what a model for the CPU says.

Ends with "N passed, N failed".
"""
from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
import tripod  # noqa: E402

TRIPOD = ROOT / "build/bin/tripod"


def compile_relu(folder: str) -> str:
    """model.so of Relu on f32[3]."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), f"{folder}/m.onnx")
    subprocess.run([TRIPOD, "compile", f"{folder}/m.onnx", "-o", f"{folder}/m.so"], check=True)
    return f"{folder}/m.so"


def command(*args: str) -> tuple[int, str]:
    done = subprocess.run([TRIPOD, *args], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def error_of(f: Callable[[], object]) -> str:
    try:
        f()
    except tripod.TripodError as e:
        return str(e)
    return "no error"


def main() -> int:
    results: list[tuple[str, bool]] = []
    with tempfile.TemporaryDirectory() as folder:
        so = compile_relu(folder)
        for device in ("cpu", ""):
            code, text = command("run", so, "--random", *(["--device", device] if device else []))
            results.append((f"run {device}: {code} {text}", code == 0))
        for verb in (["run", so, "--random"], ["bench", so, "--runs", "1"]):
            code, text = command(*verb, "--device", "cuda:0")
            results.append((f"{verb[0]} cuda:0: {code} {text}", code == 2 and "this model has code for the CPU only" in text))
            for bad in ("tpu", "cuda:", "cuda:x", "cuda:-1"):
                code, text = command(*verb, "--device", bad)
                results.append((f"{verb[0]} {bad}: {code} {text}", code == 2 and "--device wants cpu, cuda or cuda:N" in text))
        for device in ("cpu", None):
            with tripod.Model(so, device=device) as model:
                [y] = model.run([np.array([-1, 2, -3], np.float32)])
                model.synchronize()
                results.append((f"Model {device}: {y}", y.tolist() == [0, 2, 0]))
        text = error_of(lambda: tripod.Model(so, device="cuda:1"))
        results.append((f"Model cuda:1: {text}", "this model has code for the CPU only" in text))
        for bad in ("tpu", "cuda:", "cuda:x"):
            text = error_of(lambda: tripod.Model(so, device=bad))
            results.append((f"Model {bad}: {text}", "wanted cpu, cuda or cuda:N" in text))
    for name, good in results:
        if not good:
            print(f"FAILED {name}")
    failed = sum(not good for _, good in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
