#!/usr/bin/env python3
"""Conformance cases that are compiled on one machine and run on another, which needs Python and numpy only.

`tests/ops/run.py --target cuda --compile-only DIR` fills DIR (again and again, if wanted: cases are added):
  index.json         a list of what `Result` says of every case and mode, with its tolerances
  MODE/CASE.so       what was compiled
  data/CASE.npz      SET_in_K and SET_out_K; bits and `@TYPE` for types that numpy has not
  *.py, tripod/, known_failures*.txt   what runs it there
Then, on the machine with the GPU: python3 DIR/packed.py [-j JOBS] [--json FILE] [--ignore-list] [-v]
"""
from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import os
import select
import shutil
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]
import tripod  # noqa: E402
from results import SEVERITY, Result, Suite, compare, judge, read_list, show  # noqa: E402
from tripod.capi import API_VERSION, DTYPES  # noqa: E402

MODES = ("published", "stripped")
TIMEOUT = 60.0  # seconds for one case
CHUNK = 24      # cases that one process runs, unless one of them fails


def suite_of(folder: Path, target: str) -> Suite:
    """The suite whose lists lie in `folder`."""
    differs = folder / f"known_failures_{target}.txt" if target != "cpu" else None
    return Suite(f"ops on {target}", MODES, folder / "known_failures.txt", None, differs)


# --- where the compiler is ---

def pack_values(path: Path, sets: list[tuple[list[np.ndarray], list[np.ndarray]]]) -> None:
    """Writes the inputs and outputs of a case's data sets."""
    arrays = {}
    for n, (inputs, outputs) in enumerate(sets):
        for what, values in (("in", inputs), ("out", outputs)):
            for k, a in enumerate(values):
                key = f"{n}_{what}_{k}"
                if a.dtype.isbuiltin != 1:  # of ml_dtypes
                    key, a = f"{key}@{a.dtype.name}", np.ascontiguousarray(a).view(f"u{a.dtype.itemsize}").reshape(a.shape)
                arrays[key] = a
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)


def finish_pack(folder: Path, entries: list[dict[str, Any]], target: str) -> None:
    """Adds `entries` to the index, and puts what runs the cases into `folder`."""
    index = folder / "index.json"
    before = json.loads(index.read_text()) if index.exists() else {"api": API_VERSION, "entries": []}
    if before["api"] != API_VERSION:
        raise RuntimeError(f"{folder} has files of another version of the Tripod API: remove it first")
    old = before["entries"]
    all_ = {(e["case"], e["mode"]): e for e in [*old, *entries]}
    index.write_text(json.dumps({"target": target, "api": API_VERSION, "entries": [all_[key] for key in sorted(all_)]}, indent=0))
    for file in [HERE / "packed.py", HERE / "results.py", *HERE.glob("known_failures*.txt")]:
        shutil.copy(file, folder)
    shutil.copytree(HERE.parents[1] / "python" / "tripod", folder / "tripod", dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("__pycache__"))


# --- where it runs ---

def unpack_values(path: Path) -> list[tuple[list[np.ndarray], list[np.ndarray]]]:
    """What pack_values wrote."""
    names = {getattr(t, "name", ""): t for t in DTYPES} | {t.names[0]: t for t in DTYPES if t.names}
    found: dict[tuple[int, str], dict[int, np.ndarray]] = collections.defaultdict(dict)
    with np.load(path) as file:
        for key in file.files:
            place, _, dtype = key.partition("@")
            n, what, k = place.split("_")
            found[int(n), what][int(k)] = file[key].view(names[dtype]) if dtype else file[key]
    sets = sorted({n for n, _ in found})
    return [tuple([found[n, what][k] for k in sorted(found[n, what])] for what in ("in", "out")) for n in sets]  # type: ignore


def run_values(so: Path, values: Path, rtol: float, atol: float) -> str:
    """"" when the model's outputs are as stored."""
    with tripod.Model(str(so), threads=1) as model:
        for inputs, wanted in unpack_values(values):
            try:
                outputs = model.run(inputs)
            except tripod.TripodError as e:
                return f"run failed ({e.status}): {e}"
            if len(outputs) != len(wanted):
                return f"{len(outputs)} outputs, wanted {len(wanted)}"
            for k, (g, w) in enumerate(zip(outputs, wanted)):
                if difference := compare(g, w, rtol, atol):
                    return f"output {k}: {difference}"
    return ""


