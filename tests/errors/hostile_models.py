"""Models made to break a compiler: damaged tensors, sizes that explode, recursion, names, places of files.

`CASES` as in bad_models.py. `LEGAL` are models as strange that must compile, in the time and memory of any other.
"""
from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnx
from bad_models import F32, I64, Bad, external, graph_model, info, relu, saved
from onnx import TensorProto, helper, numpy_helper

N = helper.make_node
X, Y = info("x", [2]), info("y", [2])
ANY = info("y", None)


def array(values: Any, name: str, dtype: Any = np.int64) -> TensorProto:
    return numpy_helper.from_array(np.array(values, dtype=dtype), name)


def with_functions(functions: list[onnx.FunctionProto], op: str) -> onnx.ModelProto:
    """y = op(x), where `op` is one of `functions` of the domain "my"."""
    m = graph_model([N(op, ["x"], ["y"], name="call", domain="my")], [X], [Y])
    m.functions.extend(functions)
    m.opset_import.append(helper.make_opsetid("my", 1))
    return m


def function(name: str, nodes: list[onnx.NodeProto], inputs: tuple[str, ...] = ("a",)) -> onnx.FunctionProto:
    return helper.make_function("my", name, list(inputs), ["r"], nodes,
                                [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)])


def call(name: str, x: str, y: str) -> onnx.NodeProto:
    return N(name, [x], [y], domain="my")


def doubling_functions(depth: int) -> onnx.ModelProto:
    """F_k calls F_{k-1} twice: 2^depth nodes from a few hundred bytes."""
    fs = [function("F0", [N("Relu", ["a"], ["r"])])]
    fs += [function(f"F{k + 1}", [call(f"F{k}", "a", "q"), call(f"F{k}", "q", "r")]) for k in range(depth)]
    return with_functions(fs, f"F{depth}")


def chain(op: str, length: int, twice: bool = False, shape: list[Any] | None = None) -> onnx.ModelProto:
    """`length` nodes one behind the other; with `twice`, each takes the value before it twice."""
    names = ["x"] + [f"v{k}" for k in range(1, length)] + ["y"]
    nodes = [N(op, [names[k]] * (2 if twice else 1), [names[k + 1]], name=f"n{k}",
               **({"axis": 0} if op == "Concat" else {})) for k in range(length)]
    return graph_model(nodes, [info("x", shape or [2])], [ANY])


def cycle_of(length: int) -> onnx.ModelProto:
    nodes = [N("Relu", [f"v{k}"], [f"v{(k + 1) % length}"]) for k in range(length)]
    return graph_model(nodes, [X], [info("v0", [2])])


def squared_dims(times: int) -> onnx.ModelProto:
    """A shape whose dims are those of x to the power of 2^times."""
    nodes = [N("Shape", ["x"], ["s0"])]
    nodes += [N("Mul", [f"s{k}"] * 2, [f"s{k + 1}"], name=f"square{k}") for k in range(times)]
    nodes += [N("Expand", ["one", f"s{times}"], ["y"], name="expand")]
    return graph_model(nodes, [info("x", ["N", "M"])], [ANY], [array([1], "one", np.float32)])


def growing_dims(times: int) -> onnx.ModelProto:
    """Sums and products of two dims by turns: polynomials that explode."""
    nodes = [N("Shape", ["x"], ["s0"]), N("Shape", ["z"], ["s1"])]
    nodes += [N("Add" if k % 2 else "Mul", [f"s{k}", f"s{k + 1}"], [f"s{k + 2}"], name=f"step{k}") for k in range(times)]
    nodes += [N("Expand", ["one", f"s{times + 1}"], ["y"], name="expand")]
    return graph_model(nodes, [info("x", ["N"]), info("z", ["M"])], [ANY], [array([1], "one", np.float32)])


def clamped_dims(times: int) -> onnx.ModelProto:
    """Each step concatenates and slices: dims of nested min and max."""
    nodes, now = [], "x"
    for k in range(times):
        nodes += [N("Concat", [now, now], [f"a{k}"], axis=0), N("Slice", [f"a{k}", "s", "e"], [f"v{k}"], name=f"cut{k}")]
        now = f"v{k}"
    nodes += [N("Relu", [now], ["y"])]
    return graph_model(nodes, [info("x", ["N"])], [ANY], [array([1], "s"), array([-1], "e")])


