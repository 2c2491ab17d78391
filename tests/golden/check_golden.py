#!/usr/bin/env python3
"""What the compiler makes of a pinned corpus for AVX2 alone, compared exactly with tests/golden/expected.

usage: tests/golden/check_golden.py [--update-golden] [NAME...]
A refactor shows no difference here; where one is meant, --update-golden writes the files again, and their diff is
looked at with the change.
Of a graph: the graph after simplify, every kernel's loops, the host program. Of a model: its kernels and host program.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
import tempfile
from pathlib import Path

import onnx

from corpus import GRAPHS, MODELS

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from models import ROOT, Checks, tripod  # noqa: E402

EXPECTED = Path(__file__).resolve().parent / "expected"


def sections(text: str) -> list[tuple[str, str]]:
    """(phase, text) of --print-after all, in order."""
    parts = re.split(r"^// after (\S+)\n", text, flags=re.M)
    return list(zip(parts[1::2], parts[2::2]))


def kernel_list(so: Path) -> str:
    """One line a kernel or operator: rule, arithmetic and bytes, ONNX nodes."""
    m = json.loads(tripod("inspect", so, "--json").stdout)
    lines = []
    for s in m["steps"]:
        w = m["works"][s["work"]] if "work" in s else {"rule": "-", "nodes": []}
        lines.append(
            f"{s.get('kernel') or s['operator']}  {w['rule']}  flops {w.get('flops', '-')}  bytes {w.get('bytes', '-')}  "
            f"# {', '.join(w['nodes'])}\n"
        )
    return "".join(lines)


def dump(path: Path, so: Path, phases: tuple[str, ...]) -> str:
    p = tripod("compile", path, "-o", so, "--cpu", "v3", "--print-after", "all" if "schedule" in phases else "plan")
    if p.returncode:
        return f"exit code {p.returncode}\n{p.stderr.replace(str(path), path.name)}"
    text = "".join(f"// {phase}\n{body}" for phase, body in sections(p.stdout) if phase in phases)
    return f"{text}// kernels\n{kernel_list(so)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update-golden", action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    c = Checks()
    with tempfile.TemporaryDirectory() as folder:
        todo: dict[str, tuple[Path, tuple[str, ...]]] = {}
        for name, make in GRAPHS.items():
            onnx.save(make(), Path(folder) / f"{name}.onnx")
            todo[name] = (Path(folder) / f"{name}.onnx", ("simplify", "schedule", "plan"))
        for name in MODELS:
            if (ROOT / ".cache/models" / f"{name}.onnx").exists():
                todo[name] = (ROOT / ".cache/models" / f"{name}.onnx", ("plan",))
        for name, (path, phases) in todo.items():
            if args.names and name not in args.names:
                continue
            got, file = dump(path, Path(folder) / "m.so", phases), EXPECTED / f"{name}.txt"
            if args.update_golden:
                EXPECTED.mkdir(exist_ok=True)
                file.write_text(got)
            wanted = file.read_text() if file.exists() else ""
            diff = list(
                difflib.unified_diff(wanted.splitlines(), got.splitlines(), "expected", "now", lineterm="", n=1)
            )
            c.check(got == wanted, name, "\n" + "\n".join(diff[:40]))
    return c.done()


if __name__ == "__main__":
    sys.exit(main())
