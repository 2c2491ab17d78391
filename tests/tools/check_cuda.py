#!/usr/bin/env python3
"""compile --target=cuda without a GPU: the file is made, says what it is, and running it says that there is no GPU.

Skipped where there is no nvcc.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx
from onnx import helper


from models import ROOT, Checks, model, random, tripod

sys.path.insert(0, str(ROOT / "tests"))
from harness import find_nvcc  # noqa: E402


def has_gpu() -> bool:
    try:
        return ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except OSError:
        return False


# Models without a kernel: runtime operators, copies and shape arithmetic, run on the tests' own libcuda, whose device
# memory is memory of the host.
OPERATORS = ["test_flatten_axis2", "test_unsqueeze_axis_0", "test_top_k", "test_top_k_smallest", "test_scatternd",
             "test_scatter_elements_without_axis", "test_scatternd_add", "test_nonmaxsuppression_two_classes", "test_nonzero_example",
             "test_unique_sorted_with_axis", "test_compress_0", "test_dropout_default", "test_identity", "test_shape"]
RUN = """
import sys
sys.path[:0] = [sys.argv[2], sys.argv[3]]
import packed, tripod
from pathlib import Path
folder, bad = Path(sys.argv[1]), []
import json
for e in json.loads((folder / "index.json").read_text())["entries"]:
    if e["status"] == "pass":
        text = packed.run_values(folder / e["mode"] / (e["case"] + ".so"), folder / "data" / (e["case"] + ".npz"), e["rtol"], e["atol"])
        print(e["case"], text or "good")
"""


def host_operators(c: Checks, folder: Path) -> None:
    fake = ROOT / "build" / "release" / "tests" / "libfake_libcuda.so"
    if not fake.exists():
        print("the tests' libcuda is not built: the operators were not run")
        return
    (folder / "lib").mkdir()
    (folder / "lib" / "libcuda.so.1").symlink_to(fake)
    pack = [sys.executable, str(ROOT / "tests" / "ops" / "run.py"), "--target", "cuda", "--mode", "stripped", "-j", "1"]
    p = subprocess.run([*pack, "--compile-only", str(folder / "ops"), *OPERATORS], capture_output=True, text=True)
    c.equal(p.returncode, 0, f"compiling: {p.stdout}{p.stderr}")
    p = subprocess.run([sys.executable, "-c", RUN, str(folder / "ops"), str(ROOT / "tests" / "ops"), str(ROOT / "python")],
                       capture_output=True, text=True, env={**os.environ, "LD_LIBRARY_PATH": str(folder / "lib")})
    c.equal(sorted(p.stdout.splitlines()), sorted(f"{o} good" for o in OPERATORS), f"operators on the host {p.stderr[-500:]}")


def main() -> int:
    c = Checks()
    if not find_nvcc():
        print("no nvcc here: skipped")
        return c.done()
    with tempfile.TemporaryDirectory() as folder:
        file, so = Path(folder) / "m.onnx", Path(folder) / "m.so"
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["m"], name="first"),
            helper.make_node("Relu", ["m"], ["r"], name="act"),
            helper.make_node("Softmax", ["r"], ["y"], name="prob"),
        ]
        onnx.save(model(nodes, {"x": ["N", 24]}, ["y"], {"w": random(24, 32)}), file)
        p = tripod("compile", file, "-o", so, "--target", "cuda", "--arch", "sm_90a", "--cache", Path(folder) / "cache")
        if c.equal(p.returncode, 0, f"compile {p.stderr}"):
            manifest = json.loads(tripod("inspect", so, "--json").stdout)
            c.equal(manifest["target"], "cuda", "target")
            c.check(any("__global__" in str(k) for k in manifest["kernels"]), "CUDA C in the manifest", manifest["kernels"])
            p = tripod("run", so, "--random", "--dim", "N=3")
            if not has_gpu():
                c.equal((p.returncode, "no GPU" in p.stderr), (2, True), f"run {p.stderr}")
        p = tripod("compile", file, "-o", so, "--target", "cuda", "--arch", "sm_80,sm_86,sm_89,compute_80", "--cache", Path(folder) / "cache")
        if c.equal(p.returncode, 0, f"compile {p.stderr}"):
            c.equal(json.loads(tripod("inspect", so, "--json").stdout)["arch"], ["sm_80", "sm_86", "sm_89", "compute_80"], "architectures")
        p = tripod("compile", file, "-o", so, "--target", "cuda", "--precision", "tf32", "--arch", "sm_80", "--cache", Path(folder) / "cache")
        c.equal(p.returncode, 0, f"tf32 {p.stderr}")
        for arch, message in (("sm_12", "there are sm_80, sm_86, sm_89, sm_90a, compute_80"), ("sm_80,sm_80", "given twice")):
            p = tripod("compile", file, "-o", so, "--target", "cuda", "--arch", arch)
            c.equal((p.returncode, message in p.stderr), (2, True), f"--arch {arch}: {p.stderr}")
        p = tripod("compile", file, "-o", so, "--target", "cuda", "--debug-kernels", "--arch", "sm_90a")
        if c.equal(p.returncode, 0, f"--debug-kernels {p.stderr}"):
            manifest = json.loads(tripod("inspect", so, "--json").stdout)
            c.check(all("inside(error" in k["loops"] for k in manifest["kernels"]), "indices are checked", manifest["kernels"])
            name = manifest["kernels"][0]["name"]
            p = tripod("inspect", so, "--kernel", name, "--source")
            c.check("__global__" in p.stdout and f"{name}(tp_error* error" in p.stdout, "inspect --source", p.stdout[:300])
            p = tripod("inspect", so, "--kernel", name, "--source", "--as", "llvm")
            c.equal((p.returncode, "has its CUDA C only" in p.stderr), (2, True), f"--as llvm {p.stderr}")
        host_operators(c, Path(folder))
    return c.done()


if __name__ == "__main__":
    sys.exit(main())
