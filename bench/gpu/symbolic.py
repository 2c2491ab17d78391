#!/usr/bin/env python3
"""One artifact with a free batch or length beside its own static builds, at 12 sizes each with primes among them.

usage: bench/gpu/symbolic.py prepare DIR [NAME...] [--jobs N]   compiles (needs onnx, nvcc; no GPU)
       bench/gpu/symbolic.py measure DIR [NAME...]              on the GPU machine (torch, numpy): a table for each

Kernels (f16) run under a CUDA graph over tensors of more than 512 MB, as in run.py; whole models (exported in f32, compiled
with --precision=f16) under a graph of one call. Both files take the same tensors; replays interleaved, median of 50. The
outputs of the two are compared too. Ends with the geometric mean and the worst of symbolic / static.
"""
from __future__ import annotations

import argparse
import math
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "python"), str(ROOT / "scripts")]
from run import MOST_SETS, WORKING_SET, graph_of, medians  # noqa: E402

TOLERANCE = 2e-2      # of the output's range, between the two files
GEOMEAN, WORST = 1.05, 1.15

ROWS = [1, 17, 128, 509, 1024, 4096, 8191, 16384, 32749, 65536, 100003, 131072]
LENGTHS = [16, 31, 64, 97, 128, 191, 256, 307, 384, 400, 509, 512]


def f16(*shape: int, scale: float = 1.0) -> Any:
    """A constant, the same everywhere."""
    import numpy as np

    return (np.random.default_rng(1).standard_normal(shape, np.float32) * scale).astype(np.float16)


