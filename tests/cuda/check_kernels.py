#!/usr/bin/env python3
"""Generated CUDA C on the CPU: hundreds of loop functions are printed as kernels, compiled by g++ with the stand-in
tests/cuda_on_cpu.h under AddressSanitizer, run, and compared with the loop interpreter bit for bit. Where nvcc is there,
they also compile for sm_90a and compute_80, warnings being errors: the hand-written ones of tests/cuda/cases/*.loop and
a sixth of those that op_cases.py makes (with --all: all of them). What was compiled is kept in build/cuda-cache.

usage: tests/cuda/check_kernels.py [--only WORD] [--all] [--keep]
Ends with "N passed, N failed".
"""
from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import op_cases

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))
from harness import find_nvcc  # noqa: E402

TOOL = ROOT / "build" / "release" / "bin" / "kernel_cases"
CACHE = ROOT / "build" / "cuda-cache"
MARK = "// case dims "
BATCHES = 8


def all_cases(only: str) -> tuple[list[str], list[str]]:
    """Hand-written and generated ones; `only` picks those whose text has the word."""
    cases = []
    for path in sorted((HERE / "cases").glob("*.loop")):
        cases += [MARK + c for c in path.read_text().split(MARK)[1:]]
    return [c for c in cases if only in c], [c for c in op_cases.cases() if only in c]


def run_batch(folder: Path, k: int) -> tuple[int, int]:
    """Compiles one batch (kept by the hash of its text) and runs it."""
    source = folder / f"batch_{k}.cc"
    headers = [ROOT / "tests" / "cuda_on_cpu.h", HERE / "ptx_on_cpu.h", HERE / "run_cases.h"]
    key = hashlib.sha256(b"".join(p.read_bytes() for p in [source, *headers])).hexdigest()[:24]
    binary = CACHE / f"cpu-{key}"
    if not binary.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        fresh = CACHE / f"cpu-{key}.{os.getpid()}"
        command = ["g++", "-std=c++17", "-O1", "-w", "-ffp-contract=off", "-fsanitize=address", f"-I{ROOT / 'tests'}", str(source), "-o", str(fresh)]
        r = subprocess.run(command, capture_output=True, text=True)
        if r.returncode != 0:
            print(f"FAILED to compile batch {k}:\n{r.stderr[:3000]}")
            return 0, 1
        fresh.rename(binary)
    # The runner's memory is not the subject: only the kernels' accesses are.
    env = dict(os.environ, ASAN_OPTIONS="detect_leaks=0:detect_stack_use_after_return=0")
    r = subprocess.run([str(binary), str(folder / f"batch_{k}.bin")], capture_output=True, text=True, env=env)
    lines = r.stdout.splitlines()
    if not lines or not lines[-1].endswith(" failed"):
        at = [line for line in r.stderr.splitlines() if line.startswith("# ")]
        print(f"FAILED batch {k} ended in {at[-1] if at else '?'} with exit code {r.returncode}:\n{r.stdout}")
        print("\n".join(line for line in r.stderr.splitlines() if not line.startswith("# "))[:3000])
        return 0, 1
    for line in lines[:-1]:
        print(line)
    passed, failed = lines[-1].replace(" passed, ", " ").split()[:2]
    return int(passed), int(failed)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--all", action="store_true", help="compile every kernel with nvcc")
    parser.add_argument("--keep", action="store_true", help="leave the folder with the generated files")
    args = parser.parse_args()
    written, generated = all_cases(args.only)
    folder = Path(tempfile.mkdtemp(prefix="tripod-kernels-"))
    (folder / "cases.loop").write_text("\n".join(written + generated))
    (folder / "nvcc.loop").write_text("\n".join(written + (generated if args.all else generated[::6])))
    passed = failed = 0
    r = subprocess.run([str(TOOL), "cpu", str(folder / "cases.loop"), str(folder), str(BATCHES)], capture_output=True, text=True)
    print("\n".join(r.stdout.splitlines()[:-1]))
    print(r.stderr, end="")
    if r.returncode != 0:
        failed += max(1, r.stdout.count("FAILED "))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for p, f in pool.map(lambda k: run_batch(folder, k), range(BATCHES)):
            passed, failed = passed + p, failed + f
    if nvcc := find_nvcc():
        r = subprocess.run([str(TOOL), "nvcc", str(folder / "nvcc.loop"), str(CACHE), nvcc], capture_output=True, text=True)
        print(r.stdout + r.stderr, end="")
        passed, failed = passed + (r.returncode == 0), failed + (r.returncode != 0)
    else:
        print("no nvcc on this machine: the kernels were not compiled for a GPU")
    if args.keep:
        print(folder)
    else:
        shutil.rmtree(folder)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
