"""The shapes of bench/gpu/shapes: each as an ONNX model for Tripod, and as a torch function of the same inputs.

A case is a row of a JSON file. `model()` needs onnx (where models are compiled), `torch_case()` needs torch (on the GPU
machine); neither imports the other's.
"""
from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Callable

SHAPES = Path(__file__).resolve().parent / "shapes"
Row = dict[str, Any]
BYTES = {"f16": 2, "f32": 4}
ELEMENTWISE = ("gelu", "silu", "add", "bias_relu", "scale_shift_channels")


def rows(family: str) -> list[Row]:
    return json.loads((SHAPES / f"{family}.json").read_text())


def families() -> list[str]:
    return sorted(p.stem for p in SHAPES.glob("*.json"))


def name(row: Row) -> str:
    parts = [row["op"], row["dtype"]]
    for key, v in row.items():
        if key in ("op", "dtype"):
            continue
        parts.append(key[0] + "x".join(map(str, v)) if isinstance(v, list) else f"{key}{int(v)}")
    return "_".join(parts)


def input_shapes(row: Row) -> list[list[int]]:
    """Of the run-time inputs, then of the weights (the last `weights(row)` ones)."""
    op = row["op"]
    if op in ("matmul", "matmul_bias_gelu"):
        batch = [row["batch"]] if "batch" in row else []
        return [[*batch, row["m"], row["k"]], [*batch, row["k"], row["n"]]] + ([[row["n"]]] if op == "matmul_bias_gelu" else [])
    if op == "attention":
        kv = [row["batch"], row["kv_heads"], row["kv"], row["d"]]
        return [[row["batch"], row["heads"], row["q"], row["d"]], kv, kv]
    if op == "conv":
        return [[row["batch"], row["hw"], row["hw"], row["c"]],
                [row["oc"], row["c"] // row.get("groups", 1), row["kernel"], row["kernel"]], [row["oc"]]]
    x = row["shape"]
    if op == "add":
        return [x, x]
    if op == "bias_relu":
        return [x, [x[-1]]]
    if op == "scale_shift_channels":
        return [x, [x[1], 1, 1], [x[1], 1, 1]]
    if op == "layer_norm":
        return [x, [x[-1]], [x[-1]]]
    if op == "rms_norm":
        return [x, [x[-1]]]
    return [x]


def num_weights(row: Row) -> int:
    """How many of the inputs are constants of the model: of convolutions, which pack them."""
    return 2 if row["op"] == "conv" else 0


def output_shape(row: Row) -> list[int]:
    op, ins = row["op"], input_shapes(row)
    if op in ("matmul", "matmul_bias_gelu"):
        return [*ins[0][:-1], row["n"]]
    if op == "conv":
        out = (row["hw"] - 1) // row["stride"] + 1
        return [row["batch"], out, out, row["oc"]]
    if op == "transpose":
        return [ins[0][p] for p in row["perm"]]
    if op in ("reduce_sum", "reduce_max"):
        return [d for i, d in enumerate(ins[0]) if i not in row["axes"]]
    return ins[0]


def bytes_of(row: Row) -> int:
    """The fewest bytes through memory: every input read once, the output written once."""
    return sum(math.prod(s) for s in [*input_shapes(row), output_shape(row)]) * BYTES[row["dtype"]]


def flops_of(row: Row) -> int:
    op = row["op"]
    if op in ("matmul", "matmul_bias_gelu"):
        return 2 * row.get("batch", 1) * row["m"] * row["n"] * row["k"]
    if op == "attention":
        full = 4 * row["batch"] * row["heads"] * row["q"] * row["kv"] * row["d"]
        return full // 2 if row["causal"] else full
    if op == "conv":
        return 2 * math.prod(output_shape(row)) * math.prod(input_shapes(row)[1][1:])
    return 0


# --- ONNX -----------------------------------------------------------------------------------------------------------

def nodes(row: Row) -> list[tuple[Any, ...]]:
    """(op, inputs, outputs, attributes); inputs are x0, x1, ..., the output is y."""
    op = row["op"]
    table: dict[str, list[tuple[Any, ...]]] = {
        "gelu": [("Gelu", "x0", "y", {})],
        "gelu_tanh": [("Gelu", "x0", "y", {"approximate": "tanh"})],
        "tanh": [("Tanh", "x0", "y", {})],
        "silu": [("Sigmoid", "x0", "s", {}), ("Mul", "x0 s", "y", {})],
        "add": [("Add", "x0 x1", "y", {})],
        "bias_relu": [("Add", "x0 x1", "s", {}), ("Relu", "s", "y", {})],
        "scale_shift_channels": [("Mul", "x0 x1", "s", {}), ("Add", "s x2", "y", {})],
        "softmax": [("Softmax", "x0", "y", {"axis": -1})],
        "layer_norm": [("LayerNormalization", "x0 x1 x2", "y", {"axis": -1})],
        "rms_norm": [("RMSNormalization", "x0 x1", "y", {"axis": -1})],
        "transpose": [("Transpose", "x0", "y", {"perm": row.get("perm")})],
        "reduce_sum": [("ReduceSum", "x0 axes", "y", {"keepdims": 0})],
        "reduce_max": [("ReduceMax", "x0 axes", "y", {"keepdims": 0})],
        "matmul": [("MatMul", "x0 x1", "y", {})],
        "matmul_bias_gelu": [("MatMul", "x0 x1", "p", {}), ("Add", "p x2", "s", {}), ("Gelu", "s", "y", {})],
        "attention": [("Attention", "x0 x1 x2", "y", {"is_causal": int(row.get("causal", False))})],
        "conv": [("Transpose", "x0", "t", {"perm": [0, 3, 1, 2]}),
                 ("Conv", "t x1 x2", "c", {"strides": [row.get("stride", 1)] * 2, "pads": [row.get("kernel", 1) // 2] * 4,
                                           "group": row.get("groups", 1)}),
                 ("Relu", "c", "r", {}), ("Transpose", "r", "y", {"perm": [0, 2, 3, 1]})],
    }
    return table[op]


def model(row: Row) -> bytes:
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    t = {"f16": TensorProto.FLOAT16, "f32": TensorProto.FLOAT}[row["dtype"]]
    shapes, constant = input_shapes(row), num_weights(row)
    first = len(shapes) - constant
    inputs = [helper.make_tensor_value_info(f"x{i}", t, s) for i, s in enumerate(shapes[:first])]
    numpy_type = {"f16": np.float16, "f32": np.float32}[row["dtype"]]
    weights = [numpy_helper.from_array(weight(row, i).astype(numpy_type), f"x{i}") for i in range(first, len(shapes))]
    if "axes" in row:
        weights.append(numpy_helper.from_array(np.array(row["axes"], np.int64), "axes"))
    body = [helper.make_node(o, i.split(), out.split(), name=f"{o.lower()}_{k}", **{a: v for a, v in attrs.items() if v is not None})
            for k, (o, i, out, attrs) in enumerate(nodes(row))]
    graph = helper.make_graph(body, "bench", inputs, [helper.make_tensor_value_info("y", t, output_shape(row))], weights)
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    return m.SerializeToString()


def weight(row: Row, i: int) -> Any:
    """Input i as a constant: normal, scaled so that results stay near 1; the same on both machines."""
    import numpy as np

    shape = input_shapes(row)[i]
    fan_in = math.prod(shape[1:]) if len(shape) > 1 else 1
    return np.random.default_rng(i).standard_normal(shape, np.float32) / math.sqrt(fan_in)


# --- torch ----------------------------------------------------------------------------------------------------------

def torch_function(row: Row) -> Callable[..., Any]:
    """What nodes() computes, of torch tensors: the inputs of input_shapes() in order."""
    import torch
    import torch.nn.functional as F

    op = row["op"]
    table: dict[str, Callable[..., Any]] = {
        "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "tanh": torch.tanh,
        "silu": F.silu,
        "add": torch.add,
        "bias_relu": lambda x, b: F.relu(x + b),
        "scale_shift_channels": lambda x, a, b: x * a + b,
        "softmax": lambda x: F.softmax(x, -1),
        "layer_norm": lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b),
        "rms_norm": lambda x, w: F.rms_norm(x, (x.shape[-1],), w, 1e-5),
        "transpose": lambda x: x.permute(row["perm"]).contiguous(),
        "reduce_sum": lambda x: x.sum(row["axes"]),
        "reduce_max": lambda x: x.amax(row["axes"]),
        "matmul": torch.matmul,
        "matmul_bias_gelu": lambda x, w, b: F.gelu(x @ w + b),
        "attention": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=row["causal"],
                                                                    enable_gqa=row["heads"] != row["kv_heads"]),
        # A channels-last view of the NHWC memory: no copy on either side.
        "conv": lambda x, w, b: F.relu(F.conv2d(x.permute(0, 3, 1, 2), w, b, row["stride"], row["kernel"] // 2,
                                                groups=row.get("groups", 1))).permute(0, 2, 3, 1),
    }
    return table[op]
