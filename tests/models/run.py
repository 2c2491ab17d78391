#!/usr/bin/env python3
"""Compares compiled real models with ONNX Runtime on real inputs, at five sizes each where dims are free.

For every float output: error = max |tripod - ort| / range of the output, at most 1e-5, or twice the difference
between ONNX Runtime's own optimised and unoptimised runs where that is larger. Integer outputs and shapes are exact,
and the text, label or decision is the same. Also noted: compile time and memory, size of the .so.

With --target cuda the bound is 1e-4, as sums over many threads have other orders; cuda-f16 and cuda-tf32 are that target
with --precision, and bounds of 2e-2 and 1e-2.

known_failures.txt lists `model  reason` for those not supported yet; a listed model that passes is an error.

usage: tests/models/run.py [MODEL...] [--threads N] [--report FILE.md] [--json FILE] [--reuse]
Ends with "N passed, N failed, N listed" (models).
"""
from __future__ import annotations

import argparse
import dataclasses
import json
import pickle
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / d) for d in ("python", "tests", "scripts", "tests/models")]
import make_models  # noqa: E402
import models  # noqa: E402
import tripod  # noqa: E402
from decisions import decision  # noqa: E402
from harness import COMPILER, compile_model, in_child  # noqa: E402
from inputs import CASES, Case  # noqa: E402

LIST = Path(__file__).resolve().with_name("known_failures.txt")
WORK = ROOT / "build" / "models"
BOUND = 1e-5
# What a compile for a target is told besides, and its bound. The GPU code is for the machine that the tests run on.
CUDA = ["--target=cuda", "--arch=sm_90a", f"--cache={ROOT / 'build' / 'cuda-cache'}"]
TARGETS: dict[str, tuple[list[str], float]] = {
    "cpu": ([], BOUND), "cuda": (CUDA, 1e-4), "cuda-f16": ([*CUDA, "--precision=f16"], 2e-2),
    "cuda-tf32": ([*CUDA, "--precision=tf32"], 1e-2)}
# Exports of one network: on the same first step they give the same probability (silero_vad_half is another network).
ONE_NET = ["silero_vad", "silero_vad_16k_op15", "silero_vad_16k_sequence", "silero_vad_op18_ifless",
           "silero_vad_openvino_16k"]


@dataclass
class Run:
    """One size of one model: its largest relative error, what was allowed, what went wrong ("" if nothing)."""

    label: str
    error: float = 0.0
    bound: float = BOUND
    problem: str = ""
    decision: str = ""
    milliseconds: float = 0.0


@dataclass
class Result:
    model: str
    status: str = "pass"
    message: str = ""
    compile_s: float = 0.0
    compile_mb: float = 0.0
    so_mb: float = 0.0
    runs: list[Run] = field(default_factory=list)


def scale_of(reference: np.ndarray) -> float:
    """The range that an error is relative to: max - min, or the largest magnitude for a handful of values."""
    finite = reference[np.isfinite(reference)].astype(np.float64)
    if finite.size == 0:
        return 1.0
    spread = float(np.ptp(finite))
    return max(spread, float(np.abs(finite).max()) if finite.size <= 8 else 0.0) or 1.0


def error_of(got: np.ndarray, want: np.ndarray) -> float:
    """max |got - want| relative to the range of `want`; inf where one is NaN or infinite and the other is not."""
    if got.size == 0:
        return 0.0
    with np.errstate(invalid="ignore"):
        difference = np.abs(got.astype(np.float64) - want.astype(np.float64))
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    difference = np.where(same, 0.0, np.where(np.isfinite(difference), difference, np.inf))
    return float(difference.max()) / scale_of(want)


def session(path: Path, optimise: bool, threads: int) -> Any:
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, threads
    if not optimise:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def references(path: Path, cases: list[Case], threads: int) -> tuple[list[list[np.ndarray]], list[list[np.ndarray]]]:
    """ONNX Runtime's outputs for each case: optimised, unoptimised."""
    both = []
    for optimise in (True, False):
        s = session(path, optimise, threads)
        both.append([s.run(None, c.inputs) for c in cases])
        del s
    return both[0], both[1]


