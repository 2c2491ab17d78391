#!/usr/bin/env python3
"""--repro bundles: what is in one, that it replays, and that a crash or internal error leaves one by itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx

from models import COMPILER, Checks, perceptron, tripod


def replay(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(folder / "replay.sh")],
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, "TRIPOD": str(COMPILER), "TMPDIR": str(folder)},
    )


def check_compile(c: Checks, folder: Path) -> None:
    model, bundle = folder / "it's.onnx", folder / "bundle"
    onnx.save_model(perceptron(), model, save_as_external_data=True, location="weights.bin", size_threshold=0)
    p = tripod("compile", model, "-o", folder / "a.so", "--dim", "N=2..9", "--repro", bundle)
    c.equal((p.returncode, p.stderr), (0, ""), "compile --repro")
    names = {str(f.relative_to(bundle)) for f in bundle.rglob("*") if f.is_file()}
    wanted = {
        "about.txt",
        "replay.sh",
        "model.onnx",
        "weights.bin",
        "1-import.graph",
        "2-simplify.graph",
        "3-layout.graph",
        "lower/000.loop",
        "schedule/000.loop",
        "plan.txt",
        "emit.ll",
    }
    c.check(wanted <= names, "files of the bundle", sorted(wanted - names))
    c.check(
        "N=2..9" in (bundle / "about.txt").read_text() and "tripod 0." in (bundle / "about.txt").read_text(),
        "about.txt",
    )
    moved = folder / "elsewhere"
    shutil.move(bundle, moved)
    model.unlink()
    (folder / "weights.bin").unlink()
    p = replay(moved)
    c.equal(p.returncode, 0, f"replay.sh {p.stderr}")
    c.equal((moved / "model.so").read_bytes() == (folder / "a.so").read_bytes(), True, "the replay makes the same file")
    # The IR of a phase goes through opt, and gives what the next phase had.
    p = tripod("opt", moved / "1-import.graph", "--passes", "simplify")
    c.equal(p.returncode, 0, f"opt on the graph {p.stderr}")
    c.equal(p.stdout == (moved / "2-simplify.graph").read_text(), True, "opt makes the graph of the next phase")
    p = tripod("opt", moved / "schedule/000.loop")
    c.equal((p.returncode, p.stdout.startswith("func @")), (0, True), "opt on a kernel")


def check_fault(c: Checks, folder: Path, kind: str) -> None:
    """A fault in opt: the test's own passes make it."""
    graph = folder / "g.graph"
    graph.write_text("graph @main(%x: f32[N, 3]) where 1 <= N {\n  %y = neg(%x)\n  return %y\n}\n")
    temporary = folder / kind
    temporary.mkdir()
    p = subprocess.run(
        [COMPILER, "opt", graph, "--passes", f"simplify,test_{kind}"],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    c.equal(p.returncode, 1, f"{kind}: exit code")
    found = re.search(
        r"A bundle that reproduces it is in\n  (\S+)\n  replay: TRIPOD=tripod sh (\S+)/replay.sh\n", p.stderr
    )
    if not c.check(found is not None, f"{kind}: message", p.stderr):
        return
    bundle = Path(found[1])
    c.equal(bundle.parent, temporary, f"{kind}: place")
    c.equal((bundle / "model.graph").read_text() == graph.read_text(), True, f"{kind}: the input is in the bundle")
    again = replay(bundle)
    c.check(
        again.returncode == 1
        and ("internal error: " in again.stderr if kind == "internal_error" else "crashed (signal 06)" in again.stderr),
        f"{kind}: replay",
        again,
    )


def main() -> int:
    c = Checks()
    with tempfile.TemporaryDirectory() as folder:
        check_compile(c, Path(folder))
        check_fault(c, Path(folder), "internal_error")
        check_fault(c, Path(folder), "crash")
        # A model that is at fault itself leaves nothing.
        (Path(folder) / "none").mkdir()
        bad = Path(folder) / "bad.onnx"
        bad.write_bytes(b"\xff\xff")
        p = subprocess.run(
            [COMPILER, "compile", bad],
            capture_output=True,
            text=True,
            env={**os.environ, "TMPDIR": str(Path(folder) / "none")},
        )
        c.equal((p.returncode, os.listdir(Path(folder) / "none")), (2, []), "no bundle for a bad model")
    return c.done()


if __name__ == "__main__":
    sys.exit(main())
