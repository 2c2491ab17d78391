"""The Llama of llama.py for one decode step as ONNX, written directly (onnx and numpy, no torch).

Inputs: token i64[1, 1]; cos, sin f16[1, 1, HEAD / 2] of the new position; past_key.N, past_value.N
f16[1, KV_HEADS, past, HEAD]. Outputs: logits f16[1, 1, VOCABULARY]; present_key.N, present_value.N with one row more.
The weights lie beside the file, one after the other, in the order of `weight_shapes`.
"""
from __future__ import annotations

from pathlib import Path
from typing import Callable, Iterator

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, save

LAYERS, WIDTH, HEADS, KV_HEADS, FFN, VOCABULARY, EPSILON = 16, 2048, 32, 8, 8192, 128256, 1e-5
HEAD = WIDTH // HEADS
ALIGNMENT = 4096
F16 = TensorProto.FLOAT16


def weight_shapes(layers: int = LAYERS) -> dict[str, tuple[int, ...]]:
    """Of every weight; matrices are [inputs, outputs]."""
    shapes: dict[str, tuple[int, ...]] = {"embedding": (VOCABULARY, WIDTH)}
    for i in range(layers):
        shapes |= {f"layers.{i}.norm1": (WIDTH,), f"layers.{i}.q": (WIDTH, WIDTH), f"layers.{i}.k": (WIDTH, KV_HEADS * HEAD),
                   f"layers.{i}.v": (WIDTH, KV_HEADS * HEAD), f"layers.{i}.o": (WIDTH, WIDTH), f"layers.{i}.norm2": (WIDTH,),
                   f"layers.{i}.gate": (WIDTH, FFN), f"layers.{i}.up": (WIDTH, FFN), f"layers.{i}.down": (FFN, WIDTH)}
    return shapes | {"norm": (WIDTH,), "head": (WIDTH, VOCABULARY)}


def nodes(layers: int) -> Iterator[NodeProto]:
    def node(op: str, inputs: str, outputs: str, **attributes: object) -> NodeProto:
        return helper.make_node(op, [i if i != "-" else "" for i in inputs.split()], outputs.split(), name=outputs.split()[0] + "/" + op, **attributes)

    norm = {"axis": -1, "epsilon": EPSILON}
    yield node("Gather", "embedding token", "x.0")
    for i in range(layers):
        w = f"layers.{i}."
        yield node("RMSNormalization", f"x.{i} {w}norm1", f"{w}h", **norm)
        for p in "qkv":
            yield node("MatMul", f"{w}h {w}{p}", f"{w}{p}.out")
        for p, heads in (("q", HEADS), ("k", KV_HEADS)):
            yield node("RotaryEmbedding", f"{w}{p}.out cos sin", f"{w}{p}.turned", num_heads=heads)
        yield node("Attention", f"{w}q.turned {w}k.turned {w}v.out - past_key.{i} past_value.{i}", f"{w}a present_key.{i} present_value.{i}",
                   q_num_heads=HEADS, kv_num_heads=KV_HEADS)
        yield node("MatMul", f"{w}a {w}o", f"{w}o.out")
        yield node("Add", f"x.{i} {w}o.out", f"{w}x")
        yield node("RMSNormalization", f"{w}x {w}norm2", f"{w}h2", **norm)
        yield node("MatMul", f"{w}h2 {w}gate", f"{w}gate.out")
        yield node("MatMul", f"{w}h2 {w}up", f"{w}up.out")
        yield node("Sigmoid", f"{w}gate.out", f"{w}s")
        yield node("Mul", f"{w}gate.out {w}s", f"{w}silu")
        yield node("Mul", f"{w}silu {w}up.out", f"{w}g")
        yield node("MatMul", f"{w}g {w}down", f"{w}down.out")
        yield node("Add", f"{w}x {w}down.out", f"x.{i + 1}")
    yield node("RMSNormalization", f"x.{layers} norm", "h", **norm)
    yield node("MatMul", "h head", "logits")


def write(path: Path, weight: Callable[[str, tuple[int, ...]], np.ndarray], layers: int = LAYERS) -> ModelProto:
    """Writes the model at `path` and its weights, `weight(name, shape)` in f16, at `path`.weights."""
    tensors, at = [], 0
    with path.with_suffix(".weights").open("wb") as file:
        for name, shape in weight_shapes(layers).items():
            data = np.ascontiguousarray(weight(name, shape), np.float16)
            if data.shape != shape:
                raise ValueError(f"{name}: {data.shape}, wanted {shape}")
            file.write(b"\0" * (-at % ALIGNMENT))
            at += -at % ALIGNMENT
            t = TensorProto(name=name, dims=shape, data_type=F16, data_location=TensorProto.EXTERNAL)
            for key, value in (("location", path.with_suffix(".weights").name), ("offset", at), ("length", data.nbytes)):
                t.external_data.add(key=key, value=str(value))
            tensors.append(t)
            data.tofile(file)
            at += data.nbytes
    value = helper.make_tensor_value_info
    inputs = [value("token", TensorProto.INT64, [1, 1])] + [value(n, F16, [1, 1, HEAD // 2]) for n in ("cos", "sin")]
    outputs = [value("logits", F16, [1, 1, VOCABULARY])]
    for i in range(layers):
        inputs += [value(f"past_{n}.{i}", F16, [1, KV_HEADS, "past", HEAD]) for n in ("key", "value")]
        outputs += [value(f"present_{n}.{i}", F16, [1, KV_HEADS, "past + 1", HEAD]) for n in ("key", "value")]
    graph = helper.make_graph(list(nodes(layers)), "llama", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    save(model, path)
    return model