def input_names(path: Path) -> list[str]:
    """The graph inputs that are not initializers, in order: how a model.so takes them."""
    graph = onnx.load(path, load_external_data=False).graph
    initial = {t.name for t in graph.initializer}
    return [v.name for v in graph.input if v.name not in initial]


def run_tripod(so: Path, order: list[str], cases: list[Case], threads: int, timeout: float) -> tuple[str, str, list[Any]]:
    """Runs every case through `so` in a child: (status, message, [(outputs, ms) or an error text] per case)."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "outputs"

        def work() -> str:
            results: list[Any] = []
            with tripod.Model(str(so), threads=threads) as model:
                for case in cases:
                    arrays = [np.asarray(case.inputs[n], order="C") for n in order]
                    try:
                        model.run(arrays)
                        start = time.perf_counter()
                        outputs = model.run(arrays)  # the second run must give what the first gave
                        results.append((outputs, (time.perf_counter() - start) * 1e3))
                    except tripod.TripodError as e:
                        results.append(f"run failed ({e.status}): {e}")
            file.write_bytes(pickle.dumps(results, protocol=5))
            return ""

        status, message = in_child(work, timeout)
        return status, message, pickle.loads(file.read_bytes()) if status == "pass" else []


def judge(run: Run, got: list[np.ndarray], want: list[np.ndarray], plain: list[np.ndarray], model: str,
          least: float = BOUND) -> None:
    """Fills `run` from Tripod's outputs, ONNX Runtime's, and its unoptimised ones."""
    if len(got) != len(want):
        run.problem = f"{len(got)} outputs, wanted {len(want)}"
        return
    for k, (g, w, p) in enumerate(zip(got, want, plain)):
        if g.shape != w.shape or g.dtype != w.dtype:
            run.problem = f"output {k}: {g.dtype}{list(g.shape)}, wanted {w.dtype}{list(w.shape)}"
            return
        if w.dtype.kind != "f":
            if not np.array_equal(g, w):
                run.problem = f"output {k}: {int((g != w).sum())} of {w.size} integers differ"
            continue
        bound = max(least, 2 * error_of(p, w)) if p.shape == w.shape else least
        error = error_of(g, w)
        if error / bound >= run.error / run.bound:
            run.error, run.bound = error, bound
        if error > bound:
            run.problem = f"output {k}: error {error:.1e} of the range, allowed {bound:.1e}"
    run.decision = decision(model, got)
    if run.decision != decision(model, want):
        run.problem = run.problem or f"decides '{run.decision[:60]}', wanted '{decision(model, want)[:60]}'"


def check(name: str, args: argparse.Namespace) -> tuple[Result, list[Any]]:
    """Compiles and compares one model; gives its Result and Tripod's raw outputs."""
    result, path = Result(name), models.CACHE / f"{name}.onnx"
    so = WORK / (f"{name}.so" if args.target == "cpu" else f"{name}.{args.target}.so")
    target_args, bound = TARGETS[args.target]
    if not (args.reuse and so.exists()):
        so.unlink(missing_ok=True)
        c = compile_model(args.compiler, path, so, target_args + args.compile_arg, args.timeout)
        result.status, result.message, result.compile_s, result.compile_mb = c.status, c.message, c.seconds, c.peak_mb
        if c.status != "pass":
            return result, []
    result.so_mb = so.stat().st_size / 1e6
    cases = CASES[name]()
    if args.sizes:
        cases = cases[:args.sizes]
    status, message, got = run_tripod(so, input_names(path), cases, args.threads, args.timeout)
    if status != "pass":
        result.status, result.message = status, message
        return result, []
    fast, plain = references(path, cases, 2)
    for case, g, w, p in zip(cases, got, fast, plain):
        run = Run(case.label, bound=bound)
        if isinstance(g, str):
            run.problem = g
        else:
            run.milliseconds = g[1]
            judge(run, g[0], w, p, name, bound)
        result.runs.append(run)
    problems = [f"{r.label}: {r.problem}" for r in result.runs if r.problem]
    if problems:
        result.status, result.message = "wrong", f"{len(problems)} of {len(cases)} sizes; {problems[0]}"
    return result, got