@dataclass
class Kernel:
    """One operator or few: x of `shape`, in which "n" is free; `nodes` make y of `result` from it and the constants."""

    shape: list[Any]
    result: list[Any]
    sizes: list[int]
    nodes: list[tuple[str, str, str, dict[str, Any]]]
    constants: Callable[[], dict[str, Any]] = dict
    options: list[str] = field(default_factory=list)

    def onnx(self, path: Path) -> None:
        from onnx import TensorProto, helper, numpy_helper, save

        value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape)  # noqa: E731
        body = [helper.make_node(op, i.split(), o.split(), name=f"{op.lower()}_{k}", **a) for k, (op, i, o, a) in enumerate(self.nodes)]
        graph = helper.make_graph(body, "bench", [value("x", self.shape)], [value("y", self.result)],
                                  [numpy_helper.from_array(a, name) for name, a in self.constants().items()])
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)

    def tensors(self, n: int) -> list[tuple[list[Any], list[Any]]]:
        """Inputs and outputs of as many calls as touch WORKING_SET."""
        import torch

        sizes = [[n if d == "n" else d for d in s] for s in (self.shape, self.result)]
        fixed = sum(a.nbytes for a in self.constants().values())
        calls = min(MOST_SETS, max(1, -(-WORKING_SET // (2 * sum(map(math.prod, sizes)) + fixed))))
        make = lambda s, f: f(s, device="cuda", dtype=torch.float16)  # noqa: E731
        return [([make(sizes[0], torch.randn)], [make(sizes[1], torch.empty)]) for _ in range(calls)]


@dataclass
class Network:
    """A model of scripts/model_zoo, in which the dim `free` stays free."""

    build: str
    free: str
    sizes: list[int]
    inputs: Callable[[int], list[Any]]
    outputs: Callable[[int], list[list[int]]]
    options: list[str]

    def onnx(self, path: Path) -> None:
        from model_zoo import convnets, transformers

        made = (convnets.resnet50 if self.build == "resnet50" else transformers.bert_base)()
        path.write_bytes(made.SerializeToString())

    def tensors(self, n: int) -> list[tuple[list[Any], list[Any]]]:
        import torch

        return [([t.cuda() for t in self.inputs(n)], [torch.empty(s, device="cuda") for s in self.outputs(n)])]


def images(n: int) -> list[Any]:
    import torch

    return [torch.randn(n, 3, 224, 224)]


def tokens(n: int) -> list[Any]:
    import torch

    return [torch.randint(0, 30522, (1, n)), torch.ones(1, n, dtype=torch.int64), torch.zeros(1, n, dtype=torch.int64)]


CASES: dict[str, Kernel | Network] = {
    "gemm": Kernel(["n", 2048], ["n", 2048], [1, 13, 32, 64, 127, 256, 509, 1000, 1021, 2048, 4093, 8192],
                   [("MatMul", "x w", "p", {}), ("Add", "p b", "y", {})], lambda: {"w": f16(2048, 2048, scale=2048 ** -0.5), "b": f16(2048)}),
    "softmax_rows": Kernel(["n", 1024], ["n", 1024], ROWS, [("Softmax", "x", "y", {"axis": -1})]),
    "softmax_length": Kernel([4096, "n"], [4096, "n"], [64, 101, 128, 509, 512, 1000, 1021, 1024, 2048, 4093, 4096, 8192],
                             [("Softmax", "x", "y", {"axis": -1})]),
    "layer_norm": Kernel(["n", 768], ["n", 768], ROWS, [("LayerNormalization", "x w b", "y", {"axis": -1})],
                         lambda: {"w": f16(768), "b": f16(768)}),
    "conv": Kernel(["n", 56, 56, 64], ["n", 56, 56, 64], [1, 2, 3, 5, 7, 8, 11, 16, 23, 32, 47, 64],
                   [("Transpose", "x", "t", {"perm": [0, 3, 1, 2]}), ("Conv", "t w b", "c", {"pads": [1] * 4}), ("Relu", "c", "r", {}),
                    ("Transpose", "r", "y", {"perm": [0, 2, 3, 1]})], lambda: {"w": f16(64, 64, 3, 3, scale=1 / 24), "b": f16(64)}),
    "elementwise": Kernel(["n"], ["n"], [4099, 65536, 131071, 1 << 20, 1299709, 4194301, 1 << 22, 15485863, 1 << 24, 32452843, 1 << 26, 86028121],
                          [("Mul", "x x", "s", {}), ("Relu", "s", "r", {}), ("Add", "r x", "y", {})]),
    "bert": Network("bert_base", "sequence", LENGTHS, tokens, lambda n: [[1, n, 768], [1, 768]], ["--dim", "batch=1", "--precision=f16"]),
    "resnet50": Network("resnet50", "batch", [1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 23, 32], images, lambda n: [[n, 1000]],
                        ["--dim", "height=224", "--dim", "width=224", "--precision=f16"]),
}


# --- compiling ------------------------------------------------------------------------------------------------------

def prepare(folder: Path, names: list[str], tripod: str, jobs: int) -> int:
    """DIR/NAME/free.so and DIR/NAME/SIZE.so; how many did not compile."""
    work = []
    for name in names:
        case, place = CASES[name], folder / name
        place.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        case.onnx(place / "model.onnx")
        print(f"{name}: ONNX in {time.monotonic() - start:.1f} s", flush=True)
        free = case.free if isinstance(case, Network) else "n"
        work += [(place, "free", case.options)] + [(place, str(n), [*case.options, "--dim", f"{free}={n}"]) for n in case.sizes]

    def compile_one(task: tuple[Path, str, list[str]]) -> bool:
        place, so, options = task
        start = time.monotonic()
        r = subprocess.run([tripod, "compile", str(place / "model.onnx"), "--target=cuda", "--arch=sm_90a", "--cache", str(folder / "cache"),
                            *options, "-o", str(place / f"{so}.so")], capture_output=True, text=True)
        print(f"{place.name} {so}: {time.monotonic() - start:.1f} s {r.stderr.strip()[-300:] if r.returncode else ''}", flush=True)
        return r.returncode == 0

    with ThreadPoolExecutor(jobs) as pool:
        failed = sum(not good for good in pool.map(compile_one, work))
    for name in names:
        (folder / name / "model.onnx").unlink()
    return failed


# --- measuring ------------------------------------------------------------------------------------------------------

def error_between(a: list[Any], b: list[Any]) -> float:
    worst = 0.0
    for x, y in zip(a, b):
        x, y = x.float(), y.float()
        span = (y.max() - y.min()).item() or 1.0
        worst = max(worst, (x - y).abs().max().item() / span)
    return worst


def measure_size(case: Kernel | Network, files: list[Path], n: int, stream: Any) -> tuple[float, float, float]:
    """Seconds of a call of the free file and of the static one, and the difference between their results."""
    import torch
    from device_model import DeviceModel

    calls = case.tensors(n)
    torch.cuda.synchronize()
    graphs, results, models = [], [], []
    for file in files:  # a context of its own for each size: a graph holds addresses of its arena
        models.append(DeviceModel(str(file), stream))
        graphs.append(graph_of([models[-1].call(i, o) for i, o in calls], stream))
        for _, outputs in calls:
            for o in outputs:
                o.fill_(float("nan"))
        torch.cuda.synchronize()
        graphs[-1].replay()
        torch.cuda.synchronize()
        results.append([o.clone() for o in calls[-1][1]])
    t = medians(graphs, stream)
    for m in models:
        m.model.close()
    return t[0] / len(calls), t[1] / len(calls), error_between(*results)


def measure(folder: Path, names: list[str]) -> int:
    import torch

    stream, failed, everything = torch.cuda.Stream(), 0, []
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for name in names:
        case, ratios = CASES[name], []
        print(f"\n| {name} | free us | static us | free / static | difference |\n|---|---|---|---|---|")
        for n in case.sizes:
            try:
                free, static, error = measure_size(case, [folder / name / "free.so", folder / name / f"{n}.so"], n, stream)
            except Exception as e:  # noqa: BLE001  a figure that fails must not end the others
                print(f"| {n} | {type(e).__name__}: {' '.join(str(e).split())[:160]} |", flush=True)
                failed += 1
                continue
            wrong = not error <= TOLERANCE
            failed += wrong
            ratios.append(free / static)
            print(f"| {n} | {free * 1e6:.2f} | {static * 1e6:.2f} | {free / static:.3f} | {error:.1e}{' WRONG' if wrong else ''} |", flush=True)
            torch.cuda.empty_cache()
        everything += ratios
        if ratios:
            print(f"{name}: geomean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f}, worst {max(ratios):.3f}", flush=True)
    if everything:
        mean = math.exp(sum(map(math.log, everything)) / len(everything))
        print(f"\nall: geomean {mean:.3f} (bound {GEOMEAN}), worst {max(everything):.3f} (bound {WORST})")
    print(f"{failed} failed")
    return failed


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["prepare", "measure"])
    p.add_argument("folder", type=Path)
    p.add_argument("names", nargs="*", help=f"default all: {' '.join(CASES)}")
    p.add_argument("--tripod", default=str(ROOT / "build/bin/tripod"))
    p.add_argument("--jobs", type=int, default=4, help="compiles at a time")
    args = p.parse_args()
    names = args.names or list(CASES)
    return 1 if (prepare(args.folder, names, args.tripod, args.jobs) if args.what == "prepare" else measure(args.folder, names)) else 0


if __name__ == "__main__":
    sys.exit(main())
