#!/usr/bin/env python3
"""Every operator on every element type, and on empty tensors: it compiles, or the compiler refuses it with an error that
names the node. What its schema says is where the inputs come from; nothing is run.

Ends with "N passed, N failed".
"""
from __future__ import annotations

import concurrent.futures
import os
import re
import sys
import tempfile
from pathlib import Path

import onnx
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]
from harness import COMPILER, compile_model  # noqa: E402

TYPES = [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT32, TensorProto.UINT8, TensorProto.BOOL, TensorProto.INT4,
         TensorProto.FLOAT8E4M3FN, TensorProto.STRING]
SHAPES = [[2, 4], [1, 4, 8, 8], [0, 4]]
REQUIRED = {"axis": 0, "to": 1, "kernel_shape": [1, 1], "perm": None, "blocksize": 2, "equation": "ij,ij->i", "size": 3,
            "direction": "LEFT", "num_scan_inputs": 1, "num_groups": 2, "hidden_size": 2}
# A type that most operators demand of an input, by the input's name in the schema.
FIXED = {"indices": TensorProto.INT64, "axes": TensorProto.INT64, "shape": TensorProto.INT64, "repeats": TensorProto.INT64,
         "pads": TensorProto.INT64, "k": TensorProto.INT64, "condition": TensorProto.BOOL, "starts": TensorProto.INT64,
         "ends": TensorProto.INT64, "split": TensorProto.INT64, "scales": TensorProto.FLOAT, "K": TensorProto.INT64}


def operators() -> list[onnx.defs.OpSchema]:
    """The operators of the default domain that exist in opset 21, without control flow."""
    found = []
    for name in sorted({s.name for s in onnx.defs.get_all_schemas_with_history() if s.domain == ""}):
        try:
            schema = onnx.defs.get_schema(name, 21)
        except onnx.defs.SchemaError:
            continue
        if not schema.deprecated and name not in ("If", "Loop", "Scan", "SequenceMap"):
            found.append(schema)
    return found


def model(schema: onnx.defs.OpSchema, dtype: int, shape: list[int]) -> onnx.ModelProto:
    inputs = []
    for k, i in enumerate(schema.inputs):
        if i.option == onnx.defs.OpSchema.FormalParameterOption.Optional:
            continue
        t = FIXED.get(i.name, dtype)
        inputs.append(helper.make_tensor_value_info(f"in{k}", t, [2] if t == TensorProto.INT64 and i.name != "indices" else shape))
    attributes = {n: REQUIRED[n] for n, a in schema.attributes.items() if a.required and REQUIRED.get(n) is not None}
    outputs = [f"out{k}" for k in range(max(1, schema.min_output))]
    node = helper.make_node(schema.name, [i.name for i in inputs], outputs, name="the/node", **attributes)
    g = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=o) for o in outputs])
    m = helper.make_model(g, opset_imports=[helper.make_opsetid("", 21)])
    m.ir_version = 10
    return m


def check(job: tuple[str, bytes]) -> str:
    name, data = job
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(data)
        c = compile_model(str(COMPILER), path, path.with_suffix(".so"), timeout=30)
    named = re.search(r"node 0 \w+ 'the/node'|input 'in\d+'", c.stderr)
    if c.status == "pass" or (c.status == "unsupported" and named):
        return ""
    return f"{name}: {c.status}: {c.message or c.stderr[:200]}"


def main() -> int:
    jobs = []
    for schema in operators():
        for dtype in TYPES:
            for shape in SHAPES if dtype == TensorProto.FLOAT else SHAPES[:1]:
                name = f"{schema.name} {TensorProto.DataType.Name(dtype)}{shape}"
                jobs.append((name, model(schema, dtype, shape).SerializeToString()))
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        problems = [p for p in pool.map(check, jobs) if p]
    print("\n".join(problems))
    print(f"{len(jobs) - len(problems)} passed, {len(problems)} failed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
