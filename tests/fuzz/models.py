#!/usr/bin/env python3
"""Conformance models with a few things in them changed: the compiler takes or refuses them, and nothing crashes.

usage: tests/fuzz/models.py [--seconds N] [--seed N] [--from DIR] [--keep DIR] [--compiler FILE]
Each round takes a model of tests/ops (or of the files *.onnx under DIR) and changes one to three fields of its
protobuf: attributes, dims, element types, operands, operators, opsets, external data. The compile must end within 20 s
and 1.5 GB with exit code 0 or 2 and leave no file behind on 2; what compiles is called with the inputs of the case.
Where ONNX Runtime takes the model and inputs too, a different answer is printed (for people: it is no failure, as ONNX
Runtime reads some wrong models its own way). Failures lie in build/fuzz/models. Ends with "N passed, N failed".
"""
from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/ops"), str(ROOT / "tests"), str(ROOT / "python")]
import data  # noqa: E402
from execute import Settings, load  # noqa: E402
from harness import COMPILER, compile_model, in_child  # noqa: E402
from resized import infer, reference  # noqa: E402
from tripod import TripodError  # noqa: E402

NUMBERS = [0, 1, -1, 2, -2, 3, 7, 16, 255, 1 << 16, 1 << 31, (1 << 31) - 1, -(1 << 31), 1 << 32, 1 << 62, (1 << 63) - 1, -(1 << 63)]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan")]
TYPES = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 22, 99, 0]
OPS = ["Relu", "Add", "MatMul", "Reshape", "Concat", "Slice", "Conv", "Gather", "If", "Loop", "Softmax", "ReduceSum", "Resize", "Pad"]


