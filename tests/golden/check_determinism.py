#!/usr/bin/env python3
"""The same model gives the same bytes: again, from another folder under another name, on one core, with dumps on."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx

from corpus import GRAPHS

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from models import COMPILER, Checks  # noqa: E402


def compiled(model: Path, so: Path, *args: str, cwd: Path, prefix: tuple[str, ...] = ()) -> bytes:
    p = subprocess.run(
        [*prefix, str(COMPILER), "compile", str(model), "-o", str(so), *args],
        cwd=cwd,
        capture_output=True,
        env={**os.environ, "TMPDIR": str(cwd)},
    )
    return so.read_bytes() if p.returncode == 0 else b""


def main() -> int:
    c = Checks()
    one_core = ("taskset", "-c", str(min(os.sched_getaffinity(0))))
    with tempfile.TemporaryDirectory() as folder:
        here, there = Path(folder) / "here", Path(folder) / "another place"
        here.mkdir(), there.mkdir()
        for name, make in GRAPHS.items():
            onnx.save(make(), here / "m.onnx")
            onnx.save(make(), there / "other name.onnx")
            first = compiled(here / "m.onnx", here / "m.so", cwd=here)
            c.check(len(first) > 0, f"{name} compiles")
            c.check(first == compiled(here / "m.onnx", here / "m.so", cwd=here), f"{name} again")
            c.check(
                first == compiled(Path("other name.onnx"), there / "o.so", cwd=there), f"{name} from another folder"
            )
            c.check(first == compiled(here / "m.onnx", here / "m.so", cwd=here, prefix=one_core), f"{name} on one core")
            c.check(
                first == compiled(here / "m.onnx", here / "m.so", "--verify", "--time-passes", cwd=here),
                f"{name} with checks on",
            )
    return c.done()


if __name__ == "__main__":
    sys.exit(main())
