#!/usr/bin/env python3
"""Packed conformance cases (packed.py) run where there is neither onnx nor ml_dtypes, and wrong values are found there."""
from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
CASES = ["test_relu", "test_cast_FLOAT_to_INT4", "test_cast_FLOAT_to_BFLOAT16", "test_cast_FLOAT_to_FLOAT8E5M2",
         "test_nonzero_example", "test_adam"]
BARE = """
import runpy, sys
sys.modules["onnx"] = sys.modules["ml_dtypes"] = None
sys.argv = [sys.argv[1]]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def pack(folder: Path, *args: str) -> str:
    command = [sys.executable, str(HERE / "run.py"), "--mode", "stripped", "--compile-only", str(folder), *args]
    return subprocess.run(command, capture_output=True, text=True).stdout


def run(folder: Path) -> tuple[int, str]:
    r = subprocess.run([sys.executable, "-c", BARE, str(folder / "packed.py")], capture_output=True, text=True)
    return r.returncode, r.stdout + r.stderr


def main() -> int:
    failed = 0

    def check(good: bool, what: str) -> None:
        nonlocal failed
        failed += not good
        if not good:
            print(f"FAIL {what}")

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "packed"
        first, rest = pack(folder, *CASES[:2]), pack(folder, *CASES[2:])
        check("2 passed, 0 failed" in first and "3 passed, 0 failed, 1 listed" in rest, f"compiling: {first}{rest}")
        code, text = run(folder)
        check(code == 0 and re.search(r"^5 passed, 0 failed, 1 listed$", text, re.M) is not None, f"running: {text}")
        values = folder / "data" / "test_relu.npz"
        with np.load(values) as file:
            arrays = dict(file)
        arrays["0_out_0"].flat[-1] += 1
        np.savez(values, **arrays)
        (folder / "stripped" / "test_nonzero_example.so").write_bytes(b"no ELF")
        code, text = run(folder)
        check(code == 1 and "test_relu (stripped): wrong: output 0: 1 of 60 differ" in text, f"a wrong value: {text}")
        check("test_nonzero_example (stripped): wrong: run failed" in text and "3 passed, 2 failed, 1 listed" in text,
              f"a broken file: {text}")
    print(f"{4 - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
