#!/usr/bin/env python3
"""Kernels of the CUDA back end on one GPU, beside torch in the same run.

usage: bench/gpu/run.py prepare DIR [FAMILY...]    compiles the shapes of bench/gpu/shapes/FAMILY.json (needs onnx)
       bench/gpu/run.py measure DIR [FAMILY...]    on the GPU machine (torch, numpy): prints a table for each family

Both sides run under a CUDA graph that holds as many calls, on different tensors, as it takes to touch more than
512 MB: neither launches nor the L2 cache are measured. Normal random data, replays of the two interleaved, median
of 50. Products also stand beside the fastest of the first eight kernels that cuBLASLt's heuristic proposes. Shares
are of the bandwidth of a plain 2 GB copy measured in the same run.
"""
from __future__ import annotations

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "python")]
import cases  # noqa: E402

WORKING_SET = 512 << 20
MOST_SETS = 64
REPEATS = 50
TOLERANCE = {"f32": 1e-4, "f16": 2e-2}  # of the output's range


def prepare(folder: Path, families: list[str], arch: str, tripod: str, jobs: int) -> int:
    """How many did not compile."""
    folder.mkdir(parents=True, exist_ok=True)

    def compile_row(row: cases.Row) -> bool:
        name = cases.name(row)
        onnx = folder / f"{name}.onnx"
        onnx.write_bytes(cases.model(row))
        start = time.monotonic()
        r = subprocess.run([tripod, "compile", str(onnx), "--target", "cuda", "--arch", arch, "-o", str(folder / f"{name}.so")],
                           capture_output=True, text=True)
        onnx.unlink()
        print(f"{name}: {time.monotonic() - start:.1f} s {r.stderr.strip() if r.returncode else ''}", flush=True)
        return r.returncode == 0

    with ThreadPoolExecutor(jobs) as pool:
        return sum(not good for good in pool.map(compile_row, [row for family in families for row in cases.rows(family)]))


