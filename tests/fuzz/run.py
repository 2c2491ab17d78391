#!/usr/bin/env python3
"""Runs the fuzz targets for a while each, on a corpus made of the test models, graphs and loop functions.

usage: tests/fuzz/run.py [TARGET...] [--seconds N] [--build DIR]
  onnx graph loop simplify capi: programs of `scripts/build.sh --config asan fuzzers`
  schedule: random legal schedules against the loop interpreter (the unit test, on seeds of its own)
What a target finds lies in build/fuzz/TARGET/. Ends with "N passed, N failed".
"""
from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/errors"), str(ROOT / "tests/ops")]
WORK = ROOT / "build" / "fuzz"
TARGETS = ["onnx", "graph", "loop", "simplify", "capi", "schedule"]
MOST = 20_000  # bytes of a corpus file


def onnx_corpus(folder: Path) -> None:
    import bad_models
    import data
    import hostile_models
    for name, bad in {**bad_models.CASES, **hostile_models.CASES}.items():
        with tempfile.TemporaryDirectory() as scratch:
            (Path(scratch) / "in").mkdir()
            bad.make(Path(scratch) / "in")
            model = Path(scratch) / "in" / "model.onnx"
            if model.is_file() and model.stat().st_size < MOST:
                (folder / name).write_bytes(model.read_bytes())
    for case in data.prepare()[::8]:
        raw = case.model(True).read_bytes()
        if len(raw) < MOST:
            (folder / case.name).write_bytes(raw)


def make_corpus(target: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if target == "onnx":
        onnx_corpus(folder)
    elif target == "graph":
        for path in ROOT.glob("tests/passes/**/*.graph"):
            text = path.read_text()
            for k, part in enumerate(text.split("// becomes")):
                (folder / f"{path.parent.name}-{path.stem}-{k}").write_text(part)
    elif target == "loop":
        source = (ROOT / "tests/unit/loop_schedule_fuzz.cc").read_text()
        for k, part in enumerate(source.split('R"(')[1:]):
            (folder / f"program-{k}").write_text(part.split(')"')[0])


def command(target: str, build: Path, seconds: float, seed: int) -> tuple[list[str], dict[str, str]]:
    if target == "schedule":
        count = int(seconds * 4)
        return ([str(ROOT / "build/release/bin/loop_test"), "--gtest_filter=ScheduleFuzz.*"],
                {"TRIPOD_FUZZ_SEEDS": f"{seed * 1000}..{seed * 1000 + count}"})
    folder = WORK / target
    # Memory in MB and seconds for one input: more than that is a finding too.
    return ([str(build / "bin" / f"fuzz_{target}"), f"-max_total_time={seconds:g}", f"-seed={seed}", "-rss_limit_mb=1500",
             "-timeout=10", "-close_fd_mask=1", f"-artifact_prefix={folder}/", str(folder / "corpus")], {})


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("targets", nargs="*", help=" ".join(TARGETS))
    p.add_argument("--seconds", type=float, default=10)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--build", type=Path, default=ROOT / "build" / "asan")
    args = p.parse_args()
    failed, targets = 0, args.targets or TARGETS
    for target in targets:
        make_corpus(target, WORK / target / "corpus")
        line, more = command(target, args.build, args.seconds, args.seed)
        start = time.monotonic()
        r = subprocess.run(line, env={**os.environ, **more}, cwd=ROOT, capture_output=True, text=True, errors="replace")
        failed += r.returncode != 0
        print(f"{target}: {'good' if r.returncode == 0 else f'exit code {r.returncode}'}, {time.monotonic() - start:.0f} s", flush=True)
        if r.returncode:
            print((r.stdout + r.stderr)[-6000:])
    print(f"{len(targets) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
