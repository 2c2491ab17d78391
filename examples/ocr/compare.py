#!/usr/bin/env python3
"""Times the OCR program beside ONNX Runtime on the same inputs, in turns: time, memory, start-up.

usage: compare.py --ocr OCR --det DET.onnx --rec REC.onnx --inputs DIR [--rounds N] [--repeat N] -- OCR-ARGUMENTS...
  --inputs   what `ocr --save DIR` left: both models' inputs, and Tripod's outputs to compare with
  --rounds   fresh processes of each side for 1 and for 2 threads, one after the other (default 3)
  --repeat   timed runs in each process (default 10)

The two sides differ in one thing: the program that holds ONNX Runtime is this script, so its memory is also given
without what Python, numpy and the import of onnxruntime take. Start-up is from dlopen (Tripod) or from the creation
of the session (ONNX Runtime, already imported) to the first result, less a later run of the same input.
Exit code 1 when the outputs differ by more than 0.1% of their range.
"""
from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

Fields = dict[str, str]


def load(inputs: Path, name: str):
    import numpy as np

    shape = [int(n) for n in (inputs / f"{name}.shape").read_text().split()]
    return np.fromfile(inputs / f"{name}.f32", np.float32).reshape(shape)


def peak_mb() -> float:
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))


def peer(det: Path, rec: Path, inputs: Path, threads: int, repeat: int) -> None:
    """ONNX Runtime's side, a process of its own: prints the lines that ocr prints, and one for the difference."""
    import numpy as np
    import onnxruntime as ort

    lines = sorted(inputs.glob("rec_*_input.f32"), key=lambda p: int(p.name.split("_")[1]))
    feeds = {"det": ["det"], "rec": [p.name.removesuffix("_input.f32") for p in lines]}
    arrays = {name: load(inputs, name + "_input") for names in feeds.values() for name in names}
    before = peak_mb()
    sessions, first, outputs = {}, {}, {}
    for model, path in (("det", det), ("rec", rec)):
        start = time.perf_counter()
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        sessions[model] = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        key = sessions[model].get_inputs()[0].name
        for i, name in enumerate(feeds[model]):
            outputs[name] = sessions[model].run(None, {key: arrays[name]})[0]
            if i == 0:
                first[model] = time.perf_counter() - start
    runs: dict[str, list[float]] = {"det": [], "rec": []}
    again: dict[str, list[float]] = {"det": [], "rec": []}
    for _ in range(repeat):
        for model, session in sessions.items():
            key = session.get_inputs()[0].name
            start = time.perf_counter()
            for i, name in enumerate(feeds[model]):
                session.run(None, {key: arrays[name]})
                if i == 0:
                    again[model].append(time.perf_counter() - start)
            runs[model].append(time.perf_counter() - start)
    for model in sessions:
        print(f"time model={model} threads={threads} runs_ms={','.join(f'{1e3 * r:.3f}' for r in runs[model])}"
              f" first_ms={1e3 * first[model]:.2f} start_ms={1e3 * (first[model] - median(again[model])):.2f}")
    print(f"memory peak_mb={peak_mb():.1f} before_mb={before:.1f}")
    worst = {model: max(float(np.abs(outputs[n] - load(inputs, n + "_output")).max() / np.ptp(outputs[n]))
                        for n in names) for model, names in feeds.items()}
    print(f"difference det={worst['det']:.2g} rec={worst['rec']:.2g}")


def lines_of(command: list[str]) -> list[tuple[str, Fields]]:
    """The key=value lines that a program printed, as (first word, fields)."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"compare: exit code {done.returncode} from {' '.join(command)}")
    words = [line.split() for line in done.stdout.splitlines()]
    return [(w[0], dict(f.split("=", 1) for f in w[1:])) for w in words if w and w[0] != "text"]


def compare(args: argparse.Namespace) -> int:
    me = [sys.executable, __file__, "--det", str(args.det), "--rec", str(args.rec), "--inputs", str(args.inputs),
          "--repeat", str(args.repeat)]
    runs: dict[tuple[str, int, str], list[float]] = {}
    start: dict[tuple[str, int, str], list[float]] = {}
    memory: dict[tuple[str, int], list[tuple[float, float]]] = {}
    difference: Fields = {}
    for _ in range(args.rounds):
        for threads in (1, 2):
            sides = {"tripod": [str(args.ocr), *args.arguments, "--threads", str(threads), "--repeat",
                                str(args.repeat)],
                     "onnxruntime": [*me, "--peer", str(threads)]}
            for side, command in sides.items():
                for kind, f in lines_of(command):
                    if kind == "time":
                        key = (f["model"], threads, side)
                        runs.setdefault(key, []).extend(float(r) for r in f["runs_ms"].split(","))
                        start.setdefault(key, []).append(float(f["start_ms"]))
                    elif kind == "memory":
                        memory.setdefault((side, threads), []).append((float(f["peak_mb"]), float(f["before_mb"])))
                    elif kind == "difference":
                        difference = f
    for model, threads, side in sorted(runs):
        key = (model, threads, side)
        print(f"demo model={model} threads={threads} runtime={side} median_ms={median(runs[key]):.2f}"
              f" min_ms={min(runs[key]):.2f} startup_ms={median(start[key]):.2f} runs={len(runs[key])}")
    for (side, threads), peaks in sorted(memory.items()):
        peak, before = (median(p[i] for p in peaks) for i in (0, 1))
        print(f"demo memory runtime={side} threads={threads} peak_mb={peak:.1f} before_models_mb={before:.1f}")
    print(f"demo difference det={difference['det']} rec={difference['rec']}")
    return 0 if max(float(difference["det"]), float(difference["rec"])) <= 1e-3 else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ocr", type=Path)
    parser.add_argument("--det", type=Path, required=True)
    parser.add_argument("--rec", type=Path, required=True)
    parser.add_argument("--inputs", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--peer", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs="*")
    args = parser.parse_args()
    if args.peer:
        peer(args.det, args.rec, args.inputs, args.peer, args.repeat)
        return 0
    return compare(args)


if __name__ == "__main__":
    sys.exit(main())
