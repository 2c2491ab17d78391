#!/usr/bin/env python3
"""scripts/bundle.sh: unpacked elsewhere and with an empty environment, the compiler makes and runs models."""
from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "tools"))
from models import Checks, perceptron  # noqa: E402

import onnx  # noqa: E402


def main() -> int:
    c = Checks()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(perceptron(), folder / "m.onnx")
        pack = [str(ROOT / "scripts" / "bundle.sh"), "-o", str(folder / "b.tar.xz"), "--level", "0", str(folder / "m.onnx")]
        p = subprocess.run(pack, capture_output=True, text=True)
        if not c.equal(p.returncode, 0, f"bundle.sh {p.stderr}"):
            return c.done()
        c.check((folder / "b.tar.xz").stat().st_size < 40e6, "smaller than 40 MB even when packed badly", p.stdout)
        (folder / "there").mkdir()
        subprocess.run(["tar", "-xf", str(folder / "b.tar.xz"), "-C", str(folder / "there")], check=True)
        root = folder / "there" / "tripod"

        def run(*args: object) -> subprocess.CompletedProcess[str]:
            return subprocess.run([str(root / "bin" / "tripod"), *map(str, args)], capture_output=True, text=True,
                                  cwd=folder / "there", env={"PATH": "/usr/bin:/bin"})

        libraries = subprocess.run(["ldd", str(root / "bin" / "tripod")], capture_output=True, text=True, env={}).stdout
        elsewhere = [line for line in libraries.splitlines() if "=>" in line and str(root) not in line
                     and not any(f"lib{n}.so" in line for n in ("c", "m", "dl", "pthread", "rt"))]
        c.equal(elsewhere, [], "libraries that the bundle does not carry")
        p = run("compile", "tripod/models/m.onnx", "-o", "m.so")
        if c.equal(p.returncode, 0, f"compile {p.stderr}"):
            p = run("run", "m.so", "--random", "--dim", "N=3")
            c.equal((p.returncode, "y: f32[3, 8]" in p.stdout or "y:" in p.stdout), (0, True), f"run {p.stdout}{p.stderr}")
        nvcc = shutil.which("nvcc")
        if nvcc:
            p = run("compile", "tripod/models/m.onnx", "-o", "g.so", "--target", "cuda", "--arch", "sm_90a", "--nvcc", nvcc)
            c.equal(p.returncode, 0, f"compile for a GPU {p.stderr}")
        p = run("compile", "tripod/models/m.onnx", "-o", "g.so", "--target", "cuda", "--nvcc", "/nowhere/nvcc")
        c.equal((p.returncode, "no CUDA compiler at /nowhere/nvcc" in p.stderr), (2, True), f"no nvcc {p.stderr}")
        p = subprocess.run([sys.executable, str(root / "tests" / "ops" / "packed.py"), "--help"], capture_output=True, text=True)
        c.equal(p.returncode, 0, f"packed.py {p.stderr}")
    return c.done()


if __name__ == "__main__":
    sys.exit(main())
