"""Compiles one conformance case and runs it in a forked child, so that a crash is a result, not an end.

`run_case` gives a Result whose status is one of
  pass         every output of every data set agrees
  unsupported  the compiler refused with exit code 2 and an error that names the node and its op (or the input)
  wrong        it compiled and ran, and an output differs; or the run ended in an error
  error        the compiler failed otherwise: exit code 1, or a refusal that does not say what it is about
  crash        a signal ended the compiler or the run
  timeout      either took too long
"""
from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

import data
import packed
from results import Result, compare

sys.path[:0] = [str(data.ROOT / "python"), str(data.ROOT / "tests")]
import tripod  # noqa: E402
import guarded  # noqa: E402
from harness import compile_model as compile_model_with, in_child  # noqa: E402
from tripod.capi import Optional  # noqa: E402


@dataclass
class Settings:
    """How cases are compiled and run; times in seconds."""

    compiler: str
    compile_args: list[str] = field(default_factory=list)
    threads: int = 1
    compile_timeout: float = 60.0
    run_timeout: float = 30.0
    keep: Path | None = None
    guard: bool = False  # buffers end (mode stripped) or begin (mode published) at pages that may not be touched


def compile_model(settings: Settings, model: Path, so: Path) -> tuple[str, str]:
    """Compiles `model` to `so`. Gives (status, message); status is pass when it worked."""
    compiled = compile_model_with(settings.compiler, model, so, settings.compile_args, settings.compile_timeout)
    return compiled.status, compiled.message


def _unwrap(value: Any) -> Any:
    return value.value if isinstance(value, Optional) else value


def load(settings: Settings, so: Path, stripped: bool) -> tripod.Model:
    if settings.guard:
        return guarded.GuardedModel(str(so), threads=settings.threads, at_begin=not stripped)
    return tripod.Model(str(so), threads=settings.threads)


def run_data_sets(settings: Settings, case: data.Case, so: Path, stripped: bool) -> str:
    """Runs every data set of `case` through `so`; "" when all agree."""
    graph = onnx.load(case.model(False)).graph
    initial = {t.name for t in graph.initializer}
    types = [v.type for v in graph.input if v.name not in initial]
    with load(settings, so, stripped) as model:
        for folder in case.datasets():
            inputs = []
            for k, t in enumerate(types):
                path = folder / f"input_{k}.pb"
                if not path.exists():
                    return f"the case has no {path.name}"
                value = data.load_value(path, t)
                inputs.append(Optional(value) if t.WhichOneof("value") == "optional_type" else value)
            try:
                outputs = model.run(inputs)
            except tripod.TripodError as e:
                return f"run failed ({e.status}): {e}"
            if len(outputs) != len(graph.output):
                return f"{len(outputs)} outputs, wanted {len(graph.output)}"
            for k, output in enumerate(graph.output):
                want = data.load_value(folder / f"output_{k}.pb", output.type)
                difference = compare(_unwrap(outputs[k]), want, case.rtol, case.atol)
                if difference:
                    return f"output {k}: {difference}"
    return ""


def pack_case(settings: Settings, case: data.Case, mode: str) -> Result:
    """Compiles `case` and puts the file and its data into the folder `settings.keep`, in the layout of packed.py."""
    assert settings.keep is not None
    (settings.keep / mode).mkdir(parents=True, exist_ok=True)
    so = settings.keep / mode / (case.name + ".so")
    so.unlink(missing_ok=True)
    start = time.monotonic()
    status, message = compile_model(settings, case.model(mode == "stripped"), so)
    if status == "pass":
        packed.pack_values(settings.keep / "data" / (case.name + ".npz"), [load_set(case, f) for f in case.datasets()])
    return Result(case.name, mode, status, message, time.monotonic() - start)


def load_set(case: data.Case, folder: Path) -> tuple[list[Any], list[Any]]:
    """The inputs and outputs of one data set of a case whose values are tensors."""
    graph = onnx.load(case.model(False)).graph
    initial = {t.name for t in graph.initializer}
    inputs = [v.type for v in graph.input if v.name not in initial]
    return ([data.load_value(folder / f"input_{k}.pb", t) for k, t in enumerate(inputs)],
            [data.load_value(folder / f"output_{k}.pb", o.type) for k, o in enumerate(graph.output)])


def run_case(settings: Settings, case: data.Case, mode: str) -> Result:
    """Compiles and runs `case` in `mode` (published or stripped)."""
    with tempfile.TemporaryDirectory(prefix="tripod-ops-") as folder:
        so = Path(folder) / "model.so"
        if settings.keep is not None:
            (settings.keep / mode).mkdir(parents=True, exist_ok=True)
            so = settings.keep / mode / (case.name + ".so")
            so.unlink(missing_ok=True)
        start = time.monotonic()
        status, message = compile_model(settings, case.model(mode == "stripped"), so)
        compiled = time.monotonic()
        if status == "pass":
            status, message = in_child(lambda: run_data_sets(settings, case, so, mode == "stripped"), settings.run_timeout)
        return Result(case.name, mode, status, message, compiled - start, time.monotonic() - compiled)
