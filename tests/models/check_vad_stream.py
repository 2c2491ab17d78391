#!/usr/bin/env python3
"""The silero-vad exports over a stream: each carries its own state from call to call, as ONNX Runtime does, at both
sample rates where the export takes them, with batches that change the size of the state.

Ends with "N passed, N failed".
"""
from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / d) for d in ("python", "tests", "scripts", "tests/models")]
import models  # noqa: E402
import tripod  # noqa: E402
from harness import COMPILER, compile_model, in_child  # noqa: E402
from inputs import speech  # noqa: E402
from run import input_names, session  # noqa: E402

STEPS = 12
# Of each export: the (batch, samples, rate) of its streams; samples are a window with its context.
BOTH = [(1, 576, 16000), (1, 288, 8000), (3, 576, 16000), (2, 288, 8000)]
STREAMS = {
    "silero_vad": BOTH,
    "silero_vad_op18_ifless": BOTH,
    "silero_vad_half": [(1, 576, 16000), (2, 576, 16000)],
    "silero_vad_16k_op15": [(1, 576, 16000), (3, 576, 16000)],
    "silero_vad_openvino_16k": [(1, 576, 16000)],
}


def feed(batch: int, samples: int, rate: int, step: int, state: np.ndarray, order: list[str]) -> dict[str, np.ndarray]:
    values: dict[str, Any] = {"input": speech(batch, samples, rate, seed=step), "state": state, "sr": np.array(rate, np.int64)}
    return {n: values[n] for n in order}


def stream(name: str, so: Path) -> str:
    """"" where every step of every stream agrees."""
    path = models.CACHE / f"{name}.onnx"
    order, reference = input_names(path), session(path, True, 1)
    with tripod.Model(str(so), threads=1) as model:
        for batch, samples, rate in STREAMS[name]:
            ours = theirs = np.zeros((2, batch, 128), np.float32)
            for step in range(STEPS):
                want, theirs = reference.run(None, feed(batch, samples, rate, step, theirs, order))
                got, ours = model.run(list(feed(batch, samples, rate, step, ours, order).values()))
                error = max(float(np.abs(got - want).max()), float(np.abs(ours - theirs).max()))
                if not error < 2e-5:
                    return f"{batch}x{samples} at {rate} Hz, step {step}: error {error:.1e}"
    return ""


def main() -> int:
    models.fetch([s for s in models.SOURCES if s.name in STREAMS])
    passed = failed = 0
    for name in STREAMS:
        with tempfile.TemporaryDirectory() as folder:
            so = Path(folder) / "model.so"
            compiled = compile_model(str(COMPILER), models.CACHE / f"{name}.onnx", so)
            status, message = compiled.status, compiled.message
            if status == "pass":
                status, message = in_child(functools.partial(stream, name, so), 60.0)
        passed, failed = passed + (status == "pass"), failed + (status != "pass")
        print(f"{name}: {status}{': ' if message else ''}{message}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