def _child(folder: Path, entries: list[dict[str, Any]], pipe: int) -> None:
    """Runs `entries` until one fails (it may have left the GPU unusable for this process); a line of JSON for each."""
    for e in entries:
        start = time.monotonic()
        try:
            message = run_values(folder / e["mode"] / f"{e['case']}.so", folder / "data" / f"{e['case']}.npz", e["rtol"], e["atol"])
        except Exception as problem:
            message = f"run failed: {problem!r}"
        os.write(pipe, (json.dumps([message[:1000], time.monotonic() - start]) + "\n").encode())
        if message:
            break
    os._exit(0)


def _lines(pid: int, pipe: int) -> tuple[list[Any], str]:
    """What a child wrote, and how it ended if not well."""
    text, deadline = b"", time.monotonic() + TIMEOUT
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            break
        chunk = os.read(pipe, 1 << 16)
        if not chunk:
            break
        text, deadline = text + chunk, time.monotonic() + TIMEOUT
    os.close(pipe)
    _, status = os.waitpid(pid, 0)
    lines = [json.loads(line) for line in text.decode().splitlines()]
    if time.monotonic() >= deadline:
        return lines, f"timeout: the run took over {TIMEOUT:g} s"
    return lines, f"crash: the run ended with signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else ""


def run_chunk(task: tuple[Path, list[dict[str, Any]]]) -> list[Result]:
    """Runs these cases in child processes: a new one after each failure."""
    folder, entries = task
    results: list[Result] = []
    while len(results) < len(entries):
        rest = entries[len(results):]
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            _child(folder, rest, write)
        os.close(write)
        lines, end = _lines(pid, read)
        for e, (message, seconds) in zip(rest, lines):
            results.append(Result(e["case"], e["mode"], "wrong" if message else "pass", message, e["compile_s"], seconds))
        if len(lines) < len(rest) and not (lines and lines[-1][0]):
            status, _, message = (end or "crash: the process ended").partition(": ")
            e = rest[len(lines)]
            results.append(Result(e["case"], e["mode"], status, message, e["compile_s"], 0.0))
    return results


def run_packed(folder: Path, jobs: int, ignore_list: bool, verbose: bool, report: Path | None) -> int:
    """Runs all of `folder` and holds it to the lists there; the exit code."""
    index = json.loads((folder / "index.json").read_text())
    known = {} if ignore_list else read_list(suite_of(folder, index["target"]))
    fields = ("case", "mode", "status", "message", "compile_s", "run_s")
    results = [Result(**{f: e[f] for f in fields}) for e in index["entries"] if e["status"] != "pass"]
    runnable = [e for e in index["entries"] if e["status"] == "pass"]
    start = time.monotonic()
    tasks = [(folder, runnable[i:i + CHUNK]) for i in range(0, len(runnable), CHUNK)]
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for some in pool.imap_unordered(run_chunk, tasks):
            results += some
    unexpected = [(r, problem) for r in results if (problem := judge(r, known.get((r.case, r.mode))))]
    for r, problem in sorted(unexpected, key=lambda x: (x[0].case, x[0].mode)):
        print(show(r, problem))
    if verbose:
        print("\n".join(show(r, "") for r in results))
    if report:
        report.write_text(json.dumps([asdict(r) for r in sorted(results, key=lambda r: (r.case, r.mode))], indent=1))
    counts = collections.Counter(r.status for r in results)
    print(f"ops on {index['target']}: {', '.join(f'{n} {s}' for s, n in sorted(counts.items()))} in {time.monotonic() - start:.0f} s")
    bad = {id(r) for r, _ in unexpected}
    passed = sum(r.status == "pass" and id(r) not in bad for r in results)
    listed = sum(SEVERITY[r.status] > 0 and id(r) not in bad for r in results)
    print(f"{passed} passed, {len(unexpected)} failed, {listed} listed")
    return 1 if unexpected else 0


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", nargs="?", type=Path, default=HERE)
    p.add_argument("-j", "--jobs", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--json", type=Path, metavar="FILE", help="write every result there")
    p.add_argument("--ignore-list", action="store_true", help="report every case that does not pass")
    p.add_argument("-v", "--verbose", action="store_true", help="print every result")
    args = p.parse_args()
    return run_packed(args.folder, args.jobs, args.ignore_list, args.verbose, args.json)


if __name__ == "__main__":
    sys.exit(main())
