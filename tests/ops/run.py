#!/usr/bin/env python3
"""Runs the 2033 conformance cases of ONNX against Tripod: compile each, run its .so, compare.

Each case runs as published and with the declared output shapes removed (mode `stripped`).
known_failures.txt lists what does not pass yet, `case  reason` a line (`case@stripped` when it fails in that mode
only). The list only shrinks: a listed case that passes is an error, and so is an unlisted one that does not, or a
listed refusal that has become a wrong answer or a crash. --update-list writes it anew from what ran.

examples: tests/ops/run.py -k conv              cases whose name contains "conv"
          tests/ops/run.py --op Resize -v       every case with a Resize, each result printed
          tests/ops/run.py --mode stripped -j 2
          tests/ops/run.py --target cuda --mode stripped            on a machine with a GPU
          tests/ops/run.py --target cuda --compile-only build/gpu   here; then there: python3 build/gpu/packed.py
Exit code 0 when nothing unexpected happened.
"""
from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import os
import sys
import time
import zlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Callable

sys.path.insert(0, str(Path(__file__).resolve().parent))
import data  # noqa: E402
import packed  # noqa: E402
from execute import Settings, guarded, pack_case, run_case  # noqa: E402
from results import SEVERITY, Result, Suite, judge, read_list, reason_of, show, write_list  # noqa: E402

# What a compile for a target is told besides; the GPU code is for the machine that the tests run on.
TARGETS = {"cpu": [], "cuda": ["--target=cuda", "--arch=sm_90a", f"--cache={data.ROOT / 'build' / 'cuda-cache'}"]}


def select(cases: list[data.Case], args: argparse.Namespace) -> list[data.Case]:
    """The cases that the command line asks for."""
    if args.names:
        cases = [c for c in cases if c.name in args.names]
    if args.k:
        cases = [c for c in cases if any(k.lower() in c.name.lower() for k in args.k)]
    if args.op:
        cases = [c for c in cases if set(args.op) & set(c.ops)]
    cases = [c for c in cases if not args.kind or c.kind in args.kind]
    return [c for c in cases if zlib.crc32(c.name.encode()) % args.every == 0]


_settings: Settings
_run_case: Callable[[Settings, data.Case, str], Result]


def _work(task: tuple[data.Case, str]) -> Result:
    return _run_case(_settings, *task)


