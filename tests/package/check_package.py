#!/usr/bin/env python3
"""What a compile writes: weights inside and beside model.so, instruction sets beside one another.

Values are those of numpy. Each load runs in a child, as a broken file may crash.
Ends with "N passed, N failed".
"""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / d) for d in ("python", "tests")]
from harness import COMPILER  # noqa: E402
from tripod import Model, TripodError  # noqa: E402

RANDOM = np.random.default_rng(1)
X = RANDOM.standard_normal((5, 70)).astype(np.float32)
W = RANDOM.standard_normal((70, 33)).astype(np.float32)
B = RANDOM.standard_normal(33).astype(np.float32)
Y = np.maximum(X.astype(np.float64) @ W + B, 0)


def save(path: Path, scale: float = 1.0) -> Path:
    """Y = relu(x W + b), with x of any number of rows."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["s"]),
             helper.make_node("Relu", ["s"], ["y"])]
    weights = [numpy_helper.from_array(W * np.float32(scale), "w"), numpy_helper.from_array(B, "b")]
    graph = helper.make_graph(nodes, "dense", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 70])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 33])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def compiled(folder: Path, *args: str, model: Path | None = None, output: str = "model.so") -> Path:
    """Compiles (in `folder`) and gives the path of the file."""
    command = [str(COMPILER), "compile", str(model or save(folder / "dense.onnx")), "-o", output, *args]
    r = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    return folder / output


def refused(folder: Path, *args: str) -> str:
    """Messages of a compile that must end with code 2 and leave no file."""
    command = [str(COMPILER), "compile", str(save(folder / "dense.onnx")), "-o", "model.so", *args]
    r = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert r.returncode == 2, (r.returncode, r.stderr)
    assert sorted(p.name for p in folder.iterdir()) == ["dense.onnx"], list(folder.iterdir())
    return r.stderr


def right(so: Path) -> None:
    with Model(str(so)) as m:
        [y] = m.run([X])
    np.testing.assert_allclose(y, Y, rtol=1e-5, atol=1e-5)


def fails(so: Path, *words: str) -> None:
    """The first run says what is wrong with the weights."""
    try:
        right(so)
    except TripodError as e:
        for word in words:
            assert word in str(e), str(e)
        return
    raise AssertionError("no error")


def embedded(folder: Path) -> None:
    right(compiled(folder))
    assert not (folder / "model.weights").exists()


def external(folder: Path) -> None:
    so = compiled(folder, "--weights", "external")
    assert (folder / "model.weights").stat().st_size > W.nbytes
    assert W.tobytes()[:64] not in so.read_bytes()
    right(so)


def moved_together(folder: Path) -> None:
    compiled(folder, "--weights", "external")
    (folder / "elsewhere").mkdir()
    for name in ("model.so", "model.weights"):
        shutil.move(folder / name, folder / "elsewhere" / name)
    right(folder / "elsewhere" / "model.so")


def given_path(folder: Path) -> None:
    (folder / "store").mkdir()
    right(compiled(folder, "--weights-file", "store/big.bin"))
    assert (folder / "store" / "big.bin").exists()
    path = folder / "absolute.bin"
    so = compiled(folder, "--weights-file", str(path), output="second.so")
    (folder / "away").mkdir()
    shutil.move(so, folder / "away" / "second.so")
    right(folder / "away" / "second.so")


def safetensors_reads_it(folder: Path) -> None:
    compiled(folder, "--weights", "external")
    raw = (folder / "model.weights").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    begin, end = header["weights"]["data_offsets"]
    assert header["weights"]["dtype"] == "U8" and [end - begin] == header["weights"]["shape"]
    assert len(raw) == 8 + size + end


def missing(folder: Path) -> None:
    so = compiled(folder, "--weights", "external")
    (folder / "model.weights").unlink()
    fails(so, "model.weights", "No such file")


def cut_off(folder: Path) -> None:
    so = compiled(folder, "--weights", "external")
    os.truncate(folder / "model.weights", (folder / "model.weights").stat().st_size - 1)
    fails(so, "model.weights", "cut off")


def empty(folder: Path) -> None:
    so = compiled(folder, "--weights", "external")
    os.truncate(folder / "model.weights", 0)
    fails(so, "model.weights", "empty")


def of_another_model(folder: Path) -> None:
    so = compiled(folder, "--weights", "external")
    compiled(folder, "--weights", "external", model=save(folder / "scaled.onnx", 2.0), output="other.so")
    shutil.move(folder / "other.weights", folder / "model.weights")
    fails(so, "model.weights", "another model")


def repeatable(folder: Path) -> None:
    first = compiled(folder, "--weights", "external", "--cpu", "v3,v4")
    files = [first.read_bytes(), (folder / "model.weights").read_bytes()]
    compiled(folder, "--weights", "external", "--cpu", "v4,v3")
    assert files[1] == (folder / "model.weights").read_bytes()
    compiled(folder, "--weights", "external", "--cpu", "v3,v4")
    assert files == [first.read_bytes(), (folder / "model.weights").read_bytes()]


def beyond_two_gigabytes(folder: Path) -> None:
    """Code and data reach one another however large the weights are. (A sparse table of which three rows are not 0.)"""
    rows = 9_000_000
    table = folder / "table.bin"
    with open(table, "wb") as f:
        f.truncate(rows * 256)
        for row, value in ((0, 1.0), (rows // 2, 2.0), (rows - 1, 3.0)):
            f.seek(row * 256)
            f.write(np.full(64, value, np.float32).tobytes())
    t = TensorProto(name="table", data_type=TensorProto.FLOAT, dims=[rows, 64], data_location=TensorProto.EXTERNAL)
    t.external_data.add(key="location", value="table.bin")
    graph = helper.make_graph([helper.make_node("Gather", ["table", "i"], ["g"]), helper.make_node("Exp", ["g"], ["y"])],
                              "big", [helper.make_tensor_value_info("i", TensorProto.INT64, [3])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 64])], [t])
    (folder / "big.onnx").write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                                                        ir_version=8).SerializeToString())
    so = compiled(folder, model=folder / "big.onnx")
    assert so.stat().st_size > rows * 256
    with Model(str(so)) as m:
        [y] = m.run([np.array([rows - 1, 0, rows // 2])])
    np.testing.assert_allclose(y[:, 5], np.exp([3.0, 1.0, 2.0]), rtol=1e-6)


def variants(folder: Path) -> None:
    """Both instruction sets in one file, which is right on this CPU whatever it has."""
    so = compiled(folder, "--cpu", "v3,v4")
    right(so)
    assert b".v4" in so.read_bytes() or "v4" in str(Model(str(so)).describe())
    assert Model(str(so)).describe()["cpu"] == "v3,v4"


def native(folder: Path) -> None:
    right(compiled(folder, "--cpu", "native"))


def v4_where_there_is_none(folder: Path) -> None:
    so = compiled(folder, "--cpu", "v4")
    if "avx512f" in Path("/proc/cpuinfo").read_text():
        return right(so)
    try:
        Model(str(so))
    except TripodError as e:
        assert "AVX-512" in str(e), str(e)
    else:
        raise AssertionError("an AVX-512 model was accepted")


def bad_cpu(folder: Path) -> None:
    assert "not built yet" in refused(folder, "--cpu", "amx")
    assert '"v5"' in refused(folder, "--cpu", "v3,v5")


CHECKS: list[Callable[[Path], None]] = [
    embedded, external, moved_together, given_path, safetensors_reads_it, missing, cut_off, empty, of_another_model,
    repeatable, beyond_two_gigabytes, variants, native, v4_where_there_is_none, bad_cpu]


def run(check: Callable[[Path], None]) -> str:
    """What is wrong, "" for nothing."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            check(Path(folder))
        except Exception:
            return traceback.format_exc()
    return ""


def main() -> int:
    failed = 0
    for check in CHECKS:
        pid = os.fork()
        if pid == 0:
            problem = run(check)
            if problem:
                print(f"FAIL {check.__name__}\n{problem}", file=sys.stderr)
            os._exit(1 if problem else 0)
        failed += os.waitpid(pid, 0)[1] != 0
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
