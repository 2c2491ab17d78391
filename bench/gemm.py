#!/usr/bin/env python3
"""Matrix products beside what the machine can do at most and beside ONNX Runtime, interleaved in one run.

A product with M > 1 is held against the peak of fused multiply-adds (bench/roofline.c, measured in this process, one
loop a thread), one with M = 1 against the bandwidth of reading its matrix. B is a constant unless the label ends in
"dynamic". Medians; the share is of the median of the peak in the same rounds.

usage: bench/gemm.py [--threads 1,2] [--seconds 4] [--compiler PATH] [--results bench/RESULTS.md] [M,K,N[,dynamic]...]
"""
from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / d) for d in ("python", "bench", "tests")]
import peers  # noqa: E402
from harness import COMPILER, compile_model  # noqa: E402

SIZES = ["1024,1024,1024", "1024,1024,1024,dynamic", "128,768,768", "128,768,3072", "128,3072,768", "197,768,2304",
         "1,768,2304", "1,768,50257", "1,2048,8192", "1,8192,2048"]
BEGIN, END = "<!-- gemm.py begins -->", "<!-- gemm.py ends -->"


def roofline() -> ctypes.CDLL:
    """The loops of roofline.c. ctypes lets go of the interpreter's lock, so threads run them side by side."""
    so = peers.WORK / "roofline.so"
    so.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cc", "-O2", "-mavx2", "-mfma", "-funroll-loops", "-shared", "-fPIC", "-o", so,
                    ROOT / "bench" / "roofline.c"], check=True)
    lib = ctypes.CDLL(str(so))
    lib.fma_rounds.argtypes, lib.fma_rounds.restype = [ctypes.c_int64], ctypes.c_float
    lib.read_floats.argtypes, lib.read_floats.restype = [ctypes.c_void_p, ctypes.c_int64], ctypes.c_float
    return lib


def make_model(path: Path, m: int, k: int, n: int, dynamic: bool) -> dict[str, np.ndarray]:
    """Y = A B; the inputs."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    rng = np.random.default_rng(0)
    feed = {"A": rng.standard_normal((m, k), np.float32)}
    b = rng.standard_normal((k, n), np.float32)
    info = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    inputs, constants = [info("A", m, k)], []
    if dynamic:
        inputs.append(info("B", k, n))
        feed["B"] = b
    else:
        constants.append(numpy_helper.from_array(b, "B"))
    graph = helper.make_graph([helper.make_node("MatMul", ["A", "B"], ["Y"])], "gemm", inputs, [info("Y", m, n)], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return feed


def limit(lib: ctypes.CDLL, m: int, k: int, n: int, threads: int, pool: ThreadPoolExecutor) -> tuple[Callable[[], object], float]:
    """(a call that runs at the limit, its work in flops or bytes)."""
    if m > 1:
        rounds = 2_000_000
        return lambda: list(pool.map(lib.fma_rounds, [rounds] * threads)), 192.0 * rounds * threads
    # As much memory as the product's matrix, each thread its part.
    data = np.ones(k * n, np.float32)
    part = k * n // threads
    return (lambda: list(pool.map(lambda i: lib.read_floats(data.ctypes.data + 4 * part * i, part), range(threads))),
            4.0 * part * threads)


def measure(size: str, threads: int, args: argparse.Namespace, lib: ctypes.CDLL) -> dict[str, float]:
    words = size.split(",")
    m, k, n = map(int, words[:3])
    model, so = peers.WORK / f"gemm_{'_'.join(words)}.onnx", peers.WORK / f"gemm_{'_'.join(words)}.so"
    feed = make_model(model, m, k, n, "dynamic" in words)
    c = compile_model(args.compiler, model, so, [], 60)
    if c.status != "pass":
        raise SystemExit(f"gemm: {size}: {c.status}: {c.message}")
    with ThreadPoolExecutor(threads) as pool:
        peak, peak_work = limit(lib, m, k, n, threads, pool)
        ours, out = peers.tripod_engine(so, feed, list(feed), threads)
        theirs, reference = peers.onnxruntime_engine(model, feed, threads)
        times = peers.measure({"peak": peak, "tripod": ours, "onnxruntime": theirs}, args.seconds)
    error = peers.difference(out, reference)
    if error > 1e-5:
        raise SystemExit(f"gemm: {size}: off by {error:.1e} of the range")
    work = 2.0 * m * k * n if m > 1 else 4.0 * k * n
    rate = {e: w / statistics.median(times[e]) / 1e6 for e, w in (("peak", peak_work), ("tripod", work), ("onnxruntime", work))}
    return {"m": m, **rate}


def report(rows: list[tuple[str, int, dict[str, float]]], args: argparse.Namespace) -> str:
    lines = [f"`bench/gemm.py --seconds {args.seconds:g}`, {peers.datetime.date.today().isoformat()}, {peers.cpu_name()}.",
             "GFLOP/s against the peak of FMA loops; M = 1: GB/s of the matrix against reading it. Medians, interleaved.", "",
             "| M,K,N | threads | limit | Tripod | share | ONNX Runtime | share |", "|---|---|---|---|---|---|---|"]
    for size, threads, r in rows:
        lines.append(f"| {size} | {threads} | {r['peak']:.1f} | {r['tripod']:.1f} | {r['tripod'] / r['peak']:.0%} | "
                     f"{r['onnxruntime']:.1f} | {r['onnxruntime'] / r['peak']:.0%} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("sizes", nargs="*", metavar="M,K,N[,dynamic]")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--seconds", type=float, default=4.0)
    p.add_argument("--compiler", default=str(COMPILER))
    p.add_argument("--results", type=Path, metavar="FILE", help="put the table into this markdown file")
    args = p.parse_args()
    lib, rows = roofline(), []
    for size in args.sizes or SIZES:
        for threads in map(int, args.threads.split(",")):
            r = measure(size, threads, args, lib)
            rows.append((size, threads, r))
            print(f"{size}, {threads} thread{'s' * (threads > 1)}: limit {r['peak']:.1f}, tripod {r['tripod']:.1f} "
                  f"({r['tripod'] / r['peak']:.0%}), onnxruntime {r['onnxruntime']:.1f} ({r['onnxruntime'] / r['peak']:.0%}) "
                  f"{'GFLOP/s' if r['m'] > 1 else 'GB/s'}", flush=True)
    text = report(rows, args)
    print("\n" + text)
    if args.results:
        peers.write_section(args.results, text, "Matrix products", BEGIN, END)
    return 0


if __name__ == "__main__":
    sys.exit(main())