class Mutator:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one(self, items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def number(self, old: int) -> int:
        return old + self.one([-2, -1, 1, 2]) if self.rng.random() < 0.5 else self.one(NUMBERS)

    @staticmethod
    def bounded(value: int, bits: int = 64) -> int:
        return max(-(1 << (bits - 1)), min((1 << (bits - 1)) - 1, value))

    def attribute(self, m: onnx.ModelProto, node: onnx.NodeProto) -> None:
        if not node.attribute or self.rng.random() < 0.15:
            name = self.one(["axis", "axes", "keepdims", "pads", "strides", "group", "perm", "to", "mode", "alpha"])
            node.attribute.append(helper.make_attribute(name, self.one([0, -1, [1, 2], [3, -1, 0, 2], 1.5, "linear"])))
            return
        a = self.one(node.attribute)
        what = self.rng.random()
        if what < 0.1:
            node.attribute.remove(a)
        elif what < 0.2:
            a.type = self.one(range(0, 15))
        elif a.type == AttributeProto.INT:
            a.i = self.bounded(self.number(a.i))
        elif a.type == AttributeProto.FLOAT:
            a.f = self.one(FLOATS)
        elif a.type == AttributeProto.STRING:
            a.s = self.one([b"", b"linear", b"SAME_UPPER", b"VALID", b"NOTSET", b"reflect", b"edge", b"\xff\xfe", b"x" * 300])
        elif a.type == AttributeProto.INTS and a.ints:
            if what < 0.3:
                a.ints.append(self.one(NUMBERS))
            elif what < 0.4:
                a.ints.pop()
            else:
                k = int(self.rng.integers(len(a.ints)))
                a.ints[k] = self.bounded(self.number(a.ints[k]))
        elif a.type == AttributeProto.FLOATS and a.floats:
            a.floats[int(self.rng.integers(len(a.floats)))] = self.one(FLOATS)
        elif a.type == AttributeProto.TENSOR:
            self.tensor(a.t)
        elif a.type == AttributeProto.GRAPH and a.g.node:
            self.graph(m, a.g)

    def tensor(self, t: TensorProto) -> None:
        what = self.rng.random()
        if what < 0.3 and t.dims:
            k = int(self.rng.integers(len(t.dims)))
            t.dims[k] = self.bounded(self.number(t.dims[k]))
        elif what < 0.4:
            t.dims.append(self.one([0, 1, 2, -1, 1 << 40]))
        elif what < 0.5:
            t.data_type = self.one(TYPES)
        elif what < 0.6:
            t.data_location = TensorProto.EXTERNAL
            for key, value in (("location", self.one(["", ".", "/etc/hostname", "../x", "w.bin", "model.onnx", "a/../model.onnx"])),
                               ("offset", str(self.one(NUMBERS))), ("length", str(self.one(NUMBERS)))):
                if self.rng.random() < 0.7:
                    t.external_data.add(key=key, value=value)
        elif t.raw_data:
            raw = bytearray(t.raw_data)
            k = int(self.rng.integers(len(raw)))
            if what < 0.75:
                raw = raw[:k]
            else:
                raw[k] = self.one([0, 1, 0x7f, 0x80, 0xff])
            t.raw_data = bytes(raw)
        elif t.int64_data:
            k = int(self.rng.integers(len(t.int64_data)))
            t.int64_data[k] = self.bounded(self.number(t.int64_data[k]))
        elif t.float_data:
            t.float_data[int(self.rng.integers(len(t.float_data)))] = self.one(FLOATS)

    def operands(self, node: onnx.NodeProto, names: list[str]) -> None:
        what = self.rng.random()
        if what < 0.4 and node.input:
            node.input[int(self.rng.integers(len(node.input)))] = self.one([*names, "", "nowhere"])
        elif what < 0.55 and node.input:
            node.input.pop()
        elif what < 0.7:
            node.input.append(self.one(names))
        elif what < 0.8:
            node.output.append(f"more{len(node.output)}")
        elif what < 0.9 and len(node.input) > 1:
            node.input[0], node.input[1] = node.input[1], node.input[0]
        elif node.output:
            node.output[0] = self.one(["", *names])

    def declared(self, v: onnx.ValueInfoProto) -> None:
        t = v.type.tensor_type
        what = self.rng.random()
        if what < 0.3 and t.shape.dim:
            self.one(t.shape.dim).dim_value = self.one([0, 1, 2, 3, 5, 16, 255, 1 << 20, -1, -2, (1 << 31) - 1, 1 << 40])
        elif what < 0.6 and t.shape.dim:
            self.one(t.shape.dim).dim_param = self.one(["N", "M", "", "?", "a b", "1"])
        elif what < 0.7:
            t.shape.dim.add().dim_value = self.one([1, 2, 0])
        elif what < 0.8 and t.shape.dim:
            t.shape.dim.pop()
        elif what < 0.95:
            t.elem_type = self.one(TYPES)
        else:
            v.type.Clear()

    def graph(self, m: onnx.ModelProto, g: onnx.GraphProto) -> None:
        names = [*(v.name for v in g.input), *(t.name for t in g.initializer), *(o for n in g.node for o in n.output)] or ["x"]
        what = self.rng.random()
        if what < 0.4 and g.node:
            self.attribute(m, self.one(g.node))
        elif what < 0.55 and g.node:
            self.operands(self.one(g.node), names)
        elif what < 0.7 and g.input:
            self.declared(self.one(g.input))
        elif what < 0.75 and g.output:
            self.declared(self.one(g.output))
        elif what < 0.88 and g.initializer:
            self.tensor(self.one(g.initializer))
        elif what < 0.93 and g.node:
            self.one(g.node).op_type = self.one(OPS)
        elif what < 0.96 and g.node:
            g.node.append(self.one(g.node))
        else:
            m.opset_import[0].version = int(self.rng.integers(5, 30))

    def bytes(self, raw: bytes) -> bytes:
        b = bytearray(raw)
        for _ in range(int(self.rng.integers(1, 4))):
            b[int(self.rng.integers(len(b)))] = int(self.rng.integers(256))
        return bytes(b)


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))


