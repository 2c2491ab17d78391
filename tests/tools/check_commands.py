#!/usr/bin/env python3
"""--json of compile, explain, inspect and run; a kernel in all its forms; debug information; --help of everything."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from models import COMPILER, Checks, model, perceptron, random, tripod

COMMANDS = ["compile", "explain", "run", "bench", "inspect", "opt", "verify"]


def check_json(c: Checks, folder: Path) -> None:
    file, so = folder / "m.onnx", folder / "m.so"
    onnx.save(perceptron(), file)
    j = json.loads(tripod("compile", file, "-o", so, "--json").stdout)
    c.equal(j["bytes"], so.stat().st_size, "compile: bytes")
    c.check({"import", "simplify", "schedule", "total"} <= set(j["seconds"]), "compile: seconds", j["seconds"])
    c.check(j["seconds"]["total"] >= j["seconds"]["optimise"] > 0, "compile: total", j["seconds"])
    c.equal(
        sorted({n for k in j["kernels"] for n in k["nodes"]}),
        sorted(
            [
                "node 0 MatMul 'first'",
                "node 1 Add 'bias'",
                "node 2 Relu 'act'",
                "node 3 MatMul 'second'",
                "node 4 Softmax 'prob'",
            ]
        ),
        "compile: every node is in a kernel",
    )

    x = random(2, 24, seed=3)
    np.save(folder / "input_0.npy", x)
    j = json.loads(tripod("run", so, "--input-dir", folder, "--json").stdout)["outputs"][0]
    c.equal((j["name"], j["dtype"], j["shape"], len(j["values"])), ("y", "f32", [2, 10], 20), "run: output")
    c.check(abs(sum(j["values"]) - 2) < 1e-5, "run: rows of a softmax add up to 1", j["values"])
    j = json.loads(tripod("run", so, "--input-dir", folder, "--output-dir", folder / "out", "--json").stdout)[
        "outputs"
    ][0]
    c.check(Path(j["file"]).exists(), "run: the file", j)


def check_refused_call(c: Checks, folder: Path) -> None:
    """What the model refuses is an error of the call, with its sizes, and no fault of ours."""
    file, so = folder / "c.onnx", folder / "c.so"
    onnx.save(model([helper.make_node("Concat", ["p", "q"], ["y"], axis=0, name="cat")], {"p": ["N", "L"], "q": ["M", "K"]}, ["y"]), file)
    c.equal(tripod("compile", file, "-o", so).returncode, 0, "refused call: compiles")
    for command in (["run", so, "--random"], ["bench", so]):
        p = tripod(*command, "--dim", "L=3", "--dim", "K=4")
        c.equal(p.returncode, 1, f"refused call: {command[0]}: exit code")
        c.check("error: node 0 Concat 'cat'" in p.stderr and "3 and 4" in p.stderr and "internal" not in p.stderr,
                f"refused call: {command[0]}", p.stderr)


def check_symbols(c: Checks, folder: Path) -> None:
    """Sizes of one name stay apart in the manifest; a dim that is not there is an error."""
    file, so = folder / "s.onnx", folder / "s.so"
    nodes = [helper.make_node(op, inputs, [out]) for op, inputs, out in [
        ("NonZero", ["x"], "first"), ("Relu", ["x"], "positive"), ("NonZero", ["positive"], "second"),
        ("Cast", ["first"], "y"), ("Cast", ["second"], "z")]]
    for n in nodes[3:]:
        n.attribute.append(helper.make_attribute("to", 1))
    onnx.save(model(nodes, {"x": ["N", 2]}, ["y", "z"]), file)
    c.equal(tripod("compile", file, "-o", so).returncode, 0, "symbols: compiles")
    manifest = json.loads(tripod("inspect", so, "--json").stdout)
    names = [d["name"] for d in manifest["dims"]]
    c.equal(len(set(names)), 3, f"symbols: each has its own name: {names}")
    np.save(folder / "input_0.npy", np.array([[1, -1], [0, 2], [-3, 4]], np.float32))
    j = json.loads(tripod("run", so, "--input-dir", folder, "--json").stdout)["outputs"]
    c.equal([o["shape"] for o in j], [[2, 5], [2, 3]], "symbols: sizes of the run")
    p = tripod("verify", file, "--input-dir", folder, "--reference", "onnxruntime", "--python", sys.executable)
    c.equal(p.returncode, 0, f"symbols: verify: {p.stdout}{p.stderr}")
    p = tripod("run", so, "--random", "--dim", "M=7")
    c.check(p.returncode == 2 and "no dim" in p.stderr, "symbols: --dim of no dim", p.stderr)


def check_explain(c: Checks, folder: Path) -> None:
    """Each node has one place, and says why."""
    file = folder / "e.onnx"
    onnx.save(
        model(
            [
                helper.make_node("Add", ["a", "a"], ["two"], name="folded"),
                helper.make_node("MatMul", ["x", "two"], ["m"], name="product"),
                helper.make_node("Reshape", ["m", "flat"], ["r"], name="view"),
                helper.make_node("TopK", ["r", "k"], ["v", "i"], name="top"),
                helper.make_node("Neg", ["v"], ["y"], name="minus"),
            ],
            {"x": [4, 8]},
            ["y"],
            {"a": random(8, 8), "flat": np.array([1, 32], np.int64), "k": np.array([3], np.int64)},
        ),
        file,
    )
    all_ = json.loads(tripod("explain", file, "--json").stdout)
    place = {n: e for e in all_ for n in e["nodes"]}
    c.equal(
        len(place),
        5,
        "explain: every node",
    )
    product = place["node 1 MatMul 'product'"]
    c.equal(
        (product["why"], product["flops"], product["bytes"]),
        ("rule contraction", "512", str(4 * (32 + 64 + 32))),
        "explain: a kernel",
    )
    c.check(product["least_us"] > 0, "explain: an estimate")
    c.equal((place["node 3 TopK 'top'"]["who"]), "runtime operator tp_op_topk", "explain: an operator")
    c.equal(
        (place["node 2 Reshape 'view'"]["who"], place["node 2 Reshape 'view'"]["why"]),
        ("no code", "another view of the same memory"),
        "explain: a view",
    )
    c.equal(place["node 0 Add 'folded'"]["why"], "computed from the dims, or a constant", "explain: a folded node")
    minus = place["node 4 Neg 'minus'"]
    c.check(any(r.startswith("contraction: ") for r in minus["not"]), "explain: why not another rule", minus)
    text = tripod("explain", file).stdout
    c.check(
        "    not contraction: " in text and "    cost: 512 flop, 512 bytes; at least " in text, "explain: text", text
    )


def check_source(c: Checks, folder: Path) -> None:
    so = folder / "m.so"
    kernels = [k["name"] for k in json.loads(tripod("inspect", so, "--json").stdout)["kernels"]]
    name = kernels[0]
    c.check("node 0 MatMul 'first'" in tripod("inspect", so, "--kernel", name).stdout, "inspect: nodes of a kernel")
    loops = tripod("inspect", so, "--kernel", name, "--source").stdout
    c.check(loops.startswith("func @") and "fma(" in loops, "inspect: loop IR", loops)
    c.check("define " in tripod("inspect", so, "--kernel", name, "--source", "--as", "llvm").stdout, "inspect: LLVM")
    assembly = tripod("inspect", so, "--kernel", name, "--source", "--as", "asm").stdout
    c.check("vfmadd" in assembly and f"{name}.body" in assembly, "inspect: assembly", assembly[:500])
    j = json.loads(tripod("inspect", so, "--kernel", name, "--source", "--json").stdout)
    c.equal((j["source"], j["nodes"][0]), (loops, "node 0 MatMul 'first'"), "inspect: JSON of a kernel")
    # The file's line tables point into that text: the fma that runs lies on a line with an fma.
    dump = next(
        (t for t in ("llvm-dwarfdump-19", "llvm-dwarfdump") if shutil.which(t)), "/usr/lib/llvm-19/bin/llvm-dwarfdump"
    )
    if not Path(shutil.which(dump) or dump).exists():
        return
    lines = subprocess.run([dump, "--debug-line", so], capture_output=True, text=True).stdout
    c.check(f'name: "{name}.loop"' in lines, "debug information: the file of a kernel", lines[:1000])
    info = subprocess.run([dump, "--debug-info", so], capture_output=True, text=True).stdout
    c.check(f"{name}: node 0 MatMul 'first'" in info, "debug information: the ONNX nodes", info[:1000])
    file = re.search(rf'file_names\[\s*(\d+)\]:\s+name: "{re.escape(name)}\.loop"', lines)
    rows = re.findall(r"^0x[0-9a-f]{16}\s+(\d+)\s+\d+\s+(\d+)\s", lines, re.M)
    numbers = {int(line) for line, of in rows if file and of == file[1]}
    text = loops.splitlines()
    c.check(0 < max(numbers, default=0) <= len(text), "debug information: lines of the kernel", numbers)
    c.check(any("fma(" in text[n - 1] for n in numbers if n), "debug information: the line of the fma", sorted(numbers))


def check_help(c: Checks) -> None:
    top = tripod("--help").stdout
    for name in COMMANDS:
        c.check(re.search(rf"^  {name}\s+\S", top, re.M) is not None, f"--help lists {name}", top)
        p = tripod(name, "--help")
        c.equal(p.returncode, 0, f"{name} --help")
        # Every option says what it is for.
        for line in p.stdout.splitlines():
            if re.match(r"^  (-\w,)?--\w", line) and len(line.split()) < 2:
                c.check(False, f"{name} --help: an option without a word", line)


def check_full_disk(c: Checks, folder: Path) -> None:
    """A disk that is full: an error, and nothing is left behind. Needs the right to mount (root, or user namespaces)."""
    onnx.save(perceptron(), folder / "full.onnx")
    disk = folder / "disk"
    disk.mkdir()
    inside = ["unshare", "-m" if os.geteuid() == 0 else "-rm", "sh", "-c"]
    mount = f"mount -t tmpfs -o size=16k tmpfs {shlex.quote(str(disk))}"
    if subprocess.run([*inside, mount], capture_output=True).returncode:
        return
    for more in ("", "--weights external"):
        compile_there = shlex.join([str(COMPILER), "compile", str(folder / "full.onnx"), "-o", str(disk / "m.so")])
        p = subprocess.run([*inside, f"{mount}; {compile_there} {more}; echo $?; ls -A {shlex.quote(str(disk))}"], capture_output=True, text=True)
        c.equal(p.stdout.split(), ["2"], f"full disk {more}: exit code, and files left behind: {p.stderr}")
        c.check("cannot write" in p.stderr, f"full disk {more}", p.stderr)


def main() -> int:
    c = Checks()
    with tempfile.TemporaryDirectory() as folder:
        check_json(c, Path(folder))
        check_refused_call(c, Path(folder))
        check_symbols(c, Path(folder))
        check_explain(c, Path(folder))
        check_source(c, Path(folder))
        check_full_disk(c, Path(folder))
    check_help(c)
    return c.done()


if __name__ == "__main__":
    sys.exit(main())