def long_shape_arithmetic(length: int) -> onnx.ModelProto:
    """A shape that is a run-time scalar plus one, many times over."""
    nodes = [N("Unsqueeze", ["n", "axis"], ["v0"])]
    nodes += [N("Add", [f"v{k}", "one"], [f"v{k + 1}"]) for k in range(length)]
    nodes += [N("Reshape", ["x", f"v{length}"], ["y"], name="view")]
    return graph_model(nodes, [info("n", [], I64), info("x", ["N"])], [ANY], [array([0], "axis"), array([1], "one")])


def adds(t: TensorProto, dtype: int = F32, dims: list[int] | None = None) -> onnx.ModelProto:
    """y = x + t."""
    shape = dims or [4]
    return graph_model([N("Add", ["x", "w"], ["y"], name="add")], [info("x", shape, dtype)], [info("y", shape, dtype)], [t])


def tensor(dtype: int, dims: list[int], **data: Any) -> TensorProto:
    return TensorProto(name="w", data_type=dtype, dims=dims, **data)


def sparse(dims: list[int], at: int) -> onnx.ModelProto:
    m = graph_model([N("Add", ["x", "w"], ["y"], name="add")], [info("x", [4])], [info("y", [4])])
    m.graph.sparse_initializer.append(onnx.SparseTensorProto(
        values=tensor(F32, [1], float_data=[1.0]), indices=TensorProto(data_type=I64, dims=[1], int64_data=[at]), dims=dims))
    return m


def nested_messages(depth: int) -> bytes:
    """A graph in an attribute of a node of a graph ..., as bytes: deeper than a protobuf reader may go."""
    def field(tag: int, body: bytes) -> bytes:
        size, length = b"", len(body)
        while True:
            size += bytes([length & 127 | (128 if length > 127 else 0)])
            length >>= 7
            if not length:
                return bytes([tag << 3 | 2]) + size + body
    graph = b""
    for _ in range(depth):
        graph = field(1, field(5, field(6, graph)))
    return bytes([8, 8]) + field(7, graph)


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "model.onnx")


def folder_for_model(folder: Path) -> None:
    (folder / "model.onnx").mkdir()


def external_pipe(folder: Path) -> None:
    external("nowhere")(folder)
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    model.graph.initializer[0].external_data[0].value = "pipe"
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    os.mkfifo(folder / "pipe")


def default_of(declared: onnx.ValueInfoProto) -> onnx.ModelProto:
    """An initializer f32[2] that is also an input."""
    return graph_model([N("Relu", ["w"], ["y"])], [declared], [Y], [array([1, 2], "w", np.float32)])


def one_node(op: str, inputs: list[onnx.ValueInfoProto], constants: list[TensorProto] | None = None,
             names: list[str] | None = None, opset: int = 17, **attributes: Any) -> onnx.ModelProto:
    given = names or [*(i.name for i in inputs), *(c.name for c in constants or [])]
    return graph_model([N(op, given, ["y"], name="bad/node", **attributes)], inputs, [ANY], constants, opset)


def rows_of_a_loop() -> onnx.ModelProto:
    """Scanned results whose own extents change from one iteration to the next."""
    body = helper.make_graph([N("Identity", ["c"], ["c2"]), N("NonZero", ["v"], ["s"]), N("Identity", ["v"], ["v2"])], "body",
                             [info("i", [], I64), info("c", [], TensorProto.BOOL), info("v", ["N"])],
                             [info("c2", [], TensorProto.BOOL), info("v2", ["N"]), info("s", None, I64)])
    return graph_model([N("Loop", ["n", "t", "x"], ["w", "y"], body=body, name="the/loop")],
                       [info("n", [], I64), info("t", [], TensorProto.BOOL), info("x", ["N"])], [info("y", None, I64)])


def scan_with_lengths() -> onnx.ModelProto:
    body = helper.make_graph([N("Add", ["s", "x"], ["s2"])], "body", [info("s", [2]), info("x", [2])], [info("s2", [2])])
    return graph_model([N("Scan", ["n", "s0", "xs"], ["y"], body=body, num_scan_inputs=1)],
                       [info("n", [3], I64), info("s0", [3, 2]), info("xs", [3, 4, 2])], [ANY], opset=8)


def parts(count: int, opset: int = 17) -> onnx.ModelProto:
    """A tensor cut into many parts, which are put together in the other order."""
    names = [f"v{k}" for k in range(count)]
    return graph_model([N("Split", ["x", "sizes"], names, axis=0), N("Concat", names[::-1], ["y"], axis=0)], [info("x", [count, 2])], [ANY],
                       [array([1] * count, "sizes")], opset)


