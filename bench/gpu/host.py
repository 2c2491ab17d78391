#!/usr/bin/env python3
"""Host time of a launch: how long a call of a model on a GPU keeps the calling thread, over the kernels that it launches.

usage: bench/gpu/host.py MODEL.so... [--dim NAME=N]     on the GPU machine (torch)

Inputs and outputs are on the GPU, and the GPU is idle when a call begins, so that nothing waits for room in its queue.
Once with launches one by one, once with the context's own CUDA graphs. The call through ctypes is in the figures (its own
time, of a function that does nothing, is printed). Bound: 3 us a launch.
"""
from __future__ import annotations

import argparse
import ctypes
import sys
import time
from pathlib import Path
from typing import Any, Callable

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]

CALLS = 300


def median_host_seconds(call: Callable[[], Any], wait: Callable[[], Any]) -> float:
    times = []
    for _ in range(CALLS):
        wait()
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    wait()
    return sorted(times[CALLS // 10:])[(CALLS - CALLS // 10) // 2] * 1e-9


def measure(so: Path, dims: dict[str, int], stream: Any) -> str:
    import torch
    from device_model import DeviceModel

    types = {"f32": torch.float32, "f16": torch.float16, "i64": torch.int64, "i32": torch.int32}
    figures, launches = [], 0
    for graphs in (False, True):
        m = DeviceModel(str(so), stream, cuda_graphs=graphs)
        manifest = m.model.describe()
        launches = sum("kernel" in step for step in manifest["steps"])
        inputs = []
        for i in manifest["inputs"]:
            shape = [d if isinstance(d, int) else dims[d] for d in i["shape"]]
            inputs.append(torch.zeros(shape, dtype=types[i["dtype"]], device="cuda"))
        # Shapes of outputs may be expressions: the constants of the model decide, or --dim.
        outputs = [torch.empty([d if isinstance(d, int) else dims[d] for d in o["shape"]], dtype=types[o["dtype"]], device="cuda")
                   for o in manifest["outputs"]]
        call = m.call(inputs, outputs)
        torch.cuda.synchronize()
        for _ in range(10):
            call()
        figures.append(median_host_seconds(call, torch.cuda.synchronize))
        torch.cuda.synchronize()
        m.model.close()
    plain, graph = figures
    return (f"| {so.stem} | {launches} | {plain * 1e6:.1f} | {plain * 1e6 / launches:.2f} | {graph * 1e6:.1f} | "
            f"{graph * 1e6 / launches:.2f} |")


def main() -> int:
    import torch

    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+", type=Path)
    p.add_argument("--dim", action="append", default=[], metavar="NAME=N")
    args = p.parse_args()
    dims = {name: int(n) for name, n in (d.split("=") for d in args.dim)}
    nothing, value = ctypes.CDLL(None).abs, ctypes.c_int(1)
    print(f"{torch.cuda.get_device_name()}; a call through ctypes {median_host_seconds(lambda: nothing(value), lambda: None) * 1e6:.2f} us\n")
    print("| model | launches | call us | us a launch | with CUDA graphs, call us | us a launch |\n|---|---|---|---|---|---|")
    stream, failed = torch.cuda.Stream(), 0
    for so in args.models:
        try:
            print(measure(so, dims, stream), flush=True)
        except Exception as e:  # noqa: BLE001  one model that fails must not end the others
            failed += 1
            print(f"| {so.stem} | {type(e).__name__}: {' '.join(str(e).split())[:160]} |", flush=True)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
