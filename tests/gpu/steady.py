#!/usr/bin/env python3
"""Compiled models on a GPU over many calls: no memory is lost, threads on streams of their own do not disturb each other,
CUDA graphs give the same bits, and compute-sanitizer finds nothing.

usage: tests/gpu/steady.py MODEL.so... [--calls N] [--sanitizer TOOL[,TOOL]]
Needs Python, numpy and a driver. Inputs are random ones of the least sizes, so the models must take those. Ends with "N passed, N failed".
"""
from __future__ import annotations

import argparse
import ctypes
import resource
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Callable

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "python"), str(HERE)]
from tripod import Model  # noqa: E402
from tripod.capi import DTYPES  # noqa: E402

SANITIZERS = ("memcheck", "racecheck", "synccheck", "initcheck")
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


def random_inputs(model: Model, seed: int) -> list[np.ndarray]:
    rng, manifest = np.random.default_rng(seed), model.describe()
    least = {d["name"]: max(1, d["min"]) for d in manifest.get("dims", [])}
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


def no_memory_is_lost(cuda: Cuda, so: str, calls: int) -> str:
    for graphs in (False, True):
        with Model(so, device="cuda", cuda_graphs=graphs) as model:
            inputs = random_inputs(model, 0)
            first = model.run(inputs)
            call, outputs = model.bind(inputs)
            for _ in range(50):
                call()
            model.synchronize()
            free, resident = cuda.free_memory(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            for _ in range(calls):
                if call():
                    return f"a call failed: {model.last_error()}"
            model.synchronize()
            lost, grown = free - cuda.free_memory(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident
            if lost > LOST or grown > 8192:
                return f"{calls} calls (graphs: {graphs}) took {lost} bytes of the GPU and {grown} KiB of the host"
            if not same(first, outputs):
                return f"the last call (graphs: {graphs}) differs from the first"
    return ""


def graphs_give_the_same(cuda: Cuda, so: str, calls: int) -> str:
    results = []
    for graphs in (False, True):
        with Model(so, device="cuda", cuda_graphs=graphs) as model:
            results.append([model.run(random_inputs(model, seed)) for seed in (0, 1, 0, 2)])
    return "" if all(same(a, b) for a, b in zip(*results)) else "a graph's results differ from those of launches"


def two_threads(cuda: Cuda, so: str, calls: int) -> str:
    with Model(so, device="cuda") as model:
        wanted = [model.run(random_inputs(model, seed)) for seed in (1, 2)]
    problems: list[str] = []

    def work(seed: int) -> None:
        try:
            with Model(so, device="cuda", stream=cuda.stream(), cuda_graphs=seed == 2) as model:
                inputs = random_inputs(model, seed)
                for _ in range(min(calls, 300)):
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


def sanitized(so: str, tool: str) -> str:
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    code = "import sys; sys.argv = sys.argv[1:]; import steady; m = steady.Model(sys.argv[0], device='cuda'); m.run(steady.random_inputs(m, 0)); m.close()"
    command = [program, "--tool", tool, "--error-exitcode", "9", sys.executable, "-c", code, so]
    p = subprocess.run(command, capture_output=True, text=True, cwd=HERE, timeout=300)
    return "" if p.returncode == 0 else f"{tool}: {(p.stdout + p.stderr)[-600:]}"


CHECKS: list[Callable[[Cuda, str, int], str]] = [graphs_give_the_same, two_threads, no_memory_is_lost]


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+")
    p.add_argument("--calls", type=int, default=10000)
    p.add_argument("--sanitizer", default="", help=f"tools of compute-sanitizer, of {', '.join(SANITIZERS)}")
    args = p.parse_args()
    cuda = Cuda()
    passed = failed = 0
    for so in args.models:
        so = str(Path(so).resolve())
        results = [(f.__name__, f(cuda, so, args.calls)) for f in CHECKS]
        results += [(tool, sanitized(so, tool)) for tool in args.sanitizer.split(",") if tool]
        for name, problem in results:
            passed, failed = passed + (not problem), failed + bool(problem)
            if problem:
                print(f"{Path(so).name}: {name}: {problem}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
