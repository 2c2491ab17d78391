"""What the checks of the command line share: small models, the compiler, a counter of checks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from harness import COMPILER, ROOT  # noqa: E402,F401


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[Any]],
    outputs: Sequence[str],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """A model of f32 inputs with these dims (names are free), whose outputs are f32 of any shape."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def perceptron() -> onnx.ModelProto:
    """y = softmax(relu(x w + b) v), rows free."""
    return model(
        [
            helper.make_node("MatMul", ["x", "w"], ["xw"], name="first"),
            helper.make_node("Add", ["xw", "b"], ["xwb"], name="bias"),
            helper.make_node("Relu", ["xwb"], ["h"], name="act"),
            helper.make_node("MatMul", ["h", "v"], ["hv"], name="second"),
            helper.make_node("Softmax", ["hv"], ["y"], name="prob", axis=-1),
        ],
        {"x": ["N", 24]},
        ["y"],
        {"w": random(24, 32), "b": random(32, seed=1), "v": random(32, 10, seed=2)},
    )


def tripod(*args: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(COMPILER), *map(str, args)], capture_output=True, text=True, cwd=cwd)


class Checks:
    """Counts checks; `done()` prints the summary line and gives the exit code."""

    def __init__(self) -> None:
        self.passed = self.failed = 0

    def check(self, good: bool, what: str, detail: object = "") -> bool:
        self.passed += bool(good)
        self.failed += not good
        if not good:
            print(f"FAIL {what} {detail}")
        return bool(good)

    def equal(self, got: Any, wanted: Any, what: str) -> bool:
        return self.check(got == wanted, what, f"got {got!r}, wanted {wanted!r}")

    def done(self) -> int:
        print(f"{self.passed} passed, {self.failed} failed")
        return 1 if self.failed else 0