def called(so: Path, feed: list[np.ndarray], raw: bytes, note: Path) -> str:
    """Runs the model; "" unless the process ends by it. What ONNX Runtime says otherwise goes to `note`."""
    limit_memory()
    with load(Settings(str(COMPILER), threads=1), so, True) as model:
        try:
            outputs = model.run(feed)
        except TripodError:
            return ""
    try:
        wanted = infer(reference(onnx.load_from_string(raw)), feed)
    except Exception:
        return ""
    for k, (g, w) in enumerate(zip(outputs, wanted)):
        if not isinstance(g, np.ndarray) or not isinstance(w, np.ndarray):
            continue
        same = g.shape == w.shape and g.dtype == w.dtype and (g.dtype.kind not in "fiub" or np.allclose(
            g.astype(np.float64), w.astype(np.float64), rtol=1e-2, atol=1e-3, equal_nan=True))
        if not same:
            note.write_text(f"output {k}: {g.dtype}{list(g.shape)} {g.reshape(-1)[:6]}, ONNX Runtime {w.dtype}{list(w.shape)} {w.reshape(-1)[:6]}")
    return ""


def sources(folder: Path | None) -> list[tuple[Path, Path | None]]:
    """Models, each with the folder of its inputs."""
    if folder:
        return [(p, None) for p in sorted(folder.glob("*.onnx"))]
    return [(c.model(True), c.datasets()[0]) for c in data.prepare() if not c.needs and c.kind != "real"]


def inputs_of(model: Path, folder: Path | None) -> list[np.ndarray]:
    if folder is None:
        return []
    graph = onnx.load(model).graph
    initial = {t.name for t in graph.initializer}
    types = [v.type for v in graph.input if v.name not in initial]
    return [data.load_value(folder / f"input_{k}.pb", t) for k, t in enumerate(types)]


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seconds", type=float, default=30)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--from", dest="folder", type=Path)
    p.add_argument("--keep", type=Path, default=ROOT / "build" / "fuzz" / "models")
    p.add_argument("--compiler", type=Path, default=COMPILER)
    args = p.parse_args()
    args.keep.mkdir(parents=True, exist_ok=True)
    all_models, end = sources(args.folder), time.monotonic() + args.seconds
    total = failed = ran = seed = 0
    while time.monotonic() < end:
        seed += 1
        m = Mutator(args.seed * 1_000_000 + seed)
        path, inputs = m.one(all_models)
        model = onnx.load(path)
        for _ in range(int(m.rng.integers(1, 4))):
            try:
                m.graph(model, model.graph)
            except (ValueError, TypeError):  # not to be had in a protobuf
                pass
        raw = model.SerializeToString()
        if m.rng.random() < 0.1:
            raw = m.bytes(raw)
        with tempfile.TemporaryDirectory(prefix="tripod-fuzz-") as name:
            folder = Path(name)
            (folder / "model.onnx").write_bytes(raw)
            (folder / "w.bin").write_bytes(bytes(64))
            c = compile_model(str(args.compiler), folder / "model.onnx", folder / "model.so", timeout=20)
            problem = "" if c.status in ("pass", "unsupported") else f"{c.status}: {c.message}"
            if c.status == "error" and "exit code" not in c.message and "behind" not in c.message and "no file" not in c.message:
                problem = ""  # a refusal, if one that names no node
            if c.peak_mb > 1500:
                problem = f"{c.peak_mb:.0f} MB"
            if c.status == "pass":
                ran += 1
                status, message = in_child(lambda: called(folder / "model.so", inputs_of(path, inputs), raw, folder / "note"), 30)
                problem = "" if status == "pass" else f"run: {status}: {message}"
                if not problem and (folder / "note").exists():
                    print(f"{seed} {path.parent.name}: differs: {(folder / 'note').read_text()}", flush=True)
                    (args.keep / f"differs-{args.seed}-{seed}.onnx").write_bytes(raw)
        total += 1
        if problem:
            failed += 1
            (args.keep / f"failed-{args.seed}-{seed}.onnx").write_bytes(raw)
            print(f"{seed} {path.parent.name}: {problem}", flush=True)
    print(f"{ran} of {total} compiled")
    print(f"{total - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
