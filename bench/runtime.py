#!/usr/bin/env python3
"""Run-time figures of compiled models: start, a steady call, what it allocates, memory.

For every model, each in a fresh process (bench/runtime/steady.c): the time from dlopen to the first result less a steady
call (bound 20 ms), allocations in calls 2 to 1000 with given outputs (bound 0), arena and other memory the model holds,
resident set; what `tripod inspect` says of the arena beside the bytes alive at once (bound 1.15 times). And a one-op model on 8 elements (bound 2 us, median and 99th percentile).

usage: bench/runtime.py [MODEL...] [--calls N] [--seconds S] [--threads N] [--so DIR] [--check]
  --so DIR   take DIR/MODEL.so where it is (default build/models, where tests/models/run.py leaves them)
  --check    only what must hold on a busy machine too: no allocations, the arena; ends with "N passed, N failed"
"""
from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / d) for d in ("python", "tests", "scripts", "tests/models")]
import make_models  # noqa: E402
import models  # noqa: E402
from harness import COMPILER, compile_model  # noqa: E402
from inputs import CASES  # noqa: E402
from run import input_names  # noqa: E402
from tripod.capi import DTYPES  # noqa: E402

ARENA_BOUND = 1.15
PROGRAM = ROOT / "build" / "bench" / "steady"


def build() -> None:
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-rdynamic", f"-I{ROOT / 'include'}", str(ROOT / "bench/runtime/steady.c"),
                    "-o", str(PROGRAM), "-ldl"], check=True)


def measure(so: Path, arrays: list[np.ndarray], args: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        lines = []
        for k, a in enumerate(arrays):
            file = Path(folder) / f"{k}.bin"
            file.write_bytes(np.asarray(a, order="C").tobytes())
            lines.append(" ".join(map(str, [DTYPES.index(a.dtype), a.ndim, *a.shape, file])))
        (Path(folder) / "inputs.txt").write_text("\n".join(lines) + "\n")
        env = {**os.environ, "STEADY_THREADS": str(args.threads)}
        best: dict[str, Any] = {}
        for _ in range(1 if args.check else 3):  # the first one warms the page cache
            r = subprocess.run([str(PROGRAM), str(so), str(Path(folder) / "inputs.txt"), str(args.calls), str(args.seconds)],
                               env=env, capture_output=True, text=True)
            if r.returncode:
                return {"error": r.stderr.strip() or f"exit code {r.returncode}"}
            now = json.loads(r.stdout)
            now["excess_ms"] = now["start_ms"] - now["median_us"] / 1e3
            if not best or now["excess_ms"] < best["excess_ms"]:
                best = now
        return best


def one_op(folder: Path) -> Path:
    v = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [8]) for n in "xyz"]
    m = helper.make_model(helper.make_graph([helper.make_node("Add", ["x", "y"], ["z"])], "g", v[:2], v[2:]),
                          opset_imports=[helper.make_opsetid("", 17)])
    m.ir_version = 8
    (folder / "one.onnx").write_bytes(m.SerializeToString())
    compile_model(str(COMPILER), folder / "one.onnx", folder / "one.so")
    return folder / "one.so"


def model_so(name: str, args: argparse.Namespace) -> Path:
    so = args.so / f"{name}.so"
    if not so.exists():
        so.parent.mkdir(parents=True, exist_ok=True)
        compile_model(str(COMPILER), models.CACHE / f"{name}.onnx", so, timeout=300)
    return so


def arena_ratio(so: Path, arrays: list[np.ndarray]) -> float:
    """Bytes of the arena over the least that are alive at once, for these inputs (dims that data decides: the least)."""
    command = [str(COMPILER), "inspect", str(so)]
    manifest = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    dims = {d["name"] for d in manifest.get("dims", [])}
    for io, a in zip(manifest["inputs"], arrays, strict=True):
        for name, extent in zip(io["shape"], a.shape, strict=True):
            if name in dims:
                command += ["--dim", f"{name}={extent}"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"^arena.*\((\d+\.\d+) times\)$", text, re.MULTILINE)
    return float(found[1]) if found else float("nan")


def report(label: str, r: dict[str, Any]) -> bool:
    """Prints a row of the table; True when the model failed, allocated, or its arena is larger than allowed."""
    if "error" in r:
        print(f"| {label} | {r['error']} |", flush=True)
        return True
    print(f"| {label} | {r['start_ms']:.2f} | {r['median_us'] / 1e3:.4g} (p99 {r['p99_us'] / 1e3:.4g}) | {r['excess_ms']:.2f} | "
          f"{r['allocations']} ({r['calls']}) | {r['held_mb']:.2f} | {r['rss_mb']:.0f} | {r['arena']:.2f} |", flush=True)
    return r["allocations"] != 0 or not r["arena"] <= ARENA_BOUND


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", help=f"models (default all): {' '.join(CASES)}")
    p.add_argument("--calls", type=int, default=1000)
    p.add_argument("--seconds", type=float, default=2.0, help="a model's calls end after that, but at 20 at least")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--so", type=Path, default=ROOT / "build" / "models")
    p.add_argument("--check", action="store_true")
    args = p.parse_args()
    build()
    names = args.names or list(CASES)
    models.fetch([s for s in models.SOURCES if s.name in [*names, "magika_config"]])
    make_models.make([n for n in names if n in make_models.NAMES])
    failed = 0
    print("| model | first result ms | steady ms | start over steady ms | allocations (calls) | holds MB | RSS MB | arena over live |\n"
          "|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        small = argparse.Namespace(**{**vars(args), "calls": 100_000})
        so, arrays = one_op(Path(folder)), [np.ones(8, np.float32)] * 2
        failed += report("one Add on 8 elements", measure(so, arrays, small) | {"arena": arena_ratio(so, arrays)})
    for name in names:
        case = CASES[name]()[0]
        arrays = [np.asarray(case.inputs[n]) for n in input_names(models.CACHE / f"{name}.onnx")]
        so = model_so(name, args)
        failed += report(name, measure(so, arrays, args) | {"arena": arena_ratio(so, arrays)})
    print(f"{len(names) + 1 - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
