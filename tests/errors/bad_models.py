"""Models and command lines that the compiler must refuse, and what its message has to say.

`CASES[name]` is a `Bad`: what writes the input into a folder, the arguments, and words that the message must contain
besides being word for word the recorded one (expected/NAME.txt).
"""
from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F32, I64 = TensorProto.FLOAT, TensorProto.INT64


@dataclass
class Bad:
    """`make(folder)` writes folder/model.onnx and what else is needed; `words` are searched in the message."""

    make: Callable[[Path], None]
    words: list[str]
    args: list[str] = field(default_factory=lambda: ["compile", "model.onnx", "-o", "model.so"])


def info(name: str, shape: list[Any], dtype: int = F32) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def graph_model(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto],
                initializers: list[TensorProto] | None = None, opset: int = 17) -> onnx.ModelProto:
    m = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, initializers or []),
                          opset_imports=[helper.make_opsetid("", opset)])
    m.ir_version = 8
    return m


def relu(opset: int = 17) -> onnx.ModelProto:
    return graph_model([helper.make_node("Relu", ["x"], ["y"], name="act")], [info("x", ["N", 4])], [info("y", ["N", 4])], opset=opset)


def saved(model: onnx.ModelProto | bytes) -> Callable[[Path], None]:
    """Writes `model` (or raw bytes) as model.onnx."""
    raw = model if isinstance(model, bytes) else model.SerializeToString()
    return lambda folder: (folder / "model.onnx").write_bytes(raw) and None


def one(op: str, inputs: list[onnx.ValueInfoProto], name: str = "bad/node", opset: int = 17, domain: str = "",
        **attributes: Any) -> onnx.ModelProto:
    """A single node on `inputs`."""
    node = helper.make_node(op, [i.name for i in inputs], ["y"], name=name, domain=domain, **attributes)
    m = graph_model([node], inputs, [info("y", [])], opset=opset)
    m.graph.output[0].type.tensor_type.ClearField("shape")
    if domain:
        m.opset_import.append(helper.make_opsetid(domain, 1))
    return m


def nothing(_: Path) -> None:
    """No file at all."""


def cycle() -> onnx.ModelProto:
    return graph_model([helper.make_node("Add", ["x", "b"], ["a"], name="first"), helper.make_node("Relu", ["a"], ["b"], name="second")],
                       [info("x", [2])], [info("b", [2])])


def declared(output: list[Any], middle: list[Any] | None = None, shape: list[Any] | None = None) -> onnx.ModelProto:
    """Two Relus, with what is said of the shapes of their results."""
    nodes = [helper.make_node("Relu", ["x"], ["mid"]), helper.make_node("Relu", ["mid"], ["y"])]
    m = graph_model(nodes, [info("x", shape or [2, 4])], [info("y", output)])
    m.graph.value_info.extend([info("mid", middle)] if middle else [])
    return m


def several_errors() -> onnx.ModelProto:
    return graph_model([helper.make_node("Foo", ["x"], ["a"], name="one/foo"), helper.make_node("Relu", ["a"], ["b"], name="fine"),
                        helper.make_node("Bar", ["b"], ["c"], name="two/bar")], [info("x", [2])], [info("c", [2])])


def short_initializer(raw: int, dims: list[int]) -> onnx.ModelProto:
    """An initializer `w` that has `raw` bytes for `dims` of f32."""
    t = TensorProto(name="w", data_type=F32, dims=dims, raw_data=b"\0" * raw)
    return graph_model([helper.make_node("Add", ["x", "w"], ["y"], name="add")], [info("x", dims)], [info("y", dims)], [t])


def external(location: str, length: int = 16, offset: int = 0, size: int = 16, link: str = "") -> Callable[[Path], None]:
    """An initializer in a file of `size` bytes, made where the location points (below the folder's parent)."""
    def make(folder: Path) -> None:
        t = TensorProto(name="w", data_type=F32, dims=[4], data_location=TensorProto.EXTERNAL)
        where = location.replace("ABSOLUTE", str(folder.parent / "outside.bin"))
        for key, value in (("location", where), ("offset", offset), ("length", length)):
            t.external_data.add(key=key, value=str(value))
        m = graph_model([helper.make_node("Add", ["x", "w"], ["y"], name="add")], [info("x", [4])], [info("y", [4])], [t])
        (folder / "model.onnx").write_bytes(m.SerializeToString())
        (folder.parent / "outside.bin").write_bytes(b"\0" * size)
        if link:
            os.symlink(folder.parent / "outside.bin", folder / link)
        elif "/" not in where:
            (folder / where).write_bytes(b"\0" * size)
    return make


