#!/usr/bin/env python3
"""The conformance cases again with other data and other sizes, against ONNX Runtime.

Mode `reseeded`: the published shapes, other values. Mode `resized`: every input dim above 1 becomes a symbol (equal
sizes share one), the model is compiled once and run at the published sizes and at larger ones that leave tails for
vectors. Values are drawn from those of the case, jittered; integer vectors (shapes, axes, counts) keep theirs. Taken
are the cases that ONNX Runtime gets right as published, and of a variant the sizes that it accepts: where a
size contradicts an attribute, it refuses.

known_resized.txt is to this what known_failures.txt is to run.py. Options as of run.py.
"""
from __future__ import annotations

import functools
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Sequence

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parent))
import data  # noqa: E402
import run as suite  # noqa: E402
from execute import Result, Settings, compare, compile_model, in_child, load, tripod  # noqa: E402

LIST = Path(__file__).resolve().with_name("known_resized.txt")
MODES = ("reseeded", "resized")
# How a dim of size v > 1 grows in each run of the resized mode; the first is the published size.
GROWTH = (lambda v: v, lambda v: v + 1, lambda v: 3 * v + 1)
MAX_ELEMENTS = 1 << 20
RANDOM_OPS = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}

LOSSES = {"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}


@dataclass
class Variant:
    """A model and the inputs of its runs, each with ONNX Runtime's outputs."""

    model: onnx.ModelProto
    runs: list[tuple[list[np.ndarray], list[np.ndarray]]]


class NotApplicable(Exception):
    """Why a case has no variant of this mode."""


def reference(model: onnx.ModelProto) -> Any:
    """An ONNX Runtime session of `model`; opsets that it does not know are stamped as the newest that it does."""
    import onnxruntime as ort
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ir_version = min(copy.ir_version, 13)
    for o in copy.opset_import:
        if o.domain in ("", "ai.onnx"):
            o.version = min(o.version, 27)
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads, options.inter_op_num_threads = 4, 1, 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(copy.SerializeToString(), options, providers=["CPUExecutionProvider"])


def infer(session: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    return session.run(None, {i.name: v for i, v in zip(session.get_inputs(), inputs)})


def keeps_values(a: np.ndarray) -> bool:
    """Whether an input is an operand like a shape or an axis, whose values mean something."""
    return a.ndim <= 1 and a.dtype.kind in "iu" or a.ndim == 0


def drawn(a: np.ndarray, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """An array like `a` of another shape: values of `a` drawn anew; floats jittered by up to 2%, never past the
    least and largest of `a`."""
    if keeps_values(a) and shape == a.shape or a.size == 0:
        return a
    picked = rng.choice(a.reshape(-1), size=shape) if a.size else np.empty(shape, a.dtype)
    if a.dtype.kind == "f":
        with np.errstate(all="ignore"):
            jittered = picked * (1 + 0.02 * rng.uniform(-1, 1, shape)).astype(a.dtype)
            picked = np.where(np.isfinite(picked), np.clip(jittered, np.nanmin(a), np.nanmax(a)), picked)
    return np.asarray(picked, dtype=a.dtype).reshape(shape)


def symbolic(model: onnx.ModelProto, inputs: Sequence[np.ndarray]) -> onnx.ModelProto:
    """`model` with input dims above 1 as symbols named by size, and no declared output shape."""
    copy = data.strip_shapes(model)
    initial = {t.name for t in copy.graph.initializer}
    for v, a in zip((v for v in copy.graph.input if v.name not in initial), inputs):
        if keeps_values(a):
            continue
        for d, size in zip(v.type.tensor_type.shape.dim, a.shape):
            if size > 1:
                d.dim_param = f"d{size}"
    return copy


def make_variant(case: data.Case, mode: str) -> Variant:
    """The variant of `case`, with references; NotApplicable tells why there is none."""
    if case.needs or set(case.ops) & RANDOM_OPS or case.kind == "real":
        raise NotApplicable("random, or not on plain tensors")
    model = onnx.load(case.model(False))
    initial = {t.name for t in model.graph.initializer}
    types = [v.type for v in model.graph.input if v.name not in initial]
    folder = case.datasets()[0]
    inputs = [data.load_value(folder / f"input_{k}.pb", t) for k, t in enumerate(types)]
    wanted = [data.load_value(folder / f"output_{k}.pb", v.type) for k, v in enumerate(model.graph.output)]
    if not inputs or any(a.dtype.kind not in "fiub" for a in [*inputs, *wanted]):
        raise NotApplicable("no inputs, or a dtype that numpy lacks")
    if mode == "resized" and set(case.ops) & LOSSES and inputs[1].ndim == 1:
        raise NotApplicable("targets, a vector of integers, would not grow with the scores: ONNX Runtime reads past them")
    rng = np.random.default_rng(sum(case.name.encode()))
    try:
        session = reference(model)
        right = all(not compare(g, w, case.rtol, case.atol) for g, w in zip(infer(session, inputs), wanted))
        if not right:
            raise NotApplicable("ONNX Runtime is wrong on the published case")
        if mode == "resized":
            model = symbolic(model, inputs)
            session = reference(model)
    except NotApplicable:
        raise
    except Exception as e:
        raise NotApplicable(f"ONNX Runtime refuses it: {str(e)[:80]}") from e
    runs = []
    for grow in GROWTH if mode == "resized" else GROWTH[:1]:
        shapes = [a.shape if keeps_values(a) else tuple(grow(d) if d > 1 else d for d in a.shape) for a in inputs]
        if any(np.prod(s, dtype=np.int64) > MAX_ELEMENTS for s in shapes):
            continue
        feed = [drawn(a, s, rng) for a, s in zip(inputs, shapes)]
        try:
            runs.append((feed, infer(session, feed)))
        except Exception:  # a size that contradicts an attribute or an operand
            continue
    if not runs:
        raise NotApplicable("ONNX Runtime takes none of the sizes")
    return Variant(model, runs)


def close(got: np.ndarray, want: np.ndarray) -> str:
    """As in run.py, the absolute tolerance following the size of the values: sums cancel."""
    finite = np.abs(want[np.isfinite(want)].astype(np.float64)) if want.dtype.kind == "f" else np.zeros(0)
    largest = float(finite.max()) if finite.size else 0.0
    half = want.dtype == np.float16
    return compare(got, want, 4e-3 if half else 1e-3, (1e-3 if half else 2e-6) * max(largest, 1e-3))


def run_variant(settings: Settings, variant: Variant, so: Path, mode: str) -> str:
    with load(settings, so, mode == MODES[0]) as model:
        for feed, wanted in variant.runs:
            sizes = " ".join("x".join(map(str, a.shape)) or "scalar" for a in feed)
            try:
                outputs = model.run(feed)
            except tripod.TripodError as e:
                return f"at {sizes}: run failed ({e.status}): {e}"
            for k, (g, w) in enumerate(zip(outputs, wanted)):
                if difference := close(g, w):
                    return f"at {sizes}: output {k}: {difference}"
    return ""


def run_case(settings: Settings, case: data.Case, mode: str) -> Result:
    """Compiles and runs one variant; status `left out` when there is none."""
    try:
        variant = make_variant(case, mode)
    except NotApplicable as e:
        return Result(case.name, mode, "left out", str(e))
    with tempfile.TemporaryDirectory(prefix="tripod-ops-") as folder:
        so, path = Path(folder) / "model.so", Path(folder) / "model.onnx"
        path.write_bytes(variant.model.SerializeToString())
        start = time.monotonic()
        status, message = compile_model(settings, path, so)
        compiled = time.monotonic()
        if status == "pass":
            status, message = in_child(functools.partial(run_variant, settings, variant, so, mode), settings.run_timeout)
        return Result(case.name, mode, status, message, compiled - start, time.monotonic() - compiled)


def main() -> int:
    return suite.run_suite(suite.Suite("resized", MODES, LIST, run_case), __doc__ or "")


if __name__ == "__main__":
    sys.exit(main())
