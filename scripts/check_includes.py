#!/usr/bin/env python3
"""Refuses an #include in src/ against the arrows of docs/design.md section 3, and outside headers out of place.

usage: scripts/check_includes.py
Ends with "N passed, N failed": one check a source file.
"""
from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"

# The arrows: a folder may include itself and what it reaches from here.
ARROWS: dict[str, list[str]] = {
    "base": [],
    "target": ["base"],
    "sym": ["base"],
    "graph": ["target", "sym"],
    "onnx": ["graph"],
    "graph_opt": ["graph"],
    "loop": ["target", "sym"],
    "lower": ["loop", "graph"],
    "rules": ["loop"],
    "search": ["loop"],
    "codegen": ["loop"],
    "host": ["loop", "graph", "codegen"],  # host/emit builds on codegen's LLVM units
    "backends": ["onnx", "graph_opt", "lower", "rules", "search", "codegen", "host"],
    "driver": ["backends"],
    "runtime": [],  # linked into model.so: depends on nothing of the compiler
}

# What compiled code and the run time agree on: those that emit or embed the run time may read these.
CONTRACT = ("runtime/abi.h", "runtime/blob.h", "runtime/offsets.h")
CONTRACT_READERS = {"host", "codegen", "backends", "driver"}

# Headers from outside that belong to some places only: pattern, the places (prefixes below src/), why.
FENCED: list[tuple[str, tuple[str, ...], str]] = [
    (r"(llvm|lld)(-c)?/", ("codegen/llvm", "host/emit", "backends/cpu", "driver/link", "driver/package"),
     "LLVM appears only in codegen/llvm, host/emit and backends/cpu, lld where model.so is linked"),
    (r"(google/protobuf/|.*\.pb\.h$)", ("onnx",), "protobuf appears only in onnx"),
    (r"(cuda|cuda_runtime|nvrtc|cublas\w*)\.h$", ("backends/cuda",), "CUDA appears only in backends/cuda"),
    (r"(cutlass|cute)/", ("backends/cutlass",), "CUTLASS appears only in backends/cutlass"),
    (r"Nv\w+\.h$", ("backends/tensorrt",), "TensorRT appears only in backends/tensorrt"),
]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def reachable(folder: str) -> set[str]:
    """`folder` and all that its arrows lead to."""
    found, todo = {folder}, [folder]
    while todo:
        for f in ARROWS[todo.pop()]:
            if f not in found:
                found.add(f)
                todo.append(f)
    return found


def problems_of(path: Path) -> list[str]:
    """What is wrong with the includes of one source file."""
    relative = path.relative_to(SRC)
    folder = relative.parts[0]
    if folder not in ARROWS:
        return [f"{relative}: folder {folder} is not in the arrows of scripts/check_includes.py"]
    allowed, found = reachable(folder), []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quoted, header = match[1] == '"', match[2]
        where = f"src/{relative}:{number}: #include {match[1]}{header}{'>' if match[1] == '<' else match[1]}"
        target = header.split("/")[0]
        if quoted and target in ARROWS and "/" in header:
            if target not in allowed and not (header in CONTRACT and folder in CONTRACT_READERS):
                found.append(f"{where}: {folder} may include {', '.join(sorted(allowed))} only")
            if folder == "backends" and target == "backends" and header.split("/")[1] != relative.parts[1]:
                found.append(f"{where}: a back end includes no other back end")
        for pattern, places, why in FENCED:
            if re.match(pattern, header) and not str(relative).startswith(places):
                found.append(f"{where}: {why}")
        if folder == "runtime" and not quoted and re.match(r"(fmt|CLI|nlohmann)/", header):
            found.append(f"{where}: the run time needs libc only")
    return found


def main() -> int:
    files = sorted(p for p in SRC.rglob("*") if p.suffix in (".h", ".cc", ".c", ".inc", ".def") and len(p.relative_to(SRC).parts) > 1)
    failed = 0
    for path in files:
        problems = problems_of(path)
        failed += bool(problems)
        print("\n".join(problems), end="\n" if problems else "")
    print(f"{len(files) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
