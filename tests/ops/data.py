"""The 2033 conformance cases of ONNX 1.23.2 as files under build/onnx-data, and how they are read.

KIND/CASE/model.onnx           as published
KIND/CASE/model_stripped.onnx  value_info and every declared output shape removed: they leak answers
KIND/CASE/test_data_set_0/     input_K.pb, output_K.pb
index.json                     one `Case` each

Kinds: node (1884, made by running the generators in the onnx wheel, 15 s), simple (23),
pytorch-converted (82), pytorch-operator (35), real (9: networks with constant weights). input_K.pb counts the
graph inputs that are not initializers.
"""
from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "build" / "onnx-data"
EXPECTED_CASES = 2033
FORMAT = f"onnx {onnx.__version__} layout 2"


@dataclass
class Case:
    """One conformance case; `folder` is relative to DATA; `needs` lists value kinds besides tensors."""

    name: str
    kind: str
    folder: str
    rtol: float
    atol: float
    ops: list[str] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)

    def model(self, stripped: bool) -> Path:
        return DATA / self.folder / ("model_stripped.onnx" if stripped else "model.onnx")

    def datasets(self) -> list[Path]:
        return sorted((DATA / self.folder).glob("test_data_set_*"))


def strip_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of `model` without value_info and without the shapes of outputs, sub-graphs included."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)

    def visit(graph: onnx.GraphProto) -> None:
        del graph.value_info[:]
        for output in graph.output:
            if output.type.HasField("tensor_type"):
                output.type.tensor_type.ClearField("shape")
        for node in graph.node:
            for a in node.attribute:
                if a.type == onnx.AttributeProto.GRAPH:
                    visit(a.g)
                for g in a.graphs:
                    visit(g)

    visit(copy.graph)
    for function in copy.functions:
        del function.value_info[:]
    return copy


def _needs(model: onnx.ModelProto) -> list[str]:
    """Which kinds of value other than plain tensors cross the model's border."""
    found = set()
    for v in [*model.graph.input, *model.graph.output]:
        kind = v.type.WhichOneof("value")
        if kind != "tensor_type":
            found.add({"sequence_type": "sequences", "optional_type": "optionals", "map_type": "maps"}.get(kind, str(kind)))
        elif v.type.tensor_type.elem_type == onnx.TensorProto.STRING:
            found.add("strings")
    return sorted(found)


def _write(folder: Path, case: Case, model: onnx.ModelProto) -> Case:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "model_stripped.onnx").write_bytes(strip_shapes(model).SerializeToString())
    case.ops = sorted({n.op_type for n in model.graph.node})
    case.needs = _needs(model)
    return case


def _serialize(value: Any, info: onnx.ValueInfoProto) -> bytes:
    """One input or output of a node case as the .pb that its type calls for."""
    if isinstance(value, onnx.TensorProto):
        return value.SerializeToString()
    kind = info.type.WhichOneof("value")
    convert = {"map_type": numpy_helper.from_dict, "sequence_type": numpy_helper.from_list,
               "optional_type": numpy_helper.from_optional}.get(kind, numpy_helper.from_array)
    return convert(value, info.name).SerializeToString()


def _node_cases() -> list[Case]:
    from onnx.backend.test.loader import load_model_tests
    cases = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the generators divide by zero on purpose
        tests = load_model_tests(kind="node")
    for t in tests:
        folder = DATA / "node" / t.name
        cases.append(_write(folder, Case(t.name, "node", f"node/{t.name}", t.rtol, t.atol), t.model))
        for i, (inputs, outputs) in enumerate(t.data_sets):
            data_set = folder / f"test_data_set_{i}"
            data_set.mkdir(exist_ok=True)
            for what, values, infos in (("input", inputs, t.model.graph.input), ("output", outputs, t.model.graph.output)):
                for k, v in enumerate(values):
                    (data_set / f"{what}_{k}.pb").write_bytes(_serialize(v, infos[k]))
    return cases


def _stored_cases(wheel: Path, kind: str) -> list[Case]:
    cases = []
    for source in sorted((wheel / kind).iterdir()):
        if not (source / "model.onnx").exists():
            continue
        folder = DATA / kind / source.name
        shutil.copytree(source, folder, dirs_exist_ok=True)
        tolerance = json.loads((source / "data.json").read_text()) if (source / "data.json").exists() else {}
        case = Case(source.name, kind, f"{kind}/{source.name}", tolerance.get("rtol", 1e-3), tolerance.get("atol", 1e-7))
        cases.append(_write(folder, case, onnx.load(source / "model.onnx")))
    return cases


def _real_cases(wheel: Path) -> list[Case]:
    """The nine networks of data/light. Their input is arange(n) / n, as in onnx's own runner."""
    cases = []
    for source in sorted((wheel / "real").iterdir()):
        info = json.loads((source / "data.json").read_text())
        light = wheel / "light" / Path(info["url"]).name
        model = onnx.load(light)
        folder = DATA / "real" / source.name
        cases.append(_write(folder, Case(source.name, "real", f"real/{source.name}", info["rtol"], info["atol"]), model))
        data_set = folder / "test_data_set_0"
        data_set.mkdir(exist_ok=True)
        initial = {i.name for i in model.graph.initializer}
        for k, v in enumerate(v for v in model.graph.input if v.name not in initial):
            shape = [d.dim_value if d.HasField("dim_value") else 1 for d in v.type.tensor_type.shape.dim]
            n = int(np.prod(shape))
            data = (np.arange(n).reshape(shape) / n).astype(np.float32)
            (data_set / f"input_{k}.pb").write_bytes(numpy_helper.from_array(data, v.name).SerializeToString())
        shutil.copy(light.with_name(light.stem + "_output_0.pb"), data_set / "output_0.pb")
    return cases


def prepare() -> list[Case]:
    """All cases; makes build/onnx-data first when it is missing or of another onnx version."""
    index = DATA / "index.json"
    if index.exists():
        stored = json.loads(index.read_text())
        if stored["format"] == FORMAT:
            return [Case(**c) for c in stored["cases"]]
    print("ops: writing the conformance data", flush=True)
    shutil.rmtree(DATA, ignore_errors=True)
    wheel = Path(onnx.__file__).parent / "backend" / "test" / "data"
    cases = _node_cases() + _real_cases(wheel)
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        cases += _stored_cases(wheel, kind)
    if len(cases) != EXPECTED_CASES or len({c.name for c in cases}) != EXPECTED_CASES:
        raise RuntimeError(f"{len(cases)} conformance cases, {EXPECTED_CASES} expected: is this onnx 1.23.2?")
    index.write_text(json.dumps({"format": FORMAT, "cases": [asdict(c) for c in cases]}, indent=0))
    return cases


def load_value(path: Path, info: onnx.TypeProto) -> Any:
    """The numpy array, list or (for optionals) array, list or None that a .pb file of type `info` holds."""
    raw, kind = path.read_bytes(), info.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(raw))
    if kind == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(raw))
    if kind == "map_type":
        return numpy_helper.to_dict(onnx.MapProto.FromString(raw))
    return numpy_helper.to_array(onnx.TensorProto.FromString(raw))