def read_list() -> dict[str, str]:
    """model -> reason."""
    if not LIST.exists():
        return {}
    lines = [line for line in LIST.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return {name: reason.strip() for name, _, reason in (line.partition("  ") for line in lines)}


def table(results: list[Result]) -> str:
    """The results as a markdown table, one row a model."""
    rows = ["| model | result | worst error / allowed | sizes | compile s | compiler MB | .so MB |",
            "|---|---|---|---|---|---|---|"]
    for r in results:
        worst = max(r.runs, key=lambda x: x.error / x.bound, default=None)
        error = f"{worst.error:.1e} / {worst.bound:.1e} ({worst.label})" if worst else ""
        good = sum(1 for x in r.runs if not x.problem)
        text = r.status if r.status == "pass" else f"{r.status}: {r.message[:90]}".replace("|", "\\|")
        rows.append(f"| {r.model} | {text} | {error} | {good}/{len(r.runs)} | {r.compile_s:.1f} | {r.compile_mb:.0f} | {r.so_mb:.1f} |")
    return "\n".join(rows) + "\n"


def one_answer(first: dict[str, list[Any]]) -> str:
    """"" when the exports of one network agree on the first step, else what differs."""
    values = {n: float(first[n][0][0][0].reshape(-1)[0]) for n in ONE_NET
              if first.get(n) and not isinstance(first[n][0], str)}
    if values and max(values.values()) - min(values.values()) > 1e-5:
        return f"the exports of one network differ: {values}"
    return ""


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", help=f"models (default all): {' '.join(CASES)}")
    p.add_argument("--threads", type=int, default=2, help="threads of the compiled model (default 2)")
    p.add_argument("--sizes", type=int, help="only the first N sizes of each model")
    p.add_argument("--compiler", default=str(COMPILER))
    p.add_argument("--target", choices=TARGETS, default="cpu")
    p.add_argument("--compile-arg", action="append", default=[], metavar="ARG", help="passed on to tripod compile")
    p.add_argument("--timeout", type=float, default=180.0, help="seconds for one compile, and for a model's runs")
    p.add_argument("--reuse", action="store_true", help="take build/models/NAME.so where it exists")
    p.add_argument("--ignore-list", action="store_true", help="report every model that does not pass")
    p.add_argument("--report", type=Path, metavar="FILE", help="write the markdown table there")
    p.add_argument("--json", type=Path, metavar="FILE", default=WORK / "results.json")
    p.add_argument("-v", "--verbose", action="store_true", help="print every size")
    return p.parse_args()


def main() -> int:
    args = parse()
    unknown = set(args.names) - set(CASES)
    if unknown:
        print(f"models: no model is called {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    names = [n for n in CASES if not args.names or n in args.names]
    if not Path(args.compiler).exists():
        print("models: no compiler at build/bin/tripod: run scripts/build.sh first", file=sys.stderr)
        return 2
    models.fetch([s for s in models.SOURCES if s.name in [*names, "magika_config"]])
    make_models.make([n for n in names if n in make_models.NAMES])
    WORK.mkdir(parents=True, exist_ok=True)
    known = {} if args.ignore_list else read_list()
    results: list[Result] = []
    first: dict[str, list[Any]] = {}
    failed = listed = 0
    for name in names:
        result, first[name] = check(name, args)
        results.append(result)
        good = result.status == "pass"
        bad = good == (name in known)
        failed, listed = failed + bad, listed + (not good and not bad)
        note = "passes: remove it from known_failures.txt" if good and bad else result.status if good else \
            f"{result.status}: {result.message}" + ("" if bad else " (listed)")
        print(f"{name}: {note} [{result.compile_s:.1f} s, {result.compile_mb:.0f} MB to compile]", flush=True)
        for r in result.runs:
            if args.verbose or (r.problem and bad):
                print(f"    {r.label}: {r.problem or 'good'}; error {r.error:.1e}, allowed {r.bound:.1e}, "
                      f"{r.milliseconds:.2f} ms; {r.decision[:80]}")
    difference = one_answer(first)
    if difference:
        print(difference)
        failed += 1
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps([dataclasses.asdict(r) for r in results], indent=1))
    if args.report:
        args.report.write_text(table(results))
    passed = sum(r.status == "pass" and r.model not in known for r in results)
    print(f"{passed} passed, {failed} failed, {listed} listed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
