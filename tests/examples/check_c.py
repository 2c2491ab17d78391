#!/usr/bin/env python3
"""examples/c: about 40 lines of C that need nothing but tripod/model.h and libc, built and run on a small model.

Ends with "N passed, N failed".
"""
from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/errors")]
from bad_models import graph_model, info  # noqa: E402
from harness import COMPILER, compile_model  # noqa: E402
from onnx import helper  # noqa: E402

SOURCE = ROOT / "examples/c/run_model.c"


def problems(folder: Path) -> list[str]:
    """One text for each check that failed; "" for one that did not."""
    lines = SOURCE.read_text().splitlines()
    found = [f"{len(lines)} lines, wanted about 40" if len(lines) > 45 else ""]
    headers = {line.split()[1] for line in lines if line.startswith("#include")} - {"<stdio.h>", "<stdlib.h>", "<string.h>"}
    found.append(f"needs {headers}" if headers != {'"tripod/model.h"'} else "")
    program, so = folder / "run_model", folder / "model.so"
    built = subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", f"-I{ROOT / 'include'}", str(SOURCE), "-o",
                            str(program), "-ldl"], capture_output=True, text=True)
    found.append(built.stderr)
    m = graph_model([helper.make_node("Concat", ["x", "z"], ["y"], axis=0)], [info("x", ["N", 4]), info("z", ["M", 4])],
                    [info("y", ["K", 4])])
    (folder / "model.onnx").write_bytes(m.SerializeToString())
    compile_model(str(COMPILER), folder / "model.onnx", so)
    r = subprocess.run([str(program), str(so), "2,4", "3,4"], capture_output=True, text=True)
    found.append("" if (r.returncode, r.stdout) == (0, "output 0: [5, 4]\n") else f"{r.returncode}: {r.stdout}{r.stderr}")
    r = subprocess.run([str(program), str(so), "2,4", "3,5"], capture_output=True, text=True)
    found.append("" if r.returncode == 1 and "input 1 'z' axis 1: got 5, wanted 4" in r.stderr else f"{r.returncode}: {r.stderr}")
    r = subprocess.run([str(program), str(folder / "none.so")], capture_output=True, text=True)
    found.append("" if r.returncode == 2 and "none.so" in r.stderr else f"{r.returncode}: {r.stderr}")
    return found


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        found = problems(Path(folder))
    bad = [p for p in found if p]
    print("\n".join(bad))
    print(f"{len(found) - len(bad)} passed, {len(bad)} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
