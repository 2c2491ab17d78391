"""Small models made on the spot, run by Tripod and by ONNX Runtime, for the check_*.py programs of this folder.

A `Small` is a few nodes with inputs whose dims are numbers or names. It is compiled once, with every named dim free,
and run on several feeds; ONNX Runtime (unoptimised) gives the reference of each. A feed that ONNX Runtime refuses
has no reference: then Tripod may answer or refuse, it must not crash.
"""
from __future__ import annotations

import functools
import multiprocessing
import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parent))
import execute  # noqa: E402
from execute import tripod  # noqa: E402
from harness import COMPILER, compile_model, in_child  # noqa: E402
from resized import infer, reference  # noqa: E402

Feed = dict[str, np.ndarray]


@dataclass
class Small:
    """`inputs`: name -> (dtype, dims); `constants` are initializers; `feeds` the runs."""

    name: str
    nodes: list[onnx.NodeProto]
    inputs: dict[str, tuple[Any, Sequence[int | str]]]
    outputs: list[str]
    feeds: list[Feed]
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    opset: int = 21
    rtol: float = 2e-5
    atol: float = 1e-6

    def model(self) -> onnx.ModelProto:
        infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(t)), list(dims))
                 for n, (t, dims) in self.inputs.items()]
        # An output without a type: both compilers infer it.
        outs = [onnx.ValueInfoProto(name=o) for o in self.outputs]
        weights = [numpy_helper.from_array(v, n) for n, v in self.constants.items()]
        graph = helper.make_graph(self.nodes, "small", infos, outs, weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)],
                                 ir_version=10 if self.opset > 14 else 7)


def one_node(op: str, arrays: Sequence[np.ndarray | None], attrs: dict[str, Any] | None = None, *, opset: int = 21,
             outputs: int = 1, constant: Sequence[int] = (), free: bool = False, name: str = "", **options: Any) -> Small:
    """One node on `arrays` (None: left out), those at the positions `constant` as initializers. `free`: dims above 1
    become symbols, one for each size."""
    inputs, constants, feed, names = {}, {}, {}, []
    for k, a in enumerate(arrays):
        names.append("" if a is None else f"x{k}")
        if a is None:
            continue
        if k in constant:
            constants[f"x{k}"] = a
        else:
            dims = [f"d{s}" if free and s > 1 else int(s) for s in a.shape]
            inputs[f"x{k}"], feed[f"x{k}"] = (a.dtype, dims), a
    outs = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op, names, outs, name="it", **(attrs or {}))
    shapes = " ".join(f"{a.dtype}{list(a.shape)}" if a is not None else "-" for a in arrays)
    label = f"{name or op}-{opset} {shapes} {attrs or ''} constant={list(constant)}{' free' if free else ''}"
    return Small(label, [node], inputs, outs, [feed], constants, opset, **options)


def difference(got: np.ndarray, want: np.ndarray, rtol: float, atol: float) -> str:
    """"" where they agree: integers exactly, floats within the tolerance, zeros with their sign."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)}, wanted {want.dtype}{list(want.shape)}"
    if want.dtype.kind != "f":
        return execute.compare(got, want, 0, 0)
    if want.dtype == np.float16:
        rtol, atol = max(rtol, 2e-3), max(atol, 1e-4)
    if text := execute.compare(got, want, rtol, atol):
        return text
    signs = (got == 0) & (want == 0) & (np.signbit(got) != np.signbit(want))
    return f"{int(signs.sum())} zeros have the other sign" if signs.any() else ""


def _run(case: Small, so: Path, references: list[list[np.ndarray] | None], signs: bool) -> str:
    with tripod.Model(str(so), threads=1) as model:
        for feed, wanted in zip(case.feeds, references):
            sizes = " ".join("x".join(map(str, a.shape)) or "scalar" for a in feed.values())
            try:
                outputs = model.run(list(feed.values()))
            except tripod.TripodError as e:
                if wanted is not None:
                    return f"at {sizes}: refused ({e.status}): {e}"
                continue
            for k, (g, w) in enumerate(zip(outputs, wanted or [])):
                text = difference(g, w, case.rtol, case.atol)
                if text and (signs or "other sign" not in text):
                    return f"at {sizes}: output {k}: {text}"
    return ""


def check(case: Small, signs: bool = True, compiler: str = str(COMPILER)) -> tuple[str, str]:
    """(status, message): pass, skipped (ONNX Runtime takes no feed), unsupported, wrong, error, crash, timeout."""
    model = case.model()
    references: list[list[np.ndarray] | None] = []
    try:
        session = reference(model)
    except Exception as e:
        return "skipped", f"ONNX Runtime: {str(e)[:150]}"
    for feed in case.feeds:
        try:
            references.append(infer(session, list(feed.values())))
        except Exception as e:
            references.append(None)
            refusal = str(e)
    if not any(r is not None for r in references):
        return "skipped", f"ONNX Runtime: {refusal[:150]}"
    with tempfile.TemporaryDirectory(prefix="tripod-small-") as folder:
        path, so = Path(folder) / "model.onnx", Path(folder) / "model.so"
        path.write_bytes(model.SerializeToString())
        compiled = compile_model(compiler, path, so)
        if compiled.status != "pass":
            return compiled.status, compiled.message
        return in_child(functools.partial(_run, case, so, references, signs), 30.0)


def _work(task: tuple[Small, bool]) -> tuple[str, str, str]:
    # In a child: ONNX Runtime itself ends the process over some empty tensors.
    outcome, text = in_child(lambda: "\t".join(check(*task)), 60.0)
    if outcome != "wrong":
        return task[0].name, "skipped", f"ONNX Runtime: {text}"
    status, _, message = text.partition("\t")
    return task[0].name, "error" if status.startswith("the harness failed") else status, message or status


def run_all(cases: Sequence[Small], *, signs: bool = True, allowed: Callable[[str, str], bool] = lambda name, message: False,
            verbose: bool = False) -> int:
    """Checks every case; `allowed` says which refusals (name, message) are known limits. Prints what is wrong and the
    line "N passed, N failed"; gives the exit code."""
    passed = failed = skipped = listed = 0
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        for name, status, message in pool.imap_unordered(_work, [(c, signs) for c in cases], chunksize=2):
            bad = status not in ("pass", "skipped") and not (status == "unsupported" and allowed(name, message))
            passed, failed = passed + (status == "pass"), failed + bad
            skipped += status == "skipped"
            listed += status == "unsupported" and not bad
            if bad or verbose:
                print(f"{name}: {status}: {message}", flush=True)
    print(f"{skipped} that ONNX Runtime does not take, {listed} known limits")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