def constant_of(dims: list[int]) -> onnx.ModelProto:
    shape = numpy_helper.from_array(np.array(dims, dtype=np.int64), "shape")
    return graph_model([helper.make_node("ConstantOfShape", ["shape"], ["y"], name="fill")], [], [info("y", ["a", "b"])], [shape])


def duplicate_value() -> onnx.ModelProto:
    return graph_model([helper.make_node("Relu", ["x"], ["y"], name="first"), helper.make_node("Neg", ["x"], ["y"], name="second")],
                       [info("x", [2])], [info("y", [2])])


def missing_value() -> onnx.ModelProto:
    return graph_model([helper.make_node("Relu", ["ghost"], ["y"], name="act")], [info("x", [2])], [info("y", [2])])


def without_opset() -> onnx.ModelProto:
    m = relu()
    del m.opset_import[:]
    return m


def undefined_output() -> onnx.ModelProto:
    m = relu()
    m.graph.output[0].name = "nowhere"
    return m


X = info("x", [1, 3, 8, 8])
COMPILE = ["compile", "model.onnx", "-o", "model.so"]
CASES: dict[str, Bad] = {
    "no_file": Bad(nothing, ["model.onnx"]),
    "empty_file": Bad(saved(b""), ["model.onnx", "empty"]),
    "truncated": Bad(saved(short_initializer(400, [100]).SerializeToString()[:200]), ["model.onnx"]),
    "random_bytes": Bad(saved(np.random.default_rng(3).bytes(3000)), ["model.onnx"]),
    "text_file": Bad(saved(b"this is not a model\n" * 20), ["model.onnx"]),
    "cycle": Bad(saved(cycle()), ["cycle", "first", "Add"]),
    "missing_value": Bad(saved(missing_value()), ["act", "Relu", "ghost"]),
    "duplicate_value": Bad(saved(duplicate_value()), ["second", "Neg", "y"]),
    "undefined_output": Bad(saved(undefined_output()), ["nowhere"]),
    "output_shape": Bad(saved(declared([3, 4])), ["output 'y'", "[3, 4]", "[2, 4]"]),
    "output_rank": Bad(saved(declared([8])), ["output 'y'", "[8]", "[2, 4]"]),
    "value_shape": Bad(saved(declared([2, 4], [2, 5])), ["value 'mid'", "[2, 5]", "[2, 4]"]),
    "output_free_dim": Bad(saved(declared(["K", 0], None, ["N", 4])), ["output 'y'", "[K, 0]", "[N, 4]"]),
    "unknown_op": Bad(saved(one("Foo", [X])), ["node 0", "Foo", "bad/node"]),
    "unknown_domain": Bad(saved(one("Relu", [X], domain="my.ops")), ["node 0", "Relu", "bad/node", "my.ops"]),
    "several_errors": Bad(saved(several_errors()), ["one/foo", "two/bar", "2 errors"]),
    "opset_too_new": Bad(saved(relu(opset=99)), ["opset", "99"]),
    "opset_too_old": Bad(saved(relu(opset=1)), ["opset", "1"]),
    "opset_missing": Bad(saved(without_opset()), ["opset"]),
    "attribute_type": Bad(saved(one("Softmax", [X], axis="one")), ["node 0", "Softmax", "axis"]),
    "attribute_value": Bad(saved(one("Softmax", [X], axis=7)), ["node 0", "Softmax", "axis", "7"]),
    "missing_input": Bad(saved(one("Add", [X])), ["node 0", "Add", "bad/node"]),
    "too_many_inputs": Bad(saved(one("Relu", [X, info("z", [2])])), ["node 0", "Relu"]),
    "broadcast": Bad(saved(one("Add", [info("a", [2, 3]), info("b", [4, 5])])), ["node 0", "Add", "[2, 3]", "[4, 5]"]),
    "dtypes_differ": Bad(saved(one("Add", [info("a", [2]), info("b", [2], I64)])), ["node 0", "Add", "f32", "i64"]),
    "matmul_inner": Bad(saved(one("MatMul", [info("a", [2, 3]), info("b", [4, 5])])), ["node 0", "MatMul", "3", "4"]),
    "conv_channels": Bad(saved(one("Conv", [X, info("w", [4, 5, 3, 3])])), ["node 0", "Conv", "3", "5"]),
    "conv_group": Bad(saved(one("Conv", [X, info("w", [4, 1, 3, 3])], group=2)), ["node 0", "Conv", "group"]),
    "conv_kernel_shape": Bad(saved(one("Conv", [X, info("w", [4, 3, 3, 3])], kernel_shape=[5, 5])), ["node 0", "Conv", "kernel_shape"]),
    "reshape_count": Bad(saved(graph_model(
        [helper.make_node("Reshape", ["x", "s"], ["y"], name="view")], [info("x", [2, 3])], [info("y", [4, 2])],
        [numpy_helper.from_array(np.array([4, 2], dtype=np.int64), "s")])), ["node 0", "Reshape", "view", "[2, 3]"]),
    "negative_dim": Bad(saved(one("Relu", [info("x", [-3, 4])])), ["x", "-3"]),
    "size_overflow": Bad(saved(constant_of([2**32, 2**32])), ["node 0", "ConstantOfShape", "fill"]),
    "size_wraps": Bad(saved(short_initializer(4, [2**62 + 1])), ["w"]),
    "initializer_short": Bad(saved(short_initializer(12, [4])), ["w", "12", "16"]),
    "initializer_long": Bad(saved(short_initializer(20, [4])), ["w", "20", "16"]),
    "external_parent": Bad(external("../outside.bin"), ["w", "../outside.bin"]),
    "external_absolute": Bad(external("ABSOLUTE"), ["w", "outside.bin"]),
    "external_symlink": Bad(external("link.bin", link="link.bin"), ["w", "link.bin"]),
    "external_short": Bad(external("weights.bin", size=8), ["w", "weights.bin"]),
    "external_offset": Bad(external("weights.bin", offset=1 << 40), ["w", "weights.bin"]),
    "external_negative": Bad(external("weights.bin", offset=-4), ["w"]),
    "external_length": Bad(external("weights.bin", length=8), ["w", "8", "16"]),
    "usage_unknown_option": Bad(saved(relu()), ["--fast"], [*COMPILE, "--fast"]),
    "usage_unknown_command": Bad(nothing, ["frobnicate"], ["frobnicate"]),
    "usage_target": Bad(saved(relu()), ["--target", "vax"], [*COMPILE, "--target=vax"]),
    "usage_dim": Bad(saved(relu()), ["--dim", "N=9..1"], [*COMPILE, "--dim", "N=9..1"]),
    "usage_dim_unknown": Bad(saved(relu()), ["Q"], [*COMPILE, "--dim", "Q=1..4"]),
    "usage_shape": Bad(saved(relu()), ["x"], [*COMPILE, "--shape", "x=1,2,3"]),
    "usage_dim_twice": Bad(saved(relu()), ["--dim", "twice"], [*COMPILE, "--dim", "N=2", "--dim", "N=3"]),
    "usage_shape_negative": Bad(saved(relu()), ["--shape", "negative"], [*COMPILE, "--shape", "x=-2,4"]),
    "usage_shape_twice": Bad(saved(relu()), ["--shape", "twice"], [*COMPILE, "--shape", "x=2,4", "--shape", "x=3,4"]),
    "usage_print_after": Bad(saved(relu()), ["--print-after", "nothing"], [*COMPILE, "--print-after", "nothing"]),
    "usage_stop_after": Bad(saved(relu()), ["--stop-after", "nothing"], [*COMPILE, "--stop-after", "nothing"]),
    "usage_output_device": Bad(saved(relu()), ["/dev/null", "not a file"], ["compile", "model.onnx", "-o", "/dev/null"]),
    "usage_output_is_folder": Bad(saved(relu()), ["..", "not a file"], ["compile", "model.onnx", "-o", ".."]),
    "attribute_unknown": Bad(saved(one("Conv", [X, info("w", [4, 3, 3, 3])], kernal_shape=[3, 3])), ["node 0", "Conv", "kernal_shape", "kernel_shape"]),
    "attribute_of_another_opset": Bad(saved(one("ReduceSum", [X], axes=[1])), ["node 0", "ReduceSum", "axes", "17"]),
    "usage_output_folder": Bad(saved(relu()), ["nowhere"], ["compile", "model.onnx", "-o", "nowhere/model.so"]),
}
