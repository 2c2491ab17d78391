#!/usr/bin/env python3
"""Bad models and bad arguments: exit code 2, the recorded message, no file left behind.

usage: tests/errors/check_errors.py [NAME...] [--update] [--compiler FILE]
  --update records the messages in expected/; they must still contain the words that bad_models.py asks for.
Ends with "N passed, N failed".
"""
from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(Path(__file__).resolve().parent)]
import bad_models  # noqa: E402
import hostile_models  # noqa: E402
from bad_models import Bad  # noqa: E402
from harness import COMPILER, compile_model  # noqa: E402

EXPECTED = Path(__file__).resolve().with_name("expected")
CASES = {**bad_models.CASES, **hostile_models.CASES}
MOST_MEMORY = 1 << 30  # a refused model may not cost more, however large it says it is


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))


def check(name: str, bad: Bad, compiler: Path, update: bool) -> str:
    """"" when the compiler refuses `bad` as it should, else what is wrong."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "in"
        folder.mkdir()
        bad.make(folder)
        before = sorted(p.name for p in folder.iterdir())
        try:
            p = subprocess.run([str(compiler), *bad.args], cwd=folder, capture_output=True, timeout=20 if compiler == COMPILER else 120, stdin=subprocess.DEVNULL,
                               preexec_fn=limit_memory if compiler == COMPILER else None)
        except subprocess.TimeoutExpired:
            return "took over 20 s"
        message = p.stderr.decode(errors="replace").replace(root, "ROOT")
        if p.returncode != 2:
            return f"exit code {p.returncode}, wanted 2: {message[:300]}"
        if p.stdout:
            return f"wrote to stdout: {p.stdout[:100]!r}"
        left = sorted(set(q.name for q in folder.iterdir()) - set(before))
        if left:
            return f"left {', '.join(left)} behind"
    lacking = [w for w in bad.words if w not in message]
    if lacking:
        return f"the message lacks {lacking}: {message.strip()[:300]}"
    record = EXPECTED / f"{name}.txt"
    if update:
        EXPECTED.mkdir(exist_ok=True)
        record.write_text(message)
    elif not record.exists():
        return "no message is recorded: run with --update and look at it"
    elif record.read_text() != message:
        return f"the message changed:\n  was {record.read_text().strip()}\n  is  {message.strip()}"
    return ""


def check_legal(name: str, compiler: Path) -> str:
    """"" when the strange but legal model compiles in bounds of time and memory."""
    with tempfile.TemporaryDirectory() as root:
        hostile_models.LEGAL[name](Path(root))
        c = compile_model(str(compiler), Path(root) / "model.onnx", Path(root) / "model.so",
                          timeout=20 if compiler == COMPILER else 200)
    return "" if c.status == "pass" and (c.peak_mb < 600 or compiler != COMPILER) else f"{c.status}, {c.peak_mb:.0f} MB: {c.message}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--compiler", type=Path, default=COMPILER, help="one with sanitizers gets no bounds of memory")
    args = parser.parse_args()
    names = args.names or [*CASES, *hostile_models.LEGAL]
    failed, compiler = 0, args.compiler.absolute()
    for name in names:
        problem = (check_legal(name, compiler) if name in hostile_models.LEGAL
                   else check(name, CASES[name], compiler, args.update))
        failed += bool(problem)
        if problem:
            print(f"{name}: {problem}")
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