def parse(suite: Suite, description: str) -> argparse.Namespace:
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", help="exact case names")
    p.add_argument("-k", action="append", metavar="TEXT", help="only cases whose name contains TEXT (repeatable: or)")
    p.add_argument("--op", action="append", help="only cases with a node of this op type (repeatable)")
    p.add_argument("--kind", action="append", help="node, simple, pytorch-converted, pytorch-operator or real")
    p.add_argument("--every", type=int, default=1, metavar="N", help="one case in N, always the same ones")
    p.add_argument("--mode", choices=[*suite.modes, "both"], default="both")
    p.add_argument("-j", "--jobs", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--threads", type=int, default=1, help="threads of a compiled model (default 1)")
    p.add_argument("--compiler", default=str(data.ROOT / "build" / "bin" / "tripod"))
    p.add_argument("--target", choices=TARGETS, default="cpu", help="cuda: known_failures_cuda.txt says what differs there")
    p.add_argument("--compile-only", type=Path, metavar="DIR", help="put the files and their data into DIR (packed.py)")
    p.add_argument("--run-only", type=Path, metavar="DIR", help="run what lies in DIR")
    p.add_argument("--compile-arg", action="append", default=[], metavar="ARG", help="passed on to tripod compile")
    p.add_argument("--timeout", type=float, default=60.0, help="seconds for one compile; half of it for a run")
    p.add_argument("--no-guard", action="store_true", help="buffers of a run without unreadable pages around them")
    p.add_argument("--update-list", action="store_true", help="write the list of known failures from what ran")
    p.add_argument("--ignore-list", action="store_true", help="report every case that does not pass")
    p.add_argument("--keep", type=Path, metavar="DIR", help="keep the .so files under DIR/MODE")
    p.add_argument("--json", type=Path, metavar="FILE", help="write every result there")
    p.add_argument("--summary", action="store_true", help="also count the reasons of what does not pass")
    p.add_argument("-v", "--verbose", action="store_true", help="print every result")
    return p.parse_args()


def update_list(suite: Suite, known: dict[tuple[str, str], str], results: list[Result], cases: dict[str, data.Case]) -> None:
    """Writes the list: what ran as it came out, the rest as it was; names that are no case any more go."""
    for r in results:
        known.pop((r.case, r.mode), None)
        if SEVERITY[r.status]:
            known[r.case, r.mode] = reason_of(cases[r.case], r)
    write_list(suite, {key: reason for key, reason in known.items() if key[0] in cases})


def run_suite(suite: Suite, description: str) -> int:
    """The program: parses the command line, runs, reports; gives the exit code."""
    global _settings, _run_case
    args = parse(suite, description)
    if args.run_only:
        return packed.run_packed(args.run_only, args.jobs, args.ignore_list, args.verbose, args.json)
    if args.target != "cpu":  # the driver's own memory cannot be guarded
        args.no_guard = True
        suite = replace(suite, differs=suite.list.with_stem(f"{suite.list.stem}_{args.target}"))
    if args.compile_only:
        suite, args.keep = replace(suite, run_case=pack_case), args.compile_only
    everything = data.prepare()
    cases = select(everything, args)
    if not cases:
        print(f"{suite.name}: no case matches", file=sys.stderr)
        return 2
    if not Path(args.compiler).exists():
        print(f"{suite.name}: no compiler at {os.path.relpath(args.compiler)}: run scripts/build.sh first", file=sys.stderr)
        return 2
    if not args.no_guard and not guarded.active():
        os.execve(sys.executable, [sys.executable, *sys.argv], guarded.environment())
    _settings = Settings(args.compiler, TARGETS[args.target] + args.compile_arg, args.threads, args.timeout,
                         args.timeout / 2, args.keep, not args.no_guard)
    _run_case = suite.run_case
    modes = suite.modes if args.mode == "both" else (args.mode,)
    by_name = {c.name: c for c in everything}
    known = {} if args.ignore_list else read_list(suite)
    tasks = [(c, m) for c in cases for m in modes]

    start, results, unexpected = time.monotonic(), [], []
    with multiprocessing.get_context("fork").Pool(args.jobs) as pool:
        for r in pool.imap_unordered(_work, tasks, chunksize=4):
            results.append(r)
            compiled = args.compile_only and r.status == "pass"  # nothing is known of its values yet
            problem = "" if args.update_list or compiled else judge(r, known.get((r.case, r.mode)))
            if problem:
                unexpected.append(r)
            if args.verbose or problem:
                print(show(r, problem), flush=True)
            if sys.stderr.isatty() and len(results) % 20 == 0:
                print(f"\r{len(results)}/{len(tasks)}", end="\r", file=sys.stderr, flush=True)

    if args.compile_only:
        entries = [{**asdict(r), "rtol": by_name[r.case].rtol, "atol": by_name[r.case].atol} for r in results]
        packed.finish_pack(args.compile_only, entries, args.target)
    if args.update_list:
        update_list(suite, known, results, by_name)
    stale = [] if args.update_list else sorted({c for c, _ in known} - set(by_name))
    for case in stale:
        print(f"{case}: no such case: remove it from the list")
    if args.json:
        args.json.write_text(json.dumps([asdict(r) for r in sorted(results, key=lambda r: (r.case, r.mode))], indent=1))
    if args.summary:
        reasons = collections.Counter(reason_of(by_name[r.case], r)[:90] for r in results if SEVERITY[r.status])
        for reason, n in reasons.most_common(60):
            print(f"{n:5d}  {reason}")
    counts = collections.Counter(r.status for r in results)
    not_whole = {r.case for r in results if r.status != "pass"}
    print(f"{suite.name}: {', '.join(f'{n} {s}' for s, n in sorted(counts.items()))} in {time.monotonic() - start:.0f} s "
          f"({sum(r.compile_s for r in results) / len(results) * 1e3:.0f} ms a compile); "
          f"{len(cases) - len(not_whole)} of {len(cases)} cases pass in {' and '.join(modes)}")
    passed = counts["pass"] - sum(r.status == "pass" for r in unexpected)
    failed = len(unexpected) + len(stale)
    print(f"{passed} passed, {failed} failed, {len(results) - counts['left out'] - passed - len(unexpected)} listed")
    return 1 if failed else 0


def main() -> int:
    return run_suite(Suite("ops", packed.MODES, Path(__file__).resolve().with_name("known_failures.txt"), run_case), __doc__ or "")


if __name__ == "__main__":
    sys.exit(main())
