"""The pinned corpus: small graphs made here, and models by name. Each shows one part of the compiler; none is random
without a seed. Changing one changes its golden file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from models import model, perceptron, random  # noqa: E402

N = helper.make_node


def conv_block() -> onnx.ModelProto:
    """Two convolutions with batch norm and a residual, depthwise and pooling: channels-last memory."""
    w = {
        "w": random(16, 3, 3, 3),
        "d": random(16, 1, 3, 3, seed=1),
        "p": random(16, 16, 1, 1, seed=2),
        "scale": random(16, seed=3) + 2,
        "shift": random(16, seed=4),
        "mean": random(16, seed=5),
        "var": np.abs(random(16, seed=6)) + 1,
    }
    return model(
        [
            N("Conv", ["x", "w"], ["c"], name="stem", pads=[1, 1, 1, 1], strides=[2, 2]),
            N("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["b"], name="bn"),
            N("Relu", ["b"], ["r"]),
            N("Conv", ["r", "d"], ["dw"], name="depthwise", group=16, pads=[1, 1, 1, 1]),
            N("Conv", ["dw", "p"], ["pw"], name="pointwise"),
            N("Add", ["pw", "r"], ["s"]),
            N("MaxPool", ["s"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
            N("GlobalAveragePool", ["m"], ["g"]),
            N("Flatten", ["g"], ["y"]),
        ],
        {"x": ["N", 3, "H", "W"]},
        ["y"],
        w,
    )


def attention() -> onnx.ModelProto:
    """A head of attention with a mask, as PyTorch writes it, and the layer norm after it."""
    w = {
        "wq": random(32, 32),
        "wk": random(32, 32, seed=1),
        "wv": random(32, 32, seed=2),
        "scale": np.float32(0.25).reshape(()),
        "heads": np.array([0, 0, 4, 8], np.int64),
        "flat": np.array([0, 0, 32], np.int64),
        "g": random(32, seed=3),
        "b": random(32, seed=4),
    }
    nodes = []
    for n, axes in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            N("MatMul", ["x", "w" + n], [n + "0"], name=n),
            N("Reshape", [n + "0", "heads"], [n + "1"]),
            N("Transpose", [n + "1"], [n + "2"], perm=axes),
        ]
    nodes += [
        N("MatMul", ["q2", "k2"], ["s0"], name="scores"),
        N("Mul", ["s0", "scale"], ["s1"]),
        N("Add", ["s1", "mask"], ["s2"]),
        N("Softmax", ["s2"], ["p"], axis=-1),
        N("MatMul", ["p", "v2"], ["o0"], name="mix"),
        N("Transpose", ["o0"], ["o1"], perm=[0, 2, 1, 3]),
        N("Reshape", ["o1", "flat"], ["o"]),
        N("Add", ["o", "x"], ["r"]),
        N("LayerNormalization", ["r", "g", "b"], ["y"], name="norm"),
    ]
    return model(nodes, {"x": ["B", "S", 32], "mask": ["B", 1, 1, "S"]}, ["y"], w)


def gelu_by_parts() -> onnx.ModelProto:
    w = {
        "two": np.float32(1.4142135).reshape(()),
        "one": np.float32(1).reshape(()),
        "half": np.float32(0.5).reshape(()),
    }
    return model(
        [
            N("Div", ["x", "two"], ["a"]),
            N("Erf", ["a"], ["e"]),
            N("Add", ["e", "one"], ["f"]),
            N("Mul", ["x", "f"], ["g"]),
            N("Mul", ["g", "half"], ["y"]),
        ],
        {"x": ["N", 100]},
        ["y"],
        w,
    )


def data_dependent() -> onnx.ModelProto:
    """A dim that only the data knows, and what depends on it: a second segment of the arena."""
    return model(
        [
            N("NonZero", ["x"], ["at"]),
            N("Transpose", ["at"], ["t"], perm=[1, 0]),
            N("Cast", ["t"], ["f"], to=1),
            N("ReduceSum", ["f", "axis"], ["s"], keepdims=0),
            N("Exp", ["s"], ["y"]),
        ],
        {"x": ["N", 6]},
        ["y"],
        {"axis": np.array([1], np.int64)},
    )


def branches() -> onnx.ModelProto:
    """An If by data, whose arms read a value from outside."""

    def arm(op: str) -> onnx.GraphProto:
        return helper.make_graph(
            [N(op, ["x"], [op + "_y"])], op, [], [helper.make_tensor_value_info(op + "_y", TensorProto.FLOAT, None)]
        )

    return model(
        [
            N("ReduceMax", ["x"], ["m"], keepdims=0),
            N("Greater", ["m", "zero"], ["c"]),
            N("If", ["c"], ["z"], then_branch=arm("Sqrt"), else_branch=arm("Neg")),
            N("Add", ["z", "x"], ["y"]),
        ],
        {"x": ["N", 5]},
        ["y"],
        {"zero": np.float32(0).reshape(())},
    )


def rows_and_moves() -> onnx.ModelProto:
    """Slices, a concat, a gather, a reduction over rows, all small."""
    w = {
        "b": np.array([1], np.int64),
        "e": np.array([5], np.int64),
        "ax": np.array([1], np.int64),
        "at": np.array([2, 0], np.int64),
    }
    return model(
        [
            N("Slice", ["x", "b", "e", "ax"], ["s"]),
            N("Concat", ["s", "x"], ["c"], axis=1),
            N("Gather", ["c", "at"], ["g"], axis=1),
            N("LogSoftmax", ["g"], ["l"], axis=-1),
            N("ReduceMean", ["l"], ["y"], axes=[1], keepdims=1),
        ],
        {"x": ["N", 7]},
        ["y"],
        w,
    )


GRAPHS: dict[str, Callable[[], onnx.ModelProto]] = {
    f.__name__: f for f in (perceptron, conv_block, attention, gelu_by_parts, data_dependent, branches, rows_and_moves)
}

# Only their plans and kernels: the loops would be megabytes. Taken from .cache/models, left out where that is not there.
MODELS = ["silero_vad_op18_ifless", "magika", "ppocr_cls", "minilm", "mobilenet_v3"]
