#!/usr/bin/env python3
"""docs/backends/cuda.md shows what the compiler prints: every block behind `<!-- text: PART -->` is compared with it.

usage: tests/docs/check_walkthrough.py [--update]
Skipped where there is no nvcc.
Ends with "N passed, N failed".
"""
from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from harness import find_nvcc  # noqa: E402

TRIPOD = ROOT / "build" / "bin" / "tripod"
PAGE = ROOT / "docs" / "backends" / "cuda.md"
BLOCK = re.compile(r"(<!-- text: (\w+) -->\n```\n)(.*?)(```\n)", re.DOTALL)
PHASES = ("import", "lower", "schedule", "plan")


def model() -> bytes:
    f16 = TensorProto.FLOAT16
    nodes = [helper.make_node("Add", ["x", "b"], ["s"], name="bias"),
             helper.make_node("Softmax", ["s"], ["y"], name="probabilities", axis=-1)]
    graph = helper.make_graph(nodes, "scores", [helper.make_tensor_value_info("x", f16, ["rows", 1000]),
                                                helper.make_tensor_value_info("b", f16, [1000])],
                              [helper.make_tensor_value_info("y", f16, ["rows", 1000])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def tripod(*args: str) -> str:
    return subprocess.run([str(TRIPOD), *args], capture_output=True, text=True, check=True).stdout


def texts(folder: Path) -> dict[str, str]:
    """What the compiler prints of the model, by the names that the page uses. PTX needs no particular GPU."""
    (folder / "scores.onnx").write_bytes(model())
    so = str(folder / "scores.so")
    found = {}
    for phase in PHASES:
        out = tripod("compile", str(folder / "scores.onnx"), "--target=cuda", "--arch=compute_80", "-o", so, f"--print-after={phase}")
        found[phase] = out.split(f"// after {phase}\n", 1)[1].strip() + "\n"
    kernel = json.loads(tripod("inspect", so, "--json"))["kernels"][0]["name"]
    found["kernel"] = tripod("inspect", so, "--kernel", kernel, "--source").strip() + "\n"
    return found


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--update", action="store_true")
    args = p.parse_args()
    if not find_nvcc():
        print("no nvcc here: skipped\n0 passed, 0 failed")
        return 0
    page = PAGE.read_text()
    with tempfile.TemporaryDirectory() as folder:
        now = texts(Path(folder))
    if args.update:
        PAGE.write_text(BLOCK.sub(lambda m: m[1] + now[m[2]] + m[4], page))
        return 0
    shown = {m[2]: m[3] for m in BLOCK.finditer(page)}
    failed = [part for part in now if shown.get(part) != now[part]]
    for part in failed:
        print(f"{PAGE.relative_to(ROOT)}: the text of {part} is not what the compiler prints: --update, and read what stands around it")
    print(f"{len(now) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