IMAGE, KERNEL = info("x", [1, 3, 8, 8]), info("w", [4, 3, 3, 3])
BIG = 2**62
CASES: dict[str, Bad] = {
    "function_recursive": Bad(saved(with_functions([function("F", [call("F", "a", "r")])], "F")), ["my::F", "32 deep"]),
    "function_doubling": Bad(saved(doubling_functions(31)), ["my::F", "200000 nodes"]),
    "function_no_result": Bad(saved(with_functions([function("F", [N("Relu", ["a"], ["z"])])], "F")), ["call", "'r'"]),
    "function_body": Bad(
        saved(with_functions([function("F", [N("Nope", ["a"], ["r"], name="in")])], "F")), ["call/in", "Nope"]),
    "cycle_long": Bad(saved(cycle_of(100_000)), ["node 0", "more)"]),
    "concat_doubling": Bad(saved(chain("Concat", 70, twice=True, shape=["N"])), ["n57", "Concat"]),
    "dims_growing": Bad(saved(growing_dims(40)), ["step"]),
    "dims_clamped": Bad(saved(clamped_dims(40)), ["cut", "4096"]),
    "int4_short": Bad(
        saved(adds(tensor(TensorProto.INT4, [5], raw_data=b"\1\2"), TensorProto.INT4, [5])), ["'w'", "2", "3"]),
    "int4_long": Bad(
        saved(adds(tensor(TensorProto.UINT4, [5], int32_data=[1] * 5), TensorProto.UINT4, [5])), ["'w'", "5", "3"]),
    "int4_arithmetic": Bad(
        saved(adds(tensor(TensorProto.INT4, [4], raw_data=b"\1\2"), TensorProto.INT4)), ["node 0", "Add", "i4"]),
    "raw_odd": Bad(saved(adds(tensor(F32, [4], raw_data=b"\0" * 15))), ["'w'", "15", "16"]),
    "wrong_field": Bad(saved(adds(tensor(F32, [4], int64_data=[1, 2, 3, 4]))), ["'w'", "0 elements"]),
    "strings_for_numbers": Bad(saved(adds(tensor(F32, [4], string_data=[b"1"] * 4))), ["'w'"]),
    "element_type": Bad(saved(adds(tensor(99, [4], raw_data=b"\0" * 16))), ["'w'", "99"]),
    "element_type_none": Bad(saved(adds(tensor(0, [4], raw_data=b"\0" * 16))), ["'w'", "UNDEFINED"]),
    "initializer_negative": Bad(saved(adds(tensor(F32, [-2, -2], raw_data=b"\0" * 16))), ["'w'", "[-2, -2]"]),
    "initializer_rank": Bad(saved(adds(tensor(F32, [1] * 17, raw_data=b"\0" * 4))), ["'w'", "17 dims", "16"]),
    "initializer_unnamed": Bad(
        saved(graph_model([N("Relu", ["x"], ["y"])], [X], [Y], [array([1], "")])), ["initializer", "no name"]),
    "initializer_twice": Bad(
        saved(graph_model([N("Relu", ["w"], ["y"])], [], [Y], [array([1, 2], "w", np.float32)] * 2)), ["'w'", "twice"]),
    "default_shape": Bad(saved(default_of(info("w", [3]))), ["'w'", "f32[2]"]),
    "default_type": Bad(saved(default_of(info("w", [2], I64))), ["'w'", "f32[2]"]),
    "input_rank": Bad(saved(one_node("Relu", [info("x", [1] * 17)])), ["'x'", "17 dims", "16"]),
    "input_unnamed": Bad(saved(graph_model([N("Relu", ["x"], ["y"])], [X, info("", [2])], [Y])), ["no name"]),
    "input_twice": Bad(saved(graph_model([N("Relu", ["x"], ["y"])], [X, X], [Y])), ["'x'", "twice"]),
    "input_untyped": Bad(saved(one_node("Relu", [onnx.ValueInfoProto(name="x")])), ["'x'", "no type"]),
    "input_huge": Bad(saved(one_node("Relu", [info("x", [2**32, 2**32])])), ["'x'", "memory"]),
    "no_outputs": Bad(saved(graph_model([N("Relu", ["x"], ["y"])], [X], [])), ["no outputs"]),
    "no_op_type": Bad(saved(one_node("", [X])), ["node 0", "bad/node", "op_type"]),
    "name_control": Bad(saved(one_node("Nope\x1b[31m", [X])), ["Nope\\x1b[31m"]),
    "name_long": Bad(saved(one_node("R" * 100_000, [X])), ["node 0", "RRR..."]),
    "sparse_index": Bad(saved(sparse([4], 99)), ["'w'", "99"]),
    "sparse_huge": Bad(saved(sparse([2**31 - 1], 99)), ["'w'", "too large"]),
    "messages_deep": Bad(saved(nested_messages(5000)), ["damaged"]),
    "file_pipe": Bad(pipe, ["not a file"]),
    "file_folder": Bad(folder_for_model, ["not a file"]),
    "external_pipe": Bad(external_pipe, ["'w'", "not a regular file"]),
    "external_offset_text": Bad(external("weights.bin", offset="12abc"), ["'w'", "12abc"]),
    "external_offset_long": Bad(external("weights.bin", offset="9" * 40), ["'w'", "999"]),
    "ir_version": Bad(saved((lambda m: (setattr(m, "ir_version", -1), m)[1])(relu())), ["IR version -1"]),
    "conv_pads": Bad(saved(one_node("Conv", [IMAGE, KERNEL], pads=[BIG] * 4)), ["node 0", "pads"]),
    "conv_strides": Bad(saved(one_node("Conv", [IMAGE, KERNEL], strides=[0, 1])), ["node 0", "strides"]),
    "conv_no_group": Bad(saved(one_node("Conv", [IMAGE, KERNEL], group=0)), ["node 0", "group"]),
    "pool_kernel": Bad(saved(one_node("MaxPool", [IMAGE], kernel_shape=[0, 2])), ["node 0", "kernel_shape"]),
    "slice_step": Bad(
        saved(one_node("Slice", [X], [array([0], "s"), array([1], "e"), array([0], "a"), array([0], "t")])),
        ["node 0", "step"]),
    "tile_huge": Bad(saved(one_node("Tile", [X], [array([BIG], "r")])), ["node 0", "Tile"]),
    "range_nan": Bad(
        saved(one_node("Range", [], [array(0, "a", np.float32), array(np.nan, "b", np.float32), array(1, "c", np.float32)])),
        ["node 0", "Range"]),
    "resize_nan": Bad(
        saved(one_node("Resize", [IMAGE], [array([1, 1, np.nan, 2], "s", np.float32)], ["x", "", "s"])),
        ["node 0", "scale"]),
    "lstm_hidden": Bad(
        saved(one_node("LSTM", [info("x", [3, 2, 5]), info("w", [1, 16, 5]), info("r", [1, 16, 4])], hidden_size=BIG)),
        ["node 0", "hidden_size"]),
    "onehot_values": Bad(
        saved(one_node("OneHot", [info("i", [2], I64)], [array(3, "d"), array([0, 1, 2], "v", np.float32)])), ["node 0", "two"]),
    "cast_unknown": Bad(saved(one_node("Cast", [X], to=9999)), ["node 0", "to", "9999"]),
    "empty_huge": Bad(saved(one_node("Relu", [info("x", [0, 2**40, 2**40])])), ["'x'", "too large"]),
    "loop_rows_change": Bad(saved(rows_of_a_loop()), ["node 0", "the/loop", "iterations"]),
    "scan_lengths": Bad(saved(scan_with_lengths()), ["node 0", "sequence_lens"]),
    "einsum_terms": Bad(saved(one_node("Einsum", [X], equation="i,i,i->i")), ["node 0", "3 terms"]),
}

LEGAL: dict[str, Callable[[Path], None]] = {
    "chain_long": saved(chain("Relu", 100_000)),
    "square_chain": saved(chain("Mul", 60, twice=True)),
    "sum_wide": saved(graph_model([N("Sum", ["x"] * 2000, ["y"])], [X], [Y])),
    "concat_wide": saved(graph_model([N("Concat", ["x"] * 2000, ["y"], axis=0)], [X], [ANY])),
    "parts": saved(parts(300)),
    "shape_arithmetic_long": saved(long_shape_arithmetic(20_000)),
    "dims_squared": saved(squared_dims(20)),
    "conv_no_channels": saved(one_node("Conv", [IMAGE, info("w", [0, 3, 3, 3])])),
    "names_no_utf8": saved(graph_model([N("Relu", ["x\x7f"], ["y"], name="\x7f")], [info("x\x7f", ["N\x7f"])], [ANY])
                           .SerializeToString().replace(b"\x7f", b"\x80")),
    "names_strange": saved(graph_model([N("Relu", ["x\n%s\0"], ["\ty"], name="\x1b[31m")], [info("x\n%s\0", [2])], [info("\ty", [2])])),
}