def medians(graphs: list[Any], stream: Any) -> list[float]:
    """Seconds of one replay of each, interleaved."""
    import torch

    times: list[list[float]] = [[] for _ in graphs]
    with torch.cuda.stream(stream):
        for _ in range(REPEATS):
            events = []
            for g in graphs:
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record(stream)
                g.replay()
                end.record(stream)
                events.append((begin, end))
            stream.synchronize()
            for t, (begin, end) in zip(times, events):
                t.append(begin.elapsed_time(end) * 1e-3)
    return [sorted(t)[len(t) // 2] for t in times]


def graph_of(calls: list[Callable[[], Any]], stream: Any) -> Any:
    import torch

    with torch.cuda.stream(stream):
        calls[0]()
        stream.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g, stream=stream):
        for c in calls:
            c()
    return g


def copy_bandwidth(stream: Any) -> float:
    """Bytes a second, read plus written, of a 2 GB copy by a kernel."""
    import torch

    a = torch.randn(1 << 28, device="cuda")
    b = torch.empty_like(a)
    t = medians([graph_of([lambda: torch.add(a, 0.0, out=b)], stream)], stream)[0]
    return 2 * a.nbytes / t


def tensors(row: cases.Row, sets: int) -> tuple[list[list[Any]], list[Any]]:
    """`sets` lists of inputs (weights shared by all), and as many outputs."""
    import torch

    t = {"f16": torch.float16, "f32": torch.float32}[row["dtype"]]
    shapes, constant = cases.input_shapes(row), cases.num_weights(row)
    first = len(shapes) - constant
    weights = [torch.from_numpy(cases.weight(row, i)).to(t).cuda() for i in range(first, len(shapes))]
    # Factors of a product scaled so that sums stay near 1.
    scale = row["k"] ** -0.5 if "k" in row else 1.0
    inputs = [[torch.randn(s, device="cuda", dtype=t) * (scale if i == 1 else 1.0) for i, s in enumerate(shapes[:first])] + weights
              for _ in range(sets)]
    return inputs, [torch.empty(cases.output_shape(row), device="cuda", dtype=t) for _ in range(sets)]


@dataclass
class Figures:
    """Seconds of one call; the error is Tripod's, relative to the output's range."""

    ours: float
    torch: float
    error: float
    best: float | None = None  # of products: the fastest of the first eight kernels that cuBLASLt proposes


def library_products(row: cases.Row, inputs: list[list[Any]], stream: Any) -> tuple[list[Any], Any]:
    """A graph for each kernel that cuBLASLt proposes for a product, over the same inputs, and the memory that they use."""
    import torch
    from cublaslt import WORKSPACE, CublasLt

    if row["op"] != "matmul":
        return [], None
    t = {"f16": torch.float16, "f32": torch.float32}[row["dtype"]]
    results = [torch.empty(cases.output_shape(row), device="cuda", dtype=t) for _ in inputs]
    workspace = torch.empty(WORKSPACE, device="cuda", dtype=torch.uint8)
    functions = CublasLt().products(row["dtype"], row["m"], row["n"], row["k"], row.get("batch", 1), stream.cuda_stream, workspace)
    graphs = []
    for f in functions:
        graphs.append(graph_of([lambda f=f, i=i, o=o: f(i[0], i[1], o) for i, o in zip(inputs, results)], stream))
        graphs[-1].replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(results[-1], torch.matmul(*inputs[-1]), rtol=1e-2, atol=1e-2)
    return graphs, (results, workspace)


def measure_row(row: cases.Row, folder: Path, stream: Any) -> Figures:
    import torch
    from device_model import DeviceModel

    sets = min(MOST_SETS, max(1, -(-WORKING_SET // cases.bytes_of(row))))
    inputs, outputs = tensors(row, sets)
    function, given = cases.torch_function(row), len(inputs[0]) - cases.num_weights(row)
    if row["op"] == "conv":
        for i in inputs:
            i[given] = i[given].to(memory_format=torch.channels_last)
    m = DeviceModel(str(folder / f"{cases.name(row)}.so"), stream)
    ours = [m.call(i[:given], [o]) for i, o in zip(inputs, outputs)]
    theirs = [lambda i=i: function(*i) for i in inputs]
    torch.cuda.synchronize()
    peers, _memory = library_products(row, inputs, stream)
    graphs = [graph_of(ours, stream), graph_of(theirs, stream), *peers]
    for o in outputs:
        o.fill_(float("nan"))
    torch.cuda.synchronize()
    t = medians(graphs, stream)
    # Against f32: torch's own f16 result has errors of its own.
    want = function(*[x[:1].float() if x is inputs[-1][0] and row["op"] == "conv" else x.float() for x in inputs[-1]])
    got = (outputs[-1][:1] if row["op"] == "conv" else outputs[-1]).float()
    span = (want.max() - want.min()).item() or want.abs().max().item()
    return Figures(t[0] / sets, t[1] / sets, (got - want).abs().max().item() / span, min(t[2:]) / sets if t[2:] else None)


def measure(folder: Path, families: list[str]) -> int:
    import torch

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    stream = torch.cuda.Stream()
    copy, failed = copy_bandwidth(stream), 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, copy {copy / 1e12:.2f} TB/s")
    for family in families:
        print(f"\n| {family} | Tripod us | torch us | torch / Tripod | cuBLASLt best of 8 us | that / Tripod | share of the copy | TFLOP/s | error |\n"
              "|---|---|---|---|---|---|---|---|---|")
        for row in cases.rows(family):
            name = cases.name(row)
            if not (folder / f"{name}.so").exists():
                print(f"| {name} | not compiled |")
                failed += 1
                continue
            try:
                r = measure_row(row, folder, stream)
            except Exception as e:  # noqa: BLE001  a figure that fails must not end the others
                print(f"| {name} | {type(e).__name__}: {str(e).splitlines()[0][:120]} |", flush=True)
                failed += 1
                continue
            wrong = not r.error <= TOLERANCE[row["dtype"]]
            failed += wrong
            best = f"{r.best * 1e6:.1f} | {r.best / r.ours:.2f}" if r.best else "- | -"
            print(f"| {name} | {r.ours * 1e6:.1f} | {r.torch * 1e6:.1f} | {r.torch / r.ours:.2f} | {best} | "
                  f"{cases.bytes_of(row) / r.ours / copy:.2f} | {cases.flops_of(row) / r.ours / 1e12:.1f} | "
                  f"{r.error:.1e}{' WRONG' if wrong else ''} |", flush=True)
            torch.cuda.empty_cache()
    clocks = subprocess.run(["nvidia-smi", "--query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu", "--format=csv,noheader"],
                            capture_output=True, text=True).stdout.strip()
    print(f"\nclocks at the end: {clocks}\n{failed} failed")
    return failed


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["prepare", "measure"])
    p.add_argument("folder", type=Path)
    p.add_argument("families", nargs="*", help=f"default all: {' '.join(cases.families())}")
    p.add_argument("--arch", default="sm_90a")
    p.add_argument("--tripod", default=str(ROOT / "build/bin/tripod"))
    p.add_argument("--jobs", type=int, default=1, help="compiles at a time")
    args = p.parse_args()
    families = args.families or cases.families()
    if args.what == "prepare":
        return 1 if prepare(args.folder, families, args.arch, args.tripod, args.jobs) else 0
    return 1 if measure(args.folder, families) else 0


if __name__ == "__main__":
    sys.exit(main())
