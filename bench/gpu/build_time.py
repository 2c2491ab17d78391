#!/usr/bin/env python3
"""Time of `tripod compile --target=cuda` for ResNet-50 and BERT-base, one architecture, cold and warm compile cache.

usage: bench/gpu/build_time.py MODEL.onnx... [--cores 2,16] [--tripod PROGRAM]     needs nvcc, no GPU

The process and its children may use the first N cores of those that this program may. Bounds: cold 60 s on 2 cores and 15 s
on 16, warm 5 s.
"""
from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BOUNDS = {2: 60.0, 16: 15.0}
WARM = 5.0


def build(tripod: str, model: Path, folder: Path, cores: set[int]) -> float:
    start = time.monotonic()
    subprocess.run([tripod, "compile", str(model), "--target=cuda", "--arch=sm_90a", "--precision=f16", "--cache", str(folder / "cache"),
                    "-o", str(folder / "model.so")], check=True, preexec_fn=lambda: os.sched_setaffinity(0, cores))
    return time.monotonic() - start


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+", type=Path)
    p.add_argument("--cores", default="2,16")
    p.add_argument("--tripod", default=str(ROOT / "build/bin/tripod"))
    args = p.parse_args()
    mine = sorted(os.sched_getaffinity(0))
    print("| model | cores | cold s (bound) | warm s (bound) |\n|---|---|---|---|")
    for model in args.models:
        for n in map(int, args.cores.split(",")):
            if n > len(mine):
                print(f"| {model.stem} | {n} | there are {len(mine)} |")
                continue
            with tempfile.TemporaryDirectory() as folder:
                cold, warm = (build(args.tripod, model, Path(folder), set(mine[:n])) for _ in range(2))
            print(f"| {model.stem} | {n} | {cold:.1f} ({BOUNDS.get(n, 0):g}) | {warm:.1f} ({WARM:g}) |", flush=True)
    print(f"memory at most {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10} MB in one process")
    return 0


if __name__ == "__main__":
    sys.exit(main())
