#!/usr/bin/env python3
"""Calls compiled models from Python: through TVM-FFI (numpy, and torch where it is installed) and the C API.

Ends with "N passed, N failed".
"""
from __future__ import annotations

import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests")]
import tripod  # noqa: E402
from harness import COMPILER, compile_model, in_child  # noqa: E402

F32 = TensorProto.FLOAT


def model(nodes: list[onnx.NodeProto], inputs: dict[str, list], outputs: dict[str, list]) -> onnx.ModelProto:
    """A model of `nodes` on f32 tensors; shapes by name, strings are free dims."""
    values = [[helper.make_tensor_value_info(n, F32, s) for n, s in d.items()] for d in (inputs, outputs)]
    m = helper.make_model(helper.make_graph(nodes, "g", *values), opset_imports=[helper.make_opsetid("", 17)])
    m.ir_version = 8
    return m


def sum_and_product() -> onnx.ModelProto:
    return model([helper.make_node("Add", ["a", "b"], ["s"], name="sum"), helper.make_node("Mul", ["a", "b"], ["p"], name="product")],
                 {"a": ["N", 4], "b": ["N", 4]}, {"s": ["N", 4], "p": ["N", 4]})


def relu() -> onnx.ModelProto:
    return model([helper.make_node("Relu", ["x"], ["y"], name="relu")], {"x": ["N", "M"]}, {"y": ["N", "M"]})


def to_numpy(tensor: object) -> np.ndarray:
    return np.from_dlpack(tensor)


def main_with_numpy(folder: Path) -> None:
    import tvm_ffi
    f = tvm_ffi.load_module(str(folder / "relu.so"))["main"]
    for shape in ((1, 1), (3, 5), (128, 33)):
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        y = to_numpy(f(x))
        assert y.shape == shape and np.array_equal(y, np.maximum(x, 0)), shape
    assert np.array_equal(to_numpy(f(x.T)), np.maximum(x.T, 0)), "strided input"


def several_outputs(folder: Path) -> None:
    import tvm_ffi
    f = tvm_ffi.load_module(str(folder / "two.so"))["main"]
    a, b = np.ones((2, 4), np.float32), np.full((2, 4), 3, np.float32)
    s, p = f(a, b)
    assert np.array_equal(to_numpy(s), a + b) and np.array_equal(to_numpy(p), a * b)


def main_into(folder: Path) -> None:
    import tvm_ffi
    f = tvm_ffi.load_module(str(folder / "two.so"))["main_into"]
    a, b = np.ones((2, 4), np.float32), np.full((2, 4), 3, np.float32)
    s, p = np.zeros((2, 4), np.float32), np.zeros((2, 4), np.float32)
    f(a, b, s, p)
    assert np.array_equal(s, a + b) and np.array_equal(p, a * b)


def main_with_torch(folder: Path) -> None:
    import torch
    import tvm_ffi
    f = tvm_ffi.load_module(str(folder / "relu.so"))["main"]
    x = torch.randn(7, 9)
    y = torch.from_dlpack(f(x))
    assert torch.equal(y, torch.relu(x))
    assert torch.equal(torch.from_dlpack(f(x.t())), torch.relu(x.t())), "strided input"


def ffi_errors(folder: Path) -> None:
    import tvm_ffi
    f = tvm_ffi.load_module(str(folder / "two.so"))["main"]
    a = np.ones((2, 4), np.float32)
    for arguments, words in (((a, np.ones((3, 4), np.float32)), ("'b'", "axis 0", "3", "2")),
                             ((a, np.ones((2, 5), np.float32)), ("'b'", "axis 1", "5", "4")),
                             ((a, a.astype(np.float64)), ("'b'", "f64", "f32")),
                             ((a,), ("1", "2"))):
        try:
            f(*arguments)
        except Exception as e:
            assert all(w in str(e) for w in words), f"{e} lacks one of {words}"
        else:
            raise AssertionError(f"no error where there should be one that has {words}")


def describe(folder: Path) -> None:
    import json

    import tvm_ffi
    module = tvm_ffi.load_module(str(folder / "two.so"))
    manifest = json.loads(str(module["describe"]()))
    assert [i["name"] for i in manifest["inputs"]] == ["a", "b"], manifest
    assert [o["name"] for o in manifest["outputs"]] == ["s", "p"], manifest
    module["set_num_threads"](1)


def c_api(folder: Path) -> None:
    with tripod.Model(str(folder / "two.so"), threads=2) as m:
        a = np.arange(8, dtype=np.float32).reshape(2, 4)
        s, p = m.run([a, a])
        assert np.array_equal(s, a + a) and np.array_equal(p, a * a)
        call, outputs = m.bind([a, a])
        outputs[0][...] = 0
        assert call() == 0 and np.array_equal(outputs[0], a + a)
        wide = np.zeros((2, 9), np.float32)
        assert m.describe()["inputs"][0]["name"] == "a"
        try:
            m.run([wide, a])
        except tripod.TripodError as e:
            assert e.status == 1 and "'a'" in str(e), str(e)
        else:
            raise AssertionError("a wrong shape was taken")


def two_threads(folder: Path) -> None:
    """Concurrent calls through one module give what single calls give."""
    import tvm_ffi
    f = tvm_ffi.load_module(str(folder / "relu.so"))["main"]
    problems: list[str] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(200):
            x = rng.standard_normal((int(rng.integers(1, 40)), 64)).astype(np.float32)
            if not np.array_equal(to_numpy(f(x)), np.maximum(x, 0)):
                problems.append(f"thread {seed}")
                return

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not problems, problems


CHECKS: list[Callable[[Path], None]] = [main_with_numpy, several_outputs, main_into, main_with_torch, ffi_errors, describe,
                                        c_api, two_threads]


def main() -> int:
    passed = failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for stem, m in (("two", sum_and_product()), ("relu", relu())):
            (folder / f"{stem}.onnx").write_bytes(m.SerializeToString())
            c = compile_model(str(COMPILER), folder / f"{stem}.onnx", folder / f"{stem}.so")
            if c.status != "pass":
                print(f"{stem}: {c.status}: {c.message}")
                print(f"{passed} passed, {len(CHECKS)} failed")
                return 1
        for check in CHECKS:
            if check is main_with_torch:
                try:
                    import torch  # noqa: F401
                except ImportError:
                    print(f"{check.__name__}: left out, torch is not installed")
                    continue

            def work(check: Callable[[Path], None] = check) -> str:
                try:
                    check(folder)
                except Exception:
                    return traceback.format_exc(limit=-3)
                return ""

            status, message = in_child(work, 60)
            passed, failed = passed + (status == "pass"), failed + (status != "pass")
            print(f"{check.__name__}: {status} {message}".rstrip(), flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
