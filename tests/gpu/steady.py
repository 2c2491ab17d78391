#!/usr/bin/env python3
"""Compiled models on a GPU over many calls: no memory is lost, threads on streams of their own do not disturb each other,
CUDA graphs give the same bits, and compute-sanitizer finds nothing.

usage: tests/gpu/steady.py MODEL.so... [--calls N] [--sanitizer TOOL[,TOOL]] [--dim NAME=N]
Needs Python, numpy and a driver. Inputs are random ones of the least sizes, or of those that --dim says for models that do
not take their least. Ends with "N passed, N failed".
"""
from __future__ import annotations

import argparse
import ctypes
import resource
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "python"), str(HERE)]
from tripod import Model  # noqa: E402
from tripod.capi import DTYPES  # noqa: E402

SANITIZERS = ("memcheck", "racecheck", "synccheck", "initcheck")
SANITIZER_TIMEOUT = 120  # seconds
LOST = 1 << 20  # bytes of the GPU that other users of it may take meanwhile


class Cuda:
    """The few calls of the driver that the tests make themselves."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._check(self._lib.cuInit(0))
        self._check(self._lib.cuDeviceGet(ctypes.byref(device), 0))
        self._check(self._lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        self._context = context
        self.make_current()

    def _check(self, result: int) -> None:
        if result:
            raise RuntimeError(f"the CUDA driver answered {result}")

    def make_current(self) -> None:
        self._check(self._lib.cuCtxSetCurrent(self._context))

    def free_memory(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._check(self._lib.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
        return free.value

    def stream(self) -> int:
        self.make_current()
        stream = ctypes.c_void_p()
        self._check(self._lib.cuStreamCreate(ctypes.byref(stream), 1))
        return stream.value or 0


@dataclass
class Case:
    so: str
    calls: int
    dims: dict[str, int]


def random_inputs(model: Model, seed: int, dims: dict[str, int]) -> list[np.ndarray]:
    """Of the least sizes, but for `dims`."""
    rng, manifest = np.random.default_rng(seed), model.describe()
    least = {d["name"]: max(1, d["min"]) for d in manifest.get("dims", [])} | dims
    by_name = {str(t): t for t in DTYPES} | {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64), "f16": np.dtype(np.float16),
                                             "b1": np.dtype(bool)} | {f"{k}{b}": np.dtype(f"{k}{b // 8}") for k in "iu" for b in (8, 16, 32, 64)}
    inputs = []
    for i in manifest["inputs"]:
        dtype = by_name[i["dtype"]]
        shape = [least.get(d, d) if isinstance(d, str) else d for d in i["shape"]]
        a = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 2, shape)
        inputs.append(np.asarray(a).astype(dtype))
    return inputs


def same(a: list[Any], b: list[Any]) -> bool:
    return all(np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in zip(a, b))


def no_memory_is_lost(cuda: Cuda, case: Case) -> str:
    for graphs in (False, True):
        with Model(case.so, device="cuda", cuda_graphs=graphs) as model:
            inputs = random_inputs(model, 0, case.dims)
            first = model.run(inputs)
            call, outputs = model.bind(inputs)
            for _ in range(50):
                call()
            model.synchronize()
            free, resident = cuda.free_memory(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            for _ in range(case.calls):
                if call():
                    return f"a call failed: {model.last_error()}"
            model.synchronize()
            lost, grown = free - cuda.free_memory(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident
            if lost > LOST or grown > 8192:
                return f"{case.calls} calls (graphs: {graphs}) took {lost} bytes of the GPU and {grown} KiB of the host"
            if not same(first, outputs):
                return f"the last call (graphs: {graphs}) differs from the first"
    return ""


def graphs_give_the_same(cuda: Cuda, case: Case) -> str:
    results = []
    for graphs in (False, True):
        with Model(case.so, device="cuda", cuda_graphs=graphs) as model:
            results.append([model.run(random_inputs(model, seed, case.dims)) for seed in (0, 1, 0, 2)])
    return "" if all(same(a, b) for a, b in zip(*results)) else "a graph's results differ from those of launches"


def two_threads(cuda: Cuda, case: Case) -> str:
    with Model(case.so, device="cuda") as model:
        wanted = [model.run(random_inputs(model, seed, case.dims)) for seed in (1, 2)]
    problems: list[str] = []

    def work(seed: int) -> None:
        try:
            with Model(case.so, device="cuda", stream=cuda.stream(), cuda_graphs=seed == 2) as model:
                inputs = random_inputs(model, seed, case.dims)
                for _ in range(min(case.calls, 300)):
                    if not same(model.run(inputs), wanted[seed - 1]):
                        problems.append(f"thread {seed}: a result differs")
                        return
        except Exception as e:
            problems.append(f"thread {seed}: {e}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return "; ".join(problems)


def sanitized(case: Case, tool: str) -> str:
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    code = f"import sys, steady; m = steady.Model(sys.argv[1], device='cuda'); m.run(steady.random_inputs(m, 0, {case.dims})); m.close()"
    # A kernel is looked for in every image of the file: that one has not got it is no finding.
    options = ["--report-api-errors", "no"] if tool == "memcheck" else []
    command = [program, "--tool", tool, "--error-exitcode", "9", *options, sys.executable, "-c", code, case.so]
    try:
        p = subprocess.run(command, capture_output=True, text=True, cwd=HERE, timeout=SANITIZER_TIMEOUT)
    except OSError as e:
        return f"{tool}: {e}"
    except subprocess.TimeoutExpired:
        return f"{tool}: took over {SANITIZER_TIMEOUT} s"
    return "" if p.returncode == 0 else f"{tool}: exit code {p.returncode}: {excerpt(p.stdout + p.stderr)}"


def excerpt(text: str) -> str:
    """The first findings, and the last line, which counts them."""
    lines = [line for line in text.splitlines() if line.strip(" =")]
    return " / ".join([*lines[:14], lines[-1]] if lines else ["no output"])


CHECKS: list[Callable[[Cuda, Case], str]] = [graphs_give_the_same, two_threads, no_memory_is_lost]


def attempt(check: Callable[[Cuda, Case], str], cuda: Cuda, case: Case) -> str:
    try:
        return check(cuda, case)
    except Exception as e:  # noqa: BLE001  one check that fails must not end the others
        return f"{type(e).__name__}: {e}"


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+")
    p.add_argument("--calls", type=int, default=10000, help="0: only what --sanitizer says")
    p.add_argument("--sanitizer", default="", help=f"tools of compute-sanitizer, of {', '.join(SANITIZERS)}")
    p.add_argument("--dim", action="append", default=[], metavar="NAME=N", help="a size that is not the least; may be repeated")
    args = p.parse_args()
    cuda = Cuda()
    dims = {name: int(n) for name, n in (d.split("=") for d in args.dim)}
    passed = failed = 0
    for so in args.models:
        case = Case(str(Path(so).resolve()), args.calls, dims)
        results = [(f.__name__, attempt(f, cuda, case)) for f in CHECKS if args.calls > 0]
        results += [(tool, sanitized(case, tool)) for tool in args.sanitizer.split(",") if tool]
        for name, problem in results:
            passed, failed = passed + (not problem), failed + bool(problem)
            if problem:
                print(f"{Path(so).name}: {name}: {problem}")
        print(f"{Path(so).name}: {', '.join(name + (' failed' if problem else ' passed') for name, problem in results)}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
